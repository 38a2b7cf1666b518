//! Six scenarios in which the shares of a static split go wrong.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller_policy::scaling::{CarriedOut, ScalingConfig};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::PortRef;
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::time::Timestamp;
use spillgate_sim::{Disturbance, Run, Setup, SimConfig, SimScaling};

use super::super::grid::{Case, Grid, Variant, Workload};
use super::super::report::Report;
use super::sweeps::tweak;
use super::{drops, labels, percent, strongest_split};

/// A name, the change of the world, and the change of the pipeline before that.
type Scenario = (&'static str, fn(&mut SimConfig), fn(&Setup) -> Setup);

/// A disturbance comes this often and lasts this long.
const EVERY: u64 = 60;
const LASTS: u64 = 20;
/// Seconds before a scaled worker is given back.
const COOL_DOWN: u64 = 30;

pub(super) fn shifts(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let cases = grid.few_cases(report, &[0.9, 1.0]);
    let scenarios: [Scenario; 6] = [
        (
            "(a) the last module runs for 0.2, 0.8, 0.2 of the requests",
            conditions,
            conditional,
        ),
        (
            "(b) one module half as fast for 20 s of each minute",
            slower,
            Setup::clone,
        ),
        (
            "(c) a worker lost for 20 s of each minute",
            lost,
            Setup::clone,
        ),
        (
            "(d) execution times noisy by 15%",
            |c| c.noise = 0.15,
            Setup::clone,
        ),
        (
            "(e) workers scaled with 10 s cold starts",
            |c| scale(c, 10),
            Setup::clone,
        ),
        (
            "(f) half of the clients with 0.6 SLO",
            |c| c.hurried = Some((0.5, 0.6)),
            Setup::clone,
        ),
    ];
    let policies = || {
        vec![
            Variant::of(DropPolicy::PARD),
            strongest_split(),
            Variant::of(DropPolicy::SPILLGATE),
        ]
    };
    let mut table = Vec::new();
    let mut gains = Vec::new();
    for (name, change, prepare) in scenarios {
        let variants: Vec<Variant> = policies()
            .into_iter()
            .map(|v| v.tweak(tweak(change)))
            .collect();
        let rows = grid.run_on(&cases, &variants, &|_: &Workload, setup| prepare(setup))?;
        keep(grid, report, &cases, &variants, &rows, name);
        let dropped: Vec<f64> = (0..3)
            .map(|column| drops(&rows, column, |_| true))
            .collect();
        gains.push(dropped[1] - dropped[2]);
        table.push(vec![
            name.to_owned(),
            percent(dropped[0]),
            percent(dropped[1]),
            percent(dropped[2]),
            percent(dropped[1] - dropped[2]),
        ]);
    }
    report.say(
        "Requests dropped, late, or failed with a lost worker, %, mean over loads 0.9 and 1.0. The last column says \
         by how many points `spillgate` drops less than the strongest variant of `nexus-split`.",
    );
    report.table(
        &[
            "scenario",
            "pard",
            "nexus-split, est., our plan, gate",
            "spillgate",
            "points fewer",
        ],
        &table,
    );
    let worst = gains.iter().copied().fold(f64::MAX, f64::min);
    let mean = super::super::report::mean(gains.iter().copied());
    report.say(&format!(
        "Mean over the scenarios: {} points fewer; in the worst scenario {}.",
        percent(mean),
        percent(worst)
    ));
    Ok(())
}

/// Scaled workers: half of the plan at least, half as many again at most.
fn scale(config: &mut SimConfig, cold_start: u64) {
    let planned = config.planned.clone();
    let most: Vec<u32> = config.workers.iter().map(|w| w.len() as u32).collect();
    let throughput = (0..most.len())
        .map(|m| {
            let module = ModuleId(m as u16);
            f64::from(planned.batch[m]) / planned.duration(module).as_secs_f64()
        })
        .collect();
    config.scaling = Some(SimScaling {
        config: ScalingConfig {
            least: most.iter().map(|n| n.div_ceil(2)).collect(),
            most: most.iter().map(|n| n + n.div_ceil(2)).collect(),
            throughput,
            cool_down: Duration::from_secs(COOL_DOWN),
            carried_out: CarriedOut::Here,
        },
        cold_start: Duration::from_secs(cold_start),
    });
    let mut next = config.workers.iter().flatten().max().map_or(0, |d| d + 1);
    for (workers, n) in config.workers.iter_mut().zip(most) {
        for _ in 0..n.div_ceil(2) {
            workers.push(next);
            next += 1;
        }
    }
}

pub(super) fn scaling(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let cases = grid.few_cases(report, &[0.9, 1.1]);
    let policies = [
        Variant::of(DropPolicy::NEXUS),
        Variant::of(DropPolicy::CLIPPER_PLUS_PLUS),
        Variant::of(DropPolicy::PARD),
        strongest_split(),
        Variant::of(DropPolicy::SPILLGATE),
    ];
    let mut table = Vec::new();
    for cold_start in [0, 5, 10, 30] {
        let variants: Vec<Variant> = policies
            .iter()
            .map(|v| v.clone().tweak(tweak(move |c| scale(c, cold_start))))
            .collect();
        let rows = grid.run(&cases, &variants)?;
        keep(
            grid,
            report,
            &cases,
            &variants,
            &rows,
            &format!("{cold_start:>2}s"),
        );
        let mut cells = vec![format!("{cold_start} s")];
        cells.extend((0..variants.len()).map(|column| percent(drops(&rows, column, |_| true))));
        table.push(cells);
    }
    report.say(
        "Dropped or late, %, mean over loads 0.9 and 1.1, by cold start. Workers follow the offered rate, from half \
         of the plan's number to one and a half times that number. A worker is given back when fewer have been \
         enough for 30 s.",
    );
    let names = labels(&policies);
    let mut head = vec!["cold start"];
    head.extend(names.iter().map(String::as_str));
    report.table(&head, &table);
    Ok(())
}

fn keep(
    grid: &Grid,
    report: &mut Report,
    cases: &[Case],
    variants: &[Variant],
    rows: &[Vec<Run>],
    name: &str,
) {
    for (case, row) in cases.iter().zip(rows) {
        let short: String = name.chars().take(3).collect();
        let name = format!("{short} {}", grid.name(case));
        report.runs(&name, &labels(variants), row);
    }
}

fn second(n: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(n)
}

/// The last module gets a `when:`; plans count with half of the requests running it.
fn conditional(setup: &Setup) -> Setup {
    let mut pipeline = Pipeline::clone(&setup.pipeline);
    let last = ModuleId(pipeline.modules.len() as u16 - 1);
    let before = pipeline.predecessors(last)[0];
    pipeline.modules[last.idx()].when = Some(PortRef {
        module: before,
        port: 0,
    });
    if let Some(edge) = pipeline
        .graph
        .find_edge((before.idx() as u32).into(), (last.idx() as u32).into())
    {
        pipeline.graph[edge].condition = true;
    }
    let mut share = vec![1.0; pipeline.modules.len()];
    share[last.idx()] = 0.5;
    Setup {
        pipeline: Arc::new(pipeline),
        share,
        ..setup.clone()
    }
}

fn conditions(config: &mut SimConfig) {
    config.when_probability = 0.2;
    let end = config.duration.as_secs();
    for (i, from) in (0..end).step_by(EVERY as usize).enumerate() {
        let probability = if i % 2 == 0 { 0.2 } else { 0.8 };
        config
            .disturbances
            .push((second(from), Disturbance::When(probability)));
    }
}

/// Modules take turns, the source has none.
fn module_of(config: &SimConfig, i: usize) -> ModuleId {
    ModuleId((i % (config.pipeline.modules.len() - 1) + 1) as u16)
}

fn slower(config: &mut SimConfig) {
    let end = config.duration.as_secs();
    for (i, from) in (EVERY / 2..end).step_by(EVERY as usize).enumerate() {
        let module = module_of(config, i);
        config
            .disturbances
            .push((second(from), Disturbance::Pace(module, 2.0)));
        config
            .disturbances
            .push((second(from + LASTS), Disturbance::Pace(module, 1.0)));
    }
}

fn lost(config: &mut SimConfig) {
    let end = config.duration.as_secs();
    for (i, from) in (EVERY / 2..end).step_by(EVERY as usize).enumerate() {
        let module = module_of(config, i);
        config
            .disturbances
            .push((second(from), Disturbance::Down(module, 0)));
        config
            .disturbances
            .push((second(from + LASTS), Disturbance::Up(module, 0)));
    }
}
