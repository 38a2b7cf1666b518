//! Decoding at the source: its time is shared between clients, so that a client with costly pictures cannot take it from the others,
//! and learnt for each client apart, so that nobody's pictures decide what others' are expected to take.
//!
//! The use of each client fades with time. While the decoder has time to spare, all clients are served; once it has none,
//! no client gets more than an equal part. A picture is charged as expected when it is bound, and as it took when it ended. Each decoder
//! keeps its own shares.
//!
//! What a picture is expected to take is computed from its bytes. How far that is off is learnt from each client's own pictures, and of
//! a client of which nothing is known it is the median over the clients seen last: a machine can be slower than the one on which the costs were
//! measured, and one client's pictures can be.

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::ClientId;
use spillgate_pipeline::predict::{Pace, PaceRule};
use spillgate_pipeline::time::Timestamp;

/// Use fades to `1/e` of itself in this time: a burst of a second may pass, lasting use counts.
const FADES: Duration = Duration::from_secs(1);
/// A decoder has time to spare up to this part of its time.
const SPARE: f64 = 0.5;
/// A client that used less than this part of the time lately is not counted among the clients that share it.
const IDLE: f64 = 0.01;
/// Most clients told apart. When there are more, the client that used least is forgotten.
pub(crate) const CLIENTS_MAX: usize = 256;
/// Clients whose paces tell that of the machine: a few, so that the median follows it.
const RECENT: usize = 9;

const _: () = assert!(0.0 < IDLE && IDLE < SPARE && SPARE <= 1.0);

/// The use of a decoder by its clients, and how long their pictures take.
#[derive(Debug, Default)]
pub(super) struct Decoding {
    clients: IndexMap<ClientId, Of, FxBuildHasher>,
    updated_at: Timestamp,
    /// The paces of the clients whose pictures ended last, each client once, the latest last.
    recent: VecDeque<(ClientId, f64)>,
    /// The median of them.
    usual: f64,
}

/// What is known of a client.
#[derive(Debug)]
struct Of {
    /// Its use lately, in parts of the decoder's time.
    used: f64,
    /// Its pictures, compared with what was computed from their bytes; `None` before the first ended.
    pace: Option<Pace>,
}

impl Decoding {
    /// How long a picture of the client is expected to take, for which this was computed.
    pub(super) fn expect(&self, client: ClientId, computed: Duration) -> Duration {
        let own = self.clients.get(&client).and_then(|of| of.pace.as_ref());
        match own {
            Some(pace) => pace.expect(computed),
            None if self.recent.is_empty() || self.usual == 1.0 => computed,
            None => computed.mul_f64(self.usual),
        }
    }

    /// Whether the client may decode a picture that takes this long. If so, the time is charged.
    pub(super) fn take(&mut self, now: Timestamp, client: ClientId, decoding: Duration) -> bool {
        self.fade(now);
        let asked = part(decoding);
        let own = self.clients.get(&client).map_or(0.0, |of| of.used);
        let others = self
            .clients
            .iter()
            .filter(|(c, of)| **c != client && of.used > IDLE);
        let (n_others, by_others) =
            others.fold((0, 0.0), |(n, sum), (_, of)| (n + 1, sum + of.used));
        let has_time = own + by_others + asked <= SPARE;
        let is_its_part = own + asked <= 1.0 / f64::from(n_others + 1);
        if n_others > 0 && !has_time && !is_its_part {
            return false;
        }
        self.of(client).used += asked;
        true
    }

    /// A picture that was charged as `charged` took so long.
    pub(super) fn charge(
        &mut self,
        now: Timestamp,
        client: ClientId,
        charged: Duration,
        took: Duration,
    ) {
        self.fade(now);
        let of = self.of(client);
        of.used = (of.used + part(took) - part(charged)).max(0.0);
    }

    /// Learns from a picture that took so long, for which this was computed.
    pub(super) fn learn(
        &mut self,
        now: Timestamp,
        client: ClientId,
        computed: Duration,
        took: Duration,
    ) {
        if computed.is_zero() {
            return;
        }
        let ratio = took.as_secs_f64() / computed.as_secs_f64();
        let pace = &mut self.of(client).pace;
        let pace = pace.get_or_insert_with(|| Pace::new(PaceRule::Ewma));
        pace.observe(now, ratio);
        let factor = pace.factor();
        self.recent.retain(|(of, _)| *of != client);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((client, factor));
        self.usual = self.median();
    }

    /// Time passed: what was learnt and is not confirmed fades.
    pub(super) fn age(&mut self, now: Timestamp) {
        if self.clients.is_empty() {
            return;
        }
        let mut changed = false;
        for (client, factor) in &mut self.recent {
            let of = self.clients.get_mut(client).and_then(|of| of.pace.as_mut());
            if let Some(pace) = of
                && pace.age(now)
            {
                *factor = pace.factor();
                changed = true;
            }
        }
        if changed {
            self.usual = self.median();
        }
    }

    fn median(&self) -> f64 {
        let mut all: Vec<f64> = self.recent.iter().map(|(_, factor)| *factor).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len().saturating_sub(1) / 2)
            .copied()
            .unwrap_or(1.0)
    }

    /// The client's entry. The client that used least makes room.
    fn of(&mut self, client: ClientId) -> &mut Of {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            let least = self.clients.values().map(|of| of.used).enumerate();
            if let Some((idx, _)) = least.min_by(|a, b| a.1.total_cmp(&b.1)) {
                self.clients.swap_remove_index(idx);
            }
        }
        let new = || Of {
            used: 0.0,
            pace: None,
        };
        self.clients.entry(client).or_insert_with(new)
    }

    fn fade(&mut self, now: Timestamp) {
        let passed = part(now.since(self.updated_at));
        if passed <= 0.0 {
            return;
        }
        self.updated_at = now;
        let left = (-passed).exp();
        self.clients.retain(|_, of| {
            of.used *= left;
            of.used > IDLE * IDLE
        });
    }
}

/// A time as a part of the decoder's.
fn part(time: Duration) -> f64 {
    time.as_secs_f64() / FADES.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Clients that ask for so much every so often, for ten seconds: the part of the decoder's time that each got.
    fn parts(clients: &[(u64, Duration)]) -> Vec<f64> {
        let mut shares = Decoding::default();
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
        let mut shares = Decoding::default();
        for client in 0..10 * CLIENTS_MAX as u32 {
            shares.take(Timestamp::ZERO, ClientId(client), MS);
        }
        assert_eq!(shares.clients.len(), CLIENTS_MAX);
        shares.fade(Timestamp::from_ns(20_000_000_000));
        assert!(shares.clients.is_empty());
    }

    const POLITE: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_client_pays_for_what_its_pictures_took_not_for_what_they_claimed() {
        let (mut liar, mut polite) = (0, 0);
        let mut shares = Decoding::default();
        for ms in 0..10_000u64 {
            // A picture that claims 1 ms and takes 300.
            if ms % 300 == 0 {
                let expected = shares.expect(OTHER, MS);
                if shares.take(at(ms), OTHER, expected) {
                    shares.charge(at(ms), OTHER, expected, 300 * MS);
                    shares.learn(at(ms), OTHER, MS, 300 * MS);
                    liar += 1;
                }
            }
            if ms % 50 == 0 {
                let expected = shares.expect(POLITE, 10 * MS);
                assert!(shares.take(at(ms), POLITE, expected), "{ms}");
                shares.charge(at(ms), POLITE, expected, 10 * MS);
                shares.learn(at(ms), POLITE, 10 * MS, 10 * MS);
                polite += 1;
            }
        }
        assert_eq!(polite, 200);
        assert!(
            liar < 22,
            "{liar} of 34 pictures of 300 ms: more than its part"
        );
        assert_eq!(shares.expect(POLITE, 10 * MS), 10 * MS);
    }

    #[test]
    fn pictures_of_one_client_decide_for_no_other_and_its_own_heal() {
        let mut shares = Decoding::default();
        for n in 0..3 {
            shares.learn(at(n), ClientId(10 + n as u32), MS, MS);
        }
        for n in 0..20 {
            shares.learn(at(n), OTHER, MS, 40 * MS);
        }
        assert!(shares.expect(OTHER, MS) > 10 * MS);
        assert_eq!(
            shares.expect(POLITE, 100 * MS),
            100 * MS,
            "nothing is known of it"
        );
        shares.age(at(12_000));
        assert!(
            shares.expect(OTHER, MS) < MS * 11 / 10,
            "{:?}",
            shares.expect(OTHER, MS)
        );
    }

    #[test]
    fn a_slow_machine_is_slow_for_clients_that_are_new() {
        let mut shares = Decoding::default();
        for n in 0..60 {
            shares.learn(at(n), ClientId(10 + n as u32 % 5), MS, 2 * MS);
        }
        let expected = shares.expect(POLITE, 100 * MS).as_secs_f64();
        assert!((expected - 0.2).abs() < 0.01, "{expected}");
    }
}
