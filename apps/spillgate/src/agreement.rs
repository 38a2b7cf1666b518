//! What the processes of a topology must agree on, as JSON in a fixed order, whose SHA-256 is in their greetings.
//!
//! The fields are those of pipeline files, topologies and plans, durations in nanoseconds. Comments, lines of the file, and what follows
//! from other fields are no part of it. Each structure is taken apart whole, so a field that is added is one to decide about here.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::clients::{Clients, Rights};
use spillgate_pipeline::distribution::Window;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::family::{Family, FamilyModel};
use spillgate_pipeline::id::{ModuleId, VariantId};
use spillgate_pipeline::pipeline::{
    BatchLimits, Damaged, Limits, Module, OptionValue, Output, Pipeline, PortRef, Source, Variant,
    Workers,
};
use spillgate_pipeline::placement::Sharing;
use spillgate_pipeline::policy::{Adapt, PolicyConfig};
use spillgate_protocol::session::{PipelineHash, Timing};
use spillgate_protocol::topology::{Process, Topology};

/// The hash of what a pipeline, its plan and its topology say.
pub(crate) fn hash(pipeline: &Pipeline, planned: &Planned, topology: &Topology) -> PipelineHash {
    PipelineHash(Sha256::digest(text(pipeline, planned, topology)).into())
}

fn text(pipeline: &Pipeline, planned: &Planned, topology: &Topology) -> String {
    let parts = [
        of_pipeline(pipeline),
        of_plan(planned),
        of_topology(topology),
    ];
    // Arrays alone: nothing depends on the order of an object's fields.
    Value::from(parts.to_vec()).to_string()
}

fn ns(time: Duration) -> Value {
    // Longer than 500 years is no time of a file.
    Value::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn port(port: &PortRef) -> Value {
    let PortRef { module, port } = port;
    json!([module.0, port])
}

fn of_pipeline(pipeline: &Pipeline) -> Value {
    let Pipeline {
        name,
        slo,
        source: Source { field, ty },
        modules,
        // It follows from the inputs.
        graph: _,
        outputs,
        policy,
        adapt,
        limits,
        clients,
    } = pipeline;
    let output = |Output { name, from, ty }: &Output| json!([name, port(from), ty.name()]);
    let adapt = adapt.map(|adapt| {
        let Adapt {
            module,
            name,
            // Only the laboratory hands in others.
            constants: _,
        } = adapt;
        json!([module.0, name.name()])
    });
    json!([
        "pipeline",
        name,
        ns(*slo),
        [field, ty.name()],
        modules.iter().map(of_module).collect::<Vec<_>>(),
        outputs.iter().map(output).collect::<Vec<_>>(),
        of_policy(policy),
        adapt,
        of_limits(limits),
        of_clients(clients),
    ])
}

fn of_module(module: &Module) -> Value {
    let Module {
        id,
        name,
        op,
        inputs,
        outputs,
        when,
        variants,
        fixed,
        family,
        batch: BatchLimits { max },
        schedule,
        window: Window { samples, age },
        workers: Workers { min, max: most },
        devices,
        queue,
        frame_min,
        options,
        // For messages.
        line: _,
    } = module;
    let input = |input: &Option<PortRef>| input.as_ref().map(port);
    let variant = |variant: &Variant| {
        let Variant {
            model,
            input,
            accuracy,
        } = variant;
        json!([model, input, accuracy])
    };
    let family = family.as_deref().map(|family| {
        let Family {
            pattern,
            default,
            members,
        } = family;
        let member = |FamilyModel { name, file }: &FamilyModel| json!([name, file]);
        let members: Vec<Value> = members.iter().map(member).collect();
        json!([pattern, default.map(|default| default.0), members])
    });
    let outputs = outputs.iter().map(|(name, ty)| json!([name, ty.name()]));
    let options = options.iter().map(|(name, value)| {
        let value = match value {
            OptionValue::Bool(value) => json!(["bool", value]),
            OptionValue::Integer(value) => json!(["integer", value]),
            OptionValue::Number(value) => json!(["number", value]),
            OptionValue::Text(value) => json!(["text", value]),
            OptionValue::Numbers(values) => json!(["numbers", values]),
            OptionValue::Texts(values) => json!(["texts", values]),
        };
        json!([name, value])
    });
    json!([
        "module",
        id.0,
        name,
        op,
        inputs.iter().map(input).collect::<Vec<_>>(),
        outputs.collect::<Vec<_>>(),
        when.as_ref().map(port),
        variants.iter().map(variant).collect::<Vec<_>>(),
        fixed.map(|variant| variant.0),
        family,
        max,
        schedule.map(|schedule| schedule.name()),
        [json!(samples), ns(*age)],
        [min, most],
        devices,
        queue,
        frame_min,
        options.collect::<Vec<_>>(),
    ])
}

fn of_policy(policy: &PolicyConfig) -> Value {
    let PolicyConfig {
        drop,
        decider,
        drop_is_named,
        dispatch,
        lambda,
        gate,
        window,
    } = policy;
    json!([
        "policy",
        drop.name(),
        decider.map(|decider| decider.name()),
        drop_is_named,
        dispatch.map(|dispatch| dispatch.name()),
        lambda,
        gate,
        ns(*window),
    ])
}

fn of_limits(limits: &Limits) -> Value {
    let Limits {
        in_flight,
        in_flight_per_stream,
        pixels,
        frame_bytes,
        decoding,
        objects,
        damaged,
    } = limits;
    json!([
        "limits",
        in_flight,
        in_flight_per_stream,
        pixels,
        frame_bytes,
        decoding.map(ns),
        objects,
        match damaged {
            Damaged::Served => "served",
            Damaged::Refused => "refused",
        },
    ])
}

fn of_clients(clients: &Clients) -> Value {
    let Clients {
        by,
        streams,
        metadata,
        strangers,
        each,
        named,
    } = clients;
    let named = named.iter().map(|(name, of)| json!([name, rights(of)]));
    json!([
        "clients",
        by.name(),
        streams.name(),
        metadata,
        strangers.name(),
        rights(each),
        named.collect::<Vec<_>>(),
    ])
}

fn rights(rights: &Rights) -> Value {
    let Rights {
        weight,
        class,
        rate,
        in_flight,
        background,
    } = rights;
    json!([weight, class, rate, in_flight, background])
}

fn of_plan(planned: &Planned) -> Value {
    let Planned {
        batch,
        execution,
        workers,
        alone,
    } = planned;
    let times = |module: &ModuleExecution| {
        let variants = (0..).map_while(|variant| module.variant(variant));
        let times = variants.map(|times| times.iter().copied().map(ns).collect::<Vec<_>>());
        let VariantId(served) = module.served_variant();
        json!([served, times.collect::<Vec<_>>()])
    };
    let modules = (0..execution.n_modules() as u16).map(ModuleId);
    let times = modules.map(|module| times(execution.of_module(module)));
    json!(["plan", batch, workers, alone, times.collect::<Vec<_>>()])
}

fn of_topology(topology: &Topology) -> Value {
    let Topology {
        processes,
        timing,
        sharing,
    } = topology;
    let process = |process: &Process| {
        let Process {
            name,
            address,
            gateway,
            controllers,
            workers,
            memory,
        } = process;
        let controllers: Vec<u16> = controllers.iter().map(|module| module.0).collect();
        let workers = workers
            .iter()
            .map(|(module, devices)| json!([module.0, devices]));
        json!([
            &**name,
            address,
            gateway.map(|gateway| gateway.0),
            controllers,
            workers.collect::<Vec<_>>(),
            memory,
        ])
    };
    let sharing = sharing.map(|Sharing { decider, is_fair }| json!([decider.name(), is_fair]));
    json!([
        "topology",
        processes.iter().map(process).collect::<Vec<_>>(),
        of_timing(timing),
        sharing,
    ])
}

fn of_timing(timing: &Timing) -> Value {
    let times = [
        timing.suspicion(),
        timing.death(),
        timing.backoff_first(),
        timing.backoff_longest(),
    ];
    Value::from(times.map(ns).to_vec())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use spillgate_pipeline::compile;
    use spillgate_protocol::topology::parse_topology;

    use super::*;

    const PIPELINE: &str = "\
name: one
slo: 100ms
source: { payload: bytes }
modules:
  m: { op: noop, inputs: { payload: $source.payload }, device: emulated }
outputs: { payload: $m.payload }
";
    const TOPOLOGY: &str = "\
processes:
  - { name: gateway-0, gateway: true }
  - { name: m-0, workers: { m: 1 }, controllers: all, address: \"10.0.0.7:7720\" }
";

    fn said(pipeline: &str, topology: &str) -> String {
        let catalog = spillgate_modules::library().catalog();
        let compiled = compile(pipeline, "one.yaml", &catalog, None).unwrap();
        let topology = parse_topology(topology, "topology.yaml", &compiled.pipeline).unwrap();
        let planned = Planned {
            batch: vec![1, 2],
            execution: vec![vec![], vec![Duration::from_millis(1); 2]].into(),
            workers: vec![0, 1],
            alone: true,
        };
        text(&compiled.pipeline, &planned, &topology)
    }

    #[test]
    fn the_form_is_stated() {
        expect![[r#"[["pipeline","one",100000000,["payload","bytes"],[["module",0,"source","source",[],[["payload","bytes"]],null,[],null,null,1,null,[2048,600000000000],[1,1],[],64,0,[]],["module",1,"m","noop",[[0,0],null],[["payload","bytes"]],null,[],null,null,8,null,[2048,600000000000],[1,1],["emulated"],64,0,[]]],[["payload",[1,0],"bytes"]],["policy","spillgate",null,false,null,null,null,5000000000],null,["limits",1024,64,33177600,16777216,null,32,"served"],["clients","token","stream",null,"together",[1.0,0,null,null,false],[]]],["plan",[1,2],[0,1],true,[[0,[]],[0,[[1000000,1000000]]]]],["topology",[["gateway-0",null,0,[],[],[]],["m-0","10.0.0.7:7720",null,[0,1],[[1,["emulated"]]],[]]],[1000000000,3000000000,100000000,1000000000],null]]"#]].assert_eq(&said(PIPELINE, TOPOLOGY));
    }

    #[test]
    fn comments_may_differ_and_values_may_not() {
        let own = said(PIPELINE, TOPOLOGY);
        let commented = |text: &str| format!("# A comment.\n\n{text}");
        assert_eq!(said(&commented(PIPELINE), &commented(TOPOLOGY)), own);
        for (of, by) in [
            ("slo: 100ms", "slo: 101ms"),
            ("name: one", "name: two"),
            ("device: emulated", "device: emulated, batch: { max: 7 }"),
            ("device: emulated", "device: emulated, queue: 7"),
            ("outputs: {", "limits: { objects: 7 }\noutputs: {"),
            ("outputs: {", "policy: { drop: pard }\noutputs: {"),
            ("outputs: {", "clients: { each: { weight: 2 } }\noutputs: {"),
        ] {
            assert!(PIPELINE.contains(of), "{of}");
            assert_ne!(said(&PIPELINE.replace(of, by), TOPOLOGY), own, "{by}");
        }
        for (of, by) in [
            ("7720", "7721"),
            ("m-0", "m-1"),
            ("processes:", "silence: { suspect: 2s }\nprocesses:"),
        ] {
            assert_ne!(said(PIPELINE, &TOPOLOGY.replace(of, by)), own, "{by}");
        }
    }
}
