//! `spillgate simulate`: runs a pipeline in virtual time, with the policies that serve.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use spillgate::embedded::{resolve_device, served_variant_key};
use spillgate::files::{self, LoadedPipeline};
use spillgate_pipeline::pipeline::DropPolicyName;
use spillgate_pipeline::profile::device_kind;
use spillgate_pipeline::time::parse_duration;
use spillgate_sim::workload::{self, Arrivals};
use spillgate_sim::{Report, SimConfig};

/// What to run.
#[derive(Args)]
pub(crate) struct SimulateArgs {
    /// Pipeline file; its profile file must know each module on the device that it names.
    pipeline: PathBuf,
    /// Requests a second.
    #[arg(long)]
    rate: f64,
    /// How long load is offered.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// How requests arrive.
    #[arg(long, value_enum, default_value = "poisson")]
    law: Law,
    /// Drop policy; repeat it to compare on equal arrivals [default: the pipeline's]
    #[arg(long, value_enum)]
    policy: Vec<Policy>,
    /// Seed; repeat it for several runs.
    #[arg(long, default_values_t = [1])]
    seed: Vec<u64>,
    /// Travel of a message between gateway, controllers and workers.
    #[arg(long, default_value = "0ms", value_parser = parse_duration)]
    hop: Duration,
    /// Execution times vary by this part, up and down.
    #[arg(long, default_value_t = 0.0)]
    noise: f64,
    /// Probability that a `when:` holds.
    #[arg(long, default_value_t = 0.5)]
    when: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Law {
    /// Equal gaps.
    Constant,
    /// A Poisson process.
    Poisson,
}

#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// Drop only what does not fit a queue.
    None,
    /// Drop what is too late already.
    Deadline,
}

/// Runs each policy with each seed.
pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.rate.is_finite() && args.rate > 0.0,
        "--rate must be positive"
    );
    anyhow::ensure!(
        (0.0..=1.0).contains(&args.when),
        "--when is a probability, 0 to 1"
    );
    anyhow::ensure!(
        (0.0..1.0).contains(&args.noise),
        "--noise lies from 0 to below 1"
    );
    let loaded = files::load(&args.pipeline, &spillgate_modules::library().catalog())?;
    let mut policies: Vec<DropPolicyName> = args
        .policy
        .iter()
        .map(|p| match p {
            Policy::None => DropPolicyName::None,
            Policy::Deadline => DropPolicyName::Deadline,
        })
        .collect();
    if policies.is_empty() {
        policies.push(loaded.pipeline.policy.drop);
    }
    let mut runs = Vec::new();
    for &seed in &args.seed {
        for &drop in &policies {
            let report = spillgate_sim::run(config(args, &loaded, drop, seed)?)?;
            let name = match drop {
                DropPolicyName::None => "none",
                DropPolicyName::Deadline => "deadline",
            };
            if args.json {
                let mut run = serde_json::to_value(&report)?;
                run["policy"] = name.into();
                run["seed"] = seed.into();
                runs.push(run);
            } else {
                print(name, seed, &report);
            }
        }
    }
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&serde_json::json!({ "runs": runs }))?
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn config(
    args: &SimulateArgs,
    loaded: &LoadedPipeline,
    drop: DropPolicyName,
    seed: u64,
) -> anyhow::Result<SimConfig> {
    let pipeline = &loaded.pipeline;
    let mut device_names: Vec<String> = Vec::new();
    let mut execution = vec![vec![]];
    let mut workers = vec![vec![]];
    for module in &pipeline.modules[1..] {
        let mut devices = Vec::new();
        for i in 0..module.workers.min as usize {
            let name = match module.devices[i % module.devices.len()].as_str() {
                "emulated" => format!("emulated:own{}", device_names.len()),
                name => resolve_device(name),
            };
            let known = device_names.iter().position(|n| *n == name);
            devices.push(known.unwrap_or_else(|| {
                device_names.push(name);
                device_names.len() - 1
            }) as u16);
        }
        let kind = device_kind(&device_names[usize::from(devices[0])]).to_owned();
        let key = served_variant_key(module);
        let times = match loaded.profiles.get(&kind, &module.name, &key) {
            Some(profile) => (1..=module.batch.max).map(|n| profile.mean(n)).collect(),
            // As in the server: types without a model take no time of their own.
            None if module.variants.is_empty() => {
                vec![Duration::ZERO; module.batch.max as usize]
            }
            None => anyhow::bail!(
                "module {}: no profile for \"{key}\" on {kind} in {}; `spillgate profile` measures real devices, \
                 for emulated ones write it by hand",
                module.name,
                files::profile_path(&loaded.file).display()
            ),
        };
        execution.push(times);
        workers.push(devices);
    }
    let law = match args.law {
        Law::Constant => Arrivals::Constant,
        Law::Poisson => Arrivals::Poisson,
    };
    Ok(SimConfig {
        pipeline: pipeline.clone(),
        drop,
        execution,
        workers,
        arrivals: workload::arrivals(law, args.rate, args.duration, seed),
        duration: args.duration,
        hop: args.hop,
        noise: args.noise,
        when_probability: args.when,
        cancelled: 0.0,
        seed,
    })
}

fn print(policy: &str, seed: u64, r: &Report) {
    println!(
        "{policy} seed {seed}: EMULATED; {} requests, goodput {:.1}/s, dropped or late {:.2}%, invalid {:.2}%, \
         p50 {:.1} ms, p99 {:.1} ms, mean batch {:.2}, trace {}",
        r.requests,
        r.goodput,
        r.drop_rate * 100.0,
        r.invalid_rate * 100.0,
        r.latency_ms_p50,
        r.latency_ms_p99,
        r.batch_size_mean,
        r.trace_hash
    );
    for (place, n) in &r.drops {
        println!("  dropped {place}: {n}");
    }
}
