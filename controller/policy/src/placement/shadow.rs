//! The shadow of a device: what it was sent, when it is expected to be free, and what its cache holds.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use spillgate_pipeline::id::{ActionId, ModelId};
use spillgate_pipeline::time::Timestamp;

use super::DeviceSpec;
use super::events::Ended;
use super::queues::Waiting;

/// An INFER action that the device has.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: ActionId,
    pub(super) model: ModelId,
    /// Position of its size.
    pub(super) at: usize,
    pub(super) earliest: Timestamp,
    pub(super) estimate: Duration,
    pub(super) sent_at: Timestamp,
    pub(super) input_ends: Timestamp,
    pub(super) members: Vec<Waiting>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    pages: u32,
    is_held: bool,
    is_loaded: bool,
    last_used: Timestamp,
    /// Actions under way that need its weights.
    under_way: u32,
}

#[derive(Debug)]
struct Loading {
    id: ActionId,
    model: ModelId,
}

#[derive(Debug)]
pub(super) struct Shadow {
    sent: VecDeque<Sent>,
    /// The end of the last execution that was heard of.
    heard: Timestamp,
    input_free: Timestamp,
    link_free: Timestamp,
    loading: VecDeque<Loading>,
    pub(super) waits_until: Option<Timestamp>,
    pub(super) price: std::cell::Cell<f64>,
    free_pages: u32,
    pages: u32,
    /// By model.
    slots: Vec<Slot>,
    /// Models that are held.
    held: Vec<ModelId>,
    /// Models whose weights are there and that have requests, by the deadline of the first.
    ready: BTreeSet<(Timestamp, ModelId)>,
}

impl Shadow {
    pub(super) fn new(spec: &DeviceSpec, pages: &[u32]) -> Self {
        let slot = |&pages: &u32| Slot {
            pages,
            ..Slot::default()
        };
        let mut shadow = Shadow {
            sent: VecDeque::new(),
            heard: Timestamp::ZERO,
            input_free: Timestamp::ZERO,
            link_free: Timestamp::ZERO,
            loading: VecDeque::new(),
            waits_until: None,
            price: std::cell::Cell::new(0.0),
            free_pages: spec.pages,
            pages: spec.pages,
            slots: pages.iter().map(slot).collect(),
            held: Vec::new(),
            ready: BTreeSet::new(),
        };
        for &model in &spec.resident {
            if shadow.slots[model.idx()].pages <= shadow.free_pages {
                shadow.hold(Timestamp::ZERO, model);
                shadow.slots[model.idx()].is_loaded = true;
            }
        }
        shadow
    }

    /// Models that the device holds or is loading.
    pub(super) fn held(&self) -> impl Iterator<Item = ModelId> {
        self.held.iter().copied()
    }

    pub(super) fn is_loaded(&self, m: ModelId) -> bool { self.slots[m.idx()].is_loaded }
    pub(super) fn holds(&self, model: ModelId) -> bool {
        self.slots[model.idx()].is_held
    }

    /// Models that have requests and whose weights are there, the first deadline first.
    pub(super) fn ready(&self) -> impl Iterator<Item = (Timestamp, ModelId)> {
        self.ready.iter().copied()
    }

    /// When the device is expected to have run what it has.
    pub(super) fn free_at(&self, now: Timestamp) -> Timestamp {
        self.sent.iter().fold(self.heard, |free, sent| {
            (free.max(sent.earliest) + sent.estimate).max(now)
        })
    }

    /// The sum of 1 / SLO over the requests of a model that it has, with at least that deadline, in 1/s.
    pub(super) fn pressure_from(&self, model: ModelId, deadline: Timestamp) -> f64 {
        let sent = self.sent.iter().filter(|s| s.model == model);
        let members = sent.flat_map(|s| &s.members);
        let members = members.filter(|w| w.deadline >= deadline);
        members.map(Waiting::pressure).sum()
    }

    /// When the inputs of the batches that it has are expected to be there.
    pub(super) fn input_free(&self) -> Timestamp {
        self.input_free
    }

    /// When the link is expected to have done the LOADs that it has.
    pub(super) fn link_free(&self) -> Timestamp {
        self.link_free
    }

    pub(super) fn sent(&mut self, sent: Sent) {
        let slot = &mut self.slots[sent.model.idx()];
        slot.under_way += 1;
        slot.last_used = sent.sent_at;
        self.input_free = sent.input_ends;
        self.sent.push_back(sent);
    }

    /// An INFER action has ended.
    pub(super) fn ended(&mut self, id: ActionId, ended: Ended) -> Option<Sent> {
        let at = self.sent.iter().position(|s| s.id == id)?;
        let sent = self.sent.remove(at)?;
        self.slots[sent.model.idx()].under_way -= 1;
        if let Ended::Ran { at, .. } = ended {
            self.heard = self.heard.max(at);
        }
        Some(sent)
    }

    fn hold(&mut self, now: Timestamp, model: ModelId) {
        let slot = &mut self.slots[model.idx()];
        slot.is_held = true;
        slot.last_used = now;
        self.free_pages -= slot.pages;
        self.held.push(model);
    }

    /// A LOAD was sent that is expected to end then.
    pub(super) fn load(&mut self, now: Timestamp, id: ActionId, model: ModelId, ends: Timestamp) {
        self.hold(now, model);
        self.link_free = ends;
        self.loading.push_back(Loading { id, model });
    }

    /// A model was told to go.
    pub(super) fn unload(&mut self, model: ModelId, key: Option<Timestamp>) {
        let slot = &mut self.slots[model.idx()];
        slot.is_held = false;
        slot.is_loaded = false;
        self.free_pages += slot.pages;
        self.held.retain(|m| *m != model);
        if let Some(key) = key {
            self.ready.remove(&(key, model));
        }
    }

    /// A LOAD has ended. Gives its model.
    pub(super) fn loaded(
        &mut self,
        id: ActionId,
        is_there: bool,
        key: impl Fn(ModelId) -> Option<Timestamp>,
    ) -> Option<ModelId> {
        let at = self.loading.iter().position(|l| l.id == id)?;
        let Loading { model, .. } = self.loading.remove(at)?;
        if is_there {
            self.slots[model.idx()].is_loaded = true;
            self.ready.extend(key(model).map(|key| (key, model)));
        } else {
            self.unload(model, None);
        }
        Some(model)
    }

    /// The first deadline of a model's queue has changed.
    pub(super) fn rekey(
        &mut self,
        model: ModelId,
        before: Option<Timestamp>,
        after: Option<Timestamp>,
    ) {
        if !self.slots[model.idx()].is_loaded {
            return;
        }
        if let Some(before) = before {
            self.ready.remove(&(before, model));
        }
        self.ready.extend(after.map(|key| (key, model)));
    }

    /// Whether a model could ever be held.
    pub(super) fn can_hold(&self, model: ModelId) -> bool {
        self.slots[model.idx()].pages <= self.pages
    }

    pub(super) fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// Models that may be unloaded, with their last use.
    pub(super) fn idle(&self) -> impl Iterator<Item = (Timestamp, ModelId)> {
        let idle = self.held.iter().filter(|m| self.is_idle(**m));
        idle.map(|m| (self.slots[m.idx()].last_used, *m))
    }

    /// Whether a model is there and no action under way needs it.
    pub(super) fn is_idle(&self, model: ModelId) -> bool {
        let slot = &self.slots[model.idx()];
        slot.is_loaded && slot.under_way == 0
    }
}
