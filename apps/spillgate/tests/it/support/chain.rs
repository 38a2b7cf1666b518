//! A chain of two modules whose first device always has work, and how long that device stands still between two batches.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::submission::submission;
use parking_lot::Mutex;
use spillgate::deployment::Deployment;
use spillgate::embedded::Embedded;
use spillgate::process_context::ProcessContext;
use spillgate_controller::record::{BatchRecord, Observer, RequestRecord};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::compile::compile;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::invariants::Invariant;
use spillgate_pipeline::profile::{ModuleProfile, ProfileSet};
use spillgate_process::clock::Clock;

pub(crate) const BATCH: Duration = Duration::from_millis(5);

fn pipeline(policy: &str) -> String {
    format!(
        r#"
name: chain
slo: 100ms
source: {{ payload: bytes }}
modules:
  a: {{ op: noop, inputs: {{ payload: $source.payload }}, device: emulated, batch: {{ max: 1 }} }}
  b: {{ op: noop, inputs: {{ payload: $a.payload }}, device: emulated, batch: {{ max: 1 }} }}
outputs: {{ payload: $b.payload }}
policy: {{ drop: {policy} }}
"#
    )
}

/// The batches that ended.
#[derive(Default)]
pub(crate) struct Batches(Mutex<Vec<BatchRecord>>);

impl Observer for Batches {
    fn request_ended(&self, _: &Arc<RequestRecord>) {}

    fn request_refused(&self, _: &Arc<Pipeline>, _: &'static str) {}

    fn batch_ended(&self, _: &Arc<Pipeline>, record: &BatchRecord) {
        self.0.lock().push(*record);
    }

    fn reran(&self, _: &Arc<Pipeline>, _: ModuleId, _: Duration) {}

    fn breached(&self, _: &Arc<Pipeline>, invariant: Invariant) {
        panic!("{invariant} does not hold");
    }
}

/// The chain, which serves.
pub(crate) fn start(policy: &str, clock: &Clock, observer: Arc<Batches>) -> Embedded {
    let library = Arc::new(spillgate_modules::library());
    let text = pipeline(policy);
    let compiled =
        compile(&text, "test.yaml", &library.catalog(), None).unwrap_or_else(|e| panic!("{e}"));
    let mut profiles = ProfileSet::default();
    for module in ["a", "b"] {
        let profile = ModuleProfile::linear(BATCH, Duration::ZERO, 1);
        profiles.insert("emulated", module, "-", profile);
    }
    let deployment = Deployment {
        pipeline: Arc::new(compiled.pipeline),
        base_dir: PathBuf::new(),
        profiles,
        families: Default::default(),
    };
    let context = ProcessContext::new(clock.clone(), library, observer);
    Embedded::start(&context, &[deployment], None).unwrap()
}

/// Time between two batches of the first module, which always has work, sorted. `pause` lets the time pass between two requests.
pub(crate) fn hand_offs(
    policy: &str,
    clock: &Clock,
    mut pause: impl FnMut(Duration),
) -> Vec<Duration> {
    let batches = Arc::new(Batches::default());
    let embedded = start(policy, clock, batches.clone());
    // Twice what it can serve.
    for _ in 0..800 {
        let _ = embedded.hosts[0].submit(submission(3));
        pause(BATCH / 2);
    }
    embedded.hosts[0].abort();
    pause(2 * BATCH);
    assert!(embedded.stop(Duration::from_secs(30)).is_empty());
    let mut of_first = batches.0.lock().clone();
    of_first.retain(|b| b.module == ModuleId(1));
    // The first few found the device idle.
    let mut gaps: Vec<Duration> = of_first
        .windows(2)
        .skip(20)
        .map(|pair| pair[1].started_at.since(pair[0].ended_at))
        .collect();
    gaps.sort_unstable();
    gaps
}
