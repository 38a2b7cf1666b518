//! Admission of connections at a gateway: which connections it keeps when more come than it has places for.
//!
//! A connection gives way to a new one if it never had a call, or had none in progress for a while. Of these the
//! longest idle one goes first, among those of the address that has the most connections. The new connection is
//! turned away only where every place is in use. So connections that are merely held open keep no other client out.
//!
//! A connection is also closed without a new one when it is idle for long, when its client does not read its answers,
//! or when its stream brings nothing. One that has its age retires: its client makes another one, and finds the gateways
//! that there are by then.

use std::hash::Hash;
use std::time::Duration;

use indexmap::IndexMap;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::time::Timestamp;

/// A connection that is used again within this time was not idle, so clients that send one request after the other
/// keep theirs.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// A connection with calls gives way, too, when nothing was sent or answered on it for this long.
const SILENT_MIN: Duration = Duration::from_secs(10);

/// A connection retires at most this part of the age sooner or later, so that those that came together do not leave together.
const AGE_JITTER: f64 = 0.1;
/// Streams of a connection that retired end this much later: short ones have ended by themselves by then.
pub const AGE_GRACE: Duration = Duration::from_secs(10);

/// Bounds of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most connections.
    pub connections: usize,
    /// Most connections from one address.
    pub per_address: usize,
    /// A connection without a call is closed after this time.
    pub idle: Duration,
    /// A connection is closed when its stream brings no message for this long and nothing is under way for it.
    pub silent: Duration,
    /// A connection is closed when its client leaves an answer unread for this long.
    pub unread: Duration,
    /// A connection retires at this age, a little sooner or later; `None`: never.
    pub age: Option<Duration>,
}

/// A connection's number, unique at its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// How a connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Its calls in progress.
    pub calls: usize,
    /// It has had a call.
    pub was_used: bool,
    /// Time of its last message or read answer.
    pub active_at: Timestamp,
    /// Since when the oldest of its unread answers waits, if there is one.
    pub unread_since: Option<Timestamp>,
}

/// The decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It gets a free place.
    Admitted(ConnectionId),
    /// It gets the place of this connection, which is to be closed.
    Replaces(ConnectionId, ConnectionId),
    /// There is no place.
    Full,
}

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It has had no call for too long.
    Idle,
    /// Its streams bring nothing.
    Silent,
    /// Its client does not read answers.
    Unread,
}

/// What is to be done with a connection that has its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aged {
    /// It takes no new calls.
    Retires,
    /// Its streams end, too.
    StreamsEnd,
}

struct Connection<A> {
    address: A,
    /// What is done next, and when.
    ageing: Option<(Timestamp, Aged)>,
}

/// The connections of a gateway.
pub struct ConnectionAdmission<A> {
    limits: ConnectionLimits,
    rng: ChaCha8Rng,
    next: u64,
    connections: IndexMap<ConnectionId, Connection<A>, FxBuildHasher>,
    counts: IndexMap<A, usize, FxBuildHasher>,
}

impl<A: Copy + Eq + Hash> ConnectionAdmission<A> {
    /// No connections yet. The seed decides by how much each retires sooner or later.
    pub fn new(limits: ConnectionLimits, seed: u64) -> Self {
        ConnectionAdmission {
            limits,
            rng: ChaCha8Rng::seed_from_u64(seed),
            next: 0,
            connections: IndexMap::default(),
            counts: IndexMap::default(),
        }
    }

    /// Connections that have a place.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Decides about a new connection. `uses` says how the others are used.
    pub fn admit(
        &mut self,
        now: Timestamp,
        address: A,
        uses: impl Fn(ConnectionId) -> Use,
    ) -> Admission {
        let of_address = self.counts.get(&address).copied().unwrap_or(0);
        let gives_way = if of_address >= self.limits.per_address {
            self.idlest(now, address, &uses)
        } else if self.len() >= self.limits.connections {
            self.idlest_of_most(now, Some(address), &uses)
        } else {
            return Admission::Admitted(self.enter(now, address));
        };
        match gives_way {
            Some(other) => {
                self.left(other);
                Admission::Replaces(self.enter(now, address), other)
            }
            None => Admission::Full,
        }
    }

    /// The connection that is to be closed because the process has no descriptor for a new one, if one is idle.
    pub fn give_way(
        &mut self,
        now: Timestamp,
        uses: impl Fn(ConnectionId) -> Use,
    ) -> Option<ConnectionId> {
        let idlest = self.idlest_of_most(now, None, &uses)?;
        self.left(idlest);
        Some(idlest)
    }

    /// A connection has ended. One that had to give way has left already.
    pub fn left(&mut self, id: ConnectionId) {
        let Some(Connection { address, .. }) = self.connections.swap_remove(&id) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.counts.swap_remove(&address);
            }
        }
    }

    /// Connections that are to be closed now, whether new ones come or not.
    pub fn sweep(
        &self,
        now: Timestamp,
        uses: impl Fn(ConnectionId) -> Use,
    ) -> Vec<(ConnectionId, Closing)> {
        let closing = |id: &ConnectionId| {
            let Use {
                calls,
                active_at,
                unread_since,
                ..
            } = uses(*id);
            let quiet = now.since(active_at);
            let why = if unread_since.is_some_and(|since| now.since(since) > self.limits.unread) {
                Closing::Unread
            } else if calls == 0 && quiet > self.limits.idle {
                Closing::Idle
            } else if calls > 0 && quiet > self.limits.silent {
                Closing::Silent
            } else {
                return None;
            };
            Some((*id, why))
        };
        self.connections.keys().filter_map(closing).collect()
    }

    /// Connections that have their age, and what is to be done with them now. Each step is told once.
    pub fn age(&mut self, now: Timestamp) -> Vec<(ConnectionId, Aged)> {
        let mut aged = Vec::new();
        for (id, connection) in &mut self.connections {
            let Some((_, what)) = connection.ageing.filter(|(at, _)| *at <= now) else {
                continue;
            };
            connection.ageing = match what {
                Aged::Retires => Some((now + AGE_GRACE, Aged::StreamsEnd)),
                Aged::StreamsEnd => None,
            };
            aged.push((*id, what));
        }
        aged
    }

    fn enter(&mut self, now: Timestamp, address: A) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        let ageing = self.limits.age.map(|age| {
            let jitter = self.rng.random_range(1.0 - AGE_JITTER..=1.0 + AGE_JITTER);
            (now + age.mul_f64(jitter), Aged::Retires)
        });
        self.connections.insert(id, Connection { address, ageing });
        *self.counts.entry(address).or_default() += 1;
        id
    }

    /// The connection of that address that gives way first.
    fn idlest(
        &self,
        now: Timestamp,
        address: A,
        uses: &impl Fn(ConnectionId) -> Use,
    ) -> Option<ConnectionId> {
        let of_address = self
            .connections
            .iter()
            .filter(|(_, i)| i.address == address);
        let may = of_address.filter_map(|(&id, _)| {
            let Use {
                calls,
                was_used,
                active_at,
                ..
            } = uses(id);
            let least = match calls {
                0 if !was_used => Duration::ZERO,
                0 => IDLE_MIN,
                _ => SILENT_MIN,
            };
            let is_idle = now.since(active_at) >= least;
            is_idle.then_some((calls > 0, was_used, active_at, id))
        });
        may.min().map(|(_, _, _, id)| id)
    }

    /// The same, of the address with the most connections that has one. An address gives way only if it has at least
    /// as many connections as the address of the new one, where that is known, would then have.
    fn idlest_of_most(
        &self,
        now: Timestamp,
        address: Option<A>,
        uses: &impl Fn(ConnectionId) -> Use,
    ) -> Option<ConnectionId> {
        let own = address.and_then(|a| self.counts.get(&a)).copied();
        let own = own.unwrap_or(0);
        let mut most: Vec<(usize, A)> = self
            .counts
            .iter()
            .map(|(a, count)| (*count, *a))
            .filter(|(count, a)| Some(*a) == address || *count > own)
            .collect();
        most.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        most.into_iter()
            .find_map(|(_, a)| self.idlest(now, a, uses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        connections: 4,
        per_address: 3,
        idle: Duration::from_secs(600),
        silent: Duration::from_secs(300),
        unread: Duration::from_secs(30),
        age: None,
    };

    fn second(n: u64) -> Timestamp {
        Timestamp::from_ns(n * 1_000_000_000)
    }

    fn since(seconds: u64, calls: usize) -> Use {
        Use {
            calls,
            was_used: true,
            active_at: second(seconds),
            unread_since: None,
        }
    }

    fn come(admission: &mut ConnectionAdmission<u8>, address: u8) -> ConnectionId {
        match admission.admit(second(0), address, |_| since(0, 1)) {
            Admission::Admitted(id) => id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_is_idle_gives_way_and_of_the_address_with_the_most() {
        let mut admission = ConnectionAdmission::new(LIMITS, 0);
        let [a1, a2, a3] = [(); 3].map(|()| come(&mut admission, 1));
        let b = come(&mut admission, 2);
        // All have calls and are in use.
        assert_eq!(
            admission.admit(second(5), 3, |_| since(0, 1)),
            Admission::Full
        );
        // The one of the address that has fewer was idle for longer, and stays.
        let uses = |id| {
            since(
                if id == b {
                    0
                } else if id == a2 {
                    3
                } else {
                    4
                },
                0,
            )
        };
        let Admission::Replaces(c, gone) = admission.admit(second(10), 3, uses) else {
            panic!("there is one that is idle");
        };
        assert_eq!((gone, admission.len()), (a2, 4));
        admission.left(a2);
        assert_eq!(admission.len(), 4, "it left once");
        // A silent connection goes only when every connection of its address has a call.
        let uses = |id| if id == a1 { since(0, 1) } else { since(17, 0) };
        let decision = admission.admit(second(20), 3, uses);
        assert!(
            matches!(decision, Admission::Replaces(_, gone) if gone == a3),
            "{decision:?}"
        );
        let _ = c;
    }

    #[test]
    fn an_address_has_its_own_bound() {
        let mut admission = ConnectionAdmission::new(LIMITS, 0);
        let first = [(); 3].map(|()| come(&mut admission, 1))[0];
        assert_eq!(
            admission.admit(second(0), 1, |_| since(0, 0)),
            Admission::Full
        );
        let uses = |id| since(if id == first { 0 } else { 2 }, 0);
        let decision = admission.admit(second(2), 1, uses);
        assert!(
            matches!(decision, Admission::Replaces(_, gone) if gone == first),
            "{decision:?}"
        );
        come(&mut admission, 2);
    }

    #[test]
    fn a_connection_that_was_never_used_gives_way_at_once() {
        let mut admission = ConnectionAdmission::new(LIMITS, 0);
        let ids = [1, 1, 1, 2].map(|address| come(&mut admission, address));
        let uses = |id: ConnectionId| Use {
            was_used: id != ids[1],
            ..since(0, 0)
        };
        let decision = admission.admit(second(0), 1, uses);
        assert!(
            matches!(decision, Admission::Replaces(_, gone) if gone == ids[1]),
            "{decision:?}"
        );
    }

    #[test]
    fn without_a_descriptor_an_idle_connection_goes_and_a_used_one_does_not() {
        let mut admission = ConnectionAdmission::new(LIMITS, 0);
        let [a1, a2] = [(); 2].map(|()| come(&mut admission, 1));
        let b = come(&mut admission, 2);
        assert_eq!(admission.give_way(second(5), |_| since(0, 1)), None);
        let uses = |id| since(if id == a2 { 1 } else { 2 }, usize::from(id == a1));
        assert_eq!(admission.give_way(second(5), uses), Some(a2), "of the most");
        assert_eq!(admission.give_way(second(5), uses), Some(b));
        assert_eq!(admission.give_way(second(5), uses), None);
        assert_eq!(admission.len(), 1);
    }

    #[test]
    fn newcomers_of_an_address_do_not_push_out_those_of_smaller_ones() {
        let mut admission = ConnectionAdmission::new(LIMITS, 0);
        for address in [1, 1, 2, 3] {
            come(&mut admission, address);
        }
        // Its own two are in use; the idle ones belong to addresses with one each.
        let uses = |id: ConnectionId| since(0, usize::from(id.0 < 2));
        assert_eq!(admission.admit(second(5), 1, uses), Admission::Full);
        assert!(matches!(
            admission.admit(second(5), 2, uses),
            Admission::Replaces(..)
        ));
    }

    #[test]
    fn what_is_idle_silent_or_unread_for_long_is_closed() {
        let mut admission = ConnectionAdmission::new(LIMITS, 0);
        let ids = [1, 1, 2, 3].map(|address| come(&mut admission, address));
        let uses = |id: ConnectionId| match ids.iter().position(|i| *i == id) {
            Some(0) => since(0, 0),
            Some(1) => since(0, 2),
            Some(2) => Use {
                unread_since: Some(second(500)),
                ..since(525, 1)
            },
            _ => since(525, 1),
        };
        assert_eq!(admission.sweep(second(300), uses), []);
        assert_eq!(
            admission.sweep(second(530), uses),
            [(ids[1], Closing::Silent)]
        );
        let later = admission.sweep(second(601), uses);
        let expected = [
            (ids[0], Closing::Idle),
            (ids[1], Closing::Silent),
            (ids[2], Closing::Unread),
        ];
        assert_eq!(later, expected);
    }

    #[test]
    fn connections_retire_at_their_age_not_all_at_once_and_their_streams_end_later() {
        let limits = ConnectionLimits {
            connections: 64,
            per_address: 64,
            age: Some(Duration::from_secs(1000)),
            ..LIMITS
        };
        let steps_of = |seed| {
            let mut admission = ConnectionAdmission::new(limits, seed);
            for _ in 0..64 {
                come(&mut admission, 1);
            }
            let steps = (0..2000).map(second).flat_map(|now| {
                let aged = admission.age(now);
                aged.into_iter().map(move |(id, what)| (now, id, what))
            });
            steps.collect::<Vec<_>>()
        };
        let steps = steps_of(7);
        assert_eq!(steps, steps_of(7), "the seed decides");
        let of = |what| steps.iter().filter(move |(_, _, w)| *w == what);
        assert_eq!(
            (of(Aged::Retires).count(), of(Aged::StreamsEnd).count()),
            (64, 64)
        );
        for &(at, id, _) in of(Aged::Retires) {
            assert!((second(900)..=second(1101)).contains(&at), "{at:?}");
            assert!(steps.contains(&(at + AGE_GRACE, id, Aged::StreamsEnd)));
        }
        let mut times: Vec<_> = of(Aged::Retires).map(|(at, _, _)| *at).collect();
        times.dedup();
        assert!(times.len() > 32, "{times:?}");
    }
}
