//! The queues of actions of one device (Clockwork §5.1 and §5.2): what it was asked to do, in the order in which it does it.
//!
//! INFER actions run in order of their earliest start (ties: the one received first), one at a time. The first of the queue is
//! waited for, also while a later one could start: an order that depends on small delays is not predictable. An action whose
//! window has passed, or whose weights are missing, is refused. LOADs run in the order of their arrival, one at a time, beside
//! INFERs. An UNLOAD is done at once.
//!
//! Invariants: one EXEC at a time; one LOAD at a time; no action starts outside its window; each action is answered by exactly one
//! `Done` or, when it ran, by the driver's report of its end.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use spillgate_pipeline::action::{Action, RefusalCause, Window, Work};
use spillgate_pipeline::id::{ActionId, WeightsId};
use spillgate_pipeline::time::Timestamp;

use crate::weights::pages::Pages;

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionCommand<M> {
    /// Bring the inputs of a batch to the device, then say `input_ready`.
    CopyInput(ActionId, WeightsId, Vec<M>),
    /// Run the batch, then say `executed`.
    Execute(ActionId),
    /// Read weights into their pages, then say `loaded`.
    Load(ActionId, WeightsId),
    /// Give back what the weights hold.
    Unload(WeightsId),
    /// The action does not run.
    Refuse(ActionId, RefusalCause),
}

#[derive(Debug)]
struct Infer {
    id: ActionId,
    weights: WeightsId,
    window: Window,
    is_ready: bool,
}

#[derive(Debug)]
struct Load {
    id: ActionId,
    weights: WeightsId,
    window: Window,
}

/// The actions of one device.
#[derive(Debug)]
pub struct Actions {
    pages: Pages,
    infers: BTreeMap<(Timestamp, u64), Infer>,
    received: u64,
    executing: Option<ActionId>,
    loads: VecDeque<Load>,
    loading: Option<(ActionId, WeightsId)>,
}

impl Actions {
    /// A device with that cache. `needs` has the pages of all weights, by id; `resident` are those that are there from the start.
    pub fn new(cache: u32, needs: Vec<u32>, resident: &[WeightsId]) -> Self {
        Actions {
            pages: Pages::new(cache, needs).with(resident),
            infers: BTreeMap::new(),
            received: 0,
            executing: None,
            loads: VecDeque::new(),
            loading: None,
        }
    }

    /// An action arrives.
    pub fn receive<M>(
        &mut self,
        now: Timestamp,
        action: Action<M>,
        out: &mut Vec<ActionCommand<M>>,
    ) {
        let Action {
            id, work, window, ..
        } = action;
        match work {
            Work::Load(weights) => {
                if self.pages.take(weights) {
                    self.loads.push_back(Load {
                        id,
                        weights,
                        window,
                    });
                } else {
                    out.push(ActionCommand::Refuse(id, RefusalCause::NoPages));
                }
            }
            Work::Unload(weights) => {
                // Weights that are still being read are not given back: their LOAD would end in pages of others.
                if self.loading.is_none_or(|(_, m)| m != weights) && self.pages.release(weights) {
                    let waits = self.loads.iter().position(|l| l.weights == weights);
                    if let Some(load) = waits.and_then(|i| self.loads.remove(i)) {
                        out.push(ActionCommand::Refuse(load.id, RefusalCause::NotLoaded));
                    }
                    out.push(ActionCommand::Unload(weights));
                }
            }
            Work::Infer {
                weights, members, ..
            } => {
                let infer = Infer {
                    id,
                    weights,
                    window,
                    is_ready: false,
                };
                self.infers.insert((window.earliest, self.received), infer);
                self.received += 1;
                out.push(ActionCommand::CopyInput(id, weights, members));
            }
        }
        self.start(now, out);
    }

    /// The inputs of an action are on the device.
    pub fn input_ready<M>(
        &mut self,
        now: Timestamp,
        id: ActionId,
        out: &mut Vec<ActionCommand<M>>,
    ) {
        if let Some(infer) = self.infers.values_mut().find(|i| i.id == id) {
            infer.is_ready = true;
        }
        self.start(now, out);
    }

    /// The batch of an action has run.
    pub fn executed<M>(&mut self, now: Timestamp, id: ActionId, out: &mut Vec<ActionCommand<M>>) {
        debug_assert_eq!(self.executing, Some(id), "only what runs can end");
        self.executing = None;
        self.start(now, out);
    }

    /// A LOAD has ended, with the weights in the cache or not.
    pub fn loaded<M>(
        &mut self,
        now: Timestamp,
        id: ActionId,
        is_there: bool,
        out: &mut Vec<ActionCommand<M>>,
    ) {
        let Some((_, weights)) = self.loading.take_if(|(loading, _)| *loading == id) else {
            debug_assert!(false, "only what loads can end");
            return;
        };
        if is_there {
            self.pages.ready(weights);
        } else {
            self.pages.release(weights);
        }
        self.start(now, out);
    }

    /// The moment that `next_wakeup` named has come.
    pub fn wake<M>(&mut self, now: Timestamp, out: &mut Vec<ActionCommand<M>>) {
        self.start(now, out);
    }

    /// When an action may start, or its window has passed, without an event from outside.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let infer = self.infers.values().next();
        let infer = infer.filter(|_| self.executing.is_none());
        let load = self.loads.front().filter(|_| self.loading.is_none());
        let starts = [
            // One whose inputs are still on their way holds up the others no longer than its window.
            infer.map(|i| match i.is_ready {
                true => i.window.earliest,
                false => i.window.latest + Duration::from_nanos(1),
            }),
            load.map(|l| l.window.earliest),
        ];
        let starts = starts.into_iter().flatten();
        starts.filter(|at| *at < Timestamp::MAX).min()
    }

    /// The account of the weight cache.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    fn start<M>(&mut self, now: Timestamp, out: &mut Vec<ActionCommand<M>>) {
        while self.executing.is_none()
            && let Some(first) = self.infers.first_entry()
        {
            let infer = first.get();
            let is_late = now > infer.window.latest;
            if !is_late && (now < infer.window.earliest || !infer.is_ready) {
                break;
            }
            let infer = first.remove();
            if is_late {
                out.push(ActionCommand::Refuse(infer.id, RefusalCause::Late));
            } else if !self.pages.is_ready(infer.weights) {
                out.push(ActionCommand::Refuse(infer.id, RefusalCause::NotLoaded));
            } else {
                self.executing = Some(infer.id);
                out.push(ActionCommand::Execute(infer.id));
            }
        }
        while self.loading.is_none()
            && let Some(load) = self.loads.front()
            && load.window.earliest <= now
        {
            let Some(load) = self.loads.pop_front() else {
                break;
            };
            if now > load.window.latest {
                self.pages.release(load.weights);
                out.push(ActionCommand::Refuse(load.id, RefusalCause::Late));
            } else {
                self.loading = Some((load.id, load.weights));
                out.push(ActionCommand::Load(load.id, load.weights));
            }
        }
    }
}
