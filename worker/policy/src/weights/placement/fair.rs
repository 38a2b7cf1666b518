//! Fair shares of device time: no model gets much less than an equal split would give it, as far as it asks for that.
//!
//! Where devices are short of time, each model is entitled to a *level* of it: the level at which all models together get what the
//! devices have, where a model that asks for less gets what it asks for (max-min fairness). A model that got less counts
//! more: each of its requests in time is worth several of others, the more of them the less it got. Batches, LOADs and the models that
//! give way are chosen by that worth, so a model in need is served when it costs least.
//!
//! How much less it got is told in standard deviations: of a model that is seldom asked for one lost request says little. What was
//! asked for and got fades, so a model does not save up while it asks for nothing.

use std::time::Duration;

use spillgate_pipeline::id::ModelId;
use spillgate_pipeline::time::Timestamp;

/// The level is computed anew after this time.
const RENEWED_AFTER: Duration = Duration::from_millis(100);
/// Time after which what a model asked for and got counts 1/e.
const FADES_OVER: Duration = Duration::from_secs(10);
/// Sums are moved to a new common moment before they get larger than this.
const SCALE_MAX: f64 = 1e100;
/// The part of its share that a model is to get. The rest goes to whoever makes most of it.
const PART: f64 = 0.95;
/// A model counts e times as much for a standard deviation less that it got, this many times over.
const STEEPNESS: f64 = 4.0;
/// Requests that are added to those of a share where its deviation is told: few say little.
const FEW: f64 = 16.0;
/// No model counts more than e to the power of this.
const EXPONENT_MAX: f64 = 30.0;
/// Steps towards the level: each leaves the models that ask for less behind.
const STEPS: usize = 8;
/// Levels that differ by less, as a part of them, are equal.
const CLOSE: f64 = 1e-9;
/// Sums of all models are added up in so many parts beside each other: in one part each addition waits for the last.
const LANES: usize = 8;
/// The newest batch's weight in the device time that a request takes.
const WEIGHT: f64 = 0.1;

/// Sums fade alike; they are kept as they would be at one common moment.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// Seconds of device time that it got.
    got: f64,
    /// Seconds of device time that a request takes.
    each: f64,
}

/// What models asked for, what they got, and what they count.
#[derive(Debug)]
pub(super) struct Fairness {
    /// Seconds of device time that the requests of each model take.
    asked: Vec<f64>,
    accounts: Vec<Account>,
    since: Timestamp,
    /// What a second counts now, at the common moment.
    scale: f64,
    started_at: Option<Timestamp>,
    renewed_at: Option<Timestamp>,
    /// Seconds of device time, as a faded sum; infinite where there is enough for all.
    level: f64,
}

impl Fairness {
    /// `alone` has the execution time of one request of each model.
    pub(super) fn new(alone: impl Iterator<Item = Duration>) -> Self {
        let accounts = alone.map(|alone| Account {
            got: 0.0,
            each: alone.as_secs_f64(),
        });
        let accounts: Vec<Account> = accounts.collect();
        Fairness {
            asked: vec![0.0; accounts.len()],
            accounts,
            since: Timestamp::ZERO,
            scale: 1.0,
            started_at: None,
            renewed_at: None,
            level: f64::INFINITY,
        }
    }

    /// It is `now`. Computes the level anew when it is time to. Says whether a level was searched for: that is the work of a whole event.
    pub(super) fn advance(&mut self, now: Timestamp, devices: usize) -> bool {
        let faded = |since: Timestamp| now.since(since).as_secs_f64() / FADES_OVER.as_secs_f64();
        let started_at = *self.started_at.get_or_insert(now);
        self.scale = faded(self.since).exp();
        if self.scale > SCALE_MAX {
            for (asked, account) in self.asked.iter_mut().zip(&mut self.accounts) {
                *asked /= self.scale;
                account.got /= self.scale;
            }
            self.since = now;
            self.scale = 1.0;
        }
        if self.renewed_at.is_some_and(|at| now < at + RENEWED_AFTER) {
            return false;
        }
        self.renewed_at = Some(now);
        // A second of each device, faded as the sums are.
        let capacity = FADES_OVER.as_secs_f64() * (1.0 - (-faded(started_at)).exp());
        // At the common moment, as the accounts are.
        let capacity = devices as f64 * capacity * self.scale;
        self.level = level(capacity, &self.asked, self.level * self.scale) / self.scale;
        self.is_short()
    }

    /// A request of a model arrived.
    pub(super) fn arrived(&mut self, model: ModelId) {
        self.asked[model.idx()] += self.accounts[model.idx()].each * self.scale;
    }

    /// A batch of a model was sent that takes that long.
    pub(super) fn sent(&mut self, model: ModelId, takes: Duration, size: u32) {
        let account = &mut self.accounts[model.idx()];
        let takes = takes.as_secs_f64();
        account.got += takes * self.scale;
        account.each += WEIGHT * (takes / f64::from(size) - account.each);
    }

    /// Whether devices have less time than models ask for.
    pub(super) fn is_short(&self) -> bool {
        self.level.is_finite()
    }

    /// What a request of a model in time counts: 1 where there is enough for all, or it got its share.
    pub(super) fn worth(&self, model: ModelId) -> f64 {
        let Account { got, each } = self.accounts[model.idx()];
        let share = self.asked[model.idx()].min(self.level * self.scale);
        let missing = PART * share - got;
        if !self.is_short() || missing <= 0.0 || each <= 0.0 {
            return 1.0;
        }
        let one = each * self.scale;
        let deviations = missing / (one * (share / one + FEW).sqrt());
        (STEEPNESS * deviations).min(EXPONENT_MAX).exp()
    }
}

/// The level at which `asked` get `capacity` together; infinite when they ask for no more than that. `before`: the last level, from which few
/// steps are left.
fn level(capacity: f64, asked: &[f64], before: f64) -> f64 {
    let (total, n) = sum(asked, |a| a > 0.0);
    if total <= capacity || n == 0.0 {
        return f64::INFINITY;
    }
    // What models get together is concave in the level, so a step ends below the one that is sought, and the next ones come closer.
    let least = capacity / n;
    let mut level = if before.is_finite() { before } else { least };
    for _ in 0..STEPS {
        let (modest, n_modest) = sum(asked, |a| a <= level);
        let greedy = asked.len() as f64 - n_modest;
        let next = if greedy > 0.0 {
            (capacity - modest) / greedy
        } else {
            least
        };
        if (next - level).abs() <= CLOSE * level {
            break;
        }
        level = next;
    }
    level
}

/// The sum of those that count, and their number.
fn sum(asked: &[f64], counts: impl Fn(f64) -> bool) -> (f64, f64) {
    let (mut sums, mut numbers) = ([0.0; LANES], [0.0; LANES]);
    let (rows, rest) = asked.as_chunks::<LANES>();
    // Without branches: which models count has no pattern.
    let mut add = |lane: usize, a: f64| {
        let part = if counts(a) { 1.0 } else { 0.0 };
        sums[lane] += part * a;
        numbers[lane] += part;
    };
    for row in rows {
        (0..LANES).for_each(|lane| add(lane, row[lane]));
    }
    rest.iter().enumerate().for_each(|(lane, a)| add(lane, *a));
    (sums.iter().sum(), numbers.iter().sum())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    /// Models of 10 ms on one device; each is asked for `asks` times every 100 ms, and each time those get a batch that `gets` names.
    fn served(seconds: u64, asks: &[usize], gets: impl Fn(u64) -> Option<usize>) -> Fairness {
        let mut fairness = Fairness::new(asks.iter().map(|_| ms(10)));
        for tenth in 0..seconds * 10 {
            fairness.advance(at(tenth * 100), 1);
            for (model, asks) in asks.iter().enumerate() {
                (0..*asks).for_each(|_| fairness.arrived(ModelId(model as u32)));
            }
            for slot in tenth * 10..tenth * 10 + 10 {
                if let Some(model) = gets(slot) {
                    fairness.sent(ModelId(model as u32), ms(10), 1);
                }
            }
        }
        fairness.advance(at(seconds * 1_000), 1);
        fairness
    }

    #[test]
    fn the_level_is_that_of_max_min_fairness() {
        let from = |before, capacity, asked: &[f64]| level(capacity, asked, before);
        let of = |capacity, asked: &[f64]| from(f64::INFINITY, capacity, asked);
        assert_eq!(of(1.0, &[0.3, 0.3]), f64::INFINITY);
        assert!((of(1.0, &[0.8, 0.8]) - 0.5).abs() < 1e-9);
        // The modest two get 0.1 and 0.2; the others share what is left.
        let four = [0.1, 0.2, 0.9, 2.0, 0.0];
        assert!((of(1.0, &four) - 0.35).abs() < 1e-9);
        // Of more models than lanes, too.
        let many: Vec<f64> = four.iter().cycle().take(20).copied().collect();
        assert!((of(4.0, &many) - 0.35).abs() < 1e-9);
        // Whatever it was before.
        for before in [1e-6, 0.15, 0.35, 0.5, 10.0] {
            assert!((from(before, 1.0, &four) - 0.35).abs() < 1e-9, "{before}");
        }
    }

    #[test]
    fn a_model_that_got_less_than_its_share_counts_more() {
        let fairness = served(5, &[8, 8], |slot| Some(usize::from(slot % 4 == 0)));
        assert_eq!(fairness.worth(ModelId(0)), 1.0);
        assert!(fairness.worth(ModelId(1)) > 10.0);
    }

    #[test]
    fn with_enough_for_all_each_model_counts_alike() {
        let fairness = served(5, &[2, 2], |slot| (slot % 5 == 0).then_some(0));
        assert_eq!(fairness.worth(ModelId(0)), 1.0);
        assert_eq!(fairness.worth(ModelId(1)), 1.0);
    }

    #[test]
    fn a_model_that_asks_for_little_counts_no_more_once_it_got_that() {
        let fairness = served(5, &[1, 12], |slot| Some(usize::from(slot % 10 != 0)));
        assert_eq!(fairness.worth(ModelId(0)), 1.0);
    }

    #[test]
    fn one_lost_request_of_a_model_that_is_seldom_asked_for_counts_little() {
        let mut fairness = served(5, &[12, 0], |_| Some(0));
        fairness.arrived(ModelId(1));
        let worth = fairness.worth(ModelId(1));
        assert!(worth > 1.0 && worth < 3.0, "{worth}");
    }

    #[test]
    fn a_model_does_not_save_up_while_it_asks_for_nothing() {
        let mut fairness = served(5, &[12, 12], |_| Some(0));
        let before = fairness.worth(ModelId(1));
        fairness.advance(at(100_000), 1);
        assert_eq!(fairness.worth(ModelId(1)), 1.0);
        (0..120).for_each(|_| fairness.arrived(ModelId(0)));
        fairness.advance(at(100_100), 1);
        assert!(fairness.worth(ModelId(1)) < before);
    }

    #[test]
    fn sums_outlive_a_long_rest() {
        let mut fairness = served(1, &[12, 12], |_| Some(0));
        fairness.advance(at(1_000_000_000), 1);
        fairness.arrived(ModelId(1));
        fairness.advance(at(1_000_000_100), 1);
        assert_eq!(fairness.worth(ModelId(1)), 1.0);
        assert!(fairness.asked.iter().all(|asked| asked.is_finite()));
    }

    proptest! {
        #[test]
        fn what_a_model_counts_falls_with_what_it_got(asked in 1usize..40, slots in prop::collection::vec(0usize..2, 50)) {
            let fewer = served(5, &[asked, 20], |slot| Some(slots[slot as usize % 50].max(1)));
            let more = served(5, &[asked, 20], |slot| Some(slots[slot as usize % 50]));
            prop_assert!(more.worth(ModelId(0)) <= fewer.worth(ModelId(0)));
            prop_assert!(more.worth(ModelId(0)) >= 1.0);
        }
    }
}
