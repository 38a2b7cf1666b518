//! Families of models in a simulated pipeline: devices that read a model when a batch needs it, and devices under a placement.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::family::{Family, FamilyModel};
use spillgate_pipeline::id::{MemberId, ModelId, ModuleId, WeightsId, WorkerId};
use spillgate_pipeline::placement::{Decider, PlacementPolicy, ServedBy};
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_recipes::drops;
use spillgate_recipes::placements;
use spillgate_sim::families::{Named, SimFamilies, Zipf};
use spillgate_sim::placement::{self, Scenario, System};
use spillgate_sim::workload::{Arrivals, arrivals};
use spillgate_sim::{Report, Served, SimConfig, SimFleet, run, swarm};
use spillgate_worker_policy::weights::fleet::FleetWorker;
use spillgate_worker_policy::weights::placement::{DeviceSpec, Model, PlacementConfig, Weights};
use spillgate_worker_policy::weights::store::{WeightStoreConfig, WeightsSize, WorkerWeights};

const MS: Duration = Duration::from_millis(1);
const SLO: Duration = Duration::from_millis(100);
const CHAIN: &[&[u16]] = &[&[0], &[1]];
const DIAMOND: &[&[u16]] = &[&[0], &[1], &[1], &[2, 3]];

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(ms * 1_000_000)
}

/// A batch of `n` takes `4 + 2 n` ms.
fn execution() -> Vec<Duration> {
    (1..=8).map(|n| MS * (4 + 2 * n)).collect()
}

/// Gives each module that many models, which requests draw. Reading one takes that long.
fn give_families(config: &mut SimConfig, models: u16, load: Duration) {
    let pipeline = Arc::make_mut(&mut config.pipeline);
    for module in &mut pipeline.modules[1..] {
        let member = |i: u16| FamilyModel {
            name: format!("{i:05}"),
            file: format!("{i:05}.pt"),
        };
        module.family = Some(Arc::new(Family {
            pattern: "*.pt".to_owned(),
            default: None,
            members: (0..models).map(member).collect(),
        }));
    }
    let n = pipeline.modules.len();
    let seed = config.seed;
    let drawn = |m: usize| (m > 0).then(|| Zipf::new(models, 0.9, seed, ModuleId(m as u16)));
    let loads = (0..n).map(|m| vec![load; if m > 0 { usize::from(models) } else { 0 }]);
    config.families = Some(Arc::new(SimFamilies {
        loads: loads.collect(),
        named: Named::Drawn((0..n).map(drawn).collect()),
    }));
}

/// Each module has that many models and a device of its own.
fn families(
    reads: &[&[u16]],
    models: u16,
    load: Duration,
    arrivals: Vec<Timestamp>,
    seed: u64,
) -> SimConfig {
    let mut pipeline = noop_pipeline(SLO, reads, &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let n = pipeline.modules.len();
    let mut times = vec![execution(); n];
    times[0].clear();
    let last = arrivals.last().copied().unwrap_or_default();
    let workers = (0..n as u16).map(|m| m.checked_sub(1).into_iter().collect());
    let served = Served {
        planned: Arc::new(Planned {
            batch: vec![8; n],
            execution: times.into(),
            workers: vec![1; n],
            alone: true,
        }),
        workers: workers.collect(),
        pipeline: Arc::new(pipeline),
        arrivals: arrivals.into(),
        duration: last.since(Timestamp::ZERO) + MS,
    };
    let mut config = SimConfig::undisturbed(served, seed);
    give_families(&mut config, models, load);
    config
}

/// The same with requests of the first module that name these models.
fn named(models: u16, load: Duration, requests: &[(u64, u16)]) -> SimConfig {
    let times = requests.iter().map(|(ms, _)| at(*ms)).collect();
    let mut config = families(&[&[0]], models, load, times, 1);
    let listed = requests.iter().map(|(_, member)| MemberId(*member));
    let known = config.families.take().expect("it has families");
    config.families = Some(Arc::new(SimFamilies {
        named: Named::Listed(listed.collect()),
        ..(*known).clone()
    }));
    config
}

/// The same with memory for that many models of a page on each device, where these are from the start. Its brokers form the batches.
fn shared(mut config: SimConfig, pages: u32, resident: &[u16]) -> SimConfig {
    let loads = &config.families.as_ref().expect("it has families").loads;
    let n_devices = config.workers.iter().flatten().max().map_or(0, |d| d + 1);
    for device in 0..n_devices {
        // Workers are numbered as they are listed.
        let all = (config.workers.iter().enumerate())
            .flat_map(|(module, devices)| devices.iter().map(move |device| (module, *device)));
        let own = (0..).map(WorkerId).zip(all);
        let own = own.filter(|(_, (_, of))| *of == device);
        let mut weights = Vec::new();
        let workers = own.map(|(worker, (module, _))| {
            let first = weights.len() as u32;
            weights.extend(loads[module].iter().map(|load| WeightsSize {
                pages: 1,
                load: *load,
            }));
            let of = WorkerWeights {
                weights: (first..weights.len() as u32).map(WeightsId).collect(),
                by_variant: false,
            };
            (worker, of)
        });
        let workers: Vec<_> = workers.collect();
        let resident = resident.iter().map(|m| WeightsId(u32::from(*m)));
        let resident = resident.filter(|w| w.idx() < weights.len()).collect();
        config.memory.push(WeightStoreConfig {
            pages,
            weights: weights.into(),
            workers,
            resident,
            scaled: Vec::new(),
        });
    }
    let pipeline = (*config.pipeline).clone();
    let by = ServedBy::one_process(Decider::Brokers);
    config.pipeline = Arc::new(pipeline.served_by(by));
    config
}

/// The same with a placement for each module: of each, a model of one page on a device with that many pages, on which these models are
/// from the start.
fn placed(mut config: SimConfig, name: PlacementPolicy, pages: u32, resident: &[u16]) -> SimConfig {
    let pipeline = (*config.pipeline).clone();
    let pipeline = pipeline.served_by(ServedBy::one_process(Decider::Placement(name)));
    let loads = config
        .families
        .as_ref()
        .expect("it has families")
        .loads
        .clone();
    for module in &pipeline.modules[1..] {
        let loads = &loads[module.id.idx()];
        let weights = |load: &Duration| Weights {
            pages: 1,
            load: *load,
        };
        let model = |i: u32| Model {
            weights: WeightsId(i),
            neighbours: Vec::new(),
            execution: [1, 2, 4, 8].map(|n| execution()[n - 1]).to_vec(),
            input: Duration::ZERO,
        };
        let after = |m: ModuleId| pipeline.successors(m).into_iter();
        let downstream =
            after(module.id).map(|next| execution()[0] * (1 + after(next).count().min(1) as u32));
        config.fleets.push(SimFleet {
            name,
            config: PlacementConfig {
                sizes: vec![1, 2, 4, 8],
                weights: loads.iter().map(weights).collect(),
                models: (0..loads.len() as u32).map(model).collect(),
                devices: vec![DeviceSpec {
                    pages,
                    resident: resident.iter().map(|m| WeightsId(u32::from(*m))).collect(),
                }],
                travel: Duration::ZERO,
                is_fair: true,
                background_time: Duration::MAX,
            },
            workers: vec![FleetWorker {
                by_variant: false,
                worker: WorkerId(u32::from(module.id.0) - 1),
                module: module.id,
                models: (0..loads.len() as u32).map(ModelId).collect(),
                capacity: module.queue,
                background: 8,
                downstream: downstream.max().unwrap_or_default(),
            }],
            devices: config.workers[module.id.idx()].clone(),
        });
    }
    config.pipeline = Arc::new(pipeline);
    config
}

fn poisson(rate: f64, seconds: u64, seed: u64) -> Vec<Timestamp> {
    arrivals(Arrivals::Poisson, rate, Duration::from_secs(seconds), seed)
}

fn done(config: SimConfig) -> Report {
    let n = config.arrivals.len() as u64;
    let report = run(config).unwrap_or_else(|violation| panic!("{violation}"));
    let ended = report.good + report.late + report.dropped + report.failed;
    assert_eq!(ended, n, "each request ends");
    report
}

fn loads(report: &Report) -> u64 {
    report.models.expect("it has families").loads
}

#[test]
fn the_first_batch_of_a_model_waits_for_its_load() {
    // A request takes 6 ms and a hop of 0.5 ms, and the first one of a model 30 ms more.
    let report = done(named(3, MS * 30, &[(0, 2), (100, 2), (200, 2), (300, 1)]));
    assert_eq!(report.good, 4);
    let mean = (4.0 * 6.5 + 2.0 * 30.0) / 4.0;
    assert!(
        (report.latency_ms_mean - mean).abs() < 1e-6,
        "{}",
        report.latency_ms_mean
    );
    let models = report.models.unwrap();
    assert_eq!(
        (models.loads, models.cold_requests, models.unloads),
        (2, 2, 0)
    );
    assert_eq!(models.refused, None);
    let part = 60.0 / 301.0;
    assert!(
        (models.load_utilisation - part).abs() < 1e-9,
        "{}",
        models.load_utilisation
    );
}

#[test]
fn without_a_placement_a_load_occupies_the_link_and_not_the_device() {
    // While model 1 is read, from 200 to 260 ms, a request for model 0 is served.
    let report = done(named(2, MS * 60, &[(0, 0), (200, 1), (210, 0), (500, 0)]));
    assert_eq!(report.good, 4);
    let latencies = [66.5, 66.5, 6.5, 6.5];
    let mean = latencies.iter().sum::<f64>() / 4.0;
    assert!(
        (report.latency_ms_mean - mean).abs() < 1e-6,
        "{}",
        report.latency_ms_mean
    );
}

#[test]
fn under_a_placement_a_load_occupies_the_link_and_not_the_device() {
    for name in placements::ALL {
        let config = named(2, MS * 60, &[(200, 1), (210, 0), (230, 0), (500, 0)]);
        let report = done(placed(config, name, 2, &[0]));
        assert_eq!(report.good, 4, "{}", name.name());
        let mean = (66.5 + 3.0 * 6.5) / 4.0;
        assert!(
            (report.latency_ms_mean - mean).abs() < 1e-6,
            "{}: {}",
            name.name(),
            report.latency_ms_mean
        );
        let models = report.models.unwrap();
        assert_eq!(
            (models.loads, models.cold_requests, models.unloads),
            (1, 1, 0),
            "{}",
            name.name()
        );
        let part = 60.0 / 501.0;
        assert!(
            (models.load_utilisation - part).abs() < 1e-9,
            "{}",
            models.load_utilisation
        );
    }
}

/// Requests in time a second of a chain of three modules under our placement, while each module bears 400 a second.
fn in_time(models: u16, pages: u32, rate: f64) -> f64 {
    let (seconds, load) = (20, MS * 4);
    let three: &[&[u16]] = &[&[0], &[1], &[2]];
    let config = families(three, models, load, poisson(rate, seconds, 1), 1);
    done(placed(config, PlacementPolicy::SPILLGATE, pages, &[0])).good as f64 / seconds as f64
}

#[test]
fn modules_before_an_overloaded_one_serve_under_our_placement_what_it_can_serve() {
    // With all models in memory, and where they have to be read.
    for (models, pages) in [(1, 1), (30, 20)] {
        let bears = in_time(models, pages, 400.0);
        for rate in [600.0, 1200.0] {
            let good = in_time(models, pages, rate);
            assert!(
                good > 0.95 * bears,
                "{models} models: {bears}, {good} of {rate}"
            );
        }
    }
}

#[test]
fn where_brokers_form_the_batches_a_load_occupies_the_link_and_not_the_device() {
    let config = named(
        3,
        MS * 60,
        &[(200, 1), (210, 0), (230, 0), (500, 0), (600, 2), (700, 0)],
    );
    let report = done(shared(config, 2, &[0]));
    assert_eq!(report.good, 6);
    let mean = (2.0 * 66.5 + 4.0 * 6.5) / 6.0;
    let is = report.latency_ms_mean;
    assert!((is - mean).abs() < 1e-6, "{is}");
    let models = report.models.unwrap();
    let did = (models.loads, models.cold_requests, models.unloads);
    assert_eq!(did, (2, 2, 1), "0 is asked for more than 1");
}

#[test]
fn brokers_drop_what_a_load_makes_late_and_serve_the_rest_in_time() {
    // Loads take longer than the SLO, but for one of eight requests.
    let config = named(2, SLO, &[(10, 1), (20, 0), (30, 1), (40, 0)]);
    let report = done(shared(config, 2, &[0]));
    assert_eq!((report.good, report.late), (2, 0));
}

#[test]
fn whatever_happens_where_brokers_share_memory_each_request_ends() {
    for seed in 0..16 {
        let rate = 60.0 + 20.0 * seed as f64;
        let mut config = SimConfig {
            noise: [0.2, 1.0][seed as usize / 8],
            when_probability: 0.6,
            cancelled: 0.1,
            hurried: Some((0.3, 0.5)),
            ..families(DIAMOND, 30, MS * 15, poisson(rate, 6, seed), seed)
        };
        let drops = drops::ALL;
        let pipeline = Arc::make_mut(&mut config.pipeline);
        pipeline.policy.drop = drops[seed as usize % drops.len()];
        let config = shared(config, 6, &[0, 1, 2]);
        let (once, again) = (done(config.clone()), done(config));
        assert_eq!(once, again, "{seed}");
        assert!(once.good > 0 && loads(&once) > 0, "{seed}");
    }
}

/// A cluster of the swarm that serves one revision to its end: the report has the models of the first one alone.
fn drawn(seed: u64) -> SimConfig {
    let mut config = swarm::draw(seed, &drops::ALL);
    if let Some(cluster) = &mut config.cluster {
        Arc::make_mut(cluster).rollouts = None;
    }
    config
}

/// Workers die and begin anew, messages are lost, clocks are off.
#[test]
fn brokers_that_share_memory_hold_under_drawn_faults() {
    for seed in 0..20 {
        let mut config = drawn(seed);
        config.scaling = None;
        give_families(&mut config, 12, MS * 20);
        let config = shared(config, 9, &[0]);
        let report = run(config).unwrap_or_else(|violation| panic!("{seed}: {violation}"));
        assert!(loads(&report) > 0 && report.good > 0, "{seed}");
    }
}

#[test]
fn each_worker_reads_a_model_once_without_a_placement() {
    let config = families(CHAIN, 40, MS * 5, poisson(60.0, 20, 3), 3);
    let zipfs: Vec<Zipf> = (1..=2)
        .map(|m| Zipf::new(40, 0.9, 3, ModuleId(m)))
        .collect();
    let distinct = |zipf: &Zipf| {
        let mut named: Vec<MemberId> = (0..config.arrivals.len() as u64)
            .map(|i| zipf.member(i))
            .collect();
        named.sort_unstable();
        named.dedup();
        named.len() as u64
    };
    let most: u64 = zipfs.iter().map(distinct).sum();
    let report = done(config);
    // Requests of some models may all be dropped.
    assert!(
        loads(&report) <= most && loads(&report) > most * 9 / 10,
        "{} of {most}",
        loads(&report)
    );
    assert!(report.good > 0);
}

#[test]
fn a_family_of_one_default_model_is_a_plain_module() {
    let mut one = families(CHAIN, 1, MS * 50, poisson(150.0, 10, 5), 5);
    let mut pipeline = (*one.pipeline).clone();
    for module in &mut pipeline.modules[1..] {
        let family = module.family.as_deref().unwrap().clone();
        let default = Some(MemberId(0));
        module.family = Some(Arc::new(Family { default, ..family }));
    }
    one.pipeline = Arc::new(pipeline.clone());
    for module in &mut pipeline.modules {
        module.family = None;
    }
    let plain = SimConfig {
        pipeline: Arc::new(pipeline),
        families: None,
        ..one.clone()
    };
    let (one, plain) = (done(one), done(plain));
    assert_eq!(loads(&one), 0);
    assert_eq!(
        // A gateway hears of each worker's default that it is there.
        Report {
            models: None,
            messages_per_request: plain.messages_per_request,
            bytes_per_request: plain.bytes_per_request,
            ..one
        },
        plain
    );
}

#[test]
fn where_all_models_are_in_memory_nothing_is_read_and_more_memory_changes_nothing() {
    const MODELS: u16 = 20;
    let all: Vec<u16> = (0..MODELS).collect();
    for name in placements::ALL {
        let config = families(CHAIN, MODELS, MS * 40, poisson(100.0, 10, 7), 7);
        let world = |pages| done(placed(config.clone(), name, pages, &all));
        let (enough, plenty) = (world(u32::from(MODELS)), world(u32::MAX / 4));
        assert_eq!(enough, plenty, "{}", name.name());
        assert_eq!(loads(&enough), 0, "{}", name.name());
        let less = done(placed(config.clone(), name, 2, &all[..2]));
        assert!(
            loads(&less) > 0 && less.good < enough.good,
            "{}",
            name.name()
        );
    }
}

/// One module whose gateway is as near as can be: the requests of a scenario, served by the driver of scenarios and by that of pipelines.
#[test]
fn a_pipeline_of_one_module_serves_what_its_scenario_serves() {
    const MODELS: u16 = 40;
    for (seed, name) in (1..).zip(placements::ALL.into_iter().flat_map(|name| [name; 2])) {
        // In half of the runs the first requests do not count.
        let warm_up = 3 * (seed % 2);
        let times = poisson(120.0, 10, seed);
        let zipf = Zipf::new(MODELS, 0.9, seed, ModuleId(1));
        let mut arrivals = "time_s,model,slo_ms\n".to_owned();
        for (i, at) in (0..).zip(&times) {
            let (at, model) = (at.as_ns() as f64 * 1e-9, zipf.member(i).0);
            arrivals.push_str(&format!("{at:.9},{model},100\n"));
        }
        let columns = "id,name,weights_mb,pages,load_ms,input_kb,output_kb,exec_ms_b1,exec_ms_b2,exec_ms_b4,exec_ms_b8";
        let rows = (0..MODELS).map(|i| format!("{i},{i},0,1,25,0,0,6,8,12,20"));
        let models: Vec<String> = std::iter::once(columns.to_owned()).chain(rows).collect();
        let system = System {
            name: "one".to_owned(),
            gpus: 1,
            pages_per_gpu: 10,
            page_mb: 16.0,
            link_mb_per_ms: 1.0,
            net_ms: 0.0,
            warm_s: warm_up as f64,
            end_s: 10.0,
            noise_sigma: 0.0,
            noise_jitter_p: 0.0,
            noise_jitter_ms: 0.0,
            noise_spike_p: 0.0,
            noise_spike_ms: 0.0,
            noise_seed: 1,
            initial: vec!["0 1 2".to_owned()],
        };
        let clients = "model,concurrency,slo_ms\n";
        let scenario = Scenario::parse(system, &models.join("\n"), &arrivals, clients).unwrap();
        let (figures, ..) = placement::run(&scenario, name, true, false);
        let mut config = families(&[&[0]], MODELS, MS * 25, times, seed);
        config.hop = Duration::ZERO;
        config.warm_up = Duration::from_secs(warm_up);
        let report = run(placed(config, name, 10, &[0, 1, 2]));
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        assert!(figures.loads > 10 && figures.cancelled > 10, "{figures:?}");
        assert_eq!(
            (report.requests, report.good, report.late),
            (
                figures.requests as u64,
                figures.in_time as u64,
                figures.late as u64
            ),
            "{} {seed}",
            name.name()
        );
        assert!((report.goodput / figures.goodput - 1.0).abs() < 0.01);
        // What devices do is told of the whole run.
        if warm_up == 0 {
            assert_eq!(loads(&report), figures.loads as u64, "{}", name.name());
            assert!((report.batch_size_mean - figures.mean_batch).abs() < 1e-9);
        }
    }
}

#[test]
fn requests_pass_through_the_fleets_of_a_chain() {
    // Two modules of 6 ms and two hops.
    let config = families(CHAIN, 2, MS * 40, vec![at(0), at(1000)], 1);
    for name in placements::ALL {
        let report = done(placed(config.clone(), name, 2, &[0, 1]));
        assert_eq!(report.good, 2, "{}", name.name());
        assert!(
            (report.latency_ms_p99 - 13.0).abs() < 1e-6,
            "{}",
            report.latency_ms_p99
        );
    }
}

#[test]
fn whatever_happens_each_request_ends_and_equal_seeds_give_equal_runs() {
    let mut refused = 0;
    for (seed, name) in (0..).zip(placements::ALL.into_iter().cycle().take(16)) {
        let rate = 40.0 + 20.0 * seed as f64;
        let config = SimConfig {
            noise: [0.2, 1.0][seed as usize / 8],
            when_probability: 0.6,
            cancelled: 0.1,
            hurried: Some((0.3, 0.5)),
            ..families(DIAMOND, 30, MS * 15, poisson(rate, 6, seed), seed)
        };
        let config = placed(config, name, 6, &[0, 1, 2]);
        let (once, again) = (done(config.clone()), done(config));
        assert_eq!(once, again, "{} {seed}", name.name());
        assert!(once.good > 0 && loads(&once) > 0, "{} {seed}", name.name());
        let of = once.models.and_then(|m| m.refused).expect("a placement");
        println!("{} {seed}: {of:?}", name.name());
        refused += of.late_batch + of.late_load;
    }
    assert!(refused > 0, "some actions start too late");
}

/// Workers die and begin anew without models, messages are lost, clocks are off.
#[test]
fn processes_that_read_models_hold_under_drawn_faults() {
    for seed in 0..20 {
        let mut config = drawn(seed);
        let plain = run(config.clone()).unwrap_or_else(|violation| panic!("{seed}: {violation}"));
        give_families(&mut config, 12, MS * 20);
        let report = run(config).unwrap_or_else(|violation| panic!("{seed}: {violation}"));
        assert_eq!(report.requests, plain.requests, "{seed}");
        assert!(loads(&report) > 0 && report.good > 0, "{seed}");
    }
}
