//! How requests come to a fleet and leave it before they ran.

use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{RequestId, WorkerId};
use spillgate_pipeline::predict::Estimator;
use spillgate_pipeline::request::DropReason;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Arrival;

use super::events::forgotten;
use super::{Fleet, FleetCommand, FleetRequest, fail};
use crate::weights::placement::PlacementEvent;

impl<T: Clone> Fleet<T> {
    pub(super) fn arrive(
        &mut self,
        now: Timestamp,
        arrival: Arrival<T>,
        out: &mut Vec<FleetCommand<T>>,
    ) {
        let Arrival {
            worker,
            request,
            payload,
        } = arrival;
        // A gateway that takes another device for this one hears nothing, and ends its request by its own timer.
        let Some(of) = self.workers.get_mut(&worker) else {
            return;
        };
        let member = BatchItem {
            worker,
            request,
            arrived_at: now,
            batched_at: now,
            load: None,
            payload,
        };
        let most = match request.background {
            true => of.background,
            false => of.capacity,
        };
        let room = *of.waiting_like(&request) < most;
        let Some(model) = of.model_of(&request) else {
            let why = match of.by_variant {
                true => "its module has no such variant",
                false => "its family has no such model",
            };
            let why = why.into();
            out.push(fail(&member, &why));
            return;
        };
        let reason = match self.closed {
            None if room => None,
            None => Some(DropReason::QueueFull),
            closed => closed,
        };
        if let Some(reason) = reason {
            self.say_dropped(now, &member, reason, out);
            return;
        }
        let weights = self.placement.weights_of(model);
        if let Some(failed) = self.failed.get(&weights) {
            if now < failed.until {
                out.push(fail(&member, &failed.why));
                return;
            }
            self.failed.swap_remove(&weights);
        }
        if !self.placement.fits(model) {
            let why = "its weights take more memory than any device has for weights".into();
            out.push(fail(&member, &why));
            return;
        }
        let downstream = of.downstream;
        let ticket = RequestId(self.next_ticket);
        self.next_ticket += 1;
        // Without an SLO nothing is reserved, and the placement serves it in idle time.
        let deadline = match request.background {
            true => Timestamp::MAX,
            false => {
                let finish = self.finishes.get(&model).map(Estimator::estimate);
                request.deadline - downstream - finish.unwrap_or_default()
            }
        };
        self.tickets.insert((worker, request.id), ticket);
        let entry = FleetRequest {
            member,
            model,
            is_waiting: false,
            has_ended: false,
        };
        self.entries.insert(ticket, entry);
        self.waits(ticket, true);
        let event = PlacementEvent::Arrived {
            request: ticket,
            model,
            deadline,
        };
        self.tell(now, event, out);
    }

    /// A request ended elsewhere. One in a batch under way is forgotten once a device refuses the batch.
    pub(super) fn cancel(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        request: RequestId,
        out: &mut Vec<FleetCommand<T>>,
    ) {
        if let Some(entry) = self.take(now, worker, request, out) {
            out.push(forgotten(&entry.member));
        } else if let Some(ticket) = self.tickets.get(&(worker, request))
            && let Some(entry) = self.entries.get_mut(ticket)
        {
            entry.has_ended = true;
        }
    }

    /// Takes out a request that waits. One that executes goes on.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        request: RequestId,
        out: &mut Vec<FleetCommand<T>>,
    ) -> Option<FleetRequest<T>> {
        let ticket = *self.tickets.get(&(worker, request))?;
        self.entries.get(&ticket).filter(|entry| entry.is_waiting)?;
        let entry = self.remove(ticket)?;
        let event = PlacementEvent::Left {
            request: ticket,
            model: entry.model,
        };
        self.tell(now, event, out);
        Some(entry)
    }

    /// Takes out all requests that wait and are of that kind.
    pub(super) fn give_up(
        &mut self,
        now: Timestamp,
        is_given_up: impl Fn(&FleetRequest<T>) -> bool,
        out: &mut Vec<FleetCommand<T>>,
        mut say: impl FnMut(&mut Self, FleetRequest<T>, &mut Vec<FleetCommand<T>>),
    ) {
        let all = self.entries.values();
        let given_up = all.filter(|entry| is_given_up(entry));
        let given_up = given_up.map(|entry| (entry.member.worker, entry.member.request.id));
        for (worker, request) in given_up.collect::<Vec<_>>() {
            if let Some(entry) = self.take(now, worker, request, out) {
                say(self, entry, out);
            }
        }
    }

    pub(super) fn remove(&mut self, ticket: RequestId) -> Option<FleetRequest<T>> {
        self.waits(ticket, false);
        let entry = self.entries.swap_remove(&ticket)?;
        let member = &entry.member;
        self.tickets
            .swap_remove(&(member.worker, member.request.id));
        Some(entry)
    }

    /// Drops the waiting requests without an SLO whose time is over.
    pub(super) fn expire_background(&mut self, now: Timestamp, out: &mut Vec<FleetCommand<T>>) {
        while let Some(&(at, ticket)) = self.background_ends.first()
            && at <= now
        {
            let member = self.entries.get(&ticket).map(|entry| &entry.member);
            let Some((worker, request)) = member.map(|m| (m.worker, m.request.id)) else {
                return;
            };
            let Some(entry) = self.take(now, worker, request, out) else {
                return;
            };
            self.say_dropped(now, &entry.member, DropReason::Expired, out);
        }
    }
}
