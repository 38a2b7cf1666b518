//! A whole picture into a network input of another shape: scaled to fit and centred on grey
//! ("letterbox", as YOLO models expect it), or stretched; and boxes back to the picture's pixels.

use spillgate_process::value::Image;

use crate::resample::{Place, Region, Resampler, Target};

/// Grey level around a letterboxed picture.
const GREY: f32 = 114.0;

/// Where a picture lies in a network input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    place: Place,
    /// The part of the picture that is seen there.
    region: Region,
    source: (f32, f32),
}

impl Fit {
    /// Scaled to fit into `width` x `height`, centred.
    pub fn letterbox(source: (u32, u32), width: usize, height: usize) -> Self {
        let scale = (width as f32 / source.0 as f32).min(height as f32 / source.1 as f32);
        let side = |len: u32, max: usize| ((len as f32 * scale).round() as usize).clamp(1, max);
        let (w, h) = (side(source.0, width), side(source.1, height));
        let place = Place {
            x: (width - w) / 2,
            y: (height - h) / 2,
            width: w,
            height: h,
        };
        Fit::of_all(source, place)
    }

    /// Scaled alike until the shorter side is as long as the input's over `part`, and cut to the input around the middle: what
    /// torchvision calls `Resize` and `CenterCrop`, for square inputs with its rounding.
    pub fn crop(source: (u32, u32), width: usize, height: usize, part: f32) -> Self {
        let (w, h) = (source.0 as f32, source.1 as f32);
        let scale = (width as f32 / part / w).max(height as f32 / part / h);
        // Rounded down, but for what a division is off.
        let scaled = |side: f32, least: usize| ((side * scale + 1e-3).floor()).max(least as f32);
        let (scaled_w, scaled_h) = (scaled(w, width), scaled(h, height));
        let first = |scaled: f32, side: usize| ((scaled - side as f32) / 2.0).round_ties_even();
        let (left, top) = (first(scaled_w, width), first(scaled_h, height));
        let (by_x, by_y) = (w / scaled_w, h / scaled_h);
        let region = Region {
            x0: left * by_x,
            y0: top * by_y,
            x1: (left + width as f32) * by_x,
            y1: (top + height as f32) * by_y,
        };
        let place = Place {
            x: 0,
            y: 0,
            width,
            height,
        };
        Fit {
            place,
            region,
            source: (w, h),
        }
    }

    fn of_all(source: (u32, u32), place: Place) -> Self {
        let source = (source.0 as f32, source.1 as f32);
        let region = Region {
            x0: 0.0,
            y0: 0.0,
            x1: source.0,
            y1: source.1,
        };
        Fit {
            place,
            region,
            source,
        }
    }

    /// Stretched to fill `width` x `height`.
    pub fn stretch(source: (u32, u32), width: usize, height: usize) -> Self {
        let place = Place {
            x: 0,
            y: 0,
            width,
            height,
        };
        Fit::of_all(source, place)
    }

    /// Paints the picture into a network input.
    pub fn paint(&self, image: &Image, resampler: &mut Resampler, target: &mut Target<'_>) {
        if self.place.width < target.width || self.place.height < target.height {
            target.fill_around(self.place, GREY);
        }
        resampler.paint(image, self.region, target, self.place);
    }

    /// Pixels of the input a pixel of the picture.
    fn scale(&self) -> (f32, f32) {
        let Region { x0, y0, x1, y1 } = self.region;
        let place = self.place;
        (
            place.width as f32 / (x1 - x0),
            place.height as f32 / (y1 - y0),
        )
    }

    /// A box in pixels of the picture as one in pixels of the network input.
    pub fn to_input(&self, [x0, y0, x1, y1]: [f32; 4]) -> [f32; 4] {
        let (by_x, by_y) = self.scale();
        let x = |v: f32| (v - self.region.x0) * by_x + self.place.x as f32;
        let y = |v: f32| (v - self.region.y0) * by_y + self.place.y as f32;
        [x(x0), y(y0), x(x1), y(y1)]
    }

    /// A point in pixels of the network input as one in pixels of the picture, within its edges.
    pub fn point_to_source(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        let (by_x, by_y) = self.scale();
        let x = (x - self.place.x as f32) / by_x + self.region.x0;
        let y = (y - self.place.y as f32) / by_y + self.region.y0;
        [x.clamp(0.0, self.source.0), y.clamp(0.0, self.source.1)]
    }

    /// A box in pixels of the network input as one in pixels of the picture, cut at its edges.
    pub fn to_source(&self, [x0, y0, x1, y1]: [f32; 4]) -> [f32; 4] {
        let [[x0, y0], [x1, y1]] = [[x0, y0], [x1, y1]].map(|point| self.point_to_source(point));
        [x0, y0, x1, y1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn boxes_survive_the_round_trip(
            width in 1u32..4000, height in 1u32..4000, side in 32usize..700,
            (ax, ay, bx, by) in (0.0f32..1.0, 0.0f32..1.0, 0.0f32..1.0, 0.0f32..1.0),
        ) {
            let (w, h) = (width as f32, height as f32);
            let source = [ax.min(bx) * w, ay.min(by) * h, ax.max(bx) * w, ay.max(by) * h];
            for fit in [
                Fit::letterbox((width, height), side, side),
                Fit::stretch((width, height), side, side),
            ] {
                let input = fit.to_input(source);
                prop_assert!(input.iter().all(|v| (-0.01..=side as f32 + 0.01).contains(v)));
                let back = fit.to_source(input);
                for (a, b) in back.iter().zip(source) {
                    prop_assert!((a - b).abs() <= 1e-3 * w.max(h), "{back:?} {source:?}");
                }
            }
        }
    }

    #[test]
    fn a_crop_shows_the_middle() {
        // 256 x 455 scaled, of which 224 x 224 from (16, 116) on.
        let fit = Fit::crop((360, 640), 224, 224, 0.875);
        let by = 360.0 / 256.0;
        let (x0, y0) = (16.0 * by, 116.0 * (640.0 / 455.0));
        let shown = fit.to_source([0.0, 0.0, 224.0, 224.0]);
        let expected = [x0, y0, x0 + 224.0 * by, y0 + 224.0 * (640.0 / 455.0)];
        for (a, b) in shown.iter().zip(expected) {
            assert!((a - b).abs() < 1e-3, "{shown:?} {expected:?}");
        }
        assert_eq!(
            Fit::crop((100, 100), 50, 50, 1.0),
            Fit::stretch((100, 100), 50, 50)
        );
    }

    #[test]
    fn a_wide_picture_gets_bars_above_and_below() {
        let fit = Fit::letterbox((640, 360), 320, 320);
        assert_eq!(
            fit.place,
            Place {
                x: 0,
                y: 70,
                width: 320,
                height: 180
            }
        );
        assert_eq!(
            fit.to_source([0.0, 0.0, 320.0, 320.0]),
            [0.0, 0.0, 640.0, 360.0]
        );
    }
}
