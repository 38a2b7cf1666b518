//! Which variant serves each stream, and why nothing better.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spillgate_controller_policy::gateway::AdaptationView;
use spillgate_controller_policy::variant_selector::{Obstacle, StreamView};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::VariantId;
use spillgate_pipeline::pipeline::Module;
use spillgate_telemetry::metrics::StreamsReading;

/// Bits of a stream's key that tell the calls of a connection apart.
const CALL_BITS: u32 = 24;

/// What serves the streams of a gateway, where a module's variants are chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdaptationStatus {
    /// The module.
    pub module: String,
    /// How they are chosen.
    pub by: String,
    /// The part of its devices' time that may be planned.
    pub part: f64,
    /// The streams.
    pub streams: Vec<StreamStatus>,
}

/// A stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamStatus {
    /// Its connection and, of several, its call: `7/1`.
    pub stream: String,
    /// Requests a second.
    pub rate: f64,
    /// The variant that serves it: its model file and input size.
    pub variant: String,
    /// A better one for a part of its requests, and that part.
    pub better: Option<(String, f64)>,
    /// The longer side that its client was asked for; `null` for a client that does not adapt.
    pub asked_side: Option<u32>,
    /// What keeps it from the next better variant: `frame`, `link`, `compute` or `capacity`; `null` for the best.
    pub obstacle: Option<String>,
    /// The same in words.
    pub why: Option<String>,
}

impl AdaptationStatus {
    /// A gateway's view, in words.
    pub(super) fn of(pipeline: &Pipeline, view: &AdaptationView) -> Self {
        let module = &pipeline.modules[view.module.idx()];
        let by = pipeline.adapt.map(|adapt| adapt.name.name());
        AdaptationStatus {
            module: module.name.clone(),
            by: by.unwrap_or_default().to_owned(),
            part: view.part,
            streams: view.streams.iter().map(|s| stream(module, s)).collect(),
        }
    }
}

/// How many streams each variant serves, by what keeps them from a better one.
pub(crate) fn streams_of(pipeline: &Pipeline, view: &AdaptationView) -> Vec<StreamsReading> {
    let module = &pipeline.modules[view.module.idx()];
    let mut counts: BTreeMap<(VariantId, &'static str), u32> = BTreeMap::new();
    for stream in &view.streams {
        let obstacle = stream.obstacle.as_ref().map_or("", Obstacle::label);
        *counts.entry((stream.variant, obstacle)).or_default() += 1;
    }
    let reading = |((variant, obstacle), count): ((VariantId, &'static str), u32)| StreamsReading {
        pipeline: pipeline.name.clone(),
        module: module.name.clone(),
        variant: module.profile_key(variant.idx()),
        obstacle,
        count,
    };
    counts.into_iter().map(reading).collect()
}

fn stream(module: &Module, view: &StreamView) -> StreamStatus {
    let name = |variant: VariantId| module.profile_key(variant.idx());
    let (connection, call) = (view.key.0 >> CALL_BITS, view.key.0 & ((1 << CALL_BITS) - 1));
    StreamStatus {
        stream: match call {
            0 => connection.to_string(),
            call => format!("{connection}/{call}"),
        },
        rate: view.rate,
        variant: name(view.variant),
        better: view.better.map(|(variant, part)| (name(variant), part)),
        asked_side: view.asked.map(|asked| asked.side),
        obstacle: view.obstacle.map(|o| o.label().to_owned()),
        why: view.obstacle.as_ref().map(Obstacle::explain),
    }
}
