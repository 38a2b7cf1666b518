//! Why a client has its variant and not the next better one.

use std::fmt;
use std::time::Duration;

use spillgate_controller_policy::adaptation::Variant;
use spillgate_pipeline::id::{VariantId, WorkerId};
use spillgate_pipeline::time::format_duration;

use super::report::ClientReport;

/// What a client got, and what stands in its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Its variant and worker; `None` if nobody serves it.
    pub served: Option<(VariantId, WorkerId)>,
    /// The next more accurate variant, or the least accurate one for a client that nobody serves, and why it does not have it.
    /// `None`: it has the best.
    pub next: Option<(VariantId, Obstacle)>,
}

/// What keeps a client from a variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Obstacle {
    /// Its link does not bear frames of that size at its rate.
    Link {
        /// Frames a second that the link bears.
        frames_per_second: f64,
    },
    /// The link bears them, but a transfer leaves too little time.
    Transfer {
        /// Time of one transfer.
        transfer: Duration,
        /// Time that is left for the module.
        left: Duration,
    },
    /// Even over an infinitely fast link no batch would be in time and keep up with its rate.
    Compute {
        /// Twice the execution time of a single request: one batch may run before.
        needs: Duration,
        /// Time that is left for the module.
        left: Duration,
    },
    /// A worker could serve it; the workers are needed for others.
    Capacity,
    /// Its reports make no sense, so nothing is known of it.
    Unknown,
}

/// What keeps a client from a variant, given that it does not have it.
pub(super) fn obstacle(
    report: &ClientReport,
    variant: &Variant,
    frame_bits: f64,
    rest: Duration,
) -> Obstacle {
    if !report.link().bears(frame_bits, report.rate) {
        return Obstacle::Link {
            frames_per_second: report.bandwidth / frame_bits,
        };
    }
    let left = report.budget(frame_bits, rest);
    if serves(variant, report.rate, left) {
        return Obstacle::Capacity;
    }
    let transfer = report.link().transfer(frame_bits);
    let without = report
        .slo
        .saturating_sub(report.round_trip)
        .saturating_sub(rest);
    if serves(variant, report.rate, without) {
        return Obstacle::Transfer { transfer, left };
    }
    let single = variant.execution.first().copied().unwrap_or_default();
    Obstacle::Compute {
        needs: single.saturating_mul(2),
        left,
    }
}

/// Whether a worker could serve a client of that rate, alone, if its requests have this time left.
pub fn serves(variant: &Variant, rate: f64, left: Duration) -> bool {
    variant
        .execution
        .iter()
        .zip(1u32..)
        .any(|(execution, batch)| {
            let keeps_up = rate * execution.as_secs_f64() <= f64::from(batch) * (1.0 + 1e-9);
            execution.saturating_mul(2) <= left && keeps_up
        })
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.served {
            Some((variant, worker)) => write!(f, "variant {} on worker {}", variant.0, worker.0)?,
            None => write!(f, "not served")?,
        }
        match &self.next {
            Some((variant, obstacle)) => write!(f, "; not variant {}: {obstacle}", variant.0),
            None => write!(f, "; there is no better one"),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: &Duration| format_duration(*time);
        match self {
            Obstacle::Link { frames_per_second } => {
                write!(
                    f,
                    "link: it bears {frames_per_second:.1} such frames a second"
                )
            }
            Obstacle::Transfer { transfer, left } => {
                write!(
                    f,
                    "link: a transfer takes {}, which leaves {}",
                    ms(transfer),
                    ms(left)
                )
            }
            Obstacle::Compute { needs, left } => {
                write!(
                    f,
                    "compute: two executions take {}, {} are left",
                    ms(needs),
                    ms(left)
                )
            }
            Obstacle::Capacity => write!(f, "capacity: the workers are needed for other clients"),
            Obstacle::Unknown => write!(f, "its reports make no sense"),
        }
    }
}
