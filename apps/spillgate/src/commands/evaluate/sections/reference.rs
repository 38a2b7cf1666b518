//! The published policies beside an independent program's figures on the same workload.

use spillgate_controller_policy::plan::PlanName;
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicyName};
use spillgate_sim::Run;

use super::super::grid::{Case, Grid, Variant};
use super::super::report::{Report, mean};
use super::{collected, column, drops, percent, published};

/// Loads of the comparison.
const LOADS: [f64; 2] = [0.9, 1.1];
/// By so much the independent program's arrivals are heavier than ours, to judge by its bound: with it our bound is
/// its bound.
const HEAVIER: f64 = 1.012;

/// What the independent program found over loads 0.9 and 1.1: dropped or late and invalid, %. Beside `spillgate` the
/// best that was found there, on a larger plan.
const FOUND: [(&str, f64, f64); 10] = [
    ("none", 72.0, 67.6),
    ("nexus", 50.2, 27.7),
    ("clipper++", 45.6, 19.3),
    ("pard", 15.77, 2.10),
    ("pard, earliest-start", 13.08, 0.74),
    ("pard, earliest-start, lambda 0.75", 12.50, 0.28),
    ("nexus-split", 16.58, 1.61),
    ("nexus-split, round-robin", 13.53, 0.33),
    ("nexus-split, earliest-start", 12.58, 0.09),
    ("spillgate", 11.24, 0.22),
];

/// What it found as its upper bound, as a share dropped, %.
const BOUND_FOUND: f64 = 10.96;

pub(super) fn reference(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let mut known = published();
    let pard = Variant::of(DropPolicyName::Pard).dispatch(DispatchPolicyName::EarliestStart);
    known.push(pard.labelled("pard, earliest-start"));
    let variants = FOUND.map(|(label, ..)| known[column(&known, label)].clone());
    let equal = grid.cases(&LOADS);
    let heavier = grid.cases(&LOADS.map(|load| load * HEAVIER));
    let here = collected(grid, report, &equal, &variants)?;
    let there = collected(grid, report, &heavier, &variants)?;
    let mut table = Vec::new();
    for (column, (label, drop, invalid)) in FOUND.iter().enumerate() {
        let mut cells = vec![
            (*label).to_owned(),
            format!("{drop:.2}"),
            format!("{invalid:.2}"),
        ];
        for rows in [&here, &there] {
            let dropped = drops(rows, column, |_| true);
            let in_vain = mean(rows.iter().map(|row| row[column].report.invalid_rate));
            cells.push(percent(dropped));
            cells.push(format!("{:+.2}", dropped * 100.0 - drop));
            cells.push(percent(in_vain));
        }
        table.push(cells);
    }
    let mut cells = vec![
        "*upper bound*".to_owned(),
        format!("{BOUND_FOUND:.2}"),
        String::new(),
    ];
    for cases in [&equal, &heavier] {
        let floor = floor(grid, cases)?;
        cells.push(percent(floor));
        cells.push(format!("{:+.2}", floor * 100.0 - BOUND_FOUND));
        cells.push(String::new());
    }
    table.push(cells);
    report.say(&format!(
        "Dropped or late and invalid, %, mean over loads 0.9 and 1.1: as an independent program found them (the papers' \
         notes; same workload, its own arrivals), ours at the same load, and ours at {HEAVIER} times that load, where our \
         bound is its bound. \"off\" is ours less the program's, in points. Published policies and the bound are on the \
         reference plan; beside `spillgate`, on its own plan, stands the best variant found there with this hand-off."
    ));
    report.table(
        &[
            "policy",
            "found",
            "invalid",
            "ours",
            "off",
            "invalid",
            "ours, heavier",
            "off",
            "invalid",
        ],
        &table,
    );
    let fewer = |rows: &[Vec<Run>]| {
        let all = |label| drops(rows, column(&variants, label), |_| true);
        percent(all("pard") - all("spillgate"))
    };
    report.say(&format!(
        "`spillgate` drops {} points less than `pard` at the same load, {} at {HEAVIER} times it.",
        fewer(&here),
        fewer(&there)
    ));
    Ok(())
}

fn floor(grid: &Grid, cases: &[Case]) -> anyhow::Result<f64> {
    let floors: anyhow::Result<Vec<f64>> = cases
        .iter()
        .map(|case| Ok(grid.floor(case, PlanName::Reference)?.0))
        .collect();
    Ok(mean(floors?))
}
