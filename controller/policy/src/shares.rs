//! Fair shares of the entry: which request takes the next token of the gate when more comes than the pipeline can serve.
//!
//! [`Shares`] stands where a [`Gate`] stands, beside the ledger. Each client gets a max-min fair share of the tokens, and
//! each stream an equal share of its client's. docs/fairness.md has the reasons.
//!
//! - *Clocks* (`clock.rs`) keep account of how far each client is behind its share (credit) or ahead of it (debt).
//! - The gate keeps a few tokens, the *reserve* (`reserve.rs`). A request must leave more of it the deeper its client is in
//!   debt. A request of a client with credit must leave nothing.
//! - To a client with credit the gate lends the rest of a token; where workers serve higher ranks first, it lends a few.
//! - *Classes* (`class.rs`) have a gate each, which lower classes do not touch.
//!
//! Source: max-min fairness by the virtual time of generalized processor sharing (Parekh and Gallager, IEEE/ACM ToN 1993)
//! on two levels (Bennett and Zhang, SIGCOMM 1996); trunk reservation (Key 1990) decides without a queue, with a threshold
//! that depends on the debt instead of one threshold for all.
//!
//! With one client that has one stream, all decisions are those of the gate alone. A decision takes O(log n) for n clients
//! at most, and allocates only for clients and streams that are new.

pub mod exchange;
pub mod water;

mod class;
mod clock;
mod reserve;

use std::time::Duration;

use spillgate_pipeline::clients::{CLASSES, ClientKey};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Offered, Portion};

use crate::gate::Gate;
use class::{Class, Debts};
use reserve::Reserve;

/// Ranks of requests: two of each class.
pub(crate) const RANKS: usize = 2 * CLASSES;
/// Clients that are told apart. The others of a class share one place.
pub const CLIENTS_MAX: usize = 16_384;
/// Streams of all clients that are told apart.
pub const STREAMS_MAX: usize = 65_536;
/// Streams of one client that are told apart. Its others share one place.
pub const STREAMS_OF_CLIENT_MAX: usize = 256;
/// A client or a stream is forgotten when it asked for nothing for so long. Until then a part of the gate is kept for it.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// The debt in spans at which clients above their share are held: below 1, so that the debt of one of them can grow.
const DEBT_AIM: f64 = 0.75;
/// How much faster or slower than tokens the clocks run, at most, to hold debts there.
const TRIM_MAX: f64 = 0.2;
/// Tokens that the gate lends at most where higher ranks are served first, as a part of those that it holds.
const LENT_PART: f64 = 0.5;
/// Tokens that the gate lends at most elsewhere: the request takes the last place in line and still waits for the depth of
/// the gate at most.
const LENT_IN_LINE: f64 = 1.0;
/// How much the last request counts in the average cost.
const COST_PART: f64 = 1.0 / 256.0;

/// A stream of a client, or a connection with unary calls. `u64::MAX` stands for streams without a place of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientStream(pub u64);

impl ClientStream {
    const OTHERS: ClientStream = ClientStream(u64::MAX);
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Party {
    /// The client.
    pub client: ClientKey,
    /// Its stream.
    pub stream: ClientStream,
    /// Weight of the client among the clients of its class, more than 0.
    pub weight: f64,
    /// Weight of the stream among the streams of the client, more than 0.
    pub stream_weight: f64,
    /// Priority class; a higher number goes first. At most [`CLASSES`] - 1.
    pub class: u8,
    /// It has no SLO: its requests take no share, since they take idle time only.
    pub background: bool,
    /// It has no token and no name in the pipeline file: until it has some history it is one of the strangers.
    pub may_be_stranger: bool,
}

impl Party {
    /// The only client, with one stream.
    pub const ONLY: Party = Party {
        client: ClientKey(0),
        stream: ClientStream(0),
        weight: 1.0,
        stream_weight: 1.0,
        class: 0,
        background: false,
        may_be_stranger: false,
    };

    /// Rank of a request; see [`Ticket::rank`].
    pub(crate) fn rank(&self, is_within: bool) -> u8 {
        rank(self.class, is_within)
    }
}

/// An admitted request: what it was charged, and to whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticket {
    client: ClientKey,
    stream: ClientStream,
    class: u8,
    is_within: bool,
    cost: f64,
    /// The client itself, where it has no history yet.
    stranger: Option<ClientKey>,
}

impl Ticket {
    /// The same for a client that has no history yet.
    pub(crate) fn of(self, stranger: Option<ClientKey>) -> Self {
        Ticket { stranger, ..self }
    }

    /// The client, where it has no history yet.
    pub(crate) fn stranger(&self) -> Option<ClientKey> {
        self.stranger
    }

    /// Rank among requests of which not all can be in time; a higher one is served first. The class counts first, then
    /// whether the request is within its client's share. Without other clients and streams all have the same.
    pub fn rank(&self) -> u8 {
        rank(self.class, self.is_within)
    }

    /// The client that was charged.
    pub(crate) fn client(&self) -> ClientKey {
        self.client
    }

    /// What it was charged.
    pub(crate) fn cost(&self) -> f64 {
        self.cost
    }
}

fn rank(class: u8, is_within: bool) -> u8 {
    class.min(CLASSES as u8 - 1) * 2 + u8::from(is_within)
}

/// Why a request gets no token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shortfall {
    /// The gate is empty.
    Pipeline,
    /// The client has used up its share, in requests of average cost a second.
    Client {
        /// The share at present.
        rate: f64,
    },
    /// The clients without history have used up the share that they have together.
    Strangers {
        /// The share at present.
        rate: f64,
    },
    /// The stream has used up its share of its client's share.
    Stream {
        /// The share at present.
        rate: f64,
    },
}

impl Shortfall {
    /// What is wrong, as a sentence for the client.
    pub fn explain(&self) -> String {
        match self {
            Shortfall::Pipeline => {
                "refused: more comes than the pipeline can serve (policy.gate)".to_owned()
            }
            Shortfall::Client { rate } => format!(
                "refused: more comes than the pipeline can serve, and the client has used up its fair share of \
                 {rate:.1} requests a second (weight of its token, or clients.named)"
            ),
            Shortfall::Strangers { rate } => format!(
                "refused: more comes than the pipeline can serve, and clients of which nothing is known have used up the fair share that \
                 they have together, {rate:.1} requests a second; a client is known once three of its requests were answered, or by a \
                 token (clients.strangers)"
            ),
            Shortfall::Stream { rate } => format!(
                "refused: more comes than the pipeline can serve, and the stream has used up its part of its client's \
                 fair share, {rate:.1} requests a second (clients.streams)"
            ),
        }
    }
}

/// The gate of a pipeline, shared fairly.
#[derive(Clone, Debug)]
pub struct Shares {
    /// By class, as many as were asked for. The gate of the lowest class counts all requests: it is the gate of the
    /// pipeline.
    classes: Vec<Class>,
    /// The gate of a class that nobody has used.
    unused: Gate,
    /// Workers serve higher ranks first.
    overtakes: bool,
    reserve: Reserve,
    /// Cost of recent requests that passed, on average: the gate counts requests, and clocks count costs.
    cost: f64,
    updated_at: Timestamp,
    n_clients: usize,
    n_streams: usize,
}

impl Shares {
    /// Shares of a gate that lets `rate` requests a second pass, and the requests of `depth` at once. Full at first.
    pub fn new(rate: f64, depth: Duration) -> Self {
        let gate = Gate::new(rate, depth);
        Shares {
            classes: vec![Class::new(gate.clone())],
            reserve: Reserve::new(&gate),
            overtakes: false,
            unused: gate,
            cost: 1.0,
            updated_at: Timestamp::ZERO,
            n_clients: 0,
            n_streams: 0,
        }
    }

    /// The same where workers serve requests of a higher rank first ([`Ticket::rank`]).
    #[must_use]
    pub fn overtaking(self, overtakes: bool) -> Self {
        Shares { overtakes, ..self }
    }

    /// Changes the rate and the depth.
    pub fn set(&mut self, now: Timestamp, rate: f64, depth: Duration) {
        self.advance(now);
        self.unused.set(now, rate, depth);
        self.reserve.set(now, &self.unused);
        for class in &mut self.classes {
            class.gate.set(now, rate, depth);
        }
    }

    /// Requests a second that pass.
    pub fn rate(&self) -> f64 {
        self.unused.rate()
    }

    /// Clients and streams that have a place.
    pub fn known(&self) -> (usize, usize) {
        (self.n_clients, self.n_streams)
    }

    /// Whether one more request passes now. `cost`: its predicted time on the bottleneck over that of an average request,
    /// more than 0. The gate counts requests; shares count costs.
    ///
    /// # Errors
    /// When it does not pass; nobody is charged then.
    pub fn pass(&mut self, now: Timestamp, party: &Party, cost: f64) -> Result<Ticket, Shortfall> {
        let of = usize::from(party.class).min(CLASSES - 1);
        while self.classes.len() <= of {
            self.classes.push(Class::new(self.unused.clone()));
        }
        self.advance(now);
        self.reserve.on_offer(now);
        let class = &mut self.classes[of];
        let (client, stream) = class.find(now, party, &mut self.n_clients, &mut self.n_streams);
        class.offered(client, cost);
        let debts = class.debts(client, stream);
        let kept = self.kept(of, debts);
        let is_within = kept <= 0.0 && self.classes[of].is_within(debts);
        let lent = self.lent(of, is_within);
        let class = &mut self.classes[of];
        if class.gate.tokens() < 1.0 + kept - lent {
            return Err(match debts.is_streams() {
                _ if kept <= 0.0 => Shortfall::Pipeline,
                _ if client == ClientKey::STRANGERS => Shortfall::Strangers {
                    rate: class.rates(client, stream).0,
                },
                false => Shortfall::Client {
                    rate: class.rates(client, stream).0,
                },
                true => Shortfall::Stream {
                    rate: class.rates(client, stream).1,
                },
            });
        }
        class.lent += (1.0 - class.gate.tokens()).clamp(0.0, 1.0);
        class.gate.take();
        class.charge(client, stream, cost);
        for lower in &mut self.classes[..of] {
            lower.yields();
        }
        self.reserve.on_admit();
        self.cost += COST_PART * (cost - self.cost);
        Ok(Ticket {
            client,
            stream,
            class: of as u8,
            is_within,
            cost,
            stranger: None,
        })
    }

    /// A request that passed gives its place back: another may pass instead.
    pub fn give_back(&mut self, ticket: &Ticket) {
        let of = usize::from(ticket.class);
        // The gate may have been open meanwhile, and be another one now.
        let Some(class) = self.classes.get_mut(of) else {
            return;
        };
        class.gate.give_back();
        class.charge(ticket.client, ticket.stream, -ticket.cost);
        for lower in &mut self.classes[..of] {
            lower.regains();
        }
        self.reserve.give_back();
    }

    /// A request was dropped before it ran. If one that overtook it has its place, the gate gets back what it lent to that one:
    /// the bottleneck serves one of the two.
    pub fn overtaken(&mut self, ticket: &Ticket) {
        if let Some(class) = self.classes.get_mut(usize::from(ticket.class)) {
            class.regain_lent();
        }
    }

    /// A request has run: its client is charged what it took in truth instead of what was predicted, in the same unit. A
    /// client that names a cheaper application than the one it uses wins nothing.
    pub fn settle(&mut self, ticket: &Ticket, cost: f64) {
        let Some(class) = self.classes.get_mut(usize::from(ticket.class)) else {
            return;
        };
        class.charge(ticket.client, ticket.stream, cost - ticket.cost);
        self.cost = (self.cost + COST_PART * (cost - ticket.cost)).max(COST_PART);
    }

    /// Whether there is a client besides [`Party::ONLY`], so that gateways have something to exchange.
    pub(crate) fn has_clients(&self) -> bool {
        self.classes.iter().any(Class::has_named_clients)
    }

    /// What the clients asked for since the last report, which was `period` ago.
    pub fn report(&mut self, period: Duration) -> Vec<Offered> {
        let classes = self.classes.iter_mut().enumerate();
        let offered = classes.flat_map(|(of, class)| class.report(of as u8, period));
        offered.collect()
    }

    /// Takes over which part of each client's requests come to this gateway; `None`: all. The rate is for [`Self::set`].
    pub fn divide(&mut self, portion: Option<&Portion>) {
        for class in &mut self.classes {
            class.divide(portion);
        }
    }

    /// Tokens that a request must leave. A client that is alone in its class and those above leaves none.
    fn kept(&self, of: usize, debts: Debts) -> f64 {
        let has_higher = self.classes[of + 1..].iter().any(Class::has_clients);
        let part = match (has_higher, self.classes[of].is_shared()) {
            (true, _) => (1.0 + debts.part()) / 2.0,
            (false, true) => debts.part(),
            (false, false) => return 0.0,
        };
        (self.reserve.tokens() * part).min(self.unused.most() - 1.0)
    }

    /// Tokens that the gate lends to a request within its share: the request overtakes others that wait, or waits in line.
    fn lent(&self, of: usize, is_within: bool) -> f64 {
        match (is_within && self.classes[of].is_shared(), self.overtakes) {
            (false, _) => 0.0,
            (true, false) => LENT_IN_LINE,
            (true, true) => LENT_PART * self.unused.most(),
        }
    }

    /// Adds the tokens of the time that has passed and hands them out. The clocks are trimmed so that the gate stands
    /// where requests of clients at [`DEBT_AIM`] pass: without this, debts would drift with the credits of newcomers. Where
    /// it stands is the mean of what the last request left and what this one would leave. Streams that send in step find
    /// the gate full each time; by what they find alone, they would take it all.
    fn advance(&mut self, now: Timestamp) {
        let passed = now.since(self.updated_at).as_secs_f64();
        self.updated_at = self.updated_at.max(now);
        let aim = DEBT_AIM * self.reserve.tokens();
        for (of, class) in self.classes.iter_mut().enumerate() {
            let left = class.gate.tokens();
            let lost = class.gate.refill(now);
            if of == 0 {
                self.reserve.on_time(now, lost);
            }
            let stands = (left + class.gate.tokens() - 1.0) / 2.0;
            let off = (stands - aim) / aim.max(1.0);
            let trim = 1.0 + TRIM_MAX * off.clamp(-1.0, 1.0);
            class.forget_lent(LENT_PART * passed * class.gate.rate());
            class.advance(passed * class.gate.rate() * trim * self.cost);
        }
    }
}

#[cfg(test)]
mod tests;
