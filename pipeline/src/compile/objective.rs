//! Checks whether the objective is possible at all. The bound is the longest path of an idle system, each module with
//! its fastest variant on its fastest kind of device and alone in its batch. A module without a profile counts as
//! zero, so the sum is a lower bound for any request along that path.
//!
//! A module on `auto` may run on any kind of device in the profile: a profile describes the machine on which it was
//! measured.

use std::time::Duration;

use crate::diagnostic::{Place, Sink};
use crate::pipeline::{Module, Pipeline};
use crate::problem::Problem;
use crate::profile::{ProfileSet, device_kind};

/// The longest path that ends with a module.
#[derive(Clone, Default)]
struct LongestPath {
    needed: Duration,
    /// Modules with a profile, and the kinds of devices of their profiles.
    chain: Vec<(usize, String)>,
}

/// Notes an objective below the longest path.
pub(super) fn check(sink: &mut Sink, pipeline: &Pipeline, slo: &Place, profiles: &ProfileSet) {
    let mut paths: Vec<LongestPath> = Vec::with_capacity(pipeline.modules.len());
    for module in &pipeline.modules {
        // Predecessors come earlier in the order; among equals the first one.
        let before = pipeline
            .predecessors(module.id)
            .into_iter()
            .map(|id| &paths[id.idx()]);
        let longest = before.reduce(|a, b| if b.needed > a.needed { b } else { a });
        let mut path = longest.cloned().unwrap_or_default();
        if let Some((span, kind)) = fastest(module, profiles) {
            path.needed = path.needed.saturating_add(span);
            path.chain.push((module.id.idx(), kind));
        }
        paths.push(path);
    }
    let longest = paths
        .iter()
        .reduce(|a, b| if b.needed > a.needed { b } else { a });
    let Some(path) = longest.filter(|path| path.needed > pipeline.slo) else {
        return;
    };
    let mut devices: Vec<String> = Vec::new();
    for (_, kind) in &path.chain {
        if !devices.contains(kind) {
            devices.push(kind.clone());
        }
    }
    sink.error(
        slo,
        Problem::SloTooLow {
            slo: pipeline.slo,
            needed: path.needed,
            chain: path
                .chain
                .iter()
                .map(|(m, _)| pipeline.modules[*m].name.clone())
                .collect(),
            devices,
            profile: profiles
                .origin
                .clone()
                .unwrap_or_else(|| "given by the caller".to_owned()),
        },
    );
}

/// The shortest profiled execution of one request, and its kind of device. `None` unless every variant has a profile
/// on every kind of device that may serve the module: the missing one might be faster.
fn fastest(module: &Module, profiles: &ProfileSet) -> Option<(Duration, String)> {
    let mut kinds: Vec<&str> = Vec::new();
    for device in &module.devices {
        match device_kind(device) {
            "auto" => kinds.extend(
                profiles
                    .devices
                    .iter()
                    .filter(|(_, modules)| modules.contains_key(&module.name))
                    .map(|(kind, _)| kind.as_str()),
            ),
            kind => kinds.push(kind),
        }
    }
    let variants = 0..module.variants.len().max(1);
    let keys: Vec<String> = variants.map(|v| module.profile_key(v)).collect();
    let mut best: Option<(Duration, String)> = None;
    for kind in kinds {
        for key in &keys {
            let span = profiles.get(kind, &module.name, key)?.mean(1);
            if best.as_ref().is_none_or(|(b, _)| span < *b) {
                best = Some((span, kind.to_owned()));
            }
        }
    }
    best
}
