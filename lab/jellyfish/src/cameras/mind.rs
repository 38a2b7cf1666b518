//! Who decides for a camera: the code that the client runs as well, or what the authors describe.

use spillgate_camera::{CameraFrame, CameraPolicy};
use spillgate_pipeline::time::Timestamp;

use super::authors::AuthorsPolicy;
use super::setting::{CameraKind, Contender, ROUND_TRIP, Zoo};
use crate::adaptation::Method;

/// A frame as it left a camera.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) number: u64,
    pub(super) at: Timestamp,
    /// The variant whose input has its size.
    pub(super) size: usize,
}

/// What decides for a camera.
#[derive(Clone, Debug)]
pub(super) enum CameraMind {
    /// As the client does: reports have a schedule of their own.
    Ours(Box<CameraPolicy>),
    /// As the authors' does: each frame brings a report.
    Authors(AuthorsPolicy),
}

impl CameraMind {
    /// A camera under that contender, which is told a size, as a variant, before it starts.
    pub(super) fn new(contender: Contender, kind: CameraKind, wish: usize, zoo: &Zoo) -> Self {
        match contender {
            Contender::Adapted(Method::Spillgate) => {
                let mut policy = CameraPolicy::new(kind.rate, kind.slo);
                policy.asked(Timestamp::ZERO, zoo.sizes()[wish]);
                CameraMind::Ours(Box::new(policy))
            }
            _ => CameraMind::Authors(AuthorsPolicy::new(kind.rate, ROUND_TRIP, wish)),
        }
    }

    /// It is told a size, as a variant.
    pub(super) fn told(&mut self, now: Timestamp, wish: usize, zoo: &Zoo) {
        match self {
            CameraMind::Ours(policy) => policy.asked(now, zoo.sizes()[wish]),
            CameraMind::Authors(policy) => policy.told(wish),
        }
    }

    /// The size of a frame that is captured now, as a variant: the largest one that is no larger than what the camera wants.
    pub(super) fn size(&self, zoo: &Zoo) -> usize {
        match self {
            CameraMind::Ours(policy) => {
                let fits = |size: &u32| policy.wanted().is_none_or(|side| *size <= side);
                let n_fit = zoo.sizes().iter().filter(|size| fits(size)).count();
                n_fit.saturating_sub(1)
            }
            CameraMind::Authors(policy) => policy.size(zoo),
        }
    }

    /// The bandwidth that a frame that is captured now brings with it, if it brings one.
    pub(super) fn brings(&self) -> Option<f64> {
        match self {
            CameraMind::Ours(_) => None,
            CameraMind::Authors(policy) => policy.bandwidth(),
        }
    }

    /// Whether a frame is not sent, as those before it wait for the link.
    pub(super) fn holds_back(&self, now: Timestamp) -> bool {
        match self {
            CameraMind::Ours(policy) => policy.stalls(now).is_some(),
            CameraMind::Authors(_) => false,
        }
    }

    /// A frame left.
    pub(super) fn sent(&mut self, left: Left, zoo: &Zoo) {
        if let CameraMind::Ours(policy) = self {
            let side = zoo.sizes()[left.size];
            let source = zoo.sizes()[zoo.len() - 1];
            let frame = CameraFrame {
                number: left.number,
                source: (source, source),
                size: (side, side),
                bytes: (zoo.frame_bits(left.size) / 8.0).round() as usize,
            };
            policy.sent(left.at, &frame);
        }
    }

    /// A frame that arrived at that time is acknowledged.
    pub(super) fn acknowledged(
        &mut self,
        now: Timestamp,
        left: Left,
        arrived: Timestamp,
        zoo: &Zoo,
    ) {
        match self {
            CameraMind::Ours(policy) => policy.received(now, left.number, arrived),
            CameraMind::Authors(policy) => {
                policy.acknowledged(now, left.at, zoo.frame_bits(left.size));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::zoo;
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    fn mind(method: Method) -> CameraMind {
        let kind = CameraKind {
            rate: 25.0,
            slo: Duration::from_millis(100),
        };
        CameraMind::new(Contender::Adapted(method), kind, 0, &zoo())
    }

    #[test]
    fn the_clients_code_decides_for_cameras_of_spillgate_only() {
        let is_ours = |method| matches!(mind(method), CameraMind::Ours(_));
        assert!(is_ours(Method::Spillgate));
        assert!(!is_ours(Method::Jellyfish) && !is_ours(Method::Greedy));
    }

    #[test]
    fn a_camera_starts_with_the_smallest_size_and_follows_what_it_is_told() {
        let mut ours = mind(Method::Spillgate);
        assert_eq!(ours.size(&zoo()), 0);
        for wish in [3, 15, 7, 0] {
            ours.told(ms(100), wish, &zoo());
            assert_eq!(ours.size(&zoo()), wish);
        }
    }

    #[test]
    fn a_side_between_two_variants_is_the_smaller_one() {
        let mut ours = mind(Method::Spillgate);
        let CameraMind::Ours(policy) = &mut ours else {
            panic!("it is ours");
        };
        for (side, size) in [(351, 6), (352, 7), (64, 0), (4000, 15)] {
            policy.asked(ms(0), side);
            assert_eq!(ours_size(policy), size, "{side}");
        }
    }

    fn ours_size(policy: &CameraPolicy) -> usize {
        CameraMind::Ours(Box::new(policy.clone())).size(&zoo())
    }
}
