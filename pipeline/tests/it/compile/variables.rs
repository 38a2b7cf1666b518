//! Variables in the values of a pipeline file.

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::compile::{Outside, compile_with};
use spillgate_pipeline::diagnostic::Diagnostics;

use crate::compile::catalog;
use crate::compile::errors::Golden;

/// Cases of the golden file: without any variable set.
pub(crate) fn errors(golden: &mut Golden) {
    golden.field("device: ${DEVICE}");
    golden.field("queue: ${QUEUE:-many}");
    golden.field("device: cuda:${N");
    golden.field("device: \"${A:-${B}}\"");
    golden.field("options: { confidence: \"${LEAST}\", labels: \"${LABELS}\" }");
    golden.field(&format!("device: \"${{A:-{}}}\"", "x".repeat(70_000)));
    golden.field("${FIELD:-queue}: 8");
    golden.field("when: $${A}");
}

fn compiled(text: &str) -> Result<Pipeline, Diagnostics> {
    let known = |name: &str| match name {
        "MODEL" => Some("m/road.pt".to_owned()),
        "DEVICE" => Some("cpu".to_owned()),
        "MAX" => Some("4".to_owned()),
        "NAME" => Some("n1".to_owned()),
        "NUMBER" => Some("5".to_owned()),
        "LINES" => Some("cpu\n  other: 1".to_owned()),
        _ => None,
    };
    let outside = Outside {
        variables: &known,
        files: None,
    };
    compile_with(text, "t.yaml", &catalog(), None, outside).map(|c| c.pipeline)
}

fn file(module: &str) -> String {
    format!(
        "name: ${{NAME}}\nslo: ${{SLO:-250ms}}\nmodules:\n  detect:\n    op: detector\n    model: ${{MODEL}}\n    \
         inputs: {{ image: $source.frame }}\n    {module}\noutputs: {{ vehicles: $detect.vehicles }}\n"
    )
}

#[test]
fn values_are_what_the_field_needs_with_and_without_quotes() {
    let pipeline = compiled(&file("batch: { max: \"${MAX}\" }\n    queue: ${QUEUE:-12}"));
    let pipeline = pipeline.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(pipeline.name, "n1");
    assert_eq!(pipeline.slo.as_millis(), 250);
    let module = &pipeline.modules[1];
    assert_eq!(module.variants[0].model, "m/road.pt");
    assert_eq!((module.batch.max, module.queue), (4, 12));
    // A text that looks like a number is a text where one is needed.
    let named = file("device: ${DEVICE}").replace("${MODEL}", "${NUMBER}");
    let pipeline = compiled(&named).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(pipeline.modules[1].variants[0].model, "5");
}

#[test]
fn a_value_changes_no_structure_and_no_line() {
    let error = compiled(&file("device: ${LINES}\n    queue: 0"))
        .unwrap_err()
        .to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert!(
        lines[0].starts_with("error: t.yaml:8: modules.detect.device:"),
        "{error}"
    );
    assert!(
        lines[1].starts_with("error: t.yaml:9: modules.detect.queue:"),
        "{error}"
    );
    assert_eq!(lines.len(), 2, "{error}");
}

#[test]
fn all_variables_that_are_not_set_are_told_at_once_with_their_lines() {
    let error = compiled(&file("device: ${A}\n    queue: ${B}"))
        .unwrap_err()
        .to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(
        lines[0].starts_with("error: t.yaml:8: the environment has no A;"),
        "{error}"
    );
    assert!(
        lines[1].starts_with("error: t.yaml:9: the environment has no B;"),
        "{error}"
    );
}
