//! The predictor: durations by kind of action, model and size.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::{Action, ActionKind, Cap, Estimator, EstimatorName, Pace, PaceRule};
use crate::time::Timestamp;

/// How durations are estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// From the durations of the same size, within the cap.
    BySize(EstimatorName, Cap),
    /// The profiled time, times one factor for all sizes.
    ByPace(PaceRule),
}

impl Rule {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Rule::BySize(name, _) => name.name(),
            Rule::ByPace(rule) => rule.name(),
        }
    }
}

/// What is learnt, by the rule.
#[derive(Clone, Debug)]
enum Learnt {
    Sizes {
        name: EstimatorName,
        cap: Cap,
        of: IndexMap<Action, Estimator, FxBuildHasher>,
    },
    Paces {
        rule: PaceRule,
        of: IndexMap<(ActionKind, u32), Pace, FxBuildHasher>,
    },
}

/// Predicts how long actions take. What an action was profiled to take is the caller's knowledge, and is told with each
/// question. It keeps one entry for each action, or for each kind and model, that was observed: the caller bounds their
/// number.
#[derive(Clone, Debug)]
pub struct Predictor(Learnt);

impl Predictor {
    /// A predictor that has seen nothing: it expects what was profiled.
    pub fn new(rule: Rule) -> Self {
        Predictor(match rule {
            Rule::BySize(name, cap) => Learnt::Sizes {
                name,
                cap,
                of: IndexMap::default(),
            },
            Rule::ByPace(rule) => Learnt::Paces {
                rule,
                of: IndexMap::default(),
            },
        })
    }

    /// How long the action is expected to take, which was profiled to take `profiled`.
    pub fn expect(&self, action: Action, profiled: Duration) -> Duration {
        match &self.0 {
            Learnt::Sizes { .. } => self.measured(action).unwrap_or(profiled),
            Learnt::Paces { .. } => self.pace(action).map_or(profiled, |p| p.expect(profiled)),
        }
    }

    /// The estimate of a rule by size from measured durations alone; `None` before the first of that action, and for a
    /// pace.
    pub fn measured(&self, action: Action) -> Option<Duration> {
        match &self.0 {
            Learnt::Sizes { of, .. } => of.get(&action).map(Estimator::estimate),
            Learnt::Paces { .. } => None,
        }
    }

    /// The pace of the action's model; `None` before the first was observed, and for a rule by size.
    pub fn pace(&self, action: Action) -> Option<&Pace> {
        match &self.0 {
            Learnt::Sizes { .. } => None,
            Learnt::Paces { of, .. } => of.get(&(action.kind, action.model)),
        }
    }

    /// Takes in how long an action took, which was profiled to take `profiled`. A pace learns nothing from an action that
    /// was profiled to take no time.
    pub fn observe(&mut self, now: Timestamp, action: Action, profiled: Duration, took: Duration) {
        match &mut self.0 {
            Learnt::Sizes { name, cap, of } => of
                .entry(action)
                .or_insert_with(|| Estimator::new(*name, *cap, profiled))
                .observe(now, took),
            Learnt::Paces { .. } if profiled.is_zero() => {}
            Learnt::Paces { rule, of } => {
                let ratio = took.as_secs_f64() / profiled.as_secs_f64();
                let pace = of.entry((action.kind, action.model));
                pace.or_insert_with(|| Pace::new(*rule)).observe(now, ratio);
            }
        }
    }

    /// Time passed: what was learnt and is no longer confirmed counts less. Published policies do not ask for it, as their
    /// authors did not.
    pub fn age(&mut self, now: Timestamp) {
        match &mut self.0 {
            Learnt::Sizes { of, .. } => of.values_mut().for_each(|one| one.age(now)),
            Learnt::Paces { of, .. } => of.values_mut().for_each(|pace| {
                pace.age(now);
            }),
        }
    }
}
