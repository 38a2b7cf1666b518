//! A schedule that knows every length and every arrival: the upper reference for the schedulers.
//!
//! It is a beam search and finds no optimum. The schedule that it reports is feasible, so the optimum is at least as
//! good. States are sorted by the moment at which the device is free again. Among states within a few milliseconds the
//! best are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use super::{Finish, Instance, Tally};

/// Number of states kept among those that free the device within one [`Beam::bucket`].
const WIDTH: usize = 24;
/// Number of waiting requests that a state considers, those with the earliest deadlines. The others keep waiting.
const CONSIDERED_MAX: usize = 24;
/// Values of a waiting request that can still be served, for the comparison of states. Each is tried; the best result
/// counts.
const WORTHS: [f64; 3] = [0.2, 0.4, 0.6];
/// Buckets in the time of the shortest possible batch.
const BUCKETS: f64 = 2.0;

#[derive(Clone)]
struct State {
    free_at: Timestamp,
    /// Jobs that have arrived and wait, in order of arrival and so of deadlines.
    waiting: Vec<usize>,
    /// The first job that has not arrived.
    next: usize,
    good: u64,
    /// The batches so far: a list that shares its beginning with other states.
    last: usize,
}

/// A batch of some state, and the one before it.
struct Made {
    before: usize,
    start: Timestamp,
    took: Duration,
    members: Vec<usize>,
}

struct Beam<'a> {
    instance: &'a Instance,
    worth: f64,
    /// Shortest time of any batch, and the distance within which states are compared.
    bucket: u64,
    made: Vec<Made>,
    /// States by bucket, each with its value.
    states: BTreeMap<u64, Vec<(f64, State)>>,
}

/// The best schedule found.
pub fn clairvoyant(instance: &Instance) -> Finish {
    let results = WORTHS.iter().map(|&worth| search(instance, worth));
    results
        .max_by(|a, b| a.finish_rate.total_cmp(&b.finish_rate))
        .unwrap_or_default()
}

fn search(instance: &Instance, worth: f64) -> Finish {
    let Some(first) = instance.jobs.first() else {
        return Finish::default();
    };
    let lengths = instance.jobs.iter().map(|job| job.length_ms);
    let shortest = lengths.fold(f64::INFINITY, f64::min);
    let bucket_ms = instance.time.alone_ms(shortest) / BUCKETS;
    let mut beam = Beam {
        instance,
        worth,
        bucket: ((bucket_ms * 1e6) as u64).max(1),
        made: Vec::new(),
        states: BTreeMap::new(),
    };
    let start = State {
        free_at: first.at,
        waiting: Vec::new(),
        next: 0,
        good: 0,
        last: usize::MAX,
    };
    beam.keep(start);
    let mut best: Option<State> = None;
    while let Some((_, mut states)) = beam.states.pop_first() {
        states.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.free_at.cmp(&b.1.free_at)));
        states.truncate(WIDTH);
        for (_, state) in states {
            if !beam.expand(&state) && best.as_ref().is_none_or(|b| state.good > b.good) {
                best = Some(state);
            }
        }
    }
    beam.finish(best, first.at)
}

impl Beam<'_> {
    /// Adds all successors; false when there are none.
    fn expand(&mut self, state: &State) -> bool {
        let mut follows = false;
        if let Some(job) = self.instance.jobs.get(state.next) {
            let mut later = state.clone();
            later.free_at = later.free_at.max(job.at);
            self.keep(later);
            follows = true;
        }
        let count = state.waiting.len().min(CONSIDERED_MAX);
        let considered = &state.waiting[..count];
        let mut lengths: Vec<f64> = considered
            .iter()
            .map(|&job| self.instance.jobs[job].length_ms)
            .collect();
        lengths.sort_unstable_by(f64::total_cmp);
        for i in 0..self.instance.sizes.len() {
            let size = self.instance.sizes[i];
            // Any member may be the longest; the fewer members, the longer it may be.
            for &longest in &lengths {
                follows |= self.batch(state, considered, size, longest);
            }
        }
        follows
    }

    /// The batch of that size of the earliest deadlines among those no longer than `longest`.
    fn batch(&mut self, state: &State, considered: &[usize], size: u32, longest: f64) -> bool {
        let instance = self.instance;
        let bound = instance.time.ms(size, longest, longest * f64::from(size));
        let ends_at = state.free_at + Duration::from_nanos((bound * 1e6) as u64);
        let fits = |&job: &usize| {
            let job = &instance.jobs[job];
            job.length_ms <= longest && ends_at <= job.at + instance.slo
        };
        let members: Vec<usize> = considered
            .iter()
            .copied()
            .filter(fits)
            .take(size as usize)
            .collect();
        // A batch that fits the next smaller size is better computed at that size.
        if 2 * members.len() <= size as usize && members.len() < size as usize {
            return false;
        }
        let took = instance.duration(
            size,
            members.iter().map(|&job| instance.jobs[job].length_ms),
        );
        let mut after = state.clone();
        after.waiting.retain(|job| !members.contains(job));
        after.free_at = state.free_at + took;
        after.good += members.len() as u64;
        after.last = self.made.len();
        self.made.push(Made {
            before: state.last,
            start: state.free_at,
            took,
            members,
        });
        self.keep(after);
        true
    }

    /// Advances a state to its moment and adds it to its bucket.
    fn keep(&mut self, mut state: State) {
        let instance = self.instance;
        while instance
            .jobs
            .get(state.next)
            .is_some_and(|job| job.at <= state.free_at)
        {
            state.waiting.push(state.next);
            state.next += 1;
        }
        let free_at = state.free_at;
        state.waiting.retain(|&job| {
            let job = &instance.jobs[job];
            let alone = Duration::from_nanos((instance.time.alone_ms(job.length_ms) * 1e6) as u64);
            free_at + alone <= job.at + instance.slo
        });
        let worth = state.good as f64 + self.worth * state.waiting.len() as f64;
        let bucket = state.free_at.as_ns() / self.bucket;
        let states = self.states.entry(bucket).or_default();
        // The same requests in another order: one of the states is enough.
        let same = |other: &(f64, State)| {
            other.1.good == state.good
                && other.1.next == state.next
                && other.1.waiting == state.waiting
                && other.1.free_at <= state.free_at
        };
        if !states.iter().any(same) {
            states.push((worth, state));
        }
    }

    fn finish(&self, best: Option<State>, first: Timestamp) -> Finish {
        let mut tally = Tally::new(&self.instance.jobs);
        let Some(best) = best else {
            return tally.finish(first, first);
        };
        let mut at = best.last;
        while let Some(made) = self.made.get(at) {
            tally.batch(self.instance, &made.members, made.start, made.took);
            at = made.before;
        }
        tally.given_up = self.instance.jobs.len() as u64 - tally.members;
        tally.finish(first, best.free_at)
    }
}
