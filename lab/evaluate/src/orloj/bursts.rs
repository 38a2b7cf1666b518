//! Arrivals in bursts: the windows of traces in place of one rate.

use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_recipes::schedulers;
use spillgate_sim::dynamic::named::{self, Named};
use spillgate_sim::dynamic::{clairvoyant, run};

use super::super::grid::{Window, windows};
use super::super::report::{Report, mean};
use super::{MARK, POINTS, in_parallel};

/// Workloads: two modes, and a task with a long tail.
const NAMES: [&str; 2] = ["two-modal", "gpt-convAI"];
const SLOS: [f64; 3] = [1.5, 3.0, 5.0];
const SHOWN: [SchedulePolicy; 6] = [
    SchedulePolicy::GOODPUT,
    SchedulePolicy::ORLOJ,
    schedulers::ORLOJ_SHARED,
    SchedulePolicy::EDF,
    SchedulePolicy::CLOCKWORK,
    SchedulePolicy::STATIC,
];

/// A workload under a window of a trace.
struct Case<'a> {
    named: &'a Named,
    point: (f64, f64),
    slo: f64,
    window: usize,
}

/// Writes the section: finish rates by trace, workload, operating point and SLO.
pub(super) fn section(traces: Option<&Path>, report: &mut Report) -> anyhow::Result<()> {
    let (windows, origin) = windows(traces)?;
    let burstiness: Vec<String> = windows.iter().map(describe).collect();
    let seconds = windows.first().map_or(0, |w| w.rates.len());
    report.say(&format!(
        "Arrivals in bursts: {origin}, {seconds} s each, Poisson inside a second. They are scaled so that the mean \
         rate is that of the operating point. Each window has one seed. The rows of a trace are means over its \
         windows. The windows, each with the coefficient of variation of its rate by second and its peak over its \
         mean: {}.",
        burstiness.join(", ")
    ));
    let all = named::all();
    let named = || all.iter().filter(|n| NAMES.contains(&n.name.as_str()));
    let mut cases = Vec::new();
    for named in named() {
        for point in POINTS {
            for slo in SLOS {
                cases.extend((0..windows.len()).map(|window| Case {
                    named,
                    point,
                    slo,
                    window,
                }));
            }
        }
    }
    let rates = in_parallel(&cases, |case| finish_rates(case, &windows))?;
    for (case, rates) in cases.iter().zip(&rates) {
        let (share, load) = case.point;
        let who = SHOWN.map(SchedulePolicy::name).into_iter().chain([MARK]);
        for (who, rate) in who.zip(rates) {
            let name = format!("{} {}", case.named.name, windows[case.window].name);
            let rate = format!("{rate:.4}");
            report.line(&[&name, &share, &load, &case.slo, &who, &rate]);
        }
    }
    let mut head = vec!["trace", "workload", "c0, load", "SLO"];
    head.extend(SHOWN.map(SchedulePolicy::name));
    head.push(MARK);
    let mut traces: Vec<&str> = windows.iter().map(|w| w.trace.as_str()).collect();
    traces.dedup();
    let mut rows = Vec::new();
    for trace in traces {
        for named in named() {
            for point in POINTS {
                for slo in SLOS {
                    let is_of = |case: &Case<'_>| {
                        windows[case.window].trace == trace
                            && case.named.name == named.name
                            && case.point == point
                            && case.slo == slo
                    };
                    let of = |i: usize| {
                        let rates = cases.iter().zip(&rates).filter(|(case, _)| is_of(case));
                        mean(rates.map(|(_, rates)| rates[i]))
                    };
                    let mut row = vec![
                        trace.to_owned(),
                        named.name.clone(),
                        format!("{:.0}%, {}", 100.0 * point.0, point.1),
                        format!("{slo}"),
                    ];
                    row.extend((0..=SHOWN.len()).map(|i| format!("{:.2}", of(i))));
                    rows.push(row);
                }
            }
        }
    }
    let mut row = vec![
        "all".to_owned(),
        String::new(),
        String::new(),
        String::new(),
    ];
    let of = |i: usize| mean(rates.iter().map(|rates| rates[i]));
    row.extend((0..=SHOWN.len()).map(|i| format!("{:.3}", of(i))));
    rows.push(row);
    report.table(&head, &rows);
    Ok(())
}

/// A window's name, and how bursty it is.
fn describe(window: &Window) -> String {
    let average = mean(window.rates.iter().copied());
    let variance = mean(window.rates.iter().map(|rate| (rate - average).powi(2)));
    let peak = window.rates.iter().copied().fold(0.0, f64::max);
    format!(
        "{} ({:.2}, {:.1})",
        window.name,
        variance.sqrt() / average,
        peak / average
    )
}

/// Finish rate of each scheduler, then of the mark.
fn finish_rates(case: &Case<'_>, windows: &[Window]) -> anyhow::Result<Vec<f64>> {
    // The requests come by the window.
    let work = named::workload(case.named, case.point.0, case.point.1, case.slo, 0);
    let mut rng = ChaCha8Rng::seed_from_u64(1000 + case.window as u64);
    let instance = work.instance_at(&windows[case.window].rates, &mut rng)?;
    let mut rates = Vec::with_capacity(SHOWN.len() + 1);
    for name in SHOWN {
        rates.push(run(&instance, name)?.finish_rate);
    }
    rates.push(clairvoyant(&instance).finish_rate);
    Ok(rates)
}
