//! Batch schedulers of the laboratory. To add one: a line below, and its name in `SchedulePolicy::LABORATORY`
//! (`pipeline/src/schedule.rs`).

use spillgate_pipeline::predict::EstimatorName;
use spillgate_pipeline::schedule::{Choice, Recipe, SchedulePolicy};

/// The paper's estimate, one distribution for all applications (ORLOJ §4.3).
pub const ORLOJ_SHARED: SchedulePolicy = SchedulePolicy::new(&Recipe {
    name: "orloj-shared",
    drops: true,
    choice: Choice::Score { is_shared: true },
});

/// Clockwork with the mean of the last ten durations as estimate.
pub const CLOCKWORK_MEAN: SchedulePolicy = SchedulePolicy::new(&Recipe {
    name: "clockwork-mean",
    drops: true,
    choice: Choice::RequiredStart(EstimatorName::LastMean),
});

/// Batches as planned; drops the requests before the first run of requests in time.
pub const NEXUS: SchedulePolicy = SchedulePolicy::new(&Recipe {
    name: "nexus",
    drops: true,
    choice: Choice::FirstRun,
});

/// Batches as large as additive increase and multiplicative decrease allow.
pub const CLIPPER: SchedulePolicy = SchedulePolicy::new(&Recipe {
    name: "clipper",
    drops: false,
    choice: Choice::Increasing,
});

/// Those of this crate.
pub const OWN: [SchedulePolicy; 4] = [ORLOJ_SHARED, CLOCKWORK_MEAN, NEXUS, CLIPPER];

/// All that there are, those that files name among them.
pub const ALL: [SchedulePolicy; SchedulePolicy::OFFERED.len() + OWN.len()] = [
    SchedulePolicy::GOODPUT,
    SchedulePolicy::ORLOJ,
    ORLOJ_SHARED,
    SchedulePolicy::CLOCKWORK,
    CLOCKWORK_MEAN,
    SchedulePolicy::EDF,
    NEXUS,
    CLIPPER,
    SchedulePolicy::STATIC,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_there_once() {
        for policy in SchedulePolicy::OFFERED.into_iter().chain(OWN) {
            let named = ALL.iter().filter(|p| p.name() == policy.name());
            assert_eq!(named.count(), 1, "{policy}");
        }
    }

    #[test]
    fn the_product_says_of_these_names_where_they_are() {
        assert_eq!(OWN.map(SchedulePolicy::name), SchedulePolicy::LABORATORY);
        for own in OWN {
            assert_eq!(SchedulePolicy::by_name(own.name()), None);
        }
    }
}
