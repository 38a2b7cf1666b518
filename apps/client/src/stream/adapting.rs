//! A client's part in the adaptation of its stream: it tells the server about the link, hears which size frames should have, and chooses
//! what to send. Servers that do not take part in it say so when the stream is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use spillgate_proto::pb;
use tokio::time::Instant;

use super::estimate::LinkEstimate;
use super::producer::Made;
use super::size::{LinkNow, SizeChooser};
use crate::record::SentAs;

/// Between two reports: a few a second, as a link changes within seconds.
const REPORT_EVERY: Duration = Duration::from_millis(250);

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
    link: LinkEstimate,
    sizes: SizeChooser,
    wanted: WantedSide,
    /// The client's clock counts from here.
    began: Instant,
    reports_at: Instant,
    /// A frame that waits for the link for longer than this is late.
    patience: Duration,
}

impl Adapting {
    /// A stream that was opened just now, if its server takes part.
    pub(super) fn new(
        opened: &pb::StreamOpened,
        frames_per_second: f64,
        patience: Duration,
        wanted: WantedSide,
    ) -> Option<Self> {
        wanted.set(None);
        let now = Instant::now();
        opened.adapts.then(|| Adapting {
            link: LinkEstimate::default(),
            sizes: SizeChooser::new(frames_per_second),
            wanted,
            began: now,
            reports_at: now,
            patience,
        })
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// When the next report is due.
    pub(super) fn reports_at(&self) -> Instant {
        self.reports_at
    }

    /// The report that is due.
    pub(super) fn report(&mut self) -> pb::LinkReport {
        self.reports_at = Instant::now() + REPORT_EVERY;
        self.link.report(self.now())
    }

    /// The server has a frame.
    pub(super) fn received(&mut self, frame: &pb::FrameReceived) {
        self.link.received(self.now(), frame.number);
        self.choose();
    }

    /// The server answered a frame.
    pub(super) fn came(&mut self, number: u64) {
        self.link.came(number);
    }

    /// The server answered a report.
    pub(super) fn answered(&mut self, answer: &pb::ClockAnswer) {
        self.link.answered(self.now(), answer);
    }

    /// The server asks for frames of a size.
    pub(super) fn asked(&mut self, asked: &pb::AskedSize) {
        self.sizes.told(asked.side);
        self.choose();
    }

    /// How long frames wait for the link, if that is so long that another one would be late.
    pub(super) fn stalls(&self) -> Option<Duration> {
        let now = self.now();
        let longest = self.link.longest_out(now).max(self.link.waits(now));
        (longest > self.patience).then_some(longest)
    }

    /// What the frame that is sent now says.
    pub(super) fn sending(&self, made: &Made) -> SentWith {
        SentWith {
            sent_at_ns: self.link.server_clock(self.now()).unwrap_or_default(),
            source: match made.is_smaller() {
                true => made.source,
                false => (0, 0),
            },
        }
    }

    /// The connection took a frame.
    pub(super) fn sent(&mut self, number: u64, made: &Made, bytes: usize) {
        self.link.sent(self.now(), number, bytes);
        self.sizes.made(made.source, made.size, bytes);
        self.choose();
    }

    fn choose(&mut self) {
        let now = self.now();
        let link = LinkNow {
            bandwidth: self.link.bandwidth(now),
            bits_out: self.link.bits_out(),
        };
        self.wanted.set(self.sizes.choose(now, link));
    }

    /// How a frame is sent now, for people.
    pub(super) fn sent_as(&self, made: &Made) -> SentAs {
        SentAs {
            bandwidth: self.link.bandwidth(self.now()),
            ..made.sent_as()
        }
    }
}
