//! Clients of a pipeline: how they and their streams are told apart, and their rights under overload. The section `clients:`
//! of a pipeline file:
//!
//! ```yaml
//! clients:
//!   by: metadata
//!   metadata: x-client
//!   each: { in_flight: 64 }
//!   named:
//!     control-room: { weight: 4, class: 1 }
//! ```

use indexmap::IndexMap;

/// Priority classes; a higher number goes first.
pub const CLASSES: usize = 8;
/// Weights of clients, from the least to the greatest.
pub const WEIGHT: (f64, f64) = (0.001, 1000.0);

/// The clients of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Clients {
    /// How clients are told apart.
    pub by: ClientsBy,
    /// How the streams of a client are told apart.
    pub streams: StreamsBy,
    /// The header that names the client or the stream, in lower case: for [`ClientsBy::Metadata`] and
    /// [`StreamsBy::Metadata`].
    pub metadata: Option<String>,
    /// What clients get that have no history.
    pub strangers: Strangers,
    /// The rights of clients that are not named.
    pub each: Rights,
    /// The rights of clients by name.
    pub named: IndexMap<String, Rights>,
}

impl Clients {
    /// Clients of a file that says nothing about them.
    pub fn equal() -> Self {
        Clients {
            by: ClientsBy::Token,
            streams: StreamsBy::Stream,
            metadata: None,
            strangers: Strangers::Together,
            each: Rights::EQUAL,
            named: IndexMap::new(),
        }
    }
}

/// How clients are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientsBy {
    /// By the name of their token; where the server has no tokens, by the peer's address.
    Token,
    /// By the peer's address, with tokens too.
    Address,
    /// By connection.
    Connection,
    /// By the application that the request names.
    Application,
    /// By a header of the call. A call without it belongs to its token or address.
    Metadata,
}

impl ClientsBy {
    /// All, in the order of the documentation.
    pub const ALL: [ClientsBy; 5] = [
        ClientsBy::Token,
        ClientsBy::Address,
        ClientsBy::Connection,
        ClientsBy::Application,
        ClientsBy::Metadata,
    ];

    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            ClientsBy::Token => "token",
            ClientsBy::Address => "address",
            ClientsBy::Connection => "connection",
            ClientsBy::Application => "application",
            ClientsBy::Metadata => "metadata",
        }
    }
}

/// How the streams of a client are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamsBy {
    /// Each stream is one. The unary calls of a connection are one together.
    Stream,
    /// By connection.
    Connection,
    /// By the application that the request names.
    Application,
    /// By a header of the call. The calls of a client without it are one stream.
    Metadata,
}

impl StreamsBy {
    /// All, in the order of the documentation.
    pub const ALL: [StreamsBy; 4] = [
        StreamsBy::Stream,
        StreamsBy::Connection,
        StreamsBy::Application,
        StreamsBy::Metadata,
    ];

    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            StreamsBy::Stream => "stream",
            StreamsBy::Connection => "connection",
            StreamsBy::Application => "application",
            StreamsBy::Metadata => "metadata",
        }
    }
}

/// What clients get of which nothing is known: they have no token, the file does not name them, and hardly any of their requests was
/// answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// All of them share one place among the clients.
    Together,
    /// Each is a client like others.
    Apart,
}

impl Strangers {
    /// All, in the order of the documentation.
    pub const ALL: [Strangers; 2] = [Strangers::Together, Strangers::Apart];

    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Strangers::Together => "together",
            Strangers::Apart => "apart",
        }
    }
}

/// The rights of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rights {
    /// Its weight among the clients of its class.
    pub weight: f64,
    /// Its priority class, below [`CLASSES`].
    pub class: u8,
    /// Most requests a second.
    pub rate: Option<f64>,
    /// Most requests in flight.
    pub in_flight: Option<u32>,
    /// It has no SLO (`slo: none`): its requests are served in idle time only.
    pub background: bool,
}

impl Rights {
    /// Those of clients of which nothing is said.
    pub const EQUAL: Rights = Rights {
        weight: 1.0,
        class: 0,
        rate: None,
        in_flight: None,
        background: false,
    };

    /// Whether they limit what a client may send.
    pub fn are_limits(&self) -> bool {
        self.rate.is_some() || self.in_flight.is_some()
    }
}

/// A client over all gateways: a hash of its token's name, else of its address. `u64::MAX` stands for clients without a
/// place of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(pub u64);

impl ClientKey {
    /// The client of that name: equal over all gateways.
    pub fn of(name: &str) -> Self {
        ClientKey::of_bytes(name.as_bytes())
    }

    /// The same, where the name need not be a text.
    pub fn of_bytes(name: &[u8]) -> Self {
        ClientKey(hash(name))
    }

    /// Clients without a place of their own.
    pub const OTHERS: ClientKey = ClientKey(u64::MAX);

    /// Clients without history, which share one place.
    pub const STRANGERS: ClientKey = ClientKey(u64::MAX - 1);
}

/// FNV-1a: equal at every gateway, whatever it runs on.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// What a client, or several together, asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Its weight, more than 0.
    pub weight: f64,
    /// Requests a second.
    pub rate: f64,
}
