//! The grid of runs: pipelines x windows x loads x variants, in parallel, each case with equal arrivals for all
//! variants.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::plan::PlanName;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::compile;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy, POLICY_DEFAULT, PolicyConfig};
use spillgate_pipeline::profile_file::parse_profiles;
use spillgate_sim::trace::{self, Bursty, REFERENCE_WINDOWS};
use spillgate_sim::world::HOP_DEFAULT;
use spillgate_sim::{Contender, Load, Run, Setup, SimConfig};

use super::read_table;
use super::report::Report;

/// The pipelines, built in, so that the command needs no checkout.
const PIPELINES: [(&str, &str, &str); 4] = [
    (
        "tm",
        include_str!("../../../apps/pipelines/tm.yaml"),
        include_str!("../../../apps/pipelines/tm.profile.yaml"),
    ),
    (
        "lv",
        include_str!("../../../apps/pipelines/lv.yaml"),
        include_str!("../../../apps/pipelines/lv.profile.yaml"),
    ),
    (
        "ga",
        include_str!("../../../apps/pipelines/ga.yaml"),
        include_str!("../../../apps/pipelines/ga.profile.yaml"),
    ),
    (
        "da",
        include_str!("../../../apps/pipelines/da.yaml"),
        include_str!("../../../apps/pipelines/da.profile.yaml"),
    ),
];

/// Rates of one window.
pub(super) struct Window {
    /// Name of its trace.
    pub(super) trace: String,
    /// Name of the window.
    pub(super) name: String,
    /// Requests in each second, on some scale.
    pub(super) rates: Vec<f64>,
}

/// A pipeline of the workload.
pub(super) struct Workload {
    /// Its name.
    pub(super) name: &'static str,
    /// It, with its times.
    pub(super) setup: Setup,
}

/// All that sections draw from.
pub(super) struct Grid {
    pub(super) workloads: Vec<Workload>,
    pub(super) windows: Vec<Window>,
    pub(super) gpus: u32,
    origin: String,
}

/// One point of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    /// Ordinal of the pipeline.
    pub(super) workload: usize,
    /// Ordinal of the window.
    pub(super) window: usize,
    /// Load, relative to the reference plan.
    pub(super) load: f64,
}

/// Changes the world of a run.
pub(super) type Tweak = Arc<dyn Fn(&mut SimConfig) + Send + Sync>;

/// One column of a comparison.
#[derive(Clone)]
pub(super) struct Variant {
    /// Its name in tables.
    pub(super) label: String,
    pub(super) contender: Contender,
    tweak: Option<Tweak>,
    /// The SLO is multiplied by this; plan and load stay.
    slo: f64,
}

impl Variant {
    /// A policy as it comes.
    pub(super) fn of(drop: DropPolicy) -> Self {
        Variant {
            label: drop.name().to_owned(),
            contender: Contender {
                policy: PolicyConfig {
                    drop,
                    ..POLICY_DEFAULT
                },
                plan: None,
            },
            tweak: None,
            slo: 1.0,
        }
    }

    pub(super) fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(super) fn dispatch(mut self, dispatch: DispatchPolicyName) -> Self {
        self.contender.policy.dispatch = Some(dispatch);
        self
    }

    pub(super) fn lambda(mut self, lambda: f64) -> Self {
        self.contender.policy.lambda = Some(lambda);
        self
    }

    pub(super) fn gate(mut self, gate: f64) -> Self {
        self.contender.policy.gate = Some(gate);
        self
    }

    pub(super) fn window(mut self, window: Duration) -> Self {
        self.contender.policy.window = window;
        self
    }

    pub(super) fn plan(mut self, plan: PlanName) -> Self {
        self.contender.plan = Some(plan);
        self
    }

    pub(super) fn slo(mut self, factor: f64) -> Self {
        self.slo = factor;
        self
    }

    pub(super) fn tweak(mut self, tweak: Tweak) -> Self {
        self.tweak = Some(tweak);
        self
    }
}

impl Grid {
    /// The reference workload with traces from a folder, or generated ones.
    pub(super) fn new(traces: Option<&Path>, gpus: u32, quick: bool) -> anyhow::Result<Self> {
        let catalog = spillgate_modules::library().catalog();
        let mut workloads = Vec::new();
        for (name, text, profiles) in PIPELINES {
            let profiles = parse_profiles(profiles, name).map_err(|e| anyhow::anyhow!("{e}"))?;
            let compiled = compile(text, name, &catalog, Some(&profiles));
            let pipeline = compiled.map_err(|e| anyhow::anyhow!("{e}"))?.pipeline;
            let execution = ExecutionTimes::of(&pipeline, &profiles, |m| m.devices[0].clone())?;
            workloads.push(Workload {
                name,
                setup: Setup {
                    pipeline: Arc::new(pipeline),
                    execution,
                    share: Vec::new(),
                },
            });
        }
        let (mut windows, origin) = windows(traces)?;
        if quick {
            workloads.truncate(1);
            windows = windows.into_iter().step_by(3).collect();
            for window in &mut windows {
                window.rates.truncate(30);
            }
        }
        Ok(Grid {
            workloads,
            windows,
            gpus,
            origin: origin.to_owned(),
        })
    }

    /// The workload in a sentence.
    pub(super) fn describe(&self) -> String {
        let names: Vec<&str> = self.workloads.iter().map(|w| w.name).collect();
        let windows: Vec<&str> = self.windows.iter().map(|w| w.name.as_str()).collect();
        let seconds = self.windows.first().map_or(0, |w| w.rates.len());
        format!(
            "EMULATED: pipelines {} on {} devices. Arrivals are those of {}: {}; {seconds} s each, Poisson inside a \
             second. Each window has one seed; all columns have equal arrivals. Load is relative to the reference \
             plan. The network takes 0.5 ms a hop, a hand-off 0.5 ms.",
            names.join(", "),
            self.gpus,
            self.origin,
            windows.join(", ")
        )
    }

    /// Every pipeline under every window at these loads.
    pub(super) fn cases(&self, loads: &[f64]) -> Vec<Case> {
        self.chosen(loads, |_| true)
    }

    /// Every pipeline under the first window of each trace at these loads; the page says so.
    pub(super) fn few_cases(&self, report: &mut Report, loads: &[f64]) -> Vec<Case> {
        report.say(
            "Only the first window of each trace counts on this page: compare its figures with each other, not with \
             those of other pages.",
        );
        self.first_windows(loads)
    }

    /// Every pipeline under the first window of each trace at these loads.
    pub(super) fn first_windows(&self, loads: &[f64]) -> Vec<Case> {
        self.chosen(loads, |w| {
            let first = self
                .windows
                .iter()
                .position(|x| x.trace == self.windows[w].trace);
            first == Some(w)
        })
    }

    fn chosen(&self, loads: &[f64], choose: impl Fn(usize) -> bool) -> Vec<Case> {
        let mut cases = Vec::new();
        for workload in 0..self.workloads.len() {
            for window in (0..self.windows.len()).filter(|w| choose(*w)) {
                cases.extend(loads.iter().map(|&load| Case {
                    workload,
                    window,
                    load,
                }));
            }
        }
        cases
    }

    /// Name of a case.
    pub(super) fn name(&self, case: &Case) -> String {
        format!(
            "{} {} {}",
            self.workloads[case.workload].name, self.windows[case.window].name, case.load
        )
    }

    /// Runs all variants on all cases; one row a case.
    pub(super) fn run(
        &self,
        cases: &[Case],
        variants: &[Variant],
    ) -> anyhow::Result<Vec<Vec<Run>>> {
        self.run_on(cases, variants, &|_, setup| setup.clone())
    }

    /// The same on pipelines that are changed first.
    pub(super) fn run_on(
        &self,
        cases: &[Case],
        variants: &[Variant],
        change: &(dyn Fn(&Workload, &Setup) -> Setup + Sync),
    ) -> anyhow::Result<Vec<Vec<Run>>> {
        let next = AtomicUsize::new(0);
        let rows: Mutex<Vec<Option<anyhow::Result<Vec<Run>>>>> =
            Mutex::new((0..cases.len()).map(|_| None).collect());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let bar = indicatif::ProgressBar::new(cases.len() as u64);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(cases.len()) {
                scope.spawn(|| {
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = cases.get(i) else { return };
                        let row = self.row(case, variants, change);
                        bar.inc(1);
                        rows.lock().expect("no thread panics with it")[i] = Some(row);
                    }
                });
            }
        });
        bar.finish_and_clear();
        let rows = rows.into_inner().expect("all threads have ended");
        rows.into_iter()
            .map(|row| row.expect("every case was run"))
            .collect()
    }

    fn load(&self, case: &Case, setup: &Setup) -> anyhow::Result<Load> {
        let capacity = setup.capacity(&setup.plan(PlanName::Reference, self.gpus)?);
        let window = &self.windows[case.window];
        let rates = trace::scaled(&window.rates, capacity * case.load)?;
        let mut rng = ChaCha8Rng::seed_from_u64(1000 + case.window as u64);
        Ok(Load {
            arrivals: trace::poisson_arrivals(&rates, &mut rng).into(),
            duration: Duration::from_secs(rates.len() as u64),
            load: case.load,
            capacity,
            clients: None,
        })
    }

    /// The least share of requests that must be dropped in a case: on a plan, and on any.
    pub(super) fn floor(&self, case: &Case, plan: PlanName) -> anyhow::Result<(f64, f64)> {
        let setup = &self.workloads[case.workload].setup;
        let load = self.load(case, setup)?;
        let plan = setup.plan(plan, self.gpus)?;
        let bounds = setup.bounds(&plan, &load, HOP_DEFAULT)?;
        let share = |good: u64| 1.0 - good as f64 / load.arrivals.len().max(1) as f64;
        Ok((
            share(bounds.upper_bound),
            share(bounds.upper_bound_any_plan),
        ))
    }

    fn row(
        &self,
        case: &Case,
        variants: &[Variant],
        change: &(dyn Fn(&Workload, &Setup) -> Setup + Sync),
    ) -> anyhow::Result<Vec<Run>> {
        let workload = &self.workloads[case.workload];
        let setup = change(workload, &workload.setup);
        let load = self.load(case, &setup)?;
        variants
            .iter()
            .map(|variant| {
                let plan = setup.plan(variant.contender.plan(), self.gpus)?;
                let mut config = setup.config(&variant.contender, &plan, &load, 1);
                if variant.slo != 1.0 {
                    let mut pipeline = Pipeline::clone(&config.pipeline);
                    pipeline.slo = pipeline.slo.mul_f64(variant.slo);
                    config.pipeline = Arc::new(pipeline);
                }
                if let Some(tweak) = &variant.tweak {
                    tweak(&mut config);
                }
                setup
                    .run(&variant.contender, &plan, &load, config)
                    .with_context(|| format!("{}, {}", self.name(case), variant.label))
            })
            .collect()
    }
}

/// The windows of the traces in a folder, or generated ones, and a word on where they come from.
pub(super) fn windows(traces: Option<&Path>) -> anyhow::Result<(Vec<Window>, &'static str)> {
    Ok(match traces {
        Some(folder) => (real(folder)?, "real traces"),
        None => (
            generated(),
            "generated traces (log-normal rates, each second anew or in bursts)",
        ),
    })
}

fn real(folder: &Path) -> anyhow::Result<Vec<Window>> {
    REFERENCE_WINDOWS
        .iter()
        .map(|w| {
            let file = folder.join(w.file);
            let text = read_table(&file)?;
            let located = |e: trace::TraceError| anyhow::anyhow!("{}: {e}", file.display());
            let rates = trace::parse_trace(&text)
                .and_then(|trace| trace.rates(w.window))
                .map_err(located)?;
            Ok(Window {
                trace: w.trace.to_owned(),
                name: format!("{}@{}", w.trace, w.window.offset),
                rates,
            })
        })
        .collect()
}

/// Three traces of three windows each: steady, noisy each second, and long bursts.
fn generated() -> Vec<Window> {
    let mut windows = Vec::new();
    for (trace, cv, burst) in [
        ("steady", 0.1, 60.0),
        ("noisy", 0.3, 1.0),
        ("bursty", 0.5, 20.0),
    ] {
        for seed in 1..=3u64 {
            let bursty = Bursty {
                mean: 1.0,
                cv,
                burst,
                seconds: 300,
            };
            windows.push(Window {
                trace: trace.to_owned(),
                name: format!("{trace} (CV {cv}, {burst} s) #{seed}"),
                rates: bursty.rates(&mut ChaCha8Rng::seed_from_u64(seed)),
            });
        }
    }
    windows
}
