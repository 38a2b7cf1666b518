//! The rights of a pipeline's clients, and how much of its limits each client has used.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::clients::{ClientKey, Clients, Rights};
use spillgate_pipeline::time::Timestamp;

use crate::gate::Gate;
use crate::refusal::Refusal;
use crate::shares::{CLIENTS_MAX, Party, StreamKey};

/// The requests of this span of a client's rate may come at once. After as long without a request the client has its full
/// rate again, and can be forgotten.
const DEPTH: Duration = Duration::from_secs(1);
/// Clients that are looked at for a place when all places are taken.
const SWEPT_MAX: usize = 8;

/// What a token says of its client's share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenShare {
    /// Its weight; `None`: as the pipeline says.
    pub weight: Option<f64>,
    /// Its class; `None`: as the pipeline says.
    pub class: Option<u8>,
}

/// The rights of clients, by key.
#[derive(Clone, Debug)]
pub struct RightsByKey {
    each: Rights,
    named: IndexMap<ClientKey, Rights, FxBuildHasher>,
}

impl RightsByKey {
    /// The rights that a pipeline gives.
    pub fn new(clients: &Clients) -> Self {
        let named = clients.named.iter();
        RightsByKey {
            each: clients.each,
            named: named.map(|(n, r)| (ClientKey::of(n), *r)).collect(),
        }
    }

    /// The rights of a client.
    pub fn of(&self, client: ClientKey) -> &Rights {
        match self.named.is_empty() {
            true => &self.each,
            false => self.named.get(&client).unwrap_or(&self.each),
        }
    }

    /// A client with its rights. What its token says goes first.
    pub fn party(&self, client: ClientKey, stream: StreamKey, token: TokenShare) -> Party {
        let rights = self.of(client);
        Party {
            client,
            stream,
            weight: token.weight.unwrap_or(rights.weight),
            stream_weight: 1.0,
            class: token.class.unwrap_or(rights.class),
        }
    }
}

/// What a client has used.
struct Used {
    gate: Option<Gate>,
    in_flight: u32,
    seen_at: Timestamp,
}

/// The limits of clients. At most [`CLIENTS_MAX`] clients are told apart at a time; the others share one place.
pub(crate) struct Limits {
    rights: RightsByKey,
    used: IndexMap<ClientKey, Used, FxBuildHasher>,
    swept: usize,
}

impl Limits {
    /// The limits that a pipeline sets; `None`: it sets none.
    pub(crate) fn new(clients: &Clients) -> Option<Self> {
        let mut all = clients.named.values().chain([&clients.each]);
        all.any(Rights::are_limits).then(|| Limits {
            rights: RightsByKey::new(clients),
            used: IndexMap::default(),
            swept: 0,
        })
    }

    /// Counts one more request of a client, in flight until [`Self::done`]. Returns whose place it takes, if it is limited.
    ///
    /// # Errors
    /// When the client may not send it.
    pub(crate) fn ask(
        &mut self,
        now: Timestamp,
        client: ClientKey,
    ) -> Result<Option<ClientKey>, Refusal> {
        let rights = *self.rights.of(client);
        if !rights.are_limits() {
            return Ok(None);
        }
        self.sweep(now);
        let has_place = self.used.contains_key(&client) || self.used.len() < CLIENTS_MAX;
        let client = if has_place { client } else { ClientKey::OTHERS };
        let used = self.used.entry(client).or_insert_with(|| Used {
            gate: rights.rate.map(|rate| Gate::new(rate, DEPTH)),
            in_flight: 0,
            seen_at: now,
        });
        used.seen_at = now;
        // Checked before the rate: a request that is refused here uses none of the rate.
        if let Some(limit) = rights.in_flight
            && used.in_flight >= limit
        {
            return Err(Refusal::ClientFull { limit });
        }
        if let Some(gate) = &mut used.gate
            && !gate.pass(now)
        {
            return Err(Refusal::ClientRate { rate: gate.rate() });
        }
        used.in_flight += 1;
        Ok(Some(client))
    }

    /// A request in that place has ended.
    pub(crate) fn done(&mut self, client: ClientKey) {
        if let Some(used) = self.used.get_mut(&client) {
            used.in_flight = used.in_flight.saturating_sub(1);
        }
    }

    /// Forgets a client that has nothing in flight and its full rate.
    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..if self.used.len() < CLIENTS_MAX {
            1
        } else {
            SWEPT_MAX
        } {
            self.swept = (self.swept + 1) % self.used.len().max(1);
            let Some((_, used)) = self.used.get_index(self.swept) else {
                return;
            };
            if used.in_flight == 0 && now.since(used.seen_at) >= DEPTH {
                self.used.swap_remove_index(self.swept);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    fn limited(rate: Option<f64>, in_flight: Option<u32>) -> Rights {
        Rights {
            rate,
            in_flight,
            ..Rights::EQUAL
        }
    }

    #[test]
    fn a_client_keeps_its_own_limits_and_others_do_not_count() {
        let mut clients = Clients::equal();
        assert!(Limits::new(&clients).is_none());
        clients.each = limited(None, Some(2));
        let fast = limited(Some(10.0), None);
        clients.named.insert("fast".to_owned(), fast);
        let mut limits = Limits::new(&clients).unwrap();
        let (a, b, fast) = (ClientKey::of("a"), ClientKey(9), ClientKey::of("fast"));
        for _ in 0..2 {
            assert_eq!(limits.ask(at(0), a), Ok(Some(a)));
        }
        assert_eq!(limits.ask(at(0), a), Err(Refusal::ClientFull { limit: 2 }));
        assert_eq!(limits.ask(at(0), b), Ok(Some(b)));
        limits.done(a);
        assert_eq!(limits.ask(at(0), a), Ok(Some(a)));
        let passed = (0..30).filter(|_| limits.ask(at(0), fast).is_ok()).count();
        assert_eq!(passed, 10, "a second of its rate");
        let refused = limits.ask(at(0), fast);
        assert_eq!(refused, Err(Refusal::ClientRate { rate: 10.0 }));
    }

    #[test]
    fn memory_is_bounded_and_the_idle_are_forgotten() {
        let mut clients = Clients::equal();
        clients.each = limited(Some(1.0), Some(1));
        let mut limits = Limits::new(&clients).unwrap();
        for i in 0..2 * CLIENTS_MAX as u64 {
            let _ = limits.ask(at(0), ClientKey(i));
        }
        assert_eq!(limits.used.len(), CLIENTS_MAX + 1);
        for i in 0..=CLIENTS_MAX {
            let client = *limits.used.get_index(i).unwrap().0;
            limits.done(client);
        }
        for i in 0..2 * CLIENTS_MAX as u64 {
            let _ = limits.ask(at(2000 + i), ClientKey(u64::MAX - 1));
        }
        assert!(limits.used.len() <= 2, "it and the others");
    }
}
