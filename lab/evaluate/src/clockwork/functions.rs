//! Figures 8 and 9 of the paper.

use std::path::Path;

use anyhow::Context;
use spillgate_sim::trace::parse_trace;

use super::scenarios::{self, Table};
use super::{Case, SHOWN, cases, head, table};
use crate::read_table;
use crate::report::Report;

/// A case, and what the paper says of Clockwork there: share in time, 50th and 99.99th percentile of the latency.
struct Functions {
    devices: u16,
    /// Requests a second.
    rate: f64,
    slo_ms: f64,
    paper: [&'static str; 3],
    /// How far durations vary, and what the case is called for it; `None`: as the paper's.
    noise: Option<(f64, &'static str)>,
}

/// Standard deviations of durations whose 1st and 99th percentile lie as far apart as those of the detector's batches, live on two virtual cores
/// (docs/evaluation/prediction.md): 41% of a batch with a core of its own, 75% without.
const OWN_CORE: Option<(f64, &str)> = Some((0.16, "own core"));
const SHARED_CORES: Option<(f64, &str)> = Some((0.29, "shared cores"));

/// What six devices carry, more than that, and the paper's own rates.
const FUNCTIONS: [Functions; 8] = [
    functions(6, 1500.0, 100.0, [""; 3]),
    functions(6, 2200.0, 100.0, [""; 3]),
    functions(12, 4860.0, 100.0, ["1.0000", "", ""]),
    functions(20, 4000.0, 25.0, [""; 3]),
    functions(20, 6174.0, 100.0, ["1.0000", "6.28", "49.92"]),
    functions(20, 6174.0, 25.0, ["0.9815", "5.77", "21.60"]),
    Functions {
        noise: OWN_CORE,
        ..functions(6, 1500.0, 100.0, [""; 3])
    },
    Functions {
        noise: SHARED_CORES,
        ..functions(6, 1500.0, 100.0, [""; 3])
    },
];

const fn functions(devices: u16, rate: f64, slo_ms: f64, paper: [&'static str; 3]) -> Functions {
    Functions {
        devices,
        rate,
        slo_ms,
        paper,
        noise: None,
    }
}

/// The rate of each second over the mean: a minute of the trace a second.
fn shape(traces: Option<&Path>, seconds: usize) -> anyhow::Result<Vec<f64>> {
    let Some(folder) = traces else {
        return Ok(vec![1.0; seconds]);
    };
    let file = folder.join("azure.csv");
    let trace = parse_trace(&read_table(&file)?);
    let trace = trace.with_context(|| file.display().to_string())?;
    let counts: Vec<f64> = trace.rows.iter().map(|(_, n)| *n).take(seconds).collect();
    anyhow::ensure!(
        counts.len() == seconds,
        "{} has {} rows; {seconds} are needed",
        file.display(),
        counts.len()
    );
    let mean = counts.iter().sum::<f64>() / seconds as f64;
    Ok(counts.iter().map(|n| n / mean).collect())
}

pub(super) fn section(
    traces: Option<&Path>,
    profiles: &Table,
    seconds: f64,
    report: &mut Report,
) -> anyhow::Result<()> {
    let all = (scenarios::functions_warm_s(seconds) + seconds).ceil() as usize;
    let shape = shape(traces, all)?;
    let named = FUNCTIONS.map(|f| {
        let mut name = format!("{} devices, {} r/s, {} ms", f.devices, f.rate, f.slo_ms);
        let mut scenario =
            scenarios::functions(profiles, f.devices, f.rate, f.slo_ms, (seconds, &shape));
        if let Some((sigma, called)) = f.noise {
            name = format!("{name}, {called}");
            scenario.system.noise_sigma = sigma;
        }
        (name, scenario)
    });
    let cases = cases("functions", &named, report)?;
    let rate = match traces {
        Some(_) => format!(
            "The rate follows the first {all} minutes of azure.csv, a minute a second; {seconds} of them count."
        ),
        None => "The rate is constant.".to_owned(),
    };
    report.say(&format!(
        "## Figures 8 and 9: {} models, {} copies of each architecture\n\nThe popularity of models is skewed (exponent {}), whatever their architecture. \
         {rate} The table has the share in time. The bound says little here: in it even models that are seldom asked for run in batches of 16.\n\nThe paper \
         replays 8 hours at 4,860.6 r/s on 6 workers: all but 4,511 of 140 million requests are in time. Its text does not say whether these workers \
         use one or both of their two devices; 12 devices stand beside it. At 6,174 r/s it has 20 devices for an hour, and clients that send no inputs.\n\nIn the last two cases durations vary as those of the shipped \
         detector were measured live, on two virtual cores (docs/evaluation/prediction.md): with a core of its own for the device, and on cores that all threads share. The 1st and 99th \
         percentile lie 41% and 75% of a batch apart there.",
        named[0].1.models.len(),
        scenarios::COPIES,
        scenarios::SKEW,
    ));
    let rows: Vec<Vec<String>> = cases
        .iter()
        .zip(&FUNCTIONS)
        .map(|(case, f)| {
            let mut row = vec![case.name.clone()];
            row.extend(case.runs.iter().map(|(f, _)| format!("{:.4}", f.share)));
            row.push(format!("{:.4}", case.bound_share()));
            row.push(f.paper[0].to_owned());
            row
        })
        .collect();
    table(
        report,
        &head("devices, rate, SLO", &["bound", "paper: Clockwork"]),
        &rows,
    );
    latencies(&cases, report);
    errors(&cases, report);
    Ok(())
}

fn of(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |v| format!("{v:.2}"))
}

fn latencies(cases: &[Case], report: &mut Report) {
    report.say(
        "Latencies of the requests in time, ms; LOADs a second; requests that were admitted and answered late.",
    );
    let mut rows = Vec::new();
    for (case, paper) in cases.iter().zip(&FUNCTIONS) {
        for ((f, _), (_, _, label)) in case.runs.iter().zip(SHOWN) {
            let loads = f.loads as f64 / case.span;
            rows.push(vec![
                case.name.clone(),
                label.to_owned(),
                of(f.p50_ms),
                of(f.p99_ms),
                of(f.p9999_ms),
                format!("{loads:.0}"),
                f.late.to_string(),
            ]);
        }
        let [_, p50, p9999] = paper.paper;
        if !p50.is_empty() {
            let cells = [&case.name, "*paper: Clockwork*", p50, "", p9999, "", ""];
            rows.push(cells.map(str::to_owned).to_vec());
        }
    }
    let head = [
        "case",
        "placement",
        "p50",
        "p99",
        "p99.99",
        "LOADs/s",
        "late",
    ];
    report.table(&head, &rows);
}

fn errors(cases: &[Case], report: &mut Report) {
    report.say(
        "### Figure 9: errors of prediction\n\nActual less expected, of INFER actions, ms. Below 0 an action took less than expected. A completion counts what was \
         sent to the device before. The paper has 0.25 ms for the 99th percentile of durations in both directions, and about 1 ms for that of completions.",
    );
    let mut rows = Vec::new();
    for case in cases {
        for ((f, _), (_, _, label)) in case.runs.iter().zip(SHOWN) {
            rows.push(vec![
                case.name.clone(),
                label.to_owned(),
                of(f.error_p01_ms),
                of(f.error_p99_ms),
                of(f.completion_p99_ms),
            ]);
        }
    }
    let cells = ["Figure 9", "*paper: Clockwork*", "-0.25", "0.25", "~1"];
    rows.push(cells.map(str::to_owned).to_vec());
    let head = [
        "case",
        "placement",
        "duration, 1st percentile",
        "99th",
        "completion, 99th",
    ];
    report.table(&head, &rows);
}
