//! Batch schedulers by name, and the applications whose requests they tell apart. To add a scheduler: add a line to the
//! list below, write its file in `worker/policy/src/schedule/`, add a line to the list in `strategy.rs` there, and a
//! line to docs/schedulers.md.

use std::fmt;

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

/// Makes the names and their properties from one list.
macro_rules! schedulers {
    ($($(#[$doc:meta])* $name:ident: $text:literal, drops: $drops:literal;)*) => {
        /// Batch schedulers by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ScheduleName {
            $($(#[$doc])* $name,)*
        }

        impl ScheduleName {
            /// All, ours first.
            pub const ALL: [ScheduleName; [$(ScheduleName::$name),*].len()] =
                [$(ScheduleName::$name),*];

            /// Its name in YAML.
            pub fn name(self) -> &'static str {
                match self {
                    $(ScheduleName::$name => $text,)*
                }
            }

            /// Whether it drops requests by its own estimate. Then it is its module's drop policy unless another is named.
            pub fn drops(self) -> bool {
                match self {
                    $(ScheduleName::$name => $drops,)*
                }
            }
        }
    };
}

schedulers! {
    /// Our own: the batch with the most expected completions in time per expected device time.
    Goodput: "goodput", drops: true;
    /// ORLOJ's Algorithm 1, each request by its own application's distribution in a batch of the mixture.
    Orloj: "orloj", drops: true;
    /// The paper's estimate, one distribution for all applications (ORLOJ §4.3).
    OrlojShared: "orloj-shared", drops: true;
    /// Strategies by required start, the largest of the last ten durations as estimate.
    Clockwork: "clockwork", drops: true;
    /// The same with the mean of the last ten.
    ClockworkMean: "clockwork-mean", drops: true;
    /// The earliest deadlines that fit the expected time of a batch.
    Edf: "edf", drops: true;
    /// Batches as planned; drops the requests before the first run of requests in time.
    Nexus: "nexus", drops: true;
    /// Batches as large as additive increase and multiplicative decrease allow.
    Clipper: "clipper", drops: false;
    /// The waiting requests in order of arrival, up to the planned size.
    Static: "static", drops: false;
}

impl ScheduleName {
    /// The scheduler of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in ScheduleName::ALL {
            assert_eq!(ScheduleName::parse(&name.to_string()), Some(name));
        }
        assert_eq!(ScheduleName::parse("orlog"), None);
    }
}
