//! Frames to train and to measure on. Training and measuring use scenes of different seeds.

use std::sync::Arc;

use ::image::codecs::jpeg::JpegEncoder;
use ::image::{ExtendedColorType, ImageFormat};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_modules::resample::{PixelFormat, Place, Region, Resampler, Target};
use spillgate_process::value::Image;
use spillgate_scenes::{GroundTruth, Rect, RgbFrame, Scene, SceneConfig, Stretch};

/// First seed of the scenes trained on; those measured on start at [`HELD_OUT`].
const TRAINING: u64 = 1_000_000;
/// First seed of the scenes measured on.
pub(crate) const HELD_OUT: u64 = 9_000_000;

/// A frame with what is in it.
pub(crate) struct Sample {
    pub(crate) image: Arc<Image>,
    pub(crate) truth: GroundTruth,
}

/// Frames of `n_scenes` scenes. For training they vary in size and half of them went through JPEG.
fn render(first_seed: u64, n_scenes: u64, varied: bool) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for i in 0..n_scenes {
        let seed = first_seed + i;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stretch = Stretch::draw(&mut rng);
        let (width, height) = match stretch.chance {
            0 if varied => (480, 360),
            1 if varied => (800, 450),
            _ => (640, 360),
        };
        let config = SceneConfig {
            seed,
            width,
            height,
            density: stretch.density,
            ..SceneConfig::default()
        };
        let mut scene = Scene::new(config);
        for number in stretch.frames() {
            let (frame, truth) = scene.frame(number);
            let mut image = image(frame);
            if varied && rng.random_bool(0.5) {
                image = compressed(&image, rng.random_range(55..95))?;
            }
            samples.push(Sample {
                image: Arc::new(image),
                truth,
            });
        }
    }
    Ok(samples)
}

/// Frames to train on.
pub(crate) fn training(n_scenes: u64) -> anyhow::Result<Vec<Sample>> {
    render(TRAINING, n_scenes, true)
}

/// Frames to measure on: 640x360, as a camera of one kind sends them; through JPEG of a quality of 1 to 100
/// where one is given, as clients send them.
pub(crate) fn held_out(n_scenes: u64, jpeg: Option<u8>) -> anyhow::Result<Vec<Sample>> {
    let mut samples = render(HELD_OUT, n_scenes, false)?;
    if let Some(quality) = jpeg {
        for sample in &mut samples {
            sample.image = Arc::new(compressed(&sample.image, quality)?);
        }
    }
    Ok(samples)
}

/// What is left of a picture after JPEG.
fn compressed(image: &Image, quality: u8) -> anyhow::Result<Image> {
    let mut jpeg = Vec::new();
    JpegEncoder::new_with_quality(&mut jpeg, quality).encode(
        &image.rgb,
        image.width,
        image.height,
        ExtendedColorType::Rgb8,
    )?;
    let rgb = ::image::load_from_memory_with_format(&jpeg, ImageFormat::Jpeg)?.into_rgb8();
    Ok(Image {
        width: image.width,
        height: image.height,
        rgb: rgb.into_raw().into(),
    })
}

/// A rendered frame as the picture that modules take.
pub(crate) fn image(frame: RgbFrame) -> Image {
    Image {
        width: frame.width,
        height: frame.height,
        rgb: frame.rgb.into(),
    }
}

/// Draws one element.
pub(crate) fn any<'a, T>(items: &'a [T], rng: &mut ChaCha8Rng) -> &'a T {
    &items[rng.random_range(0..items.len())]
}

/// A box as a detector would have found it: each edge is off by up to `by` of the box's sides.
pub(crate) fn jittered(r: Rect, by: f32, rng: &mut ChaCha8Rng) -> Rect {
    let (w, h) = (r.width() * by, r.height() * by);
    Rect::new(
        r.x0 + rng.random_range(-w..=w),
        r.y0 + rng.random_range(-h..=h),
        r.x1 + rng.random_range(-w..=w),
        r.y1 + rng.random_range(-h..=h),
    )
}

/// Part of a person's box that shows who it is; the default of the module `face_recognizer`.
const HEAD: [f32; 4] = [0.0, 0.0, 1.0, 0.42];
/// Least visible part of a person who is to be told from others.
const VISIBLE: f32 = 0.5;

/// One person with a face to be seen: the frame, where the head is found in it, and who it is.
pub(crate) fn head<'a>(samples: &'a [Sample], rng: &mut ChaCha8Rng) -> (&'a Image, Rect, usize) {
    loop {
        let sample = any(samples, rng);
        if sample.truth.people.is_empty() {
            continue;
        }
        let person = any(&sample.truth.people, rng);
        if !person.face_visible || person.visible < VISIBLE {
            continue;
        }
        let spread = rng.random_range(0.01..0.1);
        let [x0, y0, x1, y1] = HEAD;
        let part = jittered(person.bbox, spread, rng).part(x0, y0, x1, y1);
        return (&sample.image, part, person.identity);
    }
}

/// Cut-outs of one size, made as the module library makes them.
pub(crate) struct CropBatch {
    width: usize,
    height: usize,
    data: Vec<f32>,
    resampler: Resampler,
}

impl CropBatch {
    pub(crate) fn new(width: usize, height: usize) -> Self {
        CropBatch {
            width,
            height,
            data: Vec::new(),
            resampler: Resampler::default(),
        }
    }

    /// Adds what `r` shows of `image`.
    pub(crate) fn push(&mut self, image: &Image, r: Rect) {
        let start = self.data.len();
        self.data.resize(start + self.width * self.height * 3, 0.0);
        let mut target = Target {
            data: &mut self.data[start..],
            width: self.width,
            height: self.height,
            format: &PixelFormat::UNIT,
        };
        let region = Region {
            x0: r.x0,
            y0: r.y0,
            x1: r.x1,
            y1: r.y1,
        };
        let place = Place {
            x: 0,
            y: 0,
            width: self.width,
            height: self.height,
        };
        self.resampler.paint(image, region, &mut target, place);
    }

    /// All of them as `[n, 3, height, width]`; the batch is empty afterwards.
    pub(crate) fn take(&mut self) -> tch::Tensor {
        let data = std::mem::take(&mut self.data);
        tch::Tensor::from_slice(&data).reshape([-1, 3, self.height as i64, self.width as i64])
    }
}
