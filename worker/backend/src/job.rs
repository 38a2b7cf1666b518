//! A request on its way through the modules of one process: the frame as it came and, for each module
//! that is done, its outputs. Shared by reference; what is written once never moves again.

use std::sync::OnceLock;

use bytes::Bytes;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::{Module, PortRef};

use crate::operator::{Inputs, Outputs};
use crate::value::Value;

/// How the bytes of a frame are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// JPEG or PNG, told from the first bytes.
    Auto,
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// Rows from the top, RGB, 8 bits a channel, `width * height * 3` bytes.
    Rgb8,
    /// No picture.
    Bytes,
}

/// A frame as it came over the wire.
#[derive(Clone, Debug)]
pub struct Frame {
    /// How to read `data`.
    pub format: FrameFormat,
    /// The frame; a slice of the message that brought it.
    pub data: Bytes,
    /// Columns, for `Rgb8`.
    pub width: u32,
    /// Rows, for `Rgb8`.
    pub height: u32,
}

/// A request's values.
#[derive(Debug)]
pub struct Job {
    frame: Frame,
    outputs: Box<[OnceLock<Outputs>]>,
}

impl Job {
    /// A request that carries `frame` through a pipeline of that many modules, the source included.
    pub fn new(frame: Frame, n_modules: usize) -> Self {
        Job {
            frame,
            outputs: (0..n_modules).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The frame as it came.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Stores a module's outputs. A module runs at most once for a request: a second write is lost.
    pub fn set_outputs(&self, module: ModuleId, outputs: Outputs) {
        let _ = self.outputs[module.idx()].set(outputs);
    }

    /// An output of a module; `None` when the module has not run for this request.
    pub fn output(&self, port: PortRef) -> Option<&Value> {
        self.outputs[port.module.idx()]
            .get()?
            .get(usize::from(port.port))
    }

    /// The inputs of a module.
    pub fn inputs(&self, module: &Module) -> Inputs {
        module
            .inputs
            .iter()
            .map(|port| port.and_then(|p| self.output(p)).cloned())
            .collect()
    }
}
