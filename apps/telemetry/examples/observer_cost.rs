//! The cost of telemetry on the serving threads: nanoseconds for each request that ended, with sampling off and at
//! 100%.
//!
//! `cargo run --release -p spillgate-telemetry --example observer_cost [-- http://127.0.0.1:24317]`
//!
//! Records are fed at 50,000 a second, in bursts of 50 every millisecond; only the calls are timed. Without an
//! endpoint argument the exporter has nobody to send to, which is the worst case for the queue.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use spillgate_controller::record::Observer;
use spillgate_telemetry::{Telemetry, TelemetryConfig, testing};

const BURSTS: u32 = 2000;
const PER_BURST: u32 = 50;
const BURST_INTERVAL: Duration = Duration::from_millis(1);

fn main() {
    let endpoint = std::env::args()
        .nth(1)
        .unwrap_or("http://127.0.0.1:9".to_owned());
    println!(
        "{:<22} {:>12} {:>12} {:>12} {:>12}",
        "", "mean ns", "worst burst", "lost", "exported"
    );
    for sampled in [false, true] {
        let config = TelemetryConfig {
            otlp_endpoint: Some(endpoint.clone()),
            ..Default::default()
        };
        let telemetry = Telemetry::new(config, SystemTime::now).expect("the endpoint is a URL");
        let pipeline = testing::pipeline();
        telemetry.register_pipeline(&pipeline);
        let mut record = testing::completed(&pipeline);
        record.trace.sampled = sampled;
        let record = Arc::new(record);

        let (mut total, mut worst) = (Duration::ZERO, Duration::ZERO);
        let begun = Instant::now();
        for burst in 0..BURSTS {
            let due = begun + BURST_INTERVAL * burst;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let start = Instant::now();
            for _ in 0..PER_BURST {
                telemetry.request_ended(&record);
            }
            let took = start.elapsed();
            total += took;
            worst = worst.max(took);
        }
        telemetry.shutdown(Duration::from_secs(2));
        let losses = telemetry.metrics().losses();
        println!(
            "{:<22} {:>12} {:>12} {:>12} {:>12}",
            format!("{PER_BURST}/ms, sampled: {sampled}"),
            (total / (BURSTS * PER_BURST)).as_nanos(),
            (worst / PER_BURST).as_nanos(),
            losses.requests_queue_full.get() + losses.requests_stopped.get(),
            losses.spans_exported.get(),
        );
    }
}
