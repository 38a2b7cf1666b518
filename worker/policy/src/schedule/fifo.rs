//! Schedulers that serve in order of arrival: `static`, `clipper`, `nexus`.

use spillgate_pipeline::time::Timestamp;

use super::Chosen;
use super::book::Book;
use super::slack_ms;
use super::window::{Pending, PendingSet};

/// What is added to Clipper's batch size while batches are in time.
const INCREASE: f64 = 1.0;
/// What it is multiplied with when one is not: Clipper backs off by a tenth (Crankshaw et al., NSDI 2017, §4.3).
const DECREASE: f64 = 0.9;

/// Up to `limit` requests in order of arrival, computed at the least size that holds them.
pub(crate) fn first(book: &Book, set: &PendingSet, limit: u32) -> Option<Chosen> {
    chosen(book, set.by_arrival().take(limit as usize).collect())
}

/// Nexus as PARD (§5.1) describes it: the first window, as long as the planned batch, of which every request is in
/// time. All before it are in `dropped`.
pub(crate) fn window(
    now: Timestamp,
    book: &Book,
    set: &PendingSet,
    planned: u32,
    dropped: &mut Vec<Pending>,
) -> Option<Chosen> {
    let needed = batch_ms(book, planned);
    let mut members: Vec<Pending> = Vec::new();
    for pending in set.by_arrival() {
        members.push(pending);
        if slack_ms(now, pending.deadline) < needed {
            dropped.append(&mut members);
        }
        if members.len() == planned as usize {
            break;
        }
    }
    chosen(book, members)
}

fn chosen(book: &Book, members: Vec<Pending>) -> Option<Chosen> {
    if members.is_empty() {
        return None;
    }
    let sizes = book.sizes();
    let holds = sizes.partition_point(|&size| (size as usize) < members.len());
    let size = sizes[holds.min(sizes.len() - 1)];
    Some(Chosen {
        size,
        members: members.iter().map(|p| p.id).collect(),
        expected_ms: batch_ms(book, size),
    })
}

/// What systems for static models expect of a batch: that of mean requests, ms.
pub(crate) fn batch_ms(book: &Book, size: u32) -> f64 {
    let length = book.mixture().mean();
    book.time().ms(size, length, length * f64::from(size))
}

/// Clipper's batch size (NSDI 2017, §4.3): additive increase, multiplicative decrease.
#[derive(Debug)]
pub(crate) struct Clipper {
    limit: f64,
    /// Size and least time from arrival to deadline of the batch that runs, ms.
    running: Option<(u32, f64)>,
}

impl Clipper {
    pub(crate) fn new() -> Self {
        Clipper {
            limit: 1.0,
            running: None,
        }
    }

    pub(crate) fn choose(&mut self, book: &Book, set: &PendingSet) -> Option<Chosen> {
        let limit = self.limit as u32;
        let objective = set
            .by_arrival()
            .take(limit as usize)
            .map(|p| slack_ms(p.arrived_at, p.deadline))
            .fold(f64::INFINITY, f64::min);
        let chosen = first(book, set, limit)?;
        self.running = Some((chosen.members.len() as u32, objective));
        Some(chosen)
    }

    /// A full batch within the objective lets the next grow; one beyond it makes it shrink.
    pub(crate) fn executed(&mut self, book: &Book, took_ms: f64) {
        let Some((members, objective)) = self.running.take() else {
            return;
        };
        let largest = book.sizes().last().copied().unwrap_or(1);
        if took_ms > objective {
            self.limit = (self.limit * DECREASE).max(1.0);
        } else if members >= self.limit as u32 {
            self.limit = (self.limit + INCREASE).min(f64::from(largest));
        }
    }
}
