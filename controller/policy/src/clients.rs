//! The rights of a pipeline's clients, and how much of its limits each client has used.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::clients::{ClientKey, Clients, Rights, Strangers};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Offered, Portion};

use crate::limits::{DEPTH, Limits, Reached, Used};
use crate::refusal::Refusal;
use crate::shares::{CLIENTS_MAX, ClientStream, Party};
use crate::sweep::Sweep;

/// A client with nothing in flight is forgotten after so long without a request: it has its full rate again ([`DEPTH`]), and what it
/// asked for has been reported.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3);
const _: () = assert!(FORGOTTEN_AFTER.as_nanos() >= DEPTH.as_nanos());

/// What a token says of its client's share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenShare {
    /// Its weight; `None`: as the pipeline says.
    pub weight: Option<f64>,
    /// Its class; `None`: as the pipeline says.
    pub class: Option<u8>,
    /// It has no SLO, whatever the pipeline says.
    pub background: bool,
}

/// The rights of clients, by key.
#[derive(Clone, Debug)]
pub struct RightsByKey {
    each: Rights,
    strangers: Strangers,
    named: IndexMap<ClientKey, Rights, FxBuildHasher>,
}

impl RightsByKey {
    /// The rights that a pipeline gives.
    pub fn new(clients: &Clients) -> Self {
        let named = clients.named.iter();
        RightsByKey {
            each: clients.each,
            strangers: clients.strangers,
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

    /// Whether any client may have no SLO, but for what its token says.
    pub fn any_background(&self) -> bool {
        self.each.background || self.named.values().any(|rights| rights.background)
    }

    /// A client with its rights. What its token says goes first. `token`: `None` where it has none of its own.
    pub fn party(
        &self,
        client: ClientKey,
        stream: ClientStream,
        token: Option<TokenShare>,
    ) -> Party {
        let rights = self.of(client);
        let is_known = token.is_some() || self.named.contains_key(&client);
        let token = token.unwrap_or_default();
        Party {
            client,
            stream,
            weight: token.weight.unwrap_or(rights.weight),
            stream_weight: 1.0,
            class: token.class.unwrap_or(rights.class),
            background: token.background || rights.background,
            may_be_stranger: !is_known && self.strangers == Strangers::Together,
        }
    }
}

/// A client with limits, and how much of them it uses.
struct Limited {
    used: Used,
    seen_at: Timestamp,
    weight: f64,
    class: u8,
    /// Requests since the last report, those over the limits included.
    asked: u64,
    /// The same a second, before the last report.
    before: f64,
    /// The part of the limits that is for this gateway, by where the client sends; `None`: unknown.
    part: Option<f64>,
}

/// The limits of clients. At most [`CLIENTS_MAX`] clients are told apart at a time; the others share one place.
///
/// Beside other gateways a client's limits are divided like its requests: each second the gateways tell where it sends
/// ([`crate::shares::exchange`]).
pub(crate) struct ClientLimits {
    rights: RightsByKey,
    clients: IndexMap<ClientKey, Limited, FxBuildHasher>,
    sweep: Sweep,
    /// The part of all requests that this gateway accepts: for clients of which nothing else is known.
    part: f64,
}

impl ClientLimits {
    /// The limits that a pipeline sets; `None`: it sets none.
    pub(crate) fn new(clients: &Clients) -> Option<Self> {
        let mut all = clients.named.values().chain([&clients.each]);
        all.any(Rights::are_limits).then(|| ClientLimits {
            rights: RightsByKey::new(clients),
            clients: IndexMap::default(),
            sweep: Sweep::default(),
            part: 1.0,
        })
    }

    /// Counts one more request of a client, in flight until [`Self::done`]. Returns whose place it takes, if it is limited.
    ///
    /// # Errors
    /// When the client may not send it.
    pub(crate) fn ask(
        &mut self,
        now: Timestamp,
        party: &Party,
    ) -> Result<Option<ClientKey>, Refusal> {
        let rights = *self.rights.of(party.client);
        if !rights.are_limits() {
            return Ok(None);
        }
        let has_room = self.clients.len() < CLIENTS_MAX;
        self.sweep.next(&mut self.clients, has_room, |client| {
            client.used.in_flight() == 0 && now.since(client.seen_at) >= FORGOTTEN_AFTER
        });
        let is_known = self.clients.contains_key(&party.client);
        let client = match is_known || self.clients.len() < CLIENTS_MAX {
            true => party.client,
            false => ClientKey::OTHERS,
        };
        let part = self.part;
        let limited = self.clients.entry(client).or_insert_with(|| Limited {
            used: Used::new(limits(&rights, part)),
            seen_at: now,
            weight: party.weight,
            class: party.class,
            asked: 0,
            before: 0.0,
            part: None,
        });
        limited.seen_at = now;
        limited.asked += 1;
        let limits = limits(&rights, limited.part.unwrap_or(part));
        limited.used.set(now, limits);
        limited.used.ask(now).map_err(|reached| match reached {
            Reached::Rate(here) => Refusal::ClientRate {
                rate: rights.rate.unwrap_or(here),
            },
            Reached::InFlight(here) => Refusal::ClientFull {
                limit: rights.in_flight.unwrap_or(here),
            },
        })?;
        Ok(Some(client))
    }

    /// Adds what limited clients asked for in the last `period` to a report of what clients asked for.
    pub(crate) fn report(&mut self, period: Duration, offered: &mut Vec<Offered>) {
        let places = offered.iter().enumerate();
        let places: IndexMap<ClientKey, usize, FxBuildHasher> =
            places.map(|(at, of)| (of.client, at)).collect();
        for (client, limited) in &mut self.clients {
            let now = std::mem::take(&mut limited.asked) as f64 / period.as_secs_f64();
            let asked = (std::mem::replace(&mut limited.before, now) + now) / 2.0;
            match places.get(client) {
                Some(at) => offered[*at].asked = asked,
                None => offered.push(Offered {
                    client: *client,
                    class: limited.class,
                    weight: limited.weight,
                    rate: 0.0,
                    asked,
                }),
            }
        }
    }

    /// Takes over which part of each client's requests come to this gateway; `None`: nothing is known.
    pub(crate) fn divide(&mut self, portion: Option<&Portion>) {
        for (key, limited) in &mut self.clients {
            limited.part = portion.and_then(|p| p.parts.get(key)).copied();
        }
    }

    /// This gateway accepts that part of all requests.
    pub(crate) fn set_part(&mut self, part: f64) {
        self.part = part;
    }

    /// A request in that place has ended.
    pub(crate) fn done(&mut self, client: ClientKey) {
        if let Some(limited) = self.clients.get_mut(&client) {
            limited.used.done();
        }
    }
}

/// A part of a client's limits. One request may always be in flight.
fn limits(rights: &Rights, part: f64) -> Limits {
    let of_in_flight = |limit: u32| ((f64::from(limit) * part) as u32).clamp(limit.min(1), limit);
    Limits {
        rate: rights.rate.map(|rate| rate * part),
        in_flight: rights.in_flight.map(of_in_flight),
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

    fn party(client: ClientKey) -> Party {
        Party {
            client,
            ..Party::ONLY
        }
    }

    #[test]
    fn a_client_keeps_its_own_limits_and_others_do_not_count() {
        let mut clients = Clients::equal();
        assert!(ClientLimits::new(&clients).is_none());
        clients.each = limited(None, Some(2));
        let fast = limited(Some(10.0), None);
        clients.named.insert("fast".to_owned(), fast);
        let mut limits = ClientLimits::new(&clients).unwrap();
        let (a, b, fast) = (ClientKey::of("a"), ClientKey(9), ClientKey::of("fast"));
        for _ in 0..2 {
            assert_eq!(limits.ask(at(0), &party(a)), Ok(Some(a)));
        }
        assert_eq!(
            limits.ask(at(0), &party(a)),
            Err(Refusal::ClientFull { limit: 2 })
        );
        assert_eq!(limits.ask(at(0), &party(b)), Ok(Some(b)));
        limits.done(a);
        assert_eq!(limits.ask(at(0), &party(a)), Ok(Some(a)));
        let passed = (0..30)
            .filter(|_| limits.ask(at(0), &party(fast)).is_ok())
            .count();
        assert_eq!(passed, 10, "a second of its rate");
        let refused = limits.ask(at(0), &party(fast));
        assert_eq!(refused, Err(Refusal::ClientRate { rate: 10.0 }));
    }

    #[test]
    fn limits_are_divided_by_where_a_client_sends() {
        let mut clients = Clients::equal();
        clients.each = limited(Some(100.0), Some(40));
        let mut limits = ClientLimits::new(&clients).unwrap();
        let (a, b) = (party(ClientKey(1)), party(ClientKey(2)));
        let passed = |limits: &mut ClientLimits, ms, party: &Party| {
            (0..100)
                .filter(|_| limits.ask(at(ms), party).is_ok())
                .count()
        };
        limits.set_part(0.5);
        assert_eq!(passed(&mut limits, 0, &a), 20, "of what may be in flight");
        let mut offered = Vec::new();
        limits.report(Duration::from_secs(1), &mut offered);
        assert_eq!(offered[0].asked, 50.0, "nothing in the second before");
        let portion = Portion {
            rate: 0.0,
            parts: [(a.client, 0.25)].into_iter().collect(),
        };
        limits.divide(Some(&portion));
        (0..20).for_each(|_| limits.done(a.client));
        assert_eq!(passed(&mut limits, 100, &a), 10);
        assert_eq!(passed(&mut limits, 100, &b), 20, "nothing is known of it");
        (0..10).for_each(|_| limits.done(a.client));
        // A quarter of a second's rate is at hand, and ten of it are used.
        assert_eq!(passed(&mut limits, 100, &a), 10);
        (0..10).for_each(|_| limits.done(a.client));
        assert!(passed(&mut limits, 100, &a) <= 5);
    }

    #[test]
    fn memory_is_bounded_and_the_idle_are_forgotten() {
        let mut clients = Clients::equal();
        clients.each = limited(Some(1.0), Some(1));
        let mut limits = ClientLimits::new(&clients).unwrap();
        for i in 0..2 * CLIENTS_MAX as u64 {
            let _ = limits.ask(at(0), &party(ClientKey(i)));
        }
        assert_eq!(limits.clients.len(), CLIENTS_MAX + 1);
        for i in 0..=CLIENTS_MAX {
            let client = *limits.clients.get_index(i).unwrap().0;
            limits.done(client);
        }
        for i in 0..2 * CLIENTS_MAX as u64 {
            let _ = limits.ask(at(2000 + i), &party(ClientKey(u64::MAX - 1)));
        }
        assert!(limits.clients.len() <= 2, "it and the others");
    }
}
