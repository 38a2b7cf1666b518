//! The constants of each policy, and the cases on which they are measured.

use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::placement::recipe as placement;
use spillgate_pipeline::placement::recipe::Ahead;
use spillgate_pipeline::policy::adapt;
use spillgate_pipeline::policy::recipe as drop;
use spillgate_pipeline::policy::{Adapt, AdaptName, DropPolicy};
use spillgate_pipeline::predict::Cap;
use spillgate_pipeline::schedule::{self, Choice, SchedulePolicy};
use spillgate_pipeline::time::Timestamp;
use spillgate_sim::dynamic::named;
use spillgate_sim::placement::Scenario;
use spillgate_sim::{Disturbance, Run, SimConfig};
use spillgate_worker_policy::weights::placement::PlacementPolicy;

use super::{ConstantsArgs, Group, Losses, NEVER, Section, constant};
use crate::clockwork::scenarios;
use crate::grid::{Case, Grid, Variant};
use crate::in_parallel;
use crate::report::mean;
use crate::sections::adapting;
use crate::sections::sweeps::tweak;

/// Devices of the reference workload.
const GPUS: u32 = 24;
/// Its traces.
const TRACES: usize = 3;
const DROP: drop::Constants = drop::Constants::USUAL;
const GATE: f64 = 1.0;

pub(super) const DROPS: Group = Group {
    section: Section::Drops,
    title: "Drop policy `spillgate`",
    about: "The reference workload's four pipelines under the first window of each of three traces. First trace: load 1.0. Second: load 0.9, and times \
            stray by 4% (standard deviation) from those profiled. Third: load 1.1, batches take 30% longer than profiled and stray by 20%, and the SLO is \
            0.7 of its own. Then each of the four again at half the SLO (first trace, load 1.0), at half the SLO with times that stray by 10% (second, 0.9), \
            and while the controllers are away for the second third (third, 1.1). Dropped or late, of all.",
    constants: &[
        constant("lambda", 0.9, 0.0).around_one(),
        constant("gate", GATE, NEVER),
        constant("door_margin", DROP.door_margin, 0.0),
        constant("in_time_least", DROP.in_time_least, 0.0),
        constant("tighter_pays", DROP.tighter_pays, NEVER).around_one(),
        constant("equally_good", DROP.equally_good, 1.0).around_one(),
        constant("deviations", DROP.deviations, 0.0),
        constant("off_pace", DROP.off_pace, 0.0),
        constant("spread", DROP.spread, 0.0),
    ],
    run: drops,
};

const GOODPUT: schedule::Goodput = schedule::Goodput::USUAL;

pub(super) const SCHEDULER: Group = Group {
    section: Section::Scheduler,
    title: "Batch scheduler `goodput`",
    about: "Six workloads of ORLOJ's evaluation at its first operating point, with SLOs of 2 and 4 times the 99th percentile; 2,000 \
            requests, two seeds. Not finished in time, of all.",
    constants: &[
        constant("wait_least", GOODPUT.wait_least, 0.0),
        constant("wait_cheap", GOODPUT.wait_cheap, 0.0).most(1.0 - GOODPUT.wait_least),
        constant("sure", GOODPUT.sure, 0.501).around_one(),
        constant("price_weight", GOODPUT.price_weight, 1.0),
        constant("batch_weight", GOODPUT.batch_weight, 1.0),
    ],
    run: schedulers,
};

const PLACED: placement::Constants = placement::Constants::USUAL;
/// Of `PlacementPolicy::SPILLGATE`.
const CAP: f64 = 1.5;
const AHEAD_MS: f64 = 0.2;
const KEPT_BACK_MS: f64 = 0.2;

pub(super) const PLACEMENT: Group = Group {
    section: Section::Placement,
    title: "Placement `spillgate`",
    about: "Clockwork's workloads: 15 copies of a model on one device with SLOs of 10, 25 and 100 ms; a major workload over 10, 100, \
            200, 400 and 1,200 models beside a minor one; 48 models that fit six devices, with SLOs of 2.9 and 14.5 ms; thousands of models on six \
            devices, with 1,500 and 2,200 requests a second and an SLO of 100 ms; two of these cases again where one action in a hundred takes 10 to 30 ms longer. Runs are a sixth as long as traces. Late or not served, of all.",
    constants: &[
        constant("cap", CAP, NEVER).around_one(),
        constant("ahead_ms", AHEAD_MS, 0.0),
        constant("kept_back_ms", KEPT_BACK_MS, 0.0),
        constant("copied_below", PLACED.copied_below, 0.0),
        constant("expected_for_s", PLACED.expected_for_s, 0.0),
        constant("price_part", PLACED.price_part, 0.0),
        constant("load_crowding", PLACED.load_crowding, 1.0).around_one(),
        constant("batch_crowding", PLACED.batch_crowding, 1.0).around_one(),
        constant("loads_again", PLACED.loads_again, NEVER),
        constant("price_weight", PLACED.price_weight, 1.0),
        constant("link_price_weight", PLACED.link_price_weight, 1.0),
    ],
    run: placements,
};

const ADAPT: adapt::Constants = adapt::Constants::USUAL;

pub(super) const ADAPTATION: Group = Group {
    section: Section::Adaptation,
    title: "`adapt: spillgate`",
    about: "The reference workload's four pipelines, with four sizes of their first module, under the first window of each of three traces, at load 1.3 of \
            the largest size. Lost: 100% less the accuracies of the requests in time over those of all requests with the largest size.",
    constants: &[
        constant("part_max", ADAPT.part_max, 1.0).around_one(),
        constant("part_min", ADAPT.part_min, 0.0),
        constant("loss", ADAPT.loss, 0.0),
        constant("fall", ADAPT.fall, 0.0),
        constant("fall_max", ADAPT.fall_max, 1.0),
        constant("rise", ADAPT.rise, 1.0),
        constant("rise_near", ADAPT.rise_near, ADAPT.rise),
        constant("near", ADAPT.near, NEVER).around_one(),
        constant("peak_kept", ADAPT.peak_kept, 0.0).around_one(),
        constant("rate_weight", ADAPT.rate_weight, 1.0),
        constant("worth_a_switch", ADAPT.worth_a_switch, 0.0),
    ],
    run: adaptation,
};

/// The values of a list, by name.
fn values<const N: usize>(list: &[f64]) -> [f64; N] {
    list.try_into().expect("a value for each constant")
}

/// Recipes live as long as the program: there are a few dozen.
fn leaked<T>(recipe: T) -> &'static T {
    Box::leak(Box::new(recipe))
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms * 1e-3)
}

/// The reference workload, with as many seconds of its windows as are asked for.
fn grid(args: &ConstantsArgs) -> anyhow::Result<Grid> {
    let mut grid = Grid::new(args.traces.as_deref(), GPUS, false)?;
    for window in &mut grid.windows {
        window.rates.truncate(args.seconds as usize);
    }
    Ok(grid)
}

/// What is lost in each run, %, by case.
fn lost(grid: &Grid, cases: &[Case], rows: &[Vec<Run>], of: impl Fn(&Run) -> f64) -> Losses {
    let cases = cases.iter().map(|case| grid.name(case));
    let lost = |row: &Vec<Run>| row.iter().map(|run| 100.0 * of(run)).collect();
    cases.zip(rows.iter().map(lost)).collect()
}

fn drop_policy(list: &[f64]) -> DropPolicy {
    let [
        lambda,
        gate,
        door_margin,
        in_time_least,
        tighter_pays,
        equally_good,
        deviations,
        off_pace,
        spread,
    ] = values(list);
    DropPolicy::new(leaked(drop::Recipe {
        lambda,
        gate: (gate < NEVER).then_some(gate),
        constants: drop::Constants {
            door_margin,
            in_time_least,
            tighter_pays,
            equally_good,
            deviations,
            off_pace,
            spread,
        },
        ..*DropPolicy::SPILLGATE.recipe()
    }))
}

/// Under what the drop policy serves the first window of a trace.
struct Condition {
    /// What its cases are called, after their trace and load.
    name: &'static str,
    /// Ordinal of the trace.
    trace: usize,
    load: f64,
    /// Standard deviation of execution times, over those profiled.
    noise: f64,
    /// Their mean, over those profiled.
    pace: f64,
    /// Of the pipeline's own.
    slo: f64,
    /// The controllers are away in the second third.
    controllers_leave: bool,
}

const AS_PROFILED: Condition = Condition {
    name: "",
    trace: 0,
    load: 1.0,
    noise: 0.0,
    pace: 1.0,
    slo: 1.0,
    controllers_leave: false,
};

const CONDITIONS: [Condition; 6] = [
    AS_PROFILED,
    Condition {
        trace: 1,
        load: 0.9,
        noise: 0.04,
        ..AS_PROFILED
    },
    Condition {
        trace: 2,
        load: 1.1,
        noise: 0.2,
        pace: 1.3,
        slo: 0.7,
        ..AS_PROFILED
    },
    Condition {
        name: ", half the SLO",
        slo: 0.5,
        ..AS_PROFILED
    },
    Condition {
        name: ", half the SLO, strays",
        trace: 1,
        load: 0.9,
        noise: 0.1,
        slo: 0.5,
        ..AS_PROFILED
    },
    Condition {
        name: ", no controller for a while",
        trace: 2,
        load: 1.1,
        controllers_leave: true,
        ..AS_PROFILED
    },
];

impl Condition {
    fn disturb(&self, config: &mut SimConfig, seconds: u32) {
        config.noise = self.noise;
        let modules: Vec<_> = config.pipeline.modules[1..].iter().map(|m| m.id).collect();
        let third = Duration::from_secs(u64::from(seconds)) / 3;
        let mut add = |at, disturbance| config.disturbances.push((at, disturbance));
        for module in modules {
            if self.pace != 1.0 {
                add(Timestamp::ZERO, Disturbance::Pace(module, self.pace));
            }
            if self.controllers_leave {
                add(Timestamp::ZERO + third, Disturbance::ControllerDown(module));
                add(
                    Timestamp::ZERO + 2 * third,
                    Disturbance::ControllerUp(module),
                );
            }
        }
    }
}

fn drops(args: &ConstantsArgs, lists: &[Vec<f64>]) -> anyhow::Result<Losses> {
    let grid = grid(args)?;
    let mut all = Vec::new();
    for condition in &CONDITIONS {
        let seconds = args.seconds;
        let disturbed = move |config: &mut SimConfig| condition.disturb(config, seconds);
        let variant = |list: &Vec<f64>| {
            Variant::of(drop_policy(list))
                .slo(condition.slo)
                .tweak(tweak(disturbed))
        };
        let variants: Vec<Variant> = lists.iter().map(variant).collect();
        // Windows come in the same order for each pipeline.
        let cases = grid.first_windows(&[condition.load]);
        let cases: Vec<Case> = cases
            .into_iter()
            .skip(condition.trace)
            .step_by(TRACES)
            .collect();
        let rows = grid.run(&cases, &variants)?;
        let lost = lost(&grid, &cases, &rows, |run| run.report.drop_rate);
        all.extend(
            lost.into_iter()
                .map(|(name, lost)| (name + condition.name, lost)),
        );
    }
    Ok(all)
}

fn adaptation(args: &ConstantsArgs, lists: &[Vec<f64>]) -> anyhow::Result<Losses> {
    let grid = grid(args)?;
    let cases = grid.first_windows(&[1.3]);
    let variant = |list: &Vec<f64>| {
        let [
            part_max,
            part_min,
            loss,
            fall,
            fall_max,
            rise,
            rise_near,
            near,
            peak_kept,
            rate_weight,
            worth_a_switch,
        ] = values(list);
        let adapt = Adapt {
            constants: adapt::Constants {
                part_max,
                part_min,
                loss,
                fall,
                fall_max,
                rise,
                rise_near,
                near,
                peak_kept,
                rate_weight,
                worth_a_switch,
            },
            ..Adapt::new(adapting::DETECT, AdaptName::Spillgate)
        };
        let prepare = move |config: &mut SimConfig| adapting::prepare(config, Some(adapt));
        Variant::of(DropPolicy::SPILLGATE).tweak(tweak(prepare))
    };
    let variants: Vec<Variant> = lists.iter().map(variant).collect();
    let rows = grid.run_on(&cases, &variants, &|_, setup| adapting::with_sizes(setup))?;
    Ok(lost(&grid, &cases, &rows, |run| {
        1.0 - adapting::weighted(run)
    }))
}

/// Each case with each list of values, in parallel.
fn each<T: Sync>(
    cases: &[(String, T)],
    lists: &[Vec<f64>],
    lost: impl Fn(&T, &[f64]) -> anyhow::Result<f64> + Sync,
) -> anyhow::Result<Losses> {
    let pairs = cases
        .iter()
        .flat_map(|(_, case)| lists.iter().map(move |list| (case, list)));
    let pairs: Vec<(&T, &Vec<f64>)> = pairs.collect();
    let lost = in_parallel(&pairs, |(case, list)| lost(case, list))?;
    let rows = lost.chunks(lists.len()).map(<[f64]>::to_vec);
    Ok(cases
        .iter()
        .map(|(name, _)| name.clone())
        .zip(rows)
        .collect())
}

fn scheduler(list: &[f64]) -> SchedulePolicy {
    let [wait_least, wait_cheap, sure, price_weight, batch_weight] = values(list);
    SchedulePolicy::new(leaked(schedule::Recipe {
        name: "goodput",
        drops: true,
        choice: Choice::Goodput(schedule::Goodput {
            wait_least,
            wait_cheap,
            sure,
            price_weight,
            batch_weight,
        }),
    }))
}

fn schedulers(_: &ConstantsArgs, lists: &[Vec<f64>]) -> anyhow::Result<Losses> {
    const NAMES: [&str; 6] = [
        "one-modal",
        "two-modal",
        "four-modal",
        "eight-modal",
        "short 80%",
        "long 80%",
    ];
    const SEEDS: u64 = 2;
    let (fixed_share, load) = (0.7, 1.5);
    let named = named::all()
        .into_iter()
        .filter(|n| NAMES.contains(&n.name.as_str()));
    let named = named.flat_map(|n| [2.0, 4.0].map(|slo| (n.clone(), slo)));
    let cases = named.map(|(named, slo)| {
        let workload = named::workload(&named, fixed_share, load, slo, 2_000);
        let seeds = 0..SEEDS;
        let instances = seeds.map(|seed| workload.instance(&mut ChaCha8Rng::seed_from_u64(seed)));
        let instances: Vec<_> = instances.collect::<Result<_, _>>()?;
        Ok((format!("{} {slo}", named.name), instances))
    });
    let cases: Vec<(String, Vec<_>)> = cases.collect::<anyhow::Result<_>>()?;
    each(&cases, lists, |instances, list| {
        let policy = scheduler(list);
        let finished = instances
            .iter()
            .map(|i| spillgate_sim::dynamic::run(i, policy));
        let finished: Vec<f64> = finished
            .map(|run| Ok(run?.finish_rate))
            .collect::<anyhow::Result<_>>()?;
        Ok(100.0 * (1.0 - mean(finished)))
    })
}

fn placement_policy(list: &[f64]) -> PlacementPolicy {
    let [
        cap,
        ahead,
        kept_back,
        copied_below,
        expected_for_s,
        price_part,
        load_crowding,
        batch_crowding,
        loads_again,
        price_weight,
        link_price_weight,
    ] = values(list);
    PlacementPolicy::new(leaked(placement::Recipe {
        cap: Cap::Typical(cap),
        ahead: Ahead::LastMoment(ms(ahead)),
        kept_back: ms(kept_back),
        constants: placement::Constants {
            copied_below,
            expected_for_s,
            price_part,
            load_crowding,
            batch_crowding,
            loads_again,
            price_weight,
            link_price_weight,
        },
        ..*PlacementPolicy::SPILLGATE.recipe()
    }))
}

/// One action in a hundred takes 10 to 30 ms longer.
fn with_outliers(scenario: &mut Scenario) {
    scenario.system.noise_spike_p = 0.01;
    scenario.system.noise_spike_ms = 20.0;
}

fn placements(args: &ConstantsArgs, lists: &[Vec<f64>]) -> anyhow::Result<Losses> {
    let profiles = scenarios::Table::read(&args.profiles)?;
    let seconds = f64::from(args.seconds) / 6.0;
    let mut cases: Vec<(String, Scenario)> = Vec::new();
    for slo in [10.0, 25.0, 100.0] {
        let name = format!("copies {slo} ms");
        cases.push((name, scenarios::copies(&profiles, slo, seconds)?));
    }
    for models in [10, 100, 200, 400, 1200] {
        let name = format!("major {models}");
        cases.push((name, scenarios::major(&profiles, models, seconds)?));
    }
    for slo in [2.9, 14.5] {
        let (name, models) = (format!("low {slo} ms"), 48);
        cases.push((
            name,
            scenarios::low(&profiles, models, 1200.0, slo, seconds)?,
        ));
    }
    for rate in [1500.0, 2200.0] {
        let name = format!("functions {rate} r/s");
        let scenario = scenarios::functions(&profiles, 6, rate, 100.0, (seconds, &[1.0]));
        cases.push((name, scenario));
    }
    let mut scenario = scenarios::copies(&profiles, 25.0, seconds)?;
    with_outliers(&mut scenario);
    cases.push(("copies 25 ms, outliers".to_owned(), scenario));
    let mut scenario = scenarios::functions(&profiles, 6, 1500.0, 100.0, (seconds, &[1.0]));
    with_outliers(&mut scenario);
    cases.push(("functions 1500 r/s, outliers".to_owned(), scenario));
    each(&cases, lists, |scenario, list| {
        let (figures, ..) =
            spillgate_sim::placement::run(scenario, placement_policy(list), true, false);
        Ok(100.0 * (1.0 - figures.share))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recipes with the constants as they are listed are the product's.
    #[test]
    fn as_listed_the_recipes_are_the_products() {
        let of = |group: &Group| -> Vec<f64> { group.constants.iter().map(|c| c.value).collect() };
        assert_eq!(
            drop_policy(&of(&DROPS)).recipe(),
            DropPolicy::SPILLGATE.recipe()
        );
        assert_eq!(
            scheduler(&of(&SCHEDULER)),
            SchedulePolicy::new(leaked(schedule::Recipe {
                name: "goodput",
                drops: true,
                choice: SchedulePolicy::GOODPUT.choice(),
            }))
        );
        assert_eq!(
            placement_policy(&of(&PLACEMENT)).recipe(),
            PlacementPolicy::SPILLGATE.recipe()
        );
    }
}
