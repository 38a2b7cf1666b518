//! Batch schedulers by name, and the applications whose requests they tell apart.

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

/// Batch schedulers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScheduleName {
    /// `goodput`: our own; the most expected completions in time per expected device time, of all batches.
    Goodput,
    /// `orloj`: Algorithm 1, each request by its own application's distribution in a batch of the mixture.
    Orloj,
    /// `orloj-shared`: the paper's estimate, one distribution for all applications (ORLOJ §4.3).
    OrlojShared,
    /// `clockwork`: strategies by required start, the largest of the last ten durations as estimate.
    Clockwork,
    /// `clockwork-mean`: the same with the mean of the last ten.
    ClockworkMean,
    /// `edf`: the earliest deadlines that fit the expected time of a batch.
    Edf,
    /// `nexus`: batches as planned; drops the requests before the first window in time.
    Nexus,
    /// `clipper`: batches as large as additive increase and multiplicative decrease allow.
    Clipper,
    /// `static`: whatever waits, up to the planned size, in order of arrival.
    Static,
}

impl ScheduleName {
    /// All, ours first.
    pub const ALL: [ScheduleName; 9] = [
        ScheduleName::Goodput,
        ScheduleName::Orloj,
        ScheduleName::OrlojShared,
        ScheduleName::Clockwork,
        ScheduleName::ClockworkMean,
        ScheduleName::Edf,
        ScheduleName::Nexus,
        ScheduleName::Clipper,
        ScheduleName::Static,
    ];

    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            ScheduleName::Goodput => "goodput",
            ScheduleName::Orloj => "orloj",
            ScheduleName::OrlojShared => "orloj-shared",
            ScheduleName::Clockwork => "clockwork",
            ScheduleName::ClockworkMean => "clockwork-mean",
            ScheduleName::Edf => "edf",
            ScheduleName::Nexus => "nexus",
            ScheduleName::Clipper => "clipper",
            ScheduleName::Static => "static",
        }
    }

    /// The scheduler of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Whether it drops requests by its own estimate. Then it is its module's drop policy unless another is named.
    pub fn drops(self) -> bool {
        !matches!(self, ScheduleName::Static | ScheduleName::Clipper)
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
