//! Which models of a family are in a worker's memory, and how long reading another one takes.
//!
//! A model that is not in memory is *cold*: its first batch waits for its load, and so does all else on the device. So a cold request
//! that its load makes late is given up, unless nothing else waits at its broker. One of [`TRIED_ONE_IN`] is tried all the same. Without
//! that, a model whose load exceeds the SLO would never serve on a busy device, and a load that took far too long once would decide for
//! good.

use std::time::Duration;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::MemberId;
use spillgate_pipeline::predict::{Cap, Estimator, EstimatorName};
use spillgate_pipeline::time::Timestamp;

/// Of so many requests in a row that their load makes late, one is tried.
pub(super) const TRIED_ONE_IN: u32 = 8;

/// The models of a worker's family: at most as many as the family has.
pub(super) struct Loaded {
    /// Loaded with the worker.
    default: Option<MemberId>,
    members: IndexSet<MemberId, FxBuildHasher>,
    /// How long a load takes.
    load: Estimator,
    given_up: u32,
}

impl Loaded {
    /// `first_load`: how long a load is expected to take until one was measured.
    pub(super) fn new(default: Option<MemberId>, first_load: Duration) -> Self {
        Loaded {
            default,
            members: default.into_iter().collect(),
            load: Estimator::new(EstimatorName::LastMedian, Cap::None, first_load),
            given_up: 0,
        }
    }

    /// How long a batch of that member waits for its load.
    pub(super) fn wait_of(&self, member: MemberId) -> Duration {
        match self.members.contains(&member) {
            true => Duration::ZERO,
            false => self.load.estimate(),
        }
    }

    /// The same as far as it is a reason to give a request up. `is_alone`: nothing else waits.
    pub(super) fn counted_of(&self, member: MemberId, is_alone: bool) -> Duration {
        match is_alone || self.given_up + 1 >= TRIED_ONE_IN {
            true => Duration::ZERO,
            false => self.wait_of(member),
        }
    }

    /// Time passed: what is not confirmed fades.
    pub(super) fn age(&mut self, now: Timestamp) {
        self.load.age(now);
    }

    /// A request was given up because of its load alone.
    pub(super) fn gave_up(&mut self) {
        self.given_up += 1;
    }

    /// A batch of that member ran, after a load of that length if there was one.
    pub(super) fn ran(&mut self, now: Timestamp, member: MemberId, load: Option<Duration>) {
        self.members.insert(member);
        if let Some(took) = load {
            self.load.observe(now, took);
            self.given_up = 0;
        }
    }

    /// The worker gave back what it held. It is loaded with its default again.
    pub(super) fn unloaded(&mut self) {
        self.members.clear();
        self.members.extend(self.default);
    }
}
