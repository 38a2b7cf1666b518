//! The messages under way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use indexmap::IndexMap;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Envelope};

/// Longest jitter, in means: one message in half a billion would take longer.
const JITTER_MAX: f64 = 20.0;

/// The messages under way, by arrival.
pub(super) enum Travel {
    /// All travel equally long, so they arrive in the order in which they were sent.
    Equal {
        hop: Duration,
        under_way: VecDeque<(Timestamp, Envelope<()>)>,
    },
    /// Each takes the hop and an exponential time. A message does not overtake an earlier one between the same roles.
    Jittered(Box<Jittered>),
}

pub(super) struct Jittered {
    hop: Duration,
    mean: Duration,
    /// Draws of their own: the rest of a run is the same with and without jitter.
    rng: ChaCha8Rng,
    /// By sender and receiver: when the last message arrives.
    last: IndexMap<(Address, Address), Timestamp, FxBuildHasher>,
    under_way: BTreeMap<(Timestamp, u64), Envelope<()>>,
    sequence: u64,
}

impl Travel {
    /// Nothing is under way. `mean` is that of the jitter.
    pub(super) fn new(hop: Duration, mean: Duration, seed: u64) -> Self {
        if mean.is_zero() {
            return Travel::Equal {
                hop,
                under_way: VecDeque::new(),
            };
        }
        Travel::Jittered(Box::new(Jittered {
            hop,
            mean,
            rng: ChaCha8Rng::seed_from_u64(!seed),
            last: IndexMap::default(),
            under_way: BTreeMap::new(),
            sequence: 0,
        }))
    }

    /// The longest time that a message may take.
    pub(super) fn longest(&self) -> Duration {
        match self {
            Travel::Equal { hop, .. } => *hop,
            Travel::Jittered(jittered) => jittered.hop + jittered.mean.mul_f64(JITTER_MAX),
        }
    }

    /// Sends an envelope on its way.
    pub(super) fn send(&mut self, now: Timestamp, envelope: Envelope<()>) {
        match self {
            Travel::Equal { hop, under_way } => under_way.push_back((now + *hop, envelope)),
            Travel::Jittered(jittered) => jittered.send(now, envelope),
        }
    }

    /// When the next envelope arrives.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        match self {
            Travel::Equal { under_way, .. } => under_way.front().map(|(at, _)| *at),
            Travel::Jittered(jittered) => jittered.under_way.first_key_value().map(|(k, _)| k.0),
        }
    }

    /// Takes out the next envelope.
    pub(super) fn pop(&mut self) -> Option<Envelope<()>> {
        match self {
            Travel::Equal { under_way, .. } => under_way.pop_front().map(|(_, envelope)| envelope),
            Travel::Jittered(jittered) => jittered.under_way.pop_first().map(|(_, e)| e),
        }
    }
}

impl Jittered {
    fn send(&mut self, now: Timestamp, envelope: Envelope<()>) {
        let drawn = (-(1.0 - self.rng.random::<f64>()).ln()).min(JITTER_MAX);
        let at = now + self.hop + self.mean.mul_f64(drawn);
        let last = self.last.entry((envelope.from, envelope.to)).or_default();
        *last = at.max(*last);
        self.under_way.insert((*last, self.sequence), envelope);
        self.sequence += 1;
    }
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation};
    use spillgate_protocol::message::{Message, ToDevice};

    use super::*;

    fn envelope(from: u16, to: u16) -> Envelope<()> {
        Envelope {
            from: Address::Gateway(GatewayId(from)),
            incarnation: Incarnation(0),
            to: Address::Device(DeviceId(to)),
            message: Message::Device(ToDevice::Requests(Vec::new())),
        }
    }

    #[test]
    fn jitter_has_its_mean_and_keeps_the_order_of_a_connection() {
        let ms = Duration::from_millis;
        let mut travel = Travel::new(ms(1), ms(2), 7);
        // Connections of their own: the times are those that were drawn.
        for from in 0..5000 {
            travel.send(Timestamp::ZERO, envelope(from, 0));
        }
        let mut times = Vec::new();
        while let Some(at) = travel.next_at() {
            times.push(at.since(Timestamp::ZERO).as_secs_f64() * 1e3);
            travel.pop();
        }
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((mean - 3.0).abs() < 0.1, "{mean}");
        assert!(times.iter().all(|t| *t >= 1.0) && times.is_sorted());

        // One connection: in order.
        for sent in 0..100u32 {
            let incarnation = Incarnation(u64::from(sent));
            let envelope = Envelope {
                incarnation,
                ..envelope(0, 0)
            };
            travel.send(Timestamp::from_ns(u64::from(sent)), envelope);
        }
        let order: Vec<u64> = std::iter::from_fn(|| travel.pop())
            .map(|e| e.incarnation.0)
            .collect();
        assert!(order.is_sorted());
    }
}
