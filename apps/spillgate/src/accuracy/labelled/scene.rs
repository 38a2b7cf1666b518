//! Frames of the built-in scene, spread over many streets: a few of each, as the shipped models are measured on. The streets are
//! those of the seed that is asked for and of the seeds after it.

use anyhow::{Context, Result};
use image::RgbImage;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_client::encode::{JPEG_QUALITY, jpeg};
use spillgate_client::source::scene::parse;
use spillgate_scenes::{Scene, SceneConfig, Stretch};

use super::{Sample, Truth};

/// Streets to draw.
#[derive(Debug)]
pub(super) struct Streets {
    first: SceneConfig,
    /// How full a street is differs from street to street, as the light does, unless it is asked for.
    is_density_given: bool,
}

impl Streets {
    /// Reads the options of a scene.
    pub(super) fn parse(options: &str) -> Result<Self> {
        let mut all = options.split(',');
        Ok(Streets {
            first: parse(options)?,
            is_density_given: all.any(|option| option.starts_with("density=")),
        })
    }

    /// Endlessly many frames, as `spillgate stream` sends them: through JPEG.
    pub(super) fn samples(&self) -> impl Iterator<Item = Result<Sample>> + '_ {
        (0..).flat_map(|n| {
            let seed = self.first.seed.wrapping_add(n);
            let stretch = Stretch::draw(&mut ChaCha8Rng::seed_from_u64(seed));
            let density = match self.is_density_given {
                true => self.first.density,
                false => stretch.density,
            };
            let mut scene = Scene::new(SceneConfig {
                seed,
                density,
                ..self.first.clone()
            });
            stretch.frames().map(move |number| {
                let name = format!("frame {number} of scene:seed={seed},density={density}");
                sample(&mut scene, number, name)
            })
        })
    }
}

fn sample(scene: &mut Scene, number: u64, name: String) -> Result<Sample> {
    let (pixels, truth) = scene.frame(number);
    let picture = RgbImage::from_raw(pixels.width, pixels.height, pixels.rgb)
        .context("a scene's frame has the wrong number of bytes")?;
    Ok(Sample {
        name,
        picture: jpeg(&picture, JPEG_QUALITY)?.into(),
        truth: Truth::Boxes(truth.expected().to_vec()),
    })
}
