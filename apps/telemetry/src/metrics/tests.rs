use expect_test::expect;
use spillgate_controller::edge::EdgeView;
use spillgate_pipeline::request::Outcome;
use spillgate_process::value::{LeftOut, Tensor, Text, Value};

use super::*;
use crate::testing;

/// The lines of a scrape that are not zero, without the empty buckets.
fn lines(text: &str) -> String {
    let keep = |line: &&str| {
        line.starts_with("# EOF")
            || !(line.starts_with('#') || line.ends_with(" 0") || line.ends_with(" 0.0"))
    };
    text.lines()
        .filter(keep)
        .map(|line| format!("{line}\n"))
        .collect()
}

fn reading(module: &str, capacity: f64) -> PlannerReading {
    PlannerReading {
        pipeline: "traffic".to_owned(),
        module: module.to_owned(),
        offered: 50.5,
        executed: 39.0,
        capacity,
        workers: 2,
        pace: 1.25,
        queueing: 0.0125,
        downstream: 0.11,
        highest_first: true,
    }
}

#[test]
fn objects_that_were_not_looked_at_are_counted_by_module_and_reason() {
    let metrics = Metrics::new();
    let pipeline = testing::pipeline();
    metrics.register_pipeline(&pipeline);
    let record = testing::completed(&pipeline);
    let text = |left_out| Text {
        text: String::new(),
        score: 0.0,
        left_out,
    };
    let texts = [
        text(None),
        text(Some(LeftOut::OverLimit)),
        text(Some(LeftOut::NoArea)),
        text(Some(LeftOut::OverLimit)),
    ];
    let texts = Value::Texts(Arc::from(texts));
    record.job.set_held(testing::PLATES, vec![texts]);
    let rows = Tensor {
        left_out: vec![1],
        ..Tensor::new(vec![2, 1], vec![0.5, 0.0])
    };
    let rows = Value::Tensor(Arc::new(rows));
    record.job.set_held(testing::FACES, vec![rows]);
    metrics.request_ended(&record);
    metrics.request_ended(&record);
    let text = lines(&metrics.render());
    let told: Vec<&str> = text.lines().filter(|l| l.contains("left_out")).collect();
    expect![[r#"
        spillgate_gateway_left_out_objects_total{pipeline="traffic",module="faces",reason="not_told"} 2
        spillgate_gateway_left_out_objects_total{pipeline="traffic",module="plates",reason="no_area"} 2
        spillgate_gateway_left_out_objects_total{pipeline="traffic",module="plates",reason="over_limit"} 4"#]].assert_eq(&told.join("\n"));
}

#[test]
fn what_ended_is_counted() {
    let metrics = Metrics::new();
    let pipeline = testing::pipeline();
    metrics.register_pipeline(&pipeline);
    metrics.register_device(DeviceId(0), "cuda:0");
    metrics.register_queue_lengths(Box::new(|| {
        vec![("traffic".to_owned(), "detect".to_owned(), 1, 5)]
    }));
    metrics.register_planners(Box::new(|| PlannerReadings {
        modules: vec![reading("source", f64::INFINITY), reading("detect", 40.0)],
        workers: vec![WorkersReading {
            pipeline: "traffic".to_owned(),
            module: "detect".to_owned(),
            wanted: 3,
            serving: 2,
        }],
        gates: vec![("traffic".to_owned(), 41.2)],
        clients: vec![(
            "traffic".to_owned(),
            ClientReading {
                name: "camera-7".to_owned(),
                requests: 30,
                good: 20,
                refused: 10,
            },
        )],
        named: vec![(
            "traffic".to_owned(),
            ClientReading {
                name: "gate".to_owned(),
                requests: 12,
                good: 11,
                refused: 1,
            },
        )],
        streams: vec![StreamsReading {
            pipeline: "traffic".to_owned(),
            module: "detect".to_owned(),
            variant: "road.pt@192".to_owned(),
            obstacle: "link",
            count: 3,
        }],
    }));
    metrics.register_peers(Box::new(|| {
        vec![PeerReading {
            peer: "a-0".to_owned(),
            is_met: true,
            is_suspected: false,
            clock_error: 0.0001,
            waiting: 4096,
            sent: 1_000_000,
            received: 2_000,
        }]
    }));
    metrics.register_values(Box::new(|| ValuesReading {
        kept_bytes: 691_200,
        kept_requests: 1,
        known_requests: 2,
        held: 700_000,
        budget: 256 << 20,
        references: 5,
        given_back: 3,
        refused: 4,
    }));
    metrics.register_revisions(Box::new(|| {
        vec![RevisionReading {
            pipeline: "traffic".to_owned(),
            revision: "5d41402a".to_owned(),
            share: 0.95,
            requests: [
                ("completed", 40),
                ("late", 3),
                ("dropped", 2),
                ("failed", 1),
            ],
        }]
    }));
    metrics.request_ended(&testing::completed(&pipeline));
    metrics.request_ended(&testing::dropped(&pipeline));
    let mut nightly = testing::completed(&pipeline);
    nightly.request.background = true;
    metrics.request_ended(&nightly);
    metrics.request_refused(&pipeline, "too_large");
    metrics.batch_ended(&pipeline, &testing::batch());
    let text: String = lines(&metrics.render())
        .lines()
        .filter(|line| !line.contains("_bucket{"))
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        spillgate_gateway_requests_total{pipeline="traffic",outcome="completed",module="",reason=""} 1
        spillgate_gateway_requests_total{pipeline="traffic",outcome="dropped",module="plates",reason="predicted"} 1
        spillgate_gateway_good_requests_total{pipeline="traffic"} 1
        spillgate_gateway_background_requests_total{pipeline="traffic",outcome="completed"} 1
        spillgate_gateway_refused_requests_total{pipeline="traffic",reason="too_large"} 1
        spillgate_gateway_latency_seconds_sum{pipeline="traffic",outcome="completed"} 0.238
        spillgate_gateway_latency_seconds_count{pipeline="traffic",outcome="completed"} 1
        spillgate_gateway_latency_seconds_sum{pipeline="traffic",outcome="dropped"} 0.188
        spillgate_gateway_latency_seconds_count{pipeline="traffic",outcome="dropped"} 1
        spillgate_pipeline_slo_seconds{pipeline="traffic"} 0.4
        spillgate_module_queueing_seconds_sum{pipeline="traffic",module="detect"} 0.054
        spillgate_module_queueing_seconds_count{pipeline="traffic",module="detect"} 2
        spillgate_module_queueing_seconds_sum{pipeline="traffic",module="faces"} 0.008
        spillgate_module_queueing_seconds_count{pipeline="traffic",module="faces"} 2
        spillgate_module_queueing_seconds_sum{pipeline="traffic",module="plates"} 0.024
        spillgate_module_queueing_seconds_count{pipeline="traffic",module="plates"} 1
        spillgate_module_queueing_seconds_sum{pipeline="traffic",module="source"} 0.002
        spillgate_module_queueing_seconds_count{pipeline="traffic",module="source"} 2
        spillgate_module_batch_wait_seconds_sum{pipeline="traffic",module="detect"} 0.042
        spillgate_module_batch_wait_seconds_count{pipeline="traffic",module="detect"} 2
        spillgate_module_batch_wait_seconds_sum{pipeline="traffic",module="faces"} 0.024
        spillgate_module_batch_wait_seconds_count{pipeline="traffic",module="faces"} 2
        spillgate_module_batch_wait_seconds_sum{pipeline="traffic",module="plates"} 0.031
        spillgate_module_batch_wait_seconds_count{pipeline="traffic",module="plates"} 1
        spillgate_module_batch_wait_seconds_sum{pipeline="traffic",module="source"} 0.002
        spillgate_module_batch_wait_seconds_count{pipeline="traffic",module="source"} 2
        spillgate_module_execution_seconds_sum{pipeline="traffic",module="detect"} 0.128
        spillgate_module_execution_seconds_count{pipeline="traffic",module="detect"} 2
        spillgate_module_execution_seconds_sum{pipeline="traffic",module="faces"} 0.076
        spillgate_module_execution_seconds_count{pipeline="traffic",module="faces"} 2
        spillgate_module_execution_seconds_sum{pipeline="traffic",module="plates"} 0.058
        spillgate_module_execution_seconds_count{pipeline="traffic",module="plates"} 1
        spillgate_module_execution_seconds_sum{pipeline="traffic",module="source"} 0.016
        spillgate_module_execution_seconds_count{pipeline="traffic",module="source"} 2
        spillgate_module_batch_size_requests_sum{pipeline="traffic",module="detect"} 4.0
        spillgate_module_batch_size_requests_count{pipeline="traffic",module="detect"} 1
        spillgate_module_prediction_error_seconds_sum{pipeline="traffic",module="detect",direction="over"} 0.004
        spillgate_module_prediction_error_seconds_count{pipeline="traffic",module="detect",direction="over"} 1
        spillgate_device_busy_seconds_total{device="cuda:0"} 0.064
        spillgate_device_request_time_seconds_total{pipeline="traffic",outcome="completed"} 0.054333333
        spillgate_device_request_time_seconds_total{pipeline="traffic",outcome="dropped"} 0.035
        spillgate_worker_queue_length_requests{pipeline="traffic",module="detect",worker="1"} 5
        spillgate_planner_offered_requests_per_second{pipeline="traffic",module="source"} 50.5
        spillgate_planner_offered_requests_per_second{pipeline="traffic",module="detect"} 50.5
        spillgate_planner_executed_requests_per_second{pipeline="traffic",module="source"} 39.0
        spillgate_planner_executed_requests_per_second{pipeline="traffic",module="detect"} 39.0
        spillgate_planner_capacity_requests_per_second{pipeline="traffic",module="detect"} 40.0
        spillgate_planner_workers{pipeline="traffic",module="source"} 2.0
        spillgate_planner_workers{pipeline="traffic",module="detect"} 2.0
        spillgate_planner_pace_ratio{pipeline="traffic",module="source"} 1.25
        spillgate_planner_pace_ratio{pipeline="traffic",module="detect"} 1.25
        spillgate_planner_queueing_seconds{pipeline="traffic",module="source"} 0.0125
        spillgate_planner_queueing_seconds{pipeline="traffic",module="detect"} 0.0125
        spillgate_planner_downstream_seconds{pipeline="traffic",module="source"} 0.11
        spillgate_planner_downstream_seconds{pipeline="traffic",module="detect"} 0.11
        spillgate_planner_highest_budget_first{pipeline="traffic",module="source"} 1.0
        spillgate_planner_highest_budget_first{pipeline="traffic",module="detect"} 1.0
        spillgate_workers_wanted{pipeline="traffic",module="detect"} 3
        spillgate_workers_serving{pipeline="traffic",module="detect"} 2
        spillgate_gateway_gate_requests_per_second{pipeline="traffic"} 41.2
        spillgate_gateway_streams{pipeline="traffic",module="detect",variant="road.pt@192",obstacle="link"} 3
        spillgate_client_requests_total{pipeline="traffic",client="camera-7"} 30
        spillgate_client_good_requests_total{pipeline="traffic",client="camera-7"} 20
        spillgate_client_refused_requests_total{pipeline="traffic",client="camera-7"} 10
        spillgate_stream_requests_total{pipeline="traffic",stream="gate"} 12
        spillgate_stream_good_requests_total{pipeline="traffic",stream="gate"} 11
        spillgate_stream_refused_requests_total{pipeline="traffic",stream="gate"} 1
        spillgate_peer_met{peer="a-0"} 1.0
        spillgate_peer_clock_error_seconds{peer="a-0"} 0.0001
        spillgate_peer_waiting_bytes{peer="a-0"} 4096.0
        spillgate_peer_sent_bytes_total{peer="a-0"} 1000000
        spillgate_peer_received_bytes_total{peer="a-0"} 2000
        spillgate_values_kept_bytes 691200
        spillgate_values_kept_requests 1
        spillgate_values_known_requests 2
        spillgate_values_held_bytes 700000
        spillgate_values_limit_bytes 268435456
        spillgate_values_references_total 5
        spillgate_values_given_back_total 3
        spillgate_values_refused_requests_total 4
        spillgate_revision_share{pipeline="traffic",revision="5d41402a"} 0.95
        spillgate_revision_requests_total{pipeline="traffic",revision="5d41402a",outcome="completed"} 40
        spillgate_revision_requests_total{pipeline="traffic",revision="5d41402a",outcome="late"} 3
        spillgate_revision_requests_total{pipeline="traffic",revision="5d41402a",outcome="dropped"} 2
        spillgate_revision_requests_total{pipeline="traffic",revision="5d41402a",outcome="failed"} 1
        # EOF
    "#]].assert_eq(&text);
}

#[test]
fn buckets_are_cumulative_and_in_seconds() {
    let metrics = Metrics::new();
    let pipeline = testing::pipeline();
    metrics.request_ended(&testing::completed(&pipeline));
    metrics.batch_ended(&pipeline, &testing::batch());
    let text: String = metrics
        .render()
        .lines()
        .filter(|line| line.contains("module=\"detect\"") && line.contains("_bucket{"))
        .filter(|line| line.contains("queueing") || line.contains("batch_size"))
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        spillgate_module_queueing_seconds_bucket{le="0.0001",pipeline="traffic",module="detect"} 0
        spillgate_module_queueing_seconds_bucket{le="0.0002",pipeline="traffic",module="detect"} 0
        spillgate_module_queueing_seconds_bucket{le="0.0005",pipeline="traffic",module="detect"} 0
        spillgate_module_queueing_seconds_bucket{le="0.001",pipeline="traffic",module="detect"} 0
        spillgate_module_queueing_seconds_bucket{le="0.002",pipeline="traffic",module="detect"} 0
        spillgate_module_queueing_seconds_bucket{le="0.005",pipeline="traffic",module="detect"} 0
        spillgate_module_queueing_seconds_bucket{le="0.01",pipeline="traffic",module="detect"} 0
        spillgate_module_queueing_seconds_bucket{le="0.02",pipeline="traffic",module="detect"} 0
        spillgate_module_queueing_seconds_bucket{le="0.05",pipeline="traffic",module="detect"} 1
        spillgate_module_queueing_seconds_bucket{le="0.1",pipeline="traffic",module="detect"} 1
        spillgate_module_queueing_seconds_bucket{le="0.2",pipeline="traffic",module="detect"} 1
        spillgate_module_queueing_seconds_bucket{le="0.5",pipeline="traffic",module="detect"} 1
        spillgate_module_queueing_seconds_bucket{le="1.0",pipeline="traffic",module="detect"} 1
        spillgate_module_queueing_seconds_bucket{le="2.0",pipeline="traffic",module="detect"} 1
        spillgate_module_queueing_seconds_bucket{le="5.0",pipeline="traffic",module="detect"} 1
        spillgate_module_queueing_seconds_bucket{le="+Inf",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="1.0",pipeline="traffic",module="detect"} 0
        spillgate_module_batch_size_requests_bucket{le="2.0",pipeline="traffic",module="detect"} 0
        spillgate_module_batch_size_requests_bucket{le="3.0",pipeline="traffic",module="detect"} 0
        spillgate_module_batch_size_requests_bucket{le="4.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="6.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="8.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="12.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="16.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="24.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="32.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="48.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="64.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="128.0",pipeline="traffic",module="detect"} 1
        spillgate_module_batch_size_requests_bucket{le="+Inf",pipeline="traffic",module="detect"} 1
    "#]]
    .assert_eq(&text);
}

#[test]
fn every_metric_is_described_under_its_name() {
    let metrics = Metrics::new();
    metrics.register_queue_lengths(Box::new(Vec::new));
    metrics.register_edge(Box::new(EdgeView::default));
    metrics.register_values(Box::new(ValuesReading::default));
    let text = metrics.render();
    for name in ALL {
        let described = format!("# HELP {} ", name.strip_suffix("_total").unwrap_or(name));
        assert!(text.contains(&described), "{name}");
        let is_counter = text.contains(&format!(
            "# TYPE {} counter",
            name.trim_end_matches("_total")
        ));
        assert_eq!(is_counter, name.ends_with("_total"), "{name}");
    }
    assert_eq!(text.matches("# HELP ").count(), ALL.len());
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_reloaded_pipeline_goes_on_with_its_series() {
    let metrics = Metrics::new();
    for _ in 0..2 * PIPELINES_MAX {
        let pipeline = testing::pipeline();
        metrics.register_pipeline(&pipeline);
        metrics.request_ended(&testing::completed(&pipeline));
    }
    assert_eq!(metrics.pipelines.read().len(), PIPELINES_MAX);
    let line = format!(
        "{GOOD_REQUESTS}{{pipeline=\"traffic\"}} {}\n",
        2 * PIPELINES_MAX
    );
    assert!(metrics.render().contains(&line));
}

#[test]
fn a_device_time_is_shared_by_the_members_of_a_batch() {
    let metrics = Metrics::new();
    let pipeline = testing::pipeline();
    let mut record = testing::completed(&pipeline);
    record.outcome = Outcome::Late;
    record.times = vec![testing::times(testing::DETECT, [0, 1, 2, 102], 1, 4)];
    metrics.request_ended(&record);
    let line = format!("{DEVICE_REQUEST_TIME}{{pipeline=\"traffic\",outcome=\"late\"}} 0.025\n");
    assert!(metrics.render().contains(&line));
}
