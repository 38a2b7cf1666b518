//! What serves each stream, and why nothing better: for people.

use std::time::Duration;

use spillgate_pipeline::id::VariantId;
use spillgate_pipeline::time::format_duration;

use super::pooled::{Choice, Demand, PooledVariant};
use super::{Asked, StreamKey};

/// A stream as its gateway sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamView {
    /// The stream.
    pub key: StreamKey,
    /// Requests a second that it asks for.
    pub rate: f64,
    /// The variant that serves it.
    pub variant: VariantId,
    /// A better variant for this part of its requests.
    pub better: Option<(VariantId, f64)>,
    /// What its client was told, where it adapts.
    pub asked: Option<Asked>,
    /// Why no better variant serves it; `None`: it has the best, or nothing was decided yet.
    pub obstacle: Option<Obstacle>,
}

/// What keeps a stream from the next better variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Obstacle {
    /// Its frames hold no more than its variant sees.
    Frame,
    /// Its link does not bear larger frames at its rate, or they would be late.
    Uplink,
    /// Batches of that variant take too long for what is left of its time.
    Compute {
        /// Its own batch, and one of others before it.
        needs: Duration,
        /// What is left for the module.
        left: Duration,
    },
    /// The devices are needed for others, or for all of its requests.
    Capacity,
}

impl Obstacle {
    /// In a word, for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Obstacle::Frame => "frame",
            Obstacle::Uplink => "link",
            Obstacle::Compute { .. } => "compute",
            Obstacle::Capacity => "capacity",
        }
    }

    /// In a sentence.
    pub fn explain(&self) -> String {
        match self {
            Obstacle::Frame => "its frames hold no more".to_owned(),
            Obstacle::Uplink => "its link bears no larger frames".to_owned(),
            Obstacle::Compute { needs, left } => format!(
                "two batches take {}, {} are left",
                format_duration(*needs),
                format_duration(*left)
            ),
            Obstacle::Capacity => "there is no more device time".to_owned(),
        }
    }
}

/// What keeps a stream of that choice from a better one. `largest`: the variant that holds its frames. `unlinked`: the time that the module
/// would have if the network took none.
pub(super) fn obstacle(
    variants: &[PooledVariant],
    demand: &Demand,
    choice: &Choice,
    largest: usize,
    unlinked: Duration,
) -> Option<Obstacle> {
    let next = choice.variant.idx() + usize::from(choice.fits);
    if next >= variants.len() || (choice.better.is_none() && choice.fits && next > largest) {
        return (next < variants.len()).then_some(Obstacle::Frame);
    }
    let needs = Duration::from_secs_f64(2.0 * variants[next].times[0]);
    if demand.budgets[next] >= needs {
        return Some(Obstacle::Capacity);
    }
    match unlinked >= needs {
        true => Some(Obstacle::Uplink),
        false => Some(Obstacle::Compute {
            needs,
            left: unlinked,
        }),
    }
}
