//! Earliest deadline first among those that bear the expected time of a batch of that size: ORLOJ's Algorithm 1
//! with the deadline in place of the score.

use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::time::Timestamp;

use super::Chosen;
use super::book::Book;
use super::forming::Forming;
use super::merge::earliest;
use super::score::span;
use super::window::{Pending, PendingSet};

#[derive(Debug, Default)]
pub(crate) struct Edf {
    /// Expected time of a batch by size and law of a member, the others drawn from the mixture; ms.
    means: Vec<Vec<f64>>,
    version: Option<u64>,
}

impl Edf {
    pub(crate) fn follow(&mut self, book: &Book) {
        if self.version == Some(book.version()) {
            return;
        }
        self.version = Some(book.version());
        let mut forming = Forming::default();
        let mixture = book.len() - 1;
        let grid = book.grid();
        let mut mean = |size: u32, law: usize| {
            forming.clear(grid);
            forming.push(grid, law);
            for _ in 1..size {
                forming.push(grid, mixture);
            }
            forming.outlook(grid, book.time(), size).mean_ms
        };
        self.means = book
            .sizes()
            .iter()
            .map(|&size| (0..book.len()).map(|law| mean(size, law)).collect())
            .collect();
    }

    /// Expected time of the smallest batch, ms.
    pub(crate) fn alone_ms(&self, law: usize) -> f64 {
        self.means[0][law]
    }

    pub(crate) fn choose(&self, now: Timestamp, book: &Book, set: &PendingSet) -> Option<Chosen> {
        let applications: Vec<usize> = (0..set.applications()).collect();
        let mut best: Option<(Timestamp, u32, Vec<Pending>, f64)> = None;
        for (&size, means) in book.sizes().iter().zip(&self.means) {
            let law = |application: usize| application.min(book.len() - 1);
            let from = |application: usize| now + span(means[law(application)]);
            let mut members: Vec<Pending> = Vec::new();
            earliest(set, &applications, from, |pending| {
                members.push(pending);
                members.len() < size as usize
            });
            if members.len() < size as usize {
                continue;
            }
            let first = members[0].deadline;
            if best.as_ref().is_none_or(|b| (first, size) > (b.0, b.1)) {
                let sum: f64 = members
                    .iter()
                    .map(|p| means[book.known(p.application)])
                    .sum();
                best = Some((first, size, members, sum / f64::from(size)));
            }
        }
        best.map(|(_, size, members, expected_ms)| Chosen {
            size,
            members: members.iter().map(|p| p.id).collect::<Vec<RequestId>>(),
            expected_ms,
        })
    }
}
