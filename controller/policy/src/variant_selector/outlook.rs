//! What decisions are made from, and what they say.

use std::time::Duration;

use spillgate_camera::BitDensity;
use spillgate_pipeline::id::{VariantId, WorkerId};

/// A stream, or a connection with unary calls, of one gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

impl StreamKey {
    /// Streams without a place of their own.
    pub(super) const OTHERS: StreamKey = StreamKey(u64::MAX);
}

/// A frame, as far as it decides about variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameSize {
    /// Its longer side in pixels; 0 where it is no picture.
    pub side: u32,
    /// The longer side that it had before its client made it smaller.
    pub source: u32,
    /// Its bytes.
    pub bytes: u32,
}

impl FrameSize {
    /// Bits of the frame for the square of its longer side: frames of a camera are alike in shape.
    pub(super) fn density(&self) -> BitDensity {
        let side = f64::from(self.side.max(1));
        BitDensity::of(f64::from(self.bytes) * 8.0, side * side)
    }
}

/// What the client of a stream is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The longer side that its frames should have; 0: as they are.
    pub side: u32,
    /// The variant that serves it.
    pub variant: VariantId,
}

/// The worker to which a stream is bound: it serves all its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBinding {
    /// The worker.
    pub worker: WorkerId,
    /// Largest batch that it forms.
    pub batch: u32,
}

/// Which worker serves the next request of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamWorker {
    /// Any.
    Any,
    /// This one.
    Bound(StreamBinding),
    /// None is free for it: any, from what bound streams leave.
    Leftover,
}

/// What the gateway knows of the adapted module and its surroundings.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// Requests in a batch.
    pub batch: u32,
    /// By variant: expected execution time of such a batch.
    pub execution: Vec<Duration>,
    /// The same by variant and size, from 1 on.
    pub by_size: Vec<Vec<Duration>>,
    /// The module's workers that take requests.
    pub workers: Vec<WorkerId>,
    /// Devices that run the module.
    pub devices: f64,
    /// They take requests from one queue of the gateway (dispatch `pull`).
    pub pulls: bool,
    /// The part of the module's requests that are this gateway's.
    pub part: f64,
    /// Device time that each request takes at other modules on these devices.
    pub beside: f64,
    /// Time that a request takes before and after the module.
    pub rest: Duration,
}
