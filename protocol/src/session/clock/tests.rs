use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn answer(t1: u64, t2: u64, t3: u64) -> Answer {
    Answer {
        heartbeat_sent_at: at(t1),
        received_at: at(t2),
        sent_at: at(t3),
    }
}

/// A peer whose clock is ahead and runs too fast, by so many nanoseconds in a million.
struct Skewed {
    ahead: u64,
    ppm: u64,
}

impl Skewed {
    fn read(&self, t: u64) -> u64 {
        t + self.ahead + t / 1_000_000 * self.ppm
    }

    /// How far the clock's estimate is off at that time, in nanoseconds, and how far it may be.
    fn error(&self, clock: &Clock, now: u64) -> (u64, u64) {
        let offset = clock.offset(at(now)).expect("it was answered");
        let error = offset.ns.abs_diff((self.read(now) - now) as i64);
        (error, offset.error.as_nanos() as u64)
    }
}

#[test]
fn the_offset_of_a_skewed_peer_is_found_within_the_bound() {
    for seed in 0..100 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let peer = Skewed {
            ahead: 200 * MS,
            ppm: 50,
        };
        let mut clock = Clock::default();
        for t1 in (0..15 * S).step_by(250 * MS as usize) {
            if t1 > 0 {
                let (error, bound) = peer.error(&clock, t1);
                assert!(error <= bound, "seed {seed}: {error} over {bound}");
            }
            clock.heartbeat(at(t1));
            let arrives = t1 + rng.random_range(MS / 5..5 * MS);
            let answered = arrives + rng.random_range(0..MS);
            let now = answered + rng.random_range(MS / 5..5 * MS);
            clock.answered(at(now), answer(t1, peer.read(arrives), peer.read(answered)));
            let (error, bound) = peer.error(&clock, now);
            assert!(error <= bound, "seed {seed}: {error} over {bound}");
            if t1 == 5 * S {
                assert!(error < MS, "seed {seed}: {error} ns after 5 s");
            }
        }
    }
}

#[test]
fn an_asymmetric_way_is_wrong_by_half_the_difference_and_the_bound_says_so() {
    let mut clock = Clock::default();
    clock.heartbeat(at(0));
    clock.answered(at(10 * MS), answer(0, 9 * MS, 9 * MS));
    let offset = clock.offset(at(10 * MS)).unwrap();
    assert_eq!(offset.ns, 4 * MS as i64, "9 ms there, 1 ms back: true is 0");
    assert!(offset.error >= Duration::from_millis(4) && offset.error < Duration::from_millis(6));
}

#[test]
fn the_least_round_trip_counts() {
    let mut clock = Clock::default();
    for (t1, there, back) in [(0, 5, 1), (250, 1, 1), (500, 1, 9)] {
        clock.heartbeat(at(t1 * MS));
        let arrives = at((t1 + there) * MS);
        let answer = Answer {
            heartbeat_sent_at: at(t1 * MS),
            received_at: arrives,
            sent_at: arrives,
        };
        clock.answered(at((t1 + there + back) * MS), answer);
    }
    let best = clock.estimate.unwrap().best;
    assert_eq!(best.round_trip, Duration::from_millis(2));
    assert_eq!(best.offset, 0);
}

#[test]
fn a_clock_that_leaps_is_followed_once_the_filter_has_forgotten_it() {
    let mut clock = Clock::default();
    let mut ahead = 0;
    for i in 1..=30 {
        if i == 10 {
            ahead = 3_600 * S;
        }
        let t1 = i * 250 * MS;
        clock.heartbeat(at(t1));
        let t2 = t1 + MS + ahead;
        clock.answered(at(t1 + 2 * MS), answer(t1, t2, t2));
    }
    let offset = clock.offset(at(30 * 250 * MS + 2 * MS)).unwrap();
    assert!(offset.ns.abs_diff(ahead as i64) <= offset.error.as_nanos() as u64);
    assert!(offset.error < Duration::from_millis(4));
}

#[test]
fn what_was_not_asked_or_cannot_be_changes_nothing() {
    let mut clock = Clock::default();
    clock.answered(at(5), answer(3, 4, 4));
    assert_eq!(clock.offset(at(5)), None, "no heartbeat was sent");
    for (what, t2, t3) in [
        ("answered before it was received", 9, 8),
        ("held for longer than the round trip", 0, 100),
        ("after the end of time", u64::MAX - 1, u64::MAX),
    ] {
        clock.heartbeat(at(10));
        clock.answered(at(20), answer(10, t2, t3));
        assert_eq!(clock.offset(at(20)), None, "{what}");
        clock.answered(at(20), answer(10, 15, 15));
        assert_eq!(clock.offset(at(20)), None, "{what}: an answer counts once");
    }
}

#[test]
fn timestamps_are_converted_and_stay_within_time() {
    let mut clock = Clock::default();
    assert_eq!(clock.to_mine(at(7)), None);
    clock.heartbeat(at(100));
    clock.answered(at(100), answer(100, 1_100, 1_100));
    assert_eq!(clock.to_mine(at(1_500)), Some(at(500)));
    assert_eq!(clock.to_mine(at(3)), Some(Timestamp::ZERO));
    assert_eq!(clock.to_mine(Timestamp::MAX), Some(at(u64::MAX - 1_000)));
}

fn hostile() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..100u64,
        (0..100u64).prop_map(|n| u64::MAX - n),
        (0..100u64).prop_map(|n| i64::MAX as u64 - 50 + n),
    ]
}

proptest! {
    #[test]
    fn no_timestamp_panics(
        steps in proptest::collection::vec((hostile(), hostile(), hostile(), hostile()), 1..40),
    ) {
        let mut clock = Clock::default();
        for (t1, t2, t3, t4) in steps {
            clock.heartbeat(at(t1));
            clock.answered(at(t4), answer(t1, t2, t3));
            clock.offset(at(t4));
            clock.offset(at(t3));
            clock.to_mine(at(t2));
        }
    }
}
