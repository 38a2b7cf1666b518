//! `spillgate` beside `jellyfish`, setting by setting.

use std::time::Duration;

use spillgate_jellyfish::adaptation::Method;
use spillgate_jellyfish::cameras::{Contender, LoopSetting};

use super::Given;
use super::loops::Alike;
use super::runs::{Case, Means, Server, percent, run_cases};
use crate::report::{Report, mean};

/// Misses that differ by less are equal: a few frames of a run.
const EQUAL_MISSED: f64 = 0.0005;
/// And such F1.
const EQUAL_F1: f64 = 0.001;
/// By `jellyfish`, what is taken from every budget, in ms.
const MARGINS_MS: [u64; 4] = [2, 4, 8, 16];
/// By `spillgate`, the most load of a worker, in percent.
const LOADS: [u32; 4] = [99, 94, 90, 87];

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
    verdicts(given, all, pairs, report);
    trade_off(given, all, pairs, report)
}

/// How often the second of each pair is better, by trace and number of clients.
fn verdicts(given: &Given, all: &[Alike], pairs: &[(&Means, &Means)], report: &mut Report) {
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
}

/// What serves beside `jellyfish`. `pairs` are `jellyfish` and `adapt: spillgate`, by setting.
pub(super) fn compare_served(
    given: &Given,
    all: &[Alike],
    pairs: &[(&Means, &Means)],
    report: &mut Report,
) {
    report.say(&format!(
        "## `adapt: spillgate` beside `jellyfish`\n\nWhat serves, on the same settings as the scheduler that binds clients to workers. Better: it misses no more and has no \
         lower F1, and `jellyfish` does not do the same; equal; mixed: each gains in one; or worse. Misses within {} points and F1 within {EQUAL_F1} \
         are equal.",
        percent(EQUAL_MISSED),
    ));
    verdicts(given, all, pairs, report);
    report.say("The settings in which it is not better: missed in percent, and in brackets F1.");
    let cell = |means: &Means| format!("{} ({:.4})", percent(means.missed()), means.f1());
    let table: Vec<Vec<String>> = all
        .iter()
        .zip(pairs)
        .filter(|(_, pair)| verdict(pair) != Verdict::Better)
        .map(|(alike, pair)| {
            let verdict = format!("{:?}", verdict(pair)).to_lowercase();
            vec![alike.name(), cell(pair.0), cell(pair.1), verdict]
        })
        .collect();
    report.table(
        &["setting", "jellyfish", "adapt: spillgate", "it is"],
        &table,
    );
}

/// Each method with several values of one parameter, by its name on the page.
fn parameters() -> Vec<(String, Method, Change)> {
    let margin = |ms| {
        let name = format!("jellyfish, margin {ms} ms");
        let change = Change::Margin(Duration::from_millis(ms));
        (name, Method::Jellyfish, change)
    };
    let load = |percent| {
        let name = format!("spillgate, load {percent}%");
        let change = Change::Load(f64::from(percent) / 100.0);
        (name, Method::Spillgate, change)
    };
    let margins = MARGINS_MS.into_iter().map(margin);
    margins.chain(LOADS.into_iter().map(load)).collect()
}

/// What a parameter is changed to.
#[derive(Clone, Copy, Debug)]
enum Change {
    Margin(Duration),
    Load(f64),
}

impl Change {
    fn of(self, mut setting: LoopSetting) -> LoopSetting {
        match self {
            Change::Margin(margin) => setting.margin = margin,
            Change::Load(load_max) => setting.load_max = load_max,
        }
        setting
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
    for (name, method, change) in parameters() {
        cases.extend(all.iter().map(|alike| {
            let rates = given.trace(alike.trace).expect("settings name these");
            let (zoo, rates) = (given.zoo.clone(), rates.clone());
            let setting = LoopSetting::new(zoo, rates, alike.cameras());
            Case {
                name: alike.name(),
                contender: name.clone(),
                server: Server::Loop(Contender::Adapted(method)),
                setting: change.of(setting),
            }
        }));
    }
    let done = run_cases("tradeoff", &cases, given, report)?;
    report.say(
        "Misses and F1 by one parameter: for `jellyfish` a margin that is taken from every budget (none by itself), for `spillgate` the most load of \
         a worker (100% by itself), so that some of its time is kept for frames that come at once. Means over all settings of a trace: missed in percent, and in \
         brackets F1. Then the settings in which it is better than `jellyfish` by itself, equal, mixed and worse.",
    );
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
    let of_load: Vec<&[Means]> = done.chunks(all.len()).skip(MARGINS_MS.len()).collect();
    curves(all, pairs, &of_load, report);
    Ok(())
}

/// The curves of `spillgate` in the settings that are mixed. `of_load`: by load, then by setting.
fn curves(all: &[Alike], pairs: &[(&Means, &Means)], of_load: &[&[Means]], report: &mut Report) {
    report.say(
        "The settings that are mixed, as curves of that parameter: missed in percent, and in brackets F1. The last column is the F1 of `spillgate` where it \
         misses as many as `jellyfish`, on the line between two points of its curve: it is calculated, not run.",
    );
    let point = |means: &Means| (means.missed(), means.f1());
    let cell = |(missed, f1): (f64, f64)| format!("{} ({f1:.4})", percent(missed));
    let mut table = Vec::new();
    for (i, (alike, pair)) in all.iter().zip(pairs).enumerate() {
        if verdict(pair) != Verdict::Mixed {
            continue;
        }
        let by_load = of_load.iter().map(|means| point(&means[i]));
        let curve: Vec<(f64, f64)> = std::iter::once(point(pair.1)).chain(by_load).collect();
        let mut row = vec![alike.name(), cell(point(pair.0))];
        row.extend(curve.iter().map(|p| cell(*p)));
        let at = f1_at(&curve, pair.0.missed());
        row.push(at.map_or(String::new(), |f1| format!("{f1:.4}")));
        table.push(row);
    }
    let mut head = vec!["setting".to_owned(), "jellyfish".to_owned()];
    head.push("spillgate".to_owned());
    head.extend(LOADS.map(|load| format!("load {load}%")));
    head.push("F1 at equal misses".to_owned());
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    report.table(&head, &table);
}

/// The highest F1 that a curve of (missed, F1) reaches with no more misses than that, with one of its points or two of them in turn.
fn f1_at(curve: &[(f64, f64)], missed: f64) -> Option<f64> {
    let (few, many): (Vec<_>, Vec<_>) = curve.iter().partition(|(m, _)| *m <= missed);
    let alone = few.iter().map(|(_, f1)| *f1);
    let between = few.iter().flat_map(|(m0, f0)| {
        let line = move |(m1, f1): &(f64, f64)| f0 + (f1 - f0) * (missed - m0) / (m1 - m0);
        many.iter().map(line)
    });
    alone.chain(between).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_read_at_other_misses() {
        let curve = [(0.04, 0.8), (0.0, 0.4), (0.03, 0.6)];
        let at = |missed| f1_at(&curve, missed);
        // Between the first two: the third lies below their line.
        assert_eq!(at(0.01), Some(0.5));
        assert_eq!(at(0.0), Some(0.4));
        assert_eq!(at(1.0), Some(0.8));
        assert_eq!(at(-1.0), None);
    }
}
