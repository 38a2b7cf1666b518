//! `spillgate evaluate orloj`: one dynamic module under every batch scheduler; then in pipelines.

mod pipelines;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::schedule::{Application, ScheduleName};
use spillgate_sim::dynamic::named::{self, Named};
use spillgate_sim::dynamic::{Scene, clairvoyant, run};

use super::report::{Report, mean};

/// SLOs, in multiples of the 99th percentile of the time alone (ORLOJ §6).
const SLOS: [f64; 5] = [1.5, 2.0, 3.0, 4.0, 5.0];
/// Operating points: share of the mean length that a batch's fixed part is, and arrivals over what single requests would
/// take.
const POINTS: [(f64, f64); 2] = [(0.7, 1.5), (0.3, 1.0)];
/// The mark in the place of a scheduler.
const MARK: &str = "clairvoyant";

/// What to run.
#[derive(Args)]
pub(super) struct OrlojArgs {
    /// The paper's finish rates, orloj_tables.csv, to stand beside ours.
    #[arg(long)]
    paper: Option<PathBuf>,
    /// Requests in each run.
    #[arg(long, default_value_t = 2000)]
    requests: usize,
    /// Seeds of each case.
    #[arg(long, default_value_t = 2)]
    seeds: u64,
    /// Where the page goes.
    #[arg(long, default_value = "docs/evaluation")]
    out: PathBuf,
}

/// A case: a workload at an operating point under an SLO, and the finish rate of each scheduler, then of the mark.
struct Case {
    group: &'static str,
    name: String,
    point: (f64, f64),
    slo: f64,
    rates: Vec<f64>,
}

/// Runs all cases and writes the page.
pub(super) fn run_all(args: &OrlojArgs) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("{} cannot be made", args.out.display()))?;
    let paper = args.paper.as_deref().map(read_paper).transpose()?;
    let mut report = Report::titled(
        "orloj",
        "Dynamic modules: every scheduler on ORLOJ's workloads",
        "spillgate evaluate orloj",
        "case,c0_share,load,slo,scheduler,finish_rate\n",
    );
    report.say(&format!(
        "EMULATED: one device, sizes 1, 2, 4, 8, 16, a batch takes c0 + c1 * size * longest; Poisson arrivals, {} requests, {} \
         seeds a case, 2,000 lengths known before. Two operating points: c0 70% of the mean length at 1.5 times what single \
         requests would take, and 30% at 1.0 times. Finish rates, mean over seeds; SLO in multiples of the 99th percentile of the \
         time alone. Where the paper leaves open where modes lie: between 20 and 90 ms, deviation 10 ms. `clairvoyant` knows lengths \
         and arrivals; it is a beam search, a real schedule and no optimum.",
        args.requests, args.seeds
    ));
    let cases = all_cases(args)?;
    summary(&mut report, &cases);
    by_workload(&mut report, &cases, paper.as_ref());
    sensitivity(args, &mut report)?;
    pipelines::section(args.seeds, &mut report)?;
    overhead(args, &mut report)?;
    for case in &cases {
        for (i, rate) in case.rates.iter().enumerate() {
            let (share, load) = case.point;
            let who = ScheduleName::ALL.get(i).map_or(MARK, |s| s.name());
            report.line(&format!(
                "{},{share},{load},{},{who},{rate:.4}",
                case.name, case.slo
            ));
        }
    }
    report.write(&args.out)
}

/// Runs every named workload at every point and SLO, on all cores.
fn all_cases(args: &OrlojArgs) -> anyhow::Result<Vec<Case>> {
    let mut todo: Vec<(Named, (f64, f64), f64)> = Vec::new();
    for named in named::all() {
        for point in POINTS {
            todo.extend(SLOS.map(|slo| (named.clone(), point, slo)));
        }
    }
    let next = AtomicUsize::new(0);
    let cases: Mutex<Vec<(usize, anyhow::Result<Case>)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some((named, point, slo)) = todo.get(i) else {
                        return;
                    };
                    let case = one_case(args, named, *point, *slo);
                    cases.lock().expect("no run panics").push((i, case));
                }
            });
        }
    });
    let mut cases = cases.into_inner().expect("all threads have ended");
    cases.sort_by_key(|case| case.0);
    cases.into_iter().map(|case| case.1).collect()
}

fn one_case(args: &OrlojArgs, named: &Named, point: (f64, f64), slo: f64) -> anyhow::Result<Case> {
    let work = named::workload(named, point.0, point.1, slo, args.requests);
    let mut rates = vec![0.0; ScheduleName::ALL.len() + 1];
    for seed in 0..args.seeds {
        let scene = work.scene(&mut ChaCha8Rng::seed_from_u64(seed))?;
        for (rate, name) in rates.iter_mut().zip(ScheduleName::ALL) {
            *rate += run(&scene, name)?.finish_rate / args.seeds as f64;
        }
        rates[ScheduleName::ALL.len()] += clairvoyant(&scene).finish_rate / args.seeds as f64;
    }
    Ok(Case {
        group: named.group,
        name: named.name.clone(),
        point,
        slo,
        rates,
    })
}

fn index(name: ScheduleName) -> usize {
    let found = ScheduleName::ALL.iter().position(|s| *s == name);
    found.expect("all schedulers are listed")
}

/// Means by group, and how ours compares case by case.
fn summary(report: &mut Report, cases: &[Case]) {
    report.say("Mean finish rate over all SLOs and both operating points, by group of workloads.");
    let mut head = vec!["scheduler"];
    let groups = ["modes", "deviations", "peaks", "tasks", "static"];
    head.extend(groups);
    head.push("all");
    let names = ScheduleName::ALL.map(ScheduleName::name);
    let rows: Vec<Vec<String>> = (0..=names.len())
        .map(|i| {
            let of = |group: &str| {
                mean(
                    cases
                        .iter()
                        .filter(|c| c.group == group)
                        .map(|c| c.rates[i]),
                )
            };
            let mut row = vec![names.get(i).copied().unwrap_or(MARK).to_owned()];
            row.extend(groups.map(|g| format!("{:.3}", of(g))));
            row.push(format!("{:.3}", mean(cases.iter().map(|c| c.rates[i]))));
            row
        })
        .collect();
    report.table(&head, &rows);

    report.say(
        "`goodput` against each, case by case on the dynamic workloads: mean finish rate more, the worst case, and on the static one.",
    );
    let ours = index(ScheduleName::Goodput);
    let rows: Vec<Vec<String>> = ScheduleName::ALL
        .iter()
        .filter(|name| **name != ScheduleName::Goodput)
        .map(|name| {
            let of = |is_static: bool| {
                let cases = cases
                    .iter()
                    .filter(move |c| (c.group == "static") == is_static);
                cases.map(move |c| c.rates[ours] - c.rates[index(*name)])
            };
            let worst = |is_static| of(is_static).fold(f64::INFINITY, f64::min);
            vec![
                format!("`{name}`"),
                format!("{:+.3}", mean(of(false))),
                format!("{:+.3}", worst(false)),
                format!("{:+.3}", mean(of(true))),
                format!("{:+.3}", worst(true)),
            ]
        })
        .collect();
    report.table(
        &["against", "more", "worst", "static: more", "worst"],
        &rows,
    );
    let dynamic = || cases.iter().filter(|c| c.group != "static");
    let of = |i: usize| mean(dynamic().map(move |c| c.rates[i]));
    let (orloj, mark) = (of(index(ScheduleName::Orloj)), of(ScheduleName::ALL.len()));
    report.say(&format!(
        "Of the gap between `orloj` ({orloj:.3}) and the clairvoyant ({mark:.3}) `goodput` ({:.3}) closes {:.0}%.",
        of(ours),
        100.0 * (of(ours) - orloj) / (mark - orloj)
    ));
}

/// Every workload at the first operating point, with the paper's columns where it has the case.
fn by_workload(report: &mut Report, cases: &[Case], paper: Option<&Paper>) {
    report.say("By workload and SLO at the first operating point.");
    if paper.is_some() {
        report.say(
            "*paper* columns are its printed figures, at an operating point that it does not state: only the direction compares.",
        );
    }
    let shown = [
        ScheduleName::Goodput,
        ScheduleName::Orloj,
        ScheduleName::OrlojShared,
        ScheduleName::Edf,
        ScheduleName::Clockwork,
        ScheduleName::Nexus,
        ScheduleName::Clipper,
        ScheduleName::Static,
    ];
    let mut head = vec!["workload", "SLO"];
    head.extend(shown.map(ScheduleName::name));
    head.push(MARK);
    if paper.is_some() {
        head.extend(["paper: orloj", "clockwork", "nexus", "clipper"]);
    }
    let rows: Vec<Vec<String>> = cases
        .iter()
        .filter(|c| c.point == POINTS[0])
        .map(|case| {
            let mut row = vec![case.name.clone(), format!("{}", case.slo)];
            row.extend(shown.map(|name| format!("{:.2}", case.rates[index(name)])));
            row.push(format!("{:.2}", case.rates[ScheduleName::ALL.len()]));
            if let Some(paper) = paper {
                let known = paper.get(&(case.name.clone(), case.slo.to_string()));
                let cell = |i: usize| known.map_or(String::new(), |rates| rates[i].clone());
                // clipper, nexus, clockwork, orloj in the file.
                row.extend([3, 2, 1, 0].map(cell));
            }
            row
        })
        .collect();
    report.table(&head, &rows);
}

/// The workload of the studies: two modes.
fn two_modal() -> anyhow::Result<Named> {
    let named = named::all().into_iter().find(|n| n.name == "two-modal");
    named.context("two modes are among the workloads")
}

/// Wrong tags and drift, on the reference workload at SLO 3.
fn sensitivity(args: &OrlojArgs, report: &mut Report) -> anyhow::Result<()> {
    report.say(
        "What is told wrongly or changes: two modes at the first operating point, SLO 3. Tags: this part of the requests and of the \
         history names an application at random. Drift: from the middle on all lengths are 1.5 times as long, and every eighth \
         finished request is run again alone and learnt; without that, none is.",
    );
    let named = two_modal()?;
    let (share, load) = POINTS[0];
    let work = named::workload(&named, share, load, 3.0, args.requests.max(4000));
    let wrong = |part: f64| {
        move |scene: &mut Scene, rng: &mut ChaCha8Rng| {
            let mut mistake = |application: &mut Application| {
                if rng.random::<f64>() < part {
                    *application = Application(rng.random_range(0..2));
                }
            };
            scene
                .jobs
                .iter_mut()
                .for_each(|job| mistake(&mut job.application));
            scene
                .history
                .iter_mut()
                .for_each(|known| mistake(&mut known.0));
        }
    };
    let drift = |sample_every: u32| {
        move |scene: &mut Scene, _: &mut ChaCha8Rng| {
            scene.sample_every = sample_every;
            let half = scene.jobs.len() / 2;
            scene.jobs[half..]
                .iter_mut()
                .for_each(|job| job.length_ms *= 1.5);
        }
    };
    type Change = Box<dyn Fn(&mut Scene, &mut ChaCha8Rng)>;
    let changes: Vec<(&str, Change)> = vec![
        ("as they are", Box::new(wrong(0.0))),
        ("10% of the tags wrong", Box::new(wrong(0.1))),
        ("half of the tags wrong", Box::new(wrong(0.5))),
        ("all tags wrong", Box::new(wrong(1.0))),
        ("lengths drift, nothing learnt", Box::new(drift(0))),
        ("lengths drift, learnt", Box::new(drift(8))),
    ];
    let shown = [
        ScheduleName::Goodput,
        ScheduleName::Orloj,
        ScheduleName::Edf,
        ScheduleName::Clockwork,
    ];
    let mut rows = Vec::new();
    for (what, change) in changes {
        let mut row = vec![what.to_owned()];
        for name in shown {
            let mut rates = Vec::new();
            for seed in 0..args.seeds {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut scene = work.scene(&mut rng)?;
                change(&mut scene, &mut rng);
                rates.push(run(&scene, name)?.finish_rate);
            }
            row.push(format!("{:.3}", mean(rates)));
        }
        rows.push(row);
    }
    let mut head = vec!["requests"];
    head.extend(shown.map(ScheduleName::name));
    report.table(&head, &rows);
    Ok(())
}

/// Processor time of a run for each batch, with all that the simulator adds: an upper bound on what the decisions cost.
fn overhead(args: &OrlojArgs, report: &mut Report) -> anyhow::Result<()> {
    report.say(
        "What deciding costs: two modes scaled to the mean time alone in the first column, first operating point, SLO 3, every eighth \
         finished request learnt. Processor time of the whole run over the device's time: an upper bound of the share of a core that \
         the scheduler takes. Measured on the machine that wrote this page, with whatever else ran there.",
    );
    let named = two_modal()?;
    let shown = [
        ScheduleName::Goodput,
        ScheduleName::Orloj,
        ScheduleName::Edf,
        ScheduleName::Clockwork,
    ];
    let mut rows = Vec::new();
    for mean_ms in [64.0, 16.0, 4.0, 1.0] {
        let scale = mean_ms / 55.0;
        let mut scaled = named.clone();
        for mode in &mut scaled.modes {
            mode.mean_ms *= scale;
            mode.deviation_ms *= scale;
        }
        let work = named::workload(&scaled, POINTS[0].0, POINTS[0].1, 3.0, args.requests);
        let mut scene = work.scene(&mut ChaCha8Rng::seed_from_u64(1))?;
        scene.sample_every = 8;
        let mut row = vec![format!("{mean_ms} ms")];
        for name in shown {
            let start = Instant::now();
            let finish = run(&scene, name)?;
            let took = start.elapsed().as_secs_f64();
            let span = scene.jobs.last().map_or(0.0, |job| job.at.as_secs_f64());
            row.push(format!(
                "{:.3}, {:.2}%",
                finish.finish_rate,
                100.0 * took / span
            ));
        }
        rows.push(row);
    }
    let mut head = vec!["mean time alone"];
    head.extend(shown.map(ScheduleName::name));
    report.table(&head, &rows);
    Ok(())
}

/// Finish rates of the paper by case and SLO: clipper, nexus, clockwork, orloj, as printed.
type Paper = HashMap<(String, String), [String; 4]>;

fn read_paper(file: &Path) -> anyhow::Result<Paper> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{} cannot be read", file.display()))?;
    let mut paper = Paper::new();
    for (i, line) in text.lines().enumerate().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, case, slo, clipper, nexus, clockwork, orloj] = fields.as_slice() else {
            anyhow::bail!(
                "{}: line {}: the columns are table,case_id,slo_x_p99,clipper,nexus,clockwork,orloj",
                file.display(),
                i + 1
            );
        };
        let rates = [clipper, nexus, clockwork, orloj].map(|s| (*s).to_owned());
        paper.insert(((*case).to_owned(), (*slo).to_owned()), rates);
    }
    Ok(paper)
}
