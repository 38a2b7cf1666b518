//! The rights of clients: tokens by their hash, and how much of its rights each token has used, over all its
//! connections.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::grant::Grant;
use spillgate_pipeline::time::Timestamp;

use crate::limits::{Limits, Reached, Used};
use crate::refusal::Refusal;

/// A token's number, unique at its gateway. A token that is removed and added again gets another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u32);

struct Token {
    grant: Grant,
    used: Used,
}

impl Token {
    fn new(grant: Grant) -> Self {
        Token {
            used: Used::new(limits(&grant)),
            grant,
        }
    }

    /// The same token gets other rights.
    fn set(&mut self, now: Timestamp, grant: Grant) {
        self.used.set(now, limits(&grant));
        self.grant = grant;
    }
}

fn limits(grant: &Grant) -> Limits {
    Limits {
        rate: grant.rate,
        in_flight: grant.in_flight,
    }
}

/// The tokens of a gateway.
#[derive(Default)]
pub struct Access {
    next: u32,
    ids: IndexMap<[u8; 32], TokenId, FxBuildHasher>,
    tokens: IndexMap<TokenId, Token, FxBuildHasher>,
}

impl Access {
    /// Replaces the set of tokens. A token with the name and hash of an earlier one keeps the count of its requests.
    pub fn set(&mut self, now: Timestamp, grants: Vec<Grant>) {
        let mut before = std::mem::take(&mut self.tokens);
        let ids = std::mem::take(&mut self.ids);
        for grant in grants {
            let same = ids.get(&grant.hash).and_then(|id| {
                let same = before.get(id)?.grant.name == grant.name;
                Some((*id, same.then(|| before.swap_remove(id))??))
            });
            let hash = grant.hash;
            let (id, token) = match same {
                Some((id, mut token)) => {
                    token.set(now, grant);
                    (id, token)
                }
                None => {
                    let id = TokenId(self.next);
                    self.next += 1;
                    (id, Token::new(grant))
                }
            };
            self.ids.insert(hash, id);
            self.tokens.insert(id, token);
        }
    }

    /// All tokens.
    pub fn grants(&self) -> impl Iterator<Item = (TokenId, &Grant)> {
        self.tokens.iter().map(|(id, token)| (*id, &token.grant))
    }

    /// The token with this hash.
    pub fn find(&self, hash: &[u8; 32]) -> Option<TokenId> {
        self.ids.get(hash).copied()
    }

    /// Whether the token may use this pipeline. This does not count as a request.
    pub fn allows(&self, id: TokenId, pipeline: &str) -> bool {
        let token = self.tokens.get(&id);
        token.is_some_and(|token| token.grant.allows(pipeline))
    }

    /// Counts one more request of the token: it is in flight until [`Self::done`].
    ///
    /// # Errors
    /// When the token may not send it; then nothing changes.
    pub fn ask(&mut self, now: Timestamp, id: TokenId, pipeline: &str) -> Result<(), Refusal> {
        let token = self.tokens.get_mut(&id).ok_or(Refusal::UnknownToken)?;
        if !token.grant.allows(pipeline) {
            return Err(Refusal::UnknownPipeline {
                name: pipeline.to_owned(),
                known: token.grant.pipelines.clone().unwrap_or_default(),
            });
        }
        token.used.ask(now).map_err(|reached| match reached {
            Reached::Rate(rate) => Refusal::TokenRate { rate },
            Reached::InFlight(limit) => Refusal::TokenFull { limit },
        })
    }

    /// A request of the token has ended. A removed token is not known any more.
    pub fn done(&mut self, id: TokenId) {
        if let Some(token) = self.tokens.get_mut(&id) {
            token.used.done();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grant(name: &str, hash: u8) -> Grant {
        Grant {
            name: name.into(),
            hash: [hash; 32],
            pipelines: Some(vec!["p".to_owned()]),
            rate: None,
            in_flight: None,
            weight: None,
            class: None,
            background: false,
            line: 1,
        }
    }

    fn with(grants: Vec<Grant>) -> Access {
        let mut access = Access::default();
        access.set(Timestamp::ZERO, grants);
        access
    }

    #[test]
    fn a_token_is_known_by_its_hash_and_asks_only_for_its_pipelines() {
        let mut access = with(vec![grant("a", 1), grant("b", 2)]);
        let a = access.find(&[1; 32]).unwrap();
        assert_ne!(access.find(&[2; 32]), Some(a));
        assert_eq!(access.find(&[3; 32]), None);
        assert!(access.allows(a, "p") && !access.allows(a, "q"));
        assert_eq!(access.ask(Timestamp::ZERO, a, "p"), Ok(()));
        let unknown = Refusal::UnknownPipeline {
            name: "q".to_owned(),
            known: vec!["p".to_owned()],
        };
        assert_eq!(access.ask(Timestamp::ZERO, a, "q"), Err(unknown));
    }

    #[test]
    fn a_token_that_stays_goes_on_and_one_that_goes_is_gone() {
        let one = |name: &str, hash| Grant {
            in_flight: Some(1),
            ..grant(name, hash)
        };
        let mut access = with(vec![one("a", 1), one("b", 2), one("c", 3)]);
        let ids = [1, 2, 3].map(|hash| access.find(&[hash; 32]).unwrap());
        for id in ids {
            assert_eq!(access.ask(Timestamp::ZERO, id, "p"), Ok(()));
        }
        // `a` stays, `b` has another token, `c` is another's now.
        access.set(Timestamp::ZERO, vec![one("a", 1), one("b", 4), one("d", 3)]);
        let full = || Err(Refusal::TokenFull { limit: 1 });
        assert_eq!(access.ask(Timestamp::ZERO, ids[0], "p"), full());
        for id in [ids[1], ids[2]] {
            assert_eq!(
                access.ask(Timestamp::ZERO, id, "p"),
                Err(Refusal::UnknownToken)
            );
            assert!(!access.allows(id, "p"));
            access.done(id);
        }
        assert_eq!(access.find(&[2; 32]), None);
        for hash in [3, 4] {
            let id = access.find(&[hash; 32]).unwrap();
            assert_eq!(access.ask(Timestamp::ZERO, id, "p"), Ok(()));
            assert_eq!(access.ask(Timestamp::ZERO, id, "p"), full());
        }
        access.done(ids[0]);
        assert_eq!(access.ask(Timestamp::ZERO, ids[0], "p"), Ok(()));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask,
        Done,
        Wait(u64),
        Reload(f64, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Ask),
            2 => Just(Step::Done),
            2 => (0u64..300).prop_map(Step::Wait),
            1 => (1.0..100.0, 1u32..20).prop_map(|(rate, most)| Step::Reload(rate, most)),
        ]
    }

    proptest! {
        /// However it asks, what is in flight stays within its limit, what passes within the rates that held, and it is
        /// refused for no other reason.
        #[test]
        fn neither_the_rate_nor_what_is_in_flight_is_exceeded(steps in prop::collection::vec(step(), 1..400)) {
            let (mut rate, mut most) = (10.0, 5);
            let of = |rate, most| Grant { rate: Some(rate), in_flight: Some(most), ..grant("a", 1) };
            let mut access = with(vec![of(rate, most)]);
            let id = access.find(&[1; 32]).unwrap();
            let (mut ms, mut in_flight, mut passed) = (0u64, 0u32, 0u32);
            // Tokens of the bucket, reckoned without it.
            let mut left: f64 = 10.0;
            for step in steps {
                let now = Timestamp::from_ns(ms * 1_000_000);
                match step {
                    Step::Wait(more) => {
                        ms += more;
                        left = (left + rate * more as f64 / 1e3).min(f64::max(rate, 2.0));
                    }
                    Step::Done => {
                        access.done(id);
                        in_flight = in_flight.saturating_sub(1);
                    }
                    Step::Reload(new_rate, new_most) => {
                        (rate, most) = (new_rate, new_most);
                        access.set(now, vec![of(rate, most)]);
                        prop_assert_eq!(access.find(&[1; 32]), Some(id));
                        left = left.min(f64::max(rate, 2.0));
                    }
                    Step::Ask => match access.ask(now, id, "p") {
                        Ok(()) => {
                            in_flight += 1;
                            passed += 1;
                            left -= 1.0;
                            prop_assert!(in_flight <= most, "{} of {}", in_flight, most);
                            prop_assert!(left > -1e-6, "{} passed", passed);
                        }
                        Err(Refusal::TokenFull { limit }) => {
                            prop_assert_eq!(limit, most);
                            prop_assert!(in_flight >= most);
                        }
                        Err(Refusal::TokenRate { .. }) => prop_assert!(left < 1.0 + 1e-6),
                        Err(other) => prop_assert!(false, "{:?}", other),
                    },
                }
            }
        }
    }
}
