mod examples;
mod random;
pub(crate) mod world;

use super::*;
use world::{Ask, Hardware, SOUND, Stands, World};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn at(after: u64) -> Timestamp {
    Timestamp::ZERO + ms(after)
}

/// A model of that many pages that takes `alone` for one request, and half of it for each further one.
pub(crate) fn model(pages: u32, load: u64, alone: u64) -> Model {
    let size = |n: u32| ms(alone) * (n + 1) / 2;
    Model {
        pages,
        load: ms(load),
        execution: vec![size(1), size(2), size(4)],
        input: Duration::from_micros(50),
    }
}

pub(crate) fn world_of(pages: &[u32], models: Vec<Model>) -> PlacementConfig {
    let devices = pages.iter().map(|&pages| DeviceSpec {
        pages,
        resident: Vec::new(),
    });
    PlacementConfig {
        sizes: vec![1, 2, 4],
        models,
        devices: devices.collect(),
        travel: Duration::from_micros(100),
        is_fair: true,
        background_time: Duration::MAX,
    }
}

fn ask(arrives: u64, model: u32, slo: Option<u64>) -> Ask {
    Ask {
        at: at(arrives),
        model: ModelId(model),
        deadline: slo.map_or(Timestamp::MAX, |slo| at(arrives + slo)),
        leaves: None,
    }
}
