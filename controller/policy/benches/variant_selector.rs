//! What choosing the variants of all streams of a gateway costs: it happens under the gateway's lock, twice a second.

use std::time::Duration;

use divan::{Bencher, black_box};
use spillgate_controller_policy::variant_selector::{
    FrameSize, Outlook, StreamKey, VariantSelector,
};
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::pipeline::Variant;
use spillgate_pipeline::policy::{Adapt, AdaptName};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;

const SLO: Duration = Duration::from_millis(200);
const MS: Duration = Duration::from_millis(1);
/// Batch sizes of a profile.
const SIZES: u32 = 8;

fn main() {
    divan::main();
}

/// Streams of different SLOs and rates, which together ask for more than the largest variant serves.
fn selector(name: AdaptName, streams: u64, variants: usize) -> (VariantSelector, Outlook) {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    let module = &mut pipeline.modules[1];
    module.variants = (1..=variants)
        .map(|n| Variant {
            model: "a.pt".to_owned(),
            input: None,
            accuracy: Some(1.0 - 1.0 / (n + 1) as f64),
        })
        .collect();
    let selector = VariantSelector::new(Adapt::new(module.id, name), module, 0, 1);
    let outlook = Outlook {
        batch: 1,
        execution: (1..=variants as u32).map(|n| MS * 2 * n).collect(),
        by_size: (1..=variants as u32)
            .map(|n| (1..=SIZES).map(|size| MS * n * (1 + size)).collect())
            .collect(),
        workers: (0..streams.div_ceil(10) as u32).map(WorkerId).collect(),
        devices: streams as f64 / 10.0,
        pulls: name != AdaptName::Jellyfish,
        part: 1.0,
        beside: 0.0,
        rest: Duration::ZERO,
    };
    (selector, outlook)
}

fn ask(selector: &mut VariantSelector, now: Timestamp, streams: u64) {
    for stream in 0..streams {
        let slo = SLO - Duration::from_millis(stream % 150);
        for _ in 0..1 + stream % 7 {
            let of = (StreamKey(stream), ClientKey(stream));
            selector.asked(now, of, FrameSize::default(), slo);
        }
    }
}

/// By streams and variants: as many as a gateway tells apart, and as many as a module may have.
#[divan::bench(args = [(16, 4), (160, 4), (160, 16), (512, 16), (512, 64)])]
fn spillgate(bencher: Bencher<'_, '_>, (streams, variants): (u64, usize)) {
    decide(bencher, AdaptName::Spillgate, streams, variants);
}

/// Streams are bound to a tenth as many workers.
#[divan::bench(args = [(16, 4), (160, 4), (160, 16)])]
fn jellyfish(bencher: Bencher<'_, '_>, (streams, variants): (u64, usize)) {
    decide(bencher, AdaptName::Jellyfish, streams, variants);
}

fn decide(bencher: Bencher<'_, '_>, name: AdaptName, streams: u64, variants: usize) {
    let (mut selector, outlook) = selector(name, streams, variants);
    let mut now = Timestamp::ZERO;
    bencher.bench_local(|| {
        now = now + Duration::from_millis(500);
        ask(&mut selector, now, streams);
        selector.decide(now, black_box(&outlook));
    });
}
