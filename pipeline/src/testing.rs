//! Small pipelines without YAML, for tests of the crates above this one and of the simulator.

use std::time::Duration;

use indexmap::IndexMap;
use petgraph::graph::DiGraph;

use crate::catalog::ValueType;
use crate::clients::Clients;
use crate::distribution::WINDOW_DEFAULT;
use crate::id::ModuleId;
use crate::pipeline::{
    BatchLimits, Damaged, Edge, Limits, Module, Output, Pipeline, PortRef, Source, Workers,
};
use crate::policy::{DropPolicy, POLICY_DEFAULT, PolicyConfig};

/// A pipeline of no-op modules over bytes. Module `i + 1` reads from the modules `reads[i]` (0 is the
/// source) and runs only when `when[i]` is not empty; every module without a reader is an output.
pub fn noop_pipeline(slo: Duration, reads: &[&[u16]], when: &[Option<u16>]) -> Pipeline {
    let port = |module: u16| PortRef {
        module: ModuleId(module),
        port: 0,
    };
    let mut graph = DiGraph::new();
    let mut modules = Vec::new();
    for id in 0..=reads.len() as u16 {
        graph.add_node(ModuleId(id));
        let (name, op) = match id {
            0 => ("source".to_owned(), "source".to_owned()),
            _ => (format!("m{id}"), "noop".to_owned()),
        };
        let idx = usize::from(id).checked_sub(1);
        modules.push(Module {
            id: ModuleId(id),
            name,
            op,
            inputs: idx.map_or(vec![], |i| {
                reads[i].iter().map(|&r| Some(port(r))).collect()
            }),
            outputs: vec![("payload".to_owned(), ValueType::Bytes)],
            when: idx.and_then(|i| when.get(i).copied().flatten()).map(port),
            variants: vec![],
            fixed: None,
            frame_min: 0,
            family: None,
            batch: BatchLimits { max: 8 },
            schedule: None,
            window: WINDOW_DEFAULT,
            workers: Workers { min: 1, max: 1 },
            devices: vec!["emulated:0".to_owned()],
            queue: 64,
            options: IndexMap::new(),
            line: 0,
        });
    }
    for module in &modules[1..] {
        let data = module.inputs.iter().flatten().map(|p| p.module);
        let condition = module.when.map(|p| p.module);
        let mut from: Vec<ModuleId> = data.clone().chain(condition).collect();
        from.sort_unstable();
        from.dedup();
        for up in from {
            let edge = Edge {
                condition: condition == Some(up),
                required: data.clone().any(|d| d == up),
            };
            graph.add_edge(
                petgraph::graph::NodeIndex::new(up.idx()),
                petgraph::graph::NodeIndex::new(module.id.idx()),
                edge,
            );
        }
    }
    let mut pipeline = Pipeline {
        name: "test".to_owned(),
        slo,
        source: Source {
            field: "payload".to_owned(),
            ty: ValueType::Bytes,
        },
        modules,
        graph,
        outputs: vec![],
        policy: PolicyConfig {
            drop: DropPolicy::DEADLINE,
            ..POLICY_DEFAULT
        },
        adapt: None,
        limits: Limits {
            in_flight: 1024,
            in_flight_per_stream: 64,
            pixels: 1 << 25,
            frame_bytes: 1 << 24,
            decoding: None,
            damaged: Damaged::Served,
            objects: 32,
        },
        clients: Clients::equal(),
    };
    pipeline.outputs = pipeline
        .sinks()
        .into_iter()
        .map(|id| Output {
            name: pipeline.modules[id.idx()].name.clone(),
            from: PortRef {
                module: id,
                port: 0,
            },
            ty: ValueType::Bytes,
        })
        .collect();
    pipeline
}
