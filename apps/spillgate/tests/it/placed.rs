//! What the simulator says of a pipeline whose models share memory, and what a server on emulated devices does with the very same requests.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::submission::submission;
use indexmap::IndexMap;
use spillgate::deployment::Deployment;
use spillgate::device_sharing::DeviceSharing;
use spillgate::devices::fleets::{self, Weights, loads, simulated};
use spillgate::embedded::Embedded;
use spillgate::process_context::ProcessContext;
use spillgate_controller::host::Submission;
use spillgate_controller::record::{BatchRecord, Observer, RequestRecord};
use spillgate_controller_policy::plan::{PlacedWorkers, Planned};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::compile::compile;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::family::{Family, FamilyModel};
use spillgate_pipeline::id::{MemberId, ModuleId};
use spillgate_pipeline::invariants::Invariant;
use spillgate_pipeline::placement::{Decider, ServedBy};
use spillgate_pipeline::policy::PlanName;
use spillgate_pipeline::profile::{ModuleProfile, ProfileSet};
use spillgate_pipeline::request::Outcome;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::TestClock;
use spillgate_sim::families::{Named, SimFamilies, Zipf};
use spillgate_sim::workload::{Arrivals, arrivals};
use spillgate_sim::{Served, SimConfig, run};
use spillgate_worker_policy::weights::placement::PlacementPolicy;

/// Models of the family, and how many of them fit.
const MODELS: u16 = 40;
const FIT: u64 = 6;
const PAGE: u64 = 16 << 20;
/// Bytes of a model: it takes a page.
const BYTES: u64 = 2_000_000;
/// How long reading one takes.
const LOAD: Duration = Duration::from_millis(25);
const RATE: f64 = 170.0;
const SECONDS: u64 = 5;
/// Server and simulator are to agree this well: they differ in who is first of what comes at one moment.
const CLOSE: f64 = 0.005;

/// A module on two emulated devices, with a family of models.
const PIPELINE: &str = "
name: placed
slo: 60ms
source: { payload: bytes }
modules:
  work:
    op: noop
    inputs: { payload: $source.payload }
    device: [emulated:0, emulated:1]
    workers: 2
    batch: { max: 4 }
outputs: { payload: $work.payload }
";

fn deployment(decider: Decider) -> Deployment {
    let base_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("placed");
    std::fs::create_dir_all(&base_dir).unwrap();
    let catalog = spillgate_modules::library().catalog();
    let compiled = compile(PIPELINE, "placed.yaml", &catalog, None);
    let mut pipeline = compiled.unwrap_or_else(|e| panic!("{e}")).pipeline;
    let members = (0..MODELS).map(|i| {
        let name = format!("{i:05}");
        let file = format!("{name}.pt");
        // Its bytes are never run, but equal files would be one model.
        let bytes = std::fs::File::create(base_dir.join(&file)).unwrap();
        let end = BYTES - name.len() as u64;
        bytes.write_all_at(name.as_bytes(), end).unwrap();
        FamilyModel { name, file }
    });
    pipeline.modules[1].family = Some(Arc::new(Family {
        pattern: "*.pt".to_owned(),
        default: None,
        members: members.collect(),
    }));
    let mut profiles = ProfileSet::default();
    let (alpha, beta) = (Duration::from_millis(6), Duration::from_millis(2));
    let profile = ModuleProfile {
        load: Some(LOAD),
        ..ModuleProfile::linear(alpha, beta, 4)
    };
    profiles.insert("emulated", "work", "-", profile);
    Deployment {
        pipeline: Arc::new(pipeline.served_by(ServedBy::one_process(decider))),
        base_dir,
        profiles,
        families: Default::default(),
    }
}

struct Quiet;

impl Observer for Quiet {
    fn request_ended(&self, _: &Arc<RequestRecord>) {}

    fn request_refused(&self, _: &Arc<Pipeline>, _: &'static str) {}

    fn batch_ended(&self, _: &Arc<Pipeline>, _: &BatchRecord) {}

    fn reran(&self, _: &Arc<Pipeline>, _: ModuleId, _: Duration) {}

    fn breached(&self, _: &Arc<Pipeline>, invariant: Invariant) {
        panic!("{invariant} does not hold");
    }
}

/// A request for that member, which counts itself when it was in time.
fn submission_of(member: MemberId, in_time: &Arc<AtomicU64>) -> Submission {
    let in_time = in_time.clone();
    Submission {
        members: Some([MemberId::default(), member].into()),
        on_end: Box::new(move |ended| {
            let is_in_time = matches!(ended.outcome, Outcome::Completed);
            in_time.fetch_add(u64::from(is_in_time), Ordering::Relaxed);
        }),
        ..submission(2)
    }
}

/// The part of the requests that a server completes in time.
fn served(
    deployment: Deployment,
    placing: &DeviceSharing,
    times: &[Timestamp],
    zipf: &Zipf,
) -> f64 {
    let library = Arc::new(spillgate_modules::library());
    let clock = TestClock::default();
    let context = ProcessContext {
        sharing: Some(placing.clone()),
        ..ProcessContext::new(clock.clock(), library, Arc::new(Quiet))
    };
    let embedded = Embedded::start(&context, &[deployment], None).unwrap();
    let in_time = Arc::new(AtomicU64::new(0));
    let start = clock.now();
    for (i, at) in (0..).zip(times) {
        clock.advance_to(start + at.since(Timestamp::ZERO));
        let submitted = embedded.hosts[0].submit(submission_of(zipf.member(i), &in_time));
        let is_placed = placing.decider.placement().is_some();
        assert!(
            submitted.is_ok() || !is_placed,
            "the gate is open under a placement"
        );
    }
    clock.advance(Duration::from_millis(500));
    assert!(embedded.stop(Duration::from_secs(2)).is_empty());
    in_time.load(Ordering::Relaxed) as f64 / times.len() as f64
}

/// The same by the simulator, and how many models it reads.
fn by_simulator(
    deployment: &Deployment,
    placing: &DeviceSharing,
    times: &[Timestamp],
    zipf: &Zipf,
    seed: u64,
) -> (f64, u64) {
    let weights = Weights {
        bytes: vec![None; 2],
        link: None,
    };
    let pipeline = (*deployment.pipeline).clone();
    let mut plan = pipeline.policy.recipe().plan;
    let (mut fleets, mut memory) = (Vec::new(), Vec::new());
    let library = spillgate_modules::library();
    match placing.decider {
        Decider::Placement(name) => {
            fleets = simulated(deployment, (name, placing), &weights, &library).unwrap();
            plan = PlanName::Reference;
        }
        Decider::Brokers => {
            memory = fleets::memory(deployment, placing, &weights, &library).unwrap();
        }
    }
    let execution = ExecutionTimes::of(&pipeline, &deployment.profiles, |m| m.devices[0].clone());
    let workers = PlacedWorkers::of(&pipeline, 0, str::to_owned, &mut 0);
    let (planned, _): (Planned, _) = workers.plan(plan, &pipeline, execution.unwrap());
    let served = Served {
        pipeline: Arc::new(pipeline),
        planned: Arc::new(planned),
        workers: vec![vec![], vec![0, 1]],
        arrivals: times.into(),
        duration: Duration::from_secs(SECONDS),
    };
    let report = run(SimConfig {
        hop: Duration::ZERO,
        families: Some(Arc::new(SimFamilies {
            loads: loads(deployment, &weights),
            named: Named::Drawn(vec![None, Some(zipf.clone())]),
        })),
        fleets,
        memory,
        ..SimConfig::undisturbed(served, seed)
    });
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    (report.finish_rate, report.models.unwrap().loads)
}

#[test]
fn a_server_whose_models_share_memory_does_what_the_simulator_says() {
    let placements = [PlacementPolicy::SPILLGATE, PlacementPolicy::LRU];
    let [best, lru] = placements.map(Decider::Placement);
    for decider in [best, lru, Decider::Brokers] {
        let memory = IndexMap::from([("emulated".to_owned(), FIT * PAGE)]);
        let placing = DeviceSharing {
            decider,
            is_fair: true,
            memory,
        };
        for seed in 0..3 {
            let times = arrivals(Arrivals::Poisson, RATE, Duration::from_secs(SECONDS), seed);
            let zipf = Zipf::new(MODELS, 0.9, seed, ModuleId(1));
            let (expected, n_loads) =
                by_simulator(&deployment(decider), &placing, &times, &zipf, seed);
            let live = served(deployment(decider), &placing, &times, &zipf);
            let name = decider.name();
            println!(
                "{name}: in time {live:.3}, by the simulator {expected:.3}, with {n_loads} loads"
            );
            assert!(n_loads > u64::from(MODELS), "models give way");
            assert!((live - expected).abs() <= CLOSE, "{name}, seed {seed}");
        }
    }
}
