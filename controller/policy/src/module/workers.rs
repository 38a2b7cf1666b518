//! Which workers of a module take requests, and which gateways hear of it.

use spillgate_pipeline::id::DeviceId;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, BatchReport, Message, Place, ToGateway};

use super::{ControllerCommand, ModuleController};
use crate::scaling::{ModuleScaling, Scaler};

/// A worker as its controller sees it.
pub(super) struct Worker {
    pub(super) place: Place,
    /// It is to take requests.
    pub(super) serves: bool,
    /// Its device has greeted this controller since it began.
    pub(super) is_known: bool,
    /// Its device is gone.
    pub(super) is_lost: bool,
    /// Its device is silent.
    pub(super) is_suspected: bool,
}

impl Worker {
    /// A worker that is to serve, of whose device nothing has been heard.
    pub(super) fn new(place: Place) -> Self {
        Worker {
            place,
            serves: true,
            is_known: false,
            is_lost: false,
            is_suspected: false,
        }
    }

    /// It takes requests, as long as it is not set aside.
    fn is_up(&self) -> bool {
        self.serves && self.is_known && !self.is_suspected
    }
}

impl ModuleController {
    /// Workers join. Where workers follow the load in one process, that process has all of them from the start.
    pub(super) fn join(&mut self, places: &[Place]) {
        for &place in places.iter().filter(|p| p.module == self.module) {
            if self.local.is_none() && self.ordinal_of(place.worker).is_none() {
                self.workers.push(Worker::new(place));
                self.slow.join();
            }
        }
        self.want_all();
    }

    /// A device is none of the pipeline's any more.
    pub(super) fn forget<L>(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        self.lost(now, Address::Device(device), out);
        if self.local.is_some() {
            return;
        }
        while let Some(&ordinal) = self.ordinals_on(device).first() {
            self.workers.swap_remove(ordinal as usize);
            self.slow.swap_remove(ordinal as usize);
        }
        self.planner.set_workers(self.n_up());
        self.want_all();
    }

    /// A number that does not follow the load is that of the workers that there are.
    fn want_all(&mut self) {
        if self.scales_at.is_none() {
            let fixed = ModuleScaling::fixed(self.workers.len() as u32);
            self.scaler = Scaler::new(fixed, self.born);
        }
    }

    /// A worker takes requests from now on, or no more. One that is set aside takes none.
    pub(super) fn serves<L>(
        &mut self,
        ordinal: u32,
        serves: bool,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        self.workers[ordinal as usize].serves = serves;
        self.list(ordinal as usize, out);
        self.spare_nobody(out);
    }

    /// A device ran a batch. Those of a worker that is set aside say nothing of its fellows.
    pub(super) fn ran<L>(
        &mut self,
        now: Timestamp,
        report: &BatchReport,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        let Some(ordinal) = self.ordinal_of(report.worker).map(|o| o as usize) else {
            return;
        };
        if !self.slow.is_aside(ordinal) {
            self.planner.batch(now, report);
        }
        let Some(ratio) = self.planner.ratio(report) else {
            return;
        };
        let workers = &self.workers;
        if self.slow.ran(now, ordinal, ratio, |o| workers[o].is_up()) {
            self.list(ordinal, out);
            self.spare_nobody(out);
        }
    }

    /// Has workers that are set aside serve one request each: of another gateway each time.
    pub(super) fn try_out<L>(&mut self, now: Timestamp, out: &mut Vec<ControllerCommand<L>>) {
        for ordinal in self.slow.trials(now) {
            if self.gateways.is_empty() || !self.workers[ordinal].serves {
                continue;
            }
            let gateway = self.gateways[self.tries_with % self.gateways.len()];
            self.tries_with += 1;
            let trial = ToGateway::Try(self.workers[ordinal].place.worker);
            self.send(Address::Gateway(gateway), Message::Gateway(trial), out);
        }
    }

    /// What gateways are to know of a worker.
    pub(super) fn listed(&self, ordinal: usize) -> ToGateway {
        let Worker { place, serves, .. } = self.workers[ordinal];
        match serves && !self.slow.is_aside(ordinal) {
            true => ToGateway::Serve(place.worker),
            false => ToGateway::Retire(place.worker),
        }
    }

    /// A device is silent, or speaks again. Gateways have sessions of their own with it, so they are told nothing.
    pub(super) fn doubt<L>(
        &mut self,
        peer: Address,
        is_suspected: bool,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        let Address::Device(device) = peer else {
            return;
        };
        for ordinal in self.ordinals_on(device) {
            self.workers[ordinal as usize].is_suspected = is_suspected;
        }
        self.planner.set_workers(self.n_up());
        self.spare_nobody(out);
    }

    /// Workers that take requests: their devices have greeted and are not silent.
    pub(super) fn n_up(&self) -> usize {
        let takes = |&o: &usize| self.workers[o].is_up() && !self.slow.is_aside(o);
        (0..self.workers.len()).filter(takes).count()
    }

    /// All workers that it heard of are silent or gone. They may all be dead, which gateways find out by themselves; or nothing
    /// reaches this controller, and what it would say of the workers is wrong. Either way it says nothing: its guidance ages.
    pub(super) fn hears_no_worker(&self) -> bool {
        let is_missed = |w: &Worker| w.is_lost || (w.is_known && w.is_suspected);
        self.n_up() == 0 && self.workers.iter().any(is_missed)
    }

    fn list<L>(&mut self, ordinal: usize, out: &mut Vec<ControllerCommand<L>>) {
        self.planner.set_workers(self.n_up());
        self.tell_gateways(&self.listed(ordinal), out);
    }

    /// A slow worker is better than none.
    pub(super) fn spare_nobody<L>(&mut self, out: &mut Vec<ControllerCommand<L>>) {
        if self.n_up() > 0 {
            return;
        }
        for ordinal in 0..self.workers.len() {
            if self.slow.forget(ordinal) {
                self.list(ordinal, out);
            }
        }
    }
}
