//! The batch schedulers: the score queue at 10,000 pending requests, and a decision at 1,000. What is not measured
//! (filling up again) is done where inputs are made, which is why a sample is a single call there.

use std::cell::RefCell;
use std::time::Duration;

use spillgate_pipeline::distribution::{BatchForm, BatchTime, Distribution, WINDOW_DEFAULT};
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::schedule::score::{DELAY_RATE, ScoreLaw, Steps};
use spillgate_worker_policy::schedule::score_queue::ScoreQueue;
use spillgate_worker_policy::schedule::{
    Lengths, Pending, ScheduledBatch, Scheduler, SchedulerConfig, Scoring,
};

const QUEUED: u32 = 10_000;
const PENDING: usize = 1_000;
const MS: u64 = 1_000_000;

fn main() {
    divan::main();
}

/// Numbers below `n` in an order that is neither sorted nor random at each run.
fn mixed(i: u64, n: u64) -> u64 {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % n
}

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

/// 10,000 requests due within 2 s, of two applications.
struct Queued {
    laws: Vec<ScoreLaw>,
    queue: ScoreQueue,
    now: u64,
    count: u64,
}

impl Queued {
    fn new() -> Self {
        let law = |low: f64| {
            let edges: Vec<f64> = (0..25).map(|i| low + 10.0 * f64::from(i)).collect();
            ScoreLaw::new(
                &Distribution::from_bins(edges, &[1.0; 24]).unwrap(),
                DELAY_RATE,
            )
        };
        let mut queued = Queued {
            laws: vec![law(40.0), law(120.0)],
            queue: ScoreQueue::new(DELAY_RATE),
            now: MS,
            count: 0,
        };
        for slot in 0..QUEUED {
            queued.insert(slot);
        }
        queued
    }

    fn insert(&mut self, slot: u32) {
        self.count += 1;
        let deadline = at(self.now + mixed(self.count, 2_000 * MS));
        let (now, law) = (at(self.now), self.count as usize % 2);
        self.queue
            .insert(now, &self.laws, slot, law, Steps::single(deadline));
    }

    /// Takes one out, which makes room for the next; time passes.
    fn remove(&mut self) -> u32 {
        let slot = mixed(self.count, u64::from(QUEUED)) as u32;
        assert!(self.queue.remove(slot));
        slot
    }
}

#[divan::bench(sample_size = 1, sample_count = 20_000)]
fn score_queue_insert(bencher: divan::Bencher<'_, '_>) {
    let queued = RefCell::new(Queued::new());
    bencher
        .with_inputs(|| queued.borrow_mut().remove())
        .bench_local_values(|slot| queued.borrow_mut().insert(slot));
}

#[divan::bench]
fn score_queue_query(bencher: divan::Bencher<'_, '_>) {
    let mut queued = Queued::new();
    bencher.bench_local(|| {
        queued.now += 10;
        queued.queue.first(at(queued.now))
    });
}

/// A millisecond passes: all milestones within it.
#[divan::bench(sample_size = 1, sample_count = 500)]
fn score_queue_millisecond(bencher: divan::Bencher<'_, '_>) {
    let queued = RefCell::new(Queued::new());
    bencher
        .with_inputs(|| {
            let mut queued = queued.borrow_mut();
            // Half of them are past their deadlines, and have no milestones any more.
            if queued.now > 1_000 * MS {
                *queued = Queued::new();
            }
        })
        .bench_local_values(|()| {
            let mut queued = queued.borrow_mut();
            let queued = &mut *queued;
            queued.now += MS;
            queued.queue.advance(at(queued.now), &queued.laws);
        });
}

/// Time between two samples of an application.
const SAMPLED: u64 = 500 * MS;

/// A length of that application, ms: uniform over 20 ms.
fn length(application: u64, seed: u64) -> f64 {
    (20 + 10 * application) as f64 + mixed(seed, 1_000) as f64 * 0.02
}

/// A scheduler with 1,000 requests due within 2 s: batches take 40 to 560 ms.
struct Full {
    scheduler: Scheduler,
    applications: u64,
    now: u64,
    count: u64,
}

impl Full {
    fn new(name: SchedulePolicy, applications: u64) -> Self {
        let mut scheduler = Scheduler::new(SchedulerConfig {
            policy: name,
            sizes: vec![1, 2, 4, 8, 16],
            planned: 8,
            time: BatchTime::new(BatchForm::Padded, 38.5, 0.3, 0.0).unwrap(),
            prior_ms: 50.0,
            window: WINDOW_DEFAULT,
            capacity: PENDING,
            scoring: Scoring::default(),
        })
        .unwrap();
        for i in 0..2_000 {
            let application = i % applications;
            let length = length(application, i);
            let application = Application(application as u16);
            scheduler
                .learn(Timestamp::ZERO, application, length)
                .unwrap();
        }
        let mut full = Full {
            scheduler,
            applications,
            now: MS,
            count: 0,
        };
        full.fill();
        full.decide();
        full
    }

    /// Time passes. The profiler goes on with a sample of each application each half second, as on a device with some
    /// idle time; without, the scheduler would run requests alone for their time, which is no usual decision.
    fn pass(&mut self, time: u64) {
        let samples = (self.now + time) / SAMPLED - self.now / SAMPLED;
        self.now += time;
        for i in 0..samples * self.applications {
            let application = i % self.applications;
            let length = length(application, self.now + i);
            let (now, application) = (at(self.now), Application(application as u16));
            self.scheduler.learn(now, application, length).unwrap();
        }
    }

    fn fill(&mut self) {
        while self.scheduler.len() < PENDING {
            self.insert();
        }
    }

    fn insert(&mut self) {
        self.count += 1;
        let pending = Pending {
            id: RequestId(self.count),
            application: Application((self.count % self.applications) as u16),
            deadline: at(self.now + 100 * MS + mixed(self.count, 1_900 * MS)),
            arrived_at: at(self.now),
        };
        self.scheduler.insert(at(self.now), pending).unwrap();
    }

    fn decide(&mut self) -> Option<ScheduledBatch> {
        let mut gone = Vec::new();
        self.scheduler.next(at(self.now), &mut gone)
    }
}

const NAMES: [&str; 6] = ["goodput", "orloj", "edf", "clockwork", "nexus", "static"];

/// Per decision: give up, choose, take out. Four milliseconds pass between two.
#[divan::bench(args = NAMES, sample_size = 1, sample_count = 5_000)]
fn decision_of_1000(bencher: divan::Bencher<'_, '_>, name: &str) {
    decision(bencher, name, 2);
}

/// The same with eight applications.
#[divan::bench(args = ["goodput", "orloj"], sample_size = 1, sample_count = 1_000)]
fn decision_of_1000_by_8(bencher: divan::Bencher<'_, '_>, name: &str) {
    decision(bencher, name, 8);
}

fn decision(bencher: divan::Bencher<'_, '_>, name: &str, applications: u64) {
    let name = SchedulePolicy::by_name(name).unwrap();
    let full = RefCell::new(Full::new(name, applications));
    bencher
        .with_inputs(|| {
            let mut full = full.borrow_mut();
            full.pass(4 * MS);
            let took = Duration::from_millis(100);
            let now = at(full.now);
            let expected = (took, Lengths::default());
            full.scheduler.executed(now, 8, expected, took);
            full.fill();
        })
        .bench_local_values(|()| full.borrow_mut().decide());
}

/// A request joins 999 others.
#[divan::bench(args = NAMES, sample_size = 1, sample_count = 5_000)]
fn admission(bencher: divan::Bencher<'_, '_>, name: &str) {
    let name = SchedulePolicy::by_name(name).unwrap();
    let full = RefCell::new(Full::new(name, 2));
    bencher
        .with_inputs(|| {
            let mut full = full.borrow_mut();
            let oldest = full.count - mixed(full.count, 900);
            if full.scheduler.len() == PENDING && !full.scheduler.remove(RequestId(oldest)) {
                full.decide();
            }
        })
        .bench_local_values(|()| full.borrow_mut().insert());
}

/// One more sample makes the laws anew, with 1,000 waiting: the rare, slow decision.
#[divan::bench(args = ["goodput", "orloj"], sample_size = 1, sample_count = 1_000)]
fn decision_with_new_laws(bencher: divan::Bencher<'_, '_>, name: &str) {
    let name = SchedulePolicy::by_name(name).unwrap();
    let full = RefCell::new(Full::new(name, 2));
    bencher
        .with_inputs(|| {
            let mut full = full.borrow_mut();
            full.fill();
            for i in 0..300 {
                let (now, length) = (at(full.now), 20.0 + f64::from(i) * 0.05);
                full.scheduler
                    .learn(now, Application((i % 2) as u16), length)
                    .unwrap();
            }
        })
        .bench_local_values(|()| full.borrow_mut().decide());
}

/// The same in a size for which none of the 1,000 waiting requests was scored yet, because too few fit the largest. The
/// slowest decision.
#[divan::bench(args = ["goodput", "orloj"], sample_size = 1, sample_count = 1_000)]
fn decision_in_another_size(bencher: divan::Bencher<'_, '_>, name: &str) {
    let name = SchedulePolicy::by_name(name).unwrap();
    let full = RefCell::new(Full::new(name, 2));
    bencher
        .with_inputs(|| {
            let mut full = full.borrow_mut();
            full.pass(4_000 * MS);
            full.decide();
            let now = full.now;
            while full.scheduler.len() < PENDING {
                full.count += 1;
                // Of 16 a batch takes 190 ms and more on average, of 8 about 120 ms.
                let slack = 135 * MS + mixed(full.count, 30 * MS);
                let pending = Pending {
                    id: RequestId(full.count),
                    application: Application((full.count % 2) as u16),
                    deadline: at(now + slack),
                    arrived_at: at(now),
                };
                full.scheduler.insert(at(now), pending).unwrap();
            }
        })
        .bench_local_values(|()| {
            let batch = full.borrow_mut().decide().unwrap();
            assert!(batch.size == 8 || name == SchedulePolicy::GOODPUT);
            batch
        });
}
