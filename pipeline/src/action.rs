//! Actions: what a placement asks of a device (Clockwork §4.3 and §5.1). An action has a window. What cannot start in its window
//! is refused and never runs late.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{ActionId, ModelId, WeightsId, WorkerId};
use crate::request::Request;
use crate::time::Timestamp;

/// Bytes of a page of a device's weight cache (Clockwork §5.1).
pub const PAGE_BYTES: u64 = 16 * 1024 * 1024;

/// When an action may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Not before this moment.
    pub earliest: Timestamp,
    /// Not after this moment.
    pub latest: Timestamp,
}

/// What a device is to do. `M` is a member of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work<M> {
    /// Bring weights into the cache. Their pages are taken when the action arrives.
    Load(WeightsId),
    /// Give back the pages of weights. It takes no time.
    Unload(WeightsId),
    /// Run a batch.
    Infer {
        /// Its model.
        model: ModelId,
        /// What the model runs with.
        weights: WeightsId,
        /// Its members: as many as the batch is large.
        members: Vec<M>,
    },
}

/// An action on its way to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action<M> {
    /// Its id.
    pub id: ActionId,
    /// What is to be done.
    pub work: Work<M>,
    /// When it may start.
    pub window: Window,
    /// When it is expected to start.
    pub starts_at: Timestamp,
    /// When it is expected to end.
    pub expected_end: Timestamp,
}

/// Why a device did not run an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// Its window passed.
    Late,
    /// The weights of its model are not in the cache.
    NotLoaded,
    /// The cache has too few free pages.
    NoPages,
}

/// How weights were read that a request waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// When reading them began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// Why they were not there.
    pub cause: LoadCause,
}

/// Why weights had to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadCause {
    /// Nobody had asked for them before, or reading them had failed.
    First,
    /// They had given way to others.
    GaveWay,
    /// The devices that have them were too busy.
    Copy,
}

impl LoadCause {
    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            LoadCause::First => "first",
            LoadCause::GaveWay => "gave-way",
            LoadCause::Copy => "copy",
        }
    }
}

/// A request in a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchItem<T> {
    /// The worker that its gateway sent it to.
    pub worker: WorkerId,
    /// The request.
    pub request: Request,
    /// t_r: when it came to the worker.
    pub arrived_at: Timestamp,
    /// t_b: when it was bound to the batch.
    pub batched_at: Timestamp,
    /// When the weights of its model were read, where it waited for them.
    pub load: Option<Load>,
    /// The driver's own.
    pub payload: T,
}

/// What a device says of an action that it was sent. Each action gets exactly one, but an UNLOAD, which gets none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The action.
    pub id: ActionId,
    /// What became of it.
    pub ended: Ended,
    /// Of a batch whose steps are apart: what they took beside its execution.
    pub around: Around,
}

impl Done {
    /// An action that was one step.
    pub fn new(id: ActionId, ended: Ended) -> Self {
        let around = Around::default();
        Done { id, ended, around }
    }
}

/// The steps of a batch before and after its execution, where they run beside other batches; else 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Time in which its inputs were prepared (INPUT).
    pub prepare: Duration,
    /// Time in which its outputs were made of what the model gave (OUTPUT).
    pub finish: Duration,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A batch ran, or weights were read.
    Ran {
        /// When it ended.
        at: Timestamp,
        /// How long it executed, or read.
        took: Duration,
    },
    /// It did not run.
    Refused(RefusalCause),
    /// Weights could not be read: a sentence for the clients whose requests need them.
    Failed(Arc<str>),
}
