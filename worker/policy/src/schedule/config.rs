//! What a scheduler is built from, and what is refused.

use spillgate_pipeline::distribution::{BINS_MAX, BatchTime, LearnerError, Window};
use spillgate_pipeline::schedule::{SCHEDULED_BATCH_MAX, ScheduleName};

use super::pending::Slot;
use super::score::Scoring;

/// Most batch sizes: each costs a look at every choice.
pub const SIZES_MAX: usize = 16;
/// Largest batch size.
pub const SIZE_MAX: u32 = SCHEDULED_BATCH_MAX;
/// Most requests that wait.
pub const CAPACITY_MAX: usize = 65_536;

const _: () = assert!(SIZES_MAX <= SIZE_MAX as usize, "sizes rise");
const _: () = assert!(SIZE_MAX as usize <= CAPACITY_MAX, "a batch can be filled");
const _: () = assert!(
    CAPACITY_MAX <= Slot::MAX as usize,
    "each request has a slot"
);

/// What a scheduler is built from.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// Which one.
    pub name: ScheduleName,
    /// Sizes that the model is compiled or profiled for, rising. A batch is computed at one of them, padded.
    pub sizes: Vec<u32>,
    /// Size of a batch as planned: that of `static` and `nexus`.
    pub planned: u32,
    /// Time of a batch from its members' lengths.
    pub time: BatchTime,
    /// Length that a request is expected to have before anything was learnt, ms.
    pub prior_ms: f64,
    /// Sliding window over the learnt lengths: how far back they count.
    pub window: Window,
    /// Most requests that wait.
    pub capacity: usize,
    /// How `orloj` and `orloj-shared` score them.
    pub scoring: Scoring,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// No sizes, too many, too large ones, or such that do not rise.
    #[error("sizes {sizes:?}: give 1 to {SIZES_MAX} rising sizes up to {SIZE_MAX}")]
    Sizes {
        /// As given.
        sizes: Vec<u32>,
    },
    /// A planned size that is not among what can be computed.
    #[error("a planned batch of {planned} is not within 1 to {largest}")]
    Planned {
        /// As given.
        planned: u32,
        /// The largest size.
        largest: u32,
    },
    /// No room, or more than [`CAPACITY_MAX`].
    #[error("room for {capacity} requests; 1 to {CAPACITY_MAX} are possible")]
    Capacity {
        /// As given.
        capacity: usize,
    },
    /// A delay rate or a number of bins beyond what can be scored with.
    #[error("a delay rate of {} per ms in {} bins; 1e-9 to 1 and 1 to {BINS_MAX} are possible", .0.delay_rate, .0.bins)]
    Scoring(Scoring),
    /// The window of samples or the prior.
    #[error(transparent)]
    Learner(#[from] LearnerError),
}

impl SchedulerConfig {
    /// Whether a scheduler can be built so, but for the prior and the window of samples, which the laws check.
    pub(super) fn check(&self) -> Result<(), ScheduleError> {
        let sizes = &self.sizes;
        let rises = sizes.windows(2).all(|pair| pair[0] < pair[1]);
        let fits = (1..=SIZES_MAX).contains(&sizes.len());
        if !rises || !fits || sizes[0] == 0 || sizes[sizes.len() - 1] > SIZE_MAX {
            return Err(ScheduleError::Sizes {
                sizes: sizes.clone(),
            });
        }
        let largest = sizes[sizes.len() - 1];
        let planned = self.planned;
        if !(1..=largest).contains(&planned) {
            return Err(ScheduleError::Planned { planned, largest });
        }
        let capacity = self.capacity;
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            return Err(ScheduleError::Capacity { capacity });
        }
        if !self.scoring.is_valid() {
            return Err(ScheduleError::Scoring(self.scoring));
        }
        Ok(())
    }
}
