//! One camera and what the server knows of it.

use std::time::Duration;

use spillgate_camera::{CameraFrame, CameraPolicy, CameraReport, ClockAnswer};
use spillgate_controller_policy::shares::{ClientStream, Party};
use spillgate_controller_policy::uplink::{Uplink, UplinkReport};
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::id::GatewayId;
use spillgate_pipeline::time::Timestamp;

use super::setting::SimCamera;
use crate::network::{EmulatedUplink, Sent};

/// Bits of a report: it goes behind the frames on the link.
const REPORT_BITS: f64 = 8.0 * 64.0;

/// A frame on its way.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Frame {
    /// Counts the frames of its camera.
    pub(super) number: u64,
    pub(super) captured: Timestamp,
    /// Its longer side in pixels.
    pub(super) side: u32,
    /// When it was sent by the server's clock, as the camera says; `None`: it does not.
    pub(super) says: Option<Timestamp>,
    /// Its bytes take so long from the first to the last.
    pub(super) took: Duration,
}

/// A camera that runs.
pub(super) struct Camera {
    pub(super) of: SimCamera,
    /// The gateway that serves it.
    pub(super) owner: GatewayId,
    /// `None`: it takes no part in adaptation.
    pub(super) policy: Option<CameraPolicy>,
    /// What the server knows of its link.
    pub(super) known: Uplink,
    /// Its frames that the gateway has not answered.
    pub(super) n_open: usize,
    link: EmulatedUplink,
    n_captured: u64,
}

impl Camera {
    pub(super) fn new(of: SimCamera, owner: GatewayId) -> Self {
        let policy = of.adapts.then(|| CameraPolicy::new(of.rate, of.slo));
        Camera {
            owner,
            policy,
            known: Uplink::default(),
            n_open: 0,
            link: of.link.clone(),
            n_captured: 0,
            of,
        }
    }

    /// Who it is at the entry.
    pub(super) fn party(&self) -> Party {
        Party {
            client: ClientKey::of(&self.of.name),
            stream: ClientStream(0),
            ..Party::ONLY
        }
    }

    /// Its clock, which counts from when its stream was opened.
    pub(super) fn clock(&self, now: Timestamp) -> Timestamp {
        Timestamp::ZERO + now.since(self.of.starts)
    }

    /// What it has for the answer of a frame that leaves now: a resize is not the server's time. Nobody says what a camera takes that does not adapt.
    pub(super) fn timeout(&self) -> Duration {
        match self.policy {
            Some(_) => self.of.slo.saturating_sub(self.of.encoding),
            None => self.of.slo,
        }
    }

    /// Half of the way there and back.
    pub(super) fn way(&self) -> Duration {
        self.link.round_trip() / 2
    }

    /// Captures a frame. It leaves once it is encoded.
    pub(super) fn capture(&mut self, now: Timestamp) -> Frame {
        let wanted = self.policy.as_ref().and_then(CameraPolicy::wanted);
        self.n_captured += 1;
        Frame {
            number: self.n_captured - 1,
            captured: now,
            side: wanted.map_or(self.of.side, |wanted| wanted.min(self.of.side)),
            says: None,
            took: Duration::ZERO,
        }
    }

    /// A frame as its camera's policy sees it. Only the ratio of sides counts there, so pictures are square.
    fn as_sent(&self, frame: &Frame) -> CameraFrame {
        CameraFrame {
            number: frame.number,
            source: (self.of.side, self.of.side),
            size: (frame.side, frame.side),
            bytes: self.bytes(frame),
        }
    }

    /// Bytes of a frame.
    pub(super) fn bytes(&self, frame: &Frame) -> usize {
        (self.of.bits.of(frame.side) / 8.0).round() as usize
    }

    /// A frame leaves, or is held back: `None`.
    pub(super) fn send(&mut self, now: Timestamp, frame: &mut Frame) -> Option<Sent> {
        let (clock, as_sent) = (self.clock(now), self.as_sent(frame));
        if let Some(policy) = &mut self.policy {
            if policy.stalls(clock).is_some() {
                return None;
            }
            frame.says = policy.server_clock(clock);
            policy.sent(clock, &as_sent);
        }
        let sent = self.link.send(now, as_sent.bytes as f64 * 8.0);
        frame.took = sent.arrives.since(sent.begins).saturating_sub(self.way());
        Some(sent)
    }

    /// Sends the report that is due; also says when the next one is.
    pub(super) fn report(&mut self, now: Timestamp) -> Option<(CameraReport, Sent, Timestamp)> {
        let clock = self.clock(now);
        let policy = self.policy.as_mut()?;
        let report = policy.report(clock);
        let next = self.of.starts + policy.reports_at().since(Timestamp::ZERO);
        Some((report, self.link.send(now, REPORT_BITS), next))
    }

    /// The server hears a report by its own clock. Returns the answer, and what the gateway hears: nothing before the camera knows its link.
    pub(super) fn reported(
        &mut self,
        came: Timestamp,
        report: &CameraReport,
    ) -> Option<(ClockAnswer, Option<UplinkReport>)> {
        if !self.known.takes_report(came) {
            return None;
        }
        let answer = ClockAnswer {
            reported: report.clock,
            came,
            written: came + self.link.host(),
        };
        let said = report.bandwidth.zip(report.round_trip);
        let said = said.map(|(bandwidth, round_trip)| UplinkReport {
            bandwidth,
            round_trip,
        });
        Some((answer, said.and_then(|said| self.known.heard(said))))
    }

    /// From a frame's arrival until its camera knows that.
    pub(super) fn acknowledged_in(&self) -> Duration {
        self.link.host() + self.way()
    }
}
