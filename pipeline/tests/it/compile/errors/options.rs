//! What is said of options.

use super::Golden;

pub(super) fn options(golden: &mut Golden) {
    golden.field("options: [a]");
    golden.field("options: { confidnce: 0.4 }");
    golden.field("options: { zoom: 2 }");
    golden.field("options: { confidence: 1.5, objects: 0 }");
    golden.field("options: { confidence: high, objects: 2.5, half: 1 }");
    golden.field("options: { confidence: .nan }");
    golden.field("options: { confidence: .inf, objects: ~ }");
    golden.field("options: { labels: 3, resize: lettrbox }");
    golden.field("options: { labels: , resize: crop }");
    golden.field("options: { mean: [0.5, 0.5], classes: car }");
    golden.field("options: { mean: [0, a, 0], classes: [car, 3] }");
    golden.module("  c: { op: crop, inputs: { boxes: $detect.people } }");
    golden.module("  c: { op: noop, options: { x: 1 } }");
    golden.module(
        "  c: { op: crop, inputs: { boxes: $detect.people }, options: { margin: 0, note: 7 } }",
    );
    golden.field("options: { thresholds: [0.5] }");
    golden.field("options: { thresholds: { car: 1.5 } }");
    golden.field("options: { thresholds: { car: high } }");
    golden.field("options: { thresholds: { car: 0.5, car: 0.6 } }");
    let many: Vec<String> = (0..4097).map(|i| format!("c{i}: 0")).collect();
    golden.field(&format!(
        "options: {{ thresholds: {{ {} }} }}",
        many.join(", ")
    ));
    groups(golden);
}

/// References to groups that have an error of their own are no further errors.
fn groups(golden: &mut Golden) {
    golden.field("options: { groups: [ships] }");
    golden.field("options: { groups: ~ }");
    golden.field("options: { groups: { ships: boat, trucks: [], vans: [van, 3] } }");
    golden.field("options: { groups: { people: [person], my ships: [boat] } }");
    golden.field("options: { groups: { ships: [boat], ships: [ferry] } }");
    let many: Vec<String> = (0..33).map(|i| format!("g{i}: [a]")).collect();
    golden.field(&format!("options: {{ groups: {{ {} }} }}", many.join(", ")));
    let long = "a, ".repeat(1000);
    golden.field(&format!("options: {{ groups: {{ ships: [{long}a] }} }}"));
    let read = |groups: &str, from: &str| {
        format!(
            "
  d: {{ op: detector, model: a.pt, inputs: {{ image: $source.frame }}, options: {{ groups: {groups} }} }}
  p: {{ op: text_reader, model: a.pt, inputs: {{ image: $source.frame, boxes: {from} }} }}"
        )
    };
    golden.module(&read("{ ships: boat }", "$d.ships"));
    golden.module(&read("{ ships: [boat] }", "$d.ship"));
    golden.module(&read("{ ships: [boat] }", "$detect.ships"));
    golden.module(&read("{ ships: [boat] }", "$source.frame"));
}
