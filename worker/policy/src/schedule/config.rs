//! The configuration of a module's scheduler, and why one is refused.

use std::time::Duration;

use spillgate_pipeline::distribution::{
    BINS_MAX, BatchForm, BatchTime, FitError, LearnerError, Window,
};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::profile::{BatchLatency, ModuleProfile, batch_sizes};
use spillgate_pipeline::schedule::{SCHEDULED_BATCH_MAX, SchedulePolicy};

use super::pending::Slot;
use super::score::Scoring;

/// Most batch sizes: every choice looks at each of them.
pub const SIZES_MAX: usize = 16;
/// Most requests that wait.
pub const CAPACITY_MAX: usize = 65_536;
/// Requests that a scheduler forms batches from at most; the rest wait in the broker's queue.
pub const SCHEDULED_MAX: usize = 1024;
const _: () = assert!(SCHEDULED_MAX >= SCHEDULED_BATCH_MAX as usize);
const _: () = assert!(SCHEDULED_MAX <= CAPACITY_MAX);
const _: () = assert!(
    CAPACITY_MAX <= Slot::MAX as usize,
    "each request has a slot"
);
// `batch_sizes` gives powers of two below the largest batch, and the largest batch.
const _: () = assert!(SCHEDULED_BATCH_MAX.ilog2() as usize + 2 <= SIZES_MAX);
/// A module that takes no time is scheduled as if a request took this long.
const USUAL_MIN: Duration = Duration::from_micros(1);

/// What a scheduler is built from.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// Which one.
    pub policy: SchedulePolicy,
    /// Sizes that the model is compiled or profiled for, rising. A batch is computed at one of them, padded.
    pub sizes: Vec<u32>,
    /// Size of a batch as planned.
    pub planned: u32,
    /// Time of a batch from its members' lengths.
    pub time: BatchTime,
    /// Expected length of a request before any is measured, ms.
    pub prior_ms: f64,
    /// Sliding window over the learnt lengths: how far back they count.
    pub window: Window,
    /// Most requests that wait.
    pub capacity: usize,
    /// How [`Choice::Score`](spillgate_pipeline::schedule::Choice::Score) scores them.
    pub scoring: Scoring,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// There are no sizes or too many, or they are too large or do not rise.
    #[error("sizes {sizes:?}: give 1 to {SIZES_MAX} rising sizes up to {SCHEDULED_BATCH_MAX}")]
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
    /// The delay rate or the number of bins is out of range.
    #[error("a delay rate of {} per ms in {} bins; 1e-9 to 1 and 1 to {BINS_MAX} are possible", .0.delay_rate, .0.bins)]
    Scoring(Scoring),
    /// The window of samples or the prior.
    #[error(transparent)]
    Learner(#[from] LearnerError),
}

/// A scheduler cannot use the execution times of a module.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("module {module}: its profile is no c0 + c1 * batch, which schedule: goes by: {cause}")]
pub struct NoSchedule {
    /// The module.
    pub module: String,
    /// Why.
    pub cause: FitError,
}

impl SchedulerConfig {
    /// What the scheduler of a module is built from, if it names one. `execution` are the module's times, from batches
    /// of one on. A request's length is its time alone, and a batch takes `c1 * longest + c2 * sum`: c1 is the share of
    /// a single request's time that a batch takes once, as the execution times by batch size show it; c2 is the share
    /// that each member adds. For equal members this is the profile. All shipped modules are of this kind: batches
    /// shrink as members exit, and the objects of all members run together (docs/dynamic.md).
    ///
    /// # Errors
    /// When the execution times do not fit this form.
    pub fn of(
        module: &Module,
        execution: &[Duration],
        planned: u32,
    ) -> Result<Option<Self>, NoSchedule> {
        let Some(policy) = module.schedule else {
            return Ok(None);
        };
        let refused = |cause| NoSchedule {
            module: module.name.clone(),
            cause,
        };
        let usual = execution.first().map_or(USUAL_MIN, |d| (*d).max(USUAL_MIN));
        let usual_ms = usual.as_secs_f64() * 1e3;
        let fit = BatchTime::from_profile(&profile(execution), usual_ms).map_err(refused)?;
        let [once, each, _] = fit.time.constants();
        let time = BatchTime::new(BatchForm::Shrinking, 0.0, once / usual_ms, each);
        let largest = module.batch.max.min(execution.len() as u32).max(1);
        Ok(Some(SchedulerConfig {
            policy,
            planned: planned.clamp(1, largest),
            sizes: batch_sizes(largest),
            time: time.map_err(refused)?,
            prior_ms: usual_ms,
            window: module.window,
            capacity: SCHEDULED_MAX,
            scoring: Scoring::default(),
        }))
    }

    /// Checks all but the prior and the window of samples, which the laws check.
    pub(super) fn check(&self) -> Result<(), ScheduleError> {
        let sizes = &self.sizes;
        let rises = sizes.windows(2).all(|pair| pair[0] < pair[1]);
        let fits = (1..=SIZES_MAX).contains(&sizes.len());
        if !rises || !fits || sizes[0] == 0 || sizes[sizes.len() - 1] > SCHEDULED_BATCH_MAX {
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

/// Execution times as a profile, to which the form of a batch's time is fitted.
fn profile(execution: &[Duration]) -> ModuleProfile {
    let point = |(batch, mean): (u32, Duration)| {
        let mean = mean.max(USUAL_MIN);
        BatchLatency {
            batch,
            mean,
            p50: mean,
            p99: mean,
        }
    };
    let mut points: Vec<BatchLatency> = (1..).zip(execution.iter().copied()).map(point).collect();
    if let [one] = points.as_slice() {
        // Batches of one only: nothing is shared, a second member would take as long again.
        points.push(point((2, 2 * one.mean)));
    }
    ModuleProfile { points, load: None }
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::schedule::SchedulePolicy;
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    #[test]
    fn a_scheduler_counts_equal_members_by_the_profile() {
        let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
        let module = &mut pipeline.modules[1];
        module.batch.max = 16;
        let none = SchedulerConfig::of(module, &[Duration::ZERO], 1);
        assert!(none.unwrap().is_none(), "it names no scheduler");
        module.schedule = Some(SchedulePolicy::GOODPUT);
        // 12 ms for a batch and 3 ms for a member; and a batch that takes 20 ms whatever its size.
        for (once, each) in [(12, 3), (20, 0)] {
            let execution: Vec<Duration> = (1..=16)
                .map(|n| Duration::from_millis(once + each * n))
                .collect();
            let config = SchedulerConfig::of(module, &execution, 8);
            let config = config.unwrap().expect("it names one");
            assert_eq!(config.sizes, [1, 2, 4, 8, 16]);
            let alone = (once + each) as f64;
            for size in [1u32, 4, 16] {
                let ms = config.time.ms(size, alone, alone * f64::from(size));
                let expected = (once + each * u64::from(size)) as f64;
                assert!(
                    (ms - expected).abs() < 0.01,
                    "{size}: {ms} against {expected}"
                );
            }
            // One long member among short ones, and its time alone.
            assert!((config.time.alone_ms(40.0) - 40.0).abs() < 0.01);
        }
        let single = SchedulerConfig::of(module, &[Duration::from_millis(10)], 1);
        let single = single.unwrap().expect("batches of one are scheduled, too");
        assert!((single.time.alone_ms(10.0) - 10.0).abs() < 0.01);
        let free = SchedulerConfig::of(module, &[Duration::ZERO; 8], 8).unwrap();
        assert!(free.is_some(), "what takes no time is scheduled, too");
    }
}
