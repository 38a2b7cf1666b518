//! Records in, OTLP out: a receiver in this process takes what a real collector would.

mod receiver;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use expect_test::expect;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use receiver::{Answers, Receiver, attribute};
use spillgate_controller::record::{Observer, RequestRecord};
use spillgate_pipeline::request::Outcome;
use spillgate_telemetry::{Telemetry, TelemetryConfig, testing};

/// Spans of [`testing::completed`]: the root, and four for each of four modules.
const SPANS_PER_REQUEST: u64 = 17;

/// Bound of what must not block, generous: these tests share two cores with builds.
const PROMPTLY: Duration = Duration::from_secs(10);

fn telemetry(endpoint: &str, queue_capacity: usize) -> Telemetry {
    let config = TelemetryConfig {
        otlp_endpoint: Some(endpoint.to_owned()),
        service_name: "spillgate-test".to_owned(),
        queue_capacity,
        export_timeout: Duration::from_millis(300),
        seed: 5,
        ..TelemetryConfig::default()
    };
    Telemetry::new(config, || SystemTime::UNIX_EPOCH).unwrap()
}

/// The spans under `parent`, indented, in order of their start.
fn tree(spans: &[Span], parent: &[u8], depth: usize) -> String {
    let mut children: Vec<&Span> = spans
        .iter()
        .filter(|s| s.parent_span_id == parent)
        .collect();
    children.sort_by_key(|span| (span.start_time_unix_nano, span.end_time_unix_nano));
    let line = |span: &Span| {
        let start = span.start_time_unix_nano / 1_000_000;
        let length = (span.end_time_unix_nano - span.start_time_unix_nano) / 1_000_000;
        let head = format!("{}{} @{start} +{length}\n", "  ".repeat(depth), span.name);
        head + &tree(spans, &span.span_id, depth + 1)
    };
    children.into_iter().map(line).collect()
}

#[test]
fn a_trace_arrives_whole() {
    let receiver = Receiver::start(Answers::AtOnce);
    let telemetry = telemetry(&receiver.endpoint, 64);
    let pipeline = testing::pipeline();

    let mut dropped = testing::dropped(&pipeline);
    dropped.trace.parent_span_id = 0xc11e_0000_0000_0001;
    telemetry.batch_ended(&pipeline, &testing::batch());
    let trace_id = dropped.trace.trace_id.to_be_bytes();
    telemetry.request_ended(&Arc::new(dropped));

    let mut failed = testing::completed(&pipeline);
    failed.trace.trace_id = 2;
    failed.outcome = Outcome::Failed {
        module: testing::PLATES,
    };
    failed.error = Some("not a plate".to_owned());
    telemetry.request_ended(&Arc::new(failed));
    assert!(telemetry.shutdown(PROMPTLY));

    assert_eq!(receiver.services(), ["spillgate-test"]);
    let all = receiver.spans();
    let spans: Vec<Span> = all
        .iter()
        .filter(|s| s.trace_id == trace_id)
        .cloned()
        .collect();
    let client_span = 0xc11e_0000_0000_0001_u64.to_be_bytes();
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
          module plates @1125 +65
          module faces @1126 +54
            queueing @1126 +4
            batch wait @1130 +12
            execution @1142 +38
    "#]]
    .assert_eq(&tree(&spans, &client_span, 0));

    let plates = spans
        .iter()
        .find(|span| span.name == "module plates")
        .unwrap();
    let event = &plates.events[0];
    assert_eq!(event.name, "drop");
    assert_eq!(event.time_unix_nano, plates.end_time_unix_nano);
    expect!["expected to miss its deadline; 210ms left, 230ms still needed (170ms wait, 58ms execution, 2ms downstream)"].assert_eq(&attribute(&event.attributes, "message"));
    assert_eq!(
        attribute(&event.attributes, "spillgate.drop.reason"),
        "predicted"
    );

    let batches: Vec<&Span> = all
        .iter()
        .filter(|span| span.name == "batch detect")
        .collect();
    assert_eq!(batches.len(), 1, "two sampled members, one span");
    let linked: Vec<&Span> = all
        .iter()
        .filter(|s| {
            s.links
                .iter()
                .any(|link| link.span_id == batches[0].span_id)
        })
        .collect();
    assert_eq!(linked.len(), 2, "both members link to it");
    assert!(linked.iter().all(|span| span.name == "execution"));
    assert!(
        linked
            .iter()
            .all(|span| span.links[0].trace_id == batches[0].trace_id)
    );
    assert!(batches[0].parent_span_id.is_empty());
    assert_ne!(batches[0].trace_id, trace_id);
    assert_eq!(
        attribute(&batches[0].attributes, "spillgate.prediction_error_ms"),
        "4"
    );

    let of_failed = |name: &str| {
        let mine = |s: &&Span| s.trace_id == 2_u128.to_be_bytes() && s.name == name;
        all.iter()
            .find(mine)
            .unwrap()
            .status
            .clone()
            .unwrap_or_default()
    };
    for name in ["request", "module plates"] {
        assert_eq!(of_failed(name).code(), StatusCode::Error);
        assert_eq!(of_failed(name).message, "not a plate");
    }
    assert_eq!(of_failed("module detect").code(), StatusCode::Unset);
    assert_eq!(
        telemetry.metrics().losses().spans_exported.get(),
        all.len() as u64
    );
}

#[test]
fn what_is_not_sampled_is_not_sent() {
    let receiver = Receiver::start(Answers::AtOnce);
    let telemetry = telemetry(&receiver.endpoint, 64);
    let pipeline = testing::pipeline();
    let mut record = testing::completed(&pipeline);
    record.trace.sampled = false;
    let mut batch = testing::batch();
    batch.is_traced = false;
    telemetry.batch_ended(&pipeline, &batch);
    telemetry.request_ended(&Arc::new(record));
    assert!(telemetry.shutdown(PROMPTLY));
    assert!(receiver.spans().is_empty());
}

#[test]
fn the_frame_is_not_kept() {
    let receiver = Receiver::start(Answers::Never);
    let telemetry = telemetry(&receiver.endpoint, 64);
    let record = Arc::new(testing::completed(&testing::pipeline()));
    let job = Arc::downgrade(&record.job);
    telemetry.request_ended(&record);
    drop(record);
    assert!(job.upgrade().is_none());
}

#[test]
fn fifty_thousand_traced_requests_do_not_wait() {
    let receiver = Receiver::start(Answers::AtOnce);
    let telemetry = telemetry(&receiver.endpoint, 8192);
    let record = Arc::new(testing::completed(&testing::pipeline()));
    check_accounts(&telemetry, &record, 50_000);
    let exported = telemetry.metrics().losses().spans_exported.get();
    assert!(exported > 0);
    // An export that timed out may have arrived all the same.
    assert!(receiver.spans().len() as u64 >= exported);
}

#[test]
fn a_dead_endpoint_costs_spans_not_time() {
    // A port that was free a moment ago: nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let telemetry = telemetry(&format!("http://127.0.0.1:{port}"), 1000);
    let record = Arc::new(testing::completed(&testing::pipeline()));
    check_accounts(&telemetry, &record, 10_000);
    let losses = telemetry.metrics().losses();
    assert_eq!(losses.spans_exported.get(), 0);
    let before = losses.requests_stopped.get();
    telemetry.request_ended(&record);
    let late = losses.requests_stopped.get() - before;
    assert_eq!(late, 1, "what comes after the end is counted");
    assert!(losses.spans_export_failed.get() + losses.spans_stopped.get() > 0);
}

#[test]
fn a_collector_that_does_not_answer_costs_spans_not_time() {
    let receiver = Receiver::start(Answers::Never);
    let telemetry = telemetry(&receiver.endpoint, 100);
    let record = Arc::new(testing::completed(&testing::pipeline()));
    check_accounts(&telemetry, &record, 10_000);
    let losses = telemetry.metrics().losses();
    assert_eq!(losses.spans_exported.get(), 0);
    assert!(losses.requests_queue_full.get() > 0);
    let text = telemetry.render();
    assert!(text.contains("lost_records_total{kind=\"request\",cause=\"queue_full\"}"));
}

#[test]
fn spans_that_a_collector_rejects_are_counted() {
    let receiver = Receiver::start(Answers::Rejecting(5));
    let telemetry = telemetry(&receiver.endpoint, 64);
    telemetry.request_ended(&Arc::new(testing::completed(&testing::pipeline())));
    assert!(!telemetry.shutdown(PROMPTLY), "some were lost");
    let losses = telemetry.metrics().losses();
    assert_eq!(losses.spans_rejected.get(), 5);
    assert_eq!(losses.spans_exported.get(), SPANS_PER_REQUEST - 5);
    let text = telemetry.render();
    let counted = "spillgate_telemetry_lost_spans_total{cause=\"rejected\"} 5";
    assert!(text.contains(counted), "{text}");
}

#[test]
fn spans_follow_a_wall_clock_that_is_set() {
    let receiver = Receiver::start(Answers::AtOnce);
    let config = TelemetryConfig {
        otlp_endpoint: Some(receiver.endpoint.clone()),
        ..TelemetryConfig::default()
    };
    // Each reading of the wall clock is an hour later.
    let hours = AtomicU64::new(0);
    let hour = Duration::from_secs(3600);
    let epoch = move || SystemTime::UNIX_EPOCH + hour * hours.fetch_add(1, Relaxed) as u32;
    let telemetry = Telemetry::new(config, epoch).unwrap();
    let record = Arc::new(testing::completed(&testing::pipeline()));
    let begun = Instant::now();
    let starts = || {
        let spans = receiver.spans();
        let roots = spans.iter().filter(|span| span.name == "request");
        let hours = roots.map(|span| span.start_time_unix_nano / hour.as_nanos() as u64);
        hours.collect::<std::collections::BTreeSet<_>>()
    };
    while starts().len() < 2 {
        telemetry.request_ended(&record);
        assert!(begun.elapsed() < PROMPTLY, "{:?}", starts());
        std::thread::sleep(Duration::from_millis(20));
    }
    // All spans of a request have one clock.
    let spans = receiver.spans();
    for root in spans.iter().filter(|span| span.name == "request") {
        let children = spans.iter().filter(|s| s.parent_span_id == root.span_id);
        let within = |s: &Span| {
            s.start_time_unix_nano >= root.start_time_unix_nano
                && s.end_time_unix_nano <= root.end_time_unix_nano
        };
        assert!(children.into_iter().all(within));
    }
}

#[test]
fn a_wrong_set_up_is_refused() {
    let new = |config| {
        Telemetry::new(config, || SystemTime::UNIX_EPOCH)
            .err()
            .unwrap()
            .to_string()
    };
    let base = TelemetryConfig::default();
    let text = new(TelemetryConfig {
        sample_ratio: 1.5,
        ..base.clone()
    });
    assert_eq!(text, "the sample ratio is 1.5; it must lie between 0 and 1");
    let text = new(TelemetryConfig {
        otlp_endpoint: Some("not a url".to_owned()),
        ..base
    });
    assert!(
        text.starts_with("cannot send traces to not a url: "),
        "{text}"
    );
}

/// Feeds `n` sampled requests and shuts down: neither takes long, and each request is accounted for.
fn check_accounts(telemetry: &Telemetry, record: &Arc<RequestRecord>, n: u64) {
    let begun = Instant::now();
    for _ in 0..n {
        telemetry.request_ended(record);
    }
    assert!(
        begun.elapsed() < PROMPTLY,
        "{n} requests took {:?}",
        begun.elapsed()
    );
    let begun = Instant::now();
    telemetry.shutdown(Duration::from_secs(2));
    assert!(
        begun.elapsed() < PROMPTLY,
        "shutting down took {:?}",
        begun.elapsed()
    );

    let losses = telemetry.metrics().losses();
    let without_spans = losses.requests_queue_full.get() + losses.requests_stopped.get();
    let spans =
        losses.spans_exported.get() + losses.spans_export_failed.get() + losses.spans_stopped.get();
    assert_eq!(
        without_spans * SPANS_PER_REQUEST + spans,
        n * SPANS_PER_REQUEST
    );
}
