//! `spillgate-lab evaluate clockwork`: every placement on the workloads of Clockwork's evaluation.

mod bound;
mod figures;
mod functions;
pub(crate) mod scenarios;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use spillgate_sim::placement::{Figures, Outcome, Scenario, run};
use spillgate_worker_policy::weights::placement::PlacementPolicy;

use super::report::{self, Report};
use super::{Print, command, in_parallel};
use bound::bound;
use scenarios::Table;
use spillgate_recipes::placements;

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Figure 5: 15 copies of a model on one device, by SLO.
    Copies,
    /// Figure 6: a major workload over more and more models beside a minor one, on one device.
    Major,
    /// Figure 7, left: how low the SLO may be, on six devices.
    Low,
    /// Figure 7, right: latency-sensitive requests beside batch clients.
    Isolated,
    /// Figures 8 and 9: thousands of models under a trace, on 6 and 20 devices.
    Functions,
}

/// What to run.
#[derive(Args)]
pub(super) struct ClockworkArgs {
    /// Clockwork's Table 1 as CSV: family,model,input_kb,output_kb,weights_mb,transfer_ms,b1,b2,b4,b8,b16.
    #[arg(long)]
    profiles: PathBuf,
    /// Folder with azure.csv; without it, the rate of the functions is constant.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Only these sections; repeat it.
    #[arg(long)]
    section: Vec<Section>,
    /// Seconds of each run after its warm-up.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Where the page goes.
    #[arg(long, default_value = "docs/evaluation")]
    out: PathBuf,
}

/// The placements of the page, ours last.
const SHOWN: [(PlacementPolicy, bool, &str); 5] = [
    (PlacementPolicy::LRU, true, "lru"),
    (PlacementPolicy::CLOCKWORK, true, "clockwork"),
    (placements::CLOCKWORK_FIXED, true, "clockwork-fixed"),
    (PlacementPolicy::SPILLGATE, true, "spillgate"),
    (PlacementPolicy::SPILLGATE, false, "spillgate, unfair"),
];

/// Runs all sections asked for and writes the page.
pub(super) fn run_all(args: &ClockworkArgs, print: Print) -> anyhow::Result<()> {
    report::prepare(&args.out, "clockwork")?;
    let profiles = Table::read(&args.profiles)?;
    let base = format!(
        "spillgate-lab evaluate clockwork --profiles FILE --seconds {}",
        args.seconds
    );
    let mut report = Report::titled(
        "clockwork",
        "Many models on few devices: every placement on Clockwork's workloads",
        &command(&base, args.traces.is_some(), &args.section),
        "section,case,placement,requests,in_time,share,goodput,bound,late,cancelled,refused,loads,p50_ms,p99_ms,p9999_ms,\
         error_p01_ms,error_p99_ms,completion_p99_ms,least_share\n",
    );
    report.say(
        "EMULATED: devices with the profiles of Clockwork's Table 1 (V100), a weight cache of 1,414 pages of 16 MiB and a link of 12.28 MB/ms. \
         Durations exceed the profile: always by a normal factor's absolute value (standard deviation 0.2%), in 3% of the actions by up to \
         0.5 ms more, in one of 100,000 by 10 to 30 ms more. `spillgate, unfair` is `spillgate` without fair shares (`--fairness off`). \
         No placement exceeds the *bound*: devices run nothing but the batches with the least time a request, and weights are always \
         there. The *paper* columns are what the text of the paper says. A cell is empty where it gives no figure.",
    );
    let seconds = f64::from(args.seconds);
    sections(args, &profiles, seconds, &mut report)?;
    report.write(&args.out, print)
}

/// All sections asked for.
fn sections(
    args: &ClockworkArgs,
    profiles: &Table,
    seconds: f64,
    report: &mut Report,
) -> anyhow::Result<()> {
    for section in Section::value_variants() {
        if !args.section.is_empty() && !args.section.contains(section) {
            continue;
        }
        eprintln!("clockwork: {section:?}");
        match section {
            Section::Copies => figures::copies(profiles, seconds, report)?,
            Section::Major => figures::major(profiles, seconds, report)?,
            Section::Low => figures::low(profiles, seconds, report)?,
            Section::Isolated => figures::isolated(profiles, seconds, report)?,
            Section::Functions => {
                functions::section(args.traces.as_deref(), profiles, seconds, report)?;
            }
        }
    }
    Ok(())
}

/// What the placements of the page made of one case.
struct Case {
    name: String,
    /// Requests in time a second that no placement exceeds.
    bound: f64,
    warm_s: f64,
    /// Seconds that are counted.
    span: f64,
    /// By placement of [`SHOWN`].
    runs: Vec<(Figures, Vec<Outcome>)>,
}

impl Case {
    /// The bound as a part of the requests.
    fn bound_share(&self) -> f64 {
        let offered = self.runs[0].0.requests as f64 / self.span;
        (self.bound / offered).min(1.0)
    }
}

/// Every placement on each scenario.
///
/// # Errors
/// A placement exceeds the bound, which then is wrong.
fn cases(
    section: &str,
    scenarios: &[(String, Scenario)],
    report: &mut Report,
) -> anyhow::Result<Vec<Case>> {
    let todo: Vec<(usize, usize)> = (0..scenarios.len())
        .flat_map(|i| (0..SHOWN.len()).map(move |j| (i, j)))
        .collect();
    let runs = in_parallel(&todo, |(i, j)| {
        let (name, is_fair, _) = SHOWN[*j];
        let (figures, outcomes, _) = run(&scenarios[*i].1, name, is_fair, false);
        Ok((figures, outcomes))
    })?;
    let mut runs = runs.into_iter();
    let cases = scenarios.iter().map(|(name, scenario)| Case {
        name: name.clone(),
        bound: bound(scenario),
        warm_s: scenario.system.warm_s,
        span: scenario.system.end_s - scenario.system.warm_s,
        runs: runs.by_ref().take(SHOWN.len()).collect(),
    });
    let cases: Vec<Case> = cases.collect();
    for case in &cases {
        for ((f, _), (_, _, label)) in case.runs.iter().zip(SHOWN) {
            anyhow::ensure!(
                f.in_time as f64 <= case.bound * case.span + 1e-6,
                "{section}, {}, {label}: {} requests in time exceed the bound, {:.1}",
                case.name,
                f.in_time,
                case.bound * case.span
            );
            let of = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
            report.line(&[
                &section,
                &case.name,
                &label,
                &f.requests,
                &f.in_time,
                &format!("{:.5}", f.share),
                &format!("{:.1}", f.goodput),
                &format!("{:.1}", case.bound),
                &f.late,
                &f.cancelled,
                &f.refused,
                &f.loads,
                &of(f.p50_ms),
                &of(f.p99_ms),
                &of(f.p9999_ms),
                &of(f.error_p01_ms),
                &of(f.error_p99_ms),
                &of(f.completion_p99_ms),
                &of(f.least_share),
            ]);
        }
    }
    Ok(cases)
}

fn head(first: &str, last: &[&str]) -> Vec<String> {
    let mut head = vec![first.to_owned()];
    head.extend(SHOWN.iter().map(|(_, _, label)| (*label).to_owned()));
    head.extend(last.iter().map(|l| (*l).to_owned()));
    head
}

fn table(report: &mut Report, head: &[String], rows: &[Vec<String>]) {
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    report.table(&head, rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cases` fails where a placement exceeds the bound.
    // Over five seconds: each section is simulated under each placement.
    #[test]
    fn no_placement_exceeds_the_bound_in_any_section() {
        let csv = "family,model,input_kb,output_kb,weights_mb,transfer_ms,b1,b2,b4,b8,b16\n\
                   A,resnet50_v1,600,4,100,8,2.5,3.5,5.5,9,15.5\n\
                   A,small,600,4,40,3.5,1,1.5,2.5,4,7\n\
                   B,large,600,4,350,28,8,13,20,35,66\n";
        let profiles = Table::parse(csv, "table").unwrap();
        let args = ClockworkArgs {
            profiles: PathBuf::new(),
            traces: None,
            section: Vec::new(),
            seconds: 1,
            out: PathBuf::new(),
        };
        let mut report = Report::titled("x", "X", "x", "");
        sections(&args, &profiles, 0.3, &mut report).unwrap();
    }
}
