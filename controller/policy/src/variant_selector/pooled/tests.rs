use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A variant whose batches of `n` take `first + more * n` ms, up to that size.
fn batched(accuracy: f64, first: f64, more: f64, most: u32) -> PooledVariant {
    let time = |n: u32| (first + more * f64::from(n)) / 1e3;
    PooledVariant {
        accuracy,
        times: (1..=most).map(time).collect(),
        beside: 0.0,
    }
}

/// One at a time.
fn variants() -> Vec<PooledVariant> {
    [(0.4, 5.0), (0.7, 10.0), (0.8, 30.0)]
        .map(|(accuracy, ms)| batched(accuracy, 0.0, ms, 1))
        .to_vec()
}

fn demand(rate: f64, budget_ms: &[u32], divides: bool) -> Demand {
    Demand {
        rate,
        budgets: budget_ms.iter().map(|ms| MS * *ms).collect(),
        divides,
    }
}

fn solve(variants: &[PooledVariant], demands: &[Demand], capacity: f64) -> Answer {
    let pool = Pool {
        variants,
        capacity,
        devices: capacity.ceil(),
        pulls: false,
    };
    pool.solve(demands)
}

fn chosen(answer: &Answer) -> Vec<u16> {
    answer.choices.iter().map(|c| c.variant.0).collect()
}

/// The best of all ways, where no stream divides its requests; `None`: devices bear none.
fn exhaustive(pool: Pool<'_>, demands: &[Demand]) -> Option<Answer> {
    let n = pool.variants.len();
    let all = 0..(n as u32 + 1).pow(demands.len() as u32);
    let answers = all.filter_map(|code| {
        // The last digit stands for a stream that no variant fits.
        let digit = |s: u32| (code / (n as u32 + 1).pow(s)) as usize % (n + 1);
        let streams = 0..demands.len() as u32;
        let choices = streams.map(|s| match digit(s) {
            v if v == n => Choice::of(0, false),
            v => Choice::of(v, true),
        });
        pool.kept(demands, choices.collect())
    });
    answers.reduce(|best, a| if a.is_better(&best) { a } else { best })
}

#[test]
fn a_slow_link_makes_no_other_stream_small() {
    let demands = [
        demand(10.0, &[100, 0, 0], false),
        demand(10.0, &[100, 100, 100], false),
    ];
    let answer = solve(&variants(), &demands, 0.9);
    assert_eq!((chosen(&answer), answer.n_fit), (vec![0, 2], 2));
}

#[test]
fn a_stream_whose_budget_is_short_keeps_batches_short() {
    let demands = [
        demand(1.0, &[20, 20, 20], false),
        demand(1.0, &[100, 100, 100], false),
    ];
    let answer = solve(&variants(), &demands, 1.0);
    assert_eq!((chosen(&answer), answer.n_fit), (vec![1, 1], 2));
}

#[test]
fn what_is_too_much_for_one_variant_is_divided_between_two() {
    let demands = [demand(80.0, &[100; 3], true)];
    let answer = solve(&variants(), &demands, 0.9);
    let choice = answer.choices[0];
    assert_eq!(choice.variant, VariantId(1));
    let (better, part) = choice.better.expect("there is room");
    assert_eq!(better, VariantId(2));
    assert!((part - 0.1 / 1.6).abs() < 1e-5, "{part}");
    assert!((answer.value - 80.0 * (0.7 + part * 0.1)).abs() < 1e-9);
}

#[test]
fn under_overload_the_cheapest_serves() {
    let answer = solve(&variants(), &[demand(400.0, &[100; 3], true)], 0.9);
    assert_eq!(answer.choices[0].variant, VariantId(0));
    assert_eq!(answer.choices[0].better, None);
}

#[test]
fn a_turn_is_as_long_as_the_batches_of_what_comes_in_it() {
    let variants = [batched(0.5, 20.0, 3.0, 8), batched(0.6, 20.0, 6.0, 8)];
    let pool = Pool {
        variants: &variants,
        capacity: 2.0,
        devices: 2.0,
        pulls: false,
    };
    // 87 a second are borne one by one.
    assert_eq!(pool.turn(&[(0, 86.0)]), Some(0.0));
    // 20 + 3 * 0.12 w = 2 w.
    let turn = pool.turn(&[(0, 120.0)]).expect("it is borne");
    assert!((turn - 0.020 / (2.0 - 0.36)).abs() < 1e-4, "{turn}");
    // A batch of each: 40 + (3 + 6) * 0.06 w = 2 w.
    let turn = pool.turn(&[(0, 60.0), (1, 60.0)]).expect("it is borne");
    assert!((turn - 0.040 / (2.0 - 0.54)).abs() < 1e-4, "{turn}");
    // More than 363 a second of the first are too many in batches of 8.
    assert!(pool.turn(&[(0, 363.0)]).is_some() && pool.turn(&[(0, 364.0)]).is_none());
}

#[test]
fn batches_are_no_larger_than_they_have_to_be() {
    // Two full batches of the smallest take 88 ms, one by one 46.
    let variants = [batched(0.5, 20.0, 3.0, 8), batched(0.6, 20.0, 12.0, 8)];
    let one = demand(15.0, &[70, 70], false);
    let answer = solve(&variants, std::slice::from_ref(&one), 0.97);
    assert_eq!((chosen(&answer), answer.n_fit), (vec![1], 1));
    // With more of them batches are longer, and only smaller variants are in time.
    let answer = solve(&variants, &vec![one; 4], 0.97);
    assert_eq!((chosen(&answer), answer.n_fit), (vec![0; 4], 4));
}

#[test]
fn from_one_queue_requests_wait_for_a_turn_of_all_devices() {
    let variants = [batched(0.5, 20.0, 4.0, 8)];
    let wait = |devices, pulls, turn| {
        let pool = Pool {
            variants: &variants,
            capacity: 1.0,
            devices,
            pulls,
        };
        (pool.wait_of(turn, 0.04) * 1e3).round()
    };
    // One device goes through all batches, whether requests wait there or not.
    assert_eq!([false, true].map(|pulls| wait(1.0, pulls, 0.07)), [70.0; 2]);
    // Four devices with queues of their own each go through all batches.
    assert_eq!(wait(4.0, false, 0.07), 280.0);
    // From one queue they begin a batch every 10 ms, or all at once every 40 ms.
    assert_eq!(wait(4.0, true, 0.07), 70.0 + 15.0);
    assert_eq!(wait(4.0, true, 0.0), 10.0 + 15.0);
}

/// Two devices would begin soon enough, but a link may change: no answer may rest on that.
#[test]
fn from_one_queue_a_budget_is_not_used_up_to_its_end_either() {
    let variants = [batched(0.4, 0.0, 5.0, 1), batched(0.8, 0.0, 10.0, 1)];
    let pool = Pool {
        variants: &variants,
        capacity: 2.0,
        devices: 2.0,
        pulls: true,
    };
    // 7.5 ms of waiting and 10 ms of its own, with 18 of 20 ms.
    let demands = [demand(1.0, &[18, 18], false)];
    assert_eq!(pool.kept(&demands, vec![Choice::of(1, true)]), None);
    assert_eq!(chosen(&pool.solve(&demands)), [0]);
}

#[test]
fn few_variants_are_in_use_where_each_makes_turns_longer() {
    let variants: Vec<PooledVariant> = (0..6)
        .map(|v| batched(0.5 + 0.05 * f64::from(v), 20.0, 3.0 + f64::from(v), 8))
        .collect();
    // Each stream might have another variant.
    let demands: Vec<Demand> = (0..6)
        .map(|s| {
            let budgets: Vec<u32> = (0..6).map(|v| if v <= s { 120 } else { 0 }).collect();
            demand(20.0, &budgets, false)
        })
        .collect();
    let answer = solve(&variants, &demands, 0.97);
    assert_eq!(answer.n_fit, 6, "{answer:?}");
    let mut used = chosen(&answer);
    used.sort_unstable();
    used.dedup();
    assert!(used.len() <= 2, "{used:?}");
    let lowest = 120.0 * variants[0].accuracy;
    assert!(answer.value > lowest, "{answer:?}");
}

#[test]
fn ladders_are_few_variants_and_shorter_with_more_streams() {
    assert_eq!(ladders(1, 512), [[0]]);
    assert_eq!(ladders(3, 1).len(), 7);
    let longest = |n| ladders(16, n).iter().map(Vec::len).max();
    assert_eq!([1, 35, 36, 513].map(longest), [3, 3, 2, 2].map(Some));
    let many = ladders(100, 1);
    assert!(many.len() < 700 && many.contains(&vec![0, 99]));
    assert!(many.iter().all(|ladder| ladder.is_sorted()));
}

#[test]
fn present_choices_are_kept_while_they_are_an_answer() {
    let variants = variants();
    let pool = Pool {
        variants: &variants,
        capacity: 0.9,
        devices: 1.0,
        pulls: false,
    };
    let present = || vec![Choice::of(2, true)];
    let kept = pool.kept(&[demand(30.0, &[60; 3], false)], present());
    assert_eq!(kept.map(|answer| answer.n_fit), Some(1));
    let late = pool.kept(&[demand(30.0, &[59; 3], false)], present());
    assert_eq!(late, None);
    let too_much = pool.kept(&[demand(31.0, &[60; 3], false)], present());
    assert_eq!(too_much, None);
}

#[test]
fn alone_each_stream_gets_what_keeps_up_with_it_in_some_batches() {
    let variants = [batched(0.5, 10.0, 2.0, 8), batched(0.6, 10.0, 10.0, 8)];
    let of = |rate, ms| each_alone(&variants, &[demand(rate, &[ms; 2], false)])[0];
    assert_eq!(of(10.0, 40), Choice::of(1, true));
    // Two at a time take 30 ms, and bear 66 a second.
    assert_eq!(of(60.0, 60), Choice::of(1, true));
    assert_eq!(of(60.0, 59), Choice::of(0, true));
    assert_eq!(of(10.0, 23), Choice::of(0, false));
}

proptest! {
    /// Against all ways: as many streams, and nearly as accurate.
    #[test]
    fn it_is_near_the_best_of_all_ways(
        streams in prop::collection::vec((1u32..40, prop::collection::vec(0u32..90, 3)), 1..5),
        capacity in 0.1f64..2.0,
        most in 1u32..5,
        pulls: bool,
    ) {
        let variants = [(0.4, 2.0, 3.0), (0.7, 4.0, 6.0), (0.8, 12.0, 18.0)]
            .map(|(accuracy, first, more)| batched(accuracy, first, more, most));
        let demands: Vec<Demand> = streams
            .iter()
            .map(|(rate, budgets)| {
                // A larger frame is longer on its way.
                let mut budgets = budgets.clone();
                budgets.sort_unstable_by_key(|ms| std::cmp::Reverse(*ms));
                demand(f64::from(*rate), &budgets, false)
            })
            .collect();
        let pool = Pool { variants: &variants, capacity, devices: capacity.ceil(), pulls };
        let answer = pool.solve(&demands);
        match exhaustive(pool, &demands) {
            None => prop_assert!(answer.choices.iter().all(|c| c.variant == VariantId(0))),
            Some(best) => {
                prop_assert_eq!(answer.n_fit, best.n_fit);
                let upgrade = demands.iter().map(|d| d.rate).fold(0.0, f64::max) * 0.3;
                prop_assert!(answer.value <= best.value + 1e-9);
                prop_assert!(answer.value >= best.value - upgrade - 1e-9, "{} of {}", answer.value, best.value);
                prop_assert!(pool.kept(&demands, answer.choices.clone()).is_some());
            }
        }
    }
}
