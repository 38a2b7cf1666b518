//! Swarm runs: small clusters whose shape, load, policy and faults are drawn from a seed. Each seed switches features on and
//! off, so that some runs have much of little and others little of much (Groce et al., "Swarm Testing", ISSTA 2012).
//!
//! A run breaks if an invariant does not hold at any step, or if the cluster does not come back: of the requests that come 10 s
//! and more after the last fault, no more than 2 points fewer are completed in time than in the same run without faults. Under
//! load in bursts, the state at the start of a burst decides on dozens of requests, with and without faults. A run that falls short
//! is therefore measured by the worst of several runs without faults, in which the load begins a little later and messages take a
//! little longer: a process that began anew publishes at other times within each second, too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Cluster, Draws, Fault, Flaw, Node, Operation, Rollouts, Scripted, Travel};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::plan::Planned;
use spillgate_controller_policy::rollout::{RolloutConfig, Share, Strategy};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, GatewayId, ModuleId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::policy::recipe::Bind;
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Address;

use crate::clients::{ClientLoad, Sends, SimClient};
use crate::report::Report;
use crate::workload::{Arrivals, arrivals};
use crate::world::{Bug, Served, SimConfig, run};

/// All faults are over by then.
const HEALED: Duration = Duration::from_secs(8);
/// After so long, nothing of the faults is left to see.
const RECOVERY: Duration = Duration::from_secs(10);
/// How long load is offered.
const DURATION: Duration = Duration::from_secs(24);
/// Part of the requests that may be missing after the recovery.
const POINTS: f64 = 0.02;
/// Requests that may be missing by chance where few come.
const CHANCE: f64 = 6.0;
/// The same in standard deviations of the difference of two such runs.
const DEVIATIONS: f64 = 2.0;

/// Runs without faults by which a run that falls short is measured.
const SIMILAR_RUNS: u32 = 8;

/// How much later the load of each of them begins: together about half of the period in which controllers publish.
const LATER: Duration = Duration::from_millis(60);

/// How pipelines look: by module, what it reads.
const SHAPES: [&[&[u16]]; 4] = [
    &[&[0]],
    &[&[0], &[1]],
    &[&[0], &[1], &[1], &[2, 3]],
    &[&[0], &[0], &[1, 2]],
];

/// What broke.
#[derive(Clone, Debug, PartialEq)]
pub enum Breach {
    /// An invariant did not hold.
    Invariant(Violation),
    /// The cluster did not come back.
    Progress {
        /// Requests completed in time after the recovery.
        good: u32,
        /// The same without faults: the worst of several runs.
        undisturbed: u32,
        /// Requests offered in that time.
        offered: u32,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::Invariant(violation) => violation.fmt(f),
            Breach::Progress {
                good,
                undisturbed,
                offered,
            } => write!(
                f,
                "no progress after the faults: {good} of {offered} requests completed in time, {undisturbed} without faults"
            ),
        }
    }
}

/// Runs a seed under one of the policies.
///
/// # Errors
/// What broke. The seed breaks the same again.
pub fn check(seed: u64, policies: &[DropPolicy], bug: Option<Bug>) -> Result<Report, Breach> {
    let config = SimConfig {
        bug,
        ..draw(seed, policies)
    };
    let report = run(config.clone()).map_err(Breach::Invariant)?;
    let good = recovered(&report.good_by_second);
    let offered = recovered(&report.offered_by_second);
    let mut undisturbed = f64::INFINITY;
    for i in 0..=SIMILAR_RUNS {
        let plain = run(without_faults(&config, i)).map_err(Breach::Invariant)?;
        let part = f64::from(recovered(&plain.good_by_second))
            / f64::from(recovered(&plain.offered_by_second).max(1));
        undisturbed = undisturbed.min(part * f64::from(offered));
        if f64::from(good) >= least(undisturbed, offered) {
            return Ok(report);
        }
    }
    Err(Breach::Progress {
        good,
        undisturbed: undisturbed.round() as u32,
        offered,
    })
}

/// The run without its faults, and runs that differ a little from it.
fn without_faults(config: &SimConfig, i: u32) -> SimConfig {
    let cluster = config.cluster.as_ref().map(|cluster| {
        let mut cluster = cluster.undisturbed();
        // Another 5% each time.
        cluster.travel.delay += cluster.travel.delay * i / 20;
        Arc::new(cluster)
    });
    let arrivals = config.arrivals.iter().map(|at| *at + LATER * i);
    SimConfig {
        cluster,
        arrivals: arrivals.collect(),
        ..config.clone()
    }
}

/// How many requests must be completed in time, where so many are without faults.
fn least(undisturbed: f64, offered: u32) -> f64 {
    let offered = f64::from(offered);
    let part = undisturbed / offered.max(1.0);
    let deviation = (2.0 * offered * part * (1.0 - part)).sqrt();
    undisturbed - POINTS * offered - DEVIATIONS * deviation - CHANCE
}

/// The sum of the seconds after the recovery.
fn recovered(by_second: &[u32]) -> u32 {
    let from = (HEALED + RECOVERY).as_secs() as usize;
    by_second.iter().skip(from).sum()
}

/// The run of a seed, under one of the policies or, as often as four of them, ours.
pub fn draw(seed: u64, policies: &[DropPolicy]) -> SimConfig {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let shape = SHAPES[rng.random_range(0..SHAPES.len())];
    let whens: Vec<Option<u16>> = match shape.len() {
        3.. if rng.random() => vec![None, Some(1)],
        _ => Vec::new(),
    };
    let mut pipeline = noop_pipeline(ms(rng.random_range(80..300)), shape, &whens);
    let ours = [DropPolicy::SPILLGATE; 4];
    let mut policies = policies.to_vec();
    policies.extend(ours);
    pipeline.policy.drop = policies.choose(rng).copied().unwrap_or(ours[0]);
    pipeline.limits.in_flight = [16, 64, 1024][rng.random_range(0..3)];
    let n_modules = pipeline.modules.len();
    let (base, slope) = (rng.random_range(2..8), rng.random_range(1..4));
    let times: Vec<Duration> = (1..=8).map(|b| ms(base + slope * b)).collect();
    let mut execution = vec![times; n_modules];
    execution[0].clear();
    let per_module = rng.random_range(1..4usize);
    let shares_devices = rng.random_bool(0.25);
    let workers = workers(n_modules, per_module, shares_devices);
    let n_devices = workers.iter().flatten().max().map_or(0, |d| d + 1);
    let mut cluster = cluster(rng, n_modules, n_devices);
    // Without a drawn number, so that seeds that broke before stay what they are.
    if matches!(seed % 11, 1 | 6 | 7 | 8) {
        cluster.registers = true;
        cluster.faults = comings(seed, &cluster);
        cluster.faults.extend(impostors(seed, &cluster));
    }
    // Without a drawn number, too.
    if matches!(seed % 9, 4 | 6) {
        cluster.rollouts = Some(Arc::new(rollouts(seed, &cluster)));
    }
    // Without a drawn number, so that seeds that broke before stay what they are.
    let pulls = seed.is_multiple_of(4) && pipeline.policy.recipe().bind == Bind::Late;
    pipeline.policy.dispatch = match pulls {
        true => Some(DispatchPolicyName::Pull),
        false => pipeline.policy.dispatch_of(cluster.shares().len(), []),
    };
    let most = 1000.0 / f64::from(base + slope) * per_module as f64;
    let rate = (most * rng.random_range(0.2..1.2)).clamp(15.0, 120.0);
    let arrivals = arrivals(Arrivals::Poisson, rate, DURATION, rng.random());
    let (clients, arrivals) = match seed % 7 {
        // Without a drawn number, like `pulls`.
        1 | 2 => {
            let (clients, times) = clients(seed, rate, &mut pipeline);
            (Some(clients), times)
        }
        _ => (None, arrivals),
    };
    let served = Served {
        planned: Arc::new(Planned {
            batch: vec![4; n_modules],
            execution: execution.into(),
            workers: vec![per_module as u32; n_modules],
            alone: !shares_devices,
        }),
        workers,
        pipeline: Arc::new(pipeline),
        arrivals: arrivals.into(),
        duration: DURATION,
    };
    SimConfig {
        noise: if rng.random() { 0.1 } else { 0.0 },
        when_probability: 0.6,
        cancelled: if rng.random_bool(0.3) { 0.1 } else { 0.0 },
        hurried: rng.random_bool(0.3).then_some((0.3, 0.6)),
        clients,
        gateways: cluster.shares(),
        cluster: Some(Arc::new(cluster)),
        ..SimConfig::undisturbed(served, seed)
    }
}

/// Clients that share, each with a rate, rights and habits of its own, and limits for each or none. `rate`: of all together,
/// on average.
fn clients(seed: u64, rate: f64, pipeline: &mut Pipeline) -> (ClientLoad, Vec<Timestamp>) {
    let rng = &mut ChaCha8Rng::seed_from_u64(!seed);
    let n = rng.random_range(1..5u16);
    let one = |i: u16| SimClient {
        name: format!("client-{i}"),
        count: 1,
        sends: [
            Sends::Poisson,
            Sends::Evenly,
            Sends::Bursts,
            Sends::Alternating,
        ][rng.random_range(0..4)],
        rate: rate * rng.random_range(0.2..1.8) / f64::from(n),
        streams: rng.random_range(1..4),
        weight: [0.5, 1.0, 3.0][rng.random_range(0..3)],
        class: [0, 0, 1][rng.random_range(0..3)],
        application: String::new(),
        takes: [1.0, 1.0, 2.0][rng.random_range(0..3)],
        background: i == 3,
    };
    let clients: Vec<SimClient> = (0..n).map(one).collect();
    let each = &mut pipeline.clients.each;
    // Wide: where they bind, how they are rounded for each gateway decides how many requests pass.
    each.rate = rng.random_bool(0.3).then_some(4.0 * rate);
    each.in_flight = rng.random_bool(0.3).then_some(256);
    ClientLoad::new(&clients, DURATION, seed, false)
}

/// Workers on devices of their own, or one of each module on each device.
fn workers(n_modules: usize, per_module: usize, shares_devices: bool) -> Vec<Vec<u16>> {
    let of = |module: usize| {
        let first = match shares_devices {
            true => 0,
            false => (module - 1) * per_module,
        };
        (first as u16..(first + per_module) as u16).collect()
    };
    let mut workers = vec![Vec::new()];
    workers.extend((1..n_modules).map(of));
    workers
}

fn cluster(rng: &mut ChaCha8Rng, n_modules: usize, n_devices: u16) -> Cluster {
    let mut nodes: Vec<Node> = Vec::new();
    let gateways = (0..rng.random_range(1..4u16)).map(GatewayId);
    put(rng, &mut nodes, 1, gateways.map(Address::Gateway).collect());
    let together = rng.random_range(1..4);
    let controllers = (0..n_modules as u16).map(ModuleId);
    put(
        rng,
        &mut nodes,
        together,
        controllers.map(Address::Controller).collect(),
    );
    let together = rng.random_range(1..3);
    let devices = (0..n_devices).map(DeviceId);
    put(
        rng,
        &mut nodes,
        together,
        devices.map(Address::Device).collect(),
    );
    if rng.random_bool(0.2) && nodes.len() > 2 {
        // A process of all three roles.
        let last = nodes.pop().map(|n| n.roles).unwrap_or_default();
        nodes[0].roles.extend(last);
    }
    if rng.random() {
        for node in &mut nodes {
            node.ahead_ns = rng.random_range(-200_000_000..200_000_000);
            node.drift_ppm = rng.random_range(-100..=100);
        }
    }
    let jitters = rng.random();
    Cluster {
        nodes,
        travel: Travel {
            delay: Duration::from_micros(rng.random_range(50..2000)),
            jitter: Duration::from_micros(if jitters {
                rng.random_range(50..1000)
            } else {
                0
            }),
        },
        draws: Some(Draws {
            n: rng.random_range(1..10),
            from: ms(1000),
            until: HEALED,
        }),
        ..Cluster::default()
    }
}

/// Nodes that leave or crash and join anew, by the same name or another one. Some come later than the others.
fn comings(seed: u64, cluster: &Cluster) -> Vec<Scripted> {
    let rng = &mut ChaCha8Rng::seed_from_u64(!seed);
    let n = rng.random_range(1..8);
    let one = |_| {
        let (from, until) = match rng.random_bool(0.25) {
            true => (0.0, rng.random_range(0.0..1.0)),
            false => {
                let from = rng.random_range(0.1..0.9);
                (from, rng.random_range(from..1.0))
            }
        };
        Scripted {
            at: HEALED.mul_f64(from),
            lasts: HEALED.mul_f64(until - from),
            fault: Fault::Away {
                node: rng.random_range(0..cluster.nodes.len()),
                leaves: rng.random_bool(0.7),
                renamed: rng.random(),
            },
        }
    };
    (0..n).map(one).collect()
}

/// Nodes that take the names of others for a while.
fn impostors(seed: u64, cluster: &Cluster) -> Vec<Scripted> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed ^ 0x1e57);
    let n = rng.random_range(0..3);
    let one = |_| {
        let from = rng.random_range(0.1..0.9);
        let until = rng.random_range(from..1.0);
        let n_nodes = cluster.nodes.len();
        let node = rng.random_range(0..n_nodes);
        let of = (node + rng.random_range(1..n_nodes)) % n_nodes;
        Scripted {
            at: HEALED.mul_f64(from),
            lasts: HEALED.mul_f64(until - from),
            fault: Fault::Impostor { node, of },
        }
    };
    if cluster.nodes.len() < 2 {
        return Vec::new();
    }
    (0..n).map(one).collect()
}

/// Revisions that operators publish or take back; some have a flaw.
fn rollouts(seed: u64, cluster: &Cluster) -> Rollouts {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed ^ 0x4e11_0075);
    let is_controller = |role: &Address| matches!(role, Address::Controller(_));
    let controllers = (0..cluster.nodes.len())
        .filter(|node| cluster.nodes[*node].roles.iter().any(is_controller));
    let controllers: Vec<usize> = controllers.collect();
    let mut flaws = Vec::new();
    let n = rng.random_range(1..5);
    let mut times: Vec<f64> = (0..n).map(|_| rng.random_range(0.05..0.95)).collect();
    times.sort_by(f64::total_cmp);
    let operations = times.into_iter().map(|part| {
        let node = controllers[rng.random_range(0..controllers.len())];
        let is_new = flaws.is_empty() || rng.random_bool(0.7);
        if is_new {
            flaws.push(match rng.random_range(0..4) {
                0 => Flaw::NotStarted(rng.random_range(0..cluster.nodes.len())),
                1 => Flaw::Fails,
                _ => Flaw::None,
            });
        }
        let publishes = is_new.then_some(flaws.len() as u64);
        (HEALED.mul_f64(part), Operation { node, publishes })
    });
    let operations = operations.collect();
    Rollouts {
        config: RolloutConfig {
            strategy: match rng.random_range(0..3) {
                0 => Strategy::Share(Share::of_parts(2000).unwrap_or(Share::ALL)),
                1 => Strategy::Recreate,
                _ => Strategy::AtOnce,
            },
            watch: ms(rng.random_range(500..1500)),
        },
        start: ms(rng.random_range(100..1000)),
        operations,
        flaws,
    }
}

/// Puts roles on nodes, so many together.
fn put(rng: &mut ChaCha8Rng, nodes: &mut Vec<Node>, together: usize, roles: Vec<Address>) {
    for roles in roles.chunks(together) {
        let mut node = Node::new(format!("node-{}", nodes.len()), roles.to_vec());
        node.share = [1.0, 1.0, 3.0][rng.random_range(0..3)];
        nodes.push(node);
    }
}

fn ms(n: u32) -> Duration {
    Duration::from_millis(u64::from(n))
}
