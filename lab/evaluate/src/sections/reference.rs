//! The published policies beside an independent program's figures on the same workload.

use spillgate_controller_policy::plan::PlanName;
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy};

use super::super::grid::{Case, Grid, Variant};
use super::super::report::{Report, mean};
use super::{collected, column, drops, percent, published};

/// Loads of the comparison.
const LOADS: [f64; 2] = [0.9, 1.1];
/// The results of the independent program over loads 0.9 and 1.1: dropped or late, and invalid, %. Beside `spillgate`
/// stands the best variant of that program, on a larger plan.
const FOUND: [(&str, f64, f64); 12] = [
    ("none", 72.1, 68.0),
    ("nexus", 49.8, 27.9),
    ("clipper++", 45.0, 19.2),
    ("pard", 15.24, 2.14),
    ("pard, its ties", 15.24, 2.14),
    ("pard, earliest-start", 12.51, 0.75),
    ("pard, earliest-start, lambda 0.75", 11.92, 0.29),
    ("nexus-split", 16.03, 1.62),
    ("nexus-split, its ties", 16.03, 1.62),
    ("nexus-split, round-robin", 12.97, 0.34),
    ("nexus-split, earliest-start", 11.99, 0.09),
    ("spillgate", 10.65, 0.22),
];

/// The upper bound of that program, as the least share dropped, %.
const BOUND_FOUND: f64 = 10.30;

pub(super) fn reference(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let mut known = published();
    let pard = Variant::of(DropPolicy::PARD).dispatch(DispatchPolicyName::EarliestStart);
    known.push(pard.labelled("pard, earliest-start"));
    let ties = DispatchPolicyName::LeastOutstandingFree;
    for (policy, label) in [
        (DropPolicy::PARD, "pard, its ties"),
        (DropPolicy::NEXUS_SPLIT, "nexus-split, its ties"),
    ] {
        known.push(Variant::of(policy).dispatch(ties).labelled(label));
    }
    let variants = FOUND.map(|(label, ..)| known[column(&known, label)].clone());
    let cases = grid.cases(&LOADS);
    let rows = collected(grid, report, &cases, &variants)?;
    let mut table = Vec::new();
    for (column, (label, drop, invalid)) in FOUND.iter().enumerate() {
        let dropped = drops(&rows, column, |_| true);
        let in_vain = mean(rows.iter().map(|row| row[column].report.invalid_rate));
        table.push(vec![
            (*label).to_owned(),
            format!("{drop:.2}"),
            format!("{invalid:.2}"),
            percent(dropped),
            format!("{:+.2}", dropped * 100.0 - drop),
            percent(in_vain),
        ]);
    }
    let floor = floor(grid, &cases)?;
    table.push(vec![
        "*upper bound*".to_owned(),
        format!("{BOUND_FOUND:.2}"),
        String::new(),
        percent(floor),
        format!("{:+.2}", floor * 100.0 - BOUND_FOUND),
        String::new(),
    ]);
    report.say(
        "Requests dropped or late, %, and invalid device time, %, means over loads 0.9 and 1.1. The columns after \
         \"found\" are those of an independent program that implements the policies of PARD §4 and §5.1; it ran the \
         same workload with its own arrivals. The columns after \"ours\" are those of this simulator. \"off\" is \
         ours minus found, in points. The published policies and the bound are on the reference plan. `spillgate` is \
         on its own plan; \"found\" is there the best variant that the program found with this hand-off. The \
         programs choose differently among workers with equally few requests: the independent one takes the worker \
         that is free first, ours takes the next in turn. The rows \"its ties\" are ours with the other rule \
         (`least-outstanding-free`).",
    );
    report.table(
        &["policy", "found", "invalid", "ours", "off", "invalid"],
        &table,
    );
    let all = |label| drops(&rows, column(&variants, label), |_| true);
    report.say(&format!(
        "`spillgate` drops {} points less than `pard`.",
        percent(all("pard") - all("spillgate"))
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
