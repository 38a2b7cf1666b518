use proptest::prelude::*;

use super::*;

const MODELS: u32 = 3;

fn at(tick: u64) -> Timestamp {
    Timestamp::from_ns(tick)
}

fn alone(model: ModelId) -> Duration {
    Duration::from_nanos(3 * u64::from(model.0))
}

/// All requests that wait, in one list.
#[derive(Default)]
struct Slow {
    /// In order of arrival.
    waiting: Vec<(ModelId, Waiting)>,
    under_way: Vec<(ModelId, Waiting)>,
}

impl Slow {
    fn of(&self, model: ModelId) -> Vec<Waiting> {
        let of = self.waiting.iter().filter(|(m, _)| *m == model);
        let mut of: Vec<Waiting> = of.map(|(_, w)| *w).collect();
        // A stable sort keeps the order of arrival.
        of.sort_by_key(|w| w.deadline);
        of
    }

    fn remove(&mut self, id: RequestId) {
        self.waiting.retain(|(_, w)| w.id != id);
    }

    fn pressure(&self, model: ModelId) -> f64 {
        let all = self.waiting.iter().chain(&self.under_way);
        let of = all.filter(|(m, w)| *m == model && !w.slo.is_zero());
        of.map(|(_, w)| 1.0 / w.slo.as_secs_f64()).sum()
    }

    fn next_expiry(&self) -> Option<Timestamp> {
        let bounded = self.waiting.iter();
        let bounded = bounded.filter(|(_, w)| w.deadline < Timestamp::MAX);
        bounded.map(|(m, w)| w.deadline - alone(*m)).min()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A deadline and an SLO.
    Push(u64, u64),
    /// Position and count, cut to what is there; then they are under way.
    Take(usize, usize),
    ComesBack,
    Remove(usize),
    DropBefore(u64),
    PopExpired(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let deadline = prop_oneof![9 => 0..40u64, 1 => Just(u64::MAX)];
    // From a nanosecond to centuries: what is added and taken away differs by many orders.
    let slo = prop_oneof![Just(0), Just(1), 1_000..1_000_000_000u64, Just(u64::MAX)];
    prop_oneof![
        6 => (deadline, slo).prop_map(|(d, s)| Step::Push(d, s)),
        2 => (0..4usize, 1..4usize).prop_map(|(f, n)| Step::Take(f, n)),
        1 => Just(Step::ComesBack),
        1 => (0..6usize).prop_map(Step::Remove),
        1 => (0..40u64).prop_map(Step::DropBefore),
        1 => (0..40u64).prop_map(Step::PopExpired),
    ]
}

proptest! {
    #[test]
    fn queues_and_their_indexes_equal_one_list(steps in prop::collection::vec((0..MODELS, step()), 0..60)) {
        let mut queues = Queues::new(MODELS as usize);
        let mut slow = Slow::default();
        for (i, (model, step)) in steps.into_iter().enumerate() {
            let mut model = ModelId(model);
            match step {
                Step::Push(deadline, slo) => {
                    let waiting = Waiting {
                        id: RequestId(i as u64),
                        deadline: at(deadline),
                        kept_free: Duration::ZERO,
                        slo: Duration::from_nanos(slo),
                    };
                    queues.push(model, waiting);
                    slow.waiting.push((model, waiting));
                }
                Step::Take(first, count) => {
                    let there = slow.of(model);
                    let first = first.min(there.len());
                    let count = count.min(there.len() - first);
                    let taken = queues.take(model, first, count);
                    prop_assert_eq!(&taken, &there[first..first + count]);
                    queues.went(model, &taken);
                    for waiting in taken {
                        slow.remove(waiting.id);
                        slow.under_way.push((model, waiting));
                    }
                }
                Step::ComesBack => {
                    let back = slow.under_way.extract_if(.., |(m, _)| *m == model);
                    let back: Vec<Waiting> = back.map(|(_, w)| w).collect();
                    queues.came_back(model, &back);
                }
                Step::Remove(n) => {
                    // The last one is not there any more, or never was.
                    let id = slow.of(model).get(n).map_or(RequestId(u64::MAX), |w| w.id);
                    queues.remove(model, id);
                    slow.remove(id);
                }
                Step::DropBefore(deadline) => {
                    let mut dropped = Vec::new();
                    queues.drop_before(model, at(deadline), |id| dropped.push(id));
                    let gone = slow.of(model).into_iter().filter(|w| w.deadline < at(deadline));
                    let gone: Vec<RequestId> = gone.map(|w| w.id).collect();
                    gone.iter().for_each(|id| slow.remove(*id));
                    prop_assert_eq!(dropped, gone);
                }
                Step::PopExpired(now) => {
                    let popped = queues.pop_expired(at(now));
                    let expires = slow.next_expiry().filter(|e| *e < at(now));
                    prop_assert_eq!(popped.is_some(), expires.is_some());
                    if let Some(popped) = popped {
                        let first = slow.of(popped)[0].deadline - alone(popped);
                        prop_assert_eq!(Some(first), expires);
                        model = popped;
                    }
                }
            }
            let before = queues.key(model);
            let keys = queues.rekey(model, alone(model));
            prop_assert_eq!(keys, (before, slow.of(model).first().map(|w| w.deadline)));
            prop_assert_eq!(queues.next_expiry(), slow.next_expiry());
            let first_background = |model: ModelId| {
                let there = slow.of(model);
                let first = there.iter().find(|w| w.deadline == Timestamp::MAX)?;
                Some((Reverse(first.slo), model))
            };
            let mut background: Vec<_> = (0..MODELS).map(ModelId).filter_map(first_background).collect();
            background.sort_unstable();
            let background: Vec<ModelId> = background.into_iter().map(|(_, model)| model).collect();
            prop_assert_eq!(queues.in_background().collect::<Vec<_>>(), background);
            for model in (0..MODELS).map(ModelId) {
                let there = slow.of(model);
                prop_assert_eq!(queues.len(model), there.len());
                let urgent = there.iter().filter(|w| w.deadline < Timestamp::MAX).count();
                prop_assert_eq!(queues.urgent(model), urgent);
                prop_assert_eq!(queues.has_background(model), urgent < there.len());
                prop_assert_eq!(queues.of(model).copied().collect::<Vec<_>>(), there.clone());
                for deadline in [at(0), at(i as u64), at(20), Timestamp::MAX] {
                    let first = there.iter().position(|w| w.deadline >= deadline);
                    let first = first.map(|i| (i, there[i].deadline));
                    prop_assert_eq!(queues.first_from(model, deadline), first);
                }
                let (pressure, exact) = (queues.pressure(model), slow.pressure(model));
                // What is under way is not added up anew: it has devices already.
                let rounded = if slow.under_way.iter().any(|(m, _)| *m == model) { 1e-3 } else { 0.0 };
                prop_assert!((pressure - exact).abs() <= 1e-6 * exact + rounded, "{} is not {}", pressure, exact);
            }
        }
    }
}
