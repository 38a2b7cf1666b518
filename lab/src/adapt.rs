//! `spillgate-lab adapt`: which variant and worker each client of one instance file gets, so that others can check it.

mod file;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use spillgate_controller_policy::adaptation::{Assignment, Instance};
use spillgate_jellyfish::adaptation::{Method, Search, serves};
use spillgate_pipeline::id::VariantId;
use spillgate_pipeline::time::{format_duration, parse_positive_duration};

use file::InstanceFile;

/// Name of the policy in which `--variant` says which variant all workers run.
const FIXED: &str = "fixed";
/// Part of the budget that is kept back for writing the answer down.
const KEPT_BACK: u32 = 50;

/// What to solve.
#[derive(Args)]
pub(crate) struct AdaptArgs {
    /// Instance file: gpus, profile (accuracy, latency_ms), clients (fps), budget_ms.
    instance: PathBuf,
    /// How clients are mapped to variants and workers.
    #[arg(long, default_value = "spillgate", value_parser = policies())]
    policy: String,
    /// The variant that all workers run, from 0 on, under `fixed`.
    #[arg(long, required_if_eq("policy", FIXED))]
    variant: Option<u16>,
    /// Time for the search.
    #[arg(long, default_value = "20ms", value_parser = parse_positive_duration)]
    budget: Duration,
    /// Steps of the search, instead of a time: equal steps and seeds give equal answers.
    #[arg(long, conflicts_with = "budget")]
    steps: Option<u32>,
    /// Seed of random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn policies() -> PossibleValuesParser {
    let names = Method::ALL.into_iter().map(Method::name);
    PossibleValuesParser::new(names.chain([FIXED]))
}

/// Solves the instance and prints the answer.
pub(crate) fn run(args: &AdaptArgs) -> anyhow::Result<()> {
    let (file, instance) = file::read(&args.instance)?;
    let method = match (Method::by_name(&args.policy), args.variant) {
        (Some(method), _) => method,
        (None, variant) => Method::Fixed(VariantId(variant.unwrap_or_default())),
    };
    if let Method::Fixed(variant) = method {
        let n = instance.variants().len();
        anyhow::ensure!(
            usize::from(variant.0) < n,
            "--variant {}: {} has variants 0 to {}",
            variant.0,
            args.instance.display(),
            n - 1
        );
    }
    let solved = solve(args, method, &instance);
    let assignment = &solved.assignment;
    assignment
        .check(&instance)
        .context("the answer is wrong; this is a fault of spillgate")?;
    let text = if args.json {
        let all = report(args, &file, &instance, &solved);
        format!("{}\n", serde_json::to_string_pretty(&all)?)
    } else {
        table(args, &file, &instance, &solved)?
    };
    spillgate_client::print(&text)?;
    Ok(())
}

struct Solved {
    assignment: Assignment,
    took: Duration,
    steps: u64,
}

fn solve(args: &AdaptArgs, method: Method, instance: &Instance) -> Solved {
    let begins = Instant::now();
    let mut search = Search::new(method, instance.clone(), None, args.seed);
    let mut steps = 0;
    if let Some(most) = args.steps {
        for step in 0..most {
            search.advance(1, f64::from(step) / f64::from(most));
        }
        steps = u64::from(most);
    } else {
        let limit = args.budget - args.budget / KEPT_BACK;
        loop {
            let part = begins.elapsed().as_secs_f64() / limit.as_secs_f64();
            if part >= 1.0 || search.is_done() {
                break;
            }
            search.advance(1, part);
            steps += 1;
        }
    }
    Solved {
        assignment: search.best(),
        took: begins.elapsed(),
        steps,
    }
}

/// The next more accurate variant of a client, and what keeps it from it.
fn next(
    file: &InstanceFile,
    instance: &Instance,
    client: usize,
    now: Option<VariantId>,
) -> Option<(usize, &'static str)> {
    let accuracy = |v: usize| instance.variants()[v].accuracy;
    let better = (0..instance.variants().len())
        .filter(|v| now.is_none_or(|now| accuracy(*v) > accuracy(now.0.into())))
        .min_by(|a, b| accuracy(*a).total_cmp(&accuracy(*b)))?;
    let demand = &instance.clients()[client];
    let variant = &instance.variants()[better];
    let budget = demand.budgets[better];
    if serves(variant, demand.rate, budget) {
        return Some((better, "capacity"));
    }
    // Without a network all of the SLO would be left.
    let slo = file.clients[client]
        .slo_ms
        .and_then(|ms| Duration::try_from_secs_f64(ms * 1e-3).ok());
    let is_link = budget.is_zero() || slo.is_some_and(|slo| serves(variant, demand.rate, slo));
    Some((better, if is_link { "link" } else { "compute" }))
}

/// Value as a part of what others proved or found, where as many clients are served.
fn ratio(file: &InstanceFile, served: usize, value: f64) -> Option<f64> {
    let reference = file.reference.as_ref()?;
    if reference.served.is_some_and(|most| served < most) {
        return None;
    }
    let is_optimal = reference.status.as_deref() == Some("optimal");
    let best = if is_optimal {
        reference.objective
    } else {
        reference.upper_bound
    };
    best.filter(|b| *b != 0.0).map(|best| value / best)
}

fn report(
    args: &AdaptArgs,
    file: &InstanceFile,
    instance: &Instance,
    solved: &Solved,
) -> serde_json::Value {
    let assignment = &solved.assignment;
    let worth = assignment.worth(instance);
    let size = |v: VariantId| {
        file.profile
            .input_size
            .as_ref()
            .map(|sizes| sizes[usize::from(v.0)])
    };
    let mapping: Vec<_> = (0..instance.clients().len())
        .map(|client| {
            let setting = assignment.setting_of(client);
            let next = next(file, instance, client, setting.map(|s| s.variant));
            json!({
                "client": client,
                "worker": assignment.clients[client],
                "variant": setting.map(|s| s.variant.0),
                "batch": setting.map(|s| s.batch),
                "next": next.map(|(variant, why)| json!({ "variant": variant, "not_for": why })),
            })
        })
        .collect();
    let workers: Vec<_> = assignment
        .workers
        .iter()
        .enumerate()
        .map(|(worker, setting)| {
            json!({
                "worker": worker,
                "variant": setting.map(|s| s.variant.0),
                "input_size": setting.and_then(|s| size(s.variant)),
                "batch": setting.map(|s| s.batch),
            })
        })
        .collect();
    json!({
        "policy": args.policy,
        "value": worth.value,
        "served": worth.served,
        "clients": instance.clients().len(),
        "ratio": ratio(file, worth.served, worth.value),
        "time_ms": solved.took.as_secs_f64() * 1e3,
        "steps": solved.steps,
        "workers": workers,
        "mapping": mapping,
    })
}

fn table(
    args: &AdaptArgs,
    file: &InstanceFile,
    instance: &Instance,
    solved: &Solved,
) -> anyhow::Result<String> {
    let assignment = &solved.assignment;
    let worth = assignment.worth(instance);
    let mut text = format!(
        "{}: value {:.6}, {} of {} clients served, {} in {} steps\n",
        args.policy,
        worth.value,
        worth.served,
        instance.clients().len(),
        format_duration(solved.took),
        solved.steps
    );
    if let Some(ratio) = ratio(file, worth.served, worth.value) {
        writeln!(text, "of the reference: {ratio:.5}")?;
    }
    writeln!(
        text,
        "{:>6} {:>8} {:>6}  clients",
        "worker", "variant", "batch"
    )?;
    for (worker, setting) in assignment.workers.iter().enumerate() {
        let Some(setting) = setting else {
            writeln!(text, "{worker:>6} {:>8} {:>6}", "-", "-")?;
            continue;
        };
        let clients = assignment.clients.iter().enumerate();
        let served = clients.filter(|(_, w)| **w == Some(worker));
        let served: Vec<String> = served.map(|(client, _)| client.to_string()).collect();
        writeln!(
            text,
            "{worker:>6} {:>8} {:>6}  {}",
            setting.variant.0,
            setting.batch,
            served.join(" ")
        )?;
    }
    Ok(text)
}
