//! `spillgate simulate`: runs a pipeline in virtual time, with the policies that serve.

mod adapting;
mod cameras;
mod clients;
mod cluster;
mod load;
mod models;
pub(crate) mod scenario;
mod work;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::commands::device_sharing::Fairness;
use crate::commands::{self, offered};
use crate::device_assignment::execution_times;
use crate::device_name::resolve_device;
use crate::files::{self, LoadedPipeline};
use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use indexmap::IndexSet;
use models::Simulated;
use spillgate_controller_policy::plan::{PlacedWorkers, PlanName, Planned};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy, PolicyConfig};
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_pipeline::time::{parse_duration, parse_positive_duration};
use spillgate_sim::clients::SimClient;
use spillgate_sim::world::DynamicWork;
use spillgate_sim::{Contender, DEVICES_MAX, Hostile, Run, Setup, SimConfig, SimScaling};

/// Most gateways that are simulated.
const GATEWAYS_MAX: i64 = 64;

/// What to run.
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct SimulateArgs {
    /// Pipeline file; its profile file must know each module on the device that it names.
    #[arg(required_unless_present = "scenario")]
    pipeline: Option<PathBuf>,
    /// In place of a pipeline: a folder with models.csv, arrivals.csv (or .gz), clients.csv and system.json, whose exact
    /// requests placements serve. See docs/devices.md
    #[arg(long, conflicts_with_all = ["pipeline", "amount", "trace", "cluster", "client", "policy", "schedule", "gpus"])]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    cameras: cameras::CamerasArgs,
    #[command(flatten)]
    models: models::ModelsArgs,
    #[command(flatten)]
    divided: scenario::DividedArgs,
    /// Write the actions of a scenario's run into this CSV file: when each was sent and began, its window and its expected end.
    #[arg(long, requires = "scenario")]
    actions: Option<PathBuf>,
    /// Mean rate in requests a second.
    #[arg(long, group = "amount")]
    rate: Option<f64>,
    /// Mean rate over the bottleneck throughput of the reference plan, whatever plan is run.
    #[arg(long, group = "amount")]
    load: Option<f64>,
    /// Exact arrival times: a file with one time in seconds a line, or with the columns time_s,app,length_ms or
    /// time_s,model,slo_ms. With lengths a batch takes c0 + c1 * size * longest length in ms, with c0 and c1 the alpha and beta of
    /// the profile: at the modules that have a `schedule:`, or at all if none has. A model is a number from 0, in each family by
    /// order of names
    #[arg(long, group = "amount")]
    arrivals: Option<PathBuf>,
    /// Lengths of earlier requests, which fill the distributions before the start: the columns app,length_ms.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Batch scheduler of the modules with dynamic work; repeat it to compare [default: each module's own, else goodput]
    #[arg(long, value_parser = offered::schedules())]
    schedule: Vec<String>,
    /// Rates from a CSV file with the columns second,rate (or minute,count; hour,count); Poisson inside a second.
    #[arg(long, conflicts_with = "arrivals")]
    trace: Option<PathBuf>,
    /// Index of the trace's first row.
    #[arg(long, requires = "trace", default_value_t = 0)]
    offset: u64,
    /// Replay a row of the trace as that many seconds.
    #[arg(long, requires = "trace", default_value_t = 1)]
    row_seconds: u32,
    /// How long load is offered [default: 60s; with --arrivals: up to the last]
    #[arg(long, value_parser = parse_positive_duration)]
    duration: Option<Duration>,
    /// Requests that arrive within this time from the start are served but not reported.
    #[arg(long, default_value = "0s", value_parser = parse_duration, conflicts_with = "client")]
    warmup: Duration,
    /// How requests arrive without a trace.
    #[arg(long, value_enum, default_value = "poisson", conflicts_with_all = ["trace", "arrivals"])]
    law: load::Law,
    /// Drop policy; repeat it to compare on equal arrivals [default: the pipeline's]
    #[arg(long, value_parser = offered::drops())]
    policy: Vec<String>,
    /// How the variant that serves a request is chosen, of the first module with several: spillgate, greedy, jellyfish or fixed, or fixed:N for
    /// the one of that ordinal; repeat it to compare on equal arrivals [default: the pipeline's]
    #[arg(long, value_parser = adapting::adapting)]
    adapt: Vec<adapting::Adapting>,
    /// Dispatch policy [default: that of the drop policy]
    #[arg(long, value_parser = offered::dispatches())]
    dispatch: Option<String>,
    /// Quantile of the waits downstream that estimates count with.
    #[arg(long)]
    lambda: Option<f64>,
    /// Refuse requests over this multiple of the bottleneck; 0: never [default: the drop policy's]
    #[arg(long)]
    gate: Option<f64>,
    /// Plan of batch sizes and workers [default: reference for published policies, spillgate for ours]
    #[arg(long, value_parser = PossibleValuesParser::new(PlanName::ALL.map(PlanName::name)))]
    plan: Option<String>,
    /// Devices, shared out by the plan [default: the workers and devices of the pipeline file]
    #[arg(long, value_parser = super::gpus())]
    gpus: Option<u32>,
    /// Workers follow the load between each module's `workers: min` and `max`, and take this long to start
    /// [default: the least serve all the time]
    #[arg(long, value_parser = parse_duration, conflicts_with = "gpus")]
    cold_start: Option<Duration>,
    /// Seed; repeat it for several runs.
    #[arg(long, default_values_t = [1])]
    seed: Vec<u64>,
    /// Travel of a message between gateway, controllers and workers.
    #[arg(long, default_value = "0.5ms", value_parser = parse_duration)]
    hop: Duration,
    /// Gateways, each of which accepts an equal part of the requests, as processes of their own: what they tell workers
    /// travels too [default: one, beside the workers]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=GATEWAYS_MAX))]
    gateways: Option<u16>,
    /// The same as --hop, between processes of their own.
    #[arg(long, value_parser = parse_duration, conflicts_with = "hop")]
    network_delay: Option<Duration>,
    /// Gateways, controllers and devices as processes that exchange only messages: a file of nodes, links and faults. See
    /// docs/evaluation/cluster.md
    #[arg(long, conflicts_with_all = ["gateways", "network_delay", "hop", "jitter", "clock_skew", "exchange_loss"])]
    cluster: Option<PathBuf>,
    /// Each message travels longer by an exponential time of this mean.
    #[arg(long, default_value = "0ms", value_parser = parse_duration)]
    jitter: Duration,
    /// Time from a device becoming free to the start of a batch that was bound only then.
    #[arg(long, default_value = "0.5ms", value_parser = parse_duration)]
    handoff: Duration,
    /// Execution times vary by a normal factor of this standard deviation.
    #[arg(long, default_value_t = 0.0)]
    noise: f64,
    /// Part of the state messages between planners that is lost.
    #[arg(long, default_value_t = 0.0)]
    exchange_loss: f64,
    /// Device clocks are off by up to this.
    #[arg(long, default_value = "0ms", value_parser = parse_duration)]
    clock_skew: Duration,
    /// Hostile clients beside the load; the report has the load alone. KIND:RATE, where the kind is hurry (a deadline
    /// of 1 ms), unreadable or cancelled (after 5 ms) and the rate is in requests a second, like hurry:300; may be
    /// repeated
    #[arg(long, value_parser = clients::hostile)]
    hostile: Vec<Hostile>,
    /// A client with its own requests, in place of --rate: NAME:RATE and after commas sends=poisson, evenly, bursts (all of a
    /// second at once) or alternating (every other second), count=N equal ones, streams=N, weight=X, class=N, application=NAME
    /// (what its requests name), takes=X (times as long as planned), slo=none (served in idle time only), like
    /// camera:5,count=7,sends=evenly; may be repeated
    #[arg(long, value_parser = clients::client, conflicts_with_all = ["amount", "trace"])]
    client: Vec<SimClient>,
    /// The entry cannot tell clients apart: the gate without shares.
    #[arg(long, requires = "client")]
    one_client: bool,
    /// Probability that a `when:` holds.
    #[arg(long, default_value_t = 0.5)]
    when: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs each policy with each seed.
pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.scenario {
        let is_fair = matches!(args.models.fairness, Fairness::On);
        scenario::run(
            folder,
            &args.models.placement,
            is_fair,
            args.divided.by(args.dispatch.as_deref())?,
            args.actions.as_deref(),
            args.json,
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    check(args)?;
    let pipeline = args.pipeline.as_deref();
    let pipeline = pipeline.context("no pipeline file is given")?;
    let mut loaded = files::load(pipeline, &commands::library().catalog())?;
    for warning in &loaded.warnings {
        eprintln!("{warning}");
    }
    let models = Simulated::read(args, &mut loaded)?;
    let work = work::read(args)?;
    let capacity = {
        let (setup, placed) = setup(&loaded, work.as_ref())?;
        setup.capacity(&plan_of(args, &setup, &placed, PlanName::Reference)?)
    };
    let mut runs = Vec::new();
    for &seed in &args.seed {
        let load = load::load(args, work.as_ref(), models.asked(), capacity, seed)?;
        anyhow::ensure!(
            args.warmup < load.duration,
            "--warmup is no less than the whole run; give more --duration"
        );
        for (adapt, loaded) in adapting::each(&args.adapt, &loaded)? {
            let (setup, placed) = setup(&loaded, work.as_ref())?;
            let contenders = contenders(args, &loaded)?;
            let placings = models.placings();
            let all = contenders
                .iter()
                .flat_map(|c| placings.iter().map(move |p| (c, *p)));
            for ((contender, schedule), placing) in all {
                let (contender, schedule) = (&models::placed(contender, placing), *schedule);
                let plan = plan_of(args, &setup, &placed, contender.plan())?;
                let mut config = setup.config(contender, &plan, &load, seed);
                if args.gpus.is_none() {
                    placed.apply(&mut config, args.cold_start)?;
                }
                config.hop = args.network_delay.unwrap_or(args.hop);
                config.jitter = args.jitter;
                config.apart = args.gateways.is_some() || args.network_delay.is_some();
                config.gateways = vec![1.0; usize::from(args.gateways.unwrap_or(1))];
                config.handoff = args.handoff;
                config.warm_up = args.warmup;
                config.noise = args.noise;
                config.hostile = args.hostile.clone();
                config.exchange_loss = args.exchange_loss;
                config.clock_skew = args.clock_skew;
                config.when_probability = args.when;
                if let Some(file) = &args.cluster {
                    cluster::apply(file, &mut config)?;
                }
                if let Some(work) = &work {
                    config.work = Some(placed.work(work, &plan, schedule));
                }
                config.cameras = args.cameras.cameras(loaded.pipeline.slo, seed)?;
                models.apply(&mut config, placing, &placed.devices)?;
                let mut run = setup.run(contender, &plan, &load, config)?;
                run.adapt.clone_from(&adapt);
                run.schedule = schedule.map(SchedulePolicy::name);
                run.placement = placing.map(|placing| placing.decider.name());
                // Devices that modules share or that vary, clusters, and a part of the requests are beyond the bound.
                let is_bounded = args.noise == 0.0
                    && work.is_none()
                    && args.cluster.is_none()
                    && !args.cameras.any()
                    && args.warmup.is_zero();
                if args.gpus.is_some() && is_bounded {
                    run.bounds = Some(setup.bounds(&plan, &load, args.hop)?);
                }
                if !args.json {
                    super::print(&text_of(&run)?)?;
                }
                runs.push(run);
            }
        }
    }
    if args.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "runs": runs }))?;
        super::print(&format!("{text}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(args: &SimulateArgs) -> anyhow::Result<()> {
    let has_amount = args.rate.is_some() || args.load.is_some() || args.arrivals.is_some();
    anyhow::ensure!(
        has_amount || args.trace.is_some() || !args.client.is_empty() || args.cameras.any(),
        "nothing to offer: give --rate, --load, --trace, --arrivals, --client or --cameras"
    );
    for (name, value) in [("--rate", args.rate), ("--load", args.load)] {
        let positive = value.is_none_or(|v| v.is_finite() && v > 0.0);
        anyhow::ensure!(positive, "{name} must be above 0");
    }
    for (name, value) in [
        ("--when", Some(args.when)),
        ("--lambda", args.lambda),
        ("--exchange-loss", Some(args.exchange_loss)),
    ] {
        let fits = value.is_none_or(|v| (0.0..=1.0).contains(&v));
        anyhow::ensure!(fits, "{name} lies from 0 to 1");
    }
    anyhow::ensure!(
        (0.0..=1.0).contains(&args.noise),
        "--noise lies from 0 to 1"
    );
    let gate = args.gate.is_none_or(|g| g.is_finite() && g >= 0.0);
    anyhow::ensure!(gate, "--gate is 0, for none, or above");
    anyhow::ensure!(
        args.adapt.is_empty() || args.models.placement.iter().all(|p| p == "brokers"),
        "--adapt: a placement has one variant of each module in memory; leave --placement out"
    );
    anyhow::ensure!(args.row_seconds > 0, "--row-seconds must be above 0");
    Ok(())
}

/// Where the pipeline file puts its workers.
struct Placed {
    workers: PlacedWorkers,
    /// Ordinals of their devices.
    devices: Vec<Vec<u16>>,
    /// Modules whose time depends on the content of requests, and their own scheduler.
    laws: Vec<Option<(work::Law, Option<SchedulePolicy>)>>,
}

impl Placed {
    /// The work of a run: the modules under that scheduler, or each under its own.
    fn work(
        &self,
        work: &work::Work,
        plan: &Planned,
        schedule: Option<SchedulePolicy>,
    ) -> DynamicWork {
        let of = |(law, planned): (&Option<(work::Law, Option<SchedulePolicy>)>, &u32)| {
            let (law, own) = law.as_ref()?;
            let name = schedule.or(*own).unwrap_or(SchedulePolicy::GOODPUT);
            Some(law.scheduled(name, *planned, work.mean_ms()))
        };
        work.dynamic(self.laws.iter().zip(&plan.batch).map(of).collect())
    }

    /// Puts the workers where the file says. With a cold start they follow the load, else the least serve.
    fn apply(&self, config: &mut SimConfig, cold_start: Option<Duration>) -> anyhow::Result<()> {
        config.workers.clone_from(&self.devices);
        let scaling = self.workers.scaling(&config.planned);
        match (cold_start, scaling) {
            (Some(cold_start), Some(scaling)) => {
                config.scaling = Some(SimScaling {
                    config: scaling,
                    cold_start,
                });
            }
            (Some(_), None) => anyhow::bail!(
                "--cold-start: no module can get more workers; give one workers: {{ min: 1, max: 4 }} and devices \
                 for them"
            ),
            (None, _) => {
                for (workers, &least) in config.workers.iter_mut().zip(&self.workers.least) {
                    workers.truncate(least as usize);
                }
            }
        }
        Ok(())
    }
}

fn setup(loaded: &LoadedPipeline, work: Option<&work::Work>) -> anyhow::Result<(Setup, Placed)> {
    let (pipeline, profiles) = (&loaded.pipeline, &loaded.profiles);
    // Decoding is not simulated.
    let workers = PlacedWorkers::of(pipeline, 0, resolve_device, &mut 0);
    let devices = ordinals(&workers.devices)?;
    let mut execution = execution_times(pipeline, profiles)
        .map_err(|missing| super::unprofiled(loaded, &missing))?;
    let mut laws = vec![None];
    let any_scheduled = pipeline.modules.iter().any(|m| m.schedule.is_some());
    for (module, devices) in pipeline.modules.iter().zip(&workers.devices).skip(1) {
        let mut law = None;
        if let Some(work) = work.filter(|_| module.schedule.is_some() || !any_scheduled) {
            let of = work::law(module, &devices[0], profiles)?;
            execution.set(module.id, of.execution(module.batch.max, work.mean_ms()));
            law = Some((of, module.schedule));
        }
        laws.push(law);
    }
    let setup = Setup {
        pipeline: pipeline.clone(),
        execution,
        share: Vec::new(),
    };
    let placed = Placed {
        workers,
        devices,
        laws,
    };
    Ok((setup, placed))
}

/// Devices as the simulator names them: by ordinal, in order of appearance.
fn ordinals(devices: &[Vec<String>]) -> anyhow::Result<Vec<Vec<u16>>> {
    let mut names: IndexSet<&str> = IndexSet::new();
    let ordinals = devices
        .iter()
        .map(|of_module| {
            of_module
                .iter()
                .map(|d| names.insert_full(d).0 as u16)
                .collect()
        })
        .collect();
    anyhow::ensure!(
        names.len() <= DEVICES_MAX as usize,
        "the pipeline file names {} devices; at most {} are simulated",
        names.len(),
        DEVICES_MAX
    );
    Ok(ordinals)
}

/// The plan of that name: over `--gpus`, or with the workers of the pipeline file.
fn plan_of(
    args: &SimulateArgs,
    setup: &Setup,
    placed: &Placed,
    name: PlanName,
) -> anyhow::Result<Planned> {
    if let Some(gpus) = args.gpus {
        return Ok(setup.plan(name, gpus)?);
    }
    let execution = setup.execution.clone();
    let (planned, problem) = placed.workers.plan(name, &setup.pipeline, execution);
    if let Some(problem) = problem {
        eprintln!("warning: {problem}");
    }
    Ok(planned)
}

/// The policies and schedulers to compare.
fn contenders(
    args: &SimulateArgs,
    loaded: &LoadedPipeline,
) -> anyhow::Result<Vec<(Contender, Option<SchedulePolicy>)>> {
    let mut schedules: Vec<Option<SchedulePolicy>> = args
        .schedule
        .iter()
        .map(|name| SchedulePolicy::by_name(name))
        .collect();
    if schedules.is_empty() {
        schedules.push(None);
    }
    let mut all = Vec::new();
    for schedule in schedules {
        let contenders = policies(args, loaded, schedule)?;
        all.extend(contenders.into_iter().map(|c| (c, schedule)));
    }
    Ok(all)
}

fn policies(
    args: &SimulateArgs,
    loaded: &LoadedPipeline,
    schedule: Option<SchedulePolicy>,
) -> anyhow::Result<Vec<Contender>> {
    let named = args.policy.iter();
    let mut drops: Vec<DropPolicy> = named.filter_map(|name| DropPolicy::by_name(name)).collect();
    if drops.is_empty() {
        let policy = &loaded.pipeline.policy;
        let modules = loaded.pipeline.modules[1..].iter();
        drops.push(match schedule {
            Some(name) => policy.drop_under(modules.map(|m| schedule_of(m, loaded, name))),
            None => policy.drop,
        });
    }
    let given = &loaded.pipeline.policy;
    let dispatch = args.dispatch.as_deref();
    let n_gateways = usize::from(args.gateways.unwrap_or(1));
    let mut contenders = Vec::new();
    for drop in drops {
        let named = PolicyConfig {
            drop,
            dispatch: dispatch
                .and_then(DispatchPolicyName::by_name)
                .or(given.dispatch),
            lambda: args.lambda.or(given.lambda),
            gate: args.gate.or(given.gate),
            ..given.clone()
        };
        if let Some(problem) = named.contradiction() {
            anyhow::bail!("--dispatch: {problem}");
        }
        let modules = loaded.pipeline.modules[1..].iter();
        let schedules = modules.map(|m| schedule.map_or(m.schedule, |s| schedule_of(m, loaded, s)));
        contenders.push(Contender {
            policy: PolicyConfig {
                // The file of a cluster says how many gateways there are.
                dispatch: match args.cluster {
                    Some(_) => named.dispatch,
                    None => named.dispatch_of(n_gateways, schedules),
                },
                ..named
            },
            plan: args.plan.as_deref().and_then(PlanName::by_name),
        });
    }
    Ok(contenders)
}

/// The scheduler of a module when that one is asked for: modules without dynamic work keep none.
fn schedule_of(
    module: &Module,
    loaded: &LoadedPipeline,
    name: SchedulePolicy,
) -> Option<SchedulePolicy> {
    let any = loaded.pipeline.modules.iter().any(|m| m.schedule.is_some());
    (module.schedule.is_some() || !any).then_some(name)
}

/// A run for people to read.
fn text_of(run: &Run) -> Result<String, std::fmt::Error> {
    let r = &run.report;
    let mut text = String::new();
    writeln!(
        text,
        "{}{}{} ({}, {} plan) seed {}: EMULATED; {} requests at load {:.2}, goodput {:.1}/s, dropped or late \
         {:.2}%, invalid {:.2}%, p50 {:.1} ms, p99 {:.1} ms, mean batch {:.2}, trace {}",
        (run.placement).map_or(run.policy.to_owned(), |p| format!("placement {p}")),
        run.schedule.map_or(String::new(), |s| format!(" + {s}")),
        (run.adapt.as_ref()).map_or(String::new(), |a| format!(" adapt {a}")),
        run.dispatch,
        run.plan,
        run.seed,
        r.requests,
        run.load,
        r.goodput,
        r.drop_rate * 100.0,
        r.invalid_rate * 100.0,
        r.latency_ms_p50,
        r.latency_ms_p99,
        r.batch_size_mean,
        r.trace_hash
    )?;
    if let Some(weighted) = r.goodput_weighted {
        writeln!(text, "  goodput weighted by accuracy {weighted:.2}/s")?;
    }
    if let Some(frames) = &r.cameras {
        text.push_str(&cameras::text_of(frames)?);
    }
    if let Some(bounds) = run.bounds {
        let floor = |good: u64| 100.0 * (1.0 - good as f64 / r.requests.max(1) as f64);
        writeln!(
            text,
            "  at least {:.2}% must be dropped on this plan, {:.2}% on any",
            floor(bounds.upper_bound),
            floor(bounds.upper_bound_any_plan)
        )?;
    }
    if let Some(of) = &r.models {
        text.push_str(&models::text_of(of, run.placement.is_some()));
    }
    if let Some(counts) = &r.cluster {
        writeln!(text, "  {}", cluster::text_of(counts))?;
    }
    for (name, of) in &r.applications {
        writeln!(
            text,
            "  {name}: {} requests, finish rate {:.3}",
            of.requests, of.finish_rate
        )?;
    }
    if let Some(of) = &r.background {
        writeln!(
            text,
            "  without an SLO: {} requests, {} completed, in {:.3} of the device time",
            of.requests, of.completed, of.utilisation
        )?;
    }
    for of in &r.clients {
        writeln!(
            text,
            "  {}: {} requests, {} in time ({:.3})",
            of.name, of.requests, of.good, of.finish_rate
        )?;
    }
    if let Some(jain) = r.jain {
        writeln!(
            text,
            "  Jain's index of the clients that asked for more than their share: {jain:.3}"
        )?;
    }
    for (module, reasons) in &r.drops {
        for (reason, n) in reasons {
            writeln!(text, "  dropped {module}/{reason}: {n}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use spillgate_sim::world::{HANDOFF_DEFAULT, HOP_DEFAULT};

    use super::*;

    #[test]
    fn defaults_are_those_of_the_simulator() {
        assert_eq!(parse_duration("0.5ms"), Ok(HOP_DEFAULT));
        assert_eq!(parse_duration("0.5ms"), Ok(HANDOFF_DEFAULT));
    }
}
