//! What the simulator says of a dynamic module, and what a server does with the very same requests.

use std::time::Duration;

use crate::support::{TestServer, frame};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::distribution::{BatchForm, BatchTime};
use spillgate_pipeline::profile::batch_sizes;
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::pb;
use spillgate_sim::dynamic::{Instance, Job, run};

const SLO: Duration = Duration::from_millis(21);
/// Server and simulator are to agree this well.
const CLOSE: f64 = 0.02;

fn pipeline(schedule: &str) -> String {
    format!(
        r#"
name: simulated
slo: 21ms
source: {{ payload: bytes }}
modules:
  m: {{ op: timed, inputs: {{ payload: $source.payload }}, device: emulated, batch: {{ max: 8 }}, schedule: {schedule} }}
outputs: {{ payload: $m.payload }}
"#
    )
}

/// Requests of two applications, 1 to 3 and 5 to 7 ms long, 4 ms on average, that come as a Poisson process.
fn jobs(rate: f64, seconds: f64, rng: &mut ChaCha8Rng) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut at = 0.0;
    loop {
        at -= f64::ln(1.0 - rng.random::<f64>()) / rate;
        if at > seconds {
            return jobs;
        }
        let application = Application(rng.random_range(0..2));
        jobs.push(Job {
            at: Timestamp::from_ns((at * 1e9) as u64),
            application,
            length_ms: 1.0 + 4.0 * f64::from(application.0) + 2.0 * rng.random::<f64>(),
        });
    }
}

/// Part of the requests that the server finishes in time.
async fn served(server: &TestServer, jobs: &[Job]) -> f64 {
    let mut calls = Vec::new();
    let client = server.client().await;
    let start = server.clock.now();
    for (i, job) in (0..).zip(jobs) {
        let mut frame = frame(i, b"");
        frame.data = format!("{:.3}", job.length_ms).into_bytes().into();
        frame.application = format!("{}", job.application.0);
        server.advance_to(start + job.at.since(Timestamp::ZERO));
        let mut client = client.clone();
        let request = pb::InferRequest {
            pipeline: String::new(),
            frame: Some(frame),
        };
        let call = async move { client.infer(request).await.is_ok() };
        calls.push(server.send(call).await);
    }
    let mut good = 0;
    for call in calls {
        good += u32::from(server.answer(call).await);
    }
    f64::from(good) / jobs.len() as f64
}

/// The same by the simulator.
fn simulated(name: SchedulePolicy, history: &[Job], jobs: &[Job]) -> f64 {
    let time = BatchTime::new(BatchForm::Shrinking, 0.0, 0.5, 0.5).unwrap();
    let mut instance = Instance::new(time, batch_sizes(8), SLO);
    instance.history = history
        .iter()
        .map(|job| (job.application, job.length_ms))
        .collect();
    instance.jobs = jobs.to_vec();
    run(&instance, name).unwrap().finish_rate
}

/// At 4 ms a request, deciding and everything around it must not cost what the simulator does not know of.
// Over five seconds: six live runs of 1500 requests in virtual time, each of which settles the whole server.
#[tokio::test(flavor = "multi_thread")]
async fn short_requests_are_served_as_the_simulator_says() {
    for name in [SchedulePolicy::GOODPUT, SchedulePolicy::ORLOJ] {
        for seed in 0..3 {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let (early, offered) = (jobs(40.0, 2.0, rng), jobs(375.0, 4.0, rng));
            let server = TestServer::start(&[&pipeline(name.name())]).await;
            // From a profile that is ten times too fast.
            served(&server, &early).await;
            let live = served(&server, &offered).await;
            server.stop().await;
            let expected = simulated(name, &early, &offered);
            println!("{name}: finish rate {live:.3}, by the simulator {expected:.3}");
            assert!((live - expected).abs() <= CLOSE, "{name}, seed {seed}");
        }
    }
}
