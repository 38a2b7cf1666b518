//! What the simulator says of a dynamic module, and what a server does with the very same requests.

#[path = "support/calm.rs"]
mod calm;
#[expect(
    dead_code,
    reason = "shared with tests/serving.rs, which uses all of it"
)]
mod support;

use std::time::{Duration, Instant};

use calm::Watch;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::distribution::{BatchForm, BatchTime};
use spillgate_pipeline::profile::batch_sizes;
use spillgate_pipeline::schedule::{Application, ScheduleName};
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::pb;
use spillgate_sim::dynamic::{Instance, Job, run};
use support::{TestServer, frame};

const SLO: Duration = Duration::from_millis(21);
/// Server and simulator are to agree this well.
const CLOSE: f64 = 0.03;
/// A machine that stands still for a moment makes requests late that no scheduler could save.
const ATTEMPTS: u64 = 5;

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
    let mut calls = tokio::task::JoinSet::new();
    let client = server.client().await;
    let start = Instant::now();
    for (i, job) in (0..).zip(jobs) {
        let mut frame = frame(i, b"");
        frame.data = format!("{:.3}", job.length_ms).into_bytes().into();
        frame.application = format!("{}", job.application.0);
        let due = start + Duration::from_secs_f64(job.at.as_secs_f64());
        tokio::time::sleep_until(due.into()).await;
        let mut client = client.clone();
        calls.spawn(async move {
            let request = pb::InferRequest {
                pipeline: String::new(),
                frame: Some(frame),
            };
            client.infer(request).await.is_ok()
        });
    }
    let answers = calls.join_all().await;
    answers.iter().filter(|good| **good).count() as f64 / jobs.len() as f64
}

/// The same by the simulator.
fn simulated(name: ScheduleName, history: &[Job], jobs: &[Job]) -> f64 {
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
#[tokio::test(flavor = "multi_thread")]
async fn short_requests_are_served_as_the_simulator_says() {
    for name in [ScheduleName::Goodput, ScheduleName::Orloj] {
        let (mut tried, mut is_judged) = (Vec::new(), false);
        for seed in 0..ATTEMPTS {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let (early, offered) = (jobs(40.0, 2.0, rng), jobs(375.0, 4.0, rng));
            let server = TestServer::start(&[&pipeline(name.name())]).await;
            // From a profile that is ten times too fast.
            served(&server, &early).await;
            let watch = Watch::start();
            let live = served(&server, &offered).await;
            let was_calm = watch.was_calm();
            server.stop().await;
            let expected = simulated(name, &early, &offered);
            println!("{name}: finish rate {live:.3}, by the simulator {expected:.3}");
            tried.push(live - expected);
            is_judged |= was_calm;
            if (live - expected).abs() <= CLOSE {
                break;
            }
        }
        let best = tried.iter().map(|off| off.abs()).fold(1.0, f64::min);
        if best > CLOSE && !is_judged {
            println!("{name}: not judged, the machine is busy elsewhere");
            continue;
        }
        assert!(best <= CLOSE, "{name}: off by {tried:.3?}");
    }
}
