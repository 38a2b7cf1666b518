//! Jellyfish's own mapping while serving (§4): each stream is bound to one worker, which runs one variant in batches of up to one size. The
//! search is that of [`crate::adaptation`]: the authors' Algorithms 1 and 2.
//!
//! Deviations from the paper, all of them because a worker here is not alone:
//! - Device time that requests take at other modules of the same devices counts as execution time.
//! - A gateway that accepts a part of the module's requests plans with that part of each worker.
//! - A stream without a place is not turned away: its requests are served by the smallest variant, from what the others leave.

use std::collections::BTreeMap;
use std::time::Duration;

use spillgate_pipeline::id::{VariantId, WorkerId};

use super::pooled::{Choice, Demand};
use super::{Outlook, StreamBinding};
use crate::adaptation::{
    Assignment, ClientDemand, Instance, STEPS_DEFAULT, Setting, Variant, assign, rate_unit,
};

/// Streams times workers up to which a search takes all its steps: a step maps all streams, so larger questions get fewer.
const SIZE: usize = 160 * 16;
/// Least requests a second of a stream: one in ten seconds.
const RATE_LEAST: f64 = 0.1;

/// What workers run, and the seeds of decisions.
#[derive(Debug)]
pub(super) struct Bound {
    seed: u64,
    settings: BTreeMap<WorkerId, Setting>,
}

impl Bound {
    pub(super) fn new(seed: u64) -> Self {
        Bound {
            seed,
            settings: BTreeMap::new(),
        }
    }

    /// What each stream gets, and its place. `bindings`: the present ones.
    pub(super) fn solve(
        &mut self,
        accuracies: impl Iterator<Item = f64>,
        outlook: &Outlook,
        demands: &[Demand],
        bindings: &[Option<StreamBinding>],
    ) -> Vec<(Choice, Option<StreamBinding>)> {
        self.seed = self.seed.wrapping_add(1);
        let held = |worker: &WorkerId| self.settings.get(worker).copied();
        let place = |binding: &Option<StreamBinding>| {
            let binding = binding.as_ref()?;
            outlook.workers.iter().position(|w| *w == binding.worker)
        };
        let present = Assignment {
            workers: outlook.workers.iter().map(held).collect(),
            clients: bindings.iter().map(place).collect(),
        };
        let answer = instance(accuracies, outlook, demands).map(|instance| {
            let size = (demands.len() * outlook.workers.len()).max(SIZE);
            let steps = STEPS_DEFAULT as usize * SIZE / size;
            assign(&instance, &present, self.seed, steps as u32)
        });
        let Some(answer) = answer else {
            return vec![(nothing(), None); demands.len()];
        };
        self.settings = (outlook.workers.iter().copied())
            .zip(&answer.workers)
            .filter_map(|(worker, setting)| Some((worker, (*setting).or_else(|| held(&worker))?)))
            .collect();
        let served = (0..demands.len()).map(|stream| {
            let worker = outlook.workers[answer.clients[stream]?];
            let Setting { variant, batch } = answer.setting_of(stream)?;
            let choice = Choice {
                variant,
                better: None,
                fits: true,
            };
            Some((choice, Some(StreamBinding { worker, batch })))
        });
        served
            .map(|served| served.unwrap_or((nothing(), None)))
            .collect()
    }
}

/// What a stream without a place gets.
fn nothing() -> Choice {
    Choice {
        variant: VariantId(0),
        better: None,
        fits: false,
    }
}

/// The question; `None` where it is none: no worker takes requests, for instance.
fn instance(
    accuracies: impl Iterator<Item = f64>,
    outlook: &Outlook,
    demands: &[Demand],
) -> Option<Instance> {
    let beside = Duration::from_secs_f64(outlook.beside);
    let with_others = |times: &Vec<Duration>| -> Vec<Duration> {
        let sizes = times.iter().zip(1u32..);
        sizes.map(|(time, size)| *time + beside * size).collect()
    };
    let variants: Vec<Variant> = accuracies
        .zip(&outlook.by_size)
        .map(|(accuracy, times)| Variant {
            accuracy,
            execution: with_others(times),
        })
        .collect();
    let demand = |demand: &Demand| ClientDemand {
        rate: demand.rate.max(RATE_LEAST) / outlook.part,
        budgets: demand.budgets.clone(),
    };
    let unit = rate_unit(&variants);
    let clients = demands.iter().map(demand).collect();
    Instance::new(variants, clients, outlook.workers.len(), unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Two workers whose requests take 5, 10 and 20 ms, two of them half as long again.
    fn outlook() -> Outlook {
        let times = |ms: u32| vec![MS * ms, MS * ms * 3 / 2];
        Outlook {
            batch: 1,
            execution: vec![MS * 5, MS * 10, MS * 20],
            by_size: [5, 10, 20].map(times).to_vec(),
            workers: vec![WorkerId(3), WorkerId(7)],
            devices: 2.0,
            pulls: false,
            part: 1.0,
            beside: 0.0,
            rest: Duration::ZERO,
        }
    }

    fn demand(rate: f64, ms: [u32; 3]) -> Demand {
        Demand {
            rate,
            budgets: ms.map(|ms| MS * ms).to_vec(),
            divides: false,
        }
    }

    fn solve(
        bound: &mut Bound,
        outlook: &Outlook,
        demands: &[Demand],
    ) -> Vec<(Choice, Option<StreamBinding>)> {
        let accuracies = [0.5, 0.7, 0.8].into_iter();
        bound.solve(accuracies, outlook, demands, &vec![None; demands.len()])
    }

    #[test]
    fn a_slow_link_has_a_worker_of_its_own() {
        let demands = [demand(10.0, [100, 0, 0]), demand(10.0, [100; 3])];
        let served = solve(&mut Bound::new(1), &outlook(), &demands);
        let variants: Vec<u16> = served.iter().map(|(choice, _)| choice.variant.0).collect();
        assert_eq!(variants, [0, 2]);
        let workers: Vec<WorkerId> = served
            .iter()
            .filter_map(|(_, s)| Some(s.as_ref()?.worker))
            .collect();
        assert_eq!(workers.len(), 2);
        assert_ne!(workers[0], workers[1]);
    }

    #[test]
    fn what_one_worker_runs_serves_all_its_streams() {
        let one = Outlook {
            workers: vec![WorkerId(3)],
            ..outlook()
        };
        let demands = [demand(10.0, [100, 0, 0]), demand(10.0, [100; 3])];
        let served = solve(&mut Bound::new(1), &one, &demands);
        assert!(served.iter().all(|(choice, binding)| {
            choice.variant == VariantId(0) && binding.is_some_and(|s| s.worker == WorkerId(3))
        }));
    }

    #[test]
    fn more_requests_a_second_take_larger_batches() {
        // 80 a second of the largest variant: one worker bears 50 alone, 66 two at a time; two bear 100 together.
        let demands = vec![demand(40.0, [100; 3]); 2];
        let served = solve(&mut Bound::new(1), &outlook(), &demands);
        assert!(
            served
                .iter()
                .all(|(choice, _)| choice.variant == VariantId(2))
        );
        let demands = vec![demand(60.0, [100; 3]); 2];
        let served = solve(&mut Bound::new(1), &outlook(), &demands);
        let batches: Vec<u32> = served
            .iter()
            .filter_map(|(_, s)| Some(s.as_ref()?.batch))
            .collect();
        assert_eq!(batches, [2, 2]);
    }

    #[test]
    fn half_a_gateway_plans_with_half_of_each_worker_and_other_modules_take_their_time() {
        let half = Outlook {
            part: 0.5,
            ..outlook()
        };
        let beside = Outlook {
            beside: 0.02,
            ..outlook()
        };
        for outlook in [half, beside] {
            let demands = vec![demand(40.0, [100; 3]); 2];
            let served = solve(&mut Bound::new(1), &outlook, &demands);
            assert!(
                served
                    .iter()
                    .all(|(choice, _)| choice.variant < VariantId(2)),
                "{served:?}"
            );
        }
    }

    #[test]
    fn without_a_worker_and_beyond_capacity_streams_have_no_place() {
        let none = Outlook {
            workers: Vec::new(),
            ..outlook()
        };
        let demands = vec![demand(10.0, [100; 3]); 2];
        let served = solve(&mut Bound::new(1), &none, &demands);
        assert_eq!(served, vec![(nothing(), None); 2]);
        let demands = vec![demand(200.0, [100; 3]); 3];
        let served = solve(&mut Bound::new(1), &outlook(), &demands);
        let bound = served
            .iter()
            .filter(|(_, binding)| binding.is_some())
            .count();
        assert_eq!(bound, 2, "{served:?}");
        assert!(served.iter().any(|s| *s == (nothing(), None)));
    }
}
