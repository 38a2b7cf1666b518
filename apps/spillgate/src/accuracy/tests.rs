use expect_test::{Expect, expect};
use spillgate_process::value::{Detection, Label};
use spillgate_scenes::Rect;

use super::labelled::Truth;
use super::tally::warnings;
use super::*;

const MODULES: &str = "
name: p
slo: 1s
modules:
  plain: { op: detector, model: road.pt, input: 128, inputs: { image: $source.frame }, device: emulated }
  detect:
    op: detector
    variants: [{ model: road.pt, input: 128 }, { model: road.pt, input: 192 }]
    inputs: { image: $source.frame }
    device: cpu:0
  plates: { op: text_reader, model: plate.pt, inputs: { image: $source.frame, boxes: $detect.vehicles } }
  light: { op: classifier, model: light.pt, input: 64, inputs: { image: $source.frame }, device: [emulated, cpu:0] }
outputs: { plates: $plates.text, light: $light.labels, plain: $plain.boxes }
";

fn pipeline(text: &str) -> Pipeline {
    let catalog = spillgate_modules::library().catalog();
    let compiled = spillgate_pipeline::compile(text, "p.yaml", &catalog, None);
    compiled
        .unwrap_or_else(|problems| panic!("{problems}"))
        .pipeline
}

/// The errors of choosing these modules.
fn refused(text: &str, asked: &[(Option<&str>, Kind)], expected: &Expect) {
    let pipeline = pipeline(text);
    let errors: Vec<String> = asked
        .iter()
        .map(|(name, kind)| {
            choose(&pipeline, *name, *kind)
                .expect_err("refused")
                .to_string()
        })
        .collect();
    expected.assert_eq(&errors.join("\n"));
}

#[test]
fn the_first_module_with_several_variants_is_measured() {
    let pipeline = pipeline(MODULES);
    let chosen = choose(&pipeline, None, Kind::Boxes).unwrap();
    assert_eq!(pipeline.modules[chosen.module.idx()].name, "detect");
    assert_eq!((&*chosen.device, chosen.port), ("cpu:0", 0));
    let chosen = choose(&pipeline, Some("light"), Kind::Class).unwrap();
    assert_eq!(pipeline.modules[chosen.module.idx()].name, "light");
    assert_eq!((&*chosen.device, chosen.port), ("cpu:0", 0));
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_can() {
    refused(
        MODULES,
        &[
            (Some("detct"), Kind::Boxes),
            (Some("plain"), Kind::Boxes),
            (Some("plates"), Kind::Boxes),
            (Some("light"), Kind::Boxes),
            (None, Kind::Class),
        ],
        &expect![[r#"
            no module named "detct"; the modules of the pipeline are plain, detect, plates, light
            module plain has only emulated devices, which run no model; let it have `device: auto`
            module plates takes more than the frame, and labelled pictures bring nothing else; modules that can be measured: plain, detect, light
            module light (classifier) finds no boxes; measure it on a folder with a subfolder of pictures for each class
            module detect (detector) finds no labels; measure it on scene, or on a folder of pictures with YOLO labels"#]],
    );
    let bytes = "{ name: p, slo: 1s, source: { payload: bytes }, modules: { a: { op: noop, inputs: { payload: \
                 $source.payload } } }, outputs: { a: $a.payload } }";
    refused(
        bytes,
        &[(None, Kind::Boxes), (Some("a"), Kind::Boxes)],
        &expect![[r#"
            no module has several variants to compare; --module NAME measures the model of one that has a single one
            module a (noop) runs no model, so there is nothing to measure"#]],
    );
}

fn found(label: &str, area: Rect) -> Detection {
    Detection {
        x0: area.x0,
        y0: area.y0,
        x1: area.x1,
        y1: area.y1,
        class: 0,
        label: label.into(),
        score: 0.9,
    }
}

#[test]
fn classes_that_do_not_fit_are_told() {
    let area = Rect::new(0.0, 0.0, 10.0, 10.0);
    let classes = ["vehicle", "person", "bus"].map(str::to_owned);
    let mut tallies = vec![Tally::over(&classes, Kind::Boxes); 2];
    let truth = Truth::Boxes(vec![vec![(area, true)], vec![], vec![(area, true)]]);
    let boxes = [
        found("vehicle", area),
        found("car", area),
        found("dog", area),
    ];
    tallies[0]
        .add(&truth, &Value::Boxes(Arc::from(boxes)))
        .unwrap();
    tallies[1]
        .add(&truth, &Value::empty(ValueType::Boxes))
        .unwrap();
    // One found, one missed; boxes of unknown classes do not count.
    assert!((tallies[0].accuracy() - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!(tallies[1].accuracy(), 0.0);
    expect![[r#"
        warning: no variant ever names the class "bus"; the labels have it 1 times, which count as missed
        warning: the labels do not know car, dog, which the model names; their boxes do not count. The classes of the labels are vehicle, person, bus"#]].assert_eq(&warnings(&tallies).join("\n"));

    let mut tally = Tally::over(&classes, Kind::Class);
    let label = |name: &str| {
        let label = Label {
            left_out: None,
            label: name.into(),
            score: 0.9,
        };
        Value::Labels(Arc::from([label]))
    };
    for (class, name) in [(0, "vehicle"), (1, "person"), (1, "vehicle"), (2, "tram")] {
        tally.add(&Truth::Class(class), &label(name)).unwrap();
    }
    assert_eq!(tally.accuracy(), 0.5);
    expect![[r#"
        warning: no variant ever names the class "bus"; the labels have it 1 times, which count as missed
        warning: the labels do not know tram, which the model names; they count as wrong. The classes of the labels are vehicle, person, bus"#]].assert_eq(&warnings(&[tally.clone()]).join("\n"));
    let none = tally.add(&Truth::Class(0), &Value::empty(ValueType::Labels));
    expect!["it has no label: the model gave none"].assert_eq(&none.unwrap_err().to_string());
}
