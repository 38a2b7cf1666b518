//! How a device asks gateways for requests, and hands back what its batch has no room for (dispatch `pull`).

use spillgate_pipeline::id::{GatewayId, RequestId, WeightsId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Answer, Ask, Lent, Returned, ToGateway};

use super::asks::Asks;
use super::{Device, DeviceCommand, drain_rejected};

impl<T> Device<T> {
    /// When gateways are to be asked for the batch behind the running one.
    pub(super) fn asks_at(&self) -> Option<Timestamp> {
        let running = self.running.as_ref()?;
        let waits = self.asks.is_open() || self.bound.is_some();
        if !self.pulls || waits || !self.takes_requests() {
            return None;
        }
        let ahead = self.lead + self.early(running) + self.asks.lead();
        Some(running.expected_end - ahead)
    }

    /// When an idle device waits for answers no more, or asks again.
    pub(super) fn is_heard_at(&self) -> Option<Timestamp> {
        let is_idle = self.running.is_none();
        let at = self.asks.waits_until().or(self.asks.renews_at());
        at.filter(|_| is_idle)
    }

    /// Asks gateways when it is time.
    pub(super) fn ask(&mut self, now: Timestamp, out: &mut Vec<DeviceCommand<T>>) {
        if !self.takes_requests() {
            self.close_asks(out);
            return;
        }
        if self.running.is_none() {
            let waits = self.asks.waits_until().is_some_and(|until| until > now);
            if waits {
                return;
            }
            // What came may have become no batch: it was dropped, or its scheduler waits for more.
            if self.asks.renews_at().is_none_or(|at| at <= now) {
                self.open_ask(now, None, out);
            }
        } else if self.asks_at().is_some_and(|at| at <= now) {
            self.open_ask(now, Some(self.free_at(now)), out);
        }
    }

    /// Asks all gateways. `free_at`: when the running batch ends; `None` for an idle device.
    fn open_ask(
        &mut self,
        now: Timestamp,
        free_at: Option<Timestamp>,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        let binds_at = free_at.map(|at| at - self.lead);
        let (gateways, workers) = (&self.gateways, &self.workers);
        let pulling = |gateway| {
            let pulling = workers.iter().filter(|(_, broker)| broker.pulls());
            let pulling = pulling.filter(move |(w, _)| gateways.knows(gateway, **w));
            pulling.map(move |(w, _)| (gateway, *w))
        };
        let all = gateways.ids().flat_map(pulling);
        let serial = self.asks.open(now, binds_at, all);
        for gateway in gateways.ids() {
            self.send_asks(gateway, serial, binds_at, free_at.unwrap_or(now), out);
        }
    }

    /// A gateway that greets hears of the ask that stands.
    pub(super) fn ask_newcomer(
        &mut self,
        now: Timestamp,
        gateway: GatewayId,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        if let Some(serial) = self.asks.standing() {
            self.send_asks(gateway, serial, None, now, out);
        }
    }

    fn send_asks(
        &self,
        gateway: GatewayId,
        serial: u64,
        binds_at: Option<Timestamp>,
        starts_at: Timestamp,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        let pulling = self.workers.iter().filter(|(_, broker)| broker.pulls());
        for (&worker, broker) in pulling.filter(|(w, _)| self.gateways.knows(gateway, **w)) {
            let message = ToGateway::Ask(Ask {
                worker,
                serial,
                most: broker.wanted(self.gateways.of(worker).count()),
                elsewhere: self.asks.elsewhere(gateway, worker),
                starts_at,
                until: binds_at.map(|at| at - self.asks.one_way(gateway)),
            });
            out.push(DeviceCommand::Tell {
                worker,
                gateway,
                message,
            });
        }
    }

    /// A gateway answers. What comes while no ask is open is handed back.
    pub(super) fn on_answer(
        &mut self,
        now: Timestamp,
        gateway: GatewayId,
        mut answer: Answer<T>,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        let worker = answer.worker;
        if !self.workers.contains_key(&worker) {
            return;
        }
        self.asks.answered(now, gateway, worker, answer.serial);
        self.asks.waits(gateway, worker, answer.waiting);
        if self.closed.is_none() && !self.asks.is_open() {
            let late = answer.requests.iter().map(|o| (o.request.id, o.since));
            let late = late.collect();
            give_back(&mut self.asks, worker, late, out);
            return;
        }
        if !answer.requests.is_empty() {
            self.asks.came(now, self.gateways.ids().len() > 1);
        }
        let cold = self.take_cold(now, &mut answer);
        let Some(broker) = self.workers.get_mut(&worker) else {
            return;
        };
        for (
            weights,
            Lent {
                request, payload, ..
            },
        ) in cold
        {
            broker.arrive_cold(now, weights, request, payload, &mut self.rejected);
        }
        let left = broker.offered(answer);
        give_back(&mut self.asks, worker, left, out);
        if let Some(reason) = self.closed {
            broker.reject_all(now, reason, &mut self.rejected);
        }
        drain_rejected(worker, &mut self.rejected, out);
    }

    /// Takes the requests out of an answer whose weights are not there.
    fn take_cold(&mut self, now: Timestamp, answer: &mut Answer<T>) -> Vec<(WeightsId, Lent<T>)> {
        let mut cold = Vec::new();
        if self.memory.is_some() {
            for lent in std::mem::take(&mut answer.requests) {
                match self.cold(now, answer.worker, &lent.request) {
                    Some(weights) => cold.push((weights, lent)),
                    None => answer.requests.push(lent),
                }
            }
        }
        cold
    }

    /// The batch is bound: nothing more is wanted, and what it has no room for goes back.
    pub(super) fn close_asks(&mut self, out: &mut Vec<DeviceCommand<T>>) {
        if !self.asks.is_open() {
            return;
        }
        let standing = self.asks.standing();
        self.asks.close();
        for (&worker, broker) in self.workers.iter_mut().filter(|(_, broker)| broker.pulls()) {
            if let Some(serial) = standing {
                let withdrawn = |gateway: GatewayId| DeviceCommand::Tell {
                    worker,
                    gateway,
                    message: ToGateway::Withdrawn(worker, serial),
                };
                out.extend(self.gateways.of(worker).map(withdrawn));
            }
            give_back(&mut self.asks, worker, broker.give_back(), out);
        }
    }
}

/// Hands requests back, each to its owner.
fn give_back<T>(
    asks: &mut Asks,
    worker: WorkerId,
    mut requests: Vec<(RequestId, Timestamp)>,
    out: &mut Vec<DeviceCommand<T>>,
) {
    requests.sort_by_key(|(id, _)| id.owner());
    let by_owner = || requests.chunk_by(|(a, _), (b, _)| a.owner() == b.owner());
    for of_owner in by_owner() {
        asks.go_back(of_owner[0].0.owner(), worker, of_owner.len());
    }
    for of_owner in by_owner() {
        let gateway = of_owner[0].0.owner();
        out.push(DeviceCommand::Tell {
            worker,
            gateway,
            message: ToGateway::Returned(Returned {
                worker,
                serial: asks.serial(),
                elsewhere: asks.elsewhere(gateway, worker),
                requests: of_owner.to_vec(),
            }),
        });
    }
}
