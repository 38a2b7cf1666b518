//! The face recogniser `face.pt`: the upper part of a person's box to logits, `[batch, 8]`, one for each
//! of the people that walk through scenes.

use rand_chacha::ChaCha8Rng;
use spillgate_scenes::IDENTITIES;
use tch::Tensor;
use tch::nn::{self, Module};

use crate::data::{CropBatch, Sample, head};
use crate::layers::{ConvUnit, Network, Shape, pooled, standardised};

/// Side of the square input; the default of the module `face_recognizer`.
pub(crate) const SIDE: usize = 40;

/// The network.
#[derive(Debug)]
pub(crate) struct Face {
    units: Vec<ConvUnit>,
    head: nn::Linear,
}

impl Face {
    pub(crate) fn new(path: &nn::Path<'_>) -> Self {
        let unit = |name: &str, i, o| ConvUnit::new(path / name, Shape::square(i, o, 2));
        let n_people = IDENTITIES.len() as i64;
        Face {
            units: vec![
                unit("u1", 3, 16),
                unit("u2", 16, 32),
                unit("u3", 32, 64),
                unit("u4", 64, 64),
            ],
            head: nn::linear(path / "head", 64, n_people, Default::default()),
        }
    }
}

impl Network for Face {
    fn forward(&self, x: &Tensor, train: bool) -> Tensor {
        let x = self
            .units
            .iter()
            .fold(standardised(x), |x, unit| unit.forward(&x, train));
        self.head.forward(&pooled(&x))
    }

    fn fold(&mut self) {
        self.units.iter_mut().for_each(ConvUnit::fold);
    }
}

/// Faces and whose they are.
pub(crate) struct Batch {
    images: Tensor,
    people: Vec<i64>,
}

impl Batch {
    pub(crate) fn draw(samples: &[Sample], n: usize, rng: &mut ChaCha8Rng) -> Self {
        let mut crops = CropBatch::new(SIDE, SIDE);
        let mut people = Vec::with_capacity(n);
        for _ in 0..n {
            let (image, part, identity) = head(samples, rng);
            crops.push(image, part);
            people.push(identity as i64);
        }
        Batch {
            images: crops.take(),
            people,
        }
    }

    pub(crate) fn loss(&self, network: &Face) -> Tensor {
        network
            .forward(&self.images, true)
            .cross_entropy_for_logits(&Tensor::from_slice(&self.people))
    }
}
