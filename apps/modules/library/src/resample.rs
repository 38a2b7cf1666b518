//! Pictures into network inputs: any region of a picture, resampled to any size with an antialiased bilinear filter (that of Pillow and of
//! torchvision with `antialias`, rounded to grey levels as there; `fast_image_resize`), and written into the input tensor in its layout and
//! normalisation.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use spillgate_process::value::Image;

/// A part of a picture, in pixels; it may reach over the picture's edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    /// Left edge.
    pub x0: f32,
    /// Top edge.
    pub y0: f32,
    /// Right edge.
    pub x1: f32,
    /// Bottom edge.
    pub y1: f32,
}

impl Region {
    /// All of a picture.
    pub fn of(image: &Image) -> Self {
        Region {
            x0: 0.0,
            y0: 0.0,
            x1: image.width as f32,
            y1: image.height as f32,
        }
    }
}

/// How pixels lie in an input tensor. A value `v` of channel `c` (0 to 255) becomes `v * mul[c] + add[c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelFormat {
    /// Rows of interleaved pixels instead of one plane a channel.
    pub interleaved: bool,
    /// Blue first.
    pub bgr: bool,
    /// By the tensor's channels, so in its order of colours.
    pub mul: [f32; 3],
    /// By the tensor's channels.
    pub add: [f32; 3],
}

impl PixelFormat {
    /// One plane a channel, RGB, 0 to 1.
    pub const UNIT: PixelFormat = PixelFormat {
        interleaved: false,
        bgr: false,
        mul: [1.0 / 255.0; 3],
        add: [0.0; 3],
    };
}

/// One picture's place in an input tensor: `width * height * 3` elements.
pub struct Target<'a> {
    /// The elements.
    pub data: &'a mut [f32],
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// How pixels lie in it.
    pub format: &'a PixelFormat,
}

/// Where in a target to paint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Target<'_> {
    /// Fills all of it with one grey level.
    pub fn fill(&mut self, grey: f32) {
        let everything = Place {
            x: 0,
            y: 0,
            width: 0,
            height: 0,
        };
        self.fill_around(everything, grey);
    }

    /// Fills it with one grey level, but for a place that is painted.
    pub fn fill_around(&mut self, place: Place, grey: f32) {
        let PixelFormat { mul, add, .. } = *self.format;
        let level: [f32; 3] = std::array::from_fn(|c| grey * mul[c] + add[c]);
        let (left, right) = (place.x, place.x + place.width);
        for y in 0..self.height {
            let is_beside = (place.y..place.y + place.height).contains(&y);
            let columns = match is_beside {
                true => [0..left, right..self.width],
                false => [0..self.width, 0..0],
            };
            for columns in columns {
                let (first, last) = (columns.start, columns.end);
                let row = y * self.width;
                if self.format.interleaved {
                    let pixels = self.data[(row + first) * 3..(row + last) * 3].chunks_exact_mut(3);
                    pixels.for_each(|pixel| pixel.copy_from_slice(&level));
                    continue;
                }
                let plane = self.width * self.height;
                for (c, level) in level.into_iter().enumerate() {
                    let start = c * plane + row;
                    self.data[start + first..start + last].fill(level);
                }
            }
        }
    }

    /// Writes `width` pixels from column `x` of row `y` on: those of `row`, at the positions that show them.
    fn write_row(&mut self, y: usize, x: usize, width: usize, row: &[u8], shown: &Shown) {
        let PixelFormat {
            interleaved,
            bgr,
            mul,
            add,
        } = *self.format;
        let plane = self.width * self.height;
        let at = y * self.width + x;
        let end = shown.first + shown.n;
        for c in 0..3 {
            let source = if bgr { 2 - c } else { c };
            let value = |pixel: &[u8]| f32::from(pixel[source]) * mul[c] + add[c];
            let pixels = row.chunks_exact(3);
            let edges = [value(&row[..3]), value(&row[row.len() - 3..])];
            if interleaved {
                let all = &mut self.data[at * 3..(at + width) * 3];
                let mut set = |i: usize, v: f32| all[i * 3 + c] = v;
                (0..shown.first).for_each(|i| set(i, edges[0]));
                (shown.first..end)
                    .zip(pixels)
                    .for_each(|(i, p)| set(i, value(p)));
                (end..width).for_each(|i| set(i, edges[1]));
            } else {
                let all = &mut self.data[c * plane + at..c * plane + at + width];
                all[..shown.first].fill(edges[0]);
                let inside = all[shown.first..end].iter_mut();
                inside.zip(pixels).for_each(|(to, p)| *to = value(p));
                all[end..].fill(edges[1]);
            }
        }
    }
}

/// Resamples; keeps its buffers from one picture to the next.
#[derive(Default)]
pub struct Resampler {
    resizer: Resizer,
    /// Pixels of the part of a place that lies in the picture.
    pixels: Vec<u8>,
}

/// Along one axis: the part of a region that lies in the picture, and the positions of the target that show it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    from: f64,
    len: f64,
    first: usize,
    n: usize,
}

impl Shown {
    fn of(from: f32, to: f32, source_len: u32, target_len: usize) -> Self {
        let (from, to, source) = (f64::from(from), f64::from(to), f64::from(source_len));
        let step = (to - from) / target_len as f64;
        let position = |at: f64| ((at - from) / step).round().clamp(0.0, target_len as f64);
        let (inside_from, inside_to) = (from.clamp(0.0, source), to.clamp(0.0, source));
        let (first, end) = (position(inside_from) as usize, position(inside_to) as usize);
        if inside_to > inside_from && end > first {
            return Shown {
                from: inside_from,
                len: inside_to - inside_from,
                first,
                n: end - first,
            };
        }
        // Nothing of it, or less than a position of the target: the pixel that is nearest shows everywhere.
        Shown {
            from: inside_from.floor().min(source - 1.0),
            len: 1.0,
            first: first.min(target_len - 1),
            n: 1,
        }
    }

    /// Which of the positions that show it is nearest to a position of the target.
    fn nearest(&self, i: usize) -> usize {
        i.saturating_sub(self.first).min(self.n - 1)
    }
}

impl Resampler {
    /// Paints `region` of `image` into `place` of `target`. Where the region reaches over an edge of the picture, the pixels at the edge go on.
    ///
    /// # Panics
    /// When the image has no pixels or the place does not lie in the target: callers check.
    pub fn paint(&mut self, image: &Image, region: Region, target: &mut Target<'_>, place: Place) {
        let columns = Shown::of(region.x0, region.x1, image.width, place.width);
        let rows = Shown::of(region.y0, region.y1, image.height, place.height);
        let (width, height) = (columns.n as u32, rows.n as u32);
        self.pixels.resize(columns.n * rows.n * 3, 0);
        // Of this one type: the code for each type is compiled where it is used.
        let source = TypedImageRef::<U8x3>::from_buffer(image.width, image.height, &image.rgb);
        let source = source.expect("a picture has as many bytes as its size says");
        let pixels = TypedImage::<U8x3>::from_buffer(width, height, &mut self.pixels);
        let mut pixels = pixels.expect("three bytes a pixel");
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .crop(columns.from, rows.from, columns.len, rows.len);
        self.resizer
            .resize_typed(&source, &mut pixels, &options)
            .expect("the part lies in the picture");
        for y in 0..place.height {
            let start = rows.nearest(y) * columns.n * 3;
            let row = &self.pixels[start..start + columns.n * 3];
            target.write_row(place.y + y, place.x, place.width, row, &columns);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image(width: u32, height: u32, at: impl Fn(u32, u32) -> [u8; 3]) -> Image {
        let rgb: Vec<u8> = (0..height)
            .flat_map(|y| (0..width).map(move |x| (x, y)))
            .flat_map(|(x, y)| at(x, y))
            .collect();
        Image {
            width,
            height,
            rgb: rgb.into(),
        }
    }

    fn resampled(
        image: &Image,
        region: Region,
        w: usize,
        h: usize,
        format: &PixelFormat,
    ) -> Vec<f32> {
        let mut data = vec![f32::NAN; w * h * 3];
        let mut target = Target {
            data: &mut data,
            width: w,
            height: h,
            format,
        };
        let place = Place {
            x: 0,
            y: 0,
            width: w,
            height: h,
        };
        Resampler::default().paint(image, region, &mut target, place);
        data
    }

    #[test]
    fn same_size_copies() {
        let source = image(5, 4, |x, y| [x as u8 * 10, y as u8 * 20, 7]);
        let data = resampled(&source, Region::of(&source), 5, 4, &PixelFormat::UNIT);
        assert_eq!((data[3] * 255.0).round(), 30.0);
        assert_eq!((data[20 + 5] * 255.0).round(), 20.0);
        assert_eq!((data[40] * 255.0).round(), 7.0);
    }

    #[test]
    fn reducing_keeps_the_mean_and_constant_pictures() {
        let source = image(64, 48, |x, _| if x % 2 == 0 { [0; 3] } else { [200; 3] });
        let data = resampled(&source, Region::of(&source), 8, 6, &PixelFormat::UNIT);
        for v in data {
            assert!((v * 255.0 - 100.0).abs() < 5.0, "{v}");
        }
    }

    #[test]
    fn colour_order_and_interleaving() {
        let source = image(2, 2, |_, _| [10, 20, 30]);
        let format = PixelFormat {
            interleaved: true,
            bgr: true,
            mul: [1.0; 3],
            add: [0.5; 3],
        };
        let data = resampled(&source, Region::of(&source), 1, 1, &format);
        assert_eq!(data, [30.5, 20.5, 10.5]);
    }

    #[test]
    fn regions_beyond_the_edges_repeat_them() {
        let source = image(4, 4, |_, _| [50, 60, 70]);
        let region = Region {
            x0: -10.0,
            y0: 2.0,
            x1: 20.0,
            y1: 30.0,
        };
        let data = resampled(&source, region, 6, 6, &PixelFormat::UNIT);
        assert!(data[..36].iter().all(|v| (v * 255.0 - 50.0).abs() < 0.01));
    }

    /// Weights of the source positions for one target position, by the definition of the filter.
    fn weights(from: f64, to: f64, source_len: usize, target_len: usize, i: usize) -> Vec<f64> {
        let step = (to - from) / target_len as f64;
        let support = step.max(1.0);
        let centre = from + (i as f64 + 0.5) * step;
        let at = |j: usize| (1.0 - (j as f64 + 0.5 - centre).abs() / support).max(0.0);
        let all: Vec<f64> = (0..source_len).map(at).collect();
        let sum: f64 = all.iter().sum();
        all.iter().map(|w| w / sum).collect()
    }

    proptest! {
        #[test]
        fn each_pixel_is_the_filtered_part_of_the_picture(
            (width, height) in (1u32..40, 1u32..40), (w, h) in (1usize..30, 1usize..30),
            (ax, bx, ay, by) in (0.0f32..1.0, 0.0f32..1.0, 0.0f32..1.0, 0.0f32..1.0), seed in 0u32..1000,
        ) {
            let source = image(width, height, |x, y| {
                std::array::from_fn(|c| ((x * 31 + y * 57 + c as u32 * 101 + seed * 7).wrapping_mul(2_654_435_761) >> 24) as u8)
            });
            let span = |a: f32, b: f32, len: u32| {
                let (from, to) = (a.min(b) * len as f32, a.max(b) * len as f32);
                (from, to.max(from + 0.05).min(len as f32))
            };
            let ((x0, x1), (y0, y1)) = (span(ax, bx, width), span(ay, by, height));
            prop_assume!(x1 > x0 && y1 > y0);
            let data = resampled(&source, Region { x0, y0, x1, y1 }, w, h, &PixelFormat::UNIT);
            for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                let columns = weights(x0.into(), x1.into(), width as usize, w, x);
                let rows = weights(y0.into(), y1.into(), height as usize, h, y);
                for c in 0..3 {
                    let pixel = |i: usize, j: usize| f64::from(source.rgb[(i * width as usize + j) * 3 + c]);
                    let row = |i: usize| columns.iter().enumerate().map(|(j, v)| v * pixel(i, j)).sum::<f64>();
                    let expected: f64 = rows.iter().enumerate().map(|(i, v)| v * row(i)).sum();
                    let given = f64::from(data[c * w * h + y * w + x]) * 255.0;
                    prop_assert!((given - expected).abs() < 1.6, "{given} and {expected} at {x}, {y}");
                }
            }
        }

        #[test]
        fn a_region_anywhere_fills_its_place(
            (x0, y0, x1, y1) in (-300.0f32..300.0, -300.0f32..300.0, -300.0f32..300.0, -300.0f32..300.0),
            (w, h) in (1usize..40, 1usize..40), interleaved: bool,
        ) {
            let source = image(50, 30, |x, y| [x as u8 + 1, y as u8 + 1, 9]);
            let region = Region { x0: x0.min(x1), y0: y0.min(y1), x1: x0.max(x1), y1: y0.max(y1) };
            let format = PixelFormat { interleaved, ..PixelFormat::UNIT };
            let data = resampled(&source, region, w, h, &format);
            prop_assert!(data.iter().all(|v| (0.9..50.5).contains(&(v * 255.0))), "{data:?}");
        }
    }
}
