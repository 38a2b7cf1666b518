//! Frames of the built-in scene, spread over many streets.
//!
//! One street has one light, one blur and one traffic, and its frames of a second show the same objects. So a few frames of
//! each street count, some seconds apart; the streets are those of the seed that is asked for and of the seeds after it.

use anyhow::{Context, Result};
use image::RgbImage;
use spillgate_scenes::{Scene, SceneConfig};

use super::{Sample, Truth};
use crate::encode::{JPEG_QUALITY, jpeg};

/// Frames of a street.
const PER_STREET: u64 = 4;
/// Frames from one to the next: about two seconds.
const APART: u64 = 61;

/// Endlessly many, as `spillgate stream` sends them: through JPEG.
pub(super) fn samples(config: &SceneConfig) -> impl Iterator<Item = Result<Sample>> {
    let config = config.clone();
    let mut street = None;
    (0..).map(move |n: u64| {
        let seed = config.seed.wrapping_add(n / PER_STREET);
        if n.is_multiple_of(PER_STREET) {
            street = None;
        }
        let scene = street.get_or_insert_with(|| {
            Scene::new(SceneConfig {
                seed,
                ..config.clone()
            })
        });
        let frame = n % PER_STREET * APART;
        let (pixels, truth) = scene.frame(frame);
        let picture = RgbImage::from_raw(pixels.width, pixels.height, pixels.rgb)
            .context("a scene's frame has the wrong number of bytes")?;
        Ok(Sample {
            name: format!("frame {frame} of scene:seed={seed}"),
            picture: jpeg(&picture, JPEG_QUALITY)?.into(),
            truth: Truth::Boxes(truth.expected().to_vec()),
        })
    })
}
