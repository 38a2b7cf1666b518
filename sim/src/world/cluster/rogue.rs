//! A node that repeats old messages, speaks in the name of others and invents requests. Its peers ignore it.

use std::time::Duration;

use rand::Rng;
use spillgate_pipeline::id::{BatchId, DeviceId, GatewayId, Incarnation, RequestId, WorkerId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::request::{Drop, DropReason, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{
    Address, Arrival, Ask, Envelope, Filled, Finished, Message, ToController, ToDevice, ToGateway,
};

use crate::world::World;

/// So often a rogue says the same when it floods.
const FLOOD: usize = 50;

/// Ordinals of invented requests: no run accepts so many.
const INVENTED: u64 = 1 << 30;

impl World {
    /// A rogue node says something.
    pub(super) fn speak(&mut self, node: usize) -> Result<(), Violation> {
        let cluster = self.cluster();
        if cluster.nodes[node].is_down {
            return Ok(());
        }
        let Some(mut envelope) = self.old_or_invented(node) else {
            return Ok(());
        };
        let cluster = self.cluster();
        match cluster.rng.random_range(0..8) {
            0 => {
                // In the name of a role of another process.
                let other = cluster.rng.random_range(0..cluster.node_of.len());
                if let Some((role, of)) = cluster.node_of.get_index(other)
                    && *of != node
                {
                    envelope.from = *role;
                }
            }
            1 => envelope.incarnation = Incarnation(envelope.incarnation.0.wrapping_sub(1)),
            _ => {}
        }
        let n = match cluster.rng.random_range(0..8) {
            0 => FLOOD,
            _ => 1,
        };
        if let Message::Device(message) = &envelope.message {
            let ids = message.requests().into_iter().map(|(_, id)| (id, ()));
            cluster.repeated.extend(ids);
        }
        cluster.report.rogue += n as u64;
        let to = cluster.node_of[&envelope.to];
        for _ in 0..n {
            self.transmit(node, to, envelope.clone())?;
        }
        Ok(())
    }

    fn old_or_invented(&mut self, node: usize) -> Option<Envelope<()>> {
        let cluster = self.cluster();
        let n_sent = cluster.nodes[node].sent.len();
        if n_sent > 0 && cluster.rng.random() {
            let old = cluster.rng.random_range(0..n_sent);
            return cluster.nodes[node].sent.get(old).cloned();
        }
        let roles = &cluster.nodes[node].roles;
        let from = roles[cluster.rng.random_range(0..roles.len())];
        let other = cluster.rng.random_range(0..cluster.node_of.len());
        let (&to, &to_node) = cluster.node_of.get_index(other)?;
        if to_node == node || !from.speaks_to(to) {
            return None;
        }
        let incarnation = cluster.nodes[node].life;
        let message = self.invent(from, to)?;
        Some(Envelope {
            from,
            incarnation,
            to,
            message,
        })
    }

    fn invent(&mut self, from: Address, to: Address) -> Option<Message<()>> {
        let places = self.places.clone();
        let now = self.clock(from).read(self.now);
        let cluster = self.cluster();
        let worker = WorkerId(cluster.rng.random_range(0..places.len()) as u32);
        let message = match (from, to) {
            (Address::Device(device), Address::Gateway(owner)) => {
                Message::Gateway(self.invent_answer(device, owner, worker, now))
            }
            (Address::Device(_), Address::Controller(_)) => {
                Message::Controller(ToController::Loaded(worker, cluster.rng.random()))
            }
            (Address::Gateway(owner), Address::Device(_)) => {
                // Of its own or of another gateway.
                let other = GatewayId(cluster.rng.random_range(0..cluster.n_accepted.len()) as u16);
                let of = if cluster.rng.random() { owner } else { other };
                let ordinal = INVENTED + cluster.rng.random_range(0..INVENTED);
                let request = Request::new(
                    RequestId::at(of, Incarnation(0), ordinal),
                    now,
                    now + self.config.pipeline.slo,
                );
                let payload = ();
                Message::Device(ToDevice::Requests(vec![Arrival {
                    worker,
                    request,
                    payload,
                }]))
            }
            (Address::Gateway(_), Address::Controller(_)) => {
                Message::Controller(ToController::Loaded(worker, true))
            }
            (Address::Controller(_), Address::Gateway(_)) => {
                Message::Gateway(ToGateway::Retire(worker))
            }
            (Address::Controller(_), Address::Device(_)) => Message::Device(ToDevice::Load(worker)),
            _ => return None,
        };
        // A worker of its own is its to speak of: retiring it is no lie, and loading it takes its device.
        let place = places[worker.idx()];
        let is_its_own = from == Address::Controller(place.module);
        (!is_its_own).then_some(message)
    }

    /// An answer for a request that may be open.
    fn invent_answer(
        &mut self,
        device: DeviceId,
        owner: GatewayId,
        worker: WorkerId,
        now: Timestamp,
    ) -> ToGateway {
        let life = self.gateways[owner.idx()].life.incarnation;
        let cluster = self.cluster();
        let n = cluster.n_accepted[owner.idx()];
        // One of the latest: others have ended.
        let ordinal = n.saturating_sub(cluster.rng.random_range(1..16));
        let request = RequestId::at(owner, life, ordinal);
        let is_finished = cluster.rng.random();
        let batch = BatchId(cluster.rng.random_range(0..1000));
        if is_finished {
            cluster.lies.insert((device, request), ());
            return ToGateway::Finished {
                worker,
                batch,
                took: Duration::ZERO,
                size: 1,
                members: vec![Finished {
                    request,
                    result: Ok(Filled::ALL),
                }],
            };
        }
        if batch.0.is_multiple_of(2) {
            return ToGateway::Ask(lie(worker, batch.0, now));
        }
        let module = self.places[worker.idx()].module;
        let drop = Box::new(Drop {
            module,
            reason: DropReason::Expired,
            at: now,
            budget: now.budget_at(now),
            estimate: None,
        });
        ToGateway::Dropped {
            worker,
            request,
            drop,
        }
    }
}

/// What a worker asks for that lies about when it begins and what waits elsewhere. The number draws it.
fn lie(worker: WorkerId, number: u64, now: Timestamp) -> Ask {
    let soon = now + Duration::from_millis(number);
    Ask {
        worker,
        serial: number * 1000,
        most: number as u32,
        elsewhere: number as u32 * 1000,
        starts_at: soon,
        until: number.is_multiple_of(4).then_some(soon),
    }
}
