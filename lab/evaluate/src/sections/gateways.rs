//! Several gateways that decide together.

use std::time::Duration;

use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy};
use spillgate_sim::{Run, SimConfig};

use super::super::grid::{Case, Grid, Variant};
use super::super::report::{Report, mean};
use super::sweeps::tweak;
use super::{collected, column, drops, percent};

const LOADS: [f64; 1] = [1.0];
const LIGHT: f64 = 0.3;
const GATEWAYS: [usize; 3] = [1, 8, 16];

/// So many gateways that accept equal parts; every message travels.
fn with_gateways(n: usize) -> impl Fn(&mut SimConfig) {
    move |config| {
        config.gateways = vec![1.0; n];
        config.apart = true;
    }
}

fn of(drop: DropPolicy, dispatch: Option<DispatchPolicyName>, n: usize) -> Variant {
    let variant = Variant::of(drop);
    let (variant, name) = match dispatch {
        Some(dispatch) => (variant.dispatch(dispatch), dispatch.name()),
        None => (variant, "its own"),
    };
    variant
        .tweak(tweak(with_gateways(n)))
        .labelled(format!("{}, {name}, {n}", drop.name()))
}

fn pulled(n: usize) -> Variant {
    of(DropPolicy::SPILLGATE, Some(DispatchPolicyName::Pull), n)
}

/// Eight gateways that pull, in another world.
fn changed(label: &str, change: fn(&mut SimConfig)) -> Variant {
    let change = move |config: &mut SimConfig| {
        with_gateways(8)(config);
        change(config);
    };
    pulled(8).tweak(tweak(change)).labelled(label)
}

fn conditions() -> Vec<Variant> {
    vec![
        changed("0.5 ms of jitter", |c| {
            c.jitter = Duration::from_micros(500);
        }),
        changed("2 ms a way", |c| c.hop = Duration::from_millis(2)),
        changed("gateways of unequal load (Zipf)", |c| {
            c.gateways = (1..=8).map(|rank| 1.0 / f64::from(rank)).collect();
        }),
        changed("10% of planner messages lost", |c| c.exchange_loss = 0.1),
    ]
}

pub(super) fn gateways(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    together(grid, report)?;
    by_dispatch(grid, report)?;
    light(grid, report)
}

/// What several gateways that pull lose to one, in the worlds of [`conditions`] too.
fn together(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let one_pushes = of(
        DropPolicy::SPILLGATE,
        Some(DispatchPolicyName::EarliestStart),
        1,
    );
    let mut variants = vec![one_pushes];
    variants.extend(GATEWAYS.map(pulled));
    variants.extend(conditions());
    let rows = collected(grid, report, &grid.cases(&LOADS), &variants)?;
    let dropped: Vec<f64> = (0..variants.len())
        .map(|column| drops(&rows, column, |_| true))
        .collect();
    let line = |(variant, &drop): (&Variant, &f64)| {
        let to = |other: usize| format!("{:+.2}", (drop - dropped[other]) * 100.0);
        vec![variant.label.clone(), percent(drop), to(0), to(1)]
    };
    let table: Vec<Vec<String>> = variants.iter().zip(&dropped).map(line).collect();
    report.say(
        "Requests dropped or late, %, over all windows, and the difference to one gateway in points. The last rows have eight \
         gateways that pull.",
    );
    report.table(
        &[
            "policy, dispatch, gateways",
            "dropped",
            "to one that pushes",
            "to one that pulls",
        ],
        &table,
    );
    Ok(())
}

/// Drops and messages by dispatch, of other policies too.
fn by_dispatch(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let cases = grid.first_windows(&LOADS);
    let ours = [
        DispatchPolicyName::Pull,
        DispatchPolicyName::EarliestStart,
        DispatchPolicyName::LeastOutstanding,
        DispatchPolicyName::RoundRobin,
    ];
    let published = [
        DropPolicy::PARD,
        DropPolicy::NEXUS_SPLIT,
        DropPolicy::CLIPPER_PLUS_PLUS,
    ];
    let mut variants = Vec::new();
    for n in GATEWAYS {
        variants.extend(ours.map(|dispatch| of(DropPolicy::SPILLGATE, Some(dispatch), n)));
        variants.extend(published.map(|drop| of(drop, None, n)));
    }
    let rows = collected(grid, report, &cases, &variants)?;
    let labels: Vec<String> = ours
        .iter()
        .map(|dispatch| format!("spillgate, {}", dispatch.name()))
        .chain(
            published
                .iter()
                .map(|drop| format!("{}, its own", drop.name())),
        )
        .collect();
    by_gateways(report, &rows, &variants, &labels);
    Ok(())
}

/// Drops and messages by policy and number of gateways.
fn by_gateways(report: &mut Report, rows: &[Vec<Run>], variants: &[Variant], labels: &[String]) {
    let mut table = Vec::new();
    for label in labels {
        let columns = GATEWAYS.map(|n| column(variants, &format!("{label}, {n}")));
        let mut line = vec![label.clone()];
        line.extend(columns.map(|c| percent(drops(rows, c, |_| true))));
        for c in columns {
            let messages = mean(rows.iter().map(|r| r[c].report.messages_per_request));
            let bytes = mean(rows.iter().map(|r| r[c].report.bytes_per_request));
            line.push(format!("{messages:.1} / {bytes:.0}"));
        }
        table.push(line);
    }
    report.say(
        "The first window of each trace alone: requests dropped or late, %, by drop policy, dispatch and number of gateways; \
         messages and bytes a request, payloads not counted. Each message takes 0.5 ms, also requests to their worker. *Its \
         own* is the dispatch that the policy brings (least-outstanding).",
    );
    report.table(
        &[
            "policy, dispatch",
            "1 gateway",
            "8",
            "16",
            "messages / bytes: 1",
            "8",
            "16",
        ],
        &table,
    );
}

/// Latency where workers are mostly idle.
fn light(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let cases: Vec<Case> = grid.first_windows(&[LIGHT]);
    let variants = [
        of(
            DropPolicy::SPILLGATE,
            Some(DispatchPolicyName::EarliestStart),
            1,
        ),
        pulled(1),
        pulled(8),
        pulled(16),
    ];
    let rows = collected(grid, report, &cases, &variants)?;
    let mut table = Vec::new();
    for (c, variant) in variants.iter().enumerate() {
        let of = |value: fn(&Run) -> f64| mean(rows.iter().map(|row| value(&row[c])));
        table.push(vec![
            variant.label.clone(),
            format!("{:.2}", of(|run| run.report.latency_ms_p50)),
            format!("{:.2}", of(|run| run.report.latency_ms_p99)),
            percent(of(|run| run.report.drop_rate)),
        ]);
    }
    report.say("At load 0.3, the first window of each trace alone: latency in ms.");
    report.table(
        &["policy, dispatch, gateways", "p50", "p99", "dropped"],
        &table,
    );
    Ok(())
}
