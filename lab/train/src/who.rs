//! The classifier with early exits `who.pt`, `who.2.pt`, `who.3.pt`: the upper part of a person, in a picture of
//! any quality, to logits, `[batch, 8]`, at each of three exits. It keeps a high resolution and few weights, so
//! that it is heavy to run and light to ship.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use spillgate_process::value::Image;
use spillgate_scenes::{IDENTITIES, Rect};
use tch::Tensor;
use tch::nn::{self, Module};

use crate::data::{CropBatch, Sample, head};
use crate::layers::{ConvUnit, Shape, standardised};
use crate::worn::worn;

/// Side of the square input; the default of the module `early_exit_classifier`.
pub(crate) const SIDE: usize = 128;
/// Side of the inputs of the second and the third segment.
const FINE: i64 = SIDE as i64 / 2;
/// Segments, each with an exit.
pub(crate) const N_EXITS: usize = 3;
/// Least width of a cut-out in pixels of the frame.
const WIDTH_MIN: f32 = 6.0;
/// Rows and columns that an exit sees: where in the picture something is tells faces apart.
const SEEN: i64 = 3;

/// The network.
#[derive(Debug)]
pub(crate) struct Who {
    segments: Vec<Segment>,
}

#[derive(Debug)]
struct Segment {
    /// Channels that it takes.
    n_inputs: i64,
    units: Vec<ConvUnit>,
    exit: nn::Linear,
}

impl Segment {
    fn new(path: nn::Path<'_>, units: &[(i64, i64, i64)]) -> Self {
        let unit = |(k, (i, o, stride)): (usize, &(i64, i64, i64))| {
            ConvUnit::new(&path / k, Shape::square(*i, *o, *stride))
        };
        let n_features = units.last().map_or(0, |(_, o, _)| o * SEEN * SEEN);
        Segment {
            n_inputs: units.first().map_or(0, |(i, _, _)| *i),
            units: units.iter().enumerate().map(unit).collect(),
            exit: nn::linear(
                &path / "exit",
                n_features,
                IDENTITIES.len() as i64,
                Default::default(),
            ),
        }
    }
}

impl Who {
    pub(crate) fn new(path: &nn::Path<'_>) -> Self {
        Who {
            segments: vec![
                Segment::new(path / "s1", &[(3, 12, 2), (12, 16, 1)]),
                Segment::new(path / "s2", &[(16, 32, 1), (32, 32, 1)]),
                Segment::new(path / "s3", &[(32, 32, 1), (32, 32, 2), (32, 24, 1)]),
            ],
        }
    }

    /// One segment: logits `[n, 8]`, and what the next one takes. The first takes pictures, `[n, 3, 128, 128]`.
    pub(crate) fn segment(&self, idx: usize, x: &Tensor, train: bool) -> [Tensor; 2] {
        let Segment { units, exit, .. } = &self.segments[idx];
        let x = if idx == 0 {
            standardised(x)
        } else {
            x.shallow_clone()
        };
        let x = units.iter().fold(x, |x, unit| unit.forward(&x, train));
        let seen = x.adaptive_avg_pool2d([SEEN, SEEN]).flatten(1, -1);
        [exit.forward(&seen), x]
    }

    /// The shipped form of a segment: logits, then the features as one row, unless it is the last; the further
    /// ones take such rows.
    pub(crate) fn shipped(&self, idx: usize, x: &Tensor) -> Tensor {
        let x = match idx {
            0 => x.shallow_clone(),
            _ => x.view([-1, self.segments[idx].n_inputs, FINE, FINE]),
        };
        let [logits, features] = self.segment(idx, &x, false);
        if idx + 1 == N_EXITS {
            logits
        } else {
            Tensor::cat(&[logits, features.flatten(1, -1)], 1)
        }
    }

    /// Ends training: all normalisations become part of their convolutions.
    pub(crate) fn fold(&mut self) {
        let units = self.segments.iter_mut().flat_map(|s| &mut s.units);
        units.for_each(ConvUnit::fold);
    }
}

/// A picture of the upper part of a person and who it is. Some are as the scene's camera took them, others worn.
pub(crate) fn draw(samples: &[Sample], rng: &mut ChaCha8Rng) -> (Image, usize) {
    loop {
        let (image, part, identity) = head(samples, rng);
        let part = part.clipped(image.width, image.height);
        if part.width() >= WIDTH_MIN && part.height() >= WIDTH_MIN {
            let severity = rng.random_range(0.0..1.0);
            let picture = worn(&cut(image, part), severity, rng);
            return (picture, identity);
        }
    }
}

/// What `r` shows of a picture, in whole pixels.
fn cut(image: &Image, r: Rect) -> Image {
    let (x0, x1) = (r.x0 as usize, (r.x1 as usize).min(image.width as usize));
    let (y0, y1) = (r.y0 as usize, (r.y1 as usize).min(image.height as usize));
    let stride = image.width as usize * 3;
    let rows = (y0..y1).flat_map(|y| &image.rgb[y * stride + x0 * 3..y * stride + x1 * 3]);
    Image {
        width: (x1 - x0) as u32,
        height: (y1 - y0) as u32,
        rgb: rows.copied().collect::<Vec<u8>>().into(),
    }
}

/// Pictures and who they show.
pub(crate) struct Batch {
    images: Tensor,
    people: Vec<i64>,
}

impl Batch {
    pub(crate) fn draw(samples: &[Sample], n: usize, rng: &mut ChaCha8Rng) -> Self {
        let mut crops = CropBatch::new(SIDE, SIDE);
        let mut people = Vec::with_capacity(n);
        for _ in 0..n {
            let (picture, identity) = draw(samples, rng);
            let all = Rect::new(0.0, 0.0, picture.width as f32, picture.height as f32);
            crops.push(&picture, all);
            people.push(identity as i64);
        }
        Batch {
            images: crops.take(),
            people,
        }
    }

    /// Of all exits together: each must be as good as it can be.
    pub(crate) fn loss(&self, network: &Who) -> Tensor {
        let people = Tensor::from_slice(&self.people);
        let mut x = self.images.shallow_clone();
        let mut loss = Tensor::from(0.0f32);
        for idx in 0..N_EXITS {
            let [logits, next] = network.segment(idx, &x, true);
            loss += logits.cross_entropy_for_logits(&people);
            x = next;
        }
        loss
    }
}
