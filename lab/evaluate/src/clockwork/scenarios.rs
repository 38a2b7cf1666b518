//! The workloads of Clockwork's evaluation, as scenarios.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::action::PAGE_BYTES;
use spillgate_pipeline::id::{ModelId, WeightsId};
use spillgate_pipeline::time::Timestamp;
use spillgate_sim::placement::{Arrival, ClosedLoop, Scenario, ScenarioModel, System};

use crate::read_table;

/// Batch sizes of the paper's models.
pub(super) const SIZES: [u32; 5] = [1, 2, 4, 8, 16];
/// Pages of a V100's weight cache: 32 GB less workspace and inputs (Clockwork §6).
const PAGES: u32 = 1414;
/// MB/ms: 178 MB in 14.5 ms (Table 1).
const LINK: f64 = 12.28;
/// The model of all experiments with one architecture.
const RESNET50: &str = "resnet50_v1";

/// Table 1: every architecture.
pub(crate) struct Table(Vec<ScenarioModel>);

impl Table {
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        Self::parse(&read_table(file)?, &file.display().to_string())
    }

    /// `file` is its name.
    pub(super) fn parse(text: &str, file: &str) -> anyhow::Result<Self> {
        const HEAD: &str = "family,model,input_kb,output_kb,weights_mb,transfer_ms,b1,b2,b4,b8,b16";
        let mut lines = text.lines().enumerate();
        let head = lines.next().map_or("", |(_, line)| line.trim());
        anyhow::ensure!(
            head == HEAD,
            "{file}:1: the header is {head:?}; write {HEAD}",
        );
        let models = lines.map(|(i, line)| {
            let fields: Vec<&str> = line.split(',').collect();
            let numbers = fields.iter().skip(2).map(|f| f.parse::<f64>());
            let numbers = numbers.collect::<Result<Vec<f64>, _>>().ok();
            match numbers.as_deref() {
                Some(&[input_kb, output_kb, weights_mb, transfer_ms, ref exec @ ..])
                    if exec.len() == SIZES.len() && exec.iter().all(|ms| *ms > 0.0) =>
                {
                    Ok(ScenarioModel {
                        name: fields[1].to_owned(),
                        pages: (weights_mb * 1e6 / PAGE_BYTES as f64).ceil() as u32,
                        load: ms(transfer_ms),
                        input_kb,
                        output_kb,
                        execution: exec.iter().map(|e| ms(*e)).collect(),
                    })
                }
                _ => anyhow::bail!("{file}:{}: {line:?} is no row of {HEAD}", i + 1),
            }
        });
        Ok(Table(models.collect::<anyhow::Result<_>>()?))
    }

    fn copies(&self, n: usize) -> anyhow::Result<Vec<ScenarioModel>> {
        let found = self.0.iter().find(|m| m.name == RESNET50);
        let model = found.with_context(|| format!("the profiles lack {RESNET50}"))?;
        Ok(vec![model.clone(); n])
    }

    /// That many copies of each architecture.
    fn all(&self, copies: usize) -> Vec<ScenarioModel> {
        (0..copies).flat_map(|_| self.0.iter().cloned()).collect()
    }
}

/// The warm-up of a run that counts so many seconds: `most`, and no more than is counted.
fn warm_s(most: f64, seconds: f64) -> f64 {
    most.min(seconds)
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms * 1e-3)
}

fn at(s: f64) -> Timestamp {
    Timestamp::from_ns((s * 1e9) as u64)
}

/// Devices with the noise that makes errors of prediction like the paper's (Figure 9).
fn system(name: &str, gpus: u16, warm_s: f64, end_s: f64) -> System {
    System {
        name: name.to_owned(),
        gpus,
        pages_per_gpu: PAGES,
        page_mb: 16.0,
        link_mb_per_ms: LINK,
        net_ms: 0.0,
        warm_s,
        end_s,
        noise_sigma: 0.002,
        noise_jitter_p: 0.03,
        noise_jitter_ms: 0.5,
        noise_spike_p: 1e-5,
        noise_spike_ms: 20.0,
        noise_seed: 1,
        initial: vec![String::new(); usize::from(gpus)],
    }
}

fn scenario(
    system: System,
    models: Vec<ScenarioModel>,
    arrivals: Vec<Arrival>,
    clients: Vec<ClosedLoop>,
) -> Scenario {
    Scenario {
        resident: vec![Vec::new(); usize::from(system.gpus)],
        sizes: SIZES.to_vec(),
        system,
        models,
        arrivals,
        clients,
    }
}

/// The same with all models on all devices from the start.
fn resident(mut scenario: Scenario) -> Scenario {
    let all: Vec<WeightsId> = (0..scenario.models.len() as u32).map(WeightsId).collect();
    scenario.resident.fill(all);
    scenario
}

/// A Poisson process whose rate each second is `rate`. Each request is for a model drawn by `pick`.
fn poisson(
    seed: u64,
    seconds: f64,
    slo: Duration,
    rate: impl Fn(f64) -> f64,
    mut pick: impl FnMut(&mut ChaCha8Rng, f64) -> u32,
) -> Vec<Arrival> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut arrivals = Vec::new();
    let mut now = 0.0;
    while now < seconds {
        let mean = rate(now).max(1e-6);
        now += -(1.0 - rng.random::<f64>()).ln() / mean;
        let model = ModelId(pick(&mut rng, now));
        arrivals.push(Arrival {
            at: at(now),
            model,
            slo,
        });
    }
    arrivals.pop();
    arrivals
}

/// Figure 5: 15 copies of one model, 16 requests of each under way, on one device.
pub(crate) fn copies(table: &Table, slo_ms: f64, seconds: f64) -> anyhow::Result<Scenario> {
    let models = table.copies(15)?;
    let clients = (0..15).map(|i| ClosedLoop {
        model: ModelId(i),
        concurrency: 16,
        slo: ms(slo_ms),
    });
    let warm = warm_s(5.0, seconds);
    let system = system("copies", 1, warm, warm + seconds);
    Ok(resident(scenario(
        system,
        models,
        Vec::new(),
        clients.collect(),
    )))
}

/// Figure 6: a minor workload of 200 r/s for one model, and a major one of 1,000 r/s spread over `active` models, on one device with
/// an SLO of 100 ms. The paper activates a model each second; here each number of models is a run of its own.
pub(crate) fn major(table: &Table, active: u32, seconds: f64) -> anyhow::Result<Scenario> {
    let warm = warm_s(10.0, seconds);
    let models = table.copies(active as usize + 1)?;
    let arrivals = poisson(
        u64::from(active),
        warm + seconds,
        ms(100.0),
        |_| 1200.0,
        |rng, _| match rng.random_range(0..6) {
            0 => 0,
            _ => rng.random_range(1..=active),
        },
    );
    let system = system("major", 1, warm, warm + seconds);
    Ok(scenario(system, models, arrivals, Vec::new()))
}

/// Figure 7, left: `n` copies of one model at `rate` in all, on six devices.
pub(crate) fn low(
    table: &Table,
    n: u32,
    rate: f64,
    slo_ms: f64,
    seconds: f64,
) -> anyhow::Result<Scenario> {
    let warm = warm_s(3.0, seconds);
    let arrivals = poisson(
        7,
        warm + seconds,
        ms(slo_ms),
        |_| rate,
        |rng, _| rng.random_range(0..n),
    );
    let system = system("low", 6, warm, warm + seconds);
    let models = table.copies(n as usize)?;
    Ok(resident(scenario(system, models, arrivals, Vec::new())))
}

/// Of batch clients as the paper has them: longer than any run.
pub(super) const ENDLESS_SLO: Duration = Duration::from_secs(1_000_000_000);

/// Figure 7, right: six latency-sensitive models at 200 r/s each, and `m` batch clients with `c` requests under way each and that SLO, on
/// six devices.
pub(super) fn isolated(
    table: &Table,
    (m, c, slo): (u32, u32, Duration),
    slo_ms: f64,
    seconds: f64,
) -> anyhow::Result<Scenario> {
    let warm = warm_s(3.0, seconds);
    let arrivals = poisson(
        8,
        warm + seconds,
        ms(slo_ms),
        |_| 1200.0,
        |rng, _| rng.random_range(0..6),
    );
    let clients = (6..6 + m).map(|model| ClosedLoop {
        model: ModelId(model),
        concurrency: c,
        slo,
    });
    let models = table.copies(6 + m as usize)?;
    let system = system("isolated", 6, warm, warm + seconds);
    Ok(resident(scenario(
        system,
        models,
        arrivals,
        clients.collect(),
    )))
}

/// Copies of each architecture of Table 1 (the paper has 61 architectures and 66 copies).
pub(super) const COPIES: usize = 63;
/// Exponent of the popularity of models: a few are asked for all the time, most seldom.
pub(super) const SKEW: f64 = 0.9;

/// The warm-up of [`functions`].
pub(super) fn functions_warm_s(seconds: f64) -> f64 {
    warm_s(25.0, seconds)
}

/// Figures 8 and 9: thousands of models whose popularity is skewed, at rates that follow a trace around their mean. `shape` has the rate
/// of each second of the run, warm-up included, over the mean.
pub(crate) fn functions(
    table: &Table,
    gpus: u16,
    rate: f64,
    slo_ms: f64,
    (seconds, shape): (f64, &[f64]),
) -> Scenario {
    let warm = functions_warm_s(seconds);
    let models = table.all(COPIES);
    let n = models.len();
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    // Which model has which rank.
    let mut ranked: Vec<u32> = (0..n as u32).collect();
    for i in (1..n).rev() {
        ranked.swap(i, rng.random_range(0..=i));
    }
    let mut sums = Vec::with_capacity(n);
    let mut sum = 0.0;
    for rank in 1..=n {
        sum += (rank as f64).powf(-SKEW);
        sums.push(sum);
    }
    let of = |now: f64| shape[(now as usize).min(shape.len() - 1)] * rate;
    let arrivals = poisson(10, warm + seconds, ms(slo_ms), of, |rng, _| {
        let drawn = rng.random::<f64>() * sum;
        ranked[sums.partition_point(|s| *s < drawn).min(n - 1)]
    });
    let system = system("functions", gpus, warm, warm + seconds);
    scenario(system, models, arrivals, Vec::new())
}
