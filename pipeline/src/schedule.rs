//! Batch schedulers, and the applications whose requests they tell apart. A scheduler is a recipe: a name and a way to choose. To add one
//! that chooses in a new way: a way and a line of the list below, its file in `worker/policy/src/schedule/`, a line of the list in
//! `strategy.rs` there, and a line in docs/schedulers.md. Whoever wants another recipe hands it in, as the laboratory does
//! (`lab/recipes`).

use std::fmt;

use crate::predict::EstimatorName;
use crate::spec::BATCH_MAX;

/// Most applications that are told apart; the rest share the last.
pub const APPLICATIONS_MAX: usize = 64;
/// Largest batch that a scheduler forms, and so the largest `batch: max` of a module that has one: it computes a
/// distribution for each size up to this.
pub const SCHEDULED_BATCH_MAX: u32 = 256;
const _: () = assert!(SCHEDULED_BATCH_MAX <= BATCH_MAX);

/// The application of a request. Requests of one application have one distribution of execution times. Ordinals are
/// dense inside one module, in order of first appearance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Application(pub u16);

impl Application {
    /// Position in dense per-application tables.
    pub fn idx(self) -> usize {
        usize::from(self.0)
    }
}

/// How a batch scheduler works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Its name in YAML.
    pub name: &'static str,
    /// Whether it drops requests by its own estimate. Then it is its module's drop policy unless another is named.
    pub drops: bool,
    /// How it chooses the next batch.
    pub choice: Choice,
}

/// How the next batch is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// The batch with the most expected completions in time per expected device time.
    Goodput(Goodput),
    /// By the scores of ORLOJ's Algorithm 1.
    Score {
        /// One distribution stands for all applications (ORLOJ §4.3); else each request has its own application's, in a batch of the
        /// mixture.
        is_shared: bool,
    },
    /// Clockwork's strategies by required start, with that estimate of durations.
    RequiredStart(EstimatorName),
    /// The earliest deadlines that fit the expected time of a batch.
    EarliestDeadline,
    /// The first run of requests in time, as long as planned; the requests before it are dropped (Nexus).
    FirstRun,
    /// In order of arrival, as large as additive increase and multiplicative decrease allow (Clipper).
    Increasing,
    /// In order of arrival, up to the planned size.
    Planned,
}

/// Numbers of [`Choice::Goodput`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goodput {
    /// The value of waiting is at most this share of the probability to be in time one batch later, for the application
    /// that costs most.
    pub wait_least: f64,
    /// Added to that share for an application whose cost is nothing compared with the one that costs most.
    pub wait_cheap: f64,
    /// How often a batch keeps within the larger of the two bounds on its members' slack.
    pub sure: f64,
    /// Weight of the newest batch in the price of device time.
    pub price_weight: f64,
    /// Weight of the newest batch in the mean time of a batch.
    pub batch_weight: f64,
}

impl Goodput {
    /// Those of `goodput`.
    pub const USUAL: Goodput = Goodput {
        wait_least: 0.15,
        wait_cheap: 0.5,
        sure: 0.9,
        price_weight: 0.05,
        batch_weight: 0.1,
    };

    const fn assert_valid(&self) {
        assert!(0.0 <= self.wait_least && 0.0 <= self.wait_cheap);
        assert!(self.wait_least + self.wait_cheap <= 1.0);
        assert!(
            0.5 < self.sure && self.sure < 1.0,
            "the larger bound is above the mean"
        );
        assert!(0.0 < self.price_weight && self.price_weight <= 1.0);
        assert!(0.0 < self.batch_weight && self.batch_weight <= 1.0);
    }
}

/// A batch scheduler: the handle of its recipe.
#[derive(Clone, Copy, PartialEq)]
pub struct SchedulePolicy(&'static Recipe);

/// Makes the handles and their order from one list.
macro_rules! schedulers {
    ($($(#[$doc:meta])* $handle:ident: $name:literal, drops: $drops:literal, $choice:expr;)*) => {
        impl SchedulePolicy {
            $(
                $(#[$doc])*
                pub const $handle: SchedulePolicy = SchedulePolicy::new(&Recipe {
                    name: $name,
                    drops: $drops,
                    choice: $choice,
                });
            )*

            /// Those that pipeline files and the command line name, ours first.
            pub const OFFERED: [SchedulePolicy; [$(SchedulePolicy::$handle),*].len()] =
                [$(SchedulePolicy::$handle),*];
        }
    };
}

schedulers! {
    /// Our own.
    GOODPUT: "goodput", drops: true, Choice::Goodput(Goodput::USUAL);
    /// ORLOJ, each request by its own application's distribution.
    ORLOJ: "orloj", drops: true, Choice::Score { is_shared: false };
    /// Clockwork, the largest of the last ten durations as estimate.
    CLOCKWORK: "clockwork", drops: true, Choice::RequiredStart(EstimatorName::LastMax);
    /// The earliest deadlines.
    EDF: "edf", drops: true, Choice::EarliestDeadline;
    /// Batches as planned.
    STATIC: "static", drops: false, Choice::Planned;
}

impl SchedulePolicy {
    /// Names of the laboratory's schedulers, for those who write one in a file.
    pub const LABORATORY: [&str; 4] = ["orloj-shared", "clockwork-mean", "nexus", "clipper"];

    /// The scheduler of that recipe.
    ///
    /// # Panics
    /// When numbers of the recipe make no sense.
    pub const fn new(recipe: &'static Recipe) -> Self {
        if let Choice::Goodput(goodput) = &recipe.choice {
            goodput.assert_valid();
        }
        SchedulePolicy(recipe)
    }

    /// Its name in YAML.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether it drops requests by its own estimate.
    pub const fn drops(self) -> bool {
        self.0.drops
    }

    /// How it chooses the next batch.
    pub const fn choice(self) -> Choice {
        self.0.choice
    }

    /// The one of that name among those that are offered.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::OFFERED.into_iter().find(|s| s.name() == name)
    }
}

impl fmt::Display for SchedulePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for SchedulePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for policy in SchedulePolicy::OFFERED {
            assert_eq!(SchedulePolicy::by_name(&policy.to_string()), Some(policy));
        }
        assert_eq!(SchedulePolicy::by_name("orlog"), None);
    }

    #[test]
    fn the_names_users_write() {
        let names = SchedulePolicy::OFFERED.map(SchedulePolicy::name).join(" ");
        expect_test::expect!["goodput orloj clockwork edf static"].assert_eq(&names);
    }
}
