//! The classifier `light.pt`: a whole picture, stretched to 64x64, to logits, `[batch, 4]`: day, dusk,
//! night, fog.

use rand_chacha::ChaCha8Rng;
use spillgate_scenes::{Condition, Rect};
use tch::Tensor;
use tch::nn::{self, Module};

use crate::data::{CropBatch, Sample, any};
use crate::layers::{ConvUnit, Network, Shape, pooled};

/// Side of the square input.
pub(crate) const SIDE: usize = 64;

/// The network.
#[derive(Debug)]
pub(crate) struct Light {
    units: Vec<ConvUnit>,
    head: nn::Linear,
}

impl Light {
    pub(crate) fn new(path: &nn::Path<'_>) -> Self {
        let unit = |name: &str, i, o| ConvUnit::new(path / name, Shape::square(i, o, 2));
        let n_classes = Condition::ALL.len() as i64;
        Light {
            units: vec![unit("u1", 3, 8), unit("u2", 8, 16), unit("u3", 16, 32)],
            head: nn::linear(path / "head", 32, n_classes, Default::default()),
        }
    }
}

impl Network for Light {
    fn forward(&self, x: &Tensor, train: bool) -> Tensor {
        let x = self
            .units
            .iter()
            .fold(x - 0.4, |x, unit| unit.forward(&x, train));
        self.head.forward(&pooled(&x))
    }

    fn fold(&mut self) {
        self.units.iter_mut().for_each(ConvUnit::fold);
    }
}

/// Pictures and their light.
pub(crate) struct Batch {
    images: Tensor,
    classes: Vec<i64>,
}

impl Batch {
    pub(crate) fn draw(samples: &[Sample], n: usize, rng: &mut ChaCha8Rng) -> Self {
        let mut crops = CropBatch::new(SIDE, SIDE);
        let mut classes = Vec::with_capacity(n);
        for _ in 0..n {
            let sample = any(samples, rng);
            let all = Rect::new(
                0.0,
                0.0,
                sample.image.width as f32,
                sample.image.height as f32,
            );
            crops.push(&sample.image, all);
            let class = Condition::ALL
                .iter()
                .position(|c| *c == sample.truth.condition);
            classes.push(class.unwrap_or(0) as i64);
        }
        Batch {
            images: crops.take(),
            classes,
        }
    }

    pub(crate) fn loss(&self, network: &Light) -> Tensor {
        network
            .forward(&self.images, true)
            .cross_entropy_for_logits(&Tensor::from_slice(&self.classes))
    }
}
