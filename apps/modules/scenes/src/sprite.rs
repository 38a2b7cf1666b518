//! Drawing: a canvas with simple shapes, and sprites that are drawn once at a high resolution and
//! blended into frames at any size (halved step by step, then sampled bilinearly, so that they stay
//! smooth while they move and grow).

use crate::geometry::Rect;

/// A colour, red, green, blue.
pub(crate) type Color = [u8; 3];

/// A colour scaled in brightness.
pub(crate) fn shaded(color: Color, by: f32) -> Color {
    color.map(|c| (f32::from(c) * by).clamp(0.0, 255.0) as u8)
}

/// A picture with an alpha channel, drawn on in units of its own (`scale` pixels a unit).
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    scale: f32,
    /// Premultiplied RGBA.
    pixels: Vec<[u8; 4]>,
}

impl Canvas {
    /// A transparent canvas of `width` x `height` units.
    pub(crate) fn new(width: f32, height: f32, scale: f32) -> Self {
        let (w, h) = (
            (width * scale).round() as usize,
            (height * scale).round() as usize,
        );
        Canvas {
            width: w,
            height: h,
            scale,
            pixels: vec![[0; 4]; w * h],
        }
    }

    /// Fills what lies inside `bounds` (in units) and for which `inside` says so.
    fn fill(&mut self, bounds: Rect, color: Color, alpha: f32, inside: impl Fn(f32, f32) -> bool) {
        let at = |v: f32, max: usize| ((v * self.scale).round().max(0.0) as usize).min(max);
        let (x0, x1) = (at(bounds.x0, self.width), at(bounds.x1, self.width));
        let (y0, y1) = (at(bounds.y0, self.height), at(bounds.y1, self.height));
        let a = (alpha * 255.0) as u32;
        let per_pixel = 1.0 / self.scale;
        for y in y0..y1 {
            for x in x0..x1 {
                if inside((x as f32 + 0.5) * per_pixel, (y as f32 + 0.5) * per_pixel) {
                    let pixel = &mut self.pixels[y * self.width + x];
                    for (p, c) in pixel.iter_mut().zip(color) {
                        *p = ((u32::from(c) * a + u32::from(*p) * (255 - a)) / 255) as u8;
                    }
                    pixel[3] = (a + u32::from(pixel[3]) * (255 - a) / 255) as u8;
                }
            }
        }
    }

    /// A filled rectangle.
    pub(crate) fn rect(&mut self, r: Rect, color: Color) {
        self.fill(r, color, 1.0, |_, _| true);
    }

    /// A rectangle with some transparency.
    pub(crate) fn veil(&mut self, r: Rect, color: Color, alpha: f32) {
        self.fill(r, color, alpha, |_, _| true);
    }

    /// A rectangle with rounded corners.
    pub(crate) fn rounded(&mut self, r: Rect, radius: f32, color: Color) {
        let radius = radius.min(r.width() / 2.0).min(r.height() / 2.0);
        self.fill(r, color, 1.0, |x, y| {
            let dx = (r.x0 + radius - x).max(x - r.x1 + radius).max(0.0);
            let dy = (r.y0 + radius - y).max(y - r.y1 + radius).max(0.0);
            dx * dx + dy * dy <= radius * radius
        });
    }

    /// A filled ellipse in a rectangle.
    pub(crate) fn ellipse(&mut self, r: Rect, color: Color) {
        self.haze(r, color, 1.0);
    }

    /// An ellipse with some transparency.
    pub(crate) fn haze(&mut self, r: Rect, color: Color, alpha: f32) {
        let (cx, cy) = ((r.x0 + r.x1) / 2.0, (r.y0 + r.y1) / 2.0);
        let (rx, ry) = (r.width() / 2.0, r.height() / 2.0);
        self.fill(r, color, alpha, |x, y| {
            let (dx, dy) = ((x - cx) / rx, (y - cy) / ry);
            dx * dx + dy * dy <= 1.0
        });
    }

    /// A trapezoid with horizontal edges: `top` and `bottom` are their x ranges.
    pub(crate) fn trapezoid(
        &mut self,
        (y0, y1): (f32, f32),
        top: (f32, f32),
        bottom: (f32, f32),
        color: Color,
    ) {
        let bounds = Rect::new(top.0.min(bottom.0), y0, top.1.max(bottom.1), y1);
        self.fill(bounds, color, 1.0, |x, y| {
            let t = (y - y0) / (y1 - y0);
            x >= top.0 + (bottom.0 - top.0) * t && x <= top.1 + (bottom.1 - top.1) * t
        });
    }

    /// One line of text of the plates' font into a rectangle, which it fills.
    pub(crate) fn text(&mut self, r: Rect, text: &str, color: Color) {
        use crate::font::{GLYPH_HEIGHT, GLYPH_WIDTH, is_set};
        let n = text.chars().count();
        let columns = n * (GLYPH_WIDTH + 1) - 1;
        let letters: Vec<char> = text.chars().collect();
        self.fill(r, color, 1.0, |x, y| {
            let column = ((x - r.x0) / r.width() * columns as f32) as usize;
            let row = ((y - r.y0) / r.height() * GLYPH_HEIGHT as f32) as usize;
            let (letter, column) = (column / (GLYPH_WIDTH + 1), column % (GLYPH_WIDTH + 1));
            row < GLYPH_HEIGHT
                && column < GLYPH_WIDTH
                && letter < n
                && is_set(letters[letter], column, row)
        });
    }

    /// The finished sprite.
    pub(crate) fn into_sprite(self) -> Sprite {
        let mut levels = vec![Level {
            width: self.width,
            height: self.height,
            pixels: self.pixels,
        }];
        while levels[levels.len() - 1].width >= 16 && levels[levels.len() - 1].height >= 16 {
            let smaller = levels[levels.len() - 1].halved();
            levels.push(smaller);
        }
        Sprite { levels }
    }
}

/// A picture with alpha at several resolutions.
pub(crate) struct Sprite {
    levels: Vec<Level>,
}

struct Level {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 4]>,
}

impl Level {
    fn halved(&self) -> Level {
        let (width, height) = (self.width / 2, self.height / 2);
        let mut pixels = Vec::with_capacity(width * height);
        for y in 0..height {
            for x in 0..width {
                let mut sum = [0u32; 4];
                for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                    let p = self.pixels[(2 * y + dy) * self.width + 2 * x + dx];
                    for (s, v) in sum.iter_mut().zip(p) {
                        *s += u32::from(v);
                    }
                }
                pixels.push(sum.map(|s| ((s + 2) / 4) as u8));
            }
        }
        Level {
            width,
            height,
            pixels,
        }
    }
}

impl Sprite {
    /// Blends the sprite into `frame` (RGB, `width` columns) so that it fills `place`.
    pub(crate) fn blend(&self, frame: &mut [u8], width: usize, place: Rect) {
        let height = frame.len() / 3 / width;
        if place.width() < 1.0 || place.height() < 1.0 {
            return;
        }
        let level = self
            .levels
            .iter()
            .rev()
            .find(|l| l.width as f32 >= place.width())
            .unwrap_or(&self.levels[0]);
        let (sx, sy) = (
            level.width as f32 / place.width(),
            level.height as f32 / place.height(),
        );
        let x_range = pixels_of(place.x0, place.x1, width);
        let y_range = pixels_of(place.y0, place.y1, height);
        for y in y_range {
            let (v0, v1, fv) = tap((y as f32 + 0.5 - place.y0) * sy - 0.5, level.height);
            let (upper, lower) = (
                &level.pixels[v0 * level.width..],
                &level.pixels[v1 * level.width..],
            );
            let row = &mut frame[y * width * 3..(y + 1) * width * 3];
            for x in x_range.clone() {
                let (u0, u1, fu) = tap((x as f32 + 0.5 - place.x0) * sx - 0.5, level.width);
                let (a, b, c, d) = (upper[u0], upper[u1], lower[u0], lower[u1]);
                let mix = |i: usize| {
                    let top = u32::from(a[i]) * (256 - fu) + u32::from(b[i]) * fu;
                    let bottom = u32::from(c[i]) * (256 - fu) + u32::from(d[i]) * fu;
                    (top * (256 - fv) + bottom * fv) >> 16
                };
                let alpha = mix(3);
                if alpha == 0 {
                    continue;
                }
                for (i, p) in row[x * 3..x * 3 + 3].iter_mut().enumerate() {
                    *p = (mix(i) + u32::from(*p) * (255 - alpha) / 255).min(255) as u8;
                }
            }
        }
    }

    /// The finest level over `background`, as rows of RGB.
    pub(crate) fn opaque_at_half(&self) -> Vec<u8> {
        let level = &self.levels[1];
        level
            .pixels
            .iter()
            .flat_map(|p| [p[0], p[1], p[2]])
            .collect()
    }
}

/// Pixels whose centres lie between two edges.
fn pixels_of(from: f32, to: f32, max: usize) -> std::ops::Range<usize> {
    let at = |v: f32| ((v + 0.5).floor().max(0.0) as usize).min(max);
    at(from)..at(to)
}

/// The two samples around a position and the weight of the second in 1/256.
fn tap(position: f32, len: usize) -> (usize, usize, u32) {
    let position = position.clamp(0.0, (len - 1) as f32);
    let low = position as usize;
    (
        low,
        (low + 1).min(len - 1),
        ((position - low as f32) * 256.0) as u32,
    )
}
