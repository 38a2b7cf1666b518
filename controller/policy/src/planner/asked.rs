//! Requests that ask for less time than the SLO, and workers that are slower than their profile: batch sizes that
//! they can bear.
//!
//! A plan's batches use most of the SLO. A request with a shorter deadline does not fit them however early it is
//! served; smaller batches serve it, at less capacity. Which is better depends on how many there are and on the
//! load: the sizes are chosen that promise the most goodput.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

use super::Planned;
use super::window::Window;
use crate::plan;

/// Shares of the SLO are told apart in this many steps.
pub(super) const STEPS: usize = 20;
/// Fewer requests than this share of all are not worth smaller batches for everybody.
const WORTH: f32 = 0.02;

/// Workers this far off their profile have their batches planned anew.
const OFF_PACE: f64 = 0.2;

/// Part of the requests that ask for each share of the SLO; entry i is for shares up to (i + 1) / 20.
pub type Shares = [f32; 20];

/// Counts what is asked for.
pub(super) struct Asked {
    steps: Vec<Window>,
}

impl Asked {
    pub(super) fn new(length: Duration) -> Self {
        Asked {
            steps: (0..STEPS).map(|_| Window::new(length)).collect(),
        }
    }

    pub(super) fn add(&mut self, now: Timestamp, slo: Duration, request: &Request) {
        let asked = request.deadline.since(request.sent_at).as_secs_f64() / slo.as_secs_f64();
        // A hair less, so that exactly a step is that step.
        let step = (asked * STEPS as f64 - 1e-6)
            .ceil()
            .clamp(1.0, STEPS as f64);
        self.steps[step as usize - 1].add(now, 0.0, 1, 0.0);
    }

    pub(super) fn shares(&mut self, now: Timestamp) -> Shares {
        let mut shares = [0.0; STEPS];
        let counts: Vec<u64> = self.steps.iter_mut().map(|s| s.count(now)).collect();
        let all: u64 = counts.iter().sum();
        for (share, count) in shares.iter_mut().zip(counts) {
            *share = count as f32 / all.max(1) as f32;
        }
        shares
    }
}

/// The batch sizes of most goodput, if they are smaller than planned: `rate` requests a second come, modules have
/// `workers` and pace, and the plan's sizes have that `slack` over the whole SLO.
pub(super) fn batch_sizes(
    pipeline: &Pipeline,
    planned: &Planned,
    slack: f64,
    shares: &Shares,
    rate: f64,
    workers: &[(f64, f64)],
) -> Option<Vec<u32>> {
    let is_usual = |pace: f64| (pace - 1.0).abs() < OFF_PACE;
    if shares[STEPS - 1] > 1.0 - WORTH && workers.iter().all(|w| is_usual(w.1)) {
        return None;
    }
    let execution: Vec<Vec<Duration>> = planned
        .execution
        .iter()
        .zip(&planned.batch)
        .zip(workers)
        .map(|((times, batch), (_, pace))| {
            let pace = if is_usual(*pace) { 1.0 } else { *pace };
            let times = times.iter().take((*batch).max(1) as usize);
            times.map(|time| time.mul_f64(pace)).collect()
        })
        .collect();
    let mut best: Option<(f64, Vec<u32>)> = None;
    // From the whole SLO down: smaller sizes must promise more to be chosen.
    for step in (0..STEPS).rev() {
        if shares[step] < WORTH && step + 1 < STEPS {
            continue;
        }
        let share = (step + 1) as f64 / STEPS as f64;
        let Ok(batch) = plan::batch_sizes(pipeline, &execution, slack / share) else {
            break;
        };
        let served: f32 = shares[step..].iter().sum();
        let capacity = (1..batch.len())
            .map(|m| {
                let size = batch[m].max(1);
                workers[m].0 * f64::from(size) / execution[m][size as usize - 1].as_secs_f64()
            })
            .fold(f64::INFINITY, f64::min);
        let goodput = capacity.min(rate * f64::from(served));
        if best
            .as_ref()
            .is_none_or(|(most, _)| goodput > *most * 1.001)
        {
            best = Some((goodput, batch));
        }
    }
    let (_, batch) = best?;
    (1..batch.len())
        .any(|m| batch[m] < planned.batch[m])
        .then_some(batch)
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::id::RequestId;
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    const SLO: Duration = Duration::from_millis(400);

    fn request(asked: f64) -> Request {
        Request {
            id: RequestId(1),
            sent_at: Timestamp::ZERO,
            deadline: Timestamp::ZERO + SLO.mul_f64(asked),
        }
    }

    #[test]
    fn shares_are_counted_by_step() {
        let mut asked = Asked::new(Duration::from_secs(5));
        for share in [1.0, 1.0, 0.6, 0.61] {
            asked.add(Timestamp::ZERO, SLO, &request(share));
        }
        let shares = asked.shares(Timestamp::ZERO);
        assert_eq!((shares[11], shares[12], shares[19]), (0.25, 0.25, 0.5));
        assert_eq!(shares.iter().sum::<f32>(), 1.0);
    }

    #[test]
    fn batches_shrink_when_that_serves_more() {
        let mut pipeline = noop_pipeline(SLO, &[&[0], &[1]], &[]);
        for module in &mut pipeline.modules {
            module.batch.max = 32;
        }
        let ms = |b: u64| Duration::from_millis(12 + 6 * b);
        let execution = vec![
            vec![],
            (1..=32).map(ms).collect(),
            (1..=32).map(ms).collect(),
        ];
        let batch = plan::batch_sizes(&pipeline, &execution, 1.5).unwrap();
        let planned = Planned { batch, execution };
        let sizes = |hurried: f32, rate: f64| {
            let mut shares = [0.0; STEPS];
            shares[11] = hurried;
            shares[STEPS - 1] = 1.0 - hurried;
            batch_sizes(
                &pipeline,
                &planned,
                1.5,
                &shares,
                rate,
                &[(0.0, 1.0), (4.0, 1.0), (4.0, 1.0)],
            )
        };
        assert_eq!(sizes(0.0, 500.0), None, "nobody is in a hurry");
        let smaller = sizes(0.5, 500.0).expect("half of them are");
        assert!(
            smaller[1] < planned.batch[1] && smaller[1] > 4,
            "{smaller:?}"
        );
        let path: Duration = (1..3)
            .map(|m| planned.execution[m][smaller[m] as usize - 1])
            .sum();
        assert!(
            path.mul_f64(1.5) <= SLO.mul_f64(0.6),
            "it fits what they ask for"
        );
        assert_eq!(
            sizes(0.05, 5_000.0),
            None,
            "a few are not worth the capacity of all"
        );
    }
}
