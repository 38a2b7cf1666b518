//! The built-in scene: `scene:seed=7,size=640x360,density=0.5`.

use anyhow::{Context, Result, bail};
use image::RgbImage;
use spillgate_scenes::{Condition, Scene, SceneConfig};

use super::{Content, Source, SourceFrame};

/// Frames a second of scenes.
const FRAMES_PER_SECOND: f64 = 25.0;
/// Most noise in grey levels: with more, nothing is visible.
const NOISE_MAX: f32 = 100.0;
/// Most blur: a pixel spreads over at most three.
const BLUR_MAX: f32 = 0.33;

pub(crate) struct SceneSource {
    scene: Scene,
    next: u64,
}

impl SceneSource {
    pub(crate) fn new(config: &SceneConfig, client: usize) -> Result<Self> {
        let config = SceneConfig {
            seed: config.seed.wrapping_add(client as u64),
            ..config.clone()
        };
        Ok(SceneSource {
            scene: Scene::new(config),
            next: 0,
        })
    }
}

impl Source for SceneSource {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        let number = self.next;
        let (frame, truth) = self.scene.frame(number);
        self.next += 1;
        let picture = RgbImage::from_raw(frame.width, frame.height, frame.rgb)
            .context("a scene's frame has the wrong number of bytes")?;
        Ok(Some(SourceFrame {
            content: Content::Picture(picture),
            truth: Some(truth),
            media: Some(number as f64 / FRAMES_PER_SECOND),
            number,
        }))
    }

    fn frames_per_second(&self) -> Option<f64> {
        Some(FRAMES_PER_SECOND)
    }
}

/// Reads `seed=7,size=640x360,density=0.5,light=night,noise=20,blur=0.2`; all optional.
///
/// # Errors
/// For what is no option or no value of one: what would be right.
pub fn parse(options: &str) -> Result<SceneConfig> {
    const RIGHT: &str = "a scene is written like scene:seed=7,size=640x360,density=0.5";
    let mut config = SceneConfig::default();
    for option in options.split(',').filter(|o| !o.is_empty()) {
        let Some((name, value)) = option.split_once('=') else {
            bail!("scene option \"{option}\" has no value; {RIGHT}");
        };
        match name {
            "seed" => {
                config.seed = value
                    .parse()
                    .with_context(|| format!("scene seed \"{value}\" is not a whole number"))?;
            }
            "density" => {
                config.density = value
                    .parse()
                    .ok()
                    .filter(|d| (0.0..=1.0).contains(d))
                    .with_context(|| {
                        format!("scene density \"{value}\" is not a number from 0 to 1")
                    })?;
            }
            "size" => {
                let size = value
                    .split_once('x')
                    .and_then(|(w, h)| Some((w.parse::<u32>().ok()?, h.parse::<u32>().ok()?)));
                let Some((width, height)) = size else {
                    bail!("scene size \"{value}\" is not like 640x360");
                };
                if !(64..=8192).contains(&width) || !(64..=8192).contains(&height) {
                    bail!("scene size {value}: sides must be from 64 to 8192 pixels");
                }
                (config.width, config.height) = (width, height);
            }
            "light" => {
                let lights = Condition::ALL.into_iter();
                let Some(light) = lights.clone().find(|light| light.name() == value) else {
                    let names: Vec<&str> = lights.map(Condition::name).collect();
                    bail!("scene light \"{value}\" is none of {}", names.join(", "));
                };
                config.condition = Some(light);
            }
            "noise" => config.noise = Some(part(name, value, NOISE_MAX)?),
            "blur" => config.blur = Some(part(name, value, BLUR_MAX)?),
            _ => bail!("unknown scene option \"{name}\"; {RIGHT}"),
        }
    }
    Ok(config)
}

fn part(name: &str, value: &str, most: f32) -> Result<f32> {
    let number = value.parse().ok().filter(|x| (0.0..=most).contains(x));
    number.with_context(|| format!("scene {name} \"{value}\" is not a number from 0 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_named() {
        let config = parse("seed=7,size=320x200,density=0.25").unwrap();
        assert_eq!((config.seed, config.width, config.height), (7, 320, 200));
        assert_eq!(config.density, 0.25);
        let night = parse("light=night,noise=20,blur=0.25").unwrap();
        assert_eq!(night.condition, Some(Condition::Night));
        assert_eq!((night.noise, night.blur), (Some(20.0), Some(0.25)));
        assert_eq!(parse("").unwrap(), SceneConfig::default());
        for (wrong, says) in [
            ("sed=7", "unknown scene option \"sed\""),
            ("size=9x9", "sides must be"),
            ("density=2", "from 0 to 1"),
            ("seed", "has no value"),
            ("light=bright", "none of day, dusk, night, fog"),
            (
                "noise=-1",
                "scene noise \"-1\" is not a number from 0 to 100",
            ),
            ("blur=1", "from 0 to 0.33"),
        ] {
            assert!(
                parse(wrong).unwrap_err().to_string().contains(says),
                "{wrong}"
            );
        }
    }

    #[test]
    fn clients_see_different_scenes() {
        let first = |client| {
            let mut source = SceneSource::new(&SceneConfig::default(), client).unwrap();
            match source.next_frame().unwrap().unwrap().content {
                Content::Picture(picture) => picture.into_raw(),
                Content::File { .. } => unreachable!("scenes are rendered"),
            }
        };
        assert_eq!(first(0), first(0));
        assert_ne!(first(0), first(1));
    }
}
