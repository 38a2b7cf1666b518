use std::fmt::Write;

use expect_test::{Expect, expect};
use opentelemetry::trace::SpanContext;
use spillgate_pipeline::action::{Load, LoadCause};
use spillgate_pipeline::id::WorkerId;

use super::*;
use crate::processes::Processes;
use crate::testing;

fn spans_of(record: &spillgate_controller::record::RequestRecord) -> Vec<SpanData> {
    spans_in(KnownProcesses::default(), record)
}

fn spans_in(
    processes: KnownProcesses,
    record: &spillgate_controller::record::RequestRecord,
) -> Vec<SpanData> {
    let mut out = Vec::new();
    let builder = SpanBuilder::new(1, processes);
    builder.request(&RequestEntry::of(record), &mut out);
    out
}

/// Spans as a tree: name, start and length in milliseconds, then what each test asks for.
fn tree(spans: &[SpanData], more: impl Fn(&SpanData) -> String) -> String {
    fn level(
        spans: &[SpanData],
        parent: SpanId,
        depth: usize,
        more: &dyn Fn(&SpanData) -> String,
        text: &mut String,
    ) {
        for span in spans.iter().filter(|span| span.parent_span_id == parent) {
            let start = span
                .start_time
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_millis();
            let length = span
                .end_time
                .duration_since(span.start_time)
                .unwrap()
                .as_millis();
            let pad = "  ".repeat(depth);
            let line = format!("{pad}{} @{start} +{length}{}", span.name, more(span));
            writeln!(text, "{}", line.trim_end()).unwrap();
            level(spans, span.span_context.span_id(), depth + 1, more, text);
        }
    }
    let mut text = String::new();
    level(spans, spans[0].parent_span_id, 0, &more, &mut text);
    text
}

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

#[test]
fn a_request_is_a_tree_of_its_modules() {
    let spans = spans_of(&testing::completed(&testing::pipeline()));
    check(
        &tree(&spans, |_| String::new()),
        expect![[r#"
        request @1002 +238
          module source @1002 +10
            queueing @1002 +1
            batch wait @1003 +1
            execution @1004 +8
          module detect @1013 +112
            queueing @1013 +27
            batch wait @1040 +21
            execution @1061 +64
          module faces @1126 +54
            queueing @1126 +4
            batch wait @1130 +12
            execution @1142 +38
          module plates @1126 +113
            queueing @1126 +24
            batch wait @1150 +31
            execution @1181 +58
    "#]],
    );
    let one_trace = |context: &SpanContext| context.trace_id() == spans[0].span_context.trace_id();
    assert!(
        spans
            .iter()
            .all(|span| one_trace(&span.span_context) && span.span_context.is_sampled())
    );
}

#[test]
fn in_a_topology_each_module_has_its_process_and_the_way_between_them_its_time() {
    let known = KnownProcesses::default();
    let processes = Processes::new("gateway-0");
    known.set(processes.clone()).unwrap();
    // It may have the id of a worker that left.
    let [pipeline, other] = [(); 2].map(|()| testing::pipeline());
    processes.join(&pipeline, &"left".into(), [WorkerId(2)]);
    // Another pipeline gives ids of its own.
    processes.join(&other, &"other".into(), [WorkerId(1), WorkerId(2)]);
    processes.join(&pipeline, &"detect-0".into(), [WorkerId(1)]);
    processes.join(&pipeline, &"rest".into(), [WorkerId(2), WorkerId(3)]);
    let spans = spans_in(known, &testing::completed(&pipeline));
    let told = |span: &SpanData| {
        let told = ["spillgate.process", "spillgate.from"];
        let of = span.attributes.iter();
        let of = of.filter(|a| told.contains(&a.key.as_str()));
        of.map(|a| format!(" {}={}", a.key, a.value)).collect()
    };
    let text = tree(&spans, told);
    let text: String = text
        .lines()
        .filter(|l| !l.starts_with("    "))
        .map(|l| format!("{l}\n"))
        .collect();
    check(
        &text,
        expect![[r#"
        request @1002 +238 spillgate.process=gateway-0
          module source @1002 +10 spillgate.process=gateway-0
          module detect @1013 +112 spillgate.process=detect-0
          transit @1125 +1 spillgate.from=detect-0
          module faces @1126 +54 spillgate.process=rest
          transit @1125 +1 spillgate.from=detect-0
          module plates @1126 +113 spillgate.process=rest
          transit @1239 +1 spillgate.from=rest
    "#]],
    );
}

#[test]
fn the_root_says_what_the_request_was() {
    let spans = spans_of(&testing::completed(&testing::pipeline()));
    let attributes: Vec<String> = spans[0]
        .attributes
        .iter()
        .map(|a| format!("{}={}", a.key, a.value))
        .collect();
    check(
        &attributes.join("\n"),
        expect![[r#"
        spillgate.pipeline=traffic
        spillgate.frame=17
        spillgate.request=41
        spillgate.outcome=completed
        spillgate.slo_ms=400
        spillgate.budget_ms=398
        spillgate.client=gate-3"#]],
    );
    assert_eq!(spans[0].span_kind, SpanKind::Server);
    assert_eq!(spans[0].status, Status::Unset);
}

#[test]
fn a_drop_is_an_event_where_it_happened() {
    let record = testing::dropped(&testing::pipeline());
    let spans = spans_of(&record);
    let events = |span: &SpanData| {
        let of = |event: &opentelemetry::trace::Event| {
            let attributes: Vec<String> = event
                .attributes
                .iter()
                .map(|a| format!("{}={}", a.key, a.value))
                .collect();
            format!(" [{}: {}]", event.name, attributes.join(", "))
        };
        span.events.iter().map(of).collect::<String>()
    };
    check(
        &tree(&spans, events),
        expect![[r#"
            request @1002 +188
              module source @1002 +10
                queueing @1002 +1
                batch wait @1003 +1
                execution @1004 +8
              module detect @1013 +112
                queueing @1013 +27
                batch wait @1040 +21
                execution @1061 +64
              module faces @1126 +54
                queueing @1126 +4
                batch wait @1130 +12
                execution @1142 +38
              module plates @1125 +65 [drop: spillgate.drop.reason=predicted, spillgate.drop.budget_ms=210, spillgate.estimate.wait_ms=170, spillgate.estimate.execution_ms=58, spillgate.estimate.downstream_ms=2, spillgate.estimate.total_ms=230, message=expected to miss its deadline; 210ms left, 230ms still needed (170ms wait, 58ms execution, 2ms downstream)]
        "#]],
    );
}

#[test]
fn a_drop_before_the_inputs_were_there_has_no_length() {
    let mut record = testing::dropped(&testing::pipeline());
    record.times.clear();
    let spans = spans_of(&record);
    check(
        &tree(&spans, |_| String::new()),
        expect![[r#"
        request @1002 +188
          module plates @1190 +0
    "#]],
    );
}

#[test]
fn a_failure_is_an_error_at_its_module_and_of_the_whole() {
    let mut record = testing::completed(&testing::pipeline());
    record.times.retain(|times| times.module != testing::PLATES);
    record.outcome = Outcome::Failed {
        module: testing::PLATES,
    };
    record.error = Some("not a plate".to_owned());
    let spans = spans_of(&record);
    let status = |span: &SpanData| match &span.status {
        Status::Error { description } => format!(" error: {description}"),
        _ => String::new(),
    };
    check(
        &tree(&spans, status),
        expect![[r#"
        request @1002 +238 error: not a plate
          module source @1002 +10
            queueing @1002 +1
            batch wait @1003 +1
            execution @1004 +8
          module detect @1013 +112
            queueing @1013 +27
            batch wait @1040 +21
            execution @1061 +64
          module faces @1126 +54
            queueing @1126 +4
            batch wait @1130 +12
            execution @1142 +38
          module plates @1125 +115 error: not a plate
    "#]],
    );
}

#[test]
fn a_request_that_waited_for_weights_shows_how_they_were_read_and_why() {
    let pipeline = testing::pipeline();
    let mut record = testing::completed(&pipeline);
    let ms = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
    let times = (record.times.iter_mut()).find(|times| times.batched_at > times.arrived_at);
    let times = times.expect("one waited for its batch");
    times.load = Some(Load {
        from: ms(1),
        to: times.batched_at,
        cause: LoadCause::GaveWay,
    });
    let (arrived, batched) = (times.arrived_at, times.batched_at);
    let spans = spans_of(&record);
    let load = spans.iter().find(|span| span.name == "load");
    let load = load.expect("a span of the load");
    let above = |span: &&SpanData| span.span_context.span_id() == load.parent_span_id;
    let queueing = spans.iter().find(above).expect("its parent");
    assert_eq!(queueing.name, "queueing");
    // It began before the request came.
    assert_eq!(load.start_time, queueing.start_time);
    let took = load.end_time.duration_since(load.start_time).unwrap();
    assert_eq!(took, batched.since(arrived));
    let cause = KeyValue::new("spillgate.load.cause", "gave-way");
    assert_eq!(load.attributes, [cause]);
}

#[test]
fn the_clients_span_is_the_parent() {
    let mut record = testing::completed(&testing::pipeline());
    record.trace.parent_span_id = 0xabc;
    let spans = spans_of(&record);
    assert_eq!(
        spans[0].parent_span_id,
        SpanId::from_bytes(0xabc_u64.to_be_bytes())
    );
    assert!(spans[0].parent_span_is_remote);
    assert!(!spans[1].parent_span_is_remote);
}

#[test]
fn an_execution_links_to_the_span_of_its_batch() {
    let pipeline = testing::pipeline();
    let builder = SpanBuilder::new(1, KnownProcesses::default());
    let mut spans = Vec::new();
    builder.request(
        &RequestEntry::of(&testing::completed(&pipeline)),
        &mut spans,
    );
    let batch = builder.batch(&BatchEntry {
        pipeline,
        record: testing::batch(),
    });
    assert_eq!(batch.name, "batch detect");
    let linked: Vec<&SpanData> = spans
        .iter()
        .filter(|span| {
            span.links
                .iter()
                .any(|link| link.span_context == batch.span_context)
        })
        .collect();
    assert_eq!(linked.len(), 1);
    assert_eq!(
        (linked[0].start_time, linked[0].end_time),
        (batch.start_time, batch.end_time)
    );
    let attributes: Vec<String> = batch
        .attributes
        .iter()
        .map(|a| format!("{}={}", a.key, a.value))
        .collect();
    check(
        &attributes.join("\n"),
        expect![[r#"
        spillgate.pipeline=traffic
        spillgate.module=detect
        spillgate.device=0
        spillgate.batch=7
        spillgate.batch_size=4
        spillgate.expected_ms=60
        spillgate.measured_ms=64
        spillgate.prediction_error_ms=4
        spillgate.completion_error_ms=6"#]],
    );
}
