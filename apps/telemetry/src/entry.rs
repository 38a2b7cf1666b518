//! The entries of the queue between the serving threads and the exporter: the part of a record from which spans are
//! made. The record itself is not kept, because it owns the frame.

use std::sync::Arc;

use spillgate_controller::record::{BatchRecord, RequestRecord, TraceContext};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::request::{ModuleTimes, Outcome, Request};
use spillgate_pipeline::time::Timestamp;

/// One ended request or batch.
pub(crate) enum Entry {
    Request(RequestEntry),
    Batch(BatchEntry),
}

/// A request that ended; fields as in `RequestRecord`.
pub(crate) struct RequestEntry {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) request: Request,
    pub(crate) number: u64,
    pub(crate) client: Arc<str>,
    pub(crate) admitted_at: Timestamp,
    pub(crate) ended_at: Timestamp,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<Box<str>>,
    pub(crate) times: Box<[ModuleTimes]>,
    pub(crate) trace: TraceContext,
}

impl RequestEntry {
    pub(crate) fn of(record: &RequestRecord) -> Self {
        RequestEntry {
            pipeline: record.pipeline.clone(),
            request: record.request,
            number: record.number,
            client: record.client.clone(),
            admitted_at: record.admitted_at,
            ended_at: record.ended_at,
            outcome: record.outcome,
            error: record.error.as_deref().map(Box::from),
            times: record.times.as_slice().into(),
            trace: record.trace,
        }
    }
}

/// A batch that ended.
pub(crate) struct BatchEntry {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) record: BatchRecord,
}
