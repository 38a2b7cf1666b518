use proptest::prelude::*;

use super::*;

const GATEWAY: GatewayId = GatewayId(0);
const LIFE: Incarnation = Incarnation(1);
/// Each report is so long after the one before it.
const STEP: Duration = Duration::from_millis(100);

struct World {
    models: Models,
    now: Timestamp,
    counts: Vec<f64>,
}

impl World {
    /// Requests take 10 ms.
    fn new(n_models: usize) -> Self {
        World {
            models: Models::new(Duration::from_millis(10)),
            now: Timestamp::ZERO,
            counts: vec![0.0; n_models],
        }
    }

    /// So many requests a second come for each model, for that long. Returns how often models moved.
    fn run(&mut self, rates: &[f64], up: &[WorkerId], span: Duration) -> usize {
        let end = self.now + span;
        let mut moves = 0;
        while self.now < end {
            self.now = self.now + STEP;
            let mut asked = Vec::new();
            for (member, (count, rate)) in (0..).zip(self.counts.iter_mut().zip(rates)) {
                let before = count.floor();
                *count += rate * STEP.as_secs_f64();
                if count.floor() > before {
                    asked.push((MemberId(member), count.floor() as u64));
                }
            }
            self.models.take(self.now, GATEWAY, LIFE, asked);
            moves += usize::from(self.models.look(self.now, up));
        }
        moves
    }

    fn workers(&mut self, member: u16) -> Vec<WorkerId> {
        self.models.served_by(MemberId(member))
    }

    /// The part of its time that each worker is busy.
    fn busy(&mut self, rates: &[f64], up: &[WorkerId]) -> Vec<f64> {
        let mut busy = vec![0.0; up.len()];
        for (member, rate) in (0..).zip(rates) {
            let workers = self.workers(member);
            for worker in &workers {
                let idx = up.iter().position(|w| w == worker).expect("it is up");
                busy[idx] += rate * 0.010 / workers.len() as f64;
            }
        }
        busy
    }
}

fn workers(n: u32) -> Vec<WorkerId> {
    (0..n).map(WorkerId).collect()
}

#[test]
fn a_model_that_one_worker_cannot_serve_gets_several_and_gives_them_back() {
    let up = workers(4);
    let mut world = World::new(2);
    world.run(&[10.0, 10.0], &up, Duration::from_secs(5));
    assert_eq!(world.models.assigned().len(), 0, "nothing is busy");
    // 1.5 workers' time: three at most half busy.
    world.run(&[150.0, 10.0], &up, Duration::from_secs(10));
    assert_eq!(world.workers(0).len(), 3);
    assert_eq!(world.workers(1).len(), 1);
    world.run(&[10.0, 10.0], &up, Duration::from_secs(20));
    assert_eq!(world.workers(0).len(), 1);
}

#[test]
fn what_nobody_asks_for_is_forgotten() {
    let up = workers(2);
    let mut world = World::new(1);
    world.run(&[150.0], &up, Duration::from_secs(5));
    assert_eq!(world.models.assigned().len(), 1);
    let later = world.now + FORGOTTEN_AFTER + PERIOD;
    world.models.look(later, &up);
    assert_eq!(world.models.assigned().len(), 0);
    assert_eq!(world.models.looks_at(), None, "nothing is to be looked at");
}

#[test]
fn a_report_that_is_lost_or_comes_twice_or_of_another_life_changes_little() {
    let mut models = Models::new(Duration::from_millis(10));
    let at = |s| Timestamp::ZERO + Duration::from_secs(s);
    let member = MemberId(3);
    for (life, count) in [(1, 20), (1, 20), (1, 40), (1, 30), (2, 20)] {
        models.take(at(1), GATEWAY, Incarnation(life), vec![(member, count)]);
    }
    // 60 requests over two seconds.
    assert!((models.rates[&member].at(at(1)) - 30.0).abs() < 1e-9);
}

proptest! {
    /// The slow obvious reference is what a look through all workers finds: no worker is busier than the mean by more than is
    /// allowed, unless a single model's part is larger than what parts it from the one with the most time.
    #[test]
    fn work_becomes_even_and_then_nothing_moves(
        rates in proptest::collection::vec(0.0..40.0f64, 1..60),
        n in 1u32..8,
        gone in 0usize..8,
    ) {
        let mut up = workers(n);
        let mut world = World::new(rates.len());
        world.run(&rates, &up, Duration::from_secs(40));
        // Reports of whole requests make the smoothed rates of slow models waver: these may move to and fro across a bound.
        let moves = world.run(&rates, &up, Duration::from_secs(20));
        prop_assert!(moves <= 2, "{moves} moves");
        let busy = world.busy(&rates, &up);
        let mean = busy.iter().sum::<f64>() / f64::from(n);
        let most = busy.iter().copied().fold(0.0, f64::max);
        let least = busy.iter().copied().fold(f64::MAX, f64::min);
        let busiest = up[busy.iter().position(|b| *b == most).unwrap()];
        let movable = (0..).zip(&rates).filter(|(member, _)| {
            let workers = world.models.served_by(MemberId(*member));
            workers.contains(&busiest)
        });
        let smallest = movable.map(|(_, rate)| rate * 0.010).fold(f64::MAX, f64::min);
        let is_even = most <= BUSY * 1.1 || most - mean <= UNEVEN * 1.3;
        prop_assert!(is_even || smallest >= (most - least) * 0.9, "{busy:?}");
        // Where a worker goes, only its models move at once.
        if n > 1 {
            let before: Vec<_> = (0..rates.len() as u16).map(|m| world.workers(m)).collect();
            let gone = up.remove(gone % n as usize);
            world.models.look(world.now, &up);
            world.models.see(&up);
            for (member, before) in (0..).zip(before) {
                let now = world.workers(member);
                prop_assert!(!now.contains(&gone) && !now.is_empty());
                prop_assert!(before.contains(&gone) || now == before, "{member}: {before:?} {now:?}");
            }
        }
    }
}
