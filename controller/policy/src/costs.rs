//! What requests cost: their time on the bottleneck, in requests of average cost. Shares count costs, so that clients share
//! the time of devices.
//!
//! A request is expected to cost what requests of its application cost on average, times how much those of its client differ
//! from that. The client's part finds a client that names a cheaper application than the one it uses.
//!
//! Devices report the time of a batch, not of a request. It is divided among the members in proportion to what each was
//! expected to cost. Repeated over batches of different members, this converges on what each costs, where times add up
//! (Richardson, JOSA 1972; Lucy, AJ 1974). Other batches than those of the planned size are compared with the plan's time for
//! their size, so that a request costs no more for being alone.
//!
//! Until something is known, every request is of average cost.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::schedule::{APPLICATIONS_MAX, Application};
use spillgate_pipeline::time::Timestamp;

use crate::shares::{CLIENTS_MAX, FORGOTTEN_AFTER};
use crate::sweep::Sweep;

/// How much the last request counts in an average.
const PART: f64 = 1.0 / 32.0;
/// Bounds of a cost: a request that skips the bottleneck costs a little, and no batch that hangs takes a client's share for
/// long.
const RANGE: (f64, f64) = (0.01, 100.0);

/// How much the requests of a client differ from those of the same application.
struct Client {
    factor: f64,
    seen_at: Timestamp,
}

/// The costs of a pipeline's requests, as one gateway saw them.
pub(crate) struct Costs {
    applications: [f64; APPLICATIONS_MAX],
    /// At most [`CLIENTS_MAX`]. The requests of others cost what their application does.
    clients: IndexMap<ClientKey, Client, FxBuildHasher>,
    sweep: Sweep,
}

impl Costs {
    /// Nothing is known.
    pub(crate) fn new() -> Self {
        Costs {
            applications: [1.0; APPLICATIONS_MAX],
            clients: IndexMap::default(),
            sweep: Sweep::default(),
        }
    }

    /// What a request is expected to cost.
    pub(crate) fn expected(&self, application: Application, client: ClientKey) -> f64 {
        let factor = self.clients.get(&client).map_or(1.0, |c| c.factor);
        (self.of(application) * factor).clamp(RANGE.0, RANGE.1)
    }

    /// A request cost so much. Returns it within bounds.
    pub(crate) fn learn(
        &mut self,
        now: Timestamp,
        application: Application,
        client: ClientKey,
        cost: f64,
    ) -> f64 {
        let cost = cost.clamp(RANGE.0, RANGE.1);
        let of = &mut self.applications[place(application)];
        let ratio = cost / *of;
        *of += PART * (cost - *of);
        let has_room = self.clients.len() < CLIENTS_MAX;
        self.sweep.next(&mut self.clients, has_room, |client| {
            now.since(client.seen_at) >= FORGOTTEN_AFTER
        });
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            return cost;
        }
        let known = self.clients.entry(client).or_insert(Client {
            factor: 1.0,
            seen_at: now,
        });
        known.factor += PART * (ratio - known.factor);
        known.seen_at = now;
        cost
    }

    /// An application's number stands for another one from now on.
    pub(crate) fn forget(&mut self, application: Application) {
        self.applications[place(application)] = 1.0;
    }

    fn of(&self, application: Application) -> f64 {
        self.applications[place(application)]
    }
}

fn place(application: Application) -> usize {
    application.idx().min(APPLICATIONS_MAX - 1)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Two clients, with requests of this application and true cost, in batches of random members. Returns what requests of
    /// each are expected to cost.
    fn learnt(clients: [(u16, f64); 2], size: usize) -> [f64; 2] {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut costs = Costs::new();
        let expected = |costs: &Costs, i: usize| {
            costs.expected(Application(clients[i].0), ClientKey(i as u64))
        };
        for _ in 0..4000 / size {
            let members: Vec<usize> = (0..size).map(|_| rng.random_range(0..2)).collect();
            let took: f64 = members.iter().map(|&i| clients[i].1).sum();
            let all: f64 = members.iter().map(|&i| expected(&costs, i)).sum();
            for i in members {
                let cost = took * expected(&costs, i) / all;
                let (application, client) = (Application(clients[i].0), ClientKey(i as u64));
                costs.learn(Timestamp::ZERO, application, client, cost);
            }
        }
        [0, 1].map(|i| expected(&costs, i))
    }

    #[test]
    fn costs_are_learnt_from_the_times_of_batches() {
        for size in [1, 2, 4, 8] {
            for applications in [[0, 1], [0, 0]] {
                let [cheap, dear] = [0.5, 1.5];
                let of = [(applications[0], cheap), (applications[1], dear)];
                let [a, b] = learnt(of, size);
                assert!((a / cheap - 1.0).abs() < 0.2, "{size}: {a}");
                assert!((b / dear - 1.0).abs() < 0.2, "{size}: {b}");
            }
        }
    }

    #[test]
    fn what_is_unknown_is_average_and_memory_is_bounded() {
        let mut costs = Costs::new();
        let (application, client) = (Application(3), ClientKey(1));
        assert_eq!(costs.expected(application, client), 1.0);
        for i in 0..2 * CLIENTS_MAX as u64 {
            costs.learn(Timestamp::ZERO, application, ClientKey(i), f64::INFINITY);
        }
        assert_eq!(costs.clients.len(), CLIENTS_MAX);
        assert!(costs.expected(application, client) > 10.0);
        costs.forget(application);
        assert_eq!(costs.expected(application, ClientKey(u64::MAX)), 1.0);
    }
}
