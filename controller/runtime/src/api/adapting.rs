//! The server's part in the adaptation of one stream: what the client says about its link, and what it is told beside results. How far it is
//! believed, [`Uplink`] decides.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use spillgate_controller_policy::uplink::{Uplink, UplinkReport};
use spillgate_controller_policy::variant_selector::{Asked, StreamKey};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_response::Message;

use crate::host::{Listening, OnAsk, PipelineHost};

/// The link that a client reports; `None` where its round trip is no time.
fn reported(report: &pb::LinkReport) -> Option<UplinkReport> {
    let round_trip = Duration::try_from_secs_f64(report.round_trip_ms / 1e3).ok()?;
    let bandwidth = report.bandwidth;
    Some(UplinkReport {
        bandwidth,
        round_trip,
    })
}

/// What the reader of a stream knows of its link.
#[derive(Default)]
pub(super) struct StreamUplink {
    notices: Arc<Notices>,
    uplink: Uplink,
}

impl StreamUplink {
    pub(super) fn new(notices: Arc<Notices>) -> Self {
        StreamUplink {
            notices,
            ..Default::default()
        }
    }

    /// The stream listens to what that host asks.
    pub(super) fn listen(&self, host: &Arc<PipelineHost>, stream: StreamKey) -> Listening {
        let notices = self.notices.clone();
        let served = host.pipeline().adapt.map(|adapt| adapt.module);
        let pipeline = host.pipeline().clone();
        let on_ask: OnAsk = Arc::new(move |asked: Asked| {
            let module = served.and_then(|module| pipeline.modules.get(module.idx()));
            notices.asked(pb::AskedSize {
                side: asked.side,
                variant: u32::from(asked.variant.0),
                reason: module.map_or(String::new(), |module| reason(module, asked)),
            });
        });
        host.listen(stream, on_ask)
    }

    /// A report came; returns what the gateway hears of it. Those that come too often are left out.
    pub(super) fn report(
        &mut self,
        now: Timestamp,
        report: &pb::LinkReport,
    ) -> Option<UplinkReport> {
        if !self.uplink.takes_report(now) {
            return None;
        }
        self.notices.clock(report.clock_ns, now);
        self.uplink.heard(reported(report)?)
    }

    /// A frame came, and its bytes took so long from the first to the last. Acknowledges it; returns when it was sent, as far as that is
    /// believed.
    pub(super) fn came(
        &self,
        (now, took): (Timestamp, Duration),
        frame: &pb::Frame,
        slo: Duration,
    ) -> Option<Timestamp> {
        let bytes = frame.data.len();
        self.notices.received(pb::FrameReceived {
            number: frame.number,
            bytes: bytes as u64,
            clock_ns: now.as_ns(),
        });
        let claimed = (frame.sent_at_ns > 0).then(|| Timestamp::from_ns(frame.sent_at_ns));
        self.uplink.sent_at((now, took), claimed, bytes, slo)
    }
}

/// Why frames are asked for in a size, for people.
fn reason(module: &Module, asked: Asked) -> String {
    let variant = &module.variants[asked.variant.idx()];
    format!("{} is served by {}", module.name, variant.model)
}

/// What a stream is told beside its results, until that is written.
#[derive(Default)]
pub(super) struct Notices(Mutex<Unwritten>);

#[derive(Default)]
struct Unwritten {
    /// No more than the stream has places for answers: a frame's place is free again once its answer is read, and this is read before.
    received: VecDeque<pb::FrameReceived>,
    /// The newest: the client's clock, and when it came.
    clock: Option<(u64, Timestamp)>,
    /// The newest.
    asked: Option<pb::AskedSize>,
    waker: Option<Waker>,
}

impl Notices {
    fn tell(&self, add: impl FnOnce(&mut Unwritten)) {
        let waker = {
            let mut unwritten = self.0.lock();
            add(&mut unwritten);
            unwritten.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn received(&self, frame: pb::FrameReceived) {
        self.tell(|unwritten| unwritten.received.push_back(frame));
    }

    fn clock(&self, client_ns: u64, came_at: Timestamp) {
        self.tell(|unwritten| unwritten.clock = Some((client_ns, came_at)));
    }

    fn asked(&self, asked: pb::AskedSize) {
        self.tell(|unwritten| unwritten.asked = Some(asked));
    }

    /// The next message, to be written at once; `now` is read for each. Without one, the task is woken when there is one.
    pub(super) fn next(
        &self,
        cx: &Context<'_>,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Message> {
        let mut unwritten = self.0.lock();
        if let Some(frame) = unwritten.received.pop_front() {
            return Some(Message::Received(frame));
        }
        if let Some((client_ns, came_at)) = unwritten.clock.take() {
            return Some(Message::Clock(pb::ClockAnswer {
                client_ns,
                came_ns: came_at.as_ns(),
                written_ns: now().as_ns(),
            }));
        }
        if let Some(asked) = unwritten.asked.take() {
            return Some(Message::Asked(asked));
        }
        unwritten.waker = Some(cx.waker().clone());
        None
    }
}

#[cfg(test)]
mod tests {
    use spillgate_controller_policy::uplink::REPORT_EVERY;

    use super::*;

    const SLO: Duration = Duration::from_millis(200);

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    fn report(bandwidth: f64, round_trip_ms: f64) -> pb::LinkReport {
        pb::LinkReport {
            clock_ns: 7,
            bandwidth,
            round_trip_ms,
        }
    }

    /// When a frame of 25,000 bytes was sent that comes at 1000 ms and says `sent_at`.
    fn believed(link: &StreamUplink, sent_at: Timestamp) -> Option<Timestamp> {
        believed_after(link, Duration::ZERO, sent_at)
    }

    /// The same of one whose bytes took that long to come.
    fn believed_after(
        link: &StreamUplink,
        took: Duration,
        sent_at: Timestamp,
    ) -> Option<Timestamp> {
        let frame = pb::Frame {
            data: vec![0; 25_000].into(),
            sent_at_ns: sent_at.as_ns(),
            ..Default::default()
        };
        link.came((ms(1000), took), &frame, SLO)
    }

    fn link() -> StreamUplink {
        StreamUplink::new(Arc::default())
    }

    #[test]
    fn a_frame_was_sent_as_early_as_its_link_explains() {
        let mut link = link();
        assert_eq!(believed(&link, ms(990)), None, "nothing is reported");
        // 20 ms of bytes, and the round trip.
        link.report(ms(0), &report(10e6, 30.0));
        assert_eq!(believed(&link, ms(0)), None, "it does not say when");
        assert_eq!(believed(&link, ms(990)), Some(ms(990)));
        assert_eq!(believed(&link, ms(1)), Some(ms(950)), "no earlier");
        assert_eq!(
            believed(&link, ms(2000)),
            Some(ms(1000)),
            "not in the future"
        );
        link.report(ms(100), &report(1e3, 0.0));
        assert_eq!(believed(&link, ms(1)), Some(ms(800)), "the SLO at most");
    }

    #[test]
    fn a_frame_whose_bytes_came_slowly_was_sent_before_they_came() {
        let mut link = link();
        link.report(ms(0), &report(10e6, 30.0));
        let took = Duration::from_millis(100);
        assert_eq!(believed_after(&link, took, ms(900)), Some(ms(900)));
        assert_eq!(believed_after(&link, took, ms(1)), Some(ms(870)));
        let took = Duration::from_secs(9);
        assert_eq!(believed_after(&link, took, ms(1)), Some(ms(800)), "the SLO");
    }

    #[test]
    fn nonsense_changes_nothing() {
        let mut link = link();
        link.report(ms(0), &report(10e6, 30.0));
        let mut now = ms(0);
        for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY, 10e6] {
            for round_trip in [-1.0, f64::NAN, -f64::INFINITY, 1e300] {
                if bandwidth > 0.0 && bandwidth.is_finite() {
                    assert_eq!(reported(&report(bandwidth, round_trip)), None);
                }
                now = now + REPORT_EVERY;
                link.report(now, &report(bandwidth, round_trip));
                assert_eq!(believed(&link, ms(1)), Some(ms(950)));
            }
        }
        link.report(now + REPORT_EVERY, &report(1e300, 1e9));
        assert_eq!(believed(&link, ms(1)), Some(ms(800)));
        link.report(now + 2 * REPORT_EVERY, &report(f64::MIN_POSITIVE, 0.0));
        assert_eq!(believed(&link, ms(1)), Some(ms(800)));
        link.report(now + 3 * REPORT_EVERY, &report(1e300, 0.0));
        assert!(believed(&link, ms(1)) > Some(ms(999)));
        assert!(believed(&link, Timestamp::from_ns(u64::MAX)) == Some(ms(1000)));
    }

    #[test]
    fn reports_that_come_too_often_are_left_out() {
        let mut link = link();
        link.report(ms(100), &report(10e6, 30.0));
        link.report(ms(149), &report(1e3, 30.0));
        assert_eq!(believed(&link, ms(1)), Some(ms(950)));
        link.report(ms(150), &report(1e3, 30.0));
        assert_eq!(believed(&link, ms(1)), Some(ms(800)));
    }

    #[test]
    fn acknowledgements_come_in_order_and_of_clocks_the_newest() {
        let mut link = link();
        let cx = Context::from_waker(Waker::noop());
        for number in [3, 1] {
            let frame = pb::Frame {
                number,
                ..Default::default()
            };
            link.came((ms(5), Duration::ZERO), &frame, SLO);
        }
        link.report(ms(10), &report(0.0, 0.0));
        link.report(ms(90), &report(0.0, 0.0));
        let mut messages = Vec::new();
        while let Some(message) = link.notices.next(&cx, || ms(91)) {
            messages.push(match message {
                Message::Received(frame) => (frame.number, frame.clock_ns, 0),
                Message::Clock(clock) => (clock.client_ns, clock.came_ns, clock.written_ns),
                other => panic!("{other:?}"),
            });
        }
        let at = |ms: u64| ms * 1_000_000;
        assert_eq!(
            messages,
            [(3, at(5), 0), (1, at(5), 0), (7, at(90), at(91))]
        );
    }
}
