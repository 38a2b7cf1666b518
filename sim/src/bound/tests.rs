//! Bounds against the best schedule of tiny instances, found by trying everything.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spillgate_pipeline::testing::noop_pipeline;

use super::*;

/// A tiny instance in whole milliseconds: a chain of modules.
#[derive(Clone, Debug)]
struct Tiny {
    /// Execution times of each module by batch size.
    execution: Vec<Vec<u64>>,
    workers: Vec<u32>,
    hop: u64,
    slo: u64,
    /// In order.
    arrivals: Vec<u64>,
}

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

const CHAIN: [&[u16]; 3] = [&[0], &[1], &[2]];

impl Tiny {
    fn bounds(&self, check: impl Fn(&Bounded, &Planned)) {
        let modules = self.execution.len();
        let mut pipeline = noop_pipeline(ms(self.slo), &CHAIN[..modules], &[]);
        let batch = std::iter::once(0).chain(self.execution.iter().map(|t| t.len() as u32));
        let batch: Vec<u32> = batch.collect();
        for (module, size) in pipeline.modules.iter_mut().zip(&batch) {
            module.batch.max = *size;
        }
        let tables = self
            .execution
            .iter()
            .map(|t| t.iter().map(|&d| ms(d)).collect());
        let execution: ExecutionTimes = std::iter::once(vec![]).chain(tables).collect();
        let arrivals: Vec<Timestamp> = self
            .arrivals
            .iter()
            .map(|&a| Timestamp::ZERO + ms(a))
            .collect();
        let bounded = Bounded {
            pipeline: &pipeline,
            execution: &execution,
            hop: ms(self.hop),
            arrivals: &arrivals,
            deadlines: None,
        };
        let workers = std::iter::once(0)
            .chain(self.workers.iter().copied())
            .collect();
        let plan = Planned {
            batch,
            execution: execution.clone(),
            workers,
            alone: true,
        };
        check(&bounded, &plan);
    }

    /// Most requests in time of any schedule. Times are whole, so that some best schedule starts its batches at whole
    /// times (start each as early as what it waits for allows).
    fn best(&self) -> u64 {
        let start = State {
            now: 0,
            next: self.arrivals.iter().map(|a| (0, a + self.hop)).collect(),
            busy: self.workers.iter().map(|&n| vec![0; n as usize]).collect(),
        };
        self.best_from(start, 0, &mut BTreeMap::new())
    }

    /// From a state on, when only modules from `module` on still start batches at this moment.
    fn best_from(
        &self,
        mut state: State,
        module: usize,
        seen: &mut BTreeMap<(State, usize), u64>,
    ) -> u64 {
        for (i, (at, ready)) in state.next.iter_mut().enumerate() {
            // Who cannot be in time any more is out.
            let rest = &self.execution[*at..];
            let hops = self.hop * rest.len().saturating_sub(1) as u64;
            let least = hops + rest.iter().map(|t| t.iter().min().unwrap()).sum::<u64>();
            let from = if rest.is_empty() {
                *ready
            } else {
                state.now.max(*ready)
            };
            if *ready == OUT || from + least > self.arrivals[i] + self.slo {
                (*at, *ready) = (0, OUT);
            } else if *ready <= state.now {
                // Since when it is there makes no difference: fewer states.
                *ready = 0;
            }
        }
        let modules = self.execution.len();
        let done = |i: usize| state.next[i].0 == modules;
        if (0..state.next.len()).all(|i| done(i) || state.next[i].1 == OUT) {
            return (0..state.next.len())
                .filter(|&i| done(i) && state.next[i].1 != OUT)
                .count() as u64;
        }
        if module == modules {
            let mut later = state;
            later.now += 1;
            for worker in later.busy.iter_mut().flatten() {
                *worker = (*worker).max(later.now);
            }
            return self.best_from(later, 0, seen);
        }
        for workers in &mut state.busy {
            workers.sort_unstable();
        }
        if let Some(best) = seen.get(&(state.clone(), module)) {
            return *best;
        }
        let mut best = self.best_from(state.clone(), module + 1, seen);
        let waiting: Vec<usize> = (0..state.next.len())
            .filter(|&i| state.next[i].0 == module && state.next[i].1 <= state.now)
            .collect();
        if state.busy[module][0] <= state.now {
            for chosen in 1u32..1 << waiting.len() {
                let Some(d) = self.execution[module].get(chosen.count_ones() as usize - 1) else {
                    continue;
                };
                let mut then = state.clone();
                let end = state.now + d;
                then.busy[module][0] = end;
                for (bit, &i) in waiting.iter().enumerate() {
                    if chosen >> bit & 1 == 1 {
                        let last = module + 1 == modules;
                        let late = end > self.arrivals[i] + self.slo;
                        let ready = if late {
                            OUT
                        } else {
                            end + if last { 0 } else { self.hop }
                        };
                        then.next[i] = (module + 1, ready);
                    }
                }
                // Another worker of the module may start at this moment, too.
                best = best.max(self.best_from(then, module, seen));
            }
        }
        seen.insert((state, module), best);
        best
    }
}

/// Not in time.
const OUT: u64 = u64::MAX;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    now: u64,
    /// Each request's next module, and when it is there.
    next: Vec<(usize, u64)>,
    /// When each worker is free.
    busy: Vec<Vec<u64>>,
}

/// Execution times that rise with the size, not always evenly.
fn table() -> impl Strategy<Value = Vec<u64>> {
    (1u64..4, proptest::collection::vec(0u64..3, 0..2)).prop_map(|(first, steps)| {
        let mut d = first;
        let later = steps.into_iter().map(|step| {
            d += step;
            d
        });
        std::iter::once(first)
            .chain(later.collect::<Vec<_>>())
            .collect()
    })
}

fn tiny() -> impl Strategy<Value = Tiny> {
    let module = (table(), 1u32..3);
    let modules = proptest::collection::vec(module, 1..3);
    let arrivals = proptest::collection::vec(0u64..6, 1..6);
    (modules, 0u64..2, 3u64..11, arrivals).prop_map(|(modules, hop, slo, mut arrivals)| {
        arrivals.sort_unstable();
        let (execution, workers) = modules.into_iter().unzip();
        Tiny {
            execution,
            workers,
            hop,
            slo,
            arrivals,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn no_schedule_beats_the_bounds(tiny in tiny()) {
        let best = tiny.best();
        tiny.bounds(|bounded, plan| {
            let bound = bounded.of_plan(plan);
            assert!(best <= bound, "{best} in time, bound {bound}");
            let gpus = plan.workers.iter().sum();
            let any = bounded.of_any_plan(gpus).unwrap();
            assert!(bound <= any, "{bound} on a plan, {any} over all");
        });
    }

    #[test]
    fn the_best_split_is_found(tiny in tiny(), gpus in 2u32..8) {
        let modules = tiny.execution.len() as u32;
        tiny.bounds(|bounded, plan| {
            // Every split; sizes are at their limits already.
            let splits = (1..gpus).map(|first| match modules {
                1 => vec![0, gpus],
                _ => vec![0, first, gpus - first],
            });
            let of = |workers| bounded.of_plan(&Planned { workers, ..plan.clone() });
            assert_eq!(bounded.of_any_plan(gpus).unwrap(), splits.map(of).max().unwrap());
        });
    }
}

#[test]
fn slots_are_given_by_deadline() {
    let pipeline = noop_pipeline(ms(100), &CHAIN[..1], &[]);
    let execution = vec![vec![], vec![ms(10)]].into();
    let at = |values: &[u64]| -> Vec<Timestamp> {
        values.iter().map(|&v| Timestamp::ZERO + ms(v)).collect()
    };
    let (arrivals, deadlines) = (at(&[0, 0, 0, 5, 30]), at(&[30, 10, 20, 15, 40]));
    let bounded = Bounded {
        pipeline: &pipeline,
        execution: &execution,
        hop: Duration::ZERO,
        arrivals: &arrivals,
        deadlines: Some(&deadlines),
    };
    let plan = Planned {
        batch: vec![0, 1],
        execution: execution.clone(),
        workers: vec![0, 1],
        alone: true,
    };
    // Slots of 10 ms until 10, 20, 30 and 40: one of the four early ones is too many.
    assert_eq!(bounded.of_plan(&plan), 4);
    assert!(bounded.of_any_plan(0).is_err());
}

#[test]
fn what_may_be_skipped_takes_no_time() {
    // 2 runs when 1 says so, and 3 reads 2.
    let pipeline = noop_pipeline(ms(100), &[&[0], &[1], &[2]], &[None, Some(1), None]);
    let execution = vec![vec![], vec![ms(10)], vec![ms(1000)], vec![ms(1000)]].into();
    let arrivals = vec![Timestamp::ZERO; 20];
    let bounded = Bounded {
        pipeline: &pipeline,
        execution: &execution,
        hop: ms(1),
        arrivals: &arrivals,
        deadlines: None,
    };
    // 3 ms of hops leave 97 ms for the first module, which touch 10 slots of 10 ms (from 0 to 100).
    assert_eq!(bounded.of_any_plan(3).unwrap(), 10);
    assert_eq!(bounded.of_any_plan(4).unwrap(), 20);
}
