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

/// One life of a process. Messages of a process's other incarnations are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incarnation(pub u64);

id!(
    /// A gateway: the owner of the requests that it accepts.
    #[derive(Default)]
    GatewayId(u16), "g"
);
id!(
    /// One request (a frame), unique over all gateways and their lives while it is open. In a life of its owner, ids increase in
    /// order of admission. The upper 16 bits name the owner, the next 12 the life.
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
    /// Dense ordinal of a model in the family of a module, in order of names. 0 where the module has no family: so requests
    /// of different members differ in it, and others never do.
    #[derive(Default)]
    MemberId(u16), "f"
);
id!(
    /// Ordinal of a variant of a module, the most accurate last. 0 where the module has no variants.
    #[derive(Default)]
    VariantId(u16), "v"
);
id!(
    /// One device as the executor sees it. Dense inside one process.
    DeviceId(u16), "d"
);
id!(
    /// One batch, unique on its device.
    BatchId(u64), "b"
);
id!(
    /// One model: what a batch runs. Dense among the models that share a set of devices.
    ModelId(u32), "model "
);
id!(
    /// The weights of one model, or of several that run with the same ones; told apart by their content. Dense among those of
    /// the models that share a set of devices.
    WeightsId(u32), "weights "
);
id!(
    /// One action, unique among those of one placement.
    ActionId(u64), "a"
);

impl RequestId {
    /// Bits below the owner.
    const OF_OWNER: u32 = 48;
    /// Bits below the life of the owner.
    const OF_LIFE: u32 = 36;

    /// The request of that ordinal in a life of an owner. Ids repeat after 2^36 requests. An owner that begins anew counts from 0
    /// again: the lowest bits of its incarnation keep results of requests of its earlier life from meeting new requests.
    pub fn at(owner: GatewayId, life: Incarnation, ordinal: u64) -> Self {
        let lives = 1 << (Self::OF_OWNER - Self::OF_LIFE);
        let life = (life.0 % lives) << Self::OF_LIFE;
        let ordinal = ordinal & ((1 << Self::OF_LIFE) - 1);
        RequestId(u64::from(owner.0) << Self::OF_OWNER | life | ordinal)
    }

    /// Its ordinal in that life of its owner.
    pub fn ordinal(self) -> u64 {
        self.0 & ((1 << Self::OF_LIFE) - 1)
    }

    /// The same request where its owner has that id.
    #[must_use]
    pub fn with_owner(self, owner: GatewayId) -> Self {
        let below = (1 << Self::OF_OWNER) - 1;
        RequestId(u64::from(owner.0) << Self::OF_OWNER | self.0 & below)
    }

    /// Its owner: the gateway that accepted it.
    pub fn owner(self) -> GatewayId {
        GatewayId((self.0 >> Self::OF_OWNER) as u16)
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

impl MemberId {
    /// Position in dense per-member tables.
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

impl VariantId {
    /// Position in dense per-variant tables.
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

impl ModelId {
    /// Position in dense per-model tables.
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

impl WeightsId {
    /// Position in dense per-weights tables.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_two_lives_of_an_owner_differ() {
        let id = |life| RequestId::at(GatewayId(3), Incarnation(life), 7);
        assert_ne!(id(0), id(1));
        for id in [id(0), id(1), id(u64::MAX)] {
            assert_eq!((id.owner(), id.ordinal()), (GatewayId(3), 7));
        }
    }
}
