//! What gateways tell about their clients, so that fair shares hold over several gateways.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use spillgate_pipeline::clients::{CLASSES, Claim, ClientKey};

/// Clients that a report names. The others are summed by class.
pub const NAMED_MAX: usize = 256;

/// What a client asked of one gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offered {
    /// The client.
    pub client: ClientKey,
    /// Its class.
    pub class: u8,
    /// Its weight.
    pub weight: f64,
    /// Requests of average cost a second, within its limits.
    pub rate: f64,
    /// Requests a second in the time of the last two reports, those over its limits included: they tell where the client sends.
    /// Gateways report at different moments, so that of a client that sends every other second each would tell another second.
    pub asked: f64,
}

/// What the clients of one gateway asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientReport {
    /// Requests a second that the whole pipeline can serve, as the gateway sees it.
    pub capacity: f64,
    /// The clients that asked for most.
    pub named: Vec<Offered>,
    /// By class: the other clients together. They count as one client of their summed weight.
    pub rest: [Option<Claim>; CLASSES],
}

impl ClientReport {
    /// A report of these clients.
    pub fn new(capacity: f64, mut offered: Vec<Offered>) -> Self {
        offered.retain(|o| o.asked > 0.0);
        offered.sort_by(|a, b| b.asked.total_cmp(&a.asked).then(a.client.cmp(&b.client)));
        let mut rest = [None; CLASSES];
        for other in offered.drain(NAMED_MAX.min(offered.len())..) {
            let of: &mut Option<Claim> = &mut rest[usize::from(other.class).min(CLASSES - 1)];
            let sum = of.get_or_insert(Claim {
                weight: 0.0,
                rate: 0.0,
            });
            sum.weight += other.weight;
            sum.rate += other.rate;
        }
        ClientReport {
            capacity,
            named: offered,
            rest,
        }
    }
}

/// A gateway's part of the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Portion {
    /// Requests a second of the pipeline's capacity.
    pub rate: f64,
    /// The part of their share that clients get at this gateway: of all named ones that asked here.
    pub parts: IndexMap<ClientKey, f64, FxBuildHasher>,
}
