//! Pictures into network inputs: any region of a picture, resampled to any size with an antialiased
//! bilinear filter (that of Pillow and of torchvision with `antialias`), written straight into the
//! input tensor in its layout and normalisation.

use spillgate_backend::value::Image;

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
        let plane = self.width * self.height;
        for (i, v) in self.data.iter_mut().enumerate() {
            let c = if self.format.interleaved {
                i % 3
            } else {
                i / plane
            };
            *v = grey * self.format.mul[c] + self.format.add[c];
        }
    }

    fn write_row(&mut self, y: usize, x: usize, rgb: &[f32]) {
        let PixelFormat {
            interleaved,
            bgr,
            mul,
            add,
        } = *self.format;
        let plane = self.width * self.height;
        let first = y * self.width + x;
        for c in 0..3 {
            let source = if bgr { 2 - c } else { c };
            let values = rgb[source..].iter().step_by(3).map(|v| v * mul[c] + add[c]);
            if interleaved {
                let row = self.data[first * 3 + c..].iter_mut().step_by(3);
                row.zip(values).for_each(|(d, v)| *d = v);
            } else {
                let start = c * plane + first;
                let row = self.data[start..start + rgb.len() / 3].iter_mut();
                row.zip(values).for_each(|(d, v)| *d = v);
            }
        }
    }
}

/// Resamples; keeps its buffers from one picture to the next.
#[derive(Default)]
pub struct Resampler {
    columns: Taps,
    rows: Taps,
    /// One row of the source's height-reduced picture.
    mixed: Vec<f32>,
    row: Vec<f32>,
}

/// For each target position the first source position and its weights.
#[derive(Default)]
struct Taps {
    spans: Vec<(usize, usize, usize)>,
    weights: Vec<f32>,
}

impl Taps {
    fn set(&mut self, from: f32, to: f32, source_len: usize, target_len: usize) {
        self.spans.clear();
        self.weights.clear();
        let step = (to - from) / target_len as f32;
        let support = step.max(1.0);
        for i in 0..target_len {
            let centre = from + (i as f32 + 0.5) * step;
            let first = (centre - support + 0.5)
                .floor()
                .clamp(0.0, (source_len - 1) as f32) as usize;
            let last = (centre + support - 0.5)
                .ceil()
                .clamp(0.0, (source_len - 1) as f32) as usize;
            let start = self.weights.len();
            for j in first..=last {
                let distance = (j as f32 + 0.5 - centre).abs() / support;
                self.weights.push((1.0 - distance).max(0.0));
            }
            let sum: f32 = self.weights[start..].iter().sum();
            if sum > 0.0 {
                self.weights[start..].iter_mut().for_each(|w| *w /= sum);
            } else {
                // Wholly outside the picture: its edge goes on.
                self.weights[start] = 1.0;
            }
            self.spans.push((first, start, self.weights.len()));
        }
    }

    fn at(&self, i: usize) -> (usize, &[f32]) {
        let (first, start, end) = self.spans[i];
        (first, &self.weights[start..end])
    }
}

impl Resampler {
    /// Paints `region` of `image` into `place` of `target`.
    ///
    /// # Panics
    /// When the image has no pixels or the place does not lie in the target: callers check.
    pub fn paint(&mut self, image: &Image, region: Region, target: &mut Target<'_>, place: Place) {
        let (width, height) = (image.width as usize, image.height as usize);
        self.columns.set(region.x0, region.x1, width, place.width);
        self.rows.set(region.y0, region.y1, height, place.height);
        // Only the columns that some target pixel reads are mixed.
        let first_column = (0..place.width)
            .map(|i| self.columns.at(i).0)
            .min()
            .unwrap_or(0);
        let end_column = (0..place.width)
            .map(|i| self.columns.at(i).0 + self.columns.at(i).1.len())
            .max()
            .unwrap_or(0);
        let n_mixed = (end_column - first_column) * 3;
        self.row.clear();
        self.row.resize(place.width * 3, 0.0);
        for y in 0..place.height {
            self.mixed.clear();
            self.mixed.resize(n_mixed, 0.0);
            let (first, weights) = self.rows.at(y);
            for (i, weight) in weights.iter().enumerate() {
                let start = ((first + i) * width + first_column) * 3;
                let source = &image.rgb[start..start + n_mixed];
                for (m, s) in self.mixed.iter_mut().zip(source) {
                    *m += f32::from(*s) * weight;
                }
            }
            for (x, out) in self.row.chunks_exact_mut(3).enumerate() {
                let (first, weights) = self.columns.at(x);
                let start = (first - first_column) * 3;
                let mut sum = [0.0f32; 3];
                for (pixel, weight) in self.mixed[start..].chunks_exact(3).zip(weights) {
                    for (s, p) in sum.iter_mut().zip(pixel) {
                        *s += p * weight;
                    }
                }
                out.copy_from_slice(&sum);
            }
            target.write_row(place.y + y, place.x, &self.row);
        }
    }
}

#[cfg(test)]
mod tests {
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
}
