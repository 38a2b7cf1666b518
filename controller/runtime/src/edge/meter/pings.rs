//! How many frames that only ask for an answer, pings and settings, a connection may send, and how one hears that it sent too many.

use std::time::Instant;

use bytes::Bytes;

use super::HEADER;

/// The type of the frame that ends a connection.
const GOAWAY: u8 = 7;
/// Pings and settings that may come at once beside others: clients that measure a link ping with its data.
const PINGS_MAX: f64 = 200.0;
/// Pings that each frame of data or headers allows: gRPC's clients ping at most once for each that they get, and get about as many as
/// they send.
const PINGS_A_FRAME: f64 = 2.0;
/// Pings a second that a connection without calls may send; keepalives come every ten seconds at most.
const PINGS_A_SECOND: f64 = 1.0;
/// HTTP/2's code for a client that asks for too much (ENHANCE_YOUR_CALM).
const CALM: u32 = 0xb;

/// The frames that came on a connection since they were asked for last, as far as they matter here.
#[derive(Default)]
pub(super) struct Came {
    /// Of data and of headers.
    pub(super) calls: u64,
    /// Pings that are no answers.
    pub(super) pings: u64,
    /// Settings that are no answers.
    pub(super) settings: u64,
}

/// The pings and settings that a connection may send.
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

    /// What there are too many of, if these are.
    pub(super) fn too_many(&mut self, came: &Came) -> Option<&'static str> {
        let asked = came.pings + came.settings;
        if asked > 0 {
            let now = Instant::now();
            self.left += now.duration_since(self.at).as_secs_f64() * PINGS_A_SECOND;
            self.at = now;
        }
        self.left = (self.left + came.calls as f64 * PINGS_A_FRAME).min(PINGS_MAX);
        self.left -= asked as f64;
        // gRPC's clients know the first of the texts, and ping less.
        let text = match came.settings > came.pings {
            false => "too_many_pings",
            true => "too_many_settings",
        };
        (self.left < 0.0).then_some(text)
    }
}

/// The frame that ends a connection of which too much came.
pub(super) fn goaway(text: &str) -> Bytes {
    let mut frame = vec![0, 0, 8 + text.len() as u8, GOAWAY, 0, 0, 0, 0, 0];
    // Calls up to any number may have been begun.
    frame.extend(u32::to_be_bytes(i32::MAX as u32));
    frame.extend(u32::to_be_bytes(CALM));
    frame.extend(text.as_bytes());
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

    fn came(calls: u64, pings: u64, settings: u64) -> Came {
        Came {
            calls,
            pings,
            settings,
        }
    }

    #[test]
    fn pings_are_bounded_by_time_and_by_what_comes_beside_them() {
        let mut alone = Pings::new();
        let most = came(0, PINGS_MAX as u64, 0);
        assert_eq!(alone.too_many(&most), None, "as many as may come at once");
        assert_eq!(alone.too_many(&came(0, 5, 0)), Some("too_many_pings"));
        let mut beside = Pings::new();
        let two_a_frame = came(1, 2, 0);
        assert!((0..10_000).all(|_| beside.too_many(&two_a_frame).is_none()));
        let mut after_a_pause = Pings {
            left: 0.0,
            at: Instant::now() - Duration::from_secs(10),
        };
        let keepalives = came(0, 9, 0);
        assert_eq!(after_a_pause.too_many(&keepalives), None, "one a second");
        assert!(after_a_pause.too_many(&keepalives).is_some());
    }

    #[test]
    fn settings_count_as_pings_do() {
        let mut alone = Pings::new();
        let one = came(0, 0, 1);
        let end = (0..).find_map(|n| Some((n, alone.too_many(&one)?)));
        let (n, text) = end.unwrap();
        assert!(n >= PINGS_MAX as u64, "{n} came before it ended");
        assert_eq!(text, "too_many_settings");
    }

    #[test]
    fn the_end_is_a_frame_and_ends_of_frames_are_found_however_bytes_are_cut() {
        let mut all = goaway("too_many_pings").to_vec();
        assert!(all.ends_with(b"too_many_pings"));
        all.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]);
        all.extend(goaway("too_many_settings"));
        for size in [1, 3, 9, 10, 40] {
            let mut sent = Boundaries::default();
            all.chunks(size).for_each(|bytes| sent.follow(bytes));
            assert!(sent.is_between(), "in pieces of {size}");
            sent.follow(&all[..12]);
            assert!(!sent.is_between());
        }
    }
}
