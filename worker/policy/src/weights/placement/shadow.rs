//! The shadow of a device: what it was sent, when it is expected to be free, and what its cache holds.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use spillgate_pipeline::id::{ActionId, ModelId, RequestId, WeightsId};
use spillgate_pipeline::time::Timestamp;

use crate::weights::pages::Pages;

use super::DeviceSpec;
use super::events::Ended;
use super::queues::Waiting;

/// An INFER action that the device has.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: ActionId,
    pub(super) model: ModelId,
    pub(super) weights: WeightsId,
    /// Position of its size.
    pub(super) at: usize,
    pub(super) earliest: Timestamp,
    pub(super) estimate: Duration,
    pub(super) expected_end: Timestamp,
    pub(super) sent_at: Timestamp,
    pub(super) input_ends: Timestamp,
    pub(super) members: Vec<Waiting>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    last_used: Timestamp,
    /// Actions under way that need them.
    under_way: u32,
    /// They get no LOAD before this moment.
    barred_until: Timestamp,
}

#[derive(Debug)]
struct Loading {
    id: ActionId,
    weights: WeightsId,
    ends: Timestamp,
    takes: Duration,
}

#[derive(Debug)]
pub(super) struct Shadow {
    sent: VecDeque<Sent>,
    /// The end of the last execution that was heard of.
    heard: Timestamp,
    input_free: Timestamp,
    link_free: Timestamp,
    loading: VecDeque<Loading>,
    /// The next batch is chosen at this moment.
    pub(super) chooses_at: Option<Timestamp>,
    /// Requests that a ns of its time is worth, as a smoothed mean; see [`Shadow::price`].
    price: f64,
    /// Requests that a ns of its link is worth, as a smoothed mean.
    link_price: f64,
    /// Its link is idle, and nothing was worth a LOAD: all weights are weighed again at this moment.
    pub(super) content_until: Option<Timestamp>,
    pages: Pages,
    /// By weights.
    slots: Vec<Slot>,
    /// Weights that are held, by their last use.
    recent: BTreeSet<(Timestamp, WeightsId)>,
    /// Models whose weights are there and that have requests, by the deadline of the first.
    ready: BTreeSet<(Timestamp, ModelId)>,
}

impl Shadow {
    pub(super) fn new(spec: &DeviceSpec, pages: &[u32]) -> Self {
        let mut shadow = Shadow {
            sent: VecDeque::new(),
            heard: Timestamp::ZERO,
            input_free: Timestamp::ZERO,
            link_free: Timestamp::ZERO,
            loading: VecDeque::new(),
            chooses_at: None,
            price: 0.0,
            link_price: 0.0,
            content_until: None,
            pages: Pages::new(spec.pages, pages.iter().copied()),
            slots: vec![Slot::default(); pages.len()],
            recent: BTreeSet::new(),
            ready: BTreeSet::new(),
        };
        for &weights in &spec.resident {
            if shadow.hold(Timestamp::ZERO, weights) {
                shadow.pages.ready(weights);
            }
        }
        shadow
    }

    /// What it would gain for a ns more: the largest gain among the batches that went when the last ones were chosen. The time of a
    /// device that has nothing to run is free, whatever it was worth before.
    pub(super) fn price(&self) -> f64 {
        let is_at_rest = self.sent.is_empty() && self.ready.is_empty();
        if is_at_rest { 0.0 } else { self.price }
    }

    /// What its link would gain for a ns more; 0 while no LOAD has to be left out.
    pub(super) fn link_price(&self) -> f64 {
        self.link_price
    }

    pub(super) fn note_link_price(&mut self, price: f64, weight: f64) {
        self.link_price += weight * (price - self.link_price);
    }

    pub(super) fn note_price(&mut self, price: f64, weight: f64) {
        self.price += weight * (price - self.price);
    }

    /// Pages that are taken, and all.
    pub(super) fn pages(&self) -> (u32, u32) {
        self.pages.taken()
    }

    /// Weights that the device holds or is loading.
    pub(super) fn held(&self) -> impl Iterator<Item = WeightsId> {
        self.recent.iter().map(|(_, weights)| *weights)
    }

    pub(super) fn holds(&self, weights: WeightsId) -> bool {
        self.pages.is_held(weights)
    }

    /// Models that have requests and whose weights are there, the first deadline first.
    pub(super) fn ready(&self) -> impl Iterator<Item = (Timestamp, ModelId)> {
        self.ready.iter().copied()
    }

    /// Whether it holds a model that has requests.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the device is expected to have run what it has.
    pub(super) fn free_at(&self, now: Timestamp) -> Timestamp {
        self.sent.iter().fold(self.heard, |free, sent| {
            (free.max(sent.earliest) + sent.estimate).max(now)
        })
    }

    /// The same as it was expected before any of it was late. While a batch is late, `free_at` moves on with the clock: no moment can
    /// be named at which the device is about to be free.
    pub(super) fn free_if_in_time(&self) -> Timestamp {
        self.sent.iter().fold(self.heard, |free, sent| {
            free.max(sent.earliest) + sent.estimate
        })
    }

    /// The sum of 1 / SLO over the requests of a model that it has, with at least that deadline, in 1/s.
    pub(super) fn pressure_from(&self, model: ModelId, deadline: Timestamp) -> f64 {
        let sent = self.sent.iter().filter(|s| s.model == model);
        let members = sent.flat_map(|s| &s.members);
        let members = members.filter(|w| w.deadline >= deadline);
        members.map(Waiting::pressure).sum()
    }

    /// Takes a request out of a batch that it has.
    pub(super) fn forget(
        &mut self,
        action: ActionId,
        request: RequestId,
    ) -> Option<(ModelId, Waiting)> {
        let sent = self.sent.iter_mut().find(|s| s.id == action)?;
        let at = sent.members.iter().position(|w| w.id == request)?;
        Some((sent.model, sent.members.remove(at)))
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
        let slot = &mut self.slots[sent.weights.idx()];
        slot.under_way += 1;
        self.recent.remove(&(slot.last_used, sent.weights));
        slot.last_used = sent.sent_at;
        self.recent.insert((slot.last_used, sent.weights));
        self.input_free = sent.input_ends;
        self.sent.push_back(sent);
    }

    /// An INFER action has ended.
    pub(super) fn ended(&mut self, id: ActionId, ended: Ended) -> Option<Sent> {
        let at = self.sent.iter().position(|s| s.id == id)?;
        let sent = self.sent.remove(at)?;
        self.slots[sent.weights.idx()].under_way -= 1;
        self.chooses_at = None;
        if let Ended::Ran { at, .. } = ended {
            self.heard = self.heard.max(at);
        }
        Some(sent)
    }

    /// False where they do not fit, or are held.
    fn hold(&mut self, now: Timestamp, weights: WeightsId) -> bool {
        let fits = self.pages.take(weights);
        if fits {
            self.slots[weights.idx()].last_used = now;
            self.recent.insert((now, weights));
        }
        fits
    }

    /// A LOAD was sent that is expected to end then.
    pub(super) fn load(
        &mut self,
        now: Timestamp,
        (id, weights): (ActionId, WeightsId),
        (ends, takes): (Timestamp, Duration),
    ) {
        let fits = self.hold(now, weights);
        debug_assert!(fits, "there is room for what is loaded");
        self.link_free = ends;
        self.content_until = None;
        let loading = Loading {
            id,
            weights,
            ends,
            takes,
        };
        self.loading.push_back(loading);
    }

    /// Whether a LOAD waits at the link behind one whose end should have been heard of by now.
    pub(super) fn link_is_late(&self, now: Timestamp, travel: Duration) -> bool {
        let first = self.loading.front();
        self.loading.len() > 1 && first.is_some_and(|first| first.ends + travel < now)
    }

    /// A LOAD has ended at that moment: those behind it start no earlier.
    pub(super) fn link_goes_on(&mut self, at: Timestamp) {
        let mut free = at;
        for loading in &mut self.loading {
            loading.ends = loading.ends.max(free + loading.takes);
            free = loading.ends;
        }
        self.link_free = self.link_free.max(free);
    }

    /// Weights were told to go. `keys` are the models that run with them and have requests, each with the first deadline.
    pub(super) fn unload(&mut self, weights: WeightsId, keys: &[(Timestamp, ModelId)]) {
        self.pages.release(weights);
        let last_used = self.slots[weights.idx()].last_used;
        self.recent.remove(&(last_used, weights));
        for key in keys {
            self.ready.remove(key);
        }
    }

    /// A LOAD has ended. Gives its weights.
    pub(super) fn loaded(&mut self, id: ActionId, is_there: bool) -> Option<WeightsId> {
        let at = self.loading.iter().position(|l| l.id == id)?;
        let Loading { weights, .. } = self.loading.remove(at)?;
        if is_there {
            self.pages.ready(weights);
        } else {
            self.unload(weights, &[]);
        }
        Some(weights)
    }

    /// The weights of a model came, which has requests, the first with that deadline.
    pub(super) fn is_ready(&mut self, key: Timestamp, model: ModelId) {
        self.ready.insert((key, model));
    }

    /// The first deadline of a model's queue has changed.
    pub(super) fn rekey(
        &mut self,
        (model, weights): (ModelId, WeightsId),
        before: Option<Timestamp>,
        after: Option<Timestamp>,
    ) {
        if !self.pages.is_ready(weights) {
            return;
        }
        if let Some(before) = before {
            self.ready.remove(&(before, model));
        }
        self.ready.extend(after.map(|key| (key, model)));
    }

    /// Whether weights could ever be held.
    pub(super) fn can_hold(&self, weights: WeightsId) -> bool {
        self.pages.can_hold(weights)
    }

    /// Weights get no LOAD before that moment.
    pub(super) fn bar(&mut self, weights: WeightsId, until: Timestamp) {
        self.slots[weights.idx()].barred_until = until;
    }

    pub(super) fn is_barred(&self, now: Timestamp, weights: WeightsId) -> bool {
        now < self.slots[weights.idx()].barred_until
    }

    pub(super) fn free_pages(&self) -> u32 {
        self.pages.free()
    }

    /// Weights that may be unloaded, those that were used longest ago first.
    pub(super) fn least_recent(&self) -> impl Iterator<Item = WeightsId> {
        let weights = self.recent.iter().map(|(_, weights)| *weights);
        weights.filter(|w| self.is_idle(*w))
    }

    /// Whether weights are there and no action under way needs them.
    pub(super) fn is_idle(&self, weights: WeightsId) -> bool {
        self.pages.is_ready(weights) && self.slots[weights.idx()].under_way == 0
    }
}
