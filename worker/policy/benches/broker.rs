//! The hot path of a worker at 10,000 waiting requests: one push, one pop, one keep test.

use std::time::Duration;

use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::policy::{BudgetOrder, DropPolicy, Guidance};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::broker::{Broker, BrokerConfig};

const WAITING: u64 = 10_000;
const MS: u64 = 1_000_000;

fn main() {
    divan::main();
}

/// Deadlines in an order that is neither sorted nor random at each run.
fn request(id: u64) -> Request {
    let deadline = 1_000_000 * MS + id.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1_000 * MS);
    Request::new(RequestId(id), Timestamp::ZERO, Timestamp::from_ns(deadline))
}

fn full(policy: DropPolicy, batch: u32) -> Broker<()> {
    let mut broker = Broker::new(
        WorkerId(1),
        BrokerConfig {
            module: ModuleId(1),
            capacity: 2 * WAITING as usize,
            batch,
            execution: (1..=batch)
                .map(|b| Duration::from_millis(10 + 5 * u64::from(b)))
                .collect::<Vec<_>>()
                .into(),
            recipe: policy.recipe(),
            pulls: false,
            is_family: false,
            is_adapted: false,
            background: 64,
            background_time: Duration::from_millis(10),
            schedule: None,
        },
    );
    let mut out = Vec::new();
    for id in 0..WAITING {
        broker.arrive(Timestamp::ZERO, request(id), (), &mut out);
    }
    broker
}

/// PARD: a request arrives, one is popped by `order`, tested, and bound to a batch of one.
#[divan::bench(args = ["lowest", "highest"])]
fn push_pop_keep(bencher: divan::Bencher<'_, '_>, order: &str) {
    let mut broker = full(DropPolicy::PARD, 1);
    broker.guide(
        Timestamp::ZERO,
        Guidance {
            downstream: Duration::from_millis(100),
            order: if order == "lowest" {
                BudgetOrder::LowestFirst
            } else {
                BudgetOrder::HighestFirst
            },
            ..Guidance::NONE
        },
    );
    let mut out = Vec::new();
    let mut id = WAITING;
    let now = Timestamp::from_ns(MS);
    bencher.bench_local(|| {
        broker.arrive(now, request(id), (), &mut out);
        id += 1;
        broker.collect(now, now, &mut out);
        broker.take_batch(now, now, &mut out).members
    });
}

/// Ours: 16 requests arrive and one batch of 16 is formed from 10,000 that wait; per batch, not per request.
#[divan::bench]
fn form_a_batch_of_16(bencher: divan::Bencher<'_, '_>) {
    let mut broker = full(DropPolicy::SPILLGATE, 16);
    let mut out = Vec::new();
    let mut id = WAITING;
    let now = Timestamp::from_ns(MS);
    bencher.bench_local(|| {
        for _ in 0..16 {
            broker.arrive(now, request(id), (), &mut out);
            id += 1;
        }
        broker.take_batch(now, now, &mut out).members
    });
}
