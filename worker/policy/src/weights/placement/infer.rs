//! Sending batches, and hearing how they ended.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use spillgate_pipeline::action::{Action, Window, Work};
use spillgate_pipeline::id::{ActionId, DeviceId, ModelId};
use spillgate_pipeline::predict::Cap;
use spillgate_pipeline::time::Timestamp;

use super::Placement;
use super::choose::{Chosen, View};
use super::events::{Ended, PlacementCommand};
use super::shadow::Sent;
use spillgate_pipeline::placement::recipe::{Ahead, Earliest, Latest};

/// What a device gets next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A batch was sent.
    Sent,
    /// Its batch is chosen later.
    Later,
    /// Nothing that waits could be in time.
    Nothing,
}

impl Placement {
    /// Gives devices that are about to be free their next batches, the one that is free first one, and so on. Where an event weighs for one
    /// device, the others wait for the next one; `has_weighed` says that this event did, before or here.
    pub(super) fn infer(
        &mut self,
        now: Timestamp,
        has_weighed: &mut bool,
        out: &mut Vec<PlacementCommand>,
    ) {
        let arrival = now + self.travel;
        let horizon = arrival + self.recipe.ahead.looks(self.longest_input);
        let mut hungry: BinaryHeap<Reverse<(Timestamp, usize)>> = BinaryHeap::new();
        for (i, device) in self.devices.iter().enumerate() {
            let chooses = device.chooses_at.is_none_or(|at| at <= now);
            if chooses && device.has_ready() {
                let free = self.device_free(now, i);
                hungry.extend((free < horizon).then_some(Reverse((free, i))));
            }
        }
        while let Some(Reverse((_, i))) = hungry.pop() {
            if *has_weighed && self.recipe.weighs_for_one {
                self.weighs_on = true;
                break;
            }
            match self.infer_on(now, DeviceId(i as u16), out) {
                Next::Sent => {
                    *has_weighed = true;
                    let free = self.device_free(now, i);
                    hungry.extend((free < horizon).then_some(Reverse((free, i))));
                }
                Next::Later => *has_weighed = true,
                // It stays hungry, so it must not keep others from theirs.
                Next::Nothing => {}
            }
        }
    }

    /// When a device is expected to be free for an action that is sent now.
    fn device_free(&self, now: Timestamp, device: usize) -> Timestamp {
        self.devices[device].free_at(now).max(now + self.travel)
    }

    /// Sends a device its next batch.
    fn infer_on(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        out: &mut Vec<PlacementCommand>,
    ) -> Next {
        let shadow = &mut self.devices[device.idx()];
        shadow.chooses_at = None;
        let view = View {
            device: &self.devices[device.idx()],
            arrival: now + self.travel,
            free: self.device_free(now, device.idx()),
        };
        let (free, arrival) = (view.free, view.arrival);
        let (chosen, price) = self.choose(view);
        if let Some(price) = price {
            let weight = self.recipe.constants.price_weight;
            self.devices[device.idx()].note_price(price, weight);
        }
        let Some(chosen) = chosen else {
            return Next::Nothing;
        };
        if let Ahead::LastMoment(margin) = self.recipe.ahead {
            let copied = self.copies(chosen.model, self.sizes[chosen.at]);
            let due = free - (copied + margin);
            if due > arrival {
                self.devices[device.idx()].chooses_at = Some(due - self.travel);
                return Next::Later;
            }
        }
        self.send(now, device, chosen, out);
        Next::Sent
    }

    fn send(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        chosen: Chosen,
        out: &mut Vec<PlacementCommand>,
    ) {
        let arrival = now + self.travel;
        let Chosen {
            model,
            at,
            first,
            starts_at,
        } = chosen;
        let size = self.sizes[at];
        let members = self.queues.take(model, first, size as usize);
        let estimate = self.estimate(model, at);
        let earliest = match self.recipe.earliest {
            Earliest::PredictedStart => starts_at,
            Earliest::Now => arrival,
        };
        let latest = match self.recipe.latest {
            Latest::After(window) => starts_at + window,
            Latest::Never => Timestamp::MAX,
            Latest::LastUseful => {
                let last = members
                    .iter()
                    .map(|m| m.deadline + m.kept_free)
                    .max()
                    .unwrap_or(starts_at);
                let takes = self.estimate(model, at) + self.recipe.kept_back;
                (last - takes).max(starts_at)
            }
        };
        let window = Window { earliest, latest };
        let id = self.next_id();
        let weights = self.weights_of(model);
        let copied = self.copies(model, size);
        let expected_end = starts_at + estimate;
        let shadow = &mut self.devices[device.idx()];
        let input_ends = arrival.max(shadow.input_free()) + copied;
        let counted = if self.recipe.counts_input {
            input_ends
        } else {
            arrival
        };
        shadow.sent(Sent {
            id,
            model,
            weights,
            at,
            earliest: earliest.max(counted),
            estimate,
            expected_end,
            sent_at: now,
            input_ends,
            members: members.clone(),
        });
        let urgent = members.iter().filter(|m| !m.is_background()).count() as u32;
        if let Some(fairness) = &mut self.fairness
            && urgent > 0
        {
            // Idle time is no share.
            fairness.sent(model, estimate * urgent / size, urgent);
        }
        self.queues.went(model, &members);
        let members = members.iter().map(|m| m.id).collect();
        let work = Work::Infer {
            model,
            weights,
            members,
        };
        out.push(PlacementCommand::Do {
            device,
            action: Action {
                id,
                work,
                window,
                starts_at,
                expected_end,
            },
        });
        self.requeued(model);
    }

    /// A batch that took its usual time shows that its device is not slow: what batches of other sizes took while it was is
    /// doubted, for none of them may run any more.
    fn doubt_other_sizes(&mut self, model: ModelId, at: usize, took: Duration) {
        let Cap::Typical(times) = self.recipe.cap else {
            return;
        };
        let sizes = &mut self.executions[model.idx()];
        if took <= sizes[at].seed().mul_f64(times) {
            let others = sizes.iter_mut().enumerate().filter(|(i, _)| *i != at);
            others.for_each(|(_, of)| of.doubt(times));
        }
    }

    /// An INFER action has ended.
    pub(super) fn inferred(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        action: ActionId,
        ended: Ended,
        out: &mut Vec<PlacementCommand>,
    ) {
        let Some(sent) = self.devices[device.idx()].ended(action, ended) else {
            return;
        };
        self.queues.came_back(sent.model, &sent.members);
        match ended {
            Ended::Ran { at, took } => {
                if self.recipe.knows_lateness {
                    self.lateness.note(at.since(sent.expected_end));
                }
                let estimator = &mut self.executions[sent.model.idx()][sent.at];
                estimator.observe(now, took);
                let takes = estimator.estimate() + self.recipe.kept_back;
                self.longest = self.longest.max(takes);
                self.doubt_other_sizes(sent.model, sent.at, took);
                self.requeued(sent.model);
            }
            Ended::Refused if self.recipe.requeues => {
                let alone = self.estimate(sent.model, 0) + self.recipe.kept_back;
                for waiting in sent.members {
                    if waiting.deadline >= now + alone {
                        self.queues.push(sent.model, waiting);
                    } else {
                        out.push(PlacementCommand::Cancel {
                            request: waiting.id,
                        });
                    }
                }
                self.requeued(sent.model);
            }
            Ended::Refused => {
                let members = sent.members.iter();
                out.extend(members.map(|w| PlacementCommand::Cancel { request: w.id }));
                self.requeued(sent.model);
            }
        }
    }
}
