//! Clients of a workload: when each sends, and what the run gives to each.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexSet;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use spillgate_controller_policy::shares::water;
use spillgate_controller_policy::shares::{ClientStream, Party};
use spillgate_pipeline::clients::{Claim, ClientKey};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

use crate::draw::gap;

/// A client asks for more than its share when it asks for so many times what an equal share is.
const WANTS_MORE: f64 = 1.05;

/// A client, or several equal ones.
#[derive(Clone, Debug, PartialEq)]
pub struct SimClient {
    /// Its name; several equal ones get a number each.
    pub name: String,
    /// How many.
    pub count: u16,
    /// When it sends.
    pub sends: Sends,
    /// Requests a second, on average.
    pub rate: f64,
    /// Streams, or connections, that it takes in turn.
    pub streams: u16,
    /// Its weight.
    pub weight: f64,
    /// Its priority class.
    pub class: u8,
    /// The application that its requests name.
    pub application: String,
    /// How many times as long as planned its requests take at every module.
    pub takes: f64,
    /// It has no SLO.
    pub background: bool,
}

impl SimClient {
    /// One client with one stream and equal rights, which sends so many requests a second at random times.
    pub fn new(name: &str, rate: f64) -> Self {
        SimClient {
            name: name.to_owned(),
            count: 1,
            sends: Sends::Poisson,
            rate,
            streams: 1,
            weight: 1.0,
            class: 0,
            application: String::new(),
            takes: 1.0,
            background: false,
        }
    }
}

/// When a client sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sends {
    /// A Poisson process.
    Poisson,
    /// At equal distances, from a random moment on.
    Evenly,
    /// All requests of a second at once.
    Bursts,
    /// A Poisson process of twice the rate, every other second.
    Alternating,
}

/// Requests of clients, in order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientLoad {
    /// The clients.
    pub clients: Vec<Sender>,
    /// By request: its client and who that is at the entry.
    pub requests: Arc<[(u16, Party)]>,
}

/// A client of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Sender {
    /// Its name.
    pub name: String,
    /// What it asks for, in requests that take as long as planned.
    pub demand: Claim,
    /// The application that its requests name.
    pub application: Application,
    /// See [`SimClient::takes`].
    pub takes: f64,
    /// See [`SimClient::background`].
    pub background: bool,
}

/// What a run gives to a client.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Served {
    /// Its name.
    pub name: String,
    /// Requests that it sent.
    pub requests: u64,
    /// Completed in time; of a client without an SLO, completed.
    pub good: u64,
    /// good / requests.
    pub finish_rate: f64,
}

impl ClientLoad {
    /// The requests of these clients and their times. `as_one`: the entry cannot tell the clients apart.
    pub fn new(
        clients: &[SimClient],
        duration: Duration,
        seed: u64,
        as_one: bool,
    ) -> (ClientLoad, Vec<Timestamp>) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut senders = Vec::new();
        let mut applications: IndexSet<&str> = IndexSet::new();
        let mut all = Vec::new();
        for client in clients {
            let (application, _) = applications.insert_full(&client.application);
            for number in 0..client.count {
                let name = match client.count {
                    1 => client.name.clone(),
                    _ => format!("{}-{number}", client.name),
                };
                let idx = senders.len() as u16;
                let times = client.times(duration.as_secs_f64(), &mut rng);
                for (i, at) in times.into_iter().enumerate() {
                    let party = match as_one {
                        true => Party::ONLY,
                        false => client.party(&name, i),
                    };
                    all.push((at, idx, party));
                }
                senders.push(Sender {
                    name,
                    demand: Claim {
                        weight: client.weight,
                        rate: client.rate * client.takes,
                    },
                    application: Application(application as u16),
                    takes: client.takes,
                    background: client.background,
                });
            }
        }
        all.sort_by_key(|(at, idx, _)| (*at, *idx));
        let load = ClientLoad {
            clients: senders,
            requests: all.iter().map(|(_, idx, party)| (*idx, *party)).collect(),
        };
        (load, all.iter().map(|(at, ..)| *at).collect())
    }

    /// The client of a request; `None` for a request of none of them.
    pub(crate) fn sender(&self, request: usize) -> Option<&Sender> {
        let (client, _) = self.requests.get(request)?;
        self.clients.get(usize::from(*client))
    }

    /// What each client got, which is `good` requests in time.
    pub(crate) fn served(&self, good: &[u64]) -> Vec<Served> {
        let mut sent = vec![0u64; self.clients.len()];
        for (client, _) in self.requests.iter() {
            sent[usize::from(*client)] += 1;
        }
        let clients = self.clients.iter().zip(sent.iter().zip(good));
        let of = |(client, (&requests, &good)): (&Sender, (&u64, &u64))| Served {
            name: client.name.clone(),
            requests,
            good,
            finish_rate: good as f64 / requests.max(1) as f64,
        };
        clients.map(of).collect()
    }
}

impl SimClient {
    fn party(&self, name: &str, request: usize) -> Party {
        Party {
            client: ClientKey::of(name),
            stream: ClientStream(request as u64 % u64::from(self.streams)),
            weight: self.weight,
            stream_weight: 1.0,
            class: self.class,
            background: self.background,
            // Its clients are named.
            may_be_stranger: false,
        }
    }

    fn times(&self, end: f64, rng: &mut impl Rng) -> Vec<Timestamp> {
        let mut at = rng.random::<f64>();
        let mut times = Vec::new();
        loop {
            match self.sends {
                Sends::Poisson => at += gap(rng, self.rate),
                Sends::Evenly => at += 1.0 / self.rate,
                Sends::Bursts => at += 1.0,
                Sends::Alternating => {
                    at += gap(rng, 2.0 * self.rate);
                    if at as u64 % 2 == 1 {
                        at = at.ceil();
                    }
                }
            }
            if at >= end {
                return times;
            }
            let together = match self.sends {
                Sends::Bursts => self.rate.round() as usize,
                _ => 1,
            };
            let at = Timestamp::from_ns((at * 1e9) as u64);
            times.extend(std::iter::repeat_n(at, together));
        }
    }
}

/// Jain's index (1984) of the device time of good answers that clients got for their weight, over the clients that asked for
/// more than their share of all of it. Clients without an SLO share nothing. `None` when there are fewer than two.
pub fn jain(load: &ClientLoad, good: &[u64], duration: Duration) -> Option<f64> {
    let seconds = duration.as_secs_f64();
    let shares = || load.clients.iter().zip(good).filter(|(c, _)| !c.background);
    let demands: Vec<Claim> = shares().map(|(client, _)| client.demand).collect();
    let times: Vec<f64> = shares().map(|(c, good)| c.takes * *good as f64).collect();
    let all = times.iter().sum::<f64>() / seconds;
    let fair = water::fill(all, &demands);
    let more = (0..times.len()).filter(|i| demands[*i].rate > WANTS_MORE * fair[*i]);
    let got: Vec<f64> = more.map(|i| times[i] / demands[i].weight).collect();
    if got.len() < 2 {
        return None;
    }
    let sum: f64 = got.iter().sum();
    let squares: f64 = got.iter().map(|x| x * x).sum();
    Some(sum * sum / (got.len() as f64 * squares).max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, sends: Sends, rate: f64) -> SimClient {
        SimClient {
            sends,
            ..SimClient::new(name, rate)
        }
    }

    #[test]
    fn every_law_has_its_rate() {
        for sends in [
            Sends::Poisson,
            Sends::Evenly,
            Sends::Bursts,
            Sends::Alternating,
        ] {
            let of = [client("a", sends, 50.0)];
            let (load, times) = ClientLoad::new(&of, Duration::from_secs(100), 1, false);
            assert_eq!(load.requests.len(), times.len());
            assert!(times.is_sorted());
            assert!(
                (4700..5300).contains(&times.len()),
                "{sends:?}: {}",
                times.len()
            );
        }
    }

    #[test]
    fn streams_are_taken_in_turn_and_clients_have_names() {
        let mut of = client("camera", Sends::Evenly, 10.0);
        (of.count, of.streams) = (2, 3);
        let (load, _) = ClientLoad::new(&[of.clone()], Duration::from_secs(10), 1, false);
        let names: Vec<&str> = load
            .clients
            .iter()
            .map(|client| client.name.as_str())
            .collect();
        assert_eq!(names, ["camera-0", "camera-1"]);
        let streams = load.requests.iter().map(|(_, party)| party.stream.0);
        assert_eq!(streams.max(), Some(2));
        let (one, _) = ClientLoad::new(&[of], Duration::from_secs(10), 1, true);
        assert!(one.requests.iter().all(|(_, party)| *party == Party::ONLY));
    }

    #[test]
    fn the_index_is_of_those_who_want_more() {
        let of = [10.0, 100.0, 100.0].map(|rate| client("a", Sends::Poisson, rate));
        let (load, _) = ClientLoad::new(&of, Duration::from_secs(1), 1, false);
        let second = Duration::from_secs(1);
        assert_eq!(jain(&load, &[10, 20, 20], second), Some(1.0));
        let uneven = jain(&load, &[10, 40, 0], second).unwrap();
        assert!((uneven - 0.5).abs() < 1e-9);
        assert_eq!(jain(&load, &[10, 100, 100], second), None);
    }
}
