//! `orloj` and `orloj-shared`: ORLOJ's Algorithm 1.
//!
//! The printed algorithm does not work in four places. It is read as follows. A request is feasible in a batch size
//! when such a batch is *expected* to end before the deadline. Lines 13 and 14 belong inside the `if` of line 11. The
//! `break` of line 19 belongs inside its `if`: among the sizes in descending order of (earliest deadline, size), the
//! first one with enough requests is taken. The batch is popped by score.

use std::collections::BTreeSet;

use spillgate_pipeline::distribution::Distribution;
use spillgate_pipeline::time::Timestamp;

use super::book::Book;
use super::pending::{Pending, Slot};
use super::score::{ScoreLaw, Scoring, Steps};
use super::score_queue::ScoreQueue;
use super::strategy::{Chosen, Leaving, Strategy, View};
use super::{GiveUpReason, span};

/// Requests that a batch of one size could serve in time.
#[derive(Debug)]
struct SizeQueue {
    size: u32,
    /// How many there are.
    count: usize,
    /// Their scores as of the last time that this size was taken, except for the requests in `changed`. Most choices
    /// take the same size as the choice before, so the lines of the other sizes are not updated each time.
    queue: ScoreQueue,
    changed: Vec<Slot>,
    is_changed: Vec<bool>,
    /// By law of the application.
    laws: Vec<ScoreLaw>,
    /// Expected time of a batch by law, ms: at least that of the next smaller size, rounding or not.
    means: Vec<f64>,
}

impl SizeQueue {
    /// Notes that the request in the slot came or went.
    fn change(&mut self, slot: Slot) {
        let idx = slot as usize;
        if self.is_changed.len() <= idx {
            self.is_changed.resize(idx + 1, false);
        }
        if !self.is_changed[idx] {
            self.is_changed[idx] = true;
            self.changed.push(slot);
        }
    }
}

/// Until when a request can be served.
#[derive(Clone, Copy, Debug)]
struct Feasible {
    /// Number of sizes in which it is feasible. These are the smallest sizes, because a larger batch never takes less.
    sizes: usize,
    /// Until when it is feasible in the largest of these sizes.
    until: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Orloj {
    /// Whether one law stands for all applications (ORLOJ §4.3). If not, a request has the law of its own application,
    /// in a batch of which the other members have the mixture's.
    is_shared: bool,
    scoring: Scoring,
    sizes: Vec<SizeQueue>,
    version: Option<u64>,
    /// By slot; none for those that are feasible in no size.
    feasible: Vec<Option<Feasible>>,
    expiries: BTreeSet<(Timestamp, Slot)>,
    /// Requests that are feasible in no size any more.
    timed_out: Vec<Slot>,
}

impl Orloj {
    pub(crate) fn new(sizes: &[u32], is_shared: bool, scoring: Scoring) -> Self {
        let queue = |&size: &u32| SizeQueue {
            size,
            count: 0,
            queue: ScoreQueue::new(scoring.delay_rate),
            changed: Vec::new(),
            is_changed: Vec::new(),
            laws: Vec::new(),
            means: Vec::new(),
        };
        Orloj {
            is_shared,
            scoring,
            sizes: sizes.iter().map(queue).collect(),
            version: None,
            feasible: Vec::new(),
            expiries: BTreeSet::new(),
            timed_out: Vec::new(),
        }
    }

    /// Records in how many sizes the request is feasible.
    fn keep(&mut self, slot: Slot, law: usize, deadline: Timestamp, sizes: usize) {
        let feasible = sizes.checked_sub(1).map(|largest| Feasible {
            sizes,
            until: deadline - span(self.sizes[largest].means[law]),
        });
        self.feasible[slot as usize] = feasible;
        match feasible {
            Some(Feasible { until, .. }) => {
                self.expiries.insert((until, slot));
            }
            None => self.timed_out.push(slot),
        }
    }

    /// Brings the scores of a size up to `now`.
    fn renew(&mut self, at: usize, view: View<'_>) {
        let View { now, book, set } = view;
        let SizeQueue {
            queue,
            changed,
            is_changed,
            laws,
            ..
        } = &mut self.sizes[at];
        for &slot in &*changed {
            queue.remove(slot);
        }
        queue.advance(now, laws);
        for slot in changed.drain(..) {
            is_changed[slot as usize] = false;
            if self.feasible[slot as usize].is_some_and(|feasible| feasible.sizes > at) {
                let pending = set.get(slot);
                let law = book.law_idx(pending.application);
                queue.insert(now, laws, slot, law, Steps::single(pending.deadline));
            }
        }
    }

    /// Computes everything anew from the laws.
    fn remake(&mut self, view: View<'_>) {
        let View { book, set, .. } = view;
        self.version = Some(book.version());
        self.feasible.clear();
        self.expiries.clear();
        self.timed_out.clear();
        let mut least = vec![0.0; book.len()];
        for each in &mut self.sizes {
            each.count = 0;
            each.queue.clear();
            each.changed.clear();
            each.is_changed.clear();
            let law = |i: usize| {
                let own = if self.is_shared {
                    book.mixture()
                } else {
                    book.law(i)
                };
                batch_law(book, self.scoring, each.size, own)
            };
            each.laws = (0..book.len()).map(law).collect();
            for (least, law) in least.iter_mut().zip(&each.laws) {
                *least = law.mean().max(*least);
            }
            each.means.clone_from(&least);
        }
        for slot in set.slots() {
            self.inserted(view, slot);
        }
    }
}

impl Strategy for Orloj {
    fn needs_samples(&self) -> bool {
        true
    }

    /// Takes in a request. The next choice gives it up if it is feasible in no size.
    fn inserted(&mut self, view: View<'_>, slot: Slot) {
        let View { now, book, set } = view;
        if self.version != Some(book.version()) {
            // The next choice makes everything anew.
            return;
        }
        let idx = slot as usize;
        if self.feasible.len() <= idx {
            self.feasible.resize(idx + 1, None);
        }
        let Pending {
            application,
            deadline,
            ..
        } = set.get(slot);
        let law = book.law_idx(application);
        let until = |each: &SizeQueue| deadline - span(each.means[law]);
        let sizes = self.sizes.partition_point(|each| until(each) >= now);
        for each in &mut self.sizes[..sizes] {
            each.count += 1;
            each.change(slot);
        }
        self.keep(slot, law, deadline, sizes);
    }

    fn removed(&mut self, slot: Slot) {
        let feasible = self.feasible.get_mut(slot as usize).and_then(Option::take);
        let Some(Feasible { sizes, until }) = feasible else {
            self.timed_out.retain(|&other| other != slot);
            return;
        };
        self.expiries.remove(&(until, slot));
        for each in &mut self.sizes[..sizes] {
            each.count -= 1;
            each.change(slot);
        }
    }

    /// Lines 10 to 14: feasibility as of now. Gives up the requests that are feasible in no size.
    fn give_up(&mut self, view: View<'_>, leaving: &mut Vec<Leaving>) {
        let View { now, book, set } = view;
        if self.version != Some(book.version()) {
            self.remake(view);
        }
        while let Some(&(until, slot)) = self.expiries.first() {
            if until >= now {
                break;
            }
            self.expiries.pop_first();
            let Some(Feasible { sizes, .. }) = self.feasible[slot as usize] else {
                continue;
            };
            let largest = &mut self.sizes[sizes - 1];
            largest.count -= 1;
            largest.change(slot);
            let pending = set.get(slot);
            let law = book.law_idx(pending.application);
            self.keep(slot, law, pending.deadline, sizes - 1);
        }
        leaving.extend(self.timed_out.drain(..).map(|slot| Leaving {
            id: set.get(slot).id,
            reason: GiveUpReason::Infeasible,
            needed_ms: None,
        }));
    }

    /// Lines 15 to 22, and 1 to 9 for the size that is taken. The members stay until they are removed.
    fn choose(&mut self, view: View<'_>) -> Option<Chosen> {
        let View { now, book, set } = view;
        // A request that is feasible in a size is feasible in all smaller ones: the earliest deadline of a larger size is
        // no earlier, and in descending order of (earliest deadline, size) the larger comes first.
        let enough = |each: &SizeQueue| each.count >= each.size as usize;
        let at = self.sizes.iter().rposition(enough)?;
        self.renew(at, view);
        let SizeQueue {
            size, queue, laws, ..
        } = &mut self.sizes[at];
        let mut members = Vec::with_capacity(*size as usize);
        let mut expected_ms = 0.0;
        for _ in 0..*size {
            let slot = queue.first(now).expect("there are enough requests");
            queue.remove(slot);
            let pending = set.get(slot);
            expected_ms += laws[book.law_idx(pending.application)].mean();
            members.push(pending.id);
        }
        Some(Chosen {
            size: *size,
            members,
            expected_ms: expected_ms / f64::from(*size),
        })
    }
}

/// A request of law `own` in a batch of that size, the others drawn from the mixture.
fn batch_law(book: &Book, scoring: Scoring, size: u32, own: &Distribution) -> ScoreLaw {
    let law = book
        .time()
        .law(size, &[(own, 1), (book.mixture(), size - 1)]);
    let law = if law.edges().len() > scoring.bins + 1 {
        law.coarser(scoring.bins)
            .expect("the number of bins is in range")
    } else {
        law
    };
    ScoreLaw::new(&law, scoring.delay_rate)
}
