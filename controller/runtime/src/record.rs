//! Records of requests and batches that have ended: the one source of results, traces, metrics and logs. Nothing is
//! reported while a request is under way.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{BatchId, DeviceId, Incarnation, ModuleId, VariantId, WorkerId};
use spillgate_pipeline::invariants::Invariant;
use spillgate_pipeline::request::{ModuleTimes, Outcome, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_process::job::Job;

/// W3C trace context of a request: the client's, or one that begins here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Trace id, not zero.
    pub trace_id: u128,
    /// The client's span, under which the request's spans hang; zero when the trace begins here.
    pub parent_span_id: u64,
    /// Whether spans of this request are exported.
    pub sampled: bool,
}

/// The upright sizes of a request's picture, columns and rows: as its client has it, and as it was sent. Zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Boxes in results are in pixels of this one.
    pub source: (u32, u32),
    /// Made from that one.
    pub sent: (u32, u32),
}

impl Sizes {
    /// Pixels of the client's picture for each pixel of the one that it sent: columns, rows.
    pub(crate) fn scale(self) -> (f32, f32) {
        let ratio = |source: u32, sent: u32| match sent {
            0 => 1.0,
            _ => source as f32 / sent as f32,
        };
        (
            ratio(self.source.0, self.sent.0),
            ratio(self.source.1, self.sent.1),
        )
    }
}

/// A request that has ended.
#[derive(Debug)]
pub struct RequestRecord {
    /// Its pipeline.
    pub pipeline: Arc<Pipeline>,
    /// The request.
    pub request: Request,
    /// Number of the frame, as the client counts.
    pub number: u64,
    /// Name that the client gave its stream; empty when it gave none.
    pub client: Arc<str>,
    /// Of its picture.
    pub sizes: Sizes,
    /// When it was admitted.
    pub admitted_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// For a failure: what the module said.
    pub error: Option<String>,
    /// Its way through the modules, in order of completion.
    pub times: Vec<ModuleTimes>,
    /// Trace context.
    pub trace: TraceContext,
    /// Its values.
    pub job: Arc<Job>,
}

impl RequestRecord {
    /// From admission to the end.
    pub fn latency(&self) -> Duration {
        self.ended_at.since(self.admitted_at)
    }
}

/// A batch that has ended.
#[derive(Clone, Copy, Debug)]
pub struct BatchRecord {
    /// The device that ran it.
    pub device: DeviceId,
    /// Its id on that device.
    pub batch: BatchId,
    /// The module that ran.
    pub module: ModuleId,
    /// Its worker.
    pub worker: WorkerId,
    /// The variant of the module that ran; the first one where it has no others.
    pub variant: VariantId,
    /// Requests of its worker in it.
    pub size: u32,
    /// All requests in it: under a placement those of other workers, too.
    pub ran_together: u32,
    /// t_e.
    pub started_at: Timestamp,
    /// When it was expected to end when it began.
    pub expected_end: Timestamp,
    /// When it was expected to end as it was bound, which others were told.
    pub reported_end: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The life in which it has its id: see [`ModuleTimes::incarnation`].
    pub incarnation: Incarnation,
    /// Spans of a request in it are exported.
    pub is_traced: bool,
}

/// Is told of every request and batch that ends. It is called on device threads and async tasks, so it must not block.
/// It counts the records that it cannot take in as lost.
pub trait Observer: Send + Sync {
    /// A request ended.
    fn request_ended(&self, record: &Arc<RequestRecord>);

    /// A request was refused: it was never admitted.
    fn request_refused(&self, pipeline: &Arc<Pipeline>, reason: &'static str);

    /// A batch ended.
    fn batch_ended(&self, pipeline: &Arc<Pipeline>, record: &BatchRecord);

    /// A finished request ran again at a module, alone, for its time.
    fn reran(&self, pipeline: &Arc<Pipeline>, module: ModuleId, took: Duration);

    /// An invariant did not hold: a bug.
    fn breached(&self, pipeline: &Arc<Pipeline>, invariant: Invariant);
}
