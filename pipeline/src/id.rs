//! Identifiers. Newtypes, so that a module cannot be passed where a worker is meant.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A gateway: the home of the requests that it accepts.
    #[derive(Default)]
    GatewayId(u16), "g"
);
id!(
    /// One request (a frame), unique over all homes while it is open and increasing in order of admission at its home,
    /// which its upper 16 bits name.
    RequestId(u64), "r"
);
id!(
    /// A client: the holder of a token or, without tokens, a connection. Unique within a gateway's lifetime; 0 stands
    /// for an unknown client.
    #[derive(Default)]
    ClientId(u32), "c"
);
id!(
    /// Dense ordinal of a module inside one pipeline, in topological order. `ModuleId::SOURCE` is the source.
    ModuleId(u16), "m"
);
id!(
    /// One worker: a broker that serves one module on one device. Dense inside one pipeline.
    WorkerId(u32), "w"
);
id!(
    /// One device as the executor sees it. Dense inside one process.
    DeviceId(u16), "d"
);
id!(
    /// One batch, unique on its device.
    BatchId(u64), "b"
);

impl RequestId {
    /// Ids of one home.
    const OF_HOME: u32 = 48;

    /// The request of that ordinal at a home. Ids repeat after 2^48 requests.
    pub fn at(home: GatewayId, ordinal: u64) -> Self {
        let ordinal = ordinal & ((1 << Self::OF_HOME) - 1);
        RequestId(u64::from(home.0) << Self::OF_HOME | ordinal)
    }

    /// Its ordinal at its home.
    pub fn ordinal(self) -> u64 {
        self.0 & ((1 << Self::OF_HOME) - 1)
    }

    /// Its home.
    pub fn home(self) -> GatewayId {
        GatewayId((self.0 >> Self::OF_HOME) as u16)
    }
}

impl ModuleId {
    /// The pipeline's source: the stage at which a frame is taken in and decoded.
    pub const SOURCE: ModuleId = ModuleId(0);

    /// Position in dense per-module tables.
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

impl GatewayId {
    /// Position in dense per-gateway tables.
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

impl WorkerId {
    /// Position in dense per-worker tables.
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

impl DeviceId {
    /// Position in dense per-device tables.
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}
