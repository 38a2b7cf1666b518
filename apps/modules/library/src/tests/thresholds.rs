//! Least scores of single classes, of a classifier.

use spillgate_backend::operator::Outputs;
use spillgate_process::value::{Tensor, Value};

use super::{Fake, Folder, build, one, picture, some_boxes};

const SCORES: [f32; 3] = [0.6, 0.25, 0.15];

/// What a classifier with these options and inputs says of each picture.
fn said(options: &str, with_boxes: bool) -> Result<Outputs, String> {
    let fake = Fake::new(|input| {
        let n = input.shape[0];
        Tensor::new(vec![n, 3], SCORES.repeat(n as usize))
    });
    let folder = Folder::new(&["cat", "dog", "big dog"]);
    let boxes = if with_boxes {
        ", boxes: $find.boxes"
    } else {
        ""
    };
    let lines = format!(
        "op: classifier\nmodel: net.pt\ninputs: {{ image: $source.frame{boxes} }}\n\
         options: {{ activation: none, {options} }}"
    );
    let mut classifier = build(&fake, &folder, &lines).map_err(|error| error.to_string())?;
    let inputs = vec![Some(picture(64, 64)), with_boxes.then(|| some_boxes(1))];
    Ok(one(classifier.run(0, &[inputs])).expect("runs"))
}

fn labels(options: &str, with_boxes: bool) -> Vec<String> {
    let outputs = said(options, with_boxes).expect("builds");
    let Value::Labels(labels) = &outputs[0] else {
        panic!("no labels: {outputs:?}")
    };
    labels.iter().map(|label| label.label.to_string()).collect()
}

#[test]
fn a_class_with_a_threshold_is_named_from_there_and_others_from_the_confidence() {
    for (options, expected) in [
        ("top: 3", ["cat", "dog", "big dog"].as_slice()),
        ("top: 3, confidence: 0.2", &["cat", "dog"]),
        (
            "top: 3, confidence: 0.2, thresholds: { big dog: 0.1 }",
            &["cat", "dog", "big dog"],
        ),
        (
            "top: 3, confidence: 0.2, thresholds: { dog: 0.3 }",
            &["cat"],
        ),
        (
            "top: 3, thresholds: { cat: 0.7, dog: 0.25 }",
            &["dog", "big dog"],
        ),
        // The next class takes the place of a better one that does not reach its own.
        ("thresholds: { cat: 0.7 }", &["dog"]),
        ("thresholds: { cat: 0.7, dog: 0.7, big dog: 1 }", &[]),
    ] {
        assert_eq!(labels(options, false), expected, "{options}");
    }
    assert_eq!(labels("thresholds: { cat: 0.7 }", true), ["dog"]);
    let none = "confidence: 0.5, thresholds: { cat: 0.7 }";
    assert_eq!(labels(none, true), ["unknown"]);
}

#[test]
fn thresholds_of_classes_that_are_not_there_are_refused() {
    assert_eq!(
        said("thresholds: { dog: 0.5, cow: 0.5 }", false).err(),
        Some(
            "modules.m: options.thresholds: net.pt has no class \"cow\"; its classes are cat, dog, big dog"
                .to_owned()
        )
    );
}
