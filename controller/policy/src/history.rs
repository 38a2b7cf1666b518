//! Which clients have history: so many of their requests were answered. Those without one share one place of the fair shares
//! ([`ClientKey::STRANGERS`]), each as a stream of it. So addresses that come, ask and leave take together no more than one client
//! where known clients want the rest. What known clients leave is theirs. The first client of all has a place of its own at once, so alone
//! it notices nothing.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::time::Timestamp;

use crate::shares::{CLIENTS_MAX, ClientStream, FORGOTTEN_AFTER, Party};
use crate::sweep::Sweep;

/// Answers that make a history: a client that waits for that many is there to use them.
pub(crate) const ANSWERS: u8 = 3;

/// The first client keeps its place so long after it asked last.
const FIRST_KEPT: Duration = Duration::from_secs(5);

/// A client of which requests were answered.
struct Seen {
    answers: u8,
    at: Timestamp,
}

/// The clients with answers. At most [`CLIENTS_MAX`]; while there are more, new ones stay strangers.
#[derive(Default)]
pub(crate) struct History {
    clients: IndexMap<ClientKey, Seen, FxBuildHasher>,
    /// The client that came when there was no other, and when it asked last.
    first: Option<(ClientKey, Timestamp)>,
    sweep: Sweep,
}

impl History {
    /// Who asks, as shares see it; and the client itself where it has no history.
    pub(crate) fn party(&mut self, now: Timestamp, party: &Party) -> (Party, Option<ClientKey>) {
        if !party.may_be_stranger {
            return (*party, None);
        }
        let seen = self.clients.get_mut(&party.client);
        if let Some(seen) = seen.filter(|seen| seen.answers >= ANSWERS) {
            seen.at = now;
            return (*party, None);
        }
        if self.is_first(now, party.client) {
            return (*party, Some(party.client));
        }
        let together = Party {
            client: ClientKey::STRANGERS,
            stream: ClientStream(party.client.0),
            ..*party
        };
        (together, Some(party.client))
    }

    /// Whether the client came when there was no other, and still asks.
    fn is_first(&mut self, now: Timestamp, client: ClientKey) -> bool {
        let is_taken = |at| now.since(at) < FIRST_KEPT;
        let is_it = match self.first {
            Some((first, _)) if first == client => true,
            Some((_, at)) if is_taken(at) => false,
            _ => self.clients.is_empty(),
        };
        if is_it {
            self.first = Some((client, now));
        }
        is_it
    }

    /// A request of a client without history was answered.
    pub(crate) fn answered(&mut self, now: Timestamp, client: ClientKey) {
        let has_room = self.clients.len() < CLIENTS_MAX;
        self.sweep.next(&mut self.clients, has_room, |seen| {
            now.since(seen.at) >= FORGOTTEN_AFTER
        });
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            return;
        }
        let seen = self.clients.entry(client);
        let seen = seen.or_insert(Seen {
            answers: 0,
            at: now,
        });
        seen.answers = seen.answers.saturating_add(1);
        seen.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(client: u64) -> Party {
        Party {
            client: ClientKey(client),
            may_be_stranger: true,
            ..Party::ONLY
        }
    }

    #[test]
    fn a_client_is_a_stranger_until_some_of_its_requests_were_answered() {
        let mut history = History::default();
        let now = Timestamp::ZERO;
        assert_eq!(
            history.party(now, &party(6)),
            (party(6), Some(ClientKey(6))),
            "it is alone"
        );
        let (first, itself) = history.party(now, &party(7));
        assert_eq!(
            (first.client, first.stream),
            (ClientKey::STRANGERS, ClientStream(7))
        );
        assert_eq!(itself, Some(ClientKey(7)));
        for _ in 0..ANSWERS {
            assert_eq!(history.party(now, &party(7)).1, Some(ClientKey(7)));
            history.answered(now, ClientKey(7));
        }
        assert_eq!(history.party(now, &party(7)), (party(7), None));
        assert_eq!(history.party(now, &party(8)).1, Some(ClientKey(8)));
        assert_eq!(
            history.party(now, &party(6)).0,
            party(6),
            "it keeps its place"
        );
        let named = Party {
            may_be_stranger: false,
            ..party(9)
        };
        assert_eq!(history.party(now, &named), (named, None));
        // Others that come later sweep those that are gone.
        let later = now + FORGOTTEN_AFTER + Duration::from_secs(1);
        history.answered(later, ClientKey(10));
        history.answered(later, ClientKey(10));
        assert_eq!(history.party(later, &party(7)).1, Some(ClientKey(7)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        for client in 0..2 * CLIENTS_MAX as u64 {
            history.answered(Timestamp::ZERO, ClientKey(client));
        }
        assert_eq!(history.clients.len(), CLIENTS_MAX);
    }
}
