//! `spillgate-lab evaluate orloj`: one dynamic module under every batch scheduler; then in pipelines.

mod bursts;
mod pipelines;
mod shared;
mod studies;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_recipes::schedulers;
use spillgate_sim::dynamic::named::{self, Named};
use spillgate_sim::dynamic::{clairvoyant, run};

use super::report::{self, Report, mean};
use super::{Print, command, in_parallel, read_table};

/// SLOs, in multiples of the 99th percentile of the time alone (ORLOJ §6).
const SLOS: [f64; 5] = [1.5, 2.0, 3.0, 4.0, 5.0];
/// Operating points: the fixed part of a batch as a share of the mean length, and the arrival rate over the rate at
/// which the device serves single requests.
const POINTS: [(f64, f64); 2] = [(0.7, 1.5), (0.3, 1.0)];
/// The mark in the place of a scheduler.
const MARK: &str = "clairvoyant";

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Every workload under every scheduler.
    Workloads,
    /// Arrivals in bursts.
    Bursts,
    /// Members that share a part of a batch's time.
    Shared,
    /// Wrong tags and drift.
    Changes,
    /// The delay rate b and the bins of the score.
    Scoring,
    /// Chains of modules.
    Pipelines,
    /// What deciding costs.
    Overhead,
}

/// Seeds on which the clairvoyant runs, which takes a hundred times as long as all others together.
const SEARCHED: u64 = 2;

/// What to run.
#[derive(Args)]
pub(super) struct OrlojArgs {
    /// Folder with tweet.csv, wiki.csv and azure_400fn.csv for the bursts; without it, generated traces of stated
    /// burstiness.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Only these sections; repeat it.
    #[arg(long)]
    section: Vec<Section>,
    /// The paper's finish rates, orloj_tables.csv, to stand beside ours.
    #[arg(long)]
    paper: Option<PathBuf>,
    /// Requests in each run.
    #[arg(long, default_value_t = 2000)]
    requests: usize,
    /// Seeds of each case.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
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

/// Runs all sections asked for and writes the page.
pub(super) fn run_all(args: &OrlojArgs, print: Print) -> anyhow::Result<()> {
    report::prepare(&args.out, "orloj")?;
    let mut report = Report::titled(
        "orloj",
        "Dynamic modules: every scheduler on ORLOJ's workloads",
        &command(
            "spillgate-lab evaluate orloj",
            args.traces.is_some(),
            &args.section,
        ),
        "case,c0_share,load,slo,scheduler,finish_rate\n",
    );
    report.say(&format!(
        "EMULATED: one device, batch sizes 1, 2, 4, 8, 16. A batch takes c0 + c1 * size * longest. Arrivals are \
         Poisson. Each case has {} requests and {} seeds; 2,000 lengths are known beforehand. There are two \
         operating points: c0 is 70% of the mean length and the load 1.5, or 30% and 1.0; at load 1 single requests \
         would keep the device busy. The figures are finish rates, mean over seeds. SLOs are multiples of the 99th \
         percentile of the time alone. Where the paper does not say where the modes lie, they lie between 20 and 90 \
         ms with deviation 10 ms. `clairvoyant` knows lengths and arrivals in advance. It is a beam search: its \
         schedule is feasible but not optimal. It runs on the first {SEARCHED} seeds only; its gain over `orloj` \
         there is added to the rate of `orloj`. Chains of modules run on the same number of seeds.",
        args.requests, args.seeds
    ));
    for section in Section::value_variants() {
        if !args.section.is_empty() && !args.section.contains(section) {
            continue;
        }
        match section {
            Section::Workloads => workloads(args, &mut report)?,
            Section::Bursts => bursts::section(args.traces.as_deref(), &mut report)?,
            Section::Shared => shared::section(args, &mut report)?,
            Section::Changes => studies::changes(args, &mut report)?,
            Section::Scoring => studies::scoring(args, &mut report)?,
            Section::Pipelines => pipelines::section(args.seeds.min(SEARCHED), &mut report)?,
            Section::Overhead => studies::overhead(args, &mut report)?,
        }
    }
    report.write(&args.out, print)
}

/// Every workload at every point and SLO under every scheduler.
fn workloads(args: &OrlojArgs, report: &mut Report) -> anyhow::Result<()> {
    let paper = args.paper.as_deref().map(read_paper).transpose()?;
    let cases = in_parallel(&grid(), |(named, point, slo)| {
        one_case(args, named, *point, *slo)
    })?;
    summary(report, &cases);
    by_workload(report, &cases, paper.as_ref());
    for case in &cases {
        for (i, rate) in case.rates.iter().enumerate() {
            let (share, load) = case.point;
            let who = schedulers::ALL.get(i).map_or(MARK, |s| s.name());
            let rate = format!("{rate:.4}");
            report.line(&[&case.name, &share, &load, &case.slo, &who, &rate]);
        }
    }
    Ok(())
}

/// Every named workload at every point and SLO.
fn grid() -> Vec<(Named, (f64, f64), f64)> {
    let mut grid = Vec::new();
    for named in named::all() {
        for point in POINTS {
            grid.extend(SLOS.map(|slo| (named.clone(), point, slo)));
        }
    }
    grid
}

fn one_case(args: &OrlojArgs, named: &Named, point: (f64, f64), slo: f64) -> anyhow::Result<Case> {
    let work = named::workload(named, point.0, point.1, slo, args.requests);
    let mut rates = vec![0.0; schedulers::ALL.len()];
    let (mut gained, searched) = (0.0, SEARCHED.min(args.seeds));
    for seed in 0..args.seeds {
        let instance = work.instance(&mut ChaCha8Rng::seed_from_u64(seed))?;
        let finished = schedulers::ALL.map(|name| run(&instance, name).map(|r| r.finish_rate));
        let finished: Vec<f64> = finished.into_iter().collect::<Result<_, _>>()?;
        for (rate, finished) in rates.iter_mut().zip(&finished) {
            *rate += finished / args.seeds as f64;
        }
        if seed < searched {
            gained += clairvoyant(&instance).finish_rate - finished[index(SchedulePolicy::ORLOJ)];
        }
    }
    rates.push(rates[index(SchedulePolicy::ORLOJ)] + gained / searched as f64);
    Ok(Case {
        group: named.group,
        name: named.name.clone(),
        point,
        slo,
        rates,
    })
}

fn index(name: SchedulePolicy) -> usize {
    let found = schedulers::ALL.iter().position(|s| *s == name);
    found.expect("all schedulers are listed")
}

/// Means by group, and how ours compares case by case.
fn summary(report: &mut Report, cases: &[Case]) {
    report.say("Mean finish rate over all SLOs and both operating points, by group of workloads.");
    let mut head = vec!["scheduler"];
    let groups = ["modes", "deviations", "peaks", "tasks", "static"];
    head.extend(groups);
    head.push("all");
    let names = schedulers::ALL.map(SchedulePolicy::name);
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
        "`goodput` against each other scheduler, case by case: by how much its finish rate is higher, on average and \
         in the worst case, on the dynamic workloads and then on the static one.",
    );
    let ours = index(SchedulePolicy::GOODPUT);
    let rows: Vec<Vec<String>> = schedulers::ALL
        .iter()
        .filter(|name| **name != SchedulePolicy::GOODPUT)
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
    let (orloj, mark) = (of(index(SchedulePolicy::ORLOJ)), of(schedulers::ALL.len()));
    report.say(&format!(
        "On the dynamic workloads `goodput` ({:.3}) closes {:.0}% of the gap between `orloj` ({orloj:.3}) and the \
         clairvoyant ({mark:.3}).",
        of(ours),
        100.0 * (of(ours) - orloj) / (mark - orloj)
    ));
}

/// Every workload at the first operating point, with the paper's columns where it has the case.
fn by_workload(report: &mut Report, cases: &[Case], paper: Option<&Paper>) {
    report.say("Finish rates by workload and SLO at the first operating point.");
    if paper.is_some() {
        report.say(
            "The *paper* columns are the figures printed in the ORLOJ paper. The paper does not state its operating \
             point, so only the direction compares.",
        );
    }
    let shown = [
        SchedulePolicy::GOODPUT,
        SchedulePolicy::ORLOJ,
        schedulers::ORLOJ_SHARED,
        SchedulePolicy::EDF,
        SchedulePolicy::CLOCKWORK,
        schedulers::NEXUS,
        schedulers::CLIPPER,
        SchedulePolicy::STATIC,
    ];
    let mut head = vec!["workload", "SLO"];
    head.extend(shown.map(SchedulePolicy::name));
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
            row.push(format!("{:.2}", case.rates[schedulers::ALL.len()]));
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

/// Finish rates of the paper by case and SLO: clipper, nexus, clockwork, orloj, as printed.
type Paper = HashMap<(String, String), [String; 4]>;

fn read_paper(file: &Path) -> anyhow::Result<Paper> {
    let text = read_table(file)?;
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
