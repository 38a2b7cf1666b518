//! Fair shares of device time: no model gets much less than an equal split would give it, as far as it asks for that.
//!
//! Where devices are short of time, each model is entitled to a *level* of it: the level at which all models together get what the
//! devices have, where a model that asks for less gets what it asks for (max-min fairness). What a model was entitled to and did
//! not get is its credit. A model with credit is owed: its batches are given up last (`most.rs`). Credit covers the last
//! [`REMEMBERED`]: a model does not save up while it asks for nothing.

use std::time::Duration;

use spillgate_pipeline::id::ModelId;
use spillgate_pipeline::time::Timestamp;

/// The level is computed anew after this time.
const RENEWED_AFTER: Duration = Duration::from_millis(100);
/// Time over which what a model is owed, or had too much, is remembered.
const REMEMBERED: Duration = Duration::from_secs(1);
/// The part of the level that a model is owed. The rest goes to whoever makes most of it.
const PART: f64 = 0.85;
/// Steps towards the level: each leaves the models that ask for less behind.
const STEPS: usize = 8;
/// The newest batch's weight in the device time that a request takes.
const WEIGHT: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
struct Account {
    /// Seconds of device time.
    credit: f64,
    settled_at: Timestamp,
    /// Seconds of device time that a request takes.
    each: f64,
}

/// What models are owed.
#[derive(Debug)]
pub(super) struct Fairness {
    accounts: Vec<Account>,
    /// Devices; infinite where there is enough for all.
    level: f64,
    renewed_at: Option<Timestamp>,
}

impl Fairness {
    /// `alone` has the execution time of one request of each model.
    pub(super) fn new(alone: impl Iterator<Item = Duration>) -> Self {
        let accounts = alone.map(|alone| Account {
            credit: 0.0,
            settled_at: Timestamp::ZERO,
            each: alone.as_secs_f64(),
        });
        Fairness {
            accounts: accounts.collect(),
            level: f64::INFINITY,
            renewed_at: None,
        }
    }

    /// Computes the level anew when it is time to. `rates` has the requests a second of each model.
    pub(super) fn renew(
        &mut self,
        now: Timestamp,
        devices: usize,
        rates: impl Iterator<Item = f64> + Clone,
    ) {
        if self.renewed_at.is_some_and(|at| now < at + RENEWED_AFTER) {
            return;
        }
        self.renewed_at = Some(now);
        let asked = rates.zip(&self.accounts).map(|(rate, a)| rate * a.each);
        self.level = level(devices as f64, asked);
    }

    fn settle(&mut self, now: Timestamp, model: ModelId) -> &mut Account {
        let level = self.level;
        let account = &mut self.accounts[model.idx()];
        let bound = level.min(1e3) * REMEMBERED.as_secs_f64();
        let entitled = now.since(account.settled_at).as_secs_f64() * level.min(1e3) * PART;
        account.credit = (account.credit + entitled).clamp(-bound, bound);
        account.settled_at = now;
        account
    }

    /// A batch of a model was sent that takes that long.
    pub(super) fn sent(&mut self, now: Timestamp, model: ModelId, takes: Duration, size: u32) {
        let account = self.settle(now, model);
        let takes = takes.as_secs_f64();
        account.credit -= takes;
        account.each += WEIGHT * (takes / f64::from(size) - account.each);
    }

    /// Whether devices are short of time and a model got less than its part of the level.
    pub(super) fn owes(&self, now: Timestamp, model: ModelId) -> bool {
        if self.level.is_infinite() {
            return false;
        }
        let account = &self.accounts[model.idx()];
        let entitled = now.since(account.settled_at).as_secs_f64() * self.level * PART;
        account.credit + entitled > 0.0
    }
}

/// The level at which `asked` get `capacity` together; infinite when they ask for no more than that.
fn level(capacity: f64, asked: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = asked.clone().filter(|a| *a > 0.0).count();
    if asked.clone().sum::<f64>() <= capacity || n == 0 {
        return f64::INFINITY;
    }
    let mut level = capacity / n as f64;
    for _ in 0..STEPS {
        let (mut modest, mut greedy) = (0.0, 0);
        for a in asked.clone().filter(|a| *a > 0.0) {
            if a <= level {
                modest += a;
            } else {
                greedy += 1;
            }
        }
        let next = (capacity - modest) / f64::from(greedy.max(1));
        if next <= level {
            break;
        }
        level = next;
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_that_of_max_min_fairness() {
        let of = |capacity, asked: &[f64]| level(capacity, asked.iter().copied());
        assert_eq!(of(1.0, &[0.3, 0.3]), f64::INFINITY);
        assert!((of(1.0, &[0.8, 0.8]) - 0.5).abs() < 1e-9);
        // The modest two get 0.1 and 0.2; the others share what is left.
        assert!((of(1.0, &[0.1, 0.2, 0.9, 2.0, 0.0]) - 0.35).abs() < 1e-9);
    }

    #[test]
    fn a_model_that_got_less_than_the_level_is_owed() {
        let ms = Duration::from_millis;
        let at = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
        let mut fairness = Fairness::new([ms(10), ms(10)].into_iter());
        fairness.renew(at(0), 1, [100.0, 100.0].into_iter());
        for i in 1..20 {
            fairness.sent(at(i * 10), ModelId(0), ms(10), 1);
        }
        assert!(!fairness.owes(at(200), ModelId(0)));
        assert!(fairness.owes(at(200), ModelId(1)));
        fairness.renew(at(200), 1, [10.0, 10.0].into_iter());
        assert!(!fairness.owes(at(200), ModelId(1)));
    }
}
