//! Intake: which messages of a client's streams are taken in while the bytes that it may hold do not suffice for all of them.
//!
//! Sixteen cameras of one client send pictures of 25 MB in step, and it may hold 128 MB. Without a rule all sixteen messages begin, and
//! each is cut off when its next piece finds no room. So a message begins only if what is still to come of those that have begun fits
//! beside it: the newest one is refused, at its first bytes. The stream of a refused message waits in a line. Whatever stands before a
//! stream in the line must fit beside its message, too, so that the streams take turns.

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::time::Timestamp;

/// A place in the line is kept for so long after its stream tried last: the next frame of a camera comes sooner, and a stream that sends no
/// more keeps nobody waiting.
pub(crate) const PLACE_KEPT: Duration = Duration::from_secs(5);
/// Most streams in the line: as many as a client's calls on one connection. Further ones take turns by chance.
pub(crate) const LINE_MAX: usize = 1024;

/// A stream of a client by its connection, and its call there.
pub type CallKey = (u64, u64);

/// The bytes that a client holds, and may take on top of them.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Held by the client.
    pub held: u64,
    /// Those that it may take now.
    pub free: u64,
}

/// A stream whose message was refused.
#[derive(Clone, Copy, Debug)]
struct Place {
    stream: CallKey,
    bytes: u64,
    tried_at: Timestamp,
}

/// The messages of one client.
#[derive(Debug, Default)]
pub struct Intake {
    /// What is still to come of messages that have begun.
    to_come: IndexMap<CallKey, u64, FxBuildHasher>,
    line: VecDeque<Place>,
}

impl Intake {
    /// Whether a message of so many bytes, which has begun to come, is taken in.
    pub fn begins(&mut self, now: Timestamp, stream: CallKey, bytes: u64, room: Room) -> bool {
        self.line
            .retain(|place| now.since(place.tried_at) < PLACE_KEPT);
        let own = self.line.iter().position(|place| place.stream == stream);
        let before = own.unwrap_or(self.line.len());
        let before = self.line.iter().take(before).map(|place| place.bytes);
        let to_come = self.to_come.values().copied();
        let needed = before.chain(to_come).fold(bytes, u64::saturating_add);
        if needed <= room.free {
            if let Some(own) = own {
                self.line.remove(own);
            }
            self.to_come.insert(stream, bytes);
            return true;
        }
        // A message that would not fit if the client held nothing else is not waited for.
        let fits_alone = bytes <= room.held.saturating_add(room.free);
        let place = Place {
            stream,
            bytes,
            tried_at: now,
        };
        match own {
            Some(own) if fits_alone => self.line[own] = place,
            Some(own) => drop(self.line.remove(own)),
            None if fits_alone && self.line.len() < LINE_MAX => self.line.push_back(place),
            None => {}
        }
        false
    }

    /// So many bytes of the stream's message came.
    pub fn came(&mut self, stream: CallKey, bytes: u64) {
        if let Some(left) = self.to_come.get_mut(&stream) {
            *left = left.saturating_sub(bytes);
        }
    }

    /// The stream's message is whole, or is left out.
    pub fn ends(&mut self, stream: CallKey) {
        self.to_come.swap_remove(&stream);
    }

    /// The stream is over.
    pub fn leaves(&mut self, stream: CallKey) {
        self.ends(stream);
        self.line.retain(|place| place.stream != stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    const ALL: u64 = 128;

    /// One frame of each stream in step, each of `bytes`: which of them are taken in. All are given back before the next.
    fn round(intake: &mut Intake, now: Timestamp, streams: u64, bytes: u64) -> Vec<u64> {
        let mut held = 0;
        let mut taken = Vec::new();
        for n in 0..streams {
            let free = ALL - held;
            if intake.begins(now, (1, n), bytes, Room { held, free }) {
                // It comes at once.
                intake.came((1, n), bytes);
                intake.ends((1, n));
                held += bytes;
                taken.push(n);
            }
        }
        taken
    }

    #[test]
    fn streams_of_a_client_take_turns() {
        let mut intake = Intake::default();
        let mut served = [0; 16];
        for frame in 0..160 {
            let taken = round(&mut intake, at(frame * 40), 16, 25);
            assert_eq!(taken.len(), 5, "as many as fit: {taken:?}");
            taken.iter().for_each(|n| served[*n as usize] += 1);
        }
        // A turn that comes early is taken where it fits.
        assert!(served.iter().all(|n| (40..=60).contains(n)), "{served:?}");
    }

    #[test]
    fn the_newest_is_refused_while_others_are_still_to_come() {
        let mut intake = Intake::default();
        let room = |held| Room {
            held,
            free: ALL - held,
        };
        for n in 0..5 {
            assert!(intake.begins(at(0), (1, n), 25, room(0)));
        }
        assert!(!intake.begins(at(1), (1, 5), 25, room(0)));
        for n in 0..5 {
            intake.came((1, n), 10);
        }
        // 50 bytes are held, 75 are to come.
        assert!(!intake.begins(at(2), (1, 6), 25, room(50)));
        assert!(intake.begins(at(2), (1, 5), 3, room(50)));
        intake.leaves((1, 0));
        assert!(
            !intake.begins(at(3), (1, 7), 16, room(50)),
            "6 waits before it"
        );
        assert!(intake.begins(at(3), (1, 6), 15, room(50)));
    }

    #[test]
    fn nobody_waits_for_one_that_cannot_be_served_or_has_gone() {
        let mut intake = Intake::default();
        let empty = Room { held: 0, free: ALL };
        assert!(!intake.begins(at(0), (1, 0), ALL + 1, empty));
        assert!(intake.begins(at(0), (1, 1), ALL, empty));
        intake.ends((1, 1));
        let full = Room { held: ALL, free: 0 };
        assert!(!intake.begins(at(0), (1, 2), ALL, full));
        assert!(!intake.begins(at(1), (1, 3), 1, empty), "2 has its turn");
        assert!(!intake.begins(at(4999), (1, 3), 1, empty));
        assert!(intake.begins(at(5001), (1, 3), 1, empty), "2 sends no more");
        intake.leaves((1, 3));
        assert!(!intake.begins(at(6000), (1, 4), ALL, full));
        intake.leaves((1, 4));
        assert!(intake.begins(at(6000), (1, 5), ALL, empty));
    }
}
