//! One number varied, everything else equal.

use std::sync::Arc;
use std::time::Duration;

use spillgate_chart::lines::Series;
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy};

use super::super::grid::{Case, Grid, Tweak, Variant};
use super::super::report::Report;
use super::{collected, drops, percent, strongest_split};

/// A table and a plot of the mean drop rate over values, one curve a policy.
fn sweep<V: Copy + Into<f64>>(
    grid: &Grid,
    report: &mut Report,
    (name, axis): (&str, &str),
    cases: &[Case],
    policies: &[Variant],
    values: &[V],
    set: impl Fn(Variant, V) -> Variant,
) -> anyhow::Result<()> {
    let mut variants = Vec::new();
    for policy in policies {
        for &value in values {
            let label = format!("{} {}", policy.label, value.into());
            variants.push(set(policy.clone(), value).labelled(label));
        }
    }
    let rows = collected(grid, report, cases, &variants)?;
    let mut table = Vec::new();
    let mut series = Vec::new();
    for (i, policy) in policies.iter().enumerate() {
        let at = |j: usize| drops(&rows, i * values.len() + j, |_| true);
        let mut cells = vec![policy.label.clone()];
        cells.extend((0..values.len()).map(|j| percent(at(j))));
        table.push(cells);
        series.push(Series {
            label: policy.label.clone(),
            points: values
                .iter()
                .enumerate()
                .map(|(j, v)| ((*v).into(), at(j) * 100.0))
                .collect(),
        });
    }
    let mut head = vec![axis.to_owned()];
    head.extend(values.iter().map(|v| (*v).into().to_string()));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    report.table(&head, &table);
    report.chart(
        name,
        &format!("Dropped or late by {axis}"),
        (axis, "%"),
        &series,
    );
    Ok(())
}

fn pard() -> Variant {
    Variant::of(DropPolicy::PARD)
}

fn ours() -> Variant {
    Variant::of(DropPolicy::SPILLGATE)
}

pub(super) fn lambda(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let est = pard()
        .dispatch(DispatchPolicyName::EarliestStart)
        .labelled("pard, earliest-start");
    let cases = grid.few_cases(report, &[0.9, 1.1]);
    report.say(
        "Dropped or late, %, mean over loads 0.9 and 1.1. `spillgate` binds late and so has no batch waits: lambda \
         changes it little.",
    );
    let values = [0.0, 0.1, 0.3, 0.5, 0.75, 0.95, 1.0];
    sweep(
        grid,
        report,
        ("lambda", "lambda"),
        &cases,
        &[pard(), est, ours()],
        &values,
        Variant::lambda,
    )
}

pub(super) fn window(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let cases = grid.few_cases(report, &[0.9, 1.1]);
    report.say("Dropped or late, %, mean over loads 0.9 and 1.1.");
    let values = [1.0, 2.0, 5.0, 10.0, 20.0];
    sweep(
        grid,
        report,
        ("window", "window, s"),
        &cases,
        &[pard(), ours()],
        &values,
        |v, s| v.window(Duration::from_secs_f64(s)),
    )
}

pub(super) fn slo(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    report.say("Dropped or late at load 0.9, %, with the SLO multiplied by a factor. Plan and load stay the same.");
    let cases = grid.few_cases(report, &[0.9]);
    let policies = [
        Variant::of(DropPolicy::NEXUS),
        Variant::of(DropPolicy::CLIPPER_PLUS_PLUS),
        pard(),
        strongest_split(),
        ours(),
    ];
    let values = [0.8, 0.9, 1.0, 1.25, 1.5, 2.0];
    sweep(
        grid,
        report,
        ("slo", "SLO factor"),
        &cases,
        &policies,
        &values,
        Variant::slo,
    )
}

pub(super) fn stress(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let policies = [
        Variant::of(DropPolicy::NONE),
        Variant::of(DropPolicy::NEXUS),
        Variant::of(DropPolicy::CLIPPER_PLUS_PLUS),
        pard(),
        strongest_split(),
        ours(),
    ];
    let loads = [0.5, 0.7, 0.9, 1.1, 1.4, 2.0];
    let cases = grid.few_cases(report, &loads);
    let rows = collected(grid, report, &cases, &policies)?;
    let mut table = Vec::new();
    let mut series = Vec::new();
    for (column, policy) in policies.iter().enumerate() {
        // Goodput as a share of the capacity that the reference plan has.
        let share = |load: f64| {
            let at = rows.iter().zip(&cases).filter(|(_, c)| c.load == load);
            let share = at.map(|(row, c)| (1.0 - row[column].report.drop_rate) * c.load);
            super::super::report::mean(share)
        };
        let mut cells = vec![policy.label.clone()];
        cells.extend(loads.map(|load| format!("{:.3}", share(load))));
        table.push(cells);
        series.push(Series {
            label: policy.label.clone(),
            points: loads.map(|load| (load, share(load))).to_vec(),
        });
    }
    report.say("Goodput divided by the capacity of the reference plan, by load.");
    let head: Vec<String> = std::iter::once("load".to_owned())
        .chain(loads.map(|l| l.to_string()))
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    report.table(&head, &table);
    report.chart(
        "load",
        "Goodput by load",
        ("load", "goodput / capacity"),
        &series,
    );
    Ok(())
}

pub(super) fn sensitivity(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let cases = grid.few_cases(report, &[0.9]);
    let policies = [pard(), strongest_split(), ours()];
    report.say(
        "All tables: dropped or late at load 0.9, %. In this one execution times are multiplied by a normal factor \
         with this standard deviation.",
    );
    sweep(
        grid,
        report,
        ("noise", "noise"),
        &cases,
        &policies,
        &[0.0, 0.05, 0.15, 0.3],
        |v, noise| v.tweak(tweak(move |c| c.noise = noise)),
    )?;
    report.say("Part of the state messages between planners that is lost.");
    sweep(
        grid,
        report,
        ("loss", "states lost"),
        &cases,
        &policies,
        &[0.0, 0.1, 0.5, 0.9],
        |v, loss| v.tweak(tweak(move |c| c.exchange_loss = loss)),
    )?;
    report.say("The clock of each device is off by at most this many ms.");
    sweep(
        grid,
        report,
        ("skew", "skew, ms"),
        &cases,
        &policies,
        &[0.0, 1.0, 5.0, 20.0],
        |v, skew| {
            v.tweak(tweak(move |c| {
                c.clock_skew = Duration::from_secs_f64(skew * 1e-3)
            }))
        },
    )?;
    report.say(
        "The hand-off is the time from the moment a device becomes free to the start of a batch that is bound only \
         then, ms. `spillgate` binds a batch this long before the device is expected to be free. The hand-off \
         therefore delays only a batch on an idle device and a batch after one that ended early.",
    );
    sweep(
        grid,
        report,
        ("handoff", "hand-off, ms"),
        &cases,
        &policies,
        &[0.0, 0.5, 2.0, 5.0],
        |v, handoff| {
            v.tweak(tweak(move |c| {
                c.handoff = Duration::from_secs_f64(handoff * 1e-3)
            }))
        },
    )
}

pub(crate) fn tweak(
    change: impl Fn(&mut spillgate_sim::SimConfig) + Send + Sync + 'static,
) -> Tweak {
    Arc::new(change)
}
