//! A client: it captures frames at its rate, sends them with the size that it was told, and reports its link (§3.2).

use std::time::Duration;

use spillgate_camera::{CameraReport, ClockAnswer};
use spillgate_pipeline::id::{VariantId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_sim::network::{EmulatedUplink, Sent};

use super::mind::{CameraMind, Left};
use super::setting::{CameraKind, ENCODING, HOST, ROUND_TRIP, Zoo};
use crate::adaptation::ClientReport;

/// Bits of a report that is a message of its own: it goes behind the frames on the link.
const REPORT_BITS: f64 = 8.0 * 64.0;

/// A frame on its way.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) camera: usize,
    pub(super) captured: Timestamp,
    /// When the server is to be done with it.
    pub(super) deadline: Timestamp,
    /// The variant whose input has its size.
    pub(super) size: usize,
    /// What its camera says of itself.
    pub(super) report: Option<ClientReport>,
    /// A worker has a place for its camera.
    pub(super) has_place: bool,
}

/// A report on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reporting {
    /// What the server hears; `None`: the camera knows nothing of its link yet.
    pub(super) report: Option<ClientReport>,
    pub(super) answer: ClockAnswer,
    pub(super) sent: Sent,
    /// When the next one is due.
    pub(super) next: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct Camera {
    pub(super) kind: CameraKind,
    /// Who serves it, as the server says.
    pub(super) served: Option<(VariantId, WorkerId)>,
    pub(super) mind: CameraMind,
    link: EmulatedUplink,
    n_sent: u64,
}

impl Camera {
    pub(super) fn new(kind: CameraKind, link: EmulatedUplink, mind: CameraMind) -> Self {
        Camera {
            kind,
            served: None,
            mind,
            link,
            n_sent: 0,
        }
    }

    /// Time between two frames.
    pub(super) fn gap(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.kind.rate)
    }

    /// Captures a frame. It leaves once it is encoded.
    pub(super) fn capture(&self, now: Timestamp, camera: usize, zoo: &Zoo) -> Frame {
        let bandwidth = self.mind.brings();
        Frame {
            camera,
            captured: now,
            deadline: now + self.kind.slo - ROUND_TRIP / 2,
            size: self.mind.size(zoo),
            report: bandwidth.map(|bandwidth| self.report(bandwidth, ROUND_TRIP)),
            has_place: false,
        }
    }

    /// What the server hears of the camera.
    fn report(&self, bandwidth: f64, round_trip: Duration) -> ClientReport {
        ClientReport {
            rate: self.kind.rate,
            // Encoding is not the server's time.
            slo: self.kind.slo.saturating_sub(ENCODING),
            bandwidth,
            round_trip,
        }
    }

    /// A captured frame leaves, or is held back: `None`.
    pub(super) fn send(
        &mut self,
        now: Timestamp,
        frame: &Frame,
        zoo: &Zoo,
    ) -> Option<(Left, Sent)> {
        if self.mind.holds_back(now) {
            return None;
        }
        let left = Left {
            number: self.n_sent,
            at: now,
            size: frame.size,
        };
        self.n_sent += 1;
        self.mind.sent(left, zoo);
        Some((left, self.link.send(now, zoo.frame_bits(frame.size))))
    }

    /// Sends the report that is due, where reports are messages of their own.
    pub(super) fn send_report(&mut self, now: Timestamp) -> Option<Reporting> {
        let CameraMind::Ours(policy) = &mut self.mind else {
            return None;
        };
        let CameraReport {
            clock,
            bandwidth,
            round_trip,
        } = policy.report(now);
        let next = policy.reports_at();
        let known = bandwidth.zip(round_trip);
        let sent = self.link.send(now, REPORT_BITS);
        Some(Reporting {
            report: known.map(|(bandwidth, round_trip)| self.report(bandwidth, round_trip)),
            answer: ClockAnswer {
                reported: clock,
                came: sent.arrives,
                written: sent.arrives + HOST,
            },
            sent,
            next,
        })
    }

    /// The server answered such a report.
    pub(super) fn answered(&mut self, now: Timestamp, answer: &ClockAnswer) {
        if let CameraMind::Ours(policy) = &mut self.mind {
            policy.answered(now, answer);
        }
    }
}
