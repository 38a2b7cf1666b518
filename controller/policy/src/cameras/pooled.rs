//! Variants for the streams of a pool of devices, each of which runs batches of any variant: switching costs nothing, because all
//! variants are in memory.
//!
//! A stream has a rate, and for each variant a budget: the time that its requests may spend at the module. A request waits for
//! at most one batch of another stream, so a variant fits a stream if its budget holds its own batch and the longest batch of any variant in use
//! (Jellyfish §4.1, equation 6, where both are of one variant). All streams together may take so much device time a second.
//!
//! For each variant as the longest in use, or for [`LONGEST_TRIED_MAX`] of them where there are more, this is a multiple-choice knapsack.
//! It starts from the cheapest fitting variant of each stream and takes upgrades in order of accuracy gained for the device time that they take, along
//! the upper hull of each stream's choices, which is optimal but for the last upgrade (Sinha and Zoltners, Operations Research 1979). As many streams
//! as possible are served in time, then accuracy counts, weighted by rate.
//!
//! Deviation from Jellyfish: a worker there runs one variant, so one slow link makes all streams of its worker small.

use std::time::Duration;

use spillgate_pipeline::id::VariantId;

/// Variants that are tried as the longest in use: the time of a decision grows with their number, and neighbours differ little.
const LONGEST_TRIED_MAX: usize = 16;
/// Device time is a sum of quotients: so much more, in seconds, is as good as none.
const ROUNDING: f64 = 1e-9;

/// One variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PooledVariant {
    pub(super) accuracy: f64,
    /// Execution time of a batch.
    pub(super) batch: Duration,
    /// Device time that a request takes, in seconds.
    pub(super) each: f64,
}

/// One stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Demand {
    /// Requests a second.
    pub(super) rate: f64,
    /// By variant: the time that its requests may spend at the module. Zero: it cannot use the variant.
    pub(super) budgets: Vec<Duration>,
    /// Its requests may be divided between two variants: no client is told a size.
    pub(super) divides: bool,
}

/// What a stream gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) variant: VariantId,
    /// A better variant for this part of its requests.
    pub(super) better: Option<(VariantId, f64)>,
    /// Its requests are expected to be in time.
    pub(super) fits: bool,
}

/// A way to serve all streams.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// By stream.
    pub(super) choices: Vec<Choice>,
    /// Streams whose requests are expected to be in time.
    pub(super) n_fit: usize,
    /// Accuracy of a second's requests.
    pub(super) value: f64,
    /// Device time that they take a second.
    pub(super) takes: f64,
}

/// The best answer: devices give `capacity` seconds a second. Streams that no variant fits get the cheapest one.
pub(super) fn solve(variants: &[PooledVariant], demands: &[Demand], capacity: f64) -> Answer {
    let step = variants.len().div_ceil(LONGEST_TRIED_MAX);
    let tried = (0..variants.len()).filter(|v| v % step == 0 || v + 1 == variants.len());
    let answers = tried.map(|longest| fill(variants, demands, capacity, longest));
    let rank = |a: &Answer| {
        (
            a.takes <= capacity + demands.len() as f64 * ROUNDING,
            a.n_fit,
        )
    };
    let best = answers.reduce(|best, answer| {
        let is_better = rank(&answer)
            .cmp(&rank(&best))
            .then(answer.value.total_cmp(&best.value))
            .is_gt();
        if is_better { answer } else { best }
    });
    best.expect("a module has a variant")
}

/// Present choices as an answer, if they are still one: each stream that could fit fits, and there is room.
pub(super) fn kept(
    variants: &[PooledVariant],
    demands: &[Demand],
    capacity: f64,
    choices: Vec<Choice>,
) -> Option<Answer> {
    let in_use = choices.iter().filter(|c| c.fits);
    let in_use = in_use.flat_map(|c| [Some(c.variant), c.better.map(|b| b.0)]);
    let wait = in_use.flatten().map(|v| variants[v.idx()].batch).max();
    let wait = wait.unwrap_or_default();
    let mut answer = Answer {
        choices,
        n_fit: 0,
        value: 0.0,
        takes: 0.0,
    };
    for (choice, demand) in answer.choices.iter().zip(demands) {
        let worst = choice.better.map_or(choice.variant, |(better, _)| better);
        let part = choice.better.map_or(0.0, |(_, part)| part);
        let mean = |of: fn(&PooledVariant) -> f64| {
            let (low, high) = (
                of(&variants[choice.variant.idx()]),
                of(&variants[worst.idx()]),
            );
            low + part * (high - low)
        };
        answer.takes += demand.rate * mean(|v| v.each);
        if choice.fits {
            if variants[worst.idx()].batch + wait > demand.budgets[worst.idx()] {
                return None;
            }
            answer.n_fit += 1;
            answer.value += demand.rate * mean(|v| v.accuracy);
        }
    }
    (answer.takes <= capacity + demands.len() as f64 * ROUNDING).then_some(answer)
}

/// Each stream for itself: the most accurate variant that is in time and keeps up with it on a device of its own.
pub(super) fn each_alone(variants: &[PooledVariant], demands: &[Demand], batch: u32) -> Answer {
    let mut answer = Answer {
        choices: Vec::new(),
        n_fit: 0,
        value: 0.0,
        takes: 0.0,
    };
    for demand in demands {
        let fits = |v: &usize| {
            let time = variants[*v].batch;
            time * 2 <= demand.budgets[*v] && demand.rate * time.as_secs_f64() <= f64::from(batch)
        };
        let best = (0..variants.len()).rev().find(fits);
        let variant = best.unwrap_or(0);
        answer.choices.push(Choice {
            variant: VariantId(variant as u16),
            better: None,
            fits: best.is_some(),
        });
        answer.n_fit += usize::from(best.is_some());
        answer.value += demand.rate * variants[variant].accuracy;
        answer.takes += demand.rate * variants[variant].each;
    }
    answer
}

/// An upgrade of a stream from one choice to the next on its hull.
struct Upgrade {
    stream: usize,
    from: usize,
    to: usize,
    /// Accuracy for a second of device time.
    slope: f64,
}

/// The best answer whose longest batch is of that variant at most.
fn fill(variants: &[PooledVariant], demands: &[Demand], capacity: f64, longest: usize) -> Answer {
    let wait = variants[longest].batch;
    let in_use = |v: usize| variants[v].batch <= wait;
    let cheapest = (0..variants.len())
        .filter(|v| in_use(*v))
        .min_by(|a, b| variants[*a].each.total_cmp(&variants[*b].each))
        .expect("the longest is in use");
    let mut choices = Vec::with_capacity(demands.len());
    let mut upgrades: Vec<Upgrade> = Vec::new();
    let (mut takes, mut value, mut n_fit) = (0.0, 0.0, 0);
    for (stream, demand) in demands.iter().enumerate() {
        let fitting = (0..variants.len())
            .filter(|v| in_use(*v) && variants[*v].batch + wait <= demand.budgets[*v]);
        let hull = hull(variants, fitting);
        let first = hull.first().copied();
        n_fit += usize::from(first.is_some());
        let variant = first.unwrap_or(cheapest);
        takes += demand.rate * variants[variant].each;
        if first.is_some() {
            value += demand.rate * variants[variant].accuracy;
        }
        choices.push(Choice {
            variant: VariantId(variant as u16),
            better: None,
            fits: first.is_some(),
        });
        upgrades.extend(hull.windows(2).map(|pair| Upgrade {
            stream,
            from: pair[0],
            to: pair[1],
            slope: slope(variants, pair[0], pair[1]),
        }));
    }
    // Of equal slopes, the stream that takes least, the first stream and the lower variant go first.
    let rate = |upgrade: &Upgrade| demands[upgrade.stream].rate;
    upgrades.sort_by(|a, b| {
        b.slope
            .total_cmp(&a.slope)
            .then(rate(a).total_cmp(&rate(b)))
            .then((a.stream, a.to).cmp(&(b.stream, b.to)))
    });
    for upgrade in upgrades {
        let Upgrade {
            stream, from, to, ..
        } = upgrade;
        let (demand, choice) = (&demands[stream], &mut choices[stream]);
        // A stream whose earlier upgrade found no room stays where it is.
        if choice.variant.idx() != from || choice.better.is_some() {
            continue;
        }
        let more = demand.rate * (variants[to].each - variants[from].each);
        let gained = demand.rate * (variants[to].accuracy - variants[from].accuracy);
        let room = capacity - takes;
        if more <= room + ROUNDING {
            choice.variant = VariantId(to as u16);
            takes += more;
            value += gained;
        } else if demand.divides && room > 0.0 {
            let part = room / more;
            choice.better = Some((VariantId(to as u16), part));
            takes = capacity;
            value += gained * part;
        }
    }
    Answer {
        choices,
        n_fit,
        value,
        takes,
    }
}

fn slope(variants: &[PooledVariant], from: usize, to: usize) -> f64 {
    let gained = variants[to].accuracy - variants[from].accuracy;
    gained / (variants[to].each - variants[from].each).max(f64::MIN_POSITIVE)
}

/// The choices that are worth it: from the cheapest on, each takes more time and is more accurate, with falling slopes.
fn hull(variants: &[PooledVariant], fitting: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut all: Vec<usize> = fitting.collect();
    all.sort_by(|a, b| {
        let (a, b) = (&variants[*a], &variants[*b]);
        a.each
            .total_cmp(&b.each)
            .then(b.accuracy.total_cmp(&a.accuracy))
    });
    let mut hull: Vec<usize> = Vec::new();
    for next in all {
        if hull
            .last()
            .is_some_and(|last| variants[next].accuracy <= variants[*last].accuracy)
        {
            continue;
        }
        while let [.., a, b] = hull[..]
            && slope(variants, a, b) <= slope(variants, b, next)
        {
            hull.pop();
        }
        hull.push(next);
    }
    hull
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn variant(accuracy: f64, ms: u32) -> PooledVariant {
        PooledVariant {
            accuracy,
            batch: MS * ms,
            each: f64::from(ms) / 1e3,
        }
    }

    fn demand(rate: f64, budget_ms: &[u32], divides: bool) -> Demand {
        Demand {
            rate,
            budgets: budget_ms.iter().map(|ms| MS * *ms).collect(),
            divides,
        }
    }

    fn variants() -> Vec<PooledVariant> {
        vec![variant(0.4, 5), variant(0.7, 10), variant(0.8, 30)]
    }

    /// The best of all ways, where no stream divides its requests.
    fn exhaustive(variants: &[PooledVariant], demands: &[Demand], capacity: f64) -> (usize, f64) {
        let n = variants.len();
        let mut best = (0, 0.0);
        for code in 0..(n as u32 + 1).pow(demands.len() as u32) {
            // The last digit stands for a stream that no variant fits.
            let digit = |s: usize| (code / (n as u32 + 1).pow(s as u32)) as usize % (n + 1);
            let used = (0..demands.len()).map(digit).filter(|v| *v < n);
            let wait = used.clone().map(|v| variants[v].batch).max();
            let wait = wait.unwrap_or_default();
            let cheapest = variants
                .iter()
                .map(|v| v.each)
                .fold(f64::INFINITY, f64::min);
            let (mut takes, mut value, mut fit, mut is_valid) = (0.0, 0.0, 0, true);
            for (s, demand) in demands.iter().enumerate() {
                match digit(s) {
                    v if v == n => takes += demand.rate * cheapest,
                    v => {
                        is_valid &= variants[v].batch + wait <= demand.budgets[v];
                        takes += demand.rate * variants[v].each;
                        value += demand.rate * variants[v].accuracy;
                        fit += 1;
                    }
                }
            }
            if is_valid && takes <= capacity && (fit, value) > best {
                best = (fit, value);
            }
        }
        best
    }

    #[test]
    fn a_slow_link_makes_no_other_stream_small() {
        let demands = [
            demand(10.0, &[100, 0, 0], false),
            demand(10.0, &[100, 100, 100], false),
        ];
        let answer = solve(&variants(), &demands, 0.9);
        let chosen: Vec<u16> = answer.choices.iter().map(|c| c.variant.0).collect();
        assert_eq!((chosen, answer.n_fit), (vec![0, 2], 2));
    }

    #[test]
    fn a_stream_whose_budget_is_short_keeps_batches_short() {
        let demands = [
            demand(1.0, &[20, 20, 20], false),
            demand(1.0, &[100, 100, 100], false),
        ];
        let answer = solve(&variants(), &demands, 1.0);
        let chosen: Vec<u16> = answer.choices.iter().map(|c| c.variant.0).collect();
        assert_eq!((chosen, answer.n_fit), (vec![1, 1], 2));
    }

    #[test]
    fn what_is_too_much_for_one_variant_is_divided_between_two() {
        let answer = solve(&variants(), &[demand(80.0, &[100; 3], true)], 0.9);
        let choice = answer.choices[0];
        assert_eq!(choice.variant, VariantId(1));
        let (better, part) = choice.better.expect("there is room");
        assert_eq!(better, VariantId(2));
        assert!((part - 0.1 / 1.6).abs() < 1e-9);
        assert!((answer.takes - 0.9).abs() < 1e-9);
    }

    #[test]
    fn under_overload_the_cheapest_serves() {
        let answer = solve(&variants(), &[demand(400.0, &[100; 3], true)], 0.9);
        assert_eq!(answer.choices[0].variant, VariantId(0));
        assert_eq!(answer.choices[0].better, None);
    }

    proptest! {
        /// Against all ways: as many streams, and at most one upgrade less accurate.
        #[test]
        fn it_is_near_the_best_of_all_ways(
            streams in prop::collection::vec((1u32..20, prop::collection::vec(0u32..90, 3)), 1..5),
            capacity in 0.1f64..2.0,
        ) {
            let variants = variants();
            let demands: Vec<Demand> = streams
                .iter()
                .map(|(rate, budgets)| {
                    // A larger frame is longer on its way.
                    let mut budgets = budgets.clone();
                    budgets.sort_unstable_by_key(|ms| std::cmp::Reverse(*ms));
                    demand(f64::from(*rate), &budgets, false)
                })
                .collect();
            let answer = solve(&variants, &demands, capacity);
            let (fit, value) = exhaustive(&variants, &demands, capacity);
            if answer.takes > capacity {
                let cheapest: f64 = demands.iter().map(|d| d.rate * variants[0].each).sum();
                prop_assert!((answer.takes - cheapest).abs() < 1e-9);
                return Ok(());
            }
            prop_assert_eq!(answer.n_fit, fit);
            let upgrade = demands.iter().map(|d| d.rate).fold(0.0, f64::max) * 0.3;
            prop_assert!(answer.value <= value + 1e-9);
            prop_assert!(answer.value >= value - upgrade - 1e-9, "{} of {}", answer.value, value);
            for (choice, demand) in answer.choices.iter().zip(&demands).filter(|(c, _)| c.fits) {
                prop_assert!(demand.budgets[choice.variant.idx()] > Duration::ZERO);
            }
        }
    }
}
