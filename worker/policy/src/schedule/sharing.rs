//! How much of their time the members of a batch share, learnt from the batches that ran.
//!
//! A batch of [`BatchForm::Shrinking`] takes `a longest + b sum` of the times that its members take alone. A profile
//! tells a and b for one example input only. In a classifier with early exits members share nothing where all inputs
//! run through all segments, and half of their time where every second input leaves at the first exit. With the former
//! a scheduler would form batches half as large as the best ones. Nor does the profile tell the sum of a and b: it
//! measures times alone on a device that was idle before, and such a device is slower than a busy one. So both follow
//! the measured times of batches, by least squares on the expected lengths: `took / sum = a longest / sum + b`.
//!
//! This is no rule of [`spillgate_pipeline::predict`]. It has two unknowns and learns them from the lengths of members, which differ
//! from batch to batch; a rule there knows an action by its kind, model and size alone.

use spillgate_pipeline::distribution::{BatchForm, BatchTime};

/// The profile counts as much as this many batches of one member and as many of two equal members. It does not fade,
/// because batches of a single size do not determine both a and b.
const PROFILE_WEIGHT: f64 = 2.0;
/// Factor on the weight of a batch with each further batch: about the last hundred batches count.
const FADING: f64 = 0.99;
/// A new fit counts once it changes the expected time of a batch of one or of many by this part. Then everything that
/// was computed from the old fit is computed anew.
const CHANGE: f64 = 0.05;
/// At least this part is taken to be shared. If nothing were shared, all sizes would look equal, batches would have one
/// member, and nothing more would be learnt.
pub(super) const SHARED_MIN: f64 = 0.05;
/// A batch counts as at most this many times as long as expected, because a pause of the machine says nothing about the
/// model.
const TOOK_MAX: f64 = 2.0;
/// Batches take at least this part of the time of their members alone. Rates are per time, so it must not be zero.
const TIME_MIN: f64 = 1e-3;
/// `longest / sum` of a batch of many.
const OF_MANY: f64 = 0.25;

const _: () = assert!(0.0 < FADING && FADING < 1.0);
const _: () = assert!(0.0 < SHARED_MIN && SHARED_MIN < 1.0);
const _: () = assert!(0.0 < OF_MANY && OF_MANY < 1.0);
const _: () = assert!(PROFILE_WEIGHT > 0.0 && CHANGE > 0.0 && TIME_MIN > 0.0 && TOOK_MAX > 1.0);

/// The expected times alone of a batch's members.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengths {
    /// The longest, ms.
    pub longest_ms: f64,
    /// The sum of all, ms.
    pub sum_ms: f64,
}

/// The line `a x + b`, with a in `longest` and b in `sum`: the time of a batch over the sum of its members' times
/// alone, where x is the longest of these times over their sum.
#[derive(Clone, Copy, Debug)]
struct Line {
    longest: f64,
    sum: f64,
}

impl Line {
    fn at(self, x: f64) -> f64 {
        self.longest * x + self.sum
    }

    fn differs(self, other: Line) -> bool {
        [1.0, OF_MANY].iter().any(|&x| {
            let (this, that) = (self.at(x), other.at(x));
            (this - that).abs() > CHANGE * that
        })
    }
}

/// Sums of weighted points, for the line through them.
#[derive(Clone, Copy, Debug, Default)]
struct Points {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Points {
    fn one(x: f64, y: f64) -> Points {
        Points {
            n: 1.0,
            x,
            y,
            xx: x * x,
            xy: x * y,
        }
    }

    fn times(self, weight: f64) -> Points {
        Points {
            n: weight * self.n,
            x: weight * self.x,
            y: weight * self.y,
            xx: weight * self.xx,
            xy: weight * self.xy,
        }
    }

    fn with(self, more: Points) -> Points {
        Points {
            n: self.n + more.n,
            x: self.x + more.x,
            y: self.y + more.y,
            xx: self.xx + more.xx,
            xy: self.xy + more.xy,
        }
    }

    /// The best line of which at least [`SHARED_MIN`] is shared and no part is negative.
    fn line(&self) -> Line {
        let longest = (self.n * self.xy - self.x * self.y) / (self.n * self.xx - self.x * self.x);
        let sum = (self.y - longest * self.x) / self.n;
        if sum < 0.0 {
            let longest = (self.xy / self.xx).max(TIME_MIN);
            return Line { longest, sum: 0.0 };
        }
        if longest >= SHARED_MIN * (longest + sum) && longest + sum >= TIME_MIN {
            return Line { longest, sum };
        }
        // Both grow together: one unknown is left.
        let (m, rest) = (SHARED_MIN, 1.0 - SHARED_MIN);
        let squares = m * m * self.xx + 2.0 * m * rest * self.x + rest * rest * self.n;
        let both = ((m * self.xy + rest * self.y) / squares).max(TIME_MIN);
        Line {
            longest: m * both,
            sum: rest * both,
        }
    }
}

/// The estimate of the part that is shared.
#[derive(Debug)]
pub(super) struct Sharing {
    /// Time of a single request per length: c1 + c2.
    total: f64,
    profiled: Points,
    /// Of the batches that ran, fading.
    ran: Points,
    fitted: Line,
    applied: Line,
}

impl Sharing {
    /// The estimate of a module with that profile; `None` where the form has nothing to learn.
    pub(super) fn new(profiled: &BatchTime) -> Option<Sharing> {
        let [c0, c1, c2] = profiled.constants();
        let total = c1 + c2;
        if profiled.form() != BatchForm::Shrinking || c0 > 0.0 || total <= 0.0 {
            return None;
        }
        let longest = (c1 / total).max(SHARED_MIN);
        let line = Line {
            longest,
            sum: 1.0 - longest,
        };
        let [alone, two] = [1.0, 0.5].map(|x| Points::one(x, line.at(x)));
        Some(Sharing {
            total,
            profiled: alone.with(two).times(PROFILE_WEIGHT),
            ran: Points::default(),
            fitted: line,
            applied: line,
        })
    }

    /// Takes in how long a batch of members with these lengths took at the pace of the device. True when this changes
    /// the expected time of batches.
    pub(super) fn observe(&mut self, lengths: Lengths, took_ms: f64) -> bool {
        let y = took_ms / (self.total * lengths.sum_ms);
        if lengths.sum_ms <= 0.0 || y.is_nan() {
            return false;
        }
        // With one member the two are equal except for rounding.
        let x = (lengths.longest_ms / lengths.sum_ms).clamp(0.0, 1.0);
        let y = y.min(TOOK_MAX * self.fitted.at(x));
        self.ran = self.ran.times(FADING).with(Points::one(x, y));
        self.fitted = self.profiled.with(self.ran).line();
        let differs = self.fitted.differs(self.applied);
        if differs {
            self.applied = self.fitted;
        }
        differs
    }

    /// The times of past batches belong to wrong lengths: they are forgotten, and only the profile is left.
    pub(super) fn forget(&mut self) {
        self.ran = Points::default();
        self.fitted = self.profiled.line();
        self.applied = self.fitted;
    }

    /// The time of batches as learnt, at the pace of the device.
    pub(super) fn time(&self) -> BatchTime {
        let Line { longest, sum } = self.applied;
        let (c1, c2) = (self.total * longest, self.total * sum);
        let time = BatchTime::new(BatchForm::Shrinking, 0.0, c1, c2);
        time.expect("parts of a time are times")
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn sharing(c1: f64, c2: f64) -> Sharing {
        let time = BatchTime::new(BatchForm::Shrinking, 0.0, c1, c2).unwrap();
        Sharing::new(&time).unwrap()
    }

    /// Batches of so many to 8 members, exponential lengths of mean 1, of which so much is shared, at so many times
    /// their time alone; with that probability the machine pauses.
    #[derive(Clone, Copy)]
    struct Work {
        least: u32,
        shared: f64,
        slow: f64,
        pauses: f64,
    }

    const EVEN: Work = Work {
        least: 2,
        shared: 0.5,
        slow: 1.0,
        pauses: 0.0,
    };
    const ROUGH: Work = Work {
        least: 1,
        pauses: 0.01,
        ..EVEN
    };

    /// Runs so many batches; how often the fit changed.
    fn run(sharing: &mut Sharing, work: Work, batches: u32, seed: u64) -> u32 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut changes = 0;
        for _ in 0..batches {
            let k = rng.random_range(work.least..=8u32);
            let lengths: Vec<f64> = (0..k)
                .map(|_| -f64::ln(1.0 - rng.random::<f64>()))
                .collect();
            let longest = lengths.iter().copied().fold(0.0, f64::max);
            let sum: f64 = lengths.iter().sum();
            let expected = Lengths {
                // The largest of k exponential ones: the k-th harmonic number.
                longest_ms: (1..=k).map(|i| 1.0 / f64::from(i)).sum(),
                sum_ms: f64::from(k),
            };
            let pause = if rng.random_bool(work.pauses) {
                20.0
            } else {
                0.0
            };
            let alike = work.shared * longest + (1.0 - work.shared) * sum;
            let took = work.slow * alike + pause;
            changes += u32::from(sharing.observe(expected, took));
        }
        changes
    }

    #[test]
    fn what_is_shared_and_how_fast_batches_are_is_learnt_from_expected_lengths_alone() {
        for (seed, shared) in [(1, 0.1), (2, 0.5), (3, 0.9)] {
            for (profiled, slow) in [(0.05, 1.0), (0.5, 0.5), (0.95, 2.0)] {
                let mut sharing = sharing(profiled, 1.0 - profiled);
                let work = Work {
                    shared,
                    slow,
                    ..ROUGH
                };
                run(&mut sharing, work, 400, seed);
                // Few batches are of one, and they stray most.
                for (x, least) in [(1.0, 0.76), (0.6, 0.86), (0.35, 0.93)] {
                    let truth = slow * (shared * x + 1.0 - shared);
                    let ratio = sharing.fitted.at(x) / truth;
                    let allowed = least..1.1;
                    assert!(allowed.contains(&ratio), "{profiled} {shared} {x}: {ratio}");
                }
                let applied = sharing.applied.at(1.0) / sharing.fitted.at(1.0);
                assert!((applied - 1.0).abs() <= CHANGE);
                let [c0, c1, c2] = sharing.time().constants();
                let line = sharing.applied;
                assert_eq!((c0, c1, c2), (0.0, line.longest, line.sum));
            }
        }
    }

    #[test]
    fn it_rests_once_it_is_right_and_follows_a_change() {
        for (work, most) in [(EVEN, 100), (ROUGH, 110)] {
            let mut sharing = sharing(0.5, 0.5);
            run(&mut sharing, work, 200, 4);
            let changes = run(&mut sharing, work, 2000, 5);
            assert!(changes < most, "{changes} of 2000");
            let little = Work {
                shared: 0.1,
                ..work
            };
            run(&mut sharing, little, 400, 6);
            let part = sharing.fitted.longest / sharing.fitted.at(1.0);
            assert!((part - 0.1).abs() < 0.12, "{part}");
        }
    }

    #[test]
    fn batches_of_one_teach_nothing_about_what_is_shared() {
        let mut sharing = sharing(0.3, 0.7);
        let one = Lengths {
            longest_ms: 4.0,
            sum_ms: 4.0,
        };
        for _ in 0..1000 {
            sharing.observe(one, 4.0);
        }
        assert!((sharing.fitted.longest - 0.3).abs() < 1e-9);
    }

    #[test]
    fn wild_times_stay_within_bounds() {
        let mut sharing = sharing(0.5, 0.5);
        assert!(!sharing.observe(Lengths::default(), 1.0));
        let of = |k: f64| Lengths {
            longest_ms: 3.0,
            sum_ms: 3.0 * k,
        };
        for took in [1e9, f64::INFINITY, 0.0] {
            for i in 0..1000 {
                sharing.observe(of(1.0 + f64::from(i % 8)), took);
                let [_, longest, sum] = sharing.time().constants();
                assert!(longest > 0.0 && sum >= 0.0 && (longest + sum).is_finite());
                assert!(longest >= SHARED_MIN * (longest + sum) * 0.999);
            }
        }
    }

    #[test]
    fn only_a_form_of_shares_is_learnt() {
        let padded = BatchTime::new(BatchForm::Padded, 0.0, 1.0, 0.0).unwrap();
        let fixed = BatchTime::new(BatchForm::Shrinking, 1.0, 0.5, 0.5).unwrap();
        assert!(Sharing::new(&padded).is_none() && Sharing::new(&fixed).is_none());
    }
}
