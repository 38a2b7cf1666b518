//! Which connections of a link port are kept. A peer that has not greeted is a stranger: it costs a place, and perhaps a
//! handshake. Strangers have few places for each host; once these are taken, a new one takes the place of another one of the host,
//! chosen at random. So one that opens connections without end takes no place from a process that has greeted, and seldom one from
//! a process that is about to: greeting takes milliseconds, and each new stranger ends any one of the others with a
//! probability of 1 in [`STRANGERS_MAX`] only.

use std::hash::Hash;

use indexmap::IndexMap;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxBuildHasher;

/// Most connections at a time: each of 1024 processes with one, while its last one ends and others are dialled in error.
pub const CONNECTIONS_MAX: usize = 4096;
/// Most connections of one host whose peers have not greeted. All processes of a machine that begin at the same time find room:
/// each needs its place for milliseconds, and is dialled again.
pub const STRANGERS_MAX: usize = 256;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Visitor(pub u64);

/// Whether a connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// It is.
    Come(Visitor),
    /// It is, and another one ends.
    Instead(Visitor, Visitor),
    /// It is not: all places are with peers that have greeted.
    Full,
}

/// The connections of a port. `H` is what hosts are told apart by.
#[derive(Debug)]
pub struct Entrance<H> {
    connections_max: usize,
    strangers_max: usize,
    next: u64,
    rng: ChaCha8Rng,
    /// The host of each connection, and whether its peer has greeted.
    open: IndexMap<Visitor, (H, bool), FxBuildHasher>,
    /// Those whose peers have not, by host. No list is empty.
    strangers: IndexMap<H, Vec<Visitor>, FxBuildHasher>,
}

impl<H: Copy + Eq + Hash> Entrance<H> {
    /// A port without connections.
    pub fn new(seed: u64) -> Self {
        Entrance::with_limits(seed, CONNECTIONS_MAX, STRANGERS_MAX)
    }

    fn with_limits(seed: u64, connections_max: usize, strangers_max: usize) -> Self {
        Entrance {
            connections_max,
            strangers_max,
            next: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            open: IndexMap::default(),
            strangers: IndexMap::default(),
        }
    }

    /// A host made a connection.
    pub fn knock(&mut self, host: H) -> Welcome {
        let of_host = self.strangers.get(&host).map_or(0, Vec::len);
        let crowded = if of_host >= self.strangers_max {
            Some(host)
        } else if self.open.len() >= self.connections_max {
            let most = self.strangers.iter().max_by_key(|(_, all)| all.len());
            let Some((crowded, _)) = most else {
                return Welcome::Full;
            };
            Some(*crowded)
        } else {
            None
        };
        let gone = crowded.and_then(|host| {
            let all = self.strangers.get(&host)?;
            let gone = all[self.rng.random_range(0..all.len())];
            self.left(gone);
            Some(gone)
        });
        let visitor = Visitor(self.next);
        self.next += 1;
        self.open.insert(visitor, (host, false));
        self.strangers.entry(host).or_default().push(visitor);
        match gone {
            Some(gone) => Welcome::Instead(visitor, gone),
            None => Welcome::Come(visitor),
        }
    }

    /// The peer of a connection greeted, and has a session.
    pub fn greeted(&mut self, visitor: Visitor) {
        let Some((host, has_greeted)) = self.open.get_mut(&visitor) else {
            return;
        };
        if !std::mem::replace(has_greeted, true) {
            let host = *host;
            self.forget(host, visitor);
        }
    }

    /// A connection ended. Nothing happens if it gave way before.
    pub fn left(&mut self, visitor: Visitor) {
        if let Some((host, has_greeted)) = self.open.swap_remove(&visitor)
            && !has_greeted
        {
            self.forget(host, visitor);
        }
    }

    fn forget(&mut self, host: H, stranger: Visitor) {
        let Some(all) = self.strangers.get_mut(&host) else {
            return;
        };
        if let Some(at) = all.iter().position(|other| *other == stranger) {
            all.swap_remove(at);
        }
        if all.is_empty() {
            self.strangers.swap_remove(&host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(entrance: &mut Entrance<u8>, from: u8) -> Visitor {
        match entrance.knock(from) {
            Welcome::Come(visitor) => visitor,
            other => panic!("{other:?}"),
        }
    }

    fn instead(entrance: &mut Entrance<u8>, from: u8) -> Visitor {
        match entrance.knock(from) {
            Welcome::Instead(_, gone) => gone,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_host_that_opens_many_ends_its_own_strangers_and_nothing_else() {
        let mut entrance = Entrance::with_limits(1, 100, 4);
        let other = come(&mut entrance, 2);
        let greeted = come(&mut entrance, 1);
        entrance.greeted(greeted);
        let mut own: Vec<Visitor> = (0..4).map(|_| come(&mut entrance, 1)).collect();
        for _ in 0..1000 {
            let Welcome::Instead(new, gone) = entrance.knock(1) else {
                panic!("it has no place left");
            };
            assert!(gone != other && gone != greeted);
            let at = own.iter().position(|visitor| *visitor == gone);
            own[at.expect("one of its own")] = new;
        }
        assert_eq!(entrance.open.len(), 6);
    }

    #[test]
    fn of_many_strangers_the_one_that_ends_is_any() {
        let mut entrance = Entrance::with_limits(3, 1000, 100);
        let first = come(&mut entrance, 1);
        for _ in 1..100 {
            come(&mut entrance, 1);
        }
        let survives = (0..10).all(|_| instead(&mut entrance, 1) != first);
        assert!(survives, "10 of 100 ended, and the oldest is one of them");
    }

    #[test]
    fn where_all_places_are_taken_the_host_with_most_strangers_gives_one() {
        let mut entrance = Entrance::with_limits(1, 4, 3);
        let crowd = [0, 1, 2].map(|_| come(&mut entrance, 1));
        let one = come(&mut entrance, 2);
        assert!(crowd.contains(&instead(&mut entrance, 3)));
        entrance.greeted(one);
        crowd.iter().for_each(|visitor| entrance.greeted(*visitor));
        let last = Visitor(4);
        entrance.greeted(last);
        assert_eq!(entrance.knock(4), Welcome::Full);
        entrance.left(one);
        come(&mut entrance, 4);
    }

    #[test]
    fn nothing_is_kept_of_connections_that_ended() {
        let mut entrance = Entrance::with_limits(1, 8, 2);
        for i in 0..100 {
            let visitor = come(&mut entrance, i);
            if i % 2 == 0 {
                entrance.greeted(visitor);
                entrance.greeted(visitor);
            }
            entrance.left(visitor);
            entrance.left(visitor);
            entrance.greeted(visitor);
        }
        assert!(entrance.open.is_empty() && entrance.strangers.is_empty());
    }
}
