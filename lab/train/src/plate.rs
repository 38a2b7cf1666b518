//! The text reader `plate.pt`: a cut-out of a vehicle's lower part to class scores for each of 40 places
//! from left to right, `[batch, 40, 37]` (A to Z, 0 to 9, no letter). Scenes know where each letter is, so
//! every place is trained directly; decoding then collapses repeats as for CTC.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use spillgate_scenes::{ALPHABET, VehicleTruth};
use tch::Tensor;
use tch::nn::{self, Module};

use crate::data::{CropBatch, Sample, any, jittered};
use crate::layers::{ConvUnit, Network, Shape, standardised};

/// Input of the network; the default of the module `text_reader`.
pub(crate) const WIDTH: usize = 160;
/// Rows of the input.
pub(crate) const HEIGHT: usize = 48;
/// Part of a vehicle's box that is read; the default of the module `text_reader`.
const REGION: [f32; 4] = [0.08, 0.56, 0.92, 1.0];
/// Places from left to right.
const N_PLACES: usize = 40;
const N_CLASSES: i64 = ALPHABET.len() as i64 + 1;

/// The network.
#[derive(Debug)]
pub(crate) struct Plate {
    units: Vec<ConvUnit>,
    head: nn::Conv2D,
}

impl Plate {
    pub(crate) fn new(path: &nn::Path<'_>) -> Self {
        let unit = |name: &str, shape| ConvUnit::new(path / name, shape);
        let lower = |i, o| Shape {
            stride: [2, 1],
            ..Shape::square(i, o, 1)
        };
        let last = Shape {
            padding: [0, 1],
            ..Shape::square(96, 128, 1)
        };
        Plate {
            units: vec![
                unit("u1", Shape::square(3, 16, 2)),
                unit("u2", Shape::square(16, 32, 2)),
                unit("u3", lower(32, 64)),
                unit("u4", lower(64, 96)),
                unit("u5", last),
            ],
            head: nn::conv2d(path / "head", 128, N_CLASSES, 1, Default::default()),
        }
    }
}

impl Network for Plate {
    /// `[n, places, classes]`, logits.
    fn forward(&self, x: &Tensor, train: bool) -> Tensor {
        let x = self
            .units
            .iter()
            .fold(standardised(x), |x, unit| unit.forward(&x, train));
        self.head.forward(&x).squeeze_dim(2).permute([0, 2, 1])
    }

    fn fold(&mut self) {
        self.units.iter_mut().for_each(ConvUnit::fold);
    }
}

/// Cut-outs with the class of each place.
pub(crate) struct Batch {
    images: Tensor,
    classes: Vec<i64>,
}

impl Batch {
    pub(crate) fn draw(samples: &[Sample], n: usize, rng: &mut ChaCha8Rng) -> Self {
        let mut crops = CropBatch::new(WIDTH, HEIGHT);
        let mut classes = Vec::with_capacity(n * N_PLACES);
        while classes.len() < n * N_PLACES {
            let sample = any(samples, rng);
            if sample.truth.vehicles.is_empty() {
                continue;
            }
            let vehicle = any(&sample.truth.vehicles, rng);
            if !vehicle.plate_visible || vehicle.visible < 0.5 {
                continue;
            }
            let spread = rng.random_range(0.005..0.08);
            let found = jittered(vehicle.bbox, spread, rng);
            let [x0, y0, x1, y1] = REGION;
            let region = found.part(x0, y0, x1, y1);
            crops.push(&sample.image, region);
            let per_place = region.width() / N_PLACES as f32;
            classes.extend(
                (0..N_PLACES).map(|i| class_at(vehicle, region.x0 + (i as f32 + 0.5) * per_place)),
            );
        }
        Batch {
            images: crops.take(),
            classes,
        }
    }

    pub(crate) fn loss(&self, network: &Plate) -> Tensor {
        let logits = network.forward(&self.images, true).reshape([-1, N_CLASSES]);
        logits.cross_entropy_for_logits(&Tensor::from_slice(&self.classes))
    }
}

/// Class of the letter at column `x` of the frame: the middle of a letter counts, between is nothing.
fn class_at(vehicle: &VehicleTruth, x: f32) -> i64 {
    for (idx, letter) in vehicle.plate.chars().enumerate() {
        let r = vehicle.letter_box(idx);
        let margin = r.width() * 0.1;
        if (r.x0 + margin..r.x1 - margin).contains(&x) {
            return ALPHABET.find(letter).map_or(N_CLASSES - 1, |i| i as i64);
        }
    }
    N_CLASSES - 1
}
