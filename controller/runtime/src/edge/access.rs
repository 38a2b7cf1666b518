//! Tokens at the edge: finds the holder of a call's token and counts its requests.
//! [`spillgate_controller_policy::access`] decides. Only hashes are kept, and no text contains a token.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sha2::{Digest, Sha256};
use spillgate_controller_policy::access::{Access, TokenId};
use spillgate_controller_policy::clients::TokenShare;
use spillgate_controller_policy::intake::Intake;
use spillgate_controller_policy::refusal::Refusal;
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::grant::Grant;
use spillgate_pipeline::id::ClientId;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::account::Holder;

use super::Edge;

/// The holder of a token, over all its connections.
pub(crate) struct Token {
    id: TokenId,
    name: Arc<str>,
    client: ClientId,
    key: ClientKey,
    /// Changes with the file of tokens.
    share: Mutex<TokenShare>,
    holder: Arc<Holder>,
    intake: Arc<Mutex<Intake>>,
}

impl Token {
    /// The client's name.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The client that it stands for.
    pub(super) fn client(&self) -> ClientId {
        self.client
    }

    /// Its holder as a client of fair shares.
    pub(super) fn key(&self) -> ClientKey {
        self.key
    }

    /// What it says of its holder's share.
    pub(super) fn share(&self) -> TokenShare {
        *self.share.lock()
    }

    /// The messages of its streams.
    pub(super) fn intake(&self) -> &Arc<Mutex<Intake>> {
        &self.intake
    }

    /// The holder of the bytes of its calls.
    pub(super) fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }
}

/// The tokens of one gateway.
#[derive(Default)]
pub(super) struct Tokens {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    access: Access,
    tokens: IndexMap<TokenId, Arc<Token>, FxBuildHasher>,
}

impl Tokens {
    fn set(&self, now: Timestamp, grants: Vec<Grant>, new: impl Fn() -> (ClientId, Arc<Holder>)) {
        let mut known = self.known.lock();
        let Known { access, tokens } = &mut *known;
        access.set(now, grants);
        let mut before = std::mem::take(tokens);
        for (id, grant) in access.grants() {
            let token = before.swap_remove(&id).unwrap_or_else(|| {
                let (client, holder) = new();
                let name = grant.name.clone();
                Arc::new(Token {
                    id,
                    key: ClientKey::of(&name),
                    share: Mutex::default(),
                    name,
                    client,
                    holder,
                    intake: Arc::default(),
                })
            });
            *token.share.lock() = TokenShare {
                weight: grant.weight,
                class: grant.class,
                background: grant.background,
            };
            tokens.insert(id, token);
        }
    }

    fn find(&self, headers: &HeaderMap) -> Option<Arc<Token>> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = values.next().filter(|_| values.next().is_none())?;
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return None;
        }
        let hash: [u8; 32] = Sha256::digest(token).into();
        let known = self.known.lock();
        known.tokens.get(&known.access.find(&hash)?).cloned()
    }
}

/// A request of a token; it is in flight until this is dropped.
pub(crate) struct Asking {
    edge: Arc<Edge>,
    id: TokenId,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(tokens) = &self.edge.tokens {
            tokens.known.lock().access.done(self.id);
        }
    }
}

impl Edge {
    /// Replaces the set of tokens. Calls of a removed token end with their next frame.
    pub fn set_grants(&self, grants: Vec<Grant>) {
        if let Some(tokens) = &self.tokens {
            let new = || (self.next_client(), self.account.holder());
            tokens.set(self.now(), grants, new);
        }
    }

    /// The token in the headers; `None` where the edge has no tokens.
    ///
    /// # Errors
    /// The same for a missing, a malformed and an unknown token.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Option<Arc<Token>>, Refusal> {
        match &self.tokens {
            None => Ok(None),
            Some(tokens) => tokens.find(headers).map(Some).ok_or(Refusal::UnknownToken),
        }
    }

    pub(super) fn allows(&self, token: &Token, pipeline: &str) -> bool {
        let may = |tokens: &Tokens| tokens.known.lock().access.allows(token.id, pipeline);
        self.tokens.as_ref().is_none_or(may)
    }

    pub(super) fn ask(self: &Arc<Self>, token: &Token, pipeline: &str) -> Result<Asking, Refusal> {
        if let Some(tokens) = &self.tokens {
            let now = self.now();
            tokens.known.lock().access.ask(now, token.id, pipeline)?;
        }
        Ok(Asking {
            edge: self.clone(),
            id: token.id,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use spillgate_process::clock::TestClock;
    use std::net::IpAddr;
    use std::time::Duration;

    use spillgate_controller_policy::connection_admission::ConnectionLimits;
    use spillgate_process::account::Account;

    use super::super::{Call, EdgeLimits};
    use super::*;

    fn edge(grants: Vec<Grant>) -> Arc<Edge> {
        let long = Duration::from_secs(60);
        let limits = EdgeLimits {
            admission: ConnectionLimits {
                connections: 8,
                per_address: 8,
                idle: long,
                silent: long,
                unread: long,
                age: None,
            },
            calls_per_connection: 8,
            message_bytes: 1 << 20,
            message: long,
        };
        let clock = TestClock::default().clock();
        Edge::new(limits, Account::new(64 << 20), Some(grants), clock, 0)
    }

    fn grant(name: &str) -> Grant {
        Grant {
            name: name.into(),
            hash: Sha256::digest(format!("token-of-{name}")).into(),
            pipelines: None,
            rate: None,
            in_flight: None,
            weight: None,
            class: None,
            background: false,
            line: 1,
        }
    }

    /// A call of the only client of an edge. The client has this name.
    pub(crate) fn call_of(name: &str) -> Arc<Call> {
        let edge = edge(vec![grant(name)]);
        let connection = edge.welcome([127, 0, 0, 1].into()).unwrap();
        let token = edge.identify(&headers(&[&format!("Bearer token-of-{name}")]));
        connection.begin(token.unwrap(), 0).unwrap()
    }

    #[test]
    fn what_calls_bring_that_were_turned_down_is_not_held_on_to() {
        let edge = edge(vec![grant("a")]);
        let connection = edge.welcome([127, 0, 0, 1].into()).unwrap();
        let before = edge.account().held();
        for _ in 0..100 {
            assert!(edge.identify(&HeaderMap::new()).is_err());
            connection.turned_down();
            connection.frames_came(1000).unwrap();
        }
        assert!(edge.account().held() > before);
        connection.turned_down();
        assert_eq!(edge.account().held(), before);
        // The frames of a call that is under way are held.
        let token = edge.identify(&headers(&["Bearer token-of-a"])).unwrap();
        let call = connection.begin(token, 0).unwrap();
        connection.frames_came(1000).unwrap();
        let held = edge.account().held();
        connection.turned_down();
        assert_eq!(edge.account().held(), held);
        drop(call);
        assert_eq!(edge.account().held(), before);
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let all = values.iter().map(|v| (AUTHORIZATION, v.parse().unwrap()));
        all.collect()
    }

    #[test]
    fn calls_of_a_token_are_one_clients_whatever_connections_they_come_over() {
        let edge = edge(vec![grant("a"), grant("b")]);
        let here: IpAddr = [127, 0, 0, 1].into();
        let connections = [edge.welcome(here).unwrap(), edge.welcome(here).unwrap()];
        let begin = |i: usize, name: &str| {
            let shown = headers(&[&format!("Bearer token-of-{name}")]);
            let token = edge.identify(&shown).unwrap();
            connections[i].begin(token, 0).unwrap()
        };
        let (first, second, other) = (begin(0, "a"), begin(1, "a"), begin(0, "b"));
        assert_eq!(first.client(), second.client());
        assert_ne!(first.client(), other.client());
        assert_eq!(first.token_name().unwrap().as_ref(), "a");
        let one = other.holder().held();
        assert_eq!(first.holder().held(), 2 * one, "over both connections");
        drop(second);
        assert_eq!(first.holder().held(), one);
        // Reading the same file again changes nothing.
        edge.set_grants(vec![grant("b"), grant("a")]);
        assert_eq!(begin(1, "a").client(), first.client());
        edge.set_grants(vec![grant("b")]);
        assert!(matches!(first.ask("p"), Err(Refusal::UnknownToken)));
        assert!(!first.allows("p") && other.allows("p"));
    }

    #[test]
    fn one_header_with_a_known_token_is_taken_and_nothing_else() {
        let edge = edge(vec![grant("a")]);
        for good in ["Bearer token-of-a", "bearer token-of-a"] {
            assert!(edge.identify(&headers(&[good])).is_ok(), "{good}");
        }
        let good = "Bearer token-of-a";
        for bad in [
            &[][..],
            &[""],
            &["Bearer"],
            &["Bearer  token-of-a"],
            &["Basic token-of-a"],
            &["token-of-a"],
            &["Bearer token-of-b"],
            &[good, good],
            &["\u{e4}\u{e4}\u{e4}\u{e4}"],
        ] {
            let refusal = edge.identify(&headers(bad)).err();
            assert_eq!(refusal, Some(Refusal::UnknownToken));
        }
    }
}
