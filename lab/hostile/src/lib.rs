//! Attacks a real `spillgate serve` as hostile clients would. A polite client beside each attack measures the service
//! that is left for others; the process's memory is watched. Run by `cargo xtask hostile`.

mod attacks;
mod pictures;
mod pipelines;
mod polite;
mod report;
mod server;
mod soak;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use attacks::{ATTACKS, Attack};
use report::Row;

/// Most descriptors that attacks need: a thousand connections and more.
const DESCRIPTORS: u64 = 4096;

/// What to attack.
#[derive(Args)]
pub struct HostileArgs {
    /// The program that serves.
    #[arg(long)]
    spillgate: PathBuf,
    /// Folder of the shipped pipelines.
    #[arg(long)]
    pipelines: PathBuf,
    /// Only attacks whose name holds this.
    #[arg(long)]
    only: Option<String>,
    /// Seconds of each attack.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seconds of the soak, in which all kinds of clients come together; 0: none.
    #[arg(long, default_value_t = 60)]
    soak: u64,
    /// List the attacks.
    #[arg(long)]
    list: bool,
}

/// Attacks the server, and prints what it held. The code says whether all held.
///
/// # Errors
/// When an attack cannot be made.
pub fn run(args: HostileArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        for attack in ATTACKS {
            println!("{:24} {}", attack.name, attack.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS.min(most), most)
        .context("cannot have descriptors enough")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(attack(args))
}

async fn attack(args: HostileArgs) -> anyhow::Result<ExitCode> {
    let scene = attacks::Scene {
        spillgate: args.spillgate,
        pipelines: args.pipelines,
        duration: Duration::from_secs(args.seconds),
    };
    let is_wanted = |name: &str| args.only.as_deref().is_none_or(|only| name.contains(only));
    let mut rows: Vec<Row> = Vec::new();
    for Attack { name, what, run } in ATTACKS.iter().filter(|a| is_wanted(a.name)) {
        eprintln!("{name}: {what}");
        let row = match run(&scene).await {
            Ok(outcome) => Row::of(name, outcome),
            Err(error) => Row::failed(name, &error),
        };
        eprintln!("  {}", row.line());
        rows.push(row);
    }
    if args.soak > 0 && is_wanted("soak") {
        let duration = Duration::from_secs(args.soak);
        eprintln!("soak: all kinds of clients together, for {duration:?}");
        let row = match soak::run(&scene, duration).await {
            Ok(outcome) => Row::of("soak", outcome),
            Err(error) => Row::failed("soak", &error),
        };
        eprintln!("  {}", row.line());
        rows.push(row);
    }
    print!("{}", report::table(&rows));
    let holds = rows.iter().all(|row| row.holds);
    Ok(ExitCode::from(u8::from(!holds)))
}
