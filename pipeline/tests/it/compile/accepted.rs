//! Files that compile, and what they compile to.

use std::time::Duration;

use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::compile;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::{OptionValue, Pipeline, PortRef, Workers};
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy};
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_pipeline::spec::LIMITS_DEFAULT;

use crate::compile::{TRAFFIC, catalog};

fn accepted(text: &str) -> Pipeline {
    match compile(text, "p.yaml", &catalog(), None) {
        Ok(compiled) => {
            assert_eq!(compiled.warnings, [], "{text}");
            compiled.pipeline
        }
        Err(errors) => panic!("{errors}"),
    }
}

#[test]
fn the_example_of_the_design_compiles() {
    let p = accepted(TRAFFIC);
    assert_eq!(p.name, "traffic");
    assert_eq!(p.slo, Duration::from_millis(400));
    let names: Vec<&str> = p.modules.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["source", "detect", "plates", "faces"]);
    assert_eq!(
        p.successors(ModuleId::SOURCE),
        [ModuleId(1), ModuleId(2), ModuleId(3)]
    );
    assert_eq!(p.predecessors(ModuleId(2)), [ModuleId::SOURCE, ModuleId(1)]);
    assert_eq!(p.sinks(), [ModuleId(2), ModuleId(3)]);

    let detect = &p.modules[1];
    assert_eq!(detect.workers, Workers { min: 1, max: 4 });
    assert_eq!(detect.devices, ["auto"]);
    assert_eq!((detect.batch.max, detect.queue, detect.line), (8, 64, 4));
    let inputs: Vec<_> = detect.variants.iter().map(|v| v.input).collect();
    assert_eq!(inputs, [Some(192), Some(320)]);

    let plates = &p.modules[2];
    let vehicles = PortRef {
        module: ModuleId(1),
        port: 0,
    };
    let frame = PortRef {
        module: ModuleId::SOURCE,
        port: 0,
    };
    assert_eq!(plates.inputs, [Some(frame), Some(vehicles)]);
    assert_eq!(plates.when, Some(vehicles));
    let edge = |from: u16, to: u16| {
        let at = p
            .graph
            .find_edge((u32::from(from)).into(), (u32::from(to)).into())
            .unwrap();
        (p.graph[at].condition, p.graph[at].required)
    };
    assert_eq!(edge(0, 2), (false, true));
    assert_eq!(edge(1, 2), (true, true));
    assert_eq!(
        edge(1, 3),
        (false, false),
        "the boxes of a face recognizer are optional"
    );

    let outputs: Vec<_> = p
        .outputs
        .iter()
        .map(|o| (o.name.as_str(), o.from, o.ty))
        .collect();
    let people = PortRef {
        module: ModuleId(3),
        port: 0,
    };
    assert_eq!(outputs[0], ("vehicles", vehicles, ValueType::Boxes));
    assert_eq!(outputs[2], ("people", people, ValueType::Labels));
    assert_eq!(p.policy.drop, DropPolicy::DEADLINE);
    assert_eq!(p.policy.dispatch(), DispatchPolicyName::LeastOutstanding);
    assert_eq!(p.limits, LIMITS_DEFAULT);
}

#[test]
fn modules_may_come_in_any_order_and_keep_it_among_equals() {
    let p = accepted(
        "
name: p
slo: 1s
source: { data: bytes }
modules:
  last: { op: noop, inputs: { payload: $b.payload, more: $a.payload } }
  b: { op: noop, inputs: { payload: $source.data } }
  a: { op: noop, inputs: { payload: $source.data } }
outputs: { out: $last.payload }
",
    );
    let names: Vec<&str> = p.modules.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["source", "b", "a", "last"]);
    assert_eq!(p.source.ty, ValueType::Bytes);
    for (i, module) in p.modules.iter().enumerate() {
        assert_eq!(module.id.idx(), i);
        assert_eq!(p.graph[petgraph::graph::NodeIndex::new(i)], module.id);
    }
}

/// A file with every field.
pub(crate) const EVERY_FIELD: &str = "\
name: all
slo: 1.5s
source: { picture: image }
modules:
  detect:
    op: detector
    variants:
      - { model: big.pt, input: 640, accuracy: 0.9 }
      - { model: small.pt, input: 320, accuracy: 0.8 }
    inputs: { image: $source.picture }
    batch: { max: 16 }
    workers: 2
    device: [cuda:0, cuda:1]
    queue: 10
    options:
      confidence: 0.25
      objects: 50
      half: true
      labels: road.txt
      mean: [0.5, 0, 1]
      classes: [car, bus]
      thresholds: { car: 0.5, fire truck: 1 }
      groups: { ships: [boat, ferry], two-wheelers: [bicycle] }
      resize: stretch
outputs: { boxes: $detect.vehicles, ships: $detect.ships, frame: $source.picture }
policy: { drop: none, dispatch: round-robin }
limits: { in_flight: 16, pixels: 1000000, frame_bytes: 500000, objects: 8 }
";

#[test]
fn every_field_can_be_set() {
    let p = accepted(EVERY_FIELD);
    let detect = &p.modules[1];
    let inputs: Vec<_> = detect.variants.iter().map(|v| v.input).collect();
    assert_eq!(inputs, [Some(320), Some(640)], "best accuracy last");
    assert_eq!(detect.workers, Workers { min: 2, max: 2 });
    assert_eq!(detect.devices, ["cuda:0", "cuda:1"]);
    assert_eq!((detect.batch.max, detect.queue), (16, 10));
    let texts = OptionValue::Texts(vec!["car".to_owned(), "bus".to_owned()]);
    let list = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect();
    let groups = [
        ("ships", list(&["boat", "ferry"])),
        ("two-wheelers", list(&["bicycle"])),
    ];
    let groups = groups.map(|(name, list)| (name.to_owned(), list));
    let thresholds = [("car", 0.5), ("fire truck", 1.0)].map(|(name, of)| (name.to_owned(), of));
    let expected = [
        ("confidence", OptionValue::Number(0.25)),
        ("objects", OptionValue::Integer(50)),
        ("half", OptionValue::Bool(true)),
        ("labels", OptionValue::Text("road.txt".to_owned())),
        ("mean", OptionValue::Numbers(vec![0.5, 0.0, 1.0])),
        ("classes", texts),
        (
            "thresholds",
            OptionValue::NumberByText(thresholds.into_iter().collect()),
        ),
        ("groups", OptionValue::Groups(groups.into_iter().collect())),
        ("resize", OptionValue::Text("stretch".to_owned())),
    ];
    for (name, value) in expected {
        assert_eq!(detect.options[name], value);
    }
    assert_eq!(p.policy.drop, DropPolicy::NONE);
    assert_eq!(p.policy.dispatch(), DispatchPolicyName::RoundRobin);
    assert_eq!(
        (p.limits.in_flight, p.limits.in_flight_per_stream),
        (16, 16)
    );
    assert_eq!(
        (p.limits.pixels, p.limits.frame_bytes, p.limits.objects),
        (1_000_000, 500_000, 8)
    );
    assert_eq!(p.outputs[2].from.module, ModuleId::SOURCE);
}

#[test]
fn groups_are_outputs_behind_those_of_the_type() {
    let p = accepted(EVERY_FIELD);
    let outputs: Vec<_> = p.modules[1]
        .outputs
        .iter()
        .map(|(name, ty)| (&**name, *ty))
        .collect();
    let expected = ["vehicles", "people", "ships", "two-wheelers"];
    assert_eq!(outputs, expected.map(|name| (name, ValueType::Boxes)));
    let ships = PortRef {
        module: p.modules[1].id,
        port: 2,
    };
    assert_eq!(
        (p.outputs[1].from, p.outputs[1].ty),
        (ships, ValueType::Boxes)
    );

    // Inputs and conditions take them like others.
    let grouped = TRAFFIC
        .replace("$detect.vehicles", "$detect.trucks")
        .replacen(
            "    batch:",
            "    options: { groups: { trucks: [truck] } }\n    batch:",
            1,
        );
    let p = accepted(&grouped);
    let trucks = PortRef {
        module: p.modules[1].id,
        port: 2,
    };
    let plates = p.module("plates").expect("plates");
    assert_eq!(
        (plates.inputs[1], plates.when),
        (Some(trucks), Some(trucks))
    );
    // Two modules of a type have their own.
    assert_eq!(p.modules[1].outputs.len(), 3);
    assert_eq!(accepted(TRAFFIC).modules[1].outputs.len(), 2);
}

#[test]
fn files_from_other_systems_compile() {
    let lines = |p: &Pipeline| p.modules.iter().map(|m| m.line).collect::<Vec<_>>();
    let expected = lines(&accepted(TRAFFIC));
    let text = TRAFFIC.replace('\n', "\r\n");
    assert_eq!(lines(&accepted(&text)), expected);
    assert_eq!(accepted(&text).modules[2].op, "text_reader");
    assert_eq!(lines(&accepted(&format!("\u{feff}{TRAFFIC}"))), expected);
    assert_eq!(lines(&accepted(TRAFFIC.trim_end())), expected);
}

#[test]
fn aliases_repeat_values() {
    let p = accepted(
        "
name: p
slo: 1s
source: { data: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.data }, workers: &two { min: 1, max: 2 } }
  b: { op: noop, inputs: { payload: $a.payload }, workers: *two }
outputs: { out: $b.payload }
",
    );
    assert_eq!(p.modules[2].workers, Workers { min: 1, max: 2 });
}

/// Schedulers of the modules, and the drop policy that counts.
fn schedules(modules: &str, policy: &str) -> (Vec<Option<SchedulePolicy>>, DropPolicy) {
    let outputs = "outputs: { who: $who.id }";
    let text = format!("name: a\nslo: 300ms\nmodules:\n{modules}\n{outputs}\n{policy}\n");
    let pipeline = accepted(&text);
    let modules = pipeline.modules[1..].iter();
    (modules.map(|m| m.schedule).collect(), pipeline.policy.drop)
}

#[test]
fn goodput_is_the_default_where_time_varies() {
    let detect = "  detect: { op: detector, model: m.pt, inputs: { image: $source.frame } }\n";
    let who = "  who: { op: face_recognizer, model: f.pt, inputs: { image: $source.frame";
    let of_boxes = format!("{detect}{who}, boxes: $detect.people }} }}");
    let (goodput, ours) = (Some(SchedulePolicy::GOODPUT), DropPolicy::SPILLGATE);
    assert_eq!(schedules(&of_boxes, ""), (vec![None, goodput], ours));
    // The whole picture: one face, always as long.
    let whole = format!("{who} }} }}");
    assert_eq!(schedules(&whole, ""), (vec![None], ours));
    // Published policies come with batches of their own.
    let pard = "policy: { drop: pard }";
    assert_eq!(
        schedules(&of_boxes, pard),
        (vec![None, None], DropPolicy::PARD)
    );
    let named = format!("{detect}{who}, boxes: $detect.people }}, schedule: static }}");
    let fixed = (vec![None, Some(SchedulePolicy::STATIC)], ours);
    assert_eq!(schedules(&named, ""), fixed);
}

#[test]
fn how_far_back_times_count_can_be_set() {
    let with = |schedule: &str| {
        let who = "who: { op: face_recognizer, model: f.pt, inputs: { image: $source.frame }";
        let outputs = "outputs: { who: $who.id }";
        let text =
            format!("name: a\nslo: 300ms\nmodules:\n  {who}, schedule: {schedule} }}\n{outputs}\n");
        let module = accepted(&text).modules[1].clone();
        (module.schedule, module.window.samples, module.window.age)
    };
    let minute = Duration::from_secs(60);
    let edf = Some(SchedulePolicy::EDF);
    assert_eq!(
        with("{ name: edf, samples: 500, age: 60s }"),
        (edf, 500, minute)
    );
    assert_eq!(with("{ age: 1m }"), (None, 2048, minute));
    assert_eq!(with("edf"), (edf, 2048, 10 * minute));
}
