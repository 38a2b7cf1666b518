//! The places for connections of a port of operators, and which connection gives way when all are taken.

use std::time::Instant;

use tokio_util::sync::CancellationToken;

/// A place that was taken.
pub(crate) struct Place {
    pub(crate) id: u64,
    /// Cancelled when another takes the place.
    pub(crate) gives_way: CancellationToken,
}

struct TakenPlace {
    id: u64,
    /// When it connected or last asked.
    heard: Instant,
    gives_way: CancellationToken,
}

/// A fixed number of places. The connection that has been silent the longest gives way to a new one: a probe asks at
/// once and is answered at once, so it is never that one.
pub(crate) struct Places {
    most: usize,
    next: u64,
    held: Vec<TakenPlace>,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        let (next, held) = (0, Vec::with_capacity(most));
        Places { most, next, held }
    }

    pub(crate) fn take(&mut self, now: Instant) -> Place {
        if self.held.len() >= self.most
            && let Some(silent) = (0..self.held.len()).min_by_key(|i| self.held[*i].heard)
        {
            self.held.swap_remove(silent).gives_way.cancel();
        }
        let (id, gives_way) = (self.next, CancellationToken::new());
        self.next += 1;
        self.held.push(TakenPlace {
            id,
            heard: now,
            gives_way: gives_way.clone(),
        });
        Place { id, gives_way }
    }

    /// It asks for something.
    pub(crate) fn heard(&mut self, id: u64, now: Instant) {
        if let Some(held) = self.held.iter_mut().find(|h| h.id == id) {
            held.heard = now;
        }
    }

    /// When it connected or last asked; `None` once it gave way.
    pub(crate) fn last_heard(&self, id: u64) -> Option<Instant> {
        self.held.iter().find(|h| h.id == id).map(|h| h.heard)
    }

    pub(crate) fn leave(&mut self, id: u64) {
        self.held.retain(|h| h.id != id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_longest_silent_gives_way_and_only_when_all_places_are_taken() {
        let mut places = Places::new(2);
        let at = |s| Instant::now() + Duration::from_secs(s);
        let (a, b) = (places.take(at(0)), places.take(at(1)));
        places.heard(a.id, at(2));
        let c = places.take(at(3));
        assert!(b.gives_way.is_cancelled());
        assert!(!a.gives_way.is_cancelled() && !c.gives_way.is_cancelled());
        assert_eq!(places.last_heard(b.id), None);
        places.leave(a.id);
        let d = places.take(at(4));
        assert!(!c.gives_way.is_cancelled() && !d.gives_way.is_cancelled());
    }
}
