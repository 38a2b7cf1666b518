//! Input tensors of models, whose memory is used again for later batches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spillgate_backend::value::Tensor;

use crate::resample::{PixelFormat, Resampler, Target};

/// Tensors that wait to be used again: one that is prepared, while one runs, and one is read.
const SPARE_MAX: usize = 3;

/// Fills input tensors with pictures. Cheap to clone; clones share the memory.
#[derive(Clone, Default)]
pub(crate) struct InputBuffers {
    spare: Arc<Mutex<Spare>>,
}

#[derive(Default)]
struct Spare {
    resamplers: Vec<Resampler>,
    data: Vec<Vec<f32>>,
}

impl InputBuffers {
    /// A tensor of `n` pictures of that width and height. `paint` fills the place of each.
    pub(crate) fn fill(
        &self,
        n: usize,
        (width, height): (usize, usize),
        format: &PixelFormat,
        mut paint: impl FnMut(usize, &mut Target<'_>, &mut Resampler),
    ) -> Tensor {
        let (mut resampler, mut data) = {
            let mut spare = self.spare();
            let resampler = spare.resamplers.pop().unwrap_or_default();
            (resampler, spare.data.pop().unwrap_or_default())
        };
        let each = width * height * 3;
        data.resize(n * each, 0.0);
        for (i, data) in data.chunks_exact_mut(each).enumerate() {
            let mut target = Target {
                data,
                width,
                height,
                format,
            };
            paint(i, &mut target, &mut resampler);
        }
        self.spare().resamplers.push(resampler);
        let [n, w, h] = [n, width, height].map(|side| side as i64);
        let shape = match format.interleaved {
            true => vec![n, h, w, 3],
            false => vec![n, 3, h, w],
        };
        Tensor { shape, data }
    }

    /// A tensor is not needed any more.
    pub(crate) fn give_back(&self, tensor: Tensor) {
        let mut spare = self.spare();
        if spare.data.len() < SPARE_MAX {
            spare.data.push(tensor.data);
        }
    }

    /// What is there is whole whatever panicked elsewhere.
    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
