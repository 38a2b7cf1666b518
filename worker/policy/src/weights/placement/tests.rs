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

/// A model with weights of its own of that many pages, which takes `alone` for one request, and half of it for each further one.
pub(crate) fn model(pages: u32, load: u64, alone: u64) -> (Weights, Model) {
    let size = |n: u32| ms(alone) * (n + 1) / 2;
    let load = ms(load);
    let model = Model {
        weights: WeightsId(0),
        neighbours: Vec::new(),
        execution: vec![size(1), size(2), size(4)],
        input: Duration::from_micros(50),
    };
    (Weights { pages, load }, model)
}

pub(crate) fn world_of(pages: &[u32], models: Vec<(Weights, Model)>) -> PlacementConfig {
    let (weights, mut models): (Vec<Weights>, Vec<Model>) = models.into_iter().unzip();
    for (id, model) in (0..).map(WeightsId).zip(&mut models) {
        model.weights = id;
    }
    let devices = pages.iter().map(|&pages| DeviceSpec {
        pages,
        resident: Vec::new(),
    });
    PlacementConfig {
        sizes: vec![1, 2, 4],
        weights,
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
