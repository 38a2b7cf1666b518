mod background;
mod examples;
mod random;
mod slow;
mod world;

use super::*;
use crate::weights::placement::tests::world::{Hardware, SOUND};
use crate::weights::placement::tests::{at, model, ms, world_of};
use crate::weights::placement::{PlacementConfig, PlacementPolicy};
use world::{Answer, Ask, Event, World};

/// A worker with room for eight requests, and nothing after its module.
fn worker(id: u32, models: &[u32]) -> FleetWorker {
    FleetWorker {
        by_variant: false,
        worker: WorkerId(id),
        module: ModuleId(1),
        models: models.iter().copied().map(ModelId).collect(),
        capacity: 8,
        background: 8,
        downstream: Duration::ZERO,
    }
}

/// A request with that SLO at worker 0.
fn ask(arrives: u64, slo: u64) -> Ask {
    Ask {
        at: at(arrives),
        worker: WorkerId(0),
        id: None,
        gateway: 0,
        member: 0,
        deadline: at(arrives + slo),
    }
}
