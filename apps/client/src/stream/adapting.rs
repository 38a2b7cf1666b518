//! A client's part in the adaptation of its stream: it tells the server about the link, hears which size frames should have, and sends
//! what [`CameraPolicy`] decides. Servers that do not take part in it say so when the stream is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use spillgate_camera::{CameraFrame, CameraPolicy, ClockAnswer};
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::pb;
use tokio::time::Instant;

use super::producer::Made;
use crate::record::SentAs;

/// The longer side in which frames are wanted. The session says it, and the producer follows.
#[derive(Clone, Debug, Default)]
pub(crate) struct WantedSide(Arc<AtomicU32>);

impl WantedSide {
    /// `None`: frames as they are.
    pub(super) fn get(&self) -> Option<u32> {
        let side = self.0.load(Ordering::Relaxed);
        (side > 0).then_some(side)
    }

    fn set(&self, side: Option<u32>) {
        self.0.store(side.unwrap_or(0), Ordering::Relaxed);
    }
}

/// What a frame says beside its picture.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentWith {
    pub(super) sent_at_ns: u64,
    /// 0: it was not made smaller.
    pub(super) source: (u32, u32),
}

/// One open stream.
#[derive(Debug)]
pub(super) struct Adapting {
    camera: CameraPolicy,
    wanted: WantedSide,
    /// The client's clock counts from here.
    began: Instant,
}

impl Adapting {
    /// A stream that was opened just now, if its server takes part. A frame that waits for the link for longer than `patience` is late.
    pub(super) fn new(
        opened: &pb::StreamOpened,
        frames_per_second: f64,
        patience: Duration,
        wanted: WantedSide,
    ) -> Option<Self> {
        wanted.set(None);
        opened.adapts.then(|| Adapting {
            camera: CameraPolicy::new(frames_per_second, patience),
            wanted,
            began: Instant::now(),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }

    /// When the next report is due.
    pub(super) fn reports_at(&self) -> Instant {
        self.began + self.camera.reports_at().since(Timestamp::ZERO)
    }

    /// The report that is due.
    pub(super) fn report(&mut self) -> pb::LinkReport {
        let report = self.camera.report(self.now());
        let round_trip = report.round_trip.unwrap_or_default();
        pb::LinkReport {
            clock_ns: report.clock.as_ns(),
            bandwidth: report.bandwidth.unwrap_or_default(),
            round_trip_ms: round_trip.as_secs_f64() * 1e3,
        }
    }

    /// The server has a frame.
    pub(super) fn received(&mut self, frame: &pb::FrameReceived) {
        let came = Timestamp::from_ns(frame.clock_ns);
        self.camera.received(self.now(), frame.number, came);
        self.follow();
    }

    /// The server answered a frame.
    pub(super) fn came(&mut self, number: u64) {
        self.camera.came(number);
    }

    /// The server answered a report.
    pub(super) fn answered(&mut self, answer: &pb::ClockAnswer) {
        let answer = ClockAnswer {
            reported: Timestamp::from_ns(answer.client_ns),
            came: Timestamp::from_ns(answer.came_ns),
            written: Timestamp::from_ns(answer.written_ns),
        };
        self.camera.answered(self.now(), &answer);
    }

    /// The server asks for frames of a size.
    pub(super) fn asked(&mut self, asked: &pb::AskedSize) {
        self.camera.asked(self.now(), asked.side);
        self.follow();
    }

    /// How long frames wait for the link, if that is so long that another one would be late.
    pub(super) fn stalls(&self) -> Option<Duration> {
        self.camera.stalls(self.now())
    }

    /// What the frame that is sent now says.
    pub(super) fn sending(&self, made: &Made) -> SentWith {
        let sent_at = self.camera.server_clock(self.now());
        SentWith {
            sent_at_ns: sent_at.map_or(0, Timestamp::as_ns),
            source: match made.is_smaller() {
                true => made.source,
                false => (0, 0),
            },
        }
    }

    /// The connection took a frame.
    pub(super) fn sent(&mut self, number: u64, made: &Made, bytes: usize) {
        let frame = CameraFrame {
            number,
            source: made.source,
            size: made.size,
            bytes,
        };
        self.camera.sent(self.now(), &frame);
        self.follow();
    }

    /// The producer hears which size is wanted now.
    fn follow(&self) {
        self.wanted.set(self.camera.wanted());
    }

    /// How a frame is sent now, for people.
    pub(super) fn sent_as(&self, made: &Made) -> SentAs {
        SentAs {
            bandwidth: self.camera.bandwidth(self.now()),
            ..made.sent_as()
        }
    }
}
