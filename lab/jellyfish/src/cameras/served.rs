//! The same cameras, links and devices, served by what serves: a pipeline of one module, with gateway, planner, brokers and drop policy
//! ([`spillgate_sim::world`]). Any worker runs any variant.
//!
//! As in the loop, messages inside the server take no time, and devices go on at once. All variants are in memory.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::plan::plan_for_workers;
use spillgate_pipeline::execution::{ExecutionTimes, ModuleExecution};
use spillgate_pipeline::id::{ModuleId, VariantId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::pipeline::{Pipeline, Variant};
use spillgate_pipeline::policy::{Adapt, AdaptName, POLICY_DEFAULT, PlanName};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_sim::network::EmulatedUplink;
use spillgate_sim::{Disturbance, FrameBits, Report, Served, SimCamera, SimConfig};

use super::proxy::Proxy;
use super::report::CamerasReport;
use super::setting::{ENCODING, HOST, LoopSetting, OF_P99, ROUND_TRIP, Zoo};

/// The module that has the variants.
const MODULE: ModuleId = ModuleId(1);

/// How the variants of a pipeline are chosen that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a name of `adapt:`, but `fixed`.
    Adapt(AdaptName),
    /// The variant of this ordinal for all, and the cameras capture frames of its size.
    Fixed(usize),
}

/// Serves the cameras of a setting. Its cache, its margin and its most load do not count.
///
/// # Errors
/// The first invariant that did not hold.
pub fn serve(setting: &LoopSetting, way: Way) -> Result<CamerasReport, Violation> {
    let config = config(setting, way);
    Ok(figures(&setting.zoo, &spillgate_sim::run(config)?))
}

fn config(setting: &LoopSetting, way: Way) -> SimConfig {
    let zoo = match way {
        Way::Adapt(_) => setting.zoo.clone(),
        Way::Fixed(variant) => setting.zoo.smallest(variant + 1),
    };
    let pipeline = pipeline(setting, &zoo, way);
    let mut execution = ExecutionTimes::from(vec![vec![]; pipeline.modules.len()]);
    let times = (0..zoo.len()).map(|v| zoo.execution(v).to_vec());
    execution.set(MODULE, ModuleExecution::of_variants(times.collect()));
    let workers = vec![0, setting.n_workers as u32];
    let (planned, _) = plan_for_workers(PlanName::Spillgate, &pipeline, execution, workers, true);
    let mut rng = ChaCha8Rng::seed_from_u64(setting.seed);
    let starts = setting.starts(&mut rng);
    let (begins, end) = setting.window(&starts);
    let bits = (0..zoo.len()).map(|v| (zoo.sizes()[v], zoo.frame_bits(v)));
    let bits = FrameBits::new(bits.collect::<Vec<_>>());
    let side = zoo.sizes()[zoo.len() - 1];
    let cameras = setting.cameras.iter().zip(&starts).zip(0..);
    let camera =
        |((kind, start), i): ((&super::CameraKind, &super::setting::Start), u32)| SimCamera {
            name: format!("camera-{i}"),
            rate: kind.rate,
            slo: kind.slo,
            link: EmulatedUplink::new(setting.rates.clone(), start.offset, ROUND_TRIP, HOST),
            side,
            bits: bits.clone(),
            encoding: ENCODING,
            starts: start.at,
            adapts: true,
        };
    let cameras = cameras.map(camera).collect();
    let served = Served {
        pipeline: Arc::new(pipeline),
        planned: Arc::new(planned),
        workers: vec![vec![], (0..setting.n_workers as u16).collect()],
        arrivals: Vec::new().into(),
        duration: end.since(Timestamp::ZERO),
    };
    SimConfig {
        cameras,
        warm_up: begins.since(Timestamp::ZERO),
        hop: std::time::Duration::ZERO,
        handoff: std::time::Duration::ZERO,
        noise: setting.noise,
        // Profiles are 99th percentiles.
        disturbances: vec![(
            Timestamp::ZERO,
            Disturbance::Pace(MODULE, 1.0 - setting.noise * OF_P99),
        )],
        ..SimConfig::undisturbed(served, setting.seed)
    }
}

fn pipeline(setting: &LoopSetting, zoo: &Zoo, way: Way) -> Pipeline {
    let slo = setting.cameras.iter().map(|kind| kind.slo).max();
    let mut pipeline = noop_pipeline(slo.unwrap_or_default(), &[&[0]], &[]);
    pipeline.policy = POLICY_DEFAULT;
    let module = &mut pipeline.modules[MODULE.idx()];
    module.batch.max = zoo.execution(0).len() as u32;
    let variants = zoo.sizes().iter().zip(zoo.variants());
    let variants = variants.map(|(size, of)| Variant {
        model: format!("{size}.pt"),
        input: Some(*size),
        accuracy: Some(of.variant.accuracy),
    });
    module.variants = variants.collect();
    match way {
        Way::Adapt(name) => pipeline.adapt = Some(Adapt::new(MODULE, name)),
        Way::Fixed(variant) => module.fixed = Some(VariantId(variant as u16)),
    }
    pipeline
}

/// What a run came to. Workers switch between variants from batch to batch, which costs nothing and is not counted.
fn figures(zoo: &Zoo, report: &Report) -> CamerasReport {
    let all = report.cameras.as_ref().map(|cameras| &cameras.all);
    let all = all.cloned().unwrap_or_default();
    let proxy = Proxy::new();
    let seen = all.in_time_by_side.iter();
    let f1: f64 = seen
        .map(|(side, n)| *n as f64 * proxy.of(*side, *side))
        .sum();
    let in_time = all.frames - all.missed;
    let mut served: Vec<usize> = all.served.iter().map(|n| *n as usize).collect();
    served.resize(zoo.len(), 0);
    CamerasReport {
        frames: all.frames as usize,
        dropped: (all.refused + all.dropped) as usize,
        unserved: 0,
        unsent: all.unsent as usize,
        late: all.late as usize,
        f1: f1 / in_time.max(1) as f64,
        utilisation: report.utilisation,
        switches: 0,
        hits: 0,
        p50_ms: all.latency_ms_p50,
        p99_ms: all.latency_ms_p99,
        served,
    }
}
