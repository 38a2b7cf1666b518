//! The policies under overload, over real sockets: goodput stays, device time is not wasted, and what is dropped says
//! why.

use std::time::Duration;

use crate::support::{TestServer, frame, open_stream, result_of};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_proto::pb;
use tonic::Code;

/// Two modules of 20 ms on an emulated device each, in batches of one: they hold 50 requests a second.
fn two_stages(policy: &str) -> String {
    format!(
        r#"
name: stages
slo: 200ms
source: {{ payload: bytes }}
modules:
  a: {{ op: slow, inputs: {{ payload: $source.payload }}, device: emulated, batch: {{ max: 1 }} }}
  b: {{ op: slow, inputs: {{ payload: $a.payload }}, device: emulated, batch: {{ max: 1 }} }}
outputs: {{ payload: $b.payload }}
{policy}
"#
    )
}

/// What a run of open-loop load showed.
struct Run {
    offered: usize,
    /// Answers that came within the SLO.
    good: usize,
    span: Duration,
    failures: Vec<tonic::Status>,
}

impl Run {
    fn goodput(&self) -> f64 {
        self.good as f64 / self.span.as_secs_f64()
    }
}

/// Offers a Poisson process of `rate` a second for `span`, each request a call of its own.
async fn offer(server: &TestServer, rate: f64, span: Duration) -> Run {
    let [run] = offer_frames(server, span, [(rate, frame(0, b"x"))]).await;
    run
}

/// The same of several frames beside each other, each at its rate.
async fn offer_frames<const N: usize>(
    server: &TestServer,
    span: Duration,
    frames: [(f64, pb::Frame); N],
) -> [Run; N] {
    let client = server.client().await;
    let begin = server.clock.now();
    let mut due = Vec::new();
    for (which, (rate, _)) in frames.iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(1 + which as u64);
        let mut at = 0.0;
        loop {
            at += -(1.0 - rng.random::<f64>()).ln() / rate;
            if at >= span.as_secs_f64() {
                break;
            }
            due.push((begin + Duration::from_secs_f64(at), which));
        }
    }
    due.sort_unstable();
    let mut calls = Vec::new();
    for (at, which) in due {
        server.advance_to(at);
        let mut client = client.clone();
        let request = pb::InferRequest {
            pipeline: String::new(),
            frame: Some(frames[which].1.clone()),
        };
        let call = async move { client.infer(request).await };
        calls.push((which, server.send(call).await));
    }
    let mut answers = [const { Vec::new() }; N];
    for (which, call) in calls {
        answers[which].push(server.answer(call).await);
    }
    answers.map(|answers| {
        let in_time = |answer: &&Result<tonic::Response<pb::InferResponse>, _>| {
            let result = answer
                .as_ref()
                .ok()
                .and_then(|a| a.get_ref().result.as_ref());
            result.is_some_and(|r| r.outcome() == pb::Outcome::Completed)
        };
        Run {
            offered: answers.len(),
            good: answers.iter().filter(in_time).count(),
            span,
            failures: answers.into_iter().filter_map(Result::err).collect(),
        }
    })
}

/// The value of the sample whose line begins so; 0 when there is none.
fn sample(metrics: &str, start: &str) -> f64 {
    let line = metrics.lines().find(|l| l.starts_with(start));
    let value = line.and_then(|l| l.rsplit(' ').next());
    value.map_or(0.0, |v| v.parse().unwrap())
}

/// Part of the device time that went to requests that did not complete in time.
fn invalid_rate(metrics: &str) -> f64 {
    let of = |outcome| {
        let start = format!(
            "spillgate_device_request_time_seconds_total{{pipeline=\"stages\",outcome=\"{outcome}\"}}"
        );
        sample(metrics, &start)
    };
    let wasted = of("late") + of("dropped") + of("failed");
    wasted / (wasted + of("completed"))
}

#[tokio::test(flavor = "multi_thread")]
async fn goodput_stays_over_capacity_and_hardly_any_device_time_is_wasted() {
    for rate in [60.0, 100.0] {
        let server = TestServer::start(&[&two_stages("")]).await;
        let run = offer(&server, rate, Duration::from_secs(5)).await;
        let metrics = server.metrics().await;
        let wasted = invalid_rate(&metrics);
        println!(
            "at {rate}/s: {} offered, {:.1} good/s, {:.2}% of the device time wasted",
            run.offered,
            run.goodput(),
            wasted * 100.0
        );
        assert!(run.goodput() >= 45.0, "{:.1} good/s", run.goodput());
        assert!(wasted <= 0.03, "{wasted}");
        server.stop().await;
    }
}

/// A worker asks its gateway from the start on, and gets what comes.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_workers_ask_for_are_served_as_well() {
    let server = TestServer::start(&[&two_stages("policy: { dispatch: pull }")]).await;
    let run = offer(&server, 100.0, Duration::from_secs(4)).await;
    println!("pull: {:.1} good/s", run.goodput());
    assert!(run.goodput() >= 45.0, "{:.1} good/s", run.goodput());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_policy_goodput_collapses() {
    let server = TestServer::start(&[&two_stages("policy: { drop: none }")]).await;
    let run = offer(&server, 100.0, Duration::from_secs(4)).await;
    println!("none: {:.1} good/s", run.goodput());
    assert!(run.goodput() < 25.0, "{:.1} good/s", run.goodput());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_in_time_even_alone_is_refused_before_it_takes_a_place() {
    let server = TestServer::start(&[&two_stages("")]).await;
    let mut client = server.client().await;
    let asking = |timeout_ms| {
        let frame = pb::Frame {
            timeout_ms,
            ..frame(1, b"x")
        };
        pb::InferRequest {
            pipeline: String::new(),
            frame: Some(frame),
        }
    };
    let status = client.infer(asking(10.0)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let refused = result_of(&status);
    assert_eq!(refused.module, "source", "{refused:?}");
    assert_eq!(refused.reason, "predicted");
    assert!(refused.detail.contains("for itself"), "{}", refused.detail);
    assert_eq!(server.in_flight(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_says_what_was_expected_and_planners_are_in_the_metrics() {
    let server = TestServer::start(&[&two_stages("policy: { gate: 0 }")]).await;
    let run = offer(&server, 100.0, Duration::from_secs(3)).await;
    let predicted: Vec<pb::Result> = run
        .failures
        .iter()
        .map(|status| {
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            result_of(status)
        })
        .filter(|result| result.reason == "predicted")
        .collect();
    let dropped = predicted
        .first()
        .expect("twice the capacity cannot be served");
    assert_eq!(dropped.module, "a", "what cannot be served is not begun");
    for word in [
        "expected to miss its deadline",
        "still needed",
        "wait",
        "execution",
        "downstream",
    ] {
        assert!(dropped.detail.contains(word), "{}", dropped.detail);
    }
    let metrics = server.metrics().await;
    let module = |name: &str, module: &str| {
        let start = format!("{name}{{pipeline=\"stages\",module=\"{module}\"}}");
        sample(&metrics, &start)
    };
    let offered = module("spillgate_planner_offered_requests_per_second", "a");
    assert!((60.0..140.0).contains(&offered), "{offered}");
    let capacity = module("spillgate_planner_capacity_requests_per_second", "b");
    assert!((40.0..60.0).contains(&capacity), "{capacity}");
    let downstream = module("spillgate_planner_downstream_seconds", "a");
    assert!((0.02..0.2).contains(&downstream), "{downstream}");
    assert_eq!(module("spillgate_planner_downstream_seconds", "b"), 0.0);
    let by_reason = "spillgate_gateway_requests_total{pipeline=\"stages\",outcome=\"dropped\",module=\"a\",reason=\"predicted\"}";
    assert!(sample(&metrics, by_reason) >= 1.0, "{metrics}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_refuses_what_is_over_the_capacity() {
    let server = TestServer::start(&[&two_stages("policy: { gate: 0.5 }")]).await;
    let run = offer(&server, 100.0, Duration::from_secs(3)).await;
    let refused: Vec<&tonic::Status> = run
        .failures
        .iter()
        .filter(|s| s.code() == Code::ResourceExhausted)
        .collect();
    assert!(refused.len() >= 50, "{}", refused.len());
    let result = result_of(refused[0]);
    assert_eq!(result.reason, "overload");
    assert_eq!(result.outcome(), pb::Outcome::Refused);
    assert!(result.detail.contains("more comes"), "{}", result.detail);
    let metrics = server.metrics().await;
    let gate = sample(
        &metrics,
        "spillgate_gateway_gate_requests_per_second{pipeline=\"stages\"}",
    );
    assert!((20.0..30.0).contains(&gate), "{gate}");
    let counted =
        "spillgate_gateway_refused_requests_total{pipeline=\"stages\",reason=\"overload\"}";
    assert_eq!(sample(&metrics, counted) as usize, refused.len());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_the_capacity_is_not_decoded() {
    let pictures = r#"
name: stages
slo: 200ms
modules:
  sky: { op: daylight, inputs: { image: $source.frame }, device: emulated, batch: { max: 1 } }
outputs: { sky: $sky.labels }
"#;
    let server = TestServer::start(&[pictures]).await;
    let picture = pb::Frame {
        format: pb::FrameFormat::Rgb8 as i32,
        data: b"twelve bytes".as_slice().into(),
        width: 2,
        height: 2,
        ..Default::default()
    };
    let [run] = offer_frames(&server, Duration::from_secs(4), [(150.0, picture)]).await;
    let metrics = server.metrics().await;
    let decoded = sample(
        &metrics,
        "spillgate_module_execution_seconds_count{pipeline=\"stages\",module=\"source\"}",
    );
    println!(
        "{} offered, {decoded} decoded, {} good",
        run.offered, run.good
    );
    // In the first second nothing is known; in the others the gate lets 51.5 a second pass.
    let most = 1.2 * (150.0 + 3.0 * 51.5);
    assert!(decoded <= most, "{decoded} of {} decoded", run.offered);
    assert!(run.goodput() >= 45.0, "{:.1} good/s", run.goodput());
    let reserved = "spillgate_planner_downstream_seconds{pipeline=\"stages\",module=\"source\"}";
    assert!(
        sample(&metrics, reserved) >= 0.02,
        "the decoder reserves time for what follows"
    );
    server.stop().await;
}

/// How long clients should wait for their last answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_told_how_long_its_frames_may_take() {
    for (slo, longest_ms) in [("slo: none", 600_000.0), ("weight: 1", 200.0)] {
        let clients = format!("clients: {{ each: {{ {slo} }} }}");
        let server = TestServer::start(&[&two_stages(&clients)]).await;
        let open = pb::StreamOpen {
            pipeline: "stages".to_owned(),
            ..Default::default()
        };
        let (_sender, mut answers) = open_stream(&server, open).await;
        let first = answers.message().await.unwrap().unwrap();
        let Some(pb::stream_response::Message::Opened(opened)) = first.message else {
            panic!("{first:?}");
        };
        assert_eq!((opened.slo_ms, opened.longest_ms), (200.0, longest_ms));
    }
}

/// What one client gets in idle time, beside others at 60% of the capacity.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_an_slo_is_served_in_idle_time_and_others_are_unharmed() {
    let clients = "clients: { by: application, named: { nightly: { slo: none } } }";
    let server = TestServer::start(&[&two_stages(clients)]).await;
    let span = Duration::from_secs(5);
    let nightly = pb::Frame {
        application: "nightly".to_owned(),
        ..frame(0, b"x")
    };
    let offered = [(30.0, frame(0, b"x")), (100.0, nightly)];
    let [ordinary, greedy] = offer_frames(&server, span, offered).await;
    let in_time = ordinary.good as f64 / ordinary.offered as f64;
    assert!(in_time > 0.97, "{in_time} of {}", ordinary.offered);
    let metrics = server.metrics().await;
    let completed = sample(
        &metrics,
        "spillgate_gateway_background_requests_total{pipeline=\"stages\",outcome=\"completed\"}",
    );
    // 20 a second are idle, and more after the last request of the others; 256 wait at most.
    assert!(completed >= 80.0, "{completed} of {}", greedy.offered);
    let refused = greedy.failures.iter().map(tonic::Status::code);
    let refused = refused.filter(|code| *code == Code::ResourceExhausted);
    let ended = completed as usize + refused.count();
    assert_eq!(ended, greedy.offered, "each has one answer, none is late");
    let others = sample(
        &metrics,
        "spillgate_gateway_good_requests_total{pipeline=\"stages\"}",
    );
    assert!(
        others <= ordinary.offered as f64,
        "goodput is of the others"
    );
}
