//! `spillgate-operator`: runs pipelines on Kubernetes.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kube::CustomResourceExt;
use spillgate_operator::authority::Lifetimes;
use spillgate_operator::crd::Pipeline;
use spillgate_operator::decide::Knows;
use spillgate_operator::operator::{self, Options};
use spillgate_operator::render::Settings;
use tracing_subscriber::EnvFilter;

/// Runs the pipelines of a Kubernetes cluster: custom resources of kind Pipeline.
#[derive(Parser)]
#[command(name = "spillgate-operator", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look after pipelines.
    Run(RunArgs),
    /// Print the definition of the custom resource, for `kubectl apply -f -`.
    Crd,
}

#[derive(clap::Args)]
struct RunArgs {
    /// The only namespace to look after [default: all of them]
    #[arg(long, env = "SPILLGATE_OPERATOR_NAMESPACE")]
    namespace: Option<String>,
    /// The operator's own namespace, where its Lease is
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    lease_namespace: String,
    /// The operator's own name, which no other one has
    #[arg(long, env = "POD_NAME")]
    identity: String,
    /// The image of processes, unless a pipeline says another one
    #[arg(long, env = "SPILLGATE_IMAGE")]
    image: String,
    /// When nodes pull it: IfNotPresent, Always or Never
    #[arg(long, env = "SPILLGATE_IMAGE_PULL_POLICY", default_value = "IfNotPresent",
        value_parser = ["IfNotPresent", "Always", "Never"])]
    image_pull_policy: String,
    /// How long the pods of a Deployment may take to be ready, in seconds: an image or a module with which they take longer is taken back
    #[arg(long, env = "SPILLGATE_READY_WITHIN", default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..=86_400))]
    ready_within: u32,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Crd => {
            print!("{}", serde_yaml::to_string(&Pipeline::crd())?);
            Ok(())
        }
        Command::Run(args) => {
            let filter = EnvFilter::try_from_default_env();
            let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
            tracing_subscriber::fmt()
                .with_env_filter(filter)
                .with_ansi(std::io::stderr().is_terminal())
                .with_writer(std::io::stderr)
                .init();
            let options = Options {
                namespace: args.namespace,
                lease_namespace: args.lease_namespace,
                identity: args.identity,
                knows: Knows {
                    settings: Settings {
                        image: args.image,
                        pull_policy: args.image_pull_policy,
                        ready_within_s: args.ready_within,
                    },
                    catalog: spillgate_modules::library().catalog(),
                    lifetimes: Lifetimes::default(),
                },
            };
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            runtime.block_on(operator::run(options))
        }
    }
}
