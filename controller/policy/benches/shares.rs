//! One decision of the shares under overload, by the number of clients that send in turn.

use std::time::Duration;

use spillgate_controller_policy::shares::{ClientStream, Party, Shares};
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::time::Timestamp;

fn main() {
    divan::main();
}

/// 20,000 requests a second come, a half of them passes.
#[divan::bench(args = [1, 100, 10_000])]
fn pass(bencher: divan::Bencher<'_, '_>, n_clients: u64) {
    let mut shares = Shares::new(10_000.0, Duration::from_millis(200));
    let mut i = 0u64;
    let mut step = move || {
        i += 1;
        let party = Party {
            client: ClientKey(i * 7919 % n_clients),
            stream: ClientStream(0),
            weight: 1.0,
            stream_weight: 1.0,
            class: 0,
            background: false,
            may_be_stranger: false,
        };
        shares.pass(Timestamp::from_ns(i * 50_000), &party, 1.0)
    };
    for _ in 0..100_000 {
        let _ = step();
    }
    bencher.bench_local(step);
}
