//! Figures 12, 13 and 15: two workers, clients that are alike.

use std::time::Duration;

use spillgate_jellyfish::cameras::{CameraKind, LoopSetting, Way};

use super::Given;
use super::compared::{compare, compare_served};
use super::runs::{BOUND, Case, JELLYFISH, Means, SERVED, Server, contenders, percent, run_cases};
use crate::report::{Report, mean};

/// What is the same for all clients of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Alike {
    pub(super) trace: &'static str,
    pub(super) clients: usize,
    pub(super) slo_ms: u64,
    pub(super) fps: f64,
}

impl Alike {
    pub(super) fn name(self) -> String {
        let Alike {
            trace,
            clients,
            slo_ms,
            fps,
        } = self;
        format!("{trace} {clients} clients {slo_ms} ms {fps} fps")
    }

    pub(super) fn cameras(self) -> Vec<CameraKind> {
        let kind = CameraKind {
            rate: self.fps,
            slo: Duration::from_millis(self.slo_ms),
        };
        vec![kind; self.clients]
    }
}

/// All settings of §7.2 and §7.3, with one of these numbers of clients.
pub(super) fn settings(given: &Given, clients: &[usize]) -> Vec<Alike> {
    let mut all = Vec::new();
    for (trace, _) in &given.traces {
        for clients in clients {
            for slo_ms in [75, 100, 150] {
                all.extend([15.0, 25.0].map(|fps| Alike {
                    trace,
                    clients: *clients,
                    slo_ms,
                    fps,
                }));
            }
        }
    }
    all
}

/// Numbers of clients of [`REFERENCE`].
const REFERENCE_CLIENTS: [usize; 3] = [2, 4, 8];
/// By trace and number of clients: what the reference's Jellyfish, B_M and B_H missed, in percent.
const REFERENCE: [(&str, [[f64; 3]; 3]); 3] = [
    (
        "synthetic",
        [[0.02, 3.1, 29.0], [0.09, 9.0, 47.0], [0.62, 18.9, 68.0]],
    ),
    (
        "wifi",
        [[0.04, 0.0, 3.5], [0.06, 0.4, 27.0], [1.34, 6.8, 54.0]],
    ),
    (
        "lte",
        [[1.39, 3.0, 33.0], [1.19, 8.3, 49.0], [1.55, 17.6, 69.0]],
    ),
];

/// Settings of Figures 12 and 13 of which the text gives figures: clients, SLO, rate, and what it says.
const SAID: [(usize, u64, f64, &str); 4] = [
    (2, 100, 15.0, "median 53.77 ms"),
    (2, 150, 15.0, "median 84.62 ms"),
    (8, 100, 15.0, "missed 1.153"),
    (8, 75, 25.0, "missed 15.427"),
];

/// Every contender on every setting.
pub(super) fn alike(given: &Given, report: &mut Report) -> anyhow::Result<()> {
    let all = settings(given, &given.clients);
    let contenders = contenders(&given.zoo);
    let mut cases = Vec::new();
    for alike in &all {
        let rates = given.trace(alike.trace).expect("settings name these");
        cases.extend(contenders.map(|(label, server)| Case {
            name: alike.name(),
            contender: label.to_owned(),
            server,
            setting: LoopSetting::new(given.zoo.clone(), rates.clone(), alike.cameras()),
        }));
    }
    let done = run_cases("loop", &cases, given, report)?;
    let rows: Vec<&[Means]> = done.chunks(contenders.len()).collect();
    figure_12(&all, &rows, report);
    let labels = contenders.map(|(label, _)| label);
    figure_15(given, &all, &rows, &labels, report);
    let beside = |other: usize| -> Vec<(&Means, &Means)> {
        rows.iter()
            .map(|row| (&row[JELLYFISH], &row[other]))
            .collect()
    };
    compare_served(given, &all, &beside(SERVED), report);
    served_fixed(given, &all, &rows, report)?;
    compare(given, &all, &beside(BOUND), report)
}

/// One variant for all, served by the loop and by what serves: how far they agree.
fn served_fixed(
    given: &Given,
    all: &[Alike],
    rows: &[&[Means]],
    report: &mut Report,
) -> anyhow::Result<()> {
    let middle = given.zoo.middle();
    let fixed = [("B_L", 0), ("B_M", middle)];
    let mut cases = Vec::new();
    for alike in all {
        let rates = given.trace(alike.trace).expect("settings name these");
        cases.extend(fixed.map(|(label, variant)| Case {
            name: alike.name(),
            contender: format!("{label}, served"),
            server: Server::Pipeline(Way::Fixed(variant)),
            setting: LoopSetting::new(given.zoo.clone(), rates.clone(), alike.cameras()),
        }));
    }
    let done = run_cases("fixed", &cases, given, report)?;
    report.say(
        "## One variant, served\n\nThe loop and what serves with the same variant for all: missed in percent, and in brackets F1, means over six settings. \
         Cameras of the loop are the authors', those of what serves are ours, which send smaller frames earlier.",
    );
    let place = |wanted: &str| {
        contenders(&given.zoo)
            .iter()
            .position(|(l, _)| *l == wanted)
    };
    let mut table = Vec::new();
    for (trace, _) in &given.traces {
        for clients in given.clients.iter().copied() {
            let of_row = |i: &usize| all[*i].trace == *trace && all[*i].clients == clients;
            let settings: Vec<usize> = (0..all.len()).filter(of_row).collect();
            let cell = |of: &dyn Fn(usize) -> Means| {
                let means: Vec<Means> = settings.iter().map(|i| of(*i)).collect();
                let missed = mean(means.iter().map(Means::missed));
                let f1 = mean(means.iter().map(Means::f1));
                format!("{} ({f1:.3})", percent(missed))
            };
            let mut cells = vec![(*trace).to_owned(), clients.to_string()];
            for (k, (label, _)) in fixed.iter().enumerate() {
                let at = place(label).expect("it is a contender");
                cells.push(cell(&|i| rows[i][at].clone()));
                cells.push(cell(&|i| done[fixed.len() * i + k].clone()));
            }
            table.push(cells);
        }
    }
    let head = [
        "trace",
        "clients",
        "B_L",
        "B_L, served",
        "B_M",
        "B_M, served",
    ];
    report.table(&head, &table);
    Ok(())
}

fn figure_12(all: &[Alike], rows: &[&[Means]], report: &mut Report) {
    report.say(
        "## Figures 12 and 13: Jellyfish on the synthetic trace\n\nIn the paper's figures misses are below 1% in almost all settings, the utilisation is up \
         to 75%, and the 99th percentile of the latency is close to the SLO.",
    );
    let chosen = all.iter().zip(rows).filter(|(a, _)| a.trace == "synthetic");
    let table: Vec<Vec<String>> = chosen
        .map(|(alike, row)| {
            let said = SAID
                .iter()
                .find(|said| (said.0, said.1, said.2) == (alike.clients, alike.slo_ms, alike.fps));
            let jellyfish = &row[0];
            vec![
                alike.clients.to_string(),
                alike.slo_ms.to_string(),
                alike.fps.to_string(),
                percent(jellyfish.missed()),
                format!("{:.3}", jellyfish.f1()),
                percent(jellyfish.utilisation()),
                format!("{:.1}", jellyfish.p50_ms()),
                format!("{:.1}", jellyfish.p99_ms()),
                said.map_or(String::new(), |said| said.3.to_owned()),
            ]
        })
        .collect();
    let head = [
        "clients",
        "SLO ms",
        "fps",
        "missed %",
        "F1",
        "utilisation %",
        "p50 ms",
        "p99 ms",
        "paper",
    ];
    report.table(&head, &table);
}

fn figure_15(
    given: &Given,
    all: &[Alike],
    rows: &[&[Means]],
    labels: &[&'static str],
    report: &mut Report,
) {
    report.say(
        "## Figure 15: every contender\n\nMissed, in percent, and in brackets F1: means over six settings, SLOs of 75, 100 and 150 ms, 15 and 25 \
         frames a second. The reference's columns are its Jellyfish, B_M and B_H; its B_L missed nothing. The paper's Jellyfish misses below 1% \
         (synthetic, WiFi) and 1.5% (LTE), but for one setting.",
    );
    let mut table = Vec::new();
    for (trace, _) in &given.traces {
        for clients in given.clients.iter().copied() {
            let chosen = || {
                let both = all.iter().zip(rows);
                both.filter(move |(a, _)| a.trace == *trace && a.clients == clients)
            };
            let mut cells = vec![(*trace).to_owned(), clients.to_string()];
            cells.extend((0..labels.len()).map(|c| {
                let missed = mean(chosen().map(|(_, row)| row[c].missed()));
                let f1 = mean(chosen().map(|(_, row)| row[c].f1()));
                format!("{} ({f1:.3})", percent(missed))
            }));
            let known = REFERENCE.iter().find(|(name, _)| name == trace);
            let at = REFERENCE_CLIENTS.iter().position(|n| *n == clients);
            let known = known.zip(at).map(|((_, known), at)| known[at]);
            cells.extend((0..3).map(|i| known.map_or(String::new(), |k| k[i].to_string())));
            table.push(cells);
        }
    }
    let mut head = vec!["trace", "clients"];
    head.extend(labels);
    head.extend(["reference: Jellyfish", "B_M", "B_H"]);
    report.table(&head, &table);
}
