//! Batch schedulers in a server, over real sockets: every one of them serves, and under overload answers what it gives
//! up.

#[expect(
    dead_code,
    reason = "shared with tests/serving.rs, which uses all of it"
)]
mod support;

use std::time::{Duration, Instant};

use spillgate_pipeline::schedule::ScheduleName;
use spillgate_proto::pb;
use support::{TestServer, frame};
use tonic::Code;

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

/// Requests of two applications at an even rate: in time, given up, anything else.
async fn offer(server: &TestServer, rate: u64, seconds: u64) -> (u32, u32, u32) {
    let mut calls = tokio::task::JoinSet::new();
    let client = server.client().await;
    let start = Instant::now();
    for i in 0..rate * seconds {
        let due = start + Duration::from_micros(1_000_000 * i / rate);
        tokio::time::sleep_until(due.into()).await;
        let mut client = client.clone();
        let mut frame = frame(i, b"x");
        frame.application = if i % 2 == 0 { "even" } else { "odd" }.to_owned();
        calls.spawn(async move {
            let request = pb::InferRequest {
                pipeline: String::new(),
                frame: Some(frame),
            };
            client
                .infer(request)
                .await
                .map(|_| ())
                .map_err(|e| e.code())
        });
    }
    let answers = calls.join_all().await;
    let count = |is: fn(&Result<(), Code>) -> bool| answers.iter().filter(|a| is(a)).count() as u32;
    let good = count(|a| a.is_ok());
    let given_up = count(|a| matches!(a, Err(Code::DeadlineExceeded | Code::ResourceExhausted)));
    (good, given_up, answers.len() as u32 - good - given_up)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scheduler_serves_and_answers_what_it_gives_up() {
    for schedule in ScheduleName::ALL {
        let server = TestServer::start(&[&pipeline(schedule.name())]).await;
        let (good, given_up, other) = offer(&server, 100, 1).await;
        // A machine that stands still for a moment makes `clockwork` expect the same of the next ten batches.
        assert_eq!((good + given_up, other), (100, 0), "{schedule}");
        assert!(
            good >= 85,
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
            let mut calls = tokio::task::JoinSet::new();
            for i in 0..4 {
                let mut client = client.clone();
                calls.spawn(async move {
                    let request = pb::InferRequest {
                        pipeline: String::new(),
                        frame: Some(frame(i, b"x")),
                    };
                    client.infer(request).await.is_ok()
                });
            }
            let answers = calls.join_all().await;
            assert!(answers.into_iter().all(|good| good), "{schedule}");
            tokio::time::sleep(Duration::from_millis(1100)).await;
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
