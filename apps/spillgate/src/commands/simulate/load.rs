//! When requests arrive.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::file;
use spillgate_sim::Load;
use spillgate_sim::clients::ClientLoad;
use spillgate_sim::placement::Arrival;
use spillgate_sim::trace::{self, Window};
use spillgate_sim::workload::{self, Arrivals};

use super::SimulateArgs;
use super::work::Work;

/// Most requests of a run: more would fill the memory before the first is served.
const REQUESTS_MAX: f64 = 1e8;
/// How long load is offered unless said otherwise.
const DURATION_DEFAULT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Law {
    /// Equal gaps.
    Constant,
    /// A Poisson process.
    Poisson,
}

/// The load that the arguments ask for: `work` and `asked` are what `--arrivals` says besides times. `capacity` is the bottleneck throughput of the reference plan.
pub(super) fn load(
    args: &SimulateArgs,
    work: Option<&Work>,
    asked: Option<&[Arrival]>,
    capacity: f64,
    seed: u64,
) -> anyhow::Result<Load> {
    let mean = match (args.rate, args.load) {
        (Some(rate), _) => Some(rate),
        (_, Some(load)) => {
            anyhow::ensure!(
                capacity.is_finite(),
                "--load needs modules that take time; give --rate"
            );
            Some(load * capacity)
        }
        _ => None,
    };
    let mut clients = None;
    let (times, duration) = if let Some(rate) = args.cameras.rate() {
        let duration = args.duration.unwrap_or(DURATION_DEFAULT);
        bounded(rate * duration.as_secs_f64())?;
        (Vec::new(), duration)
    } else if !args.client.is_empty() {
        let duration = args.duration.unwrap_or(DURATION_DEFAULT);
        let rates = args.client.iter().map(|c| f64::from(c.count) * c.rate);
        bounded(rates.sum::<f64>() * duration.as_secs_f64())?;
        let (load, times) = ClientLoad::new(&args.client, duration, seed, args.one_client);
        clients = Some(load);
        (times, duration)
    } else if let Some(file) = &args.arrivals {
        let times = match (work, asked) {
            (Some(work), _) => work.jobs.iter().map(|job| job.at).collect(),
            (None, Some(asked)) => asked.iter().map(|request| request.at).collect(),
            (None, None) => trace::parse_arrivals(&read(file)?).map_err(|e| located(file, &e))?,
        };
        let last = times.last().copied().unwrap_or_default();
        let span = last.since(Timestamp::ZERO).max(Duration::from_nanos(1));
        (times, args.duration.unwrap_or(span))
    } else if let Some(file) = &args.trace {
        let trace = trace::parse_trace(&read(file)?).map_err(|e| located(file, &e))?;
        let mut window = trace.window_from(args.offset, args.row_seconds);
        if let Some(duration) = args.duration {
            let rows = duration.as_secs_f64() / f64::from(args.row_seconds);
            window = Window {
                rows: rows.ceil() as u64,
                ..window
            };
        }
        let rates = trace.rates(window).map_err(|e| located(file, &e))?;
        let rates = match mean {
            Some(mean) => trace::scaled(&rates, mean).map_err(|e| located(file, &e))?,
            None => rates,
        };
        bounded(rates.iter().sum())?;
        let duration = Duration::from_secs(rates.len() as u64);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (trace::poisson_arrivals(&rates, &mut rng), duration)
    } else {
        let law = match args.law {
            Law::Constant => Arrivals::Constant,
            Law::Poisson => Arrivals::Poisson,
        };
        let duration = args.duration.unwrap_or(DURATION_DEFAULT);
        let rate = mean.context("nothing to offer: give --rate, --load, --trace or --arrivals")?;
        bounded(rate * duration.as_secs_f64())?;
        (workload::arrivals(law, rate, duration, seed), duration)
    };
    // Requests without an SLO take idle time only.
    let of_clients = clients.iter().flat_map(|c: &ClientLoad| c.requests.iter());
    let background = of_clients.filter(|(_, party)| party.background).count();
    let offered = (times.len() - background) as f64 / duration.as_secs_f64();
    Ok(Load {
        load: (offered + args.cameras.rate().unwrap_or_default()) / capacity,
        arrivals: times.into(),
        duration,
        capacity,
        clients,
    })
}

fn bounded(requests: f64) -> anyhow::Result<()> {
    anyhow::ensure!(
        requests <= REQUESTS_MAX,
        "{requests:.0} requests are too many for one run; lower the rate or the duration to {REQUESTS_MAX:.0} in all"
    );
    Ok(())
}

pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    let text = file::read_text(path, trace::TABLE_BYTES_MAX);
    text.with_context(|| format!("{} cannot be read", path.display()))
}

fn located(file: &Path, error: &trace::TraceError) -> anyhow::Error {
    anyhow::anyhow!("{}: {error}", file.display())
}
