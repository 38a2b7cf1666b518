//! `spillgate` beside `jellyfish`, setting by setting.

use std::time::Duration;

use spillgate_controller_policy::adaptation::{Method, SWITCH_TIME_DEFAULT};
use spillgate_sim::jellyfish::{Contender, LoopSetting};

use super::Given;
use super::loops::Alike;
use super::runs::{Case, Means, percent, run_cases};
use crate::report::{Report, mean};

/// Misses that differ by less are equal: a few frames of a run.
const EQUAL_MISSED: f64 = 0.0005;
/// And such F1.
const EQUAL_F1: f64 = 0.001;
/// What the parameter of each method is changed to, in ms: by `jellyfish` what is taken from every budget, by `spillgate` what a
/// switch is taken to cost.
const PARAMETERS: [(Method, &str, [u64; 4]); 2] = [
    (Method::Jellyfish, "margin", [2, 4, 8, 16]),
    (Method::Spillgate, "switch", [0, 10, 25, 50]),
];

/// Whether the first is nowhere worse than the second.
fn is_as_good(a: &Means, b: &Means) -> bool {
    a.missed() <= b.missed() + EQUAL_MISSED && a.f1() >= b.f1() - EQUAL_F1
}

/// How `spillgate` compares with `jellyfish` in a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Equal,
    Mixed,
    Worse,
}

impl Verdict {
    const ALL: [Verdict; 4] = [
        Verdict::Better,
        Verdict::Equal,
        Verdict::Mixed,
        Verdict::Worse,
    ];
}

fn verdict((jellyfish, spillgate): &(&Means, &Means)) -> Verdict {
    let ours = is_as_good(spillgate, jellyfish);
    match (ours, is_as_good(jellyfish, spillgate)) {
        (true, true) => Verdict::Equal,
        (true, false) => Verdict::Better,
        (false, true) => Verdict::Worse,
        (false, false) => Verdict::Mixed,
    }
}

/// Which of two is nowhere worse. `pairs` are `jellyfish` and `spillgate`, by setting.
pub(super) fn compare(
    given: &Given,
    all: &[Alike],
    pairs: &[(&Means, &Means)],
    report: &mut Report,
) -> anyhow::Result<()> {
    report.say(&format!(
        "## `spillgate` beside `jellyfish`\n\nSettings of each trace and number of clients in which `spillgate` is better: misses no more and has no lower \
         F1, and `jellyfish` does not do the same; equal; mixed: each gains in one; or worse. Misses within {} points and F1 within \
         {EQUAL_F1} are equal.",
        percent(EQUAL_MISSED),
    ));
    let mut table = Vec::new();
    for (trace, _) in &given.traces {
        for clients in given.clients.iter().copied() {
            let chosen = || {
                let both = all.iter().zip(pairs);
                both.filter(move |(a, _)| a.trace == *trace && a.clients == clients)
            };
            let count = |wanted| chosen().filter(|(_, p)| verdict(p) == wanted).count();
            let mut cells = vec![(*trace).to_owned(), clients.to_string()];
            cells.extend(Verdict::ALL.map(|v| count(v).to_string()));
            let gained = |of: fn(&Means) -> f64| mean(chosen().map(|(_, (j, s))| of(s) - of(j)));
            cells.push(format!("{:+.2}", 100.0 * gained(Means::missed)));
            cells.push(format!("{:+.4}", gained(Means::f1)));
            table.push(cells);
        }
    }
    let head = [
        "trace",
        "clients",
        "better",
        "equal",
        "mixed",
        "worse",
        "missed, points",
        "F1",
    ];
    report.table(&head, &table);
    trade_off(given, all, pairs, report)
}

fn changed(method: Method, ms: u64, setting: LoopSetting) -> LoopSetting {
    let parameter = Duration::from_millis(ms);
    match method {
        Method::Spillgate => LoopSetting {
            switch_time: parameter,
            ..setting
        },
        _ => LoopSetting {
            margin: parameter,
            ..setting
        },
    }
}

/// Both with several values of one parameter: which misses and F1 it reaches.
fn trade_off(
    given: &Given,
    all: &[Alike],
    pairs: &[(&Means, &Means)],
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut cases = Vec::new();
    for (method, parameter, values) in PARAMETERS {
        for ms in values {
            cases.extend(all.iter().map(|alike| {
                let rates = given.trace(alike.trace).expect("settings name these");
                let contender = Contender::Adapted(method);
                let (zoo, rates) = (given.zoo.clone(), rates.clone());
                let setting = LoopSetting::new(zoo, rates, alike.cameras(), contender);
                Case {
                    name: alike.name(),
                    contender: format!("{}, {parameter} {ms} ms", method.name()),
                    setting: changed(method, ms, setting),
                }
            }));
        }
    }
    let done = run_cases("tradeoff", &cases, given, report)?;
    report.say(&format!(
        "Misses and F1 by one parameter: for `jellyfish` a margin that is taken from every budget (none by itself), for `spillgate` the time for which \
         a switch is taken to lose requests ({} ms by itself). Means over all settings of a trace: missed in percent, and in \
         brackets F1. Then the settings in which it is better than `jellyfish` by itself, equal, mixed and worse.",
        SWITCH_TIME_DEFAULT.as_millis()
    ));
    let by_itself: [(&str, Vec<&Means>); 2] = [
        ("jellyfish", pairs.iter().map(|p| p.0).collect()),
        ("spillgate", pairs.iter().map(|p| p.1).collect()),
    ];
    let labelled = cases.chunks(all.len()).zip(done.chunks(all.len()));
    let labelled = labelled.map(|(c, means)| (c[0].contender.as_str(), means.iter().collect()));
    let rows = by_itself.into_iter().chain(labelled);
    let table: Vec<Vec<String>> = rows
        .map(|(label, means): (&str, Vec<&Means>)| {
            let mut row = vec![label.to_owned()];
            row.extend(given.traces.iter().map(|(trace, _)| {
                let of_trace = || all.iter().zip(&means).filter(|(a, _)| a.trace == *trace);
                let missed = mean(of_trace().map(|(_, means)| means.missed()));
                let f1 = mean(of_trace().map(|(_, means)| means.f1()));
                format!("{} ({f1:.4})", percent(missed))
            }));
            let verdicts = pairs.iter().zip(&means);
            let verdicts: Vec<Verdict> = verdicts.map(|(p, m)| verdict(&(p.0, m))).collect();
            let counts = Verdict::ALL.map(|v| verdicts.iter().filter(|w| **w == v).count());
            row.extend(counts.map(|n| n.to_string()));
            row
        })
        .collect();
    let mut head = vec!["contender"];
    head.extend(given.traces.iter().map(|(name, _)| *name));
    head.extend(["better", "equal", "mixed", "worse"]);
    report.table(&head, &table);
    Ok(())
}
