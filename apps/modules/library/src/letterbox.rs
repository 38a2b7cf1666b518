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
        Fit {
            place,
            source: (source.0 as f32, source.1 as f32),
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
        Fit {
            place,
            source: (source.0 as f32, source.1 as f32),
        }
    }

    /// Paints the picture into a network input.
    pub fn paint(&self, image: &Image, resampler: &mut Resampler, target: &mut Target<'_>) {
        if self.place.width < target.width || self.place.height < target.height {
            target.fill_around(self.place, GREY);
        }
        resampler.paint(image, Region::of(image), target, self.place);
    }

    /// A box in pixels of the picture as one in pixels of the network input.
    pub fn to_input(&self, [x0, y0, x1, y1]: [f32; 4]) -> [f32; 4] {
        let sx = self.place.width as f32 / self.source.0;
        let sy = self.place.height as f32 / self.source.1;
        let (x, y) = (self.place.x as f32, self.place.y as f32);
        [x0 * sx + x, y0 * sy + y, x1 * sx + x, y1 * sy + y]
    }

    /// A box in pixels of the network input as one in pixels of the picture, cut at its edges.
    pub fn to_source(&self, [x0, y0, x1, y1]: [f32; 4]) -> [f32; 4] {
        let sx = self.source.0 / self.place.width as f32;
        let sy = self.source.1 / self.place.height as f32;
        let x = |v: f32| ((v - self.place.x as f32) * sx).clamp(0.0, self.source.0);
        let y = |v: f32| ((v - self.place.y as f32) * sy).clamp(0.0, self.source.1);
        [x(x0), y(y0), x(x1), y(y1)]
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
