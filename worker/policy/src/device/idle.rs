//! What a device does with its idle time: it runs finished requests again, then requests without an SLO.

use spillgate_pipeline::predict::{Action, ActionKind};
use spillgate_pipeline::time::Timestamp;

use super::running::Running;
use super::{Device, DeviceCommand, Rerun};
use crate::schedule::Lengths;

impl<T> Device<T> {
    /// Nothing runs and nothing waits but for requests without an SLO.
    fn is_idle(&self) -> bool {
        self.running.as_ref().is_none_or(|r| r.background)
            && self.workers.values().all(|b| b.in_time() == 0)
    }

    /// Runs a finished request again if there is nothing else to do but for requests without an SLO.
    pub(super) fn rerun(&mut self, now: Timestamp, out: &mut Vec<DeviceCommand<T>>) {
        if !self.is_idle() {
            self.profiler.busy(now);
            return;
        }
        self.profiler.idle(now);
        if self.running.is_some() {
            return;
        }
        let Some(candidate) = self.profiler.next(now) else {
            return;
        };
        if !self.is_there(now, candidate.worker, candidate.model) {
            // Its weights gave way. They are not read for a rerun.
            return;
        }
        let Some(broker) = self.workers.get(&candidate.worker) else {
            return;
        };
        let execution = broker.execution(candidate.model.variant, 1);
        let action = Action {
            kind: ActionKind::Rerun,
            ..Action::execute(broker.module(), 1)
        };
        let id = self.next_id();
        self.running = Some(Running {
            id,
            worker: candidate.worker,
            action,
            background: false,
            alone: Some(candidate.application),
            request: None,
            sampled: None,
            model: candidate.model,
            execution,
            lengths: Lengths::default(),
            reported_end: now + execution,
            expected_end: now + execution,
        });
        out.push(DeviceCommand::Rerun(Rerun {
            id,
            worker: candidate.worker,
            request: candidate.request,
            model: candidate.model,
            payload: candidate.payload,
        }));
    }

    /// Starts a batch of requests without an SLO if the device is free and has nothing else to do.
    pub(super) fn start_background(&mut self, now: Timestamp, out: &mut Vec<DeviceCommand<T>>) {
        let is_heard = self.asks.waits_until().is_none_or(|until| until <= now);
        if self.running.is_some() || !is_heard || !self.is_idle() {
            return;
        }
        let waiting = self.workers.iter_mut();
        let waiting = waiting.filter_map(|(&id, b)| Some((b.background_urgency()?, id, b)));
        let first = waiting.min_by_key(|(urgency, id, _)| (*urgency, *id));
        if let Some((_, worker, broker)) = first {
            let formed = broker.take_background(now);
            self.put(worker, formed, now, out);
        }
    }
}
