//! The events to come, in order of time. At one moment what devices report comes before arrivals, and wake-ups come last.

use std::collections::BTreeMap;

use spillgate_pipeline::time::Timestamp;

/// The order of events at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// What a device reports.
    Device,
    /// What comes from elsewhere.
    Arrival,
    /// What was asked for.
    Wakeup,
}

/// Events to come.
#[derive(Debug)]
pub struct Agenda<E> {
    events: BTreeMap<(Timestamp, Rank, u64), E>,
    next: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Agenda {
            events: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<E> Agenda<E> {
    /// Adds an event. Of equal moments and ranks the one that was added first comes first.
    pub fn push(&mut self, at: Timestamp, rank: Rank, event: E) {
        self.events.insert((at, rank, self.next), event);
        self.next += 1;
    }

    /// The next event, if it comes before one of that rank at that moment.
    pub fn pop_before(&mut self, at: Timestamp, rank: Rank) -> Option<(Timestamp, E)> {
        let (first, ..) = self.events.first_key_value()?;
        let is_before = (first.0, first.1) < (at, rank);
        is_before.then(|| self.pop()).flatten()
    }

    /// The next event.
    pub fn pop(&mut self) -> Option<(Timestamp, E)> {
        let ((at, ..), event) = self.events.pop_first()?;
        Some((at, event))
    }
}
