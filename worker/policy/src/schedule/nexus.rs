//! `nexus`: early drop, as PARD (§5.1) describes it. The batch is the first run of consecutive requests, in order of
//! arrival and as long as planned, that are all in time. All requests before that run are dropped.

use super::strategy::{Chosen, Leaving, Strategy, View};
use super::{GiveUpReason, arrival};

#[derive(Debug)]
pub(crate) struct Nexus {
    size: u32,
}

impl Nexus {
    pub(crate) fn new(size: u32) -> Self {
        Nexus { size }
    }
}

impl Strategy for Nexus {
    fn give_up(&mut self, view: View<'_>, leaving: &mut Vec<Leaving>) {
        let needed = arrival::batch_ms(view.book, self.size);
        let mut run = Vec::new();
        for pending in view.set.by_arrival() {
            run.push(Leaving {
                id: pending.id,
                reason: GiveUpReason::BeforeRun,
                needed_ms: Some(needed),
            });
            if view.slack_ms(pending.deadline) < needed {
                leaving.append(&mut run);
            }
            if run.len() == self.size as usize {
                break;
            }
        }
    }

    /// The remaining requests begin with the run.
    fn choose(&mut self, view: View<'_>) -> Option<Chosen> {
        arrival::first(view.book, view.set, self.size)
    }
}
