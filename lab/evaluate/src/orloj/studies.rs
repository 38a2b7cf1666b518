//! Studies: wrong tags and drift, the constants of the score, and the cost of deciding.

use std::time::Instant;

use anyhow::Context;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_recipes::schedulers;
use spillgate_sim::dynamic::named::{self, Named};
use spillgate_sim::dynamic::{Instance, run};
use spillgate_worker_policy::schedule::Scoring;

use super::super::report::{Report, mean};
use super::{OrlojArgs, POINTS, grid, in_parallel};

/// Rates of the anticipated delay, per ms.
const DELAY_RATES: [f64; 5] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2];
/// Bins of a batch's law.
const BINS: [usize; 5] = [4, 8, 12, 24, 96];

/// The workload of the studies: two modes.
fn two_modal() -> anyhow::Result<Named> {
    let named = named::all().into_iter().find(|n| n.name == "two-modal");
    named.context("two modes are among the workloads")
}

/// Wrong tags and drift, on the reference workload at SLO 3.
pub(super) fn changes(args: &OrlojArgs, report: &mut Report) -> anyhow::Result<()> {
    report.say(
        "Wrong tags and drift: two modes at the first operating point, SLO 3. With wrong tags this part of the \
         requests and of the history names a random application. With drift all lengths are 1.5 times as long from \
         the middle of the run on. \"learnt\": every eighth finished request runs again alone, and its length is \
         learnt.",
    );
    let named = two_modal()?;
    let (share, load) = POINTS[0];
    let work = named::workload(&named, share, load, 3.0, args.requests.max(4000));
    let wrong = |part: f64| {
        move |instance: &mut Instance, rng: &mut ChaCha8Rng| {
            let mut mistake = |application: &mut Application| {
                if rng.random::<f64>() < part {
                    *application = Application(rng.random_range(0..2));
                }
            };
            instance
                .jobs
                .iter_mut()
                .for_each(|job| mistake(&mut job.application));
            instance
                .history
                .iter_mut()
                .for_each(|known| mistake(&mut known.0));
        }
    };
    let drift = |sample_every: u32| {
        move |instance: &mut Instance, _: &mut ChaCha8Rng| {
            instance.sample_every = sample_every;
            let half = instance.jobs.len() / 2;
            instance.jobs[half..]
                .iter_mut()
                .for_each(|job| job.length_ms *= 1.5);
        }
    };
    type Change = Box<dyn Fn(&mut Instance, &mut ChaCha8Rng)>;
    let changes: Vec<(&str, Change)> = vec![
        ("as they are", Box::new(wrong(0.0))),
        ("10% of the tags wrong", Box::new(wrong(0.1))),
        ("half of the tags wrong", Box::new(wrong(0.5))),
        ("all tags wrong", Box::new(wrong(1.0))),
        ("lengths drift, nothing learnt", Box::new(drift(0))),
        ("lengths drift, learnt", Box::new(drift(8))),
    ];
    let shown = [
        SchedulePolicy::GOODPUT,
        SchedulePolicy::ORLOJ,
        SchedulePolicy::EDF,
        SchedulePolicy::CLOCKWORK,
    ];
    let mut rows = Vec::new();
    for (what, change) in changes {
        let mut row = vec![what.to_owned()];
        for name in shown {
            let mut rates = Vec::new();
            for seed in 0..args.seeds {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut instance = work.instance(&mut rng)?;
                change(&mut instance, &mut rng);
                rates.push(run(&instance, name)?.finish_rate);
            }
            row.push(format!("{:.3}", mean(rates)));
        }
        rows.push(row);
    }
    let mut head = vec!["requests"];
    head.extend(shown.map(SchedulePolicy::name));
    report.table(&head, &rows);
    Ok(())
}

/// The constants of ORLOJ's score, one at a time, on all workloads.
pub(super) fn scoring(args: &OrlojArgs, report: &mut Report) -> anyhow::Result<()> {
    let usual = Scoring::default();
    let by_rate = DELAY_RATES.map(|delay_rate| Scoring {
        delay_rate,
        ..usual
    });
    let by_bins = BINS.map(|bins| Scoring { bins, ..usual });
    let variants: Vec<Scoring> = [usual].into_iter().chain(by_rate).chain(by_bins).collect();
    let names = [SchedulePolicy::ORLOJ, schedulers::ORLOJ_SHARED];
    // By case, name and variant.
    let rates = in_parallel(&grid(), |(named, point, slo)| {
        let work = named::workload(named, point.0, point.1, *slo, args.requests);
        let mut rates = names.map(|_| vec![0.0; variants.len()]);
        for seed in 0..args.seeds {
            let mut instance = work.instance(&mut ChaCha8Rng::seed_from_u64(seed))?;
            for (of_name, name) in rates.iter_mut().zip(names) {
                for (rate, scoring) in of_name.iter_mut().zip(&variants) {
                    instance.scoring = *scoring;
                    *rate += run(&instance, name)?.finish_rate / args.seeds as f64;
                }
            }
        }
        Ok(rates)
    })?;
    let row = |label: String, variant: usize| {
        let mut row = vec![label];
        for name in 0..names.len() {
            let all = rates.iter().map(|case| case[name][variant]);
            let moved = rates.iter().map(|case| case[name][variant] - case[name][0]);
            let (worst, best) = moved.fold((0.0f64, 0.0f64), |(worst, best), by| {
                (worst.min(by), best.max(by))
            });
            row.push(format!("{:.4}", mean(all)));
            row.push(format!("{worst:+.3} to {best:+.3}"));
        }
        row
    };
    let head = |what| [what, "orloj", "by case", "orloj-shared", "by case"];
    report.say(&format!(
        "The rate b of the anticipated delay, per ms. The columns are the mean finish rate over all workloads, SLOs \
         and operating points, and the range of the differences of single cases to {:e}. That value is used \
         everywhere else.",
        usual.delay_rate
    ));
    let rows: Vec<Vec<String>> = (1..)
        .zip(by_rate)
        .map(|(variant, scoring)| row(format!("{:e}", scoring.delay_rate), variant))
        .collect();
    report.table(&head("b, 1/ms"), &rows);
    report.say(&format!(
        "The same for the number of bins in a batch's distribution, from which the score is computed; {} are used \
         everywhere else.",
        usual.bins
    ));
    let rows: Vec<Vec<String>> = (1 + by_rate.len()..)
        .zip(by_bins)
        .map(|(variant, scoring)| row(format!("{}", scoring.bins), variant))
        .collect();
    report.table(&head("bins"), &rows);
    Ok(())
}

/// Time of whole runs beside the device time that they simulate. The simulator is part of it, so it is an upper bound on
/// the cost of the decisions.
pub(super) fn overhead(args: &OrlojArgs, report: &mut Report) -> anyhow::Result<()> {
    report.say(
        "The cost of deciding: two modes scaled to the mean time alone of the first column, at the first operating \
         point, SLO 3; every eighth finished request is learnt. A cell has the finish rate, then the wall time of \
         the whole run over the device's time. The latter is an upper bound on the share of a core that the \
         scheduler takes. It was measured on the machine that wrote this page, beside whatever else ran there.",
    );
    let named = two_modal()?;
    let shown = [
        SchedulePolicy::GOODPUT,
        SchedulePolicy::ORLOJ,
        SchedulePolicy::EDF,
        SchedulePolicy::CLOCKWORK,
    ];
    let mut rows = Vec::new();
    for mean_ms in [64.0, 16.0, 4.0, 1.0] {
        let scale = mean_ms / 55.0;
        let mut scaled = named.clone();
        for mode in &mut scaled.modes {
            mode.mean_ms *= scale;
            mode.deviation_ms *= scale;
        }
        let work = named::workload(&scaled, POINTS[0].0, POINTS[0].1, 3.0, args.requests);
        let mut instance = work.instance(&mut ChaCha8Rng::seed_from_u64(1))?;
        instance.sample_every = 8;
        let mut row = vec![format!("{mean_ms} ms")];
        for name in shown {
            let start = Instant::now();
            let finish = run(&instance, name)?;
            let took = start.elapsed().as_secs_f64();
            let span = instance.jobs.last().map_or(0.0, |job| job.at.as_secs_f64());
            row.push(format!(
                "{:.3}, {:.2}%",
                finish.finish_rate,
                100.0 * took / span
            ));
        }
        rows.push(row);
    }
    let mut head = vec!["mean time alone"];
    head.extend(shown.map(SchedulePolicy::name));
    report.table(&head, &rows);
    Ok(())
}
