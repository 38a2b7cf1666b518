//! ORLOJ's Algorithm 1, in the readings that work: a request is feasible in a batch size when the *expected* time of
//! such a batch ends before its deadline; lines 13 and 14 belong inside the `if` of line 11; of the sizes in
//! descending order of (earliest deadline, size) the first with enough requests is taken, the `break` of line 19
//! standing inside the `if`; the batch is popped by score.

use std::collections::BTreeSet;

use spillgate_pipeline::distribution::Distribution;
use spillgate_pipeline::time::Timestamp;

use super::Chosen;
use super::book::Book;
use super::score::{ScoreLaw, Steps, span};
use super::score_queue::ScoreQueue;
use super::window::{PendingSet, Slot};

/// Rate b of the anticipated delay, per ms (ORLOJ §4.4). Finish rates hardly move from 1e-6 to 1e-2.
pub const DELAY_RATE: f64 = 1e-4;
/// Bins that scores are computed with. Each is a milestone; 8, 24 and 96 give finish rates within 0.001 of each other.
pub(super) const SCORE_BINS: usize = 12;

/// Requests that a batch of one size could serve in time.
#[derive(Debug)]
struct SizeQueue {
    size: u32,
    queue: ScoreQueue,
    by_deadline: BTreeSet<(Timestamp, Slot)>,
    /// By law of the application.
    laws: Vec<ScoreLaw>,
}

#[derive(Debug)]
pub(crate) struct Orloj {
    /// Whether one law stands for all applications (ORLOJ §4.3), or each request goes by its own application's in
    /// a batch otherwise of the mixture.
    is_shared: bool,
    sizes: Vec<SizeQueue>,
    version: Option<u64>,
    /// Sizes that a request is still feasible in, by slot.
    feasible: Vec<u32>,
    /// Scratch: slots that left a size; requests that left all.
    expelled: Vec<Slot>,
    timed_out: Vec<Slot>,
}

impl Orloj {
    pub(crate) fn new(sizes: &[u32], is_shared: bool) -> Self {
        let queue = |&size: &u32| SizeQueue {
            size,
            queue: ScoreQueue::new(DELAY_RATE),
            by_deadline: BTreeSet::new(),
            laws: Vec::new(),
        };
        Orloj {
            is_shared,
            sizes: sizes.iter().map(queue).collect(),
            version: None,
            feasible: Vec::new(),
            expelled: Vec::new(),
            timed_out: Vec::new(),
        }
    }

    /// Takes in a request; what is feasible in no size is found timed out by the next choice.
    pub(crate) fn insert(&mut self, now: Timestamp, book: &Book, set: &PendingSet, slot: Slot) {
        if self.version != Some(book.version()) {
            // The next choice makes everything anew.
            return;
        }
        let pending = set.get(slot);
        let law = book.known(pending.application);
        let idx = slot as usize;
        if self.feasible.len() <= idx {
            self.feasible.resize(idx + 1, 0);
        }
        self.feasible[idx] = 0;
        for each in &mut self.sizes {
            let until = pending.deadline - span(each.laws[law].mean());
            if until < now {
                continue;
            }
            let steps = Steps::single(pending.deadline);
            each.queue.insert(now, &each.laws, slot, law, steps, until);
            each.by_deadline.insert((pending.deadline, slot));
            self.feasible[idx] += 1;
        }
        if self.feasible[idx] == 0 {
            self.timed_out.push(slot);
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot, deadline: Timestamp) {
        for each in &mut self.sizes {
            if each.queue.remove(slot) {
                each.by_deadline.remove(&(deadline, slot));
            }
        }
        self.timed_out.retain(|&other| other != slot);
    }

    /// Lines 1 to 14: scores and feasibility as of `now`. Slots that are feasible in no size go to `gone`.
    pub(crate) fn advance(
        &mut self,
        now: Timestamp,
        book: &Book,
        set: &PendingSet,
        gone: &mut Vec<Slot>,
    ) {
        if self.version != Some(book.version()) {
            self.remake(now, book, set);
        }
        for each in &mut self.sizes {
            self.expelled.clear();
            each.queue.advance(now, &each.laws, &mut self.expelled);
            for &slot in &self.expelled {
                each.by_deadline.remove(&(set.get(slot).deadline, slot));
                self.feasible[slot as usize] -= 1;
                if self.feasible[slot as usize] == 0 {
                    self.timed_out.push(slot);
                }
            }
        }
        gone.append(&mut self.timed_out);
    }

    /// Lines 15 to 22. The members stay in the queues until they are removed.
    pub(crate) fn choose(
        &mut self,
        now: Timestamp,
        book: &Book,
        set: &PendingSet,
    ) -> Option<Chosen> {
        let enough = |each: &&mut SizeQueue| each.queue.len() >= each.size as usize;
        let earliest =
            |each: &&mut SizeQueue| (each.by_deadline.first().copied().map(|f| f.0), each.size);
        let candidate = self.sizes.iter_mut().filter(enough).max_by_key(earliest)?;
        let mut members = Vec::with_capacity(candidate.size as usize);
        let mut expected_ms = 0.0;
        let mut slots = Vec::with_capacity(candidate.size as usize);
        for _ in 0..candidate.size {
            let slot = candidate
                .queue
                .first(now)
                .expect("there are enough requests");
            candidate.queue.remove(slot);
            let pending = set.get(slot);
            candidate.by_deadline.remove(&(pending.deadline, slot));
            expected_ms += candidate.laws[book.known(pending.application)].mean();
            members.push(pending.id);
            slots.push(slot);
        }
        Some(Chosen {
            size: candidate.size,
            members,
            expected_ms: expected_ms / f64::from(candidate.size),
        })
    }

    fn remake(&mut self, now: Timestamp, book: &Book, set: &PendingSet) {
        self.version = Some(book.version());
        self.timed_out.clear();
        for each in &mut self.sizes {
            each.queue.clear();
            each.by_deadline.clear();
            let law = |i: usize| {
                let own = if self.is_shared {
                    book.mixture()
                } else {
                    book.law(i)
                };
                batch_law(book, each.size, own)
            };
            each.laws = (0..book.len()).map(law).collect();
        }
        let slots: Vec<Slot> = set.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.insert(now, book, set, slot);
        }
    }
}

/// A request of law `own` in a batch of that size, the others drawn from the mixture.
fn batch_law(book: &Book, size: u32, own: &Distribution) -> ScoreLaw {
    let law = book
        .time()
        .law(size, &[(own, 1), (book.mixture(), size - 1)]);
    let law = if law.edges().len() > SCORE_BINS + 1 {
        law.coarser(SCORE_BINS)
            .expect("the number of bins is in range")
    } else {
        law
    };
    ScoreLaw::new(&law, DELAY_RATE)
}
