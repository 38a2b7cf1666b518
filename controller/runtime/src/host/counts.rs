//! Requests by client, for metrics: of each token, and of the other clients that send most; and by the names of streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller_policy::rollout::Outcomes;
use spillgate_pipeline::request::Outcome;

/// Clients without a token that are counted at a time. The one that sent least gives way to a new one.
pub const COUNTED_MAX: usize = 16;
/// Names of streams that are counted at a time: of all cameras at one gateway, in most places.
pub const STREAMS_COUNTED_MAX: usize = 64;

/// The name by which a client is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its name.
    pub name: Arc<str>,
    /// It is the name of a token, and always counted.
    pub is_token: bool,
}

/// The requests of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCount {
    /// Requests that it sent.
    pub requests: u64,
    /// Completed in time.
    pub good: u64,
    /// Refused.
    pub refused: u64,
}

/// What the requests of a pipeline came to, as a rollout judges them. Those whose end is their client's doing, and those without an SLO,
/// do not count.
#[derive(Debug, Default)]
pub(super) struct OutcomeCounts {
    in_time: AtomicU64,
    late: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl OutcomeCounts {
    /// A request with an SLO ended.
    pub(super) fn ended(&self, outcome: &Outcome) {
        if outcome.is_clients_doing() {
            return;
        }
        let count = match outcome {
            Outcome::Completed => &self.in_time,
            Outcome::Late => &self.late,
            Outcome::Dropped(_) => &self.dropped,
            Outcome::Failed { .. } => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// One was refused for want of capacity.
    pub(super) fn refused(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Outcomes {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Outcomes {
            in_time: read(&self.in_time),
            late: read(&self.late),
            dropped: read(&self.dropped),
            failed: read(&self.failed),
        }
    }
}

type Counts = IndexMap<Arc<str>, (ClientCount, u64), FxBuildHasher>;

/// The counts of one pipeline.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) clients: ClientCounts,
    /// By the names that clients gave their streams.
    pub(super) streams: ClientCounts,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            clients: ClientCounts::of_others(COUNTED_MAX),
            streams: ClientCounts::of_others(STREAMS_COUNTED_MAX),
        }
    }
}

impl Tally {
    /// A client sent a request on a stream of this name, which may be empty.
    pub(super) fn sent(&mut self, client: &Counted, stream: &Arc<str>, was_refused: bool) {
        self.clients
            .sent(&client.name, client.is_token, was_refused);
        if !stream.is_empty() {
            self.streams.sent(stream, false, was_refused);
        }
    }

    /// Such a request was completed in time.
    pub(super) fn completed(&mut self, client: &Counted, stream: &Arc<str>) {
        self.clients.completed(&client.name, client.is_token);
        self.streams.completed(stream, false);
    }
}

/// What senders sent and got, by name.
#[derive(Debug)]
pub(super) struct ClientCounts {
    others_max: usize,
    tokens: Counts,
    /// With the bound of what each may have sent: space-saving (Metwally, Agrawal and El Abbadi, ICDT 2005).
    others: Counts,
}

impl ClientCounts {
    /// So many that are no tokens are counted at a time.
    fn of_others(others_max: usize) -> Self {
        ClientCounts {
            others_max,
            tokens: Counts::default(),
            others: Counts::default(),
        }
    }

    /// A client sent a request.
    fn sent(&mut self, name: &Arc<str>, is_token: bool, was_refused: bool) {
        let counts = match is_token {
            true => &mut self.tokens,
            false => &mut self.others,
        };
        let is_new = !counts.contains_key(name);
        let mut seen = 0;
        if is_new
            && !is_token
            && counts.len() >= self.others_max
            && let Some((at, least)) = least(counts)
        {
            counts.swap_remove_index(at);
            seen = least;
        }
        // Nothing is allocated for a client that is counted already.
        let count = match counts.get_mut(name) {
            Some(count) => count,
            None => counts
                .entry(name.clone())
                .or_insert((ClientCount::default(), seen)),
        };
        count.1 += 1;
        count.0.requests += 1;
        count.0.refused += u64::from(was_refused);
    }

    /// A request of a client was completed in time.
    fn completed(&mut self, name: &Arc<str>, is_token: bool) {
        let counts = match is_token {
            true => &mut self.tokens,
            false => &mut self.others,
        };
        if let Some((count, _)) = counts.get_mut(name) {
            count.good += 1;
        }
    }

    /// All counts, by name.
    pub(super) fn all(&self) -> Vec<(Arc<str>, ClientCount)> {
        let all = self.tokens.iter().chain(&self.others);
        all.map(|(name, (count, _))| (name.clone(), count.clone()))
            .collect()
    }
}

/// The client that may have sent least.
fn least(counts: &Counts) -> Option<(usize, u64)> {
    let seen = counts.values().map(|(_, seen)| *seen).enumerate();
    seen.min_by_key(|(_, seen)| *seen)
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::id::ModuleId;

    use super::*;

    fn client(name: &str, is_token: bool) -> Counted {
        Counted {
            name: name.into(),
            is_token,
        }
    }

    #[test]
    fn the_heaviest_clients_and_all_tokens_are_counted_and_streams_by_name() {
        let mut tally = Tally::default();
        let heavy = client("10.0.0.1", false);
        let none: Arc<str> = "".into();
        let gate: Arc<str> = "gate".into();
        for i in 0..10_000 {
            tally.sent(&heavy, &gate, i % 2 == 0);
            let light = client(&format!("10.1.{}.{}", i / 250, i % 250), false);
            tally.sent(&light, &format!("camera-{i}").into(), false);
            tally.sent(&client(&format!("camera-{}", i % 100), true), &none, false);
        }
        tally.completed(&heavy, &gate);
        tally.completed(&client("unknown", false), &none);
        let expected = ClientCount {
            requests: 10_000,
            good: 1,
            refused: 5_000,
        };
        let clients = tally.clients.all();
        assert_eq!(clients.len(), 100 + COUNTED_MAX);
        let streams = tally.streams.all();
        assert_eq!(streams.len(), STREAMS_COUNTED_MAX);
        for (all, name) in [(clients, heavy.name), (streams, gate)] {
            let of = all.iter().find(|(of, _)| *of == name);
            assert_eq!(of.unwrap().1, expected);
        }
    }

    #[test]
    fn what_a_client_did_is_not_counted_for_a_revision() {
        let counts = OutcomeCounts::default();
        counts.ended(&Outcome::Completed);
        counts.ended(&Outcome::Late);
        counts.ended(&Outcome::Failed {
            module: ModuleId(1),
        });
        counts.refused();
        // Its frame cannot be decoded.
        counts.ended(&Outcome::Failed {
            module: ModuleId::SOURCE,
        });
        let expected = Outcomes {
            in_time: 1,
            late: 1,
            dropped: 1,
            failed: 1,
        };
        assert_eq!(counts.read(), expected);
    }
}
