//! `edf`: earliest deadline first, among the requests that have at least the expected time of a batch of that size
//! left. It is ORLOJ's Algorithm 1 with the deadline in place of the score.

use spillgate_pipeline::time::Timestamp;

use super::book::Book;
use super::forming::Forming;
use super::merge::earliest;
use super::pending::Pending;
use super::strategy::{Chosen, Strategy, View};

#[derive(Debug, Default)]
pub(crate) struct Edf {
    /// Expected time of a batch by size and law of a member, the others drawn from the mixture; ms.
    means: Vec<Vec<f64>>,
    version: Option<u64>,
}

impl Strategy for Edf {
    fn needs_samples(&self) -> bool {
        true
    }

    fn follow(&mut self, view: View<'_>) {
        let book = view.book;
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

    /// The expected time of the smallest batch.
    fn needed_ms(&self, _book: &Book, law: usize) -> Option<f64> {
        Some(self.means[0][law])
    }

    fn choose(&mut self, view: View<'_>) -> Option<Chosen> {
        let View { book, set, .. } = view;
        let applications: Vec<usize> = (0..set.applications()).collect();
        let mut best: Option<(Timestamp, u32, Vec<Pending>, f64)> = None;
        for (&size, means) in book.sizes().iter().zip(&self.means) {
            let law = |application: usize| application.min(book.len() - 1);
            let from = |application: usize| view.in_ms(means[law(application)]);
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
                    .map(|p| means[book.law_idx(p.application)])
                    .sum();
                best = Some((first, size, members, sum / f64::from(size)));
            }
        }
        best.map(|(_, size, members, expected_ms)| Chosen {
            size,
            members: members.iter().map(|p| p.id).collect(),
            expected_ms,
        })
    }
}
