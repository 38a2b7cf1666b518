//! The requests that wait for a scheduler to batch them: found by id, by deadline within an application, and in order of
//! arrival. The scheduler bounds how many there are.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its id.
    pub id: RequestId,
    /// Its application.
    pub application: Application,
    /// The module deadline: its batch must have ended by then.
    pub deadline: Timestamp,
    /// When it arrived at the worker.
    pub arrived_at: Timestamp,
}

/// Position of a request in the set, valid while it waits.
pub(crate) type Slot = u32;

/// The set. Orders are total: deadline or arrival, then slot.
#[derive(Debug, Default)]
pub(crate) struct PendingSet {
    slots: Vec<Option<Pending>>,
    free: Vec<Slot>,
    by_id: IndexMap<RequestId, Slot, FxBuildHasher>,
    by_application: Vec<BTreeSet<(Timestamp, Slot)>>,
    by_arrival: BTreeSet<(Timestamp, RequestId, Slot)>,
}

impl PendingSet {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// The application of a request, if it waits.
    pub(crate) fn application_of(&self, id: RequestId) -> Option<Application> {
        let slot = self.by_id.get(&id)?;
        Some(self.get(*slot).application)
    }

    pub(crate) fn insert(&mut self, pending: Pending) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as Slot
        });
        self.slots[slot as usize] = Some(pending);
        self.by_id.insert(pending.id, slot);
        let application = pending.application.idx();
        if self.by_application.len() <= application {
            self.by_application
                .resize_with(application + 1, BTreeSet::new);
        }
        self.by_application[application].insert((pending.deadline, slot));
        self.by_arrival
            .insert((pending.arrived_at, pending.id, slot));
        slot
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Slot> {
        let slot = self.by_id.swap_remove(&id)?;
        let pending = self.slots[slot as usize]
            .take()
            .expect("an id names a taken slot");
        self.free.push(slot);
        self.by_application[pending.application.idx()].remove(&(pending.deadline, slot));
        self.by_arrival
            .remove(&(pending.arrived_at, pending.id, slot));
        Some(slot)
    }

    pub(crate) fn get(&self, slot: Slot) -> Pending {
        self.slots[slot as usize].expect("the slot is taken")
    }

    /// Number of applications that ever had a request here.
    pub(crate) fn applications(&self) -> usize {
        self.by_application.len()
    }

    /// An application's requests with a deadline of `from` or later, in order of deadlines.
    pub(crate) fn due_from(
        &self,
        application: usize,
        from: Timestamp,
    ) -> impl Iterator<Item = Pending> + '_ {
        self.by_application[application]
            .range((from, 0)..)
            .map(|&(_, slot)| self.get(slot))
    }

    /// The first of an application's requests.
    pub(crate) fn first_of(&self, application: usize) -> Option<Pending> {
        let first = self.by_application[application].first();
        first.map(|&(_, slot)| self.get(slot))
    }

    /// Requests in order of arrival.
    pub(crate) fn by_arrival(&self) -> impl Iterator<Item = Pending> + '_ {
        self.by_arrival.iter().map(|&(_, _, slot)| self.get(slot))
    }

    /// The taken slots. Their order has no meaning, but is the same in every run.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.by_id.values().copied()
    }

    /// The earliest deadline of all.
    pub(crate) fn first_deadline(&self) -> Option<Timestamp> {
        let firsts = self.by_application.iter().filter_map(BTreeSet::first);
        firsts.map(|&(deadline, _)| deadline).min()
    }
}
