//! Who asks, for fair shares: what the section `clients:` of a pipeline makes of a call.

use std::sync::Arc;

use http::HeaderMap;
use spillgate_controller_policy::clients::RightsByKey;
use spillgate_controller_policy::shares::{ClientStream, Party};
use spillgate_controller_policy::variant_selector::StreamKey;
use spillgate_pipeline::clients::{ClientKey, Clients, ClientsBy, StreamsBy};

use super::client_name;
use crate::edge::{Asker, Call};
use crate::host::Counted;

/// Bits of a stream's key that tell the calls of a connection apart.
const CALL_BITS: u32 = 24;

/// A call, or one stream, as fair shares see it. Made once for all its frames.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    asker: Asker,
    /// The header of `clients.metadata`, hashed and as a text.
    named: Option<(u64, Arc<str>)>,
    is_stream: bool,
}

impl Shared {
    /// A call with these headers.
    pub(super) fn new(
        call: &Call,
        clients: &Clients,
        headers: &HeaderMap,
        is_stream: bool,
    ) -> Self {
        let header = clients.metadata.as_ref().and_then(|name| headers.get(name));
        let named = header.map(|value| {
            let name = String::from_utf8_lossy(value.as_bytes());
            (ClientKey::of_bytes(value.as_bytes()).0, client_name(&name))
        });
        Shared {
            asker: call.asker(),
            named,
            is_stream,
        }
    }

    /// The party of a frame of that application.
    pub(super) fn party(
        &self,
        clients: &Clients,
        rights: &RightsByKey,
        application: &str,
    ) -> Party {
        let Asker { token, address, .. } = self.asker;
        let named = self.named.as_ref().map(|(key, _)| *key);
        let holder = token.map_or(address, |(key, _)| key);
        let client = match clients.by {
            ClientsBy::Token => holder,
            ClientsBy::Address => address,
            ClientsBy::Connection => ClientKey(self.connection()),
            ClientsBy::Application => ClientKey::of(application),
            ClientsBy::Metadata => named.map_or(holder, ClientKey),
        };
        let stream = match clients.streams {
            StreamsBy::Stream if self.is_stream => self.connection() | (1 + self.asker.call),
            StreamsBy::Stream | StreamsBy::Connection => self.connection(),
            StreamsBy::Application => ClientKey::of(application).0,
            StreamsBy::Metadata => named.unwrap_or_default(),
        };
        // A token speaks for its holder only, not for clients behind the holder.
        let share = match token {
            Some((key, share)) if key == client => Some(share),
            _ => None,
        };
        rights.party(client, ClientStream(stream), share)
    }

    /// The stream, or the connection of unary calls, for which variants are chosen.
    pub(super) fn stream_key(&self) -> StreamKey {
        match self.is_stream {
            true => StreamKey(self.connection() | (1 + self.asker.call)),
            false => StreamKey(self.connection()),
        }
    }

    /// Whether a frame of the call may be of a client without an SLO. Where applications are clients, frames may name any.
    pub(super) fn may_be_background(&self, clients: &Clients, rights: &RightsByKey) -> bool {
        match clients.by {
            ClientsBy::Application => rights.any_background(),
            _ => self.party(clients, rights, "").background,
        }
    }

    /// The name by which the client is counted. Clients that are told apart by connection are counted by address.
    pub(super) fn counted(&self, clients: &Clients, application: &Arc<str>) -> Counted {
        let Asker {
            token_name, peer, ..
        } = &self.asker;
        let named = match clients.by {
            ClientsBy::Token => None,
            ClientsBy::Address | ClientsBy::Connection => Some(peer),
            ClientsBy::Application => Some(application),
            ClientsBy::Metadata => self.named.as_ref().map(|(_, name)| name),
        };
        Counted {
            is_token: named.is_none() && token_name.is_some(),
            name: named.or(token_name.as_ref()).unwrap_or(peer).clone(),
        }
    }

    fn connection(&self) -> u64 {
        self.asker.connection << CALL_BITS
    }
}

#[cfg(test)]
mod tests {
    use spillgate_controller_policy::clients::TokenShare;
    use spillgate_pipeline::clients::Rights;

    use super::*;

    fn shared(
        connection: u64,
        call: Option<u64>,
        token: Option<&str>,
        named: Option<&str>,
    ) -> Shared {
        Shared {
            asker: Asker {
                token: token.map(|t| {
                    (
                        ClientKey::of(t),
                        TokenShare {
                            weight: Some(3.0),
                            class: None,
                            background: false,
                        },
                    )
                }),
                token_name: token.map(Arc::from),
                address: ClientKey::of("10.0.0.7"),
                peer: Arc::from("10.0.0.7"),
                connection,
                call: call.unwrap_or(5),
            },
            named: named.map(|n| (ClientKey::of(n).0, n.into())),
            is_stream: call.is_some(),
        }
    }

    #[test]
    fn a_client_is_a_token_or_an_address_and_each_stream_is_one() {
        let clients = Clients::equal();
        let rights = RightsByKey::new(&clients);
        let of = |a: Shared| a.party(&clients, &rights, "app");
        let (first, second) = (
            of(shared(1, Some(0), None, None)),
            of(shared(1, Some(1), None, None)),
        );
        assert_eq!(first.client, second.client);
        assert_ne!(first.stream, second.stream);
        let unary = [5, 6].map(|call| {
            of(Shared {
                is_stream: false,
                ..shared(1, Some(call), None, None)
            })
        });
        assert_eq!(
            unary[0], unary[1],
            "unary calls of a connection are one stream"
        );
        assert_ne!(unary[0].stream, first.stream);
        let token = of(shared(1, None, Some("camera"), None));
        assert_eq!((token.client, token.weight), (ClientKey::of("camera"), 3.0));
    }

    #[test]
    fn behind_a_proxy_clients_are_told_apart_by_what_it_says() {
        let mut clients = Clients::equal();
        clients.by = ClientsBy::Metadata;
        let heavy = Rights {
            weight: 4.0,
            class: 1,
            ..Rights::EQUAL
        };
        clients.named.insert("control-room".to_owned(), heavy);
        let rights = RightsByKey::new(&clients);
        let of = |named| shared(1, None, Some("proxy"), named).party(&clients, &rights, "app");
        let (room, other, none) = (of(Some("control-room")), of(Some("hall")), of(None));
        let counted = |named, by| {
            let clients = Clients {
                by,
                ..clients.clone()
            };
            let asker = shared(1, None, Some("proxy"), named);
            let Counted { name, is_token } = asker.counted(&clients, &Arc::from("app"));
            (name.to_string(), is_token)
        };
        let of_header = counted(Some("hall"), ClientsBy::Metadata);
        assert_eq!(of_header, ("hall".to_owned(), false));
        assert_eq!(
            counted(None, ClientsBy::Metadata),
            ("proxy".to_owned(), true)
        );
        assert_eq!(
            counted(None, ClientsBy::Connection),
            ("10.0.0.7".to_owned(), false)
        );
        assert_eq!((room.weight, room.class), (4.0, 1));
        assert_eq!((other.weight, other.class), (1.0, 0));
        assert_eq!(none.client, ClientKey::of("proxy"));
        clients.by = ClientsBy::Application;
        clients.streams = StreamsBy::Application;
        let party = shared(1, None, None, None).party(&clients, &rights, "app");
        assert_eq!(party.client, ClientKey::of("app"));
    }

    #[test]
    fn a_call_of_a_client_without_an_slo_is_told_apart() {
        let mut clients = Clients::equal();
        let none = Rights {
            background: true,
            ..Rights::EQUAL
        };
        clients.named.insert("night".to_owned(), none);
        let of = |clients: &Clients, token| {
            let rights = RightsByKey::new(clients);
            shared(1, Some(0), Some(token), None).may_be_background(clients, &rights)
        };
        assert!(of(&clients, "night"));
        assert!(!of(&clients, "camera"));
        clients.by = ClientsBy::Application;
        assert!(of(&clients, "camera"), "a frame may name the application");
        clients.named.clear();
        assert!(!of(&clients, "night"));
    }
}
