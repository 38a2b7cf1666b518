//! Models on a GPU: what they read and give lies in its memory, and executions that come again are recorded.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::slice;

use tch::{Device, Kind};

use super::network::{Lent, Loaded};
use super::recorded::Recorded;
use super::{call, one_line, say, to_host};
use crate::cuda::{self, Urgency, enter};
use crate::description::Description;
use crate::forward::{check, failed};
use crate::{BackendError, Copier, Fetch, Input, Model, OnDevice, Output};
use spillgate_process::value::Tensor;

/// A model on a GPU.
pub(super) struct GpuModel {
    path: PathBuf,
    lent: Lent,
    description: Description,
    index: usize,
}

impl GpuModel {
    pub(super) fn new(path: &Path, mut lent: Lent, description: Description, index: usize) -> Self {
        match &mut lent.recorded {
            // The records of a spare run with its new weights.
            Some(recorded) => recorded.serve(path),
            none => *none = Some(Recorded::new(path, index)),
        }
        let path = path.to_path_buf();
        GpuModel {
            path,
            lent,
            description,
            index,
        }
    }

    /// The outputs for inputs in the GPU's memory, computed when this returns.
    fn outputs(&mut self, inputs: Vec<tch::Tensor>) -> Result<Vec<tch::Tensor>, String> {
        let single = match inputs.as_slice() {
            [input] => Some(input.shallow_clone()),
            _ => None,
        };
        let Loaded { recorded, network } = &mut *self.lent;
        if let (Some(input), Some(recorded)) = (&single, recorded.as_mut())
            && let Some(outputs) = recorded.run(input)?
        {
            return Ok(outputs);
        }
        let outputs = call(network.module(), inputs);
        // Also after an error: what was begun reads the weights, which may soon be others.
        cuda::synchronize(self.index)?;
        let outputs = outputs?;
        if let (Some(input), Some(recorded)) = (&single, recorded.as_mut()) {
            recorded.has_run(network.module(), input, &outputs);
        }
        Ok(outputs)
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        enter(self.index, Urgency::Serving)?;
        let given = inputs.iter().map(|input| copy(input, self.index));
        let given = given.collect::<Result<_, _>>()?;
        let outputs = self.outputs(given)?;
        outputs.iter().map(|t| to_host(t).map_err(say)).collect()
    }

    fn first(&mut self, input: &Input, n: usize) -> Result<Output, String> {
        enter(self.index, Urgency::Serving)?;
        let copied = input.copied.as_ref();
        let given = match copied.and_then(|c| c.downcast_ref::<tch::Tensor>()) {
            Some(copied) => copied.shallow_clone(),
            None => copy(&input.tensor, self.index)?,
        };
        let mut tensors = self.outputs(vec![given])?;
        tensors.truncate(n);
        let index = self.index;
        Ok(Output::Device(Box::new(GpuOutput { tensors, index })))
    }
}

impl Model for GpuModel {
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        tch::no_grad(|| self.run(inputs)).map_err(|why| failed(&self.path, inputs, &one_line(&why)))
    }

    fn execute(&mut self, input: &Input, n: usize) -> Result<Output, BackendError> {
        let given = slice::from_ref(&input.tensor);
        tch::no_grad(|| self.first(input, n))
            .map_err(|why| failed(&self.path, given, &one_line(&why)))
    }

    fn description(&self) -> &Description {
        &self.description
    }
}

/// Outputs in a GPU's memory.
struct GpuOutput {
    tensors: Vec<tch::Tensor>,
    index: usize,
}

impl Fetch for GpuOutput {
    fn fetch(self: Box<Self>) -> Result<Vec<Tensor>, BackendError> {
        let copy = |tensor| to_host(tensor).map_err(say);
        let entered = enter(self.index, Urgency::Serving);
        let copied = entered.and_then(|()| self.tensors.iter().map(copy).collect());
        copied.map_err(|why| BackendError::Copy {
            detail: one_line(&why),
        })
    }
}

/// Copies inputs to a GPU.
pub(super) struct GpuCopier {
    index: usize,
}

impl GpuCopier {
    pub(super) fn new(index: usize) -> Self {
        GpuCopier { index }
    }
}

impl Copier for GpuCopier {
    fn copy(&self, tensor: &Tensor) -> Result<OnDevice, BackendError> {
        let copied = enter(self.index, Urgency::Serving).and_then(|()| copy(tensor, self.index));
        match copied {
            Ok(copied) => Ok(Box::new(copied)),
            Err(why) => Err(BackendError::Copy {
                detail: one_line(&why),
            }),
        }
    }
}

/// A copy in the GPU's memory. It is there when this returns.
#[expect(unsafe_code, reason = "the numbers need no copy in host memory")]
fn copy(input: &Tensor, index: usize) -> Result<tch::Tensor, String> {
    check(input)?;
    let mut strides = vec![1; input.shape.len()];
    for i in (1..input.shape.len()).rev() {
        strides[i - 1] = strides[i] * input.shape[i];
    }
    // SAFETY: the numbers fill the shape, and the view of them is gone before they are. A copy from memory that is not pinned has
    // read them when it returns.
    let view = unsafe {
        tch::Tensor::f_from_blob(
            input.data.as_ptr().cast(),
            &input.shape,
            &strides,
            Kind::Float,
            Device::Cpu,
        )
    };
    view.and_then(|t| t.f_to_device(Device::Cuda(index)))
        .map_err(say)
}
