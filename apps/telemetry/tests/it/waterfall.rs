//! Answers of the real Jaeger, drawn. They were made by `examples/send_sample.rs` and stored as they came.

use expect_test::{expect, expect_file};
use spillgate_telemetry::waterfall::{Trace, TraceError, fetch};

fn dropped() -> Trace {
    Trace::from_json(include_str!("waterfall/dropped.json")).unwrap()
}

#[test]
fn a_completed_request_in_a_terminal() {
    let trace = Trace::from_json(include_str!("waterfall/completed.json")).unwrap();
    expect![[r#"
        trace 48218226ff3cd4bfa706dd2f4d197e6f
        spillgate · traffic · client gate-3 · frame 17 · completed · 238.0 ms of 400 ms

                                    0                                                             238.0 ms
        request          238.0 ms │──────────────────────────────────────────────────────────────────────│
        ├ module source   10.0 ms │───                                                                   │ worker 0, batch of 1
        │ ├ queueing       1.0 ms │▏                                                                     │
        │ ├ batch wait     1.0 ms │▒                                                                     │
        │ └ execution      8.0 ms │ ██                                                                   │
        ├ module detect  112.0 ms │   ─────────────────────────────────                                  │ worker 1, batch of 4
        │ ├ queueing      27.0 ms │   ░░░░░░░░                                                           │
        │ ├ batch wait    21.0 ms │           ▒▒▒▒▒▒                                                     │
        │ └ execution     64.0 ms │                 ███████████████████                                  │
        ├ module faces    54.0 ms │                                    ────────────────                  │ worker 3, batch of 2
        │ ├ queueing       4.0 ms │                                    ░░                                │
        │ ├ batch wait    12.0 ms │                                      ▒▒▒                             │
        │ └ execution     38.0 ms │                                         ███████████                  │
        └ module plates  113.0 ms │                                    ──────────────────────────────────│ worker 2, batch of 3
          ├ queueing      24.0 ms │                                    ░░░░░░░░                          │
          ├ batch wait    31.0 ms │                                            ▒▒▒▒▒▒▒▒▒                 │
          └ execution     58.0 ms │                                                     █████████████████│

        batches (each a trace of its own):
          module source: batch 90, 1 requests, trace 5312a6181502631489e328e375d6112b
          module detect: batch 7, 4 requests, trace 10406b91cb64b7c64d5bbf54679a29af
          module faces: batch 8, 2 requests, trace 0cc58366534feb3df510d5a36cb0ecf9
          module plates: batch 9, 3 requests, trace d9cf4cd6aab661715d2069376710645c

        ░ queueing  ▒ batch wait  █ execution  ─ request, module
    "#]].assert_eq(&trace.to_text(120));
}

#[test]
fn a_dropped_request_in_a_terminal() {
    expect![[r#"
        trace b382a305f4414f5e631a9154fbabf717
        spillgate · traffic · client gate-3 · frame 17 · dropped · 188.0 ms of 400 ms

                                    0                                                             188.0 ms
        request          188.0 ms │──────────────────────────────────────────────────────────────────────│
        ├ module source   10.0 ms │────                                                                  │ worker 0, batch of 1
        │ ├ queueing       1.0 ms │▏                                                                     │
        │ ├ batch wait     1.0 ms │▒                                                                     │
        │ └ execution      8.0 ms │ ███                                                                  │
        ├ module detect  112.0 ms │    ──────────────────────────────────────────                        │ worker 1, batch of 4
        │ ├ queueing      27.0 ms │    ░░░░░░░░░░                                                        │
        │ ├ batch wait    21.0 ms │              ▒▒▒▒▒▒▒▒                                                │
        │ └ execution     64.0 ms │                      ████████████████████████                        │
        ├ module plates   65.0 ms │                                              ────────────────────────│
                                  │                                                                     ▲│
        │   drop at 188.0 ms: expected to miss its deadline; 210ms left, 230ms still needed (170ms wait, 58ms execution, 2ms downstream)
        └ module faces    54.0 ms │                                              ────────────────────    │ worker 3, batch of 2
          ├ queueing       4.0 ms │                                              ░░                      │
          ├ batch wait    12.0 ms │                                                ▒▒▒▒                  │
          └ execution     38.0 ms │                                                    ██████████████    │

        batches (each a trace of its own):
          module source: batch 90, 1 requests, trace 5312a6181502631489e328e375d6112b
          module detect: batch 7, 4 requests, trace 10406b91cb64b7c64d5bbf54679a29af
          module faces: batch 8, 2 requests, trace 0cc58366534feb3df510d5a36cb0ecf9

        ░ queueing  ▒ batch wait  █ execution  ─ request, module
    "#]].assert_eq(&dropped().to_text(120));
}

#[test]
fn a_narrow_terminal_still_shows_bars() {
    let text = dropped().to_text(20);
    assert!(text.lines().any(|line| line.contains("█████")));
}

#[test]
fn a_picture() {
    expect_file!["waterfall/dropped.svg"].assert_eq(&dropped().to_svg());
}

#[test]
fn what_cannot_be_fetched_says_why() {
    let error = fetch("http://127.0.0.1:1", "../../etc").unwrap_err();
    assert!(matches!(error, TraceError::Id(_)));
    let error = fetch("http://127.0.0.1:1/", "ab").unwrap_err().to_string();
    assert!(
        error.starts_with("cannot ask Jaeger at http://127.0.0.1:1/api/traces/ab: "),
        "{error}"
    );
}
