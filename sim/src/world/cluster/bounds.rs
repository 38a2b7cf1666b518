//! What the invariants look at in a cluster: who ran what, and how much each node holds.

use std::time::Duration;

use spillgate_pipeline::id::{BatchId, DeviceId, GatewayId, RequestId, WorkerId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::request::Request;
use spillgate_protocol::message::{Address, Envelope, Message, ToDevice, ToGateway};

use crate::world::World;

/// An owner that is due to end a request may be busy: stalls last less.
const SLACK: Duration = Duration::from_secs(1);

/// Results are under way for less: a silent connection is closed before, and what it had is lost.
const UNDER_WAY_MAX: Duration = Duration::from_secs(10);

impl World {
    /// A gateway sends requests to a device. What it lends to a worker that asked may come back and be lent again.
    pub(super) fn count_sends(&mut self, envelope: &Envelope<()>) -> Result<(), Violation> {
        if let Message::Device(ToDevice::Requests(arrivals)) = &envelope.message {
            for arrival in arrivals {
                let module = self.places[arrival.worker.idx()].module;
                self.checker.sent(arrival.request.id, module)?;
            }
        }
        Ok(())
    }

    /// A gateway accepted a request: it ends by its deadline and grace.
    pub(in crate::world) fn must_end(&mut self, owner: GatewayId, request: &Request) {
        let deadline = self.clock(Address::Gateway(owner)).moment(request.deadline);
        let by = deadline + self.gateways[owner.idx()].policy.grace() + SLACK;
        self.checker.must_end(request.id, by);
    }

    /// Remembers which life of a gateway asked a device for requests, and hears results with that knowledge.
    pub(in crate::world) fn heed(&mut self, envelope: &Envelope<()>) -> Result<(), Violation> {
        match (&envelope.message, envelope.to, envelope.from) {
            (Message::Device(message), _, _) => {
                let asked = &mut self.cluster().asked;
                for brought in message.requests() {
                    asked.insert(brought, envelope.incarnation);
                }
            }
            (
                Message::Gateway(ToGateway::Finished {
                    worker,
                    batch,
                    members,
                    ..
                }),
                Address::Gateway(owner),
                Address::Device(device),
            ) => {
                let life = self.gateways[owner.idx()].life.incarnation;
                let ran = self.cluster().ran.get(&(device, *batch));
                let ran = ran.map(|(_, ran)| ran.clone()).unwrap_or_default();
                for member in members {
                    let at = self.gateways[owner.idx()]
                        .policy
                        .workers_with(member.request);
                    let is_lie = self.cluster().lies.contains_key(&(device, member.request));
                    // Else the gateway ignores it: the request is not there.
                    if at.contains(worker) && !is_lie {
                        let is_own = ran.contains(&(member.request, life));
                        self.checker.result(member.request, is_own)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A batch of a device ended.
    pub(in crate::world) fn note_ran(
        &mut self,
        device: DeviceId,
        (worker, batch): (WorkerId, BatchId),
        members: &[RequestId],
    ) {
        let now = self.now;
        let Some(cluster) = self.cluster.as_deref_mut() else {
            return;
        };
        let of = |id: &RequestId| Some((*id, cluster.asked.swap_remove(&(worker, *id))?));
        let ran = members.iter().filter_map(of).collect();
        cluster.ran.insert((device, batch), (now, ran));
        cluster.ended.push_back((now, (device, batch)));
        while let Some((at, key)) = cluster.ended.front().copied()
            && now.since(at) > UNDER_WAY_MAX
        {
            cluster.ended.pop_front();
            // A device that began anew counts its batches from 0 again.
            if cluster.ran.get(&key).is_some_and(|(ended, _)| *ended == at) {
                cluster.ran.swap_remove(&key);
            }
        }
    }

    /// The requests of a batch that count: those that a rogue sent once more do not.
    pub(in crate::world) fn counted(&self, ids: &[RequestId]) -> Vec<RequestId> {
        let repeated = self.cluster.as_ref().map(|cluster| &cluster.repeated);
        let counts = |id: &&RequestId| repeated.is_none_or(|r| !r.contains_key(*id));
        ids.iter().filter(counts).copied().collect()
    }

    /// The queues of a device are within their bounds.
    pub(in crate::world) fn check_device(&self, device: usize) -> Result<(), Violation> {
        if self.cluster.is_none() {
            return Ok(());
        }
        let device = &self.devices[device];
        for (worker, broker) in &device.brokers {
            let background = device.policy.waiting_in_background(*worker);
            let limit = broker.background;
            self.checker.bound("background queue", background, limit)?;
            let waiting = device.policy.waiting(*worker) - background;
            self.checker.bound("queue", waiting, broker.capacity)?;
        }
        let n_gateways = device.policy.gateways().len();
        self.checker
            .bound("gateways", n_gateways, self.gateways.len())
    }

    /// The tables of a gateway are within their bounds.
    pub(in crate::world) fn check_gateway(&self, owner: usize) -> Result<(), Violation> {
        if self.cluster.is_none() {
            return Ok(());
        }
        let policy = &self.gateways[owner].policy;
        let limits = &self.config.pipeline.limits;
        let n_modules = self.config.pipeline.modules.len();
        let (background, limit) = (policy.in_background(), limits.background());
        self.checker
            .bound("open in background", background, limit)?;
        let open = policy.in_flight() - background;
        self.checker.bound("open", open, limits.in_flight)?;
        let sent = policy.n_at_workers();
        let limit = policy.in_flight() * n_modules;
        self.checker.bound("at workers", sent, limit)?;
        self.checker
            .bound("duplicates", policy.n_duplicates(), limit)
    }
}
