//! `spillgate evaluate clockwork`: every placement on the workloads of Clockwork's evaluation.

mod scenarios;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use spillgate_controller_policy::placement::PlacementName;
use spillgate_sim::placement::{Figures, Outcome, Scenario, run};
use spillgate_sim::trace::parse_trace;

use super::report::Report;
use super::{Print, in_parallel, read_table};
use scenarios::Table;

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
const SHOWN: [(PlacementName, bool, &str); 5] = [
    (PlacementName::Lru, true, "lru"),
    (PlacementName::Clockwork, true, "clockwork"),
    (PlacementName::ClockworkFixed, true, "clockwork-fixed"),
    (PlacementName::Spillgate, true, "spillgate"),
    (PlacementName::Spillgate, false, "spillgate, unfair"),
];

/// Runs all sections asked for and writes the page.
pub(super) fn run_all(args: &ClockworkArgs, print: Print) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("{} cannot be made", args.out.display()))?;
    let table = Table::read(&args.profiles)?;
    let mut report = Report::titled(
        "clockwork",
        "Many models on few devices: every placement on Clockwork's workloads",
        &command(args),
        "section,case,placement,requests,in_time,share,goodput,late,cancelled,refused,loads,p50_ms,p99_ms,p9999_ms,\
         error_p01_ms,error_p99_ms,completion_p99_ms,least_share\n",
    );
    report.say(
        "EMULATED: devices with the profiles of Clockwork's Table 1 (V100), a weight cache of 1,414 pages of 16 MiB, a link of 12.28 MB/ms, \
         and noise that makes errors of prediction like the paper's. The figures are requests in time. `spillgate, unfair` is `spillgate` \
         without fair shares (--fairness off). The *bound* counts execution only: devices run nothing but the batches with the least time \
         a request. What the paper reports stands beside; its devices, its controller and its network differ.",
    );
    for section in Section::value_variants() {
        if !args.section.is_empty() && !args.section.contains(section) {
            continue;
        }
        let seconds = f64::from(args.seconds);
        match section {
            Section::Copies => copies(&table, seconds, &mut report)?,
            Section::Major => major(&table, seconds, &mut report)?,
            Section::Low => low(&table, seconds, &mut report)?,
            Section::Isolated => isolated(&table, seconds, &mut report)?,
            Section::Functions => functions(args, &table, &mut report)?,
        }
    }
    report.write(&args.out, print)
}

/// The command, as the page shows it.
fn command(args: &ClockworkArgs) -> String {
    let mut command = "spillgate evaluate clockwork --profiles FILE".to_owned();
    if args.traces.is_some() {
        command.push_str(" --traces FOLDER");
    }
    for section in args.section.iter().filter_map(Section::to_possible_value) {
        command.push_str(" --section ");
        command.push_str(section.get_name());
    }
    command
}

/// What the placements of the page made of one case.
struct Case {
    name: String,
    bound: f64,
    runs: Vec<(Figures, Vec<Outcome>)>,
}

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
        runs: runs.by_ref().take(SHOWN.len()).collect(),
    });
    let cases: Vec<Case> = cases.collect();
    for case in &cases {
        for ((f, _), (_, _, label)) in case.runs.iter().zip(SHOWN) {
            let of = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
            report.line(&[
                &section,
                &case.name,
                &label,
                &f.requests,
                &f.in_time,
                &format!("{:.5}", f.share),
                &format!("{:.1}", f.goodput),
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

/// Requests a second that no placement exceeds: devices run the cheapest requests that are asked for, in batches of the size with the least
/// time a request. Closed-loop clients ask for any number.
fn bound(scenario: &Scenario) -> f64 {
    let system = &scenario.system;
    let span = system.end_s - system.warm_s;
    let mut asked = vec![0.0; scenario.models.len()];
    for arrival in &scenario.arrivals {
        if arrival.at.as_secs_f64() >= system.warm_s {
            asked[arrival.model.idx()] += 1.0;
        }
    }
    for client in &scenario.clients {
        asked[client.model.idx()] = f64::INFINITY;
    }
    let each = |model: usize| {
        let execution = scenario.models[model].execution.iter();
        let times = execution.zip(&scenario.sizes);
        let times = times.map(|(e, size)| e.as_secs_f64() / f64::from(*size));
        times.fold(f64::INFINITY, f64::min)
    };
    let mut cheapest: Vec<(f64, f64)> = (0..asked.len()).map(|m| (each(m), asked[m])).collect();
    cheapest.sort_by(|a, b| a.0.total_cmp(&b.0));
    // A batch that begins before the end counts with what was under way at the beginning: both lie within the span of the devices.
    let mut left = span * f64::from(system.gpus);
    let mut served = 0.0;
    for (each, asked) in cheapest {
        let n = asked.min(left / each);
        served += n;
        left -= n * each;
    }
    served / span
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

fn copies(profiles: &Table, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    const SLOS: [f64; 6] = [10.0, 25.0, 50.0, 100.0, 250.0, 500.0];
    let named = SLOS.map(|slo| Ok((slo.to_string(), scenarios::copies(profiles, slo, seconds)?)));
    let named: Vec<(String, Scenario)> = named.into_iter().collect::<anyhow::Result<_>>()?;
    let cases = cases("copies", &named, report)?;
    report.say(
        "## Figure 5: 15 copies of ResNet50 on one device, 16 requests of each under way\n\nGoodput in requests a second, by SLO in ms. The paper \
         prints about 800 for Clockwork at 500 ms, with a batch of 16 that takes 20 ms instead of the 15.67 ms of Table 1.",
    );
    let rows: Vec<Vec<String>> = cases
        .iter()
        .map(|case| {
            let mut row = vec![case.name.clone()];
            row.extend(case.runs.iter().map(|(f, _)| format!("{:.0}", f.goodput)));
            row.push(format!("{:.0}", case.bound));
            row.push(if case.name == "500" { "~800" } else { "" }.to_owned());
            row
        })
        .collect();
    table(report, &head("SLO", &["bound", "paper: Clockwork"]), &rows);
    Ok(())
}

fn major(profiles: &Table, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    const ACTIVE: [u32; 8] = [1, 10, 50, 100, 200, 400, 1200, 3600];
    let named = ACTIVE.map(|n| Ok((n.to_string(), scenarios::major(profiles, n, seconds)?)));
    let named: Vec<(String, Scenario)> = named.into_iter().collect::<anyhow::Result<_>>()?;
    let cases = cases("major", &named, report)?;
    report.say(
        "## Figure 6: a major workload of 1,000 r/s over more and more models, and a minor one of 200 r/s for one model\n\nOne device, SLO 100 ms. \
         Goodput in requests a second: all, and in brackets that of the minor workload. In the paper the minor workload falls behind \
         as the major one begins, and is back at 200 r/s when the link has become the bottleneck, past about 1,200 models.",
    );
    let rows: Vec<Vec<String>> = cases
        .iter()
        .map(|case| {
            let mut row = vec![case.name.clone()];
            row.extend(case.runs.iter().map(|(f, outcomes)| {
                let minor = in_time(outcomes, |o| {
                    o.model.idx() == 0 && o.at.as_secs_f64() >= 10.0
                });
                format!("{:.0} ({:.0})", f.goodput, minor.1 as f64 / seconds)
            }));
            row.push(format!("{:.0}", case.bound));
            row
        })
        .collect();
    table(report, &head("models", &["bound"]), &rows);
    Ok(())
}

/// How many outcomes there are of a kind, and how many of them are in time.
fn in_time(outcomes: &[Outcome], is_meant: impl Fn(&Outcome) -> bool) -> (usize, usize) {
    let meant = outcomes.iter().filter(|o| is_meant(o));
    meant.fold((0, 0), |(n, good), o| {
        (n + 1, good + usize::from(o.is_in_time()))
    })
}

fn low(profiles: &Table, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    /// Of the execution time alone; the paper multiplies by 1.5 from 1.
    const TIMES: [f64; 9] = [1.0, 1.5, 2.3, 3.4, 5.1, 7.6, 11.4, 17.1, 25.6];
    const ALONE_MS: f64 = 2.61;
    report.say(
        "## Figure 7, left: how low the SLO may be\n\nSix devices, N copies of ResNet50 and R requests a second in all, Poisson. The share in time, by \
         SLO as a multiple of 2.61 ms. The paper's Clockwork satisfies R = 600 from 3.4, R = 1200 from 7.6 and R = 2400 from 25.6 on.",
    );
    for (n, rate) in [12u32, 48]
        .into_iter()
        .flat_map(|n| [600.0, 1200.0, 2400.0].map(|r| (n, r)))
    {
        let named = TIMES.map(|times| {
            let scenario = scenarios::low(profiles, n, rate, times * ALONE_MS, seconds)?;
            Ok((format!("N={n} R={rate} {times}"), scenario))
        });
        let named: Vec<(String, Scenario)> = named.into_iter().collect::<anyhow::Result<_>>()?;
        let cases = cases("low", &named, report)?;
        report.say(&format!("N = {n}, R = {rate}:"));
        let rows: Vec<Vec<String>> = cases
            .iter()
            .zip(TIMES)
            .map(|(case, times)| {
                let mut row = vec![times.to_string()];
                row.extend(case.runs.iter().map(|(f, _)| format!("{:.3}", f.share)));
                row
            })
            .collect();
        table(report, &head("SLO", &[]), &rows);
    }
    Ok(())
}

fn isolated(profiles: &Table, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    const TIMES: [f64; 6] = [2.3, 5.1, 7.6, 11.4, 17.1, 25.6];
    const ALONE_MS: f64 = 2.61;
    report.say(
        "## Figure 7, right: latency-sensitive requests beside batch clients\n\nSix devices, six latency-sensitive models at 200 r/s each, and M batch clients \
         with C requests under way and no SLO. The share in time of the latency-sensitive requests, and in brackets the answers to \
         batch clients a second, by SLO as a multiple of 2.61 ms. In the paper the latency-sensitive requests are whole from 11.4 on.",
    );
    for clients in [(0, 1), (12, 16), (48, 4)] {
        let named = TIMES.map(|times| {
            let scenario = scenarios::isolated(profiles, clients, times * ALONE_MS, seconds)?;
            Ok((format!("M={} C={} {times}", clients.0, clients.1), scenario))
        });
        let named: Vec<(String, Scenario)> = named.into_iter().collect::<anyhow::Result<_>>()?;
        let cases = cases("isolated", &named, report)?;
        report.say(&format!("M = {}, C = {}:", clients.0, clients.1));
        let rows: Vec<Vec<String>> = cases
            .iter()
            .zip(TIMES)
            .map(|(case, times)| {
                let mut row = vec![times.to_string()];
                row.extend(case.runs.iter().map(|(_, outcomes)| {
                    let counts = |o: &Outcome| o.at.as_secs_f64() >= 3.0;
                    let (n, good) = in_time(outcomes, |o| o.client.is_none() && counts(o));
                    let (_, batch) = in_time(outcomes, |o| o.client.is_some() && counts(o));
                    let share = good as f64 / n.max(1) as f64;
                    format!("{share:.3} ({:.0})", batch as f64 / seconds)
                }));
                row
            })
            .collect();
        table(report, &head("SLO", &[]), &rows);
    }
    Ok(())
}

/// Devices, requests a second and SLO in ms: what six devices carry, more than that, and twenty devices under two SLOs.
const FUNCTIONS: [(u16, f64, f64); 4] = [
    (6, 1500.0, 100.0),
    (6, 2200.0, 100.0),
    (20, 4000.0, 100.0),
    (20, 4000.0, 25.0),
];

fn functions(args: &ClockworkArgs, profiles: &Table, report: &mut Report) -> anyhow::Result<()> {
    const WARM_S: usize = 25;
    let seconds = WARM_S + args.seconds as usize;
    let shape = match &args.traces {
        Some(folder) => {
            let file = folder.join("azure.csv");
            let trace = parse_trace(&read_table(&file)?);
            let trace = trace.map_err(|e| anyhow::anyhow!("{}: {e}", file.display()))?;
            let counts: Vec<f64> = trace.rows.iter().map(|(_, n)| *n).take(seconds).collect();
            anyhow::ensure!(
                counts.len() == seconds,
                "{} has {} rows; {seconds} are needed",
                file.display(),
                counts.len()
            );
            let mean = counts.iter().sum::<f64>() / seconds as f64;
            counts.iter().map(|n| n / mean).collect()
        }
        None => vec![1.0; seconds],
    };
    let named = FUNCTIONS.map(|(gpus, rate, slo)| {
        let name = format!("{gpus} devices, {rate} r/s, {slo} ms");
        (
            name,
            scenarios::functions(profiles, gpus, rate, slo, &shape),
        )
    });
    let cases = cases("functions", &named, report)?;
    report.say(
        "## Figures 8 and 9: 4,032 models of 64 architectures\n\nThe popularity of models is skewed (exponent 0.9). The rate follows the minutes of the Azure trace, a minute \
         a second, where a folder of traces is given. The share in time; then latencies and errors of prediction of `spillgate`. The paper's Clockwork \
         had 4,860 r/s on 6 workers in time, with 4,511 failures in 140 million; no more than about 600 r/s a device fit this \
         table's profiles. Its errors: durations within 0.25 ms at the 99th percentile, completions within 1 ms.",
    );
    let rows: Vec<Vec<String>> = cases
        .iter()
        .map(|case| {
            let mut row = vec![case.name.clone()];
            row.extend(case.runs.iter().map(|(f, _)| format!("{:.4}", f.share)));
            let requests = case.runs[0].0.requests as f64 / f64::from(args.seconds);
            row.push(format!("{:.4}", (case.bound / requests).min(1.0)));
            row
        })
        .collect();
    table(report, &head("devices, rate, SLO", &["bound"]), &rows);
    let of = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.3}"));
    let rows: Vec<Vec<String>> = cases
        .iter()
        .flat_map(|case| {
            case.runs.iter().zip(SHOWN).map(|((f, _), (_, _, label))| {
                vec![
                    case.name.clone(),
                    label.to_owned(),
                    of(f.p50_ms),
                    of(f.p99_ms),
                    of(f.p9999_ms),
                    format!("{} / {}", of(f.error_p01_ms), of(f.error_p99_ms)),
                    of(f.completion_p99_ms),
                    f.loads.to_string(),
                    f.late.to_string(),
                ]
            })
        })
        .collect();
    let head = [
        "case",
        "placement",
        "p50 ms",
        "p99",
        "p99.99",
        "duration error p1 / p99",
        "completion error p99",
        "loads",
        "late",
    ];
    report.table(&head, &rows);
    Ok(())
}
