//! How many pings a connection may send, and how one hears that it sent too many.

use std::time::Instant;

use bytes::Bytes;

use super::HEADER;

/// The type of the frame that ends a connection.
const GOAWAY: u8 = 7;
/// Pings that may come at once beside others: clients that measure a link ping with its data.
const PINGS_MAX: f64 = 200.0;
/// Pings that each frame of data or headers allows: gRPC's clients ping at most once for each that they get, and get about as many as
/// they send.
const PINGS_A_FRAME: f64 = 2.0;
/// Pings a second that a connection without calls may send; keepalives come every ten seconds at most.
const PINGS_A_SECOND: f64 = 1.0;
/// HTTP/2's code for a client that asks for too much (ENHANCE_YOUR_CALM), and the text by which gRPC's clients know why.
const CALM: u32 = 0xb;
const TOO_MANY_PINGS: &[u8] = b"too_many_pings";

/// The pings that a connection may send.
pub(super) struct Pings {
    left: f64,
    at: Instant,
}

impl Pings {
    pub(super) fn new() -> Self {
        Pings {
            left: PINGS_MAX,
            at: Instant::now(),
        }
    }

    /// So many frames of data or headers came, and so many pings. Whether they are too many.
    pub(super) fn came(&mut self, frames: u64, pings: u64) -> bool {
        if pings > 0 {
            let now = Instant::now();
            self.left += now.duration_since(self.at).as_secs_f64() * PINGS_A_SECOND;
            self.at = now;
        }
        self.left = (self.left + frames as f64 * PINGS_A_FRAME).min(PINGS_MAX);
        self.left -= pings as f64;
        self.left < 0.0
    }
}

/// The frame that ends a connection because of its pings.
pub(super) fn too_many_pings() -> Bytes {
    let mut frame = vec![0, 0, 8 + TOO_MANY_PINGS.len() as u8, GOAWAY, 0, 0, 0, 0, 0];
    // Calls up to any number may have been begun.
    frame.extend(u32::to_be_bytes(i32::MAX as u32));
    frame.extend(u32::to_be_bytes(CALM));
    frame.extend(TOO_MANY_PINGS);
    frame.into()
}

/// Follows the frames that go out: something may be said beside HTTP/2 only between two of them.
#[derive(Default)]
pub(super) struct Boundaries {
    /// Bytes until the next header.
    skip: usize,
    header: [u8; HEADER],
    have: usize,
}

impl Boundaries {
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEADER - self.have).min(bytes.len());
            self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == HEADER {
                let [a, b, c, ..] = self.header;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                self.have = 0;
            }
        }
    }

    /// Whether the bytes so far end with a frame.
    pub(super) fn is_between(&self) -> bool {
        self.skip == 0 && self.have == 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pings_are_bounded_by_time_and_by_what_comes_beside_them() {
        let pings = |left| Pings {
            left,
            at: Instant::now(),
        };
        let mut alone = pings(PINGS_MAX);
        assert!(
            !alone.came(0, PINGS_MAX as u64),
            "as many as may come at once"
        );
        assert!(alone.came(0, 5));
        let mut beside = pings(PINGS_MAX);
        assert!((0..10_000).all(|_| !beside.came(1, 2)), "two a frame");
        let mut after_a_pause = Pings {
            left: 0.0,
            at: Instant::now() - Duration::from_secs(10),
        };
        assert!(!after_a_pause.came(0, 9), "a keepalive a second");
        assert!(after_a_pause.came(0, 9));
    }

    #[test]
    fn the_end_is_a_frame_and_ends_of_frames_are_found_however_bytes_are_cut() {
        let mut all = too_many_pings().to_vec();
        assert!(all.ends_with(b"too_many_pings"));
        all.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]);
        all.extend(too_many_pings());
        for size in [1, 3, 9, 10, 40] {
            let mut sent = Boundaries::default();
            all.chunks(size).for_each(|bytes| sent.follow(bytes));
            assert!(sent.is_between(), "in pieces of {size}");
            sent.follow(&all[..12]);
            assert!(!sent.is_between());
        }
    }
}
