//! One answer of the adaptation: 160 clients on 16 workers that run variants of 16 sizes. What a live scheduler may take of one core is 25 ms in
//! each half second.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::adaptation::{STEPS_DEFAULT, Variant};
use spillgate_controller_policy::uplink::UplinkReport;
use spillgate_controller_policy::variant_selector::{
    FrameSize, Outlook, StreamKey, VariantSelector,
};
use spillgate_jellyfish::adaptation::{
    Adaptation, AdaptationConfig, AdaptationEvent, AdaptiveVariant, ClientReport, Method, PERIOD,
    PREFETCHED_DEFAULT, QUICK_GAP, SWITCH_TIME_DEFAULT,
};
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::id::{ClientId, WorkerId};
use spillgate_pipeline::pipeline;
use spillgate_pipeline::policy::{Adapt, AdaptName};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;

const CLIENTS: u32 = 160;
const WORKERS: u32 = 16;

fn main() {
    divan::main();
}

/// A whole decision.
#[divan::bench(args = [Method::Spillgate, Method::Jellyfish])]
fn decision(bencher: divan::Bencher<'_, '_>, method: Method) {
    let mut adaptation = scheduler(method);
    let mut now = Timestamp::ZERO;
    let mut out = Vec::new();
    bencher.bench_local(|| {
        out.clear();
        adaptation.on_event(now, AdaptationEvent::Wakeup, &mut out);
        now = now + PERIOD;
        out.len()
    });
}

/// What a gateway does in half a second: one decision about streams of all clients, as `adapt:` of that name serves them.
#[divan::bench(args = [AdaptName::Spillgate, AdaptName::Greedy, AdaptName::Jellyfish])]
fn gateway(bencher: divan::Bencher<'_, '_>, name: AdaptName) {
    let adaptive = variants();
    let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
    let inputs = (0..).map(|i| 128 + 32 * i);
    let variants = adaptive.iter().zip(inputs);
    pipeline.modules[1].variants = variants
        .map(|(v, input)| pipeline::Variant {
            model: "a.pt".to_owned(),
            input: Some(input),
            accuracy: Some(v.variant.accuracy),
        })
        .collect();
    let batch = 4;
    let of_batch = |v: &AdaptiveVariant| v.variant.execution[batch - 1];
    let outlook = Outlook {
        batch: batch as u32,
        execution: adaptive.iter().map(of_batch).collect(),
        by_size: adaptive
            .iter()
            .map(|v| v.variant.execution.clone())
            .collect(),
        workers: (0..WORKERS).map(WorkerId).collect(),
        devices: f64::from(WORKERS),
        pulls: name != AdaptName::Jellyfish,
        part: 1.0,
        beside: 0.0,
        rest: Duration::from_millis(2),
    };
    let mut selector = VariantSelector::new(
        Adapt::new(pipeline.modules[1].id, name),
        &pipeline.modules[1],
        0,
        7,
    );
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let reports: Vec<ClientReport> = (0..CLIENTS).map(|_| report(&mut rng)).collect();
    let frame = FrameSize {
        side: 608,
        source: 608,
        bytes: 40_000,
    };
    let mut now = Timestamp::ZERO;
    let mut frames = |selector: &mut VariantSelector, now: Timestamp| {
        for (client, report) in (0..).zip(&reports) {
            let key = StreamKey(client);
            for _ in 0..(report.rate * PERIOD.as_secs_f64()) as u32 {
                selector.asked(now, (key, ClientKey(client)), frame, report.slo);
            }
            // Links waver, as in the evaluation.
            let bandwidth = report.bandwidth * rng.random_range(0.7..1.3);
            let link = UplinkReport {
                bandwidth,
                round_trip: report.round_trip,
            };
            selector.heard(now, key, link);
        }
    };
    frames(&mut selector, now);
    bencher.bench_local(|| {
        now = now + PERIOD;
        frames(&mut selector, now);
        selector.decide(now, &outlook);
        selector.news().len()
    });
}

/// Half a second in which a client joins and leaves every 50 ms: ten decisions, of which one is whole.
#[divan::bench]
fn restless_half_second(bencher: divan::Bencher<'_, '_>) {
    let mut adaptation = scheduler(Method::Spillgate);
    let mut now = Timestamp::ZERO;
    let mut out = Vec::new();
    adaptation.on_event(now, AdaptationEvent::Wakeup, &mut out);
    let report = report(&mut ChaCha8Rng::seed_from_u64(1));
    bencher.bench_local(|| {
        out.clear();
        let join = AdaptationEvent::Reported {
            client: ClientId(999),
            report,
        };
        let leave = AdaptationEvent::Left(ClientId(999));
        for event in [join, leave].into_iter().cycle().take(10) {
            adaptation.on_event(now, event, &mut out);
            // After the gap.
            now = now + QUICK_GAP;
            adaptation.on_event(now, AdaptationEvent::Wakeup, &mut out);
        }
        out.len()
    });
}

fn variants() -> Vec<AdaptiveVariant> {
    let variant = |i: u32| {
        let size = f64::from(128 + 32 * i);
        let each = 3.0 + 4.75e-5 * (size * size - 128.0 * 128.0);
        let time = |batch: u32| Duration::from_secs_f64((20.0 + f64::from(batch) * each) * 1e-3);
        AdaptiveVariant {
            variant: Variant {
                accuracy: 0.495 - 0.827 * (-size / 124.2).exp(),
                execution: (1..=8).map(time).collect(),
            },
            frame_bits: size * size * 3.0 * 8.0 / 4.78,
        }
    };
    (0..16).map(variant).collect()
}

fn scheduler(method: Method) -> Adaptation {
    let config = AdaptationConfig {
        method,
        variants: variants(),
        workers: (0..WORKERS).map(WorkerId).collect(),
        switch_time: SWITCH_TIME_DEFAULT,
        load_max: 1.0,
        n_prefetched: PREFETCHED_DEFAULT,
        steps: STEPS_DEFAULT,
        seed: 7,
    };
    let mut adaptation = Adaptation::new(config).expect("variants have profiles");
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for client in 0..CLIENTS {
        let event = AdaptationEvent::Reported {
            client: ClientId(client),
            report: report(&mut rng),
        };
        adaptation.on_event(Timestamp::ZERO, event, &mut Vec::new());
    }
    adaptation
}

fn report(rng: &mut ChaCha8Rng) -> ClientReport {
    ClientReport {
        rate: [10.0, 15.0, 25.0][rng.random_range(0..3)],
        slo: Duration::from_millis([75, 100, 150][rng.random_range(0..3)]),
        bandwidth: rng.random_range(8e6..50e6),
        round_trip: Duration::from_millis(2),
    }
}
