//! The sections of the evaluation.

pub(crate) mod adapting;
mod gateways;
mod reference;
mod shifts;
pub(crate) mod sweeps;

use std::collections::BTreeMap;

use spillgate_controller_policy::plan::PlanName;
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy};
use spillgate_recipes::drops;
use spillgate_sim::Run;

use super::grid::{Case, Grid, Variant};
use super::report::{Report, mean};

/// A section.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) run: fn(&Grid, &mut Report) -> anyhow::Result<()>,
}

const fn section(
    name: &'static str,
    title: &'static str,
    run: fn(&Grid, &mut Report) -> anyhow::Result<()>,
) -> Section {
    Section { name, title, run }
}

/// All, in order.
pub(super) const ALL: [Section; 14] = [
    section("overall", "Every policy on the reference workload", overall),
    section(
        "reference",
        "Published policies beside an independent program",
        reference::reference,
    ),
    section("modules", "Where requests are dropped", modules),
    section("ablations", "PARD's ablations", ablations),
    section("ours", "What each part of spillgate brings", ours),
    section(
        "lambda",
        "The quantile of the waits downstream",
        sweeps::lambda,
    ),
    section("window", "The length of the sliding window", sweeps::window),
    section("slo", "Shorter and longer objectives", sweeps::slo),
    section("stress", "From half to twice the capacity", sweeps::stress),
    section(
        "sensitivity",
        "Noise, lost states, skewed clocks, hand-off",
        sweeps::sensitivity,
    ),
    section(
        "scaling",
        "Scaled workers with cold starts",
        shifts::scaling,
    ),
    section(
        "shifts",
        "Scenarios in which a static split goes wrong",
        shifts::shifts,
    ),
    section(
        "gateways",
        "Several gateways that decide together",
        gateways::gateways,
    ),
    section(
        "adapting",
        "Smaller variants before dropped requests",
        adapting::adapting,
    ),
];

/// The strongest baseline: Nexus' window on a static split, with our dispatch, our gate and our plan.
pub(super) fn strongest_split() -> Variant {
    Variant::of(DropPolicy::NEXUS_SPLIT)
        .dispatch(DispatchPolicyName::EarliestStart)
        .plan(PlanName::Spillgate)
        .gate(1.03)
        .labelled("nexus-split, est., our plan, gate")
}

/// Labels of variants.
pub(super) fn labels(variants: &[Variant]) -> Vec<String> {
    variants.iter().map(|v| v.label.clone()).collect()
}

/// `12.34`, of a share.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// Runs and keeps the runs for the file.
pub(super) fn collected(
    grid: &Grid,
    report: &mut Report,
    cases: &[Case],
    variants: &[Variant],
) -> anyhow::Result<Vec<Vec<Run>>> {
    let rows = grid.run(cases, variants)?;
    for (case, row) in cases.iter().zip(&rows) {
        report.runs(&grid.name(case), &labels(variants), row);
    }
    Ok(rows)
}

/// Ordinal of the variant with this label.
pub(super) fn column(variants: &[Variant], label: &str) -> usize {
    let found = variants.iter().position(|v| v.label == label);
    found.unwrap_or_else(|| panic!("a section names \"{label}\", which it does not run"))
}

/// Mean drop rate of a column over the rows that `choose` picks.
pub(super) fn drops(rows: &[Vec<Run>], column: usize, choose: impl Fn(usize) -> bool) -> f64 {
    let chosen = rows.iter().enumerate().filter(|(i, _)| choose(*i));
    mean(chosen.map(|(_, row)| row[column].report.drop_rate))
}

fn published() -> Vec<Variant> {
    let est = DispatchPolicyName::EarliestStart;
    vec![
        Variant::of(DropPolicy::NONE),
        Variant::of(DropPolicy::DEADLINE),
        Variant::of(DropPolicy::NEXUS),
        Variant::of(DropPolicy::CLIPPER_PLUS_PLUS),
        Variant::of(DropPolicy::PARD),
        Variant::of(DropPolicy::PARD)
            .dispatch(est)
            .lambda(0.75)
            .labelled("pard, earliest-start, lambda 0.75"),
        Variant::of(DropPolicy::NEXUS_SPLIT),
        Variant::of(DropPolicy::NEXUS_SPLIT)
            .dispatch(DispatchPolicyName::RoundRobin)
            .labelled("nexus-split, round-robin"),
        Variant::of(DropPolicy::NEXUS_SPLIT)
            .dispatch(est)
            .labelled("nexus-split, earliest-start"),
        strongest_split(),
        Variant::of(DropPolicy::SPILLGATE)
            .plan(PlanName::Reference)
            .labelled("spillgate, reference plan"),
        Variant::of(DropPolicy::SPILLGATE),
    ]
}

fn overall(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let variants = published();
    let cases = grid.cases(&[0.7, 0.9, 1.0, 1.1]);
    let rows = collected(grid, report, &cases, &variants)?;
    let heavy = |i: usize| cases[i].load == 0.9 || cases[i].load == 1.1;
    let mut table = Vec::new();
    for (column, variant) in variants.iter().enumerate() {
        let at = |load: f64| percent(drops(&rows, column, |i| cases[i].load == load));
        let chosen = || {
            rows.iter()
                .enumerate()
                .filter(|(i, _)| heavy(*i))
                .map(|(_, r)| &r[column])
        };
        table.push(vec![
            variant.label.clone(),
            variant.contender.plan().name().to_owned(),
            at(0.7),
            at(0.9),
            at(1.0),
            at(1.1),
            percent(drops(&rows, column, heavy)),
            percent(mean(chosen().map(|r| r.report.invalid_rate))),
            format!(
                "{:.3}",
                mean(chosen().map(|r| r.report.goodput / r.optimal_goodput))
            ),
            format!("{:.1}", mean(chosen().map(|r| r.report.latency_ms_p50))),
        ]);
    }
    floors(grid, &cases, &mut table)?;
    report.say(
        "Requests dropped or late, %, by load. The columns from \"0.9 & 1.1\" on are means over these two loads: \
         requests dropped or late, %; device time spent on requests that did not complete in time (invalid, %); \
         goodput over PARD's optimal goodput on the run's own plan; median latency.",
    );
    report.table(
        &[
            "policy",
            "plan",
            "0.7",
            "0.9",
            "1.0",
            "1.1",
            "0.9 & 1.1",
            "invalid",
            "of optimal",
            "p50 ms",
        ],
        &table,
    );
    let mut table = Vec::new();
    for (column, variant) in variants.iter().enumerate() {
        let mut cells = vec![variant.label.clone()];
        for workload in 0..grid.workloads.len() {
            cells.push(percent(drops(&rows, column, |i| {
                heavy(i) && cases[i].workload == workload
            })));
        }
        for trace in traces(grid) {
            cells.push(percent(drops(&rows, column, |i| {
                heavy(i) && grid.windows[cases[i].window].trace == trace
            })));
        }
        table.push(cells);
    }
    report.say("The same drop rates by pipeline and by trace.");
    let names = grid.workloads.iter().map(|w| w.name);
    let traces = traces(grid);
    let mut head = vec!["policy"];
    head.extend(names);
    head.extend(traces.iter().map(String::as_str));
    report.table(&head, &table);
    pairings(report, &cases, &variants, &rows);
    claims(report, &cases, &variants, &rows);
    Ok(())
}

/// Rows of the part that every policy must drop (`sim/src/bound.rs` has the proof).
fn floors(grid: &Grid, cases: &[Case], table: &mut Vec<Vec<String>>) -> anyhow::Result<()> {
    let floors = |plan: PlanName| -> anyhow::Result<Vec<(f64, f64)>> {
        cases.iter().map(|case| grid.floor(case, plan)).collect()
    };
    let (reference, ours) = (floors(PlanName::Reference)?, floors(PlanName::Spillgate)?);
    let mut row = |label: &str, plan: &str, of: &dyn Fn(usize) -> f64| {
        let at = |loads: &[f64]| {
            let chosen = (0..cases.len()).filter(|i| loads.contains(&cases[*i].load));
            percent(mean(chosen.map(of)))
        };
        let mut cells = vec![format!("*{label}*"), plan.to_owned()];
        cells.extend([0.7, 0.9, 1.0, 1.1].map(|load| at(&[load])));
        cells.push(at(&[0.9, 1.1]));
        cells.extend(["", "", ""].map(str::to_owned));
        table.push(cells);
    };
    row("upper bound", "reference", &|i| reference[i].0);
    row("upper bound", "spillgate", &|i| ours[i].0);
    row("upper bound", "any", &|i| ours[i].1);
    Ok(())
}

fn traces(grid: &Grid) -> Vec<String> {
    let mut all: Vec<String> = grid.windows.iter().map(|w| w.trace.clone()).collect();
    all.dedup();
    all
}

/// `spillgate` against each other column, case by case, at loads 0.9 and 1.1.
fn pairings(report: &mut Report, cases: &[Case], variants: &[Variant], rows: &[Vec<Run>]) {
    let ours = variants.len() - 1;
    let mut table = Vec::new();
    for (column, variant) in variants.iter().enumerate().take(ours) {
        let gains: Vec<f64> = cases
            .iter()
            .zip(rows)
            .filter(|(case, _)| case.load == 0.9 || case.load == 1.1)
            .map(|(_, row)| row[column].report.drop_rate - row[ours].report.drop_rate)
            .collect();
        let wins = gains.iter().filter(|g| **g > 0.0).count();
        table.push(vec![
            variant.label.clone(),
            percent(mean(gains.iter().copied())),
            format!("{wins} of {}", gains.len()),
            percent(gains.iter().copied().fold(f64::MAX, f64::min)),
        ]);
    }
    report.say(
        "`spillgate` against each other row, case by case at loads 0.9 and 1.1: by how many points it drops less, in \
         how many cases it drops less, and the worst case.",
    );
    report.table(&["against", "points fewer", "fewer in", "worst"], &table);
}

/// PARD's headline: against the better of Nexus and Clipper++, where either drops over 2%.
fn claims(report: &mut Report, cases: &[Case], variants: &[Variant], rows: &[Vec<Run>]) {
    let (nexus, clipper) = (column(variants, "nexus"), column(variants, "clipper++"));
    let mut table = Vec::new();
    for name in ["pard", "spillgate"] {
        let mine = column(variants, name);
        let (mut gain, mut drop, mut invalid) = (Vec::new(), Vec::new(), Vec::new());
        for (case, row) in cases.iter().zip(rows) {
            let (a, b) = (&row[nexus].report, &row[clipper].report);
            if case.load > 1.0 || a.drop_rate.max(b.drop_rate) <= 0.02 {
                continue;
            }
            let best = if a.goodput > b.goodput { a } else { b };
            let me = &row[mine].report;
            gain.push(me.goodput / best.goodput - 1.0);
            // A run without a drop would divide by nothing: half a request stands in.
            let least = 0.5 / me.requests as f64;
            drop.push(best.drop_rate / me.drop_rate.max(least));
            invalid.push(best.invalid_rate / me.invalid_rate.max(least));
        }
        let (least, most) = gain
            .iter()
            .fold((f64::MAX, f64::MIN), |(a, b), g| (a.min(*g), b.max(*g)));
        // Ratios are averaged by their geometric mean: a ratio with a tiny divisor must not dominate.
        let ratio = |r: &[f64]| format!("{:.1}", mean(r.iter().map(|x| x.max(1e-9).ln())).exp());
        table.push(vec![
            name.to_owned(),
            gain.len().to_string(),
            format!("{:+.0}", mean(gain.iter().copied()) * 100.0),
            format!("{:+.0} to {:+.0}", least * 100.0, most * 100.0),
            ratio(&drop),
            ratio(&invalid),
        ]);
    }
    report.say(
        "`pard` and `spillgate` against the better of `nexus` and `clipper++`, in the cases at loads 0.7, 0.9 and \
         1.0 where either of those drops over 2%: the gain in goodput (%), its range, and the factors by which drop \
         rate and invalid rate are lower (geometric means). PARD's abstract claims +16% to +176% and factors of 1.6 \
         to 17 and of 1.5 to 62.",
    );
    report.table(
        &[
            "policy",
            "cases",
            "goodput",
            "range",
            "drop ratio",
            "invalid ratio",
        ],
        &table,
    );
}

fn modules(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let variants: Vec<Variant> = [
        DropPolicy::NEXUS,
        DropPolicy::CLIPPER_PLUS_PLUS,
        DropPolicy::PARD,
        DropPolicy::NEXUS_SPLIT,
        DropPolicy::SPILLGATE,
    ]
    .map(Variant::of)
    .to_vec();
    let cases = grid.few_cases(report, &[1.0]);
    let rows = collected(grid, report, &cases, &variants)?;
    report.say(
        "Drops by module at load 1.0, % of all drops. `source` stands for the entry gate. A drop at a later module \
         has cost more device time. The last column is the late requests, % of all requests.",
    );
    for (workload, w) in grid.workloads.iter().enumerate() {
        let names: Vec<&str> = w
            .setup
            .pipeline
            .modules
            .iter()
            .map(|m| m.name.as_str())
            .collect();
        let mut table = Vec::new();
        for (column, variant) in variants.iter().enumerate() {
            let mut by_module: BTreeMap<&str, u64> = BTreeMap::new();
            let (mut late, mut requests) = (0, 0);
            for (_, row) in cases
                .iter()
                .zip(&rows)
                .filter(|(c, _)| c.workload == workload)
            {
                let r = &row[column].report;
                late += r.late;
                requests += r.requests;
                for (module, reasons) in &r.drops {
                    let name = names.iter().find(|n| *n == module).copied().unwrap_or("?");
                    *by_module.entry(name).or_default() += reasons.values().sum::<u64>();
                }
            }
            let all: u64 = by_module.values().sum();
            let mut cells = vec![variant.label.clone()];
            for name in &names {
                let n = by_module.get(name).copied().unwrap_or(0);
                cells.push(format!("{:.1}", 100.0 * n as f64 / all.max(1) as f64));
            }
            cells.push(percent(late as f64 / requests.max(1) as f64));
            table.push(cells);
        }
        let mut head = vec![w.name];
        head.extend(&names);
        head.push("late");
        report.table(&head, &table);
    }
    Ok(())
}

/// Mean drop and invalid rates of variants over cases, as a table.
fn compared(
    grid: &Grid,
    report: &mut Report,
    cases: &[Case],
    variants: &[Variant],
) -> anyhow::Result<()> {
    let rows = collected(grid, report, cases, variants)?;
    let base = drops(&rows, 0, |_| true);
    let table: Vec<Vec<String>> = variants
        .iter()
        .enumerate()
        .map(|(column, variant)| {
            let dropped = drops(&rows, column, |_| true);
            vec![
                variant.label.clone(),
                percent(dropped),
                format!("{:+.2}", (dropped - base) * 100.0),
                percent(mean(rows.iter().map(|r| r[column].report.invalid_rate))),
            ]
        })
        .collect();
    report.table(
        &["variant", "dropped or late %", "points more", "invalid %"],
        &table,
    );
    Ok(())
}

fn ablations(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let variants: Vec<Variant> = [
        DropPolicy::PARD,
        drops::PARD_BACK,
        drops::PARD_SF,
        drops::PARD_OC,
        drops::PARD_SPLIT,
        drops::PARD_WCL,
        drops::PARD_LOWER,
        drops::PARD_UPPER,
        drops::PARD_FCFS,
        drops::PARD_HBF,
        drops::PARD_LBF,
        drops::PARD_INSTANT,
    ]
    .map(Variant::of)
    .to_vec();
    let cases = grid.few_cases(report, &[0.9, 1.1]);
    report.say(
        "Means over loads 0.9 and 1.1, with `least-outstanding` dispatch on the reference plan. \"points more\" is \
         the difference to the first row.",
    );
    compared(grid, report, &cases, &variants)
}

fn ours(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let ours = || Variant::of(DropPolicy::SPILLGATE);
    let variants = vec![
        ours(),
        ours().gate(0.0).labelled("without the gate"),
        Variant::of(drops::SPILLGATE_NODOOR).labelled("without the door"),
        Variant::of(drops::SPILLGATE_NODOOR)
            .gate(0.0)
            .labelled("without gate and door"),
        ours().gate(1.03).labelled("gate at 1.03"),
        ours().gate(1.06).labelled("gate at 1.06"),
        ours().plan(PlanName::Reference).labelled("reference plan"),
        ours()
            .dispatch(DispatchPolicyName::LeastOutstanding)
            .labelled("least-outstanding"),
        ours()
            .dispatch(DispatchPolicyName::RoundRobin)
            .labelled("round-robin"),
        Variant::of(drops::SPILLGATE_AHEAD).labelled("bound a batch ahead, PARD's order"),
        Variant::of(drops::SPILLGATE_HBF).labelled("always highest budget first"),
        Variant::of(drops::SPILLGATE_LBF).labelled("always lowest budget first"),
        ours().lambda(0.1).labelled("lambda 0.1"),
        ours().lambda(0.9).labelled("lambda 0.9"),
    ];
    let cases = grid.few_cases(report, &[0.9, 1.1]);
    report.say(
        "Means over loads 0.9 and 1.1. Each row changes one part of `spillgate`. \"points more\" is the difference \
         to the first row.",
    );
    compared(grid, report, &cases, &variants)
}
