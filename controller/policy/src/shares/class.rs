//! The clients of one priority class, and the streams of each client.

use std::time::Duration;

use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Offered, Portion};

use super::clock::{Account, Clock, Sharer, Sharers};
use super::{
    CLIENTS_MAX, ClientStream, DEBT_AIM, Party, STREAMS_MAX, STREAMS_OF_CLIENT_MAX, TRIM_MAX,
};
use crate::gate::Gate;
use crate::sweep::Sweep;

/// How far a stream with credit gets ahead of a stream in full debt, in spans of its client's debt.
const AHEAD: f64 = 2.0;

/// A client.
#[derive(Clone, Debug)]
struct Client {
    account: Account,
    clock: Clock<ClientStream>,
    streams: Sharers<ClientStream, Account>,
    /// Virtual time of the class up to which the streams have had their tokens.
    handed_out: f64,
    /// Tokens that the streams get besides, so that those that are served are in debt.
    trim: f64,
    sweep: Sweep,
    /// Tokens asked for since the last exchange.
    offered: f64,
    /// The same a second, before the last exchange.
    before: f64,
    /// Part of the client's requests that this gateway gets.
    part: f64,
    /// The client's weight over all gateways.
    weight: f64,
}

impl Sharer for Client {
    fn account(&mut self) -> &mut Account {
        &mut self.account
    }
}

impl Client {
    fn new(now: Timestamp, weight: f64, at: f64) -> Self {
        Client {
            account: Account::new(now, weight),
            clock: Clock::default(),
            streams: Sharers::default(),
            handed_out: at,
            trim: 0.0,
            sweep: Sweep::default(),
            offered: 0.0,
            before: 0.0,
            part: 1.0,
            weight,
        }
    }

    /// Hands out to the streams what the client got since the last time.
    fn hand_out(&mut self, clock: f64, depth: f64) {
        self.clock.set_depth(depth);
        let tokens = (clock - self.handed_out) * self.account.weight() + self.trim;
        self.handed_out = clock;
        self.trim = tokens.min(0.0);
        self.clock.advance(tokens.max(0.0), &mut self.streams);
    }

    /// The debt of a stream, up to one span. A stream alone has no credit before its client.
    fn debt(&self, stream: ClientStream) -> f64 {
        match self.streams.len() {
            1 => 1.0,
            _ => self.clock.debt(&self.streams[&stream]).min(1.0),
        }
    }

    /// Charges a stream, if it is not forgotten.
    fn charge(&mut self, stream: ClientStream, tokens: f64) {
        if !self.streams.contains_key(&stream) {
            return;
        }
        self.trim += TRIM_MAX * (self.debt(stream) - DEBT_AIM) * tokens;
        if let Some(account) = self.streams.get_mut(&stream) {
            self.clock.charge(stream, account, tokens);
        }
    }

    fn has_room(&self, n_streams: usize) -> bool {
        n_streams < STREAMS_MAX && self.streams.len() < STREAMS_OF_CLIENT_MAX
    }

    /// The key of a stream's account: the common one when there are too many.
    fn stream(&mut self, now: Timestamp, party: &Party, n_streams: &mut usize) -> ClientStream {
        let is_known = self.streams.contains_key(&party.stream);
        let key = match is_known || self.has_room(*n_streams) {
            true => party.stream,
            false => ClientStream::OTHERS,
        };
        let account = self.streams.entry(key).or_insert_with(|| {
            *n_streams += 1;
            Account::new(now, party.stream_weight)
        });
        account.seen(now);
        if key != ClientStream::OTHERS {
            self.clock.reweigh(account, party.stream_weight);
        }
        key
    }

    fn sweep(&mut self, now: Timestamp, n_streams: &mut usize) {
        let has_room = self.has_room(*n_streams);
        let gone = self.sweep.next(&mut self.streams, has_room, |account| {
            account.can_be_forgotten(now, has_room)
        });
        *n_streams -= usize::from(gone.is_some());
    }
}

/// The debts of a client and of its stream, in spans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Debts {
    client: f64,
    /// At most 1.
    stream: f64,
    /// The client has other streams.
    has_siblings: bool,
}

impl Debts {
    /// The part of the reserve that the request must leave. A stream with credit gets ahead of the other streams of its
    /// client: this raises the client's debt, and so changes nothing for other clients.
    pub(super) fn part(self) -> f64 {
        (self.client - AHEAD * (1.0 - self.stream)).max(0.0)
    }

    /// Whether the stream, rather than the client, has used up its share.
    pub(super) fn is_streams(self) -> bool {
        self.has_siblings && self.stream > self.client
    }
}

/// A priority class.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// The gate that this class and the higher ones use: lower classes do not change it.
    pub(super) gate: Gate,
    clients: Sharers<ClientKey, Client>,
    clock: Clock<ClientKey>,
    /// Tokens that higher classes used and the clock has yet to skip.
    owed: f64,
    /// Tokens that were lent, until the requests that were overtaken are served or dropped.
    pub(super) lent: f64,
    sweep: Sweep,
}

impl Class {
    pub(super) fn new(gate: Gate) -> Self {
        Class {
            gate,
            clients: Sharers::default(),
            clock: Clock::default(),
            owed: 0.0,
            lent: 0.0,
            sweep: Sweep::default(),
        }
    }

    pub(super) fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    pub(super) fn has_named_clients(&self) -> bool {
        self.clients
            .keys()
            .any(|client| *client != Party::ONLY.client)
    }

    /// Whether there are several clients, or several streams of one.
    pub(super) fn is_shared(&self) -> bool {
        let has_streams = |(_, client): (&ClientKey, &Client)| client.streams.len() > 1;
        self.clients.len() > 1 || self.clients.first().is_some_and(has_streams)
    }

    /// Whether a request is within its client's share. Where there is one client, its streams' shares count: the credit of
    /// a stream is none before other clients.
    pub(super) fn is_within(&self, debts: Debts) -> bool {
        match self.clients.len() {
            1 => !self.is_shared() || debts.part() <= 0.0,
            _ => debts.client <= 0.0,
        }
    }

    /// A client asks for tokens.
    pub(super) fn offered(&mut self, client: ClientKey, cost: f64) {
        self.clients[&client].offered += cost;
    }

    /// What the clients asked for in that period.
    pub(super) fn report(&mut self, class: u8, period: Duration) -> Vec<Offered> {
        let seconds = period.as_secs_f64();
        let asked = |(key, client): (&ClientKey, &mut Client)| {
            let rate = std::mem::take(&mut client.offered) / seconds;
            let before = std::mem::replace(&mut client.before, rate);
            Offered {
                client: *key,
                class,
                weight: client.weight,
                rate,
                asked: (before + rate) / 2.0,
            }
        };
        self.clients.iter_mut().map(asked).collect()
    }

    /// Takes over the part of each client's share that is for this gateway.
    pub(super) fn divide(&mut self, portion: Option<&Portion>) {
        for (key, client) in &mut self.clients {
            let part = portion.and_then(|p| p.parts.get(key));
            client.part = part.copied().unwrap_or(1.0);
        }
    }

    /// Hands out so many tokens to the clients of this class.
    pub(super) fn advance(&mut self, tokens: f64) {
        self.clock.set_depth(self.gate.most());
        let paid = self.owed.min(tokens);
        self.owed -= paid;
        self.clock.advance(tokens - paid, &mut self.clients);
    }

    /// A request that was overtaken is dropped.
    pub(super) fn regain_lent(&mut self) {
        let regained = self.lent.min(1.0);
        self.lent -= regained;
        self.gate.add(regained);
    }

    /// Time passes: most that were overtaken are served by now.
    pub(super) fn forget_lent(&mut self, tokens: f64) {
        self.lent = (self.lent - tokens).max(0.0);
    }

    /// A higher class used a token.
    pub(super) fn yields(&mut self) {
        self.gate.take();
        self.owed += 1.0;
    }

    /// A higher class gave a token back.
    pub(super) fn regains(&mut self) {
        self.gate.give_back();
        self.owed = (self.owed - 1.0).max(0.0);
    }

    /// Where a party's account is; a common one when there are too many clients or streams.
    pub(super) fn find(
        &mut self,
        now: Timestamp,
        party: &Party,
        n_clients: &mut usize,
        n_streams: &mut usize,
    ) -> (ClientKey, ClientStream) {
        let is_known = self.clients.contains_key(&party.client);
        let has_room = is_known || *n_clients < CLIENTS_MAX;
        let gone = self.sweep.next(&mut self.clients, has_room, |client| {
            client.account.can_be_forgotten(now, has_room)
        });
        if let Some(gone) = gone {
            *n_streams -= gone.streams.len();
            *n_clients -= 1;
        }
        let key = match is_known || *n_clients < CLIENTS_MAX {
            true => party.client,
            false => ClientKey::OTHERS,
        };
        let at = self.clock.now();
        let client = self.clients.entry(key).or_insert_with(|| {
            *n_clients += 1;
            Client::new(now, party.weight, at)
        });
        client.account.seen(now);
        if key != ClientKey::OTHERS {
            client.weight = party.weight;
            self.clock
                .reweigh(&mut client.account, party.weight * client.part);
        }
        client.hand_out(at, self.gate.most());
        client.sweep(now, n_streams);
        let stream = client.stream(now, party, n_streams);
        (key, stream)
    }

    pub(super) fn debts(&self, client: ClientKey, stream: ClientStream) -> Debts {
        let client = &self.clients[&client];
        Debts {
            client: self.clock.debt(&client.account),
            stream: client.debt(stream),
            has_siblings: client.streams.len() > 1,
        }
    }

    /// A party uses tokens of its shares, or gives them back (less than zero).
    pub(super) fn charge(&mut self, client: ClientKey, stream: ClientStream, tokens: f64) {
        let Some(found) = self.clients.get_mut(&client) else {
            return;
        };
        self.clock.charge(client, &mut found.account, tokens);
        if found.streams.len() > 1 {
            found.charge(stream, tokens);
        }
    }

    /// Requests a second of a client's share and of the share of its stream.
    pub(super) fn rates(&self, client: ClientKey, stream: ClientStream) -> (f64, f64) {
        let client = &self.clients[&client];
        let of_client = self.gate.rate() * self.clock.part(&client.account);
        let part = client.clock.part(&client.streams[&stream]);
        (of_client, of_client * part)
    }
}
