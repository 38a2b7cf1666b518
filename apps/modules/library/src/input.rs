//! Input tensors of models, whose memory is used again for later batches.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use spillgate_backend::Backend;
use spillgate_process::value::Tensor;

use crate::resample::{PixelFormat, Resampler, Target};

/// Tensors that wait to be used again: one that is prepared, while one runs, and one is read.
const SPARE_MAX: usize = 3;

/// Fewest numbers that are worth handing to another thread: as many as take some tenths of a millisecond.
const PART_MIN: usize = 64 << 10;

/// Fills input tensors with pictures. Cheap to clone; clones share the memory.
#[derive(Clone)]
pub(crate) struct InputBuffers {
    spare: Arc<Mutex<Spare>>,
    /// Several threads fill a tensor, and the device pays for a new shape and next to nothing for more rows.
    by_several: bool,
}

#[derive(Default)]
struct Spare {
    resamplers: Vec<Resampler>,
    data: Vec<Vec<f32>>,
}

impl InputBuffers {
    /// Buffers for models of that backend.
    pub(crate) fn of(backend: &dyn Backend) -> Self {
        InputBuffers {
            spare: Arc::default(),
            by_several: backend.leaves_cores(),
        }
    }

    /// Rows of an input for that many objects. On a GPU a shape that a model has not run with costs as much as many runs. So numbers of
    /// objects share shapes there: up to four each has its own, then two of each doubling.
    pub(crate) fn rows(&self, n: usize) -> usize {
        if !self.by_several || n <= 4 {
            return n;
        }
        let next = n.next_power_of_two();
        let between = next / 4 * 3;
        if n <= between { between } else { next }
    }

    /// A tensor of `n` pictures of that width and height. `paint` fills the place of each; what it says of them comes in their order.
    pub(crate) fn fill<P: Send>(
        &self,
        n: usize,
        (width, height): (usize, usize),
        format: &PixelFormat,
        paint: impl Fn(usize, &mut Target<'_>, &mut Resampler) -> P + Sync,
    ) -> (Tensor, Vec<P>) {
        let mut data = self.spare().data.pop().unwrap_or_default();
        let each = width * height * 3;
        data.resize(n * each, 0.0);
        let is_much = self.by_several && n * each >= 2 * PART_MIN;
        let pool = if is_much { several() } else { None };
        // One task for each of equal parts; each has a resampler of its own.
        let part = match pool {
            Some(pool) => n.div_ceil(pool.current_num_threads()).max(PART_MIN / each),
            None => n,
        };
        let fill = |(at, data): (usize, &mut [f32])| -> Vec<P> {
            let mut resampler = self.spare().resamplers.pop().unwrap_or_default();
            let pictures = data.chunks_exact_mut(each).enumerate();
            let painted = pictures
                .map(|(i, data)| {
                    let mut target = Target {
                        data,
                        width,
                        height,
                        format,
                    };
                    paint(at * part + i, &mut target, &mut resampler)
                })
                .collect();
            self.spare().resamplers.push(resampler);
            painted
        };
        let parts: Vec<Vec<P>> = match pool {
            Some(pool) => pool.install(|| {
                let parts = data.par_chunks_mut(part * each).enumerate();
                parts.map(fill).collect()
            }),
            None => vec![fill((0, &mut data))],
        };
        let [n, w, h] = [n, width, height].map(|side| side as i64);
        let shape = match format.interleaved {
            true => vec![n, h, w, 3],
            false => vec![n, 3, h, w],
        };
        let painted = parts.into_iter().flatten().collect();
        (Tensor::new(shape, data), painted)
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

/// The threads that fill tensors, half of the cores. They start when they are first needed.
fn several() -> Option<&'static ThreadPool> {
    static SEVERAL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let make = || {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = ThreadPoolBuilder::new().num_threads((cores / 2).max(2));
        pool.thread_name(|i| format!("fill {i}")).build().ok()
    };
    SEVERAL.get_or_init(make).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_objects_share_shapes_on_a_gpu() {
        let rows = |by_several, n| {
            let spare = Arc::default();
            InputBuffers { spare, by_several }.rows(n)
        };
        let of: Vec<usize> = (1..=17).map(|n| rows(true, n)).collect();
        let expected = [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16, 24];
        assert_eq!(of, expected);
        assert_eq!((rows(true, 100), rows(false, 17)), (128, 17));
    }

    #[test]
    fn several_threads_fill_what_one_fills() {
        let fill = |by_several, n, side| {
            let buffers = InputBuffers {
                spare: Arc::default(),
                by_several,
            };
            let paint = |i: usize, target: &mut Target<'_>, _: &mut Resampler| {
                target.fill(i as f32);
                (i, std::thread::current().name().unwrap_or("").to_owned())
            };
            let (tensor, painted) = buffers.fill(n, (side, side), &PixelFormat::UNIT, paint);
            let (order, threads): (Vec<usize>, Vec<String>) = painted.into_iter().unzip();
            (tensor, order, threads)
        };
        for (n, side) in [(1, 320), (7, 320), (8, 128), (100, 16), (33, 64)] {
            let (one, order, _) = fill(false, n, side);
            let (several, order_of_several, _) = fill(true, n, side);
            assert_eq!(one, several, "{n} of {side}");
            assert_eq!(order, order_of_several);
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
        let is_filler = |name: &String| name.starts_with("fill ");
        let (_, _, threads) = fill(true, 16, 320);
        assert!(threads.iter().all(is_filler), "{threads:?}");
        let (_, _, threads) = fill(true, 8, 16);
        assert!(!threads.iter().any(is_filler), "a little is done at once");
    }
}
