//! Shares the time of a decoder between clients, so that a client with costly pictures cannot take it from the others.
//!
//! The use of each client fades with time. While the decoder has time to spare, all clients are served; once it has none,
//! no client gets more than an equal part. Each decoder keeps its own shares.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::ClientId;
use spillgate_pipeline::time::Timestamp;

/// Use fades to `1/e` of itself in this time: a burst of a second may pass, lasting use counts.
const FADES: Duration = Duration::from_secs(1);
/// A decoder has time to spare up to this part of its time.
const SPARE: f64 = 0.5;
/// A client that used less than this part of the time lately is not counted among the clients that share it.
const IDLE: f64 = 0.01;
/// Most clients told apart. When there are more, the client that used least is forgotten.
const CLIENTS_MAX: usize = 256;

const _: () = assert!(0.0 < IDLE && IDLE < SPARE && SPARE <= 1.0);

/// The part of a decoder's time that clients used lately.
#[derive(Debug, Default)]
pub(super) struct DecodingShares {
    /// In parts of the decoder's time.
    used: IndexMap<ClientId, f64, FxBuildHasher>,
    updated_at: Timestamp,
}

impl DecodingShares {
    /// Whether the client may decode a picture that takes this long. If so, the time is counted.
    pub(super) fn take(&mut self, now: Timestamp, client: ClientId, decoding: Duration) -> bool {
        self.fade(now);
        let asked = decoding.as_secs_f64() / FADES.as_secs_f64();
        let own = self.used.get(&client).copied().unwrap_or(0.0);
        let others = self
            .used
            .iter()
            .filter(|(c, used)| **c != client && **used > IDLE);
        let (n_others, by_others) =
            others.fold((0, 0.0), |(n, sum), (_, used)| (n + 1, sum + used));
        let has_time = own + by_others + asked <= SPARE;
        let is_its_part = own + asked <= 1.0 / f64::from(n_others + 1);
        if n_others > 0 && !has_time && !is_its_part {
            return false;
        }
        *self.used.entry(client).or_default() += asked;
        if self.used.len() > CLIENTS_MAX {
            let least = self.used.values().copied().enumerate();
            if let Some((idx, _)) = least.min_by(|a, b| a.1.total_cmp(&b.1)) {
                self.used.swap_remove_index(idx);
            }
        }
        true
    }

    fn fade(&mut self, now: Timestamp) {
        let passed = now.since(self.updated_at).as_secs_f64() / FADES.as_secs_f64();
        if passed <= 0.0 {
            return;
        }
        self.updated_at = now;
        let part = (-passed).exp();
        self.used.retain(|_, used| {
            *used *= part;
            *used > IDLE * IDLE
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Clients that ask for so much every so often, for ten seconds: the part of the decoder's time that each got.
    fn parts(clients: &[(u64, Duration)]) -> Vec<f64> {
        let mut shares = DecodingShares::default();
        let mut got = vec![Duration::ZERO; clients.len()];
        for ms in 0..10_000u64 {
            let now = Timestamp::from_ns(ms * 1_000_000);
            for (i, &(every_ms, decoding)) in clients.iter().enumerate() {
                if ms % every_ms == 0 && shares.take(now, ClientId(i as u32), decoding) {
                    got[i] += decoding;
                }
            }
        }
        got.iter().map(|d| d.as_secs_f64() / 10.0).collect()
    }

    #[test]
    fn alone_all_is_served_and_beside_others_an_equal_part() {
        assert!((parts(&[(10, 12 * MS)])[0] - 1.2).abs() < 0.01);
        let beside = parts(&[(25, 5 * MS), (100, 200 * MS)]);
        assert!(
            (beside[0] - 0.2).abs() < 0.001,
            "a modest client loses nothing: {beside:?}"
        );
        assert!(beside[1] < 0.55, "{beside:?}");
        let greedy = parts(&[(25, 5 * MS), (10, 20 * MS), (10, 20 * MS), (10, 20 * MS)]);
        assert!((greedy[0] - 0.2).abs() < 0.001, "{greedy:?}");
        assert!(greedy[1..].iter().all(|part| *part < 0.3), "{greedy:?}");
    }

    #[test]
    fn clients_are_bounded() {
        let mut shares = DecodingShares::default();
        for client in 0..10 * CLIENTS_MAX as u32 {
            shares.take(Timestamp::ZERO, ClientId(client), MS);
        }
        assert_eq!(shares.used.len(), CLIENTS_MAX);
        shares.fade(Timestamp::from_ns(20_000_000_000));
        assert!(shares.used.is_empty());
    }
}
