//! What every error says. One case each; `UPDATE_EXPECT=1 cargo test` rewrites them, a person reads
//! the difference.

use expect_test::{Expect, expect};
use spillgate_pipeline::compile;

use crate::catalog;

fn check(text: &str, expected: Expect) {
    let text = text.trim_start_matches('\n');
    let actual = match compile(text, "traffic.yaml", &catalog(), None) {
        Err(errors) => format!("{errors}\n"),
        Ok(compiled) => compiled.warnings.iter().map(|w| format!("{w}\n")).collect(),
    };
    expected.assert_eq(&actual);
}

/// A file that is right but for one module, which begins on line 5.
fn check_module(module: &str, expected: Expect) {
    check(
        &format!(
            "
name: traffic
slo: 400ms
modules:
  detect: {{ op: detector, model: road.pt, inputs: {{ image: $source.frame }} }}
{module}
outputs: {{ vehicles: $detect.vehicles }}
"
        ),
        expected,
    );
}

/// A file that is right but for the fields of its only module, which begin on line 7.
fn check_fields(fields: &str, expected: Expect) {
    check(
        &format!(
            "
name: traffic
slo: 400ms
outputs: {{ vehicles: $detect.vehicles }}
modules:
  detect:
    op: detector
{fields}
"
        ),
        expected,
    );
}

const GOOD: &str = "    model: road.pt\n    inputs: { image: $source.frame }\n";

/// The same with a model and its input, so that one more field is wrong: line 9.
fn check_field(field: &str, expected: Expect) {
    check_fields(&format!("{GOOD}    {field}"), expected);
}

/// A file that is right but for a field of the file, on line 5.
fn check_root(field: &str, expected: Expect) {
    check(
        &format!(
            "
name: traffic
slo: 400ms
outputs: {{ vehicles: $detect.vehicles }}
modules: {{ detect: {{ op: detector, model: road.pt, inputs: {{ image: $source.frame }} }} }}
{field}
"
        ),
        expected,
    );
}
