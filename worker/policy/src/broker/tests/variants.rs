//! Modules whose variants are chosen request by request: a batch holds requests of one variant, and takes that variant's time.

use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::id::VariantId;
use spillgate_recipes::drops;

use super::*;

const MS: u64 = 1_000_000;
/// Time of a request alone, by variant.
const ALONE_MS: [u64; 3] = [5, 10, 40];

/// A broker of three variants, whose batches take that time a member.
fn broker(policy: DropPolicy, batch: u32) -> Broker<u64> {
    let times = |alone: u64| {
        let sizes = 1..=u64::from(batch);
        sizes.map(|n| Duration::from_millis(alone * n)).collect()
    };
    let mut pipeline =
        spillgate_pipeline::testing::noop_pipeline(Duration::from_secs(1), &[&[0]], &[]);
    pipeline.policy.drop = policy;
    let execution = ModuleExecution::of_variants(ALONE_MS.map(times).to_vec());
    let config = BrokerConfig::of(&pipeline, ModuleId(1), batch, execution, None);
    Broker::new(
        WorkerId(1),
        BrokerConfig {
            is_adapted: true,
            ..config
        },
    )
}

fn of_variant(id: u64, deadline_ms: u64, variant: u16) -> Request {
    Request {
        variant: VariantId(variant),
        ..request(id, deadline_ms * MS)
    }
}

fn policies() -> impl Strategy<Value = DropPolicy> {
    prop::sample::select(drops::ALL.to_vec())
}

proptest! {
    /// However batches are formed, each holds requests of one variant and is expected to take its time, and a request leaves once.
    #[test]
    fn a_batch_is_of_one_variant(
        policy in policies(),
        batch in 1u32..5,
        requests in prop::collection::vec((1u64..400, 0u16..3), 0..40),
        every in 1u64..60,
    ) {
        let mut broker = broker(policy, batch);
        let mut out = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut now = 0;
        let mut take = |broker: &mut Broker<u64>, now: u64, out: &mut Vec<Rejected<u64>>| {
            broker.collect(at(now), at(now), out);
            let formed = broker.take_batch(at(now), at(now), out);
            let Some(first) = formed.members.first() else { return Ok(false) };
            let variant = first.request.variant;
            let size = formed.members.len();
            prop_assert!(size <= batch as usize);
            prop_assert!(formed.members.iter().all(|m| m.request.variant == variant));
            let expected = Duration::from_millis(ALONE_MS[variant.idx()] * size as u64);
            prop_assert_eq!(formed.execution, expected);
            prop_assert!(formed.members.iter().all(|m| seen.insert(m.payload)));
            Ok(true)
        };
        for (id, (slack, variant)) in (0u64..).zip(&requests) {
            now += every * MS / 4;
            broker.arrive(at(now), of_variant(id, now / MS + slack, *variant), id, &mut out);
            if id % 3 == 0 {
                take(&mut broker, now, &mut out)?;
            }
        }
        for _ in 0..=requests.len() {
            take(&mut broker, now, &mut out)?;
        }
        prop_assert_eq!(broker.waiting(), 0);
        for gone in &out {
            prop_assert!(seen.insert(gone.payload));
        }
        prop_assert_eq!(seen.len(), requests.len());
    }
}

#[test]
fn a_request_is_given_up_by_the_time_of_its_own_variant() {
    for policy in [DropPolicy::SPILLGATE, drops::SPILLGATE_HBF, drops::PARD_LBF] {
        let mut broker = broker(policy, 1);
        let mut out = Vec::new();
        // 20 ms are enough for the second variant, and not for the third.
        for (id, variant) in [(1, 1), (2, 2)] {
            broker.arrive(at(0), of_variant(id, 20, variant), id, &mut out);
        }
        broker.collect(at(0), at(0), &mut out);
        let mut ran = Vec::new();
        while let batch = broker.take_batch(at(0), at(0), &mut out)
            && !batch.members.is_empty()
        {
            ran.extend(batch.members.iter().map(|m| m.payload));
            broker.collect(at(0), at(0), &mut out);
        }
        let gone: Vec<u64> = out.iter().map(|r| r.payload).collect();
        assert_eq!((ran, gone), (vec![1], vec![2]), "{policy:?}");
    }
}

/// One factor over the profile is learnt from batches of all variants.
#[test]
fn the_pace_of_one_variant_holds_for_all() {
    let mut broker = broker(DropPolicy::SPILLGATE, 2);
    let ms = Duration::from_millis;
    for i in 0..40 {
        let expected = (broker.execution(VariantId(0), 2), Lengths::default());
        broker.executed(at(i * MS), (VariantId(0), 2), expected, None, ms(20));
    }
    let expected = broker.execution(VariantId(2), 1);
    let off = expected.abs_diff(ms(80));
    assert!(off < ms(4), "{expected:?}");
}

/// Of a stream that is bound to the worker: batches are as large as its scheduler says, for those that come after, too.
#[test]
fn bound_streams_say_how_large_batches_are() {
    for policy in drops::ALL {
        let mut broker = broker(policy, 4);
        let mut out = Vec::new();
        let mut sizes = Vec::new();
        for (round, batch_most) in [0, 2, 0, 3, 200].into_iter().enumerate() {
            let now = at(round as u64 * 1000 * MS);
            for id in 0..8 {
                let request = Request {
                    id: RequestId(100 * round as u64 + id),
                    sent_at: now,
                    deadline: now + Duration::from_secs(1),
                    batch_most,
                    ..of_variant(0, 0, 0)
                };
                broker.arrive(now, request, 0, &mut out);
            }
            broker.collect(now, now, &mut out);
            sizes.push(broker.take_batch(now, now, &mut out).members.len());
            while !broker.take_batch(now, now, &mut out).members.is_empty() {}
        }
        assert_eq!(sizes, [4, 2, 2, 3, 4], "{policy:?}");
    }
}
