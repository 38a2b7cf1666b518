//! A client: it captures frames at its rate, sends them with the size that it was told, and reports its link (§3.2).

use std::time::Duration;

use spillgate_controller_policy::adaptation::ClientReport;
use spillgate_pipeline::id::{VariantId, WorkerId};
use spillgate_pipeline::time::Timestamp;

use super::setting::{CameraKind, ENCODING, ROUND_TRIP, Zoo};
use crate::network::{Estimator, Link, Sent};

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

#[derive(Clone, Debug)]
pub(super) struct Camera {
    pub(super) kind: CameraKind,
    /// Who serves it, as the server says.
    pub(super) served: Option<(VariantId, WorkerId)>,
    /// The size that it was told, as a variant.
    pub(super) wish: usize,
    link: Link,
    estimator: Estimator,
}

impl Camera {
    pub(super) fn new(kind: CameraKind, link: Link, wish: usize) -> Self {
        Camera {
            kind,
            served: None,
            wish,
            link,
            estimator: Estimator::new(ROUND_TRIP),
        }
    }

    /// Time between two frames.
    pub(super) fn gap(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.kind.rate)
    }

    /// The largest size up to the wish that the link bears at its rate; the smallest of all if it bears none.
    fn size(&self, zoo: &Zoo) -> usize {
        let Some(bandwidth) = self.estimator.bandwidth() else {
            return 0;
        };
        let is_borne = |size: &usize| bandwidth / zoo.frame_bits(*size) > self.kind.rate;
        (0..=self.wish).rev().find(is_borne).unwrap_or(0)
    }

    /// Captures a frame and sends it. Gives the frame, when it left, and how it travels.
    pub(super) fn capture(
        &mut self,
        now: Timestamp,
        camera: usize,
        zoo: &Zoo,
    ) -> (Frame, Timestamp, Sent) {
        let size = self.size(zoo);
        let left = now + ENCODING;
        let report = self.estimator.bandwidth().map(|bandwidth| ClientReport {
            rate: self.kind.rate,
            // Encoding is not the server's time.
            slo: self.kind.slo.saturating_sub(ENCODING),
            bandwidth,
            round_trip: ROUND_TRIP,
        });
        let frame = Frame {
            camera,
            captured: now,
            deadline: now + self.kind.slo - ROUND_TRIP / 2,
            size,
            report,
            has_place: false,
        };
        (frame, left, self.link.send(left, zoo.frame_bits(size)))
    }

    /// A frame that left at that time is acknowledged.
    pub(super) fn acknowledged(&mut self, now: Timestamp, left: Timestamp, bits: f64) {
        self.estimator.acknowledged(now, left, bits);
    }
}
