//! What the processes of a set must agree on, as JSON in a fixed order, whose SHA-256 is in their greetings: what the pipeline file
//! states.
//!
//! The fields are those of pipeline files, durations in nanoseconds. Comments, lines of the file, and what follows
//! from other fields are no part of it. Each structure is taken apart whole, so a field that is added is one to decide about here.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use spillgate_pipeline::clients::{Clients, Rights};
use spillgate_pipeline::distribution::Window;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::family::{Family, FamilyModel};
use spillgate_pipeline::id::VariantId;
use spillgate_pipeline::pipeline::{
    BatchLimits, Damaged, Limits, Module, OptionValue, Output, Pipeline, PortRef, Source, Variant,
    Workers,
};
use spillgate_pipeline::policy::{Adapt, PolicyConfig};
use spillgate_protocol::session::PipelineHash;

/// The hash of what a pipeline states.
pub(crate) fn hash(pipeline: &Pipeline) -> PipelineHash {
    PipelineHash(Sha256::digest(text(pipeline)).into())
}

fn text(pipeline: &Pipeline) -> String {
    // Arrays alone: nothing depends on the order of an object's fields.
    of_pipeline(pipeline).to_string()
}

/// A hash of execution times, by which workers of one module on one kind of device should plan alike.
pub(crate) fn profile(times: &ModuleExecution) -> u64 {
    let variants = (0..).map_while(|variant| times.variant(variant));
    let times_of = variants.map(|of| of.iter().copied().map(ns).collect::<Vec<_>>());
    let VariantId(served) = times.served_variant();
    let text = json!([served, times_of.collect::<Vec<_>>()]).to_string();
    let digest: [u8; 32] = Sha256::digest(text).into();
    u64::from_le_bytes(digest[..8].try_into().expect("it has 32 bytes"))
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
            OptionValue::NumberByText(values) => {
                json!(["numbers by text", values.iter().collect::<Vec<_>>()])
            }
            OptionValue::Groups(groups) => {
                json!(["groups", groups.iter().collect::<Vec<_>>()])
            }
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

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use spillgate_pipeline::compile;
    use spillgate_pipeline::execution::ExecutionTimes;
    use spillgate_pipeline::id::ModuleId;

    use super::*;

    const PIPELINE: &str = "\
name: one
slo: 100ms
source: { payload: bytes }
modules:
  m: { op: noop, inputs: { payload: $source.payload }, device: emulated }
outputs: { payload: $m.payload }
";
    fn said(pipeline: &str) -> String {
        let catalog = spillgate_modules::library().catalog();
        text(
            &compile(pipeline, "one.yaml", &catalog, None)
                .unwrap()
                .pipeline,
        )
    }

    #[test]
    fn the_form_is_stated() {
        expect![[r#"["pipeline","one",100000000,["payload","bytes"],[["module",0,"source","source",[],[["payload","bytes"]],null,[],null,null,1,null,[2048,600000000000],[1,1],[],64,0,[]],["module",1,"m","noop",[[0,0],null],[["payload","bytes"]],null,[],null,null,8,null,[2048,600000000000],[1,1],["emulated"],64,0,[]]],[["payload",[1,0],"bytes"]],["policy","spillgate",null,false,null,null,null,5000000000],null,["limits",1024,64,33177600,16777216,null,32,"served"],["clients","token","stream",null,"together",[1.0,0,null,null,false],[]]]"#]].assert_eq(&said(PIPELINE));
    }

    #[test]
    fn comments_may_differ_and_values_may_not() {
        let own = said(PIPELINE);
        let commented = |text: &str| format!("# A comment.\n\n{text}");
        assert_eq!(said(&commented(PIPELINE)), own);
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
            assert_ne!(said(&PIPELINE.replace(of, by)), own, "{by}");
        }
        let grouped = |groups: &str| {
            let options = format!("options: {{ groups: {groups} }}");
            said(&format!(
                "{{ name: g, slo: 1s, modules: {{ m: {{ op: detector, model: a.pt, inputs: {{ image: $source.frame }}, {options} }} }}, \
                 outputs: {{ boxes: $m.boxes }} }}"
            ))
        };
        let own = grouped("{ a: [car], b: [bus] }");
        for other in [
            "{}",
            "{ a: [car], c: [bus] }",
            "{ a: [car], b: [bus, van] }",
            "{ b: [bus], a: [car] }",
        ] {
            assert_ne!(grouped(other), own, "{other}");
        }
        let times = |ms| vec![vec![], vec![Duration::from_millis(ms); 2]].into();
        let profile_of = |ms| {
            let times: ExecutionTimes = times(ms);
            profile(times.of_module(ModuleId(1)))
        };
        assert_eq!(profile_of(3), profile_of(3));
        assert_ne!(profile_of(3), profile_of(4));
    }
}
