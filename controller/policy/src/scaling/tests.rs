use std::time::Duration;

use expect_test::expect;
use proptest::prelude::*;

use super::Command::{Retire, Serve, Start};
use super::*;

const SCALING: ModuleScaling = ModuleScaling {
    least: 1,
    most: 10,
    throughput: 100.0,
    cool_down: Duration::from_secs(30),
    carried_out: CarriedOut::Here,
};

fn load(offered: f64) -> Load {
    Load {
        offered,
        probability: 1.0,
        pace: 1.0,
    }
}

fn second(n: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(n)
}

/// A scaler and the workers that it has.
struct Both {
    scaler: Scaler,
    local: LocalWorkers,
}

fn scaler() -> Both {
    Both {
        scaler: Scaler::new(SCALING, Timestamp::ZERO),
        local: LocalWorkers::new(SCALING),
    }
}

fn drive(both: &mut Both, at: u64, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    both.local.on_event(second(at), event, &mut out);
    out
}

fn at(both: &mut Both, at: u64, rate: f64) -> Vec<Command> {
    both.scaler.heard(second(at), load(rate), 1);
    drive(both, at, Event::Wanted(both.scaler.wanted().workers))
}

/// Everything that starts is ready at once.
fn settled(both: &mut Both, second: u64, rate: f64) -> Vec<Command> {
    let mut all = at(both, second, rate);
    for command in all.clone() {
        if let Start(ordinal) = command {
            all.extend(drive(both, second, Event::Started(ordinal)));
        }
    }
    all
}

#[test]
fn rises_at_once_and_falls_after_the_cool_down() {
    let mut s = scaler();
    assert_eq!(s.local.off_at_first().count(), 9);
    assert_eq!(at(&mut s, 0, 50.0), []);
    assert_eq!(settled(&mut s, 1, 450.0).len(), 2 * 4);
    assert_eq!(s.scaler.wanted().workers, 5);
    settled(&mut s, 2, 5_000.0);
    assert_eq!(s.scaler.wanted().workers, 10, "not over the most");
    assert_eq!(at(&mut s, 3, 450.0), []);
    assert_eq!(
        at(&mut s, 20, 600.0),
        [],
        "the most needed meanwhile is kept"
    );
    assert_eq!(at(&mut s, 33, 100.0), [7, 8, 9].map(Retire));
    assert_eq!(
        at(&mut s, 34, 800.0),
        [7, 8].map(Start),
        "and rises at once again"
    );
}

#[test]
fn a_short_lull_gives_nothing_back() {
    let mut s = scaler();
    settled(&mut s, 0, 900.0);
    for second in 1..200 {
        let rate = if second % 20 == 0 { 900.0 } else { 0.0 };
        assert_eq!(at(&mut s, second, rate), [], "{second}");
    }
}

#[test]
fn one_that_is_ready_when_it_is_not_wanted_any_more_is_given_back() {
    let mut s = scaler();
    assert_eq!(at(&mut s, 0, 150.0), [Start(1)]);
    assert_eq!(at(&mut s, 1, 50.0), []);
    assert_eq!(at(&mut s, 31, 50.0), [], "it still starts");
    assert_eq!(drive(&mut s, 32, Event::Started(1)), [Serve(1), Retire(1)]);
}

#[test]
fn one_that_never_starts_evicts_none_that_serves() {
    let mut s = scaler();
    assert_eq!(at(&mut s, 0, 150.0), [Start(1)]);
    drive(&mut s, 1, Event::NotStarted(1));
    assert_eq!(at(&mut s, 2, 150.0), [Start(2)]);
    assert_eq!(drive(&mut s, 3, Event::Started(2)), [Serve(2)]);
    for second in 4..200 {
        assert_eq!(at(&mut s, second, 150.0), [], "{second}");
    }
}

#[test]
fn one_that_cannot_start_is_tried_again_and_one_that_died_is_replaced() {
    let mut s = scaler();
    assert_eq!(at(&mut s, 0, 150.0), [Start(1)]);
    assert_eq!(drive(&mut s, 1, Event::NotStarted(1)), []);
    assert_eq!(at(&mut s, 2, 150.0), [Start(2)], "another instead");
    assert_eq!(drive(&mut s, 3, Event::Died(0)), [Start(3)]);
    assert_eq!(at(&mut s, 40, 350.0), [Start(1), Start(4)]);
    assert_eq!(
        drive(&mut s, 41, Event::Returned(0)),
        [Serve(0)],
        "what starts is waited for"
    );
}

/// Those that are slower than planned are more, while they are slower.
#[test]
fn a_slow_pace_counts_and_is_forgotten_with_its_measurement() {
    let mut s = Scaler::new(SCALING, Timestamp::ZERO);
    let at_pace = |pace| Load {
        pace,
        ..load(150.0)
    };
    s.heard(second(1), at_pace(1.0), 1);
    assert_eq!(s.wanted().workers, 2);
    s.heard(second(2), at_pace(2.0), 2);
    assert_eq!(s.wanted().workers, 4);
    for at in 3..33 {
        s.heard(second(at), at_pace(1.0), 4);
        assert_eq!(s.wanted().workers, 4, "{at}");
    }
    s.heard(second(33), at_pace(1.0), 4);
    assert_eq!(s.wanted().workers, 2);
}

/// A controller that began anew beside six workers, and hears of little for a while.
#[test]
fn a_scaler_that_begins_takes_no_worker_before_a_cool_down() {
    let mut s = Scaler::new(SCALING, second(100));
    assert_eq!(s.wanted().workers, 1);
    // Its workers greet one after the other.
    for (at, serving) in (101..132).zip([1, 3].into_iter().chain([6; 29])) {
        s.heard(second(at), load(0.0), serving);
        assert_eq!(s.wanted().workers, serving, "{at}");
    }
    // A cool-down after the first look that found more than needed.
    s.heard(second(132), load(0.0), 6);
    assert_eq!(s.wanted().workers, 1);
    // Of more than there may be it wants the most.
    let mut s = Scaler::new(SCALING, Timestamp::ZERO);
    s.heard(second(1), load(0.0), 12);
    assert_eq!(s.wanted().workers, 10);
}

#[test]
fn while_no_gateway_is_heard_the_number_stays_and_no_cool_down_runs() {
    let mut s = Scaler::new(SCALING, Timestamp::ZERO);
    s.heard(second(1), load(450.0), 1);
    for at in 2..31 {
        s.heard(second(at), load(10.0), 5);
    }
    for _ in 31..200 {
        s.unheard();
        assert_eq!((s.wanted().workers, s.wanted().since), (5, second(1)));
    }
    for at in 200..230 {
        s.heard(second(at), load(10.0), 5);
        assert_eq!(s.wanted().workers, 5, "{at}");
    }
    s.heard(second(230), load(10.0), 5);
    assert_eq!((s.wanted().workers, s.wanted().since), (1, second(230)));
}

#[test]
fn the_number_has_a_reason() {
    let mut told = String::new();
    let mut tell = |s: &Scaler, at: u64| {
        let wanted = s.wanted();
        let (n, since) = (wanted.workers, wanted.since.as_secs_f64());
        told += &format!("{n} since {since} s: {}\n", wanted.text(second(at)));
    };
    let fixed = ModuleScaling {
        least: 3,
        most: 3,
        ..SCALING
    };
    let mut s = Scaler::new(fixed, Timestamp::ZERO);
    s.heard(second(1), load(5_000.0), 3);
    tell(&s, 1);
    let mut s = Scaler::new(SCALING, Timestamp::ZERO);
    tell(&s, 0);
    let mut at = |at: u64, load: Load| {
        s.heard(second(at), load, 1);
        tell(&s, at);
    };
    let half = Load {
        probability: 0.5,
        pace: 1.25,
        ..load(300.0)
    };
    at(1, half);
    at(2, load(5_000.0));
    at(3, load(120.0));
    at(21, load(220.0));
    at(33, load(20.0));
    at(34, load(20.0));
    at(64, load(20.0));
    at(65, load(20.0));
    at(66, load(0.0));
    expect![[r#"
        3 since 0 s: a fixed number
        1 since 0 s: no gateway tells how much is offered: it stays
        3 since 1 s: offered 300.0/s x 0.50 that run it, one worker serves 80.0/s in planned batches at pace 1.25, 10% to spare: 3 needed
        10 since 2 s: offered 5000.0/s x 1.00 that run it, one worker serves 100.0/s in planned batches at pace 1.00, 10% to spare: 55 needed; 10 is the most
        10 since 2 s: offered 120.0/s x 1.00 that run it, one worker serves 100.0/s in planned batches at pace 1.00, 10% to spare: 2 needed; 10 held until the cool-down ends in 30 s
        10 since 2 s: offered 220.0/s x 1.00 that run it, one worker serves 100.0/s in planned batches at pace 1.00, 10% to spare: 3 needed; 10 held until the cool-down ends in 12 s
        3 since 33 s: offered 20.0/s x 1.00 that run it, one worker serves 100.0/s in planned batches at pace 1.00, 10% to spare: 1 needed; 3 held until the cool-down ends in 30 s
        3 since 33 s: offered 20.0/s x 1.00 that run it, one worker serves 100.0/s in planned batches at pace 1.00, 10% to spare: 1 needed; 3 held until the cool-down ends in 30 s
        1 since 64 s: offered 20.0/s x 1.00 that run it, one worker serves 100.0/s in planned batches at pace 1.00, 10% to spare: 1 needed
        1 since 64 s: offered 20.0/s x 1.00 that run it, one worker serves 100.0/s in planned batches at pace 1.00, 10% to spare: 1 needed
        1 since 64 s: offered 0.0/s x 1.00 that run it, one worker serves 100.0/s in planned batches at pace 1.00, 10% to spare: 0 needed; 1 is the least
    "#]].assert_eq(&told);
}

/// Slow and obvious: the largest number that was needed at any look of the last cool-down, while the wanted one was larger; at
/// once if more is needed.
fn reference(rates: &[f64]) -> Vec<u32> {
    let needed = |rate: f64| ((rate * 1.1 / 100.0).ceil() as u32).clamp(1, 10);
    let mut wanted = vec![1];
    let mut lower: Vec<u32> = Vec::new();
    for rate in rates {
        let last = *wanted.last().unwrap();
        let now = needed(*rate);
        if now >= last {
            lower.clear();
            wanted.push(now);
            continue;
        }
        lower.push(now);
        // A look a second: the thirty-first is 30 s after the first.
        match lower.len() > 30 {
            true => wanted.push(lower.drain(..).max().unwrap()),
            false => wanted.push(last),
        }
    }
    wanted.split_off(1)
}

proptest! {
    #[test]
    fn a_look_a_second_wants_what_the_reference_wants(
        runs in prop::collection::vec((0.0..1500.0f64, 1..50usize), 1..12)
    ) {
        let rates: Vec<f64> = runs.iter().flat_map(|&(rate, n)| vec![rate; n]).collect();
        let mut s = Scaler::new(SCALING, Timestamp::ZERO);
        let looks = (1..).zip(&rates).map(|(at, rate)| {
            s.heard(second(at), load(*rate), 1);
            s.wanted().workers
        });
        let wanted: Vec<u32> = looks.collect();
        prop_assert_eq!(wanted, reference(&rates));
    }
}
