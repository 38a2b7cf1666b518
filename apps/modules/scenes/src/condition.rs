//! Light, weather and the camera: what happens to a rendered frame before it leaves.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::geometry::Rect;

/// Light and weather of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Bright.
    Day,
    /// Low, warm light; lights are on.
    Dusk,
    /// Dark and blue; lights are on.
    Night,
    /// Grey veil, thicker with distance.
    Fog,
}

impl Condition {
    /// All conditions, in the order of their class ordinals.
    pub const ALL: [Condition; 4] = [
        Condition::Day,
        Condition::Dusk,
        Condition::Night,
        Condition::Fog,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Condition::Day => "day",
            Condition::Dusk => "dusk",
            Condition::Night => "night",
            Condition::Fog => "fog",
        }
    }

    fn gain(self) -> [f32; 3] {
        match self {
            Condition::Day => [1.0, 1.0, 1.0],
            Condition::Dusk => [0.82, 0.66, 0.55],
            Condition::Night => [0.36, 0.4, 0.52],
            Condition::Fog => [0.9, 0.92, 0.94],
        }
    }

    /// Whether vehicles have their lights on.
    pub(crate) fn lights_on(self) -> bool {
        matches!(self, Condition::Dusk | Condition::Night)
    }
}

/// The camera of one scene: exposure, blur, noise.
pub(crate) struct Camera {
    condition: Condition,
    exposure: f32,
    /// Share of each neighbour in the three-tap blur, 0 to 1/3.
    blur: f32,
    /// Noise in grey levels, drawn once; each row of a frame reads from another place.
    noise: Vec<i8>,
}

impl Camera {
    pub(crate) fn new(
        rng: &mut ChaCha8Rng,
        condition: Condition,
        blur: Option<f32>,
        noise: Option<f32>,
    ) -> Self {
        let exposure = rng.random_range(0.88..1.1);
        let blur = blur.unwrap_or(if rng.random_bool(0.5) {
            0.0
        } else {
            rng.random_range(0.0..0.2)
        });
        let sigma = noise.unwrap_or_else(|| rng.random_range(0.5..6.0));
        let noise = (0..1 << 16)
            .map(|_| {
                // The sum of four uniform numbers is close enough to a normal one.
                let sum: f32 = (0..4).map(|_| rng.random_range(-1.0f32..1.0)).sum();
                (sum * 0.866 * sigma).clamp(-127.0, 127.0) as i8
            })
            .collect();
        Camera {
            condition,
            exposure,
            blur: blur.clamp(0.0, 0.33),
            noise,
        }
    }

    /// Turns a rendered frame into what the camera sees. `lights` are the places of lamps that shine.
    pub(crate) fn expose(&self, rgb: &mut [u8], width: usize, frame: u64, lights: &[(Rect, bool)]) {
        let height = rgb.len() / 3 / width;
        // Clouds pass: light changes slowly.
        let cloud = 1.0 + 0.07 * ((frame as f32) * 0.013).sin();
        let gain = self.condition.gain().map(|g| g * self.exposure * cloud);
        let tables = gain
            .map(|g| std::array::from_fn::<u8, 256, _>(|v| (v as f32 * g).clamp(0.0, 255.0) as u8));
        for (y, row) in rgb.chunks_exact_mut(width * 3).enumerate() {
            for pixel in row.chunks_exact_mut(3) {
                for (v, table) in pixel.iter_mut().zip(&tables) {
                    *v = table[usize::from(*v)];
                }
            }
            if self.condition == Condition::Fog {
                let veil = 0.62 - 0.3 * y as f32 / height as f32;
                let (keep, add) = (((1.0 - veil) * 256.0) as u32, (veil * 205.0) as u32);
                for v in row.iter_mut() {
                    *v = (((u32::from(*v) * keep) >> 8) + add).min(255) as u8;
                }
            }
        }
        for (place, rear) in lights {
            glow(
                rgb,
                width,
                height,
                *place,
                if *rear {
                    [150, 20, 16]
                } else {
                    [170, 160, 120]
                },
            );
        }
        if self.blur > 0.01 {
            blur_rows(rgb, width, self.blur);
            blur_columns(rgb, width, self.blur);
        }
        let mut at = (frame.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        for row in rgb.chunks_exact_mut(width * 3) {
            at = at.wrapping_mul(25).wrapping_add(7919);
            let mut rest = row;
            let mut from = at & 0x7fff;
            while !rest.is_empty() {
                let n = rest.len().min(self.noise.len() - from);
                for (v, noise) in rest[..n].iter_mut().zip(&self.noise[from..from + n]) {
                    *v = v.saturating_add_signed(*noise);
                }
                rest = &mut rest[n..];
                from = 0;
            }
        }
    }
}

fn glow(rgb: &mut [u8], width: usize, height: usize, place: Rect, color: [u8; 3]) {
    let (cx, cy) = ((place.x0 + place.x1) / 2.0, (place.y0 + place.y1) / 2.0);
    let radius = place.width();
    let clamp = |v: f32, max: usize| (v.max(0.0) as usize).min(max);
    for y in clamp(cy - radius, height)..clamp(cy + radius, height) {
        for x in clamp(cx - radius, width)..clamp(cx + radius, width) {
            let (dx, dy) = (x as f32 + 0.5 - cx, y as f32 + 0.5 - cy);
            let t = 1.0 - (dx * dx + dy * dy).sqrt() / radius;
            if t > 0.0 {
                let at = (y * width + x) * 3;
                for (v, c) in rgb[at..at + 3].iter_mut().zip(color) {
                    *v = v.saturating_add((f32::from(c) * t * t) as u8);
                }
            }
        }
    }
}

/// Weights in 1/256 of a pixel and of each of its two neighbours.
fn weights(blur: f32) -> (u16, u16) {
    let side = (blur * 256.0) as u16;
    (256 - 2 * side, side)
}

fn blur_rows(rgb: &mut [u8], width: usize, blur: f32) {
    let (centre, side) = weights(blur);
    let mut copy = vec![0u8; width * 3];
    for row in rgb.chunks_exact_mut(width * 3) {
        copy.copy_from_slice(row);
        let n = row.len();
        let inner = row[3..n - 3].iter_mut();
        for (v, ((&a, &b), &c)) in inner.zip(copy.iter().zip(&copy[3..]).zip(&copy[6..])) {
            *v = mixed(a, b, c, centre, side);
        }
    }
}

fn blur_columns(rgb: &mut [u8], width: usize, blur: f32) {
    let (centre, side) = weights(blur);
    let stride = width * 3;
    let mut above = rgb[..stride].to_vec();
    let mut this = above.clone();
    let n_rows = rgb.len() / stride;
    for y in 1..n_rows.saturating_sub(1) {
        let (head, tail) = rgb.split_at_mut((y + 1) * stride);
        let row = &mut head[y * stride..];
        this.copy_from_slice(row);
        for (v, ((&a, &b), &c)) in row
            .iter_mut()
            .zip(above.iter().zip(&this).zip(&tail[..stride]))
        {
            *v = mixed(a, b, c, centre, side);
        }
        std::mem::swap(&mut above, &mut this);
    }
}

fn mixed(a: u8, b: u8, c: u8, centre: u16, side: u16) -> u8 {
    // At most 255 * 256: fits 16 bits.
    ((u16::from(b) * centre + (u16::from(a) + u16::from(c)) * side) >> 8) as u8
}
