//! A queue of requests by their score, which changes with time. A score is a line on a dynamic convex hull; at a milestone
//! of the request its line is renewed (ORLOJ §4.4, Algorithm 1 lines 1 to 9).
//!
//! Deviations: milestones wait in a heap, where the paper looks for them in every request; the reference time moves by
//! powers of two, which changes no digit of any score, where the paper computes everything anew.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use spillgate_pipeline::time::Timestamp;

use super::hull::{Hull, Line};
use super::score::{ScoreLaw, Steps, span};

/// The reference time moves when `b (t - base)` is beyond this: e^30 leaves slopes and values far from both ends of
/// what a double holds. With b = 1e-4 per ms that is every five minutes.
const EXPONENT_MAX: f64 = 30.0;
/// The line of a request whose deadline is further away than this, in delays of `1 / b`, is renewed at half of it: the factor
/// e^-745 of a slope is no double, and e^-600 leaves room for the reference time.
const FADE_MAX: f64 = 600.0;
/// Most doublings at once: a factor of 2^1024 is no double.
const DOUBLINGS_MAX: f64 = 1000.0;
/// Milestones of requests that are gone may outnumber the others by this.
const STALE_MIN: usize = 64;

const _: () = assert!(EXPONENT_MAX < DOUBLINGS_MAX && DOUBLINGS_MAX < 1024.0);
// The smallest double is above e^-745.
const _: () = assert!(FADE_MAX + EXPONENT_MAX < 700.0);

#[derive(Clone, Copy, Debug)]
struct Entry {
    steps: Steps,
    law: usize,
    line: Line,
    /// Distinguishes its milestones from those of an earlier entry of the slot.
    generation: u32,
}

/// The queue.
#[derive(Debug)]
pub struct ScoreQueue {
    rate: f64,
    base: Timestamp,
    /// The reference time is this much after `base`: less than a nanosecond, but it changes the digits of a score.
    base_rest_ms: f64,
    hull: Hull,
    entries: Vec<Option<Entry>>,
    generation: u32,
    milestones: BinaryHeap<Reverse<(Timestamp, u32, u32)>>,
    /// Scratch: requests at a milestone.
    due: Vec<Entry>,
}

impl ScoreQueue {
    /// An empty queue for delays of `rate` per ms, the rate of its laws.
    pub fn new(rate: f64) -> Self {
        ScoreQueue {
            rate,
            base: Timestamp::ZERO,
            base_rest_ms: 0.0,
            hull: Hull::new(),
            entries: Vec::new(),
            generation: 0,
            milestones: BinaryHeap::new(),
            due: Vec::new(),
        }
    }

    /// Requests in it.
    pub fn len(&self) -> usize {
        self.hull.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hull.is_empty()
    }

    /// Adds the request in `slot`, scored by `laws[law]`.
    ///
    /// # Panics
    /// When the slot is taken.
    pub fn insert(
        &mut self,
        now: Timestamp,
        laws: &[ScoreLaw],
        slot: u32,
        law: usize,
        steps: Steps,
    ) {
        if self.is_empty() {
            (self.base, self.base_rest_ms) = (now, 0.0);
        }
        if self.rate * self.since_base(now) > EXPONENT_MAX {
            self.advance(now, laws);
        }
        let idx = slot as usize;
        if self.entries.len() <= idx {
            self.entries.resize(idx + 1, None);
        }
        assert!(self.entries[idx].is_none(), "a slot holds one request");
        self.generation = self.generation.wrapping_add(1);
        let nothing = Line {
            alpha: 0.0,
            beta: 0.0,
            id: slot,
        };
        self.place(
            now,
            laws,
            Entry {
                steps,
                law,
                line: nothing,
                generation: self.generation,
            },
        );
    }

    /// Takes the request in `slot` out. False when it is not there.
    pub fn remove(&mut self, slot: u32) -> bool {
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::take) else {
            return false;
        };
        self.hull.remove(entry.line);
        self.sweep();
        true
    }

    /// Follows the time: renews scores at their milestones.
    pub fn advance(&mut self, now: Timestamp, laws: &[ScoreLaw]) {
        let mut due = std::mem::take(&mut self.due);
        while let Some(&Reverse((at, slot, generation))) = self.milestones.peek() {
            if at > now {
                break;
            }
            self.milestones.pop();
            let entry = self.entries[slot as usize].filter(|e| e.generation == generation);
            let Some(entry) = entry else { continue };
            self.hull.remove(entry.line);
            due.push(entry);
        }
        // At this moment the old lines are out and the new ones not yet in: a line beyond its milestone may grow
        // without bounds.
        self.rebase(now);
        for entry in due.drain(..) {
            self.place(now, laws, entry);
        }
        self.due = due;
    }

    /// The slot with the highest score at `now`, which must not be before the last [`ScoreQueue::advance`].
    pub fn first(&self, now: Timestamp) -> Option<u32> {
        let x = (self.rate * self.since_base(now)).exp();
        self.hull.highest(x).map(|line| line.id)
    }

    /// Forgets all requests.
    pub fn clear(&mut self) {
        self.hull.clear();
        self.entries.clear();
        self.milestones.clear();
    }

    /// Puts the line of an entry into the hull, and its next milestone into the heap.
    fn place(&mut self, now: Timestamp, laws: &[ScoreLaw], mut entry: Entry) {
        let slot = entry.line.id;
        let (mut alpha, mut beta) = (0.0, 0.0);
        let mut next: Option<Timestamp> = None;
        for step in entry.steps.iter() {
            let slack = step.deadline.budget_at(now).as_ms_f64();
            let until_base = self.since_base(step.deadline);
            let (a, b, milestone) = laws[entry.law].line(slack, until_base);
            alpha += step.cost * a;
            beta += step.cost * b;
            if let Some(edge) = milestone {
                let is_far = self.rate * (slack - edge) > FADE_MAX;
                let half = if is_far {
                    FADE_MAX / 2.0 / self.rate
                } else {
                    0.0
                };
                let at = step.deadline - span(edge + half);
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        entry.line = Line {
            alpha,
            beta,
            id: slot,
        };
        self.hull.insert(entry.line);
        self.entries[slot as usize] = Some(entry);
        if let Some(next) = next {
            // At least a nanosecond later: a milestone that rounding puts at this very moment would recur without end.
            let next = next.max(now + span(1e-6));
            self.milestones
                .push(Reverse((next, slot, entry.generation)));
        }
    }

    fn since_base(&self, at: Timestamp) -> f64 {
        at.budget_at(self.base).as_ms_f64() - self.base_rest_ms
    }

    fn rebase(&mut self, now: Timestamp) {
        loop {
            let exponent = self.rate * self.since_base(now);
            if exponent <= EXPONENT_MAX {
                return;
            }
            // A power of two that the exponent holds, and a double as well.
            let doublings = (exponent / std::f64::consts::LN_2)
                .floor()
                .min(DOUBLINGS_MAX);
            let moved_ms = self.base_rest_ms + doublings * std::f64::consts::LN_2 / self.rate;
            let moved = span(moved_ms);
            self.base = self.base + moved;
            self.base_rest_ms = moved_ms - moved.as_nanos() as f64 * 1e-6;
            let factor = doublings.exp2();
            self.hull.scale(factor);
            for entry in self.entries.iter_mut().flatten() {
                entry.line.alpha *= factor;
            }
        }
    }

    /// Bounds the number of milestones of requests that are gone.
    fn sweep(&mut self) {
        if self.milestones.len() > 2 * self.len() + STALE_MIN {
            let entries = &self.entries;
            self.milestones.retain(|&Reverse((_, slot, generation))| {
                entries[slot as usize].is_some_and(|entry| entry.generation == generation)
            });
        }
    }
}

#[cfg(test)]
mod tests;
