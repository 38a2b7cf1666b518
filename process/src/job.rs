//! A request on its way through the modules of one process: its frame and, for each finished module, the outputs. It
//! is shared by reference; written values never move.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use spillgate_picture::{Damage, Frame};
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::{Module, PortRef};

use crate::account::{Account, Full, Holder, Lease};
use crate::value::Value;
use crate::value::{Inputs, Outputs};

/// Why a module has no outputs for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The module could not compute them: a sentence for the client.
    Module(String),
    /// They would take more bytes than the client may hold.
    Memory(Full),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::Module(text)
    }
}

/// The outcome of a module for a request.
pub type Ran = Result<Outputs, Failure>;

/// Whether values are what a module brings: as many, and of its types.
pub fn are_outputs_of(module: &Module, values: &Outputs) -> bool {
    values.len() == module.outputs.len()
        && values
            .iter()
            .zip(&module.outputs)
            .all(|(value, (_, ty))| value.ty() == *ty)
}

/// A request's values.
#[derive(Debug)]
pub struct Job {
    frame: Frame,
    /// The lease of the frame's bytes.
    _lease: Option<Lease>,
    outputs: Box<[OnceLock<HeldOutputs>]>,
    holder: Arc<Holder>,
    ended: AtomicBool,
    is_traced: bool,
    damage: OnceLock<Damage>,
}

/// Outputs and the bytes that they hold.
#[derive(Debug)]
struct HeldOutputs {
    outputs: Outputs,
    _lease: Option<Lease>,
}

impl Job {
    /// A request of `holder` that carries `frame` through a pipeline of that many modules, the source included.
    /// `lease` covers the frame's bytes.
    pub fn new(frame: Frame, lease: Option<Lease>, n_modules: usize, holder: Arc<Holder>) -> Self {
        Job {
            frame,
            _lease: lease,
            outputs: (0..n_modules).map(|_| OnceLock::new()).collect(),
            holder,
            ended: AtomicBool::new(false),
            is_traced: false,
            damage: OnceLock::new(),
        }
    }

    /// The same, with spans of its request exported or not.
    #[must_use]
    pub fn traced(mut self, is_traced: bool) -> Self {
        self.is_traced = is_traced;
        self
    }

    /// Whether spans of its request are exported.
    pub fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// The same for a request without a client.
    pub fn unaccounted(frame: Frame, n_modules: usize) -> Self {
        Job::new(frame, None, n_modules, Account::unbounded().holder())
    }

    /// The holder of its bytes.
    pub fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// The request has ended: results that are still computed for it are not needed.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Its picture is damaged, and is served all the same. The first that is noted stays.
    pub fn note_damage(&self, damage: Damage) {
        let _ = self.damage.set(damage);
    }

    /// What is damaged in its picture, as far as a decoder noticed.
    pub fn damage(&self) -> Option<Damage> {
        self.damage.get().copied()
    }

    /// The frame as received.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Stores a module's outputs. A module runs at most once for a request: a second write is ignored. The outputs of
    /// the source already hold their bytes; so do payloads that other modules pass on unchanged.
    ///
    /// # Errors
    /// When they take more bytes than the client may hold; then they are not stored.
    pub fn set_outputs(&self, module: ModuleId, outputs: Outputs) -> Result<(), Full> {
        match module {
            ModuleId::SOURCE => self.set_held(module, outputs),
            _ => self.set_brought(module, outputs)?,
        }
        Ok(())
    }

    /// The same for outputs of any module, the source included, that hold no bytes of the client's account yet: another process
    /// sent them.
    ///
    /// # Errors
    /// As of [`Job::set_outputs`].
    pub fn set_brought(&self, module: ModuleId, mut outputs: Outputs) -> Result<(), Full> {
        let mut others = 0;
        for value in &mut outputs {
            match value.payload() {
                Some(payload) if self.knows(payload) => {}
                Some(payload) => {
                    let bytes = self.holder.take(payload.len() as u64)?;
                    *value = value.with_payload(bytes.around(payload.clone()));
                }
                None => others += value.bytes(),
            }
        }
        let lease = (others > 0).then(|| self.holder.take(others)).transpose()?;
        self.put(module, outputs, lease);
        Ok(())
    }

    /// The same for outputs that hold their bytes already.
    pub fn set_held(&self, module: ModuleId, outputs: Outputs) {
        self.put(module, outputs, None);
    }

    fn put(&self, module: ModuleId, outputs: Outputs, lease: Option<Lease>) {
        let _ = self.outputs[module.idx()].set(HeldOutputs {
            outputs,
            _lease: lease,
        });
    }

    /// Whether a payload came with the request or from another module.
    fn knows(&self, payload: &Bytes) -> bool {
        let is = |other: &Bytes| other.as_ptr() == payload.as_ptr();
        let values = self.outputs.iter().filter_map(OnceLock::get);
        let mut values = values.flat_map(|held| &held.outputs);
        payload.is_empty() || is(&self.frame.data) || values.any(|v| v.payload().is_some_and(is))
    }

    /// All outputs of a module; `None` when the module has not run for this request.
    pub fn outputs(&self, module: ModuleId) -> Option<&Outputs> {
        Some(&self.outputs[module.idx()].get()?.outputs)
    }

    /// An output of a module; `None` when the module has not run for this request.
    pub fn output(&self, port: PortRef) -> Option<&Value> {
        self.outputs[port.module.idx()]
            .get()?
            .outputs
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
