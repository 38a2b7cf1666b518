//! `clipper`: batches in order of arrival. Their size follows additive increase and multiplicative decrease (Crankshaw
//! et al., NSDI 2017, §4.3).

use std::time::Duration;

use super::arrival;
use super::score::ms;
use super::strategy::{Chosen, Strategy, View};

/// Added to the batch size while batches are in time.
const INCREASE: f64 = 1.0;
/// The batch size is multiplied by this when a batch is not in time: Clipper backs off by a tenth.
const DECREASE: f64 = 0.9;

const _: () = assert!(INCREASE > 0.0 && 0.0 < DECREASE && DECREASE < 1.0);

#[derive(Debug)]
pub(crate) struct Clipper {
    /// Largest batch now; at least one.
    limit: f64,
    /// Members and least time from arrival to deadline of the batch that runs, ms.
    running: Option<(u32, f64)>,
}

impl Clipper {
    pub(crate) fn new() -> Self {
        Clipper {
            limit: 1.0,
            running: None,
        }
    }
}

impl Strategy for Clipper {
    fn choose(&mut self, view: View<'_>) -> Option<Chosen> {
        let limit = self.limit as u32;
        let objective = view
            .set
            .by_arrival()
            .take(limit as usize)
            .map(|p| p.deadline.budget_at(p.arrived_at).as_ms_f64())
            .fold(f64::INFINITY, f64::min);
        let chosen = arrival::first(view.book, view.set, limit)?;
        self.running = Some((chosen.members.len() as u32, objective));
        Some(chosen)
    }

    /// A full batch within the objective makes the next one larger. A batch beyond the objective makes it smaller.
    fn executed(&mut self, view: View<'_>, _at: usize, took: Duration) {
        let Some((members, objective)) = self.running.take() else {
            return;
        };
        let largest = view.book.sizes().last().copied().unwrap_or(1);
        if ms(took) > objective {
            self.limit = (self.limit * DECREASE).max(1.0);
        } else if members >= self.limit as u32 {
            self.limit = (self.limit + INCREASE).min(f64::from(largest));
        }
    }
}
