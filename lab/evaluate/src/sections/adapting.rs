//! Smaller variants, drops, or both, on bursty traces: the first module of each pipeline has the sizes of the shipped detector.

use std::sync::Arc;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline;
use spillgate_pipeline::policy::{Adapt, AdaptName, DropPolicy};
use spillgate_sim::{Run, Setup, SimConfig};

use super::super::grid::{Grid, Variant, Workload};
use super::super::report::{Report, mean};
use super::sweeps::tweak;
use super::{labels, percent};

/// The module with variants.
pub(crate) const DETECT: ModuleId = ModuleId(1);
/// Of the shipped detector at 128, 192, 256 and 320 pixels: accuracy, and execution time over that of the last one.
const SIZES: [(f64, f64); 4] = [(0.593, 0.22), (0.783, 0.41), (0.856, 0.66), (0.872, 1.0)];
/// Modules behind the one with variants have so many times the workers of the plan.
const ROOM: u32 = 3;
const LOADS: [f64; 5] = [0.5, 0.8, 1.0, 1.3, 2.0];

pub(super) fn adapting(grid: &Grid, report: &mut Report) -> anyhow::Result<()> {
    let cases = grid.few_cases(report, &LOADS);
    let variants: Vec<Variant> = [
        (DropPolicy::NONE, false),
        (DropPolicy::PARD, false),
        (DropPolicy::SPILLGATE, false),
        (DropPolicy::NONE, true),
        (DropPolicy::PARD, true),
        (DropPolicy::SPILLGATE, true),
    ]
    .into_iter()
    .map(|(drop, adapts)| {
        let how = if adapts { "chosen" } else { "the largest" };
        Variant::of(drop)
            .labelled(format!("{}, {how}", drop.name()))
            .tweak(tweak(move |config| {
                let adapt = adapts.then(|| Adapt::new(DETECT, AdaptName::Spillgate));
                prepare(config, adapt);
            }))
    })
    .collect();
    let with_sizes = |_: &Workload, setup: &Setup| with_sizes(setup);
    let rows = grid.run_on(&cases, &variants, &with_sizes)?;
    for (case, row) in cases.iter().zip(&rows) {
        report.runs(&grid.name(case), &labels(&variants), row);
    }
    let sizes = SIZES.map(|(accuracy, time)| format!("{accuracy} in {time} of its time"));
    report.say(&format!(
        "The first module of each pipeline has the sizes of the shipped detector: an accuracy of {}. Its time is that of the pipeline's own \
         profile. The others have {ROOM} times the workers of the plan, so the first one is what there is too little of. A load of 1 \
         is what the largest variant carries. No client takes part: all requests are one stream, which may be divided between two \
         variants. *Chosen* is `adapt: spillgate`, *the largest* is `adapt: fixed`. `none` drops nothing: with *chosen* it is \
         adaptation alone.",
        sizes.join(", ")
    ));
    let table = |value: &dyn Fn(&Run) -> f64, show: &dyn Fn(f64) -> String| {
        let cells = |load: f64| {
            let of_load = |column: usize| {
                let rows = cases.iter().zip(&rows).filter(|(c, _)| c.load == load);
                show(mean(rows.map(|(_, row)| value(&row[column]))))
            };
            let mut cells = vec![load.to_string()];
            cells.extend((0..variants.len()).map(of_load));
            cells
        };
        LOADS.map(cells).to_vec()
    };
    let names = labels(&variants);
    let mut head = vec!["load"];
    head.extend(names.iter().map(String::as_str));
    let offered = |run: &Run| run.report.requests as f64;
    report.say(
        "Goodput weighted by accuracy: the accuracies of the requests in time, over those of all requests with the largest variant, %.",
    );
    report.table(&head, &table(&weighted, &percent));
    report.say("Requests in time, of all, %.");
    let good = |run: &Run| run.report.good as f64 / offered(run);
    report.table(&head, &table(&good, &percent));
    report.say("Mean accuracy of the requests in time.");
    let accuracy =
        |run: &Run| run.report.goodput_weighted.unwrap_or_default() / run.report.goodput.max(1e-9);
    report.table(&head, &table(&accuracy, &|value| format!("{value:.3}")));
    let column = |label: &str| super::column(&variants, label);
    let (alone, both) = (
        column("spillgate, the largest"),
        column("spillgate, chosen"),
    );
    let gains = cases.iter().zip(&rows).map(|(case, row)| {
        let gain = weighted(&row[both]) / weighted(&row[alone]) - 1.0;
        (case.load, gain)
    });
    let gains: Vec<(f64, f64)> = gains.collect();
    let least = |chosen: &dyn Fn(f64) -> bool| {
        let gains = gains.iter().filter(|(load, _)| chosen(*load));
        gains.map(|g| g.1).fold(f64::INFINITY, f64::min)
    };
    report.say(&format!(
        "Goodput weighted by accuracy of `spillgate, chosen` over that of `spillgate, the largest`: at least {:+.1}% in each case, at \
         least {:+.1}% at load 1.3.",
        100.0 * least(&|_| true),
        100.0 * least(&|load| load == 1.3),
    ));
    Ok(())
}

/// The accuracies of the requests in time, over those of all requests with the largest variant.
pub(crate) fn weighted(run: &Run) -> f64 {
    let best = SIZES[SIZES.len() - 1].0;
    let mean = run.report.goodput_weighted.unwrap_or_default() / run.report.goodput.max(1e-9);
    mean * run.report.good as f64 / (run.report.requests as f64 * best)
}

/// The pipeline with variants of its first module.
pub(crate) fn with_sizes(setup: &Setup) -> Setup {
    let mut pipeline = Pipeline::clone(&setup.pipeline);
    let of = |(accuracy, _): (f64, f64)| pipeline::Variant {
        model: "road.pt".to_owned(),
        input: None,
        accuracy: Some(accuracy),
    };
    pipeline.modules[DETECT.idx()].variants = SIZES.map(of).to_vec();
    let mut execution = setup.execution.clone();
    let largest = setup.execution[DETECT.idx()].to_vec();
    let times = SIZES.map(|(_, part)| largest.iter().map(|time| time.mul_f64(part)).collect());
    execution.set(DETECT, ModuleExecution::of_variants(times.to_vec()));
    Setup {
        pipeline: Arc::new(pipeline),
        execution,
        share: setup.share.clone(),
    }
}

/// Room behind the first module, and its variants chosen or not.
pub(crate) fn prepare(config: &mut SimConfig, adapt: Option<Adapt>) {
    let pipeline = Arc::make_mut(&mut config.pipeline);
    pipeline.adapt = adapt;
    let planned = Arc::make_mut(&mut config.planned);
    let mut next = config.workers.iter().flatten().max().map_or(0, |d| d + 1);
    for module in DETECT.idx() + 1..config.workers.len() {
        let more = planned.workers[module] * (ROOM - 1);
        planned.workers[module] += more;
        config.workers[module].extend(next..next + more as u16);
        next += more as u16;
    }
}
