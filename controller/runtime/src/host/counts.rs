//! Requests by client, for metrics: of each token, and of the other clients that send most.

use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Clients without a token that are counted at a time. The one that sent least gives way to a new one.
pub const COUNTED_MAX: usize = 16;

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

type Counts = IndexMap<Arc<str>, (ClientCount, u64), FxBuildHasher>;

/// The counts of one pipeline.
#[derive(Debug, Default)]
pub(super) struct ClientCounts {
    tokens: Counts,
    /// With the bound of what each may have sent: space-saving (Metwally, Agrawal and El Abbadi, ICDT 2005).
    others: Counts,
}

impl ClientCounts {
    /// A client sent a request.
    pub(super) fn sent(&mut self, client: &Counted, was_refused: bool) {
        let counts = match client.is_token {
            true => &mut self.tokens,
            false => &mut self.others,
        };
        let is_new = !counts.contains_key(&client.name);
        let mut seen = 0;
        if is_new
            && !client.is_token
            && counts.len() >= COUNTED_MAX
            && let Some((at, least)) = least(counts)
        {
            counts.swap_remove_index(at);
            seen = least;
        }
        // Nothing is allocated for a client that is counted already.
        let count = match counts.get_mut(&client.name) {
            Some(count) => count,
            None => counts
                .entry(client.name.clone())
                .or_insert((ClientCount::default(), seen)),
        };
        count.1 += 1;
        count.0.requests += 1;
        count.0.refused += u64::from(was_refused);
    }

    /// A request of a client was completed in time.
    pub(super) fn completed(&mut self, client: &Counted) {
        let counts = match client.is_token {
            true => &mut self.tokens,
            false => &mut self.others,
        };
        if let Some((count, _)) = counts.get_mut(&client.name) {
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
    use super::*;

    fn client(name: &str, is_token: bool) -> Counted {
        Counted {
            name: name.into(),
            is_token,
        }
    }

    #[test]
    fn the_heaviest_clients_and_all_tokens_are_counted() {
        let mut counts = ClientCounts::default();
        let heavy = client("10.0.0.1", false);
        for i in 0..10_000 {
            counts.sent(&heavy, i % 2 == 0);
            counts.sent(
                &client(&format!("10.1.{}.{}", i / 250, i % 250), false),
                false,
            );
            counts.sent(&client(&format!("camera-{}", i % 100), true), false);
        }
        counts.completed(&heavy);
        counts.completed(&client("unknown", false));
        let all = counts.all();
        assert_eq!(all.len(), 100 + COUNTED_MAX);
        let of = all.iter().find(|(name, _)| *name == heavy.name);
        let expected = ClientCount {
            requests: 10_000,
            good: 1,
            refused: 5_000,
        };
        assert_eq!(of.unwrap().1, expected);
    }
}
