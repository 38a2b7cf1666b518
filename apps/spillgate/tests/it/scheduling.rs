//! Batch schedulers in a server, over real sockets: every one of them serves, and under overload answers what it gives
//! up.

use std::time::Duration;

use crate::support::{TestServer, frame};
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tonic::Code;
use tonic::transport::Channel;

/// Batches of up to 8 take 20 ms whatever their size: 400 requests a second.
fn pipeline(schedule: &str) -> String {
    format!(
        r#"
name: scheduled
slo: 150ms
source: {{ payload: bytes }}
modules:
  m: {{ op: slow, inputs: {{ payload: $source.payload }}, device: emulated, batch: {{ max: 8 }}, schedule: {schedule} }}
outputs: {{ payload: $m.payload }}
"#
    )
}

/// A call of `Infer`, and how it ends.
fn call(
    client: &SpillgateClient<Channel>,
    number: u64,
    application: &str,
) -> impl Future<Output = Result<(), Code>> + Send + 'static {
    let mut client = client.clone();
    let frame = pb::Frame {
        application: application.to_owned(),
        ..frame(number, b"x")
    };
    let request = pb::InferRequest {
        pipeline: String::new(),
        frame: Some(frame),
    };
    async move {
        client
            .infer(request)
            .await
            .map(|_| ())
            .map_err(|e| e.code())
    }
}

/// Requests of two applications at an even rate: in time, given up, anything else.
async fn offer(server: &TestServer, rate: u64, seconds: u64) -> (u32, u32, u32) {
    let mut calls = Vec::new();
    let client = server.client().await;
    let start = server.clock.now();
    for i in 0..rate * seconds {
        server.advance_to(start + Duration::from_micros(1_000_000 * i / rate));
        let application = if i % 2 == 0 { "even" } else { "odd" };
        calls.push(server.send(call(&client, i, application)).await);
    }
    let mut answers = Vec::new();
    for call in calls {
        answers.push(server.answer(call).await);
    }
    let count = |is: fn(&Result<(), Code>) -> bool| answers.iter().filter(|a| is(a)).count() as u32;
    let good = count(|a| a.is_ok());
    let given_up = count(|a| matches!(a, Err(Code::DeadlineExceeded | Code::ResourceExhausted)));
    (good, given_up, answers.len() as u32 - good - given_up)
}

// Over five seconds: 3 s of virtual time for each scheduler, 1700 requests, each of which settles the whole server.
#[tokio::test(flavor = "multi_thread")]
async fn every_scheduler_serves_and_answers_what_it_gives_up() {
    for schedule in SchedulePolicy::OFFERED {
        let server = TestServer::start(&[&pipeline(schedule.name())]).await;
        let (good, given_up, other) = offer(&server, 100, 1).await;
        assert_eq!((good + given_up, other), (100, 0), "{schedule}");
        // One that learns knows little of the first of them.
        assert!(
            good >= 95,
            "{schedule}: {good} of 100 at a quarter of the capacity"
        );
        let (good, given_up, other) = offer(&server, 800, 2).await;
        println!("{schedule}: {good} good, {given_up} given up of 1600, capacity 800");
        assert_eq!(other, 0, "{schedule}");
        assert!(good >= 300, "{schedule}: {good} good");
        assert!(given_up >= 500, "{schedule}: {given_up} given up");
        assert_eq!(server.in_flight(), 0, "{schedule}");
        server.stop().await;
    }
}

/// Finished requests that ran again, and their time.
async fn reruns(server: &TestServer) -> (f64, f64) {
    let metrics = server.metrics().await;
    let read = |what: &str| {
        let name = format!(
            "spillgate_module_alone_seconds_{what}{{pipeline=\"scheduled\",module=\"m\"}} "
        );
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        value.map_or(0.0, |value| value.parse().unwrap())
    };
    (read("count"), read("sum"))
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_requests_run_again_where_a_scheduler_learns_and_nowhere_else() {
    for (schedule, learns) in [("goodput", true), ("static", false)] {
        let server = TestServer::start(&[&pipeline(schedule)]).await;
        // Four come together, a second apart: a batch of several, and then nothing to do.
        for _ in 0..3 {
            let client = server.client().await;
            let mut calls = Vec::new();
            for i in 0..4 {
                calls.push(server.send(call(&client, i, "")).await);
            }
            for call in calls {
                assert_eq!(server.answer(call).await, Ok(()), "{schedule}");
            }
            server.advance(Duration::from_millis(1100));
        }
        let (n, seconds) = reruns(&server).await;
        if learns {
            assert!((1.0..=3.0).contains(&n), "{n} reruns");
            assert!(seconds / n >= 0.02, "{n} reruns took {seconds} s");
        } else {
            assert_eq!(n, 0.0);
        }
        server.stop().await;
    }
}
