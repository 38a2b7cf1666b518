//! Pictures as bad as cameras make them: dark, blurred, noisy, partly hidden. The degree differs from picture to
//! picture; this is why a network with early exits saves time.

use bytes::Bytes;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use spillgate_process::value::Image;

/// Darkest exposure of all.
const GAIN_MIN: f32 = 0.3;
/// Strongest noise in grey levels.
const NOISE_MAX: f32 = 40.0;
/// Widest blur: pixels to each side.
const BLUR_MAX: f32 = 2.99;
/// Largest part of the picture's width or height that something hides.
const HIDDEN_MAX: f32 = 0.5;

/// The picture, worn by `severity`, 0 (as it is) to 1.
pub(crate) fn worn(image: &Image, severity: f32, rng: &mut ChaCha8Rng) -> Image {
    let (width, height) = (image.width as usize, image.height as usize);
    let mut rgb: Vec<f32> = image.rgb.iter().map(|v| f32::from(*v)).collect();
    hide(
        &mut rgb,
        width,
        height,
        severity * rng.random_range(0.0..HIDDEN_MAX),
        rng,
    );
    let radius = (severity * rng.random_range(0.0..BLUR_MAX)) as usize;
    blur(&mut rgb, width, height, radius);
    let gain = 1.0 - severity * rng.random_range(0.0..1.0 - GAIN_MIN);
    let noise = severity * rng.random_range(0.0..NOISE_MAX);
    let rgb: Vec<u8> = rgb
        .into_iter()
        .map(|v| {
            // The sum of three uniform numbers is close enough to a normal one.
            let normal: f32 = (0..3).map(|_| rng.random_range(-1.0f32..1.0)).sum();
            (v * gain + normal * noise).clamp(0.0, 255.0) as u8
        })
        .collect();
    Image {
        width: image.width,
        height: image.height,
        rgb: Bytes::from(rgb),
    }
}

/// Paints a bar of one colour over `share` of the picture, upright or across.
fn hide(rgb: &mut [f32], width: usize, height: usize, share: f32, rng: &mut ChaCha8Rng) {
    let colour: [f32; 3] = std::array::from_fn(|_| rng.random_range(0.0..255.0));
    let upright = rng.random_bool(0.5);
    let n = if upright { width } else { height };
    let thick = (n as f32 * share) as usize;
    let from = rng.random_range(0..=n - thick);
    for y in 0..height {
        for x in 0..width {
            if (from..from + thick).contains(if upright { &x } else { &y }) {
                rgb[(y * width + x) * 3..][..3].copy_from_slice(&colour);
            }
        }
    }
}

/// Mean over the pixels up to `radius` away, along rows and then along columns.
fn blur(rgb: &mut [f32], width: usize, height: usize, radius: usize) {
    if radius == 0 {
        return;
    }
    for (n, step, lines, line_step) in
        [(width, 3, height, width * 3), (height, width * 3, width, 3)]
    {
        let mut copy = vec![0.0; n];
        for line in 0..lines {
            for channel in 0..3 {
                let at = |i: usize| line * line_step + i * step + channel;
                for (i, v) in copy.iter_mut().enumerate() {
                    *v = rgb[at(i)];
                }
                for i in 0..n {
                    let near = &copy[i.saturating_sub(radius)..(i + radius + 1).min(n)];
                    rgb[at(i)] = near.iter().sum::<f32>() / near.len() as f32;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn checkers() -> Image {
        let rgb: Vec<u8> = (0..16 * 16 * 3)
            .map(|i| if i / 3 % 2 == 0 { 200 } else { 40 })
            .collect();
        Image {
            width: 16,
            height: 16,
            rgb: rgb.into(),
        }
    }

    #[test]
    fn severity_says_how_much_is_changed() {
        let image = checkers();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(worn(&image, 0.0, &mut rng), image);
        let mut change = |severity| -> f32 {
            let pairs = (0..20).flat_map(|_| {
                let after = worn(&image, severity, &mut rng);
                let pairs = image.rgb.iter().copied().zip(after.rgb);
                pairs.collect::<Vec<(u8, u8)>>()
            });
            pairs.map(|(a, b)| f32::from(a.abs_diff(b))).sum()
        };
        let (little, much) = (change(0.2), change(1.0));
        assert!(little > 0.0 && much > 2.0 * little, "{little}, {much}");
    }

    #[test]
    fn blur_is_a_mean_that_keeps_what_is_even() {
        let mut even = vec![70.0; 5 * 4 * 3];
        blur(&mut even, 5, 4, 2);
        assert!(even.iter().all(|v| (v - 70.0).abs() < 1e-4), "{even:?}");
        let mut dot = vec![0.0; 3 * 3 * 3];
        dot[4 * 3] = 9.0;
        blur(&mut dot, 3, 3, 1);
        assert!((dot[4 * 3] - 1.0).abs() < 1e-5, "{dot:?}");
    }
}
