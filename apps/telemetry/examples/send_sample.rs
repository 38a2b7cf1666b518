//! Sends two traces, a completed request and a dropped one, to an OTLP endpoint: shows what Spillgate's
//! traces look like without serving anything. The golden answers in `tests/waterfall` were made with it.
//!
//! `cargo run -p spillgate-telemetry --example send_sample -- http://127.0.0.1:24317`

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillgate_controller::record::{BatchRecord, Observer};
use spillgate_pipeline::id::BatchId;
use spillgate_telemetry::{Telemetry, TelemetryConfig, sampler, testing};

fn main() {
    let endpoint = std::env::args()
        .nth(1)
        .unwrap_or("http://127.0.0.1:24317".to_owned());
    let config = TelemetryConfig {
        otlp_endpoint: Some(endpoint),
        ..Default::default()
    };
    let telemetry = Telemetry::new(config, SystemTime::now).expect("the endpoint is a URL");
    let pipeline = testing::pipeline();
    for mut record in [testing::completed(&pipeline), testing::dropped(&pipeline)] {
        record.trace = telemetry.sampler().decide(None);
        for times in &record.times {
            let batch = BatchRecord {
                batch: BatchId(times.batch.0),
                module: times.module,
                size: times.batch_size,
                ran_together: times.batch_size,
                started_at: times.started_at,
                ended_at: times.ended_at,
                ..testing::batch()
            };
            telemetry.batch_ended(&pipeline, &batch);
        }
        println!("{}", sampler::format_trace_id(record.trace.trace_id));
        telemetry.request_ended(&Arc::new(record));
    }
    assert!(
        telemetry.shutdown(Duration::from_secs(5)),
        "the endpoint does not answer"
    );
}
