//! Executions that come again. A TorchScript model calls the GPU once for each kernel, which takes a CPU longer than the kernels of a small
//! network take, and takes as long as the CPU happens to take. So the second execution of an input shape is recorded ([`crate::cuda`]),
//! and later ones are one call of what was recorded.
//!
//! A model is recorded when it can be: not one that decides on the CPU how to go on. A record is used when it gives, for the input that it
//! was made with, what the model gave.
//!
//! All records on one GPU use the same memory for inputs and for what lies between input and output, since one at a time runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tch::{CModule, Device, Kind};

use super::{call, one_line, say, to_host};
use crate::cuda::{self, Recorder, Recording};

/// The execution of a shape that is recorded. Loading a model runs it twice alone.
pub(super) const RECORDED_AT: u32 = 2;

/// Most input shapes of a model that are counted and recorded.
pub(crate) const SHAPES_MAX: usize = 64;

/// Most models that cannot be recorded, of one GPU. Each try leaves memory behind that its libtorch does not give back.
pub(crate) const BROKEN_MAX: usize = 8;

/// How far what a record gives may be from what the model gave.
const RELATIVE: f32 = 1e-3;
/// The same near 0.
const ABSOLUTE: f32 = 1e-4;

/// The recorded executions of one model.
pub(super) struct Recorded {
    path: PathBuf,
    /// `None` where nothing is recorded.
    gpu: Option<Arc<Gpu>>,
    shapes: Vec<Shape>,
}

/// An input shape that a model has run with.
struct Shape {
    shape: Vec<i64>,
    n_runs: u32,
    execution: Option<Execution>,
}

/// A recorded execution, and what it reads and writes.
struct Execution {
    recording: Recording,
    input: tch::Tensor,
    outputs: Vec<tch::Tensor>,
}

impl Recorded {
    pub(super) fn new(path: &Path, index: usize) -> Self {
        Recorded {
            path: path.to_path_buf(),
            gpu: Some(Gpu::of(index)).filter(|gpu| gpu.may_record(path)),
            shapes: Vec::new(),
        }
    }

    /// From now on its model is that of another file.
    pub(super) fn serve(&mut self, path: &Path) {
        path.clone_into(&mut self.path);
    }

    /// Whether no execution is recorded yet, and some can be.
    pub(super) fn is_cold(&self) -> bool {
        self.gpu.is_some() && self.shapes.iter().all(|s| s.execution.is_none())
    }

    /// Executions that are recorded.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.shapes.iter().filter(|s| s.execution.is_some()).count()
    }

    /// Runs without records from now on.
    #[cfg(test)]
    pub(super) fn record_nothing(&mut self) {
        self.gpu = None;
    }

    /// Runs what was recorded for that shape; `None` when nothing was. The outputs are computed when this returns.
    pub(super) fn run(&mut self, input: &tch::Tensor) -> Result<Option<Vec<tch::Tensor>>, String> {
        let Some(gpu) = &self.gpu else {
            return Ok(None);
        };
        let shape = input.size();
        let found = self.shapes.iter_mut().find(|s| s.shape == shape);
        let Some(execution) = found.and_then(|s| s.execution.as_mut()) else {
            return Ok(None);
        };
        gpu.run(execution, input).map(Some)
    }

    /// The model has run with that input and gave these outputs. Records it when it has run so before.
    pub(super) fn has_run(
        &mut self,
        module: &CModule,
        input: &tch::Tensor,
        outputs: &[tch::Tensor],
    ) {
        let Some(gpu) = self.gpu.clone() else {
            return;
        };
        let shape = input.size();
        let place = match self.shapes.iter().position(|s| s.shape == shape) {
            Some(place) => place,
            None if self.shapes.len() < SHAPES_MAX => {
                self.shapes.push(Shape {
                    shape,
                    n_runs: 0,
                    execution: None,
                });
                self.shapes.len() - 1
            }
            None => return,
        };
        let of = &mut self.shapes[place];
        of.n_runs += 1;
        if of.n_runs != RECORDED_AT {
            return;
        }
        match gpu.record(&self.path, module, input, outputs) {
            Ok(execution) => of.execution = Some(execution),
            Err(why) => {
                let model = self.path.display();
                tracing::info!(%model, why, "its executions are not recorded");
                self.gpu = None;
            }
        }
    }
}

/// What the records of one GPU share.
struct Gpu {
    index: usize,
    records: Mutex<Records>,
    /// One record runs at a time.
    running: Mutex<()>,
}

#[derive(Default)]
struct Records {
    recorder: Option<Kept>,
    /// Memory that inputs of records lie in.
    input: Option<tch::Tensor>,
    /// Models that cannot be recorded.
    broken: Vec<PathBuf>,
}

/// A recorder, and a first record. libtorch lets records share memory while there is one that uses it.
struct Kept {
    recorder: Recorder,
    _first: (Recording, tch::Tensor),
}

impl Gpu {
    /// That of the process.
    fn of(index: usize) -> Arc<Gpu> {
        static ALL: Mutex<Vec<Arc<Gpu>>> = Mutex::new(Vec::new());
        let mut all = ALL.lock();
        if let Some(gpu) = all.iter().find(|gpu| gpu.index == index) {
            return gpu.clone();
        }
        let gpu = Arc::new(Gpu {
            index,
            records: Mutex::default(),
            running: Mutex::new(()),
        });
        all.push(gpu.clone());
        gpu
    }

    fn may_record(&self, path: &Path) -> bool {
        let records = self.records.lock();
        let broken = &records.broken;
        cuda::records() && broken.len() < BROKEN_MAX && broken.iter().all(|of| of != path)
    }

    /// Runs what was recorded.
    fn run(
        &self,
        execution: &mut Execution,
        input: &tch::Tensor,
    ) -> Result<Vec<tch::Tensor>, String> {
        let Execution {
            recording,
            input: place,
            outputs,
        } = execution;
        let _running = self.running.lock();
        place.f_copy_(input).map_err(say)?;
        recording.launch()?;
        // The next execution writes where this one did.
        let own = |t: &tch::Tensor| t.f_to_dtype(Kind::Float, false, true).map_err(say);
        let outputs = outputs.iter().map(own).collect();
        cuda::synchronize(self.index)?;
        outputs
    }

    /// Records the execution of a model on an input, for which it gave these outputs.
    fn record(
        &self,
        path: &Path,
        module: &CModule,
        input: &tch::Tensor,
        expected: &[tch::Tensor],
    ) -> Result<Execution, String> {
        let mut records = self.records.lock();
        if records.broken.len() >= BROKEN_MAX {
            return Err("too many models of this device cannot be recorded".to_owned());
        }
        let place = records.place(self.index, input)?;
        let argument = place.shallow_clone();
        let Records {
            recorder, broken, ..
        } = &mut *records;
        let made = recorder
            .take()
            .map_or_else(|| Kept::new(self.index), Ok)
            .and_then(|mut kept| {
                let made = kept.recorder.record(|| call(module, vec![argument]))?;
                *recorder = Some(kept);
                Ok(made)
            });
        let (recording, outputs) = match made {
            Ok(made) => made,
            // The recorder is gone with the memory that it used.
            Err(why) => {
                broken.push(path.to_owned());
                return Err(one_line(&why));
            }
        };
        let mut execution = Execution {
            recording,
            input: place,
            outputs,
        };
        let given = self.run(&mut execution, input)?;
        if are_close(&given, expected)? {
            return Ok(execution);
        }
        records.broken.push(path.to_owned());
        Err("a record of it gives other numbers".to_owned())
    }
}

impl Records {
    /// Memory for inputs like this one.
    fn place(&mut self, index: usize, input: &tch::Tensor) -> Result<tch::Tensor, String> {
        let n = input.numel() as i64;
        let memory = match &self.input {
            Some(memory) if memory.numel() as i64 >= n => memory.shallow_clone(),
            _ => {
                let memory = tch::Tensor::f_empty([n], (Kind::Float, Device::Cuda(index)));
                let memory = memory.map_err(say)?;
                self.input = Some(memory.shallow_clone());
                memory
            }
        };
        memory
            .f_narrow(0, 0, n)
            .and_then(|part| part.f_view(input.size().as_slice()))
            .map_err(say)
    }
}

impl Kept {
    fn new(index: usize) -> Result<Self, String> {
        let mut recorder = Recorder::new(index)?;
        let first = recorder
            .record(|| tch::Tensor::f_zeros([1], (Kind::Float, Device::Cuda(index))).map_err(say));
        Ok(Kept {
            recorder,
            _first: first?,
        })
    }
}

/// Whether two executions gave the same, but for rounding. Compared on the host: one copy each instead of a kernel for each step.
fn are_close(given: &[tch::Tensor], expected: &[tch::Tensor]) -> Result<bool, String> {
    if given.len() != expected.len() {
        return Ok(false);
    }
    for (given, expected) in given.iter().zip(expected) {
        let given = to_host(given).map_err(say)?;
        let expected = to_host(expected).map_err(say)?;
        let pairs = given.data.iter().zip(&expected.data);
        let is_close = |(a, b): (&f32, &f32)| {
            a == b || (a - b).abs() <= ABSOLUTE + RELATIVE * b.abs() || a.is_nan() && b.is_nan()
        };
        if given.shape != expected.shape || !pairs.into_iter().all(is_close) {
            return Ok(false);
        }
    }
    Ok(true)
}
