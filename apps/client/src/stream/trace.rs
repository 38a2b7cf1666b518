//! W3C trace contexts, one a frame, sampled at random. With a receiver, also the client's own span of each traced
//! frame, which is the parent of the server's spans.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::{Context, Result};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanKind, Tracer as _, TracerProvider as _};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::address;
use spillgate_proto::pb;

use crate::tally::outcome_word;

/// Exports the client's spans in the background; spans that its queue cannot hold are lost.
#[derive(Clone)]
pub(crate) struct SpanExport {
    provider: Arc<SdkTracerProvider>,
}

impl SpanExport {
    /// Sends spans to an OTLP endpoint (gRPC). Must be called on a tokio runtime, which then carries the
    /// connection.
    pub(crate) fn start(endpoint: &str) -> Result<Self> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_tonic()
            .with_endpoint(address::url(endpoint))
            .build()
            .with_context(|| format!("cannot send traces to {endpoint}"))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(
                Resource::builder()
                    .with_service_name("spillgate-client")
                    .build(),
            )
            .build();
        Ok(SpanExport {
            provider: Arc::new(provider),
        })
    }

    /// Sends the remaining spans. Blocks until they are sent or given up.
    pub(crate) fn finish(&self) {
        if let Err(error) = self.provider.shutdown() {
            eprintln!("note: some of the client's spans were not exported: {error}");
        }
    }
}

/// The client's part of a frame's trace.
#[derive(Default)]
pub(crate) struct FrameTrace {
    /// The header for the server; empty when the server decides.
    pub(crate) traceparent: String,
    /// The span; it ends when it is dropped.
    span: Option<Span>,
}

impl FrameTrace {
    /// Notes how the frame ended.
    pub(crate) fn ended(&mut self, outcome: pb::Outcome) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new("spillgate.outcome", outcome_word(outcome)));
        }
    }
}

/// Begins the traces of one client's frames.
pub(crate) struct Tracer {
    sample: Option<f64>,
    rng: ChaCha8Rng,
    spans: Option<SdkTracer>,
}

impl Tracer {
    /// `sample` is the share of frames to be traced; without it the server decides.
    pub(crate) fn new(sample: Option<f64>, export: Option<&SpanExport>) -> Self {
        // Trace ids must differ between runs, so the standard library's random hash keys are the seed.
        let tracer = Self::with_seed(sample, RandomState::new().hash_one(0));
        let spans = export.map(|e| e.provider.tracer("spillgate-client"));
        Tracer { spans, ..tracer }
    }

    fn with_seed(sample: Option<f64>, seed: u64) -> Self {
        Tracer {
            sample,
            rng: ChaCha8Rng::seed_from_u64(seed),
            spans: None,
        }
    }

    /// The next frame's trace.
    pub(crate) fn next(&mut self, frame: u64) -> FrameTrace {
        let Some(sample) = self.sample else {
            return FrameTrace::default();
        };
        let sampled = self.rng.random::<f64>() < sample;
        if let (true, Some(tracer)) = (sampled, &self.spans) {
            let attributes = vec![KeyValue::new("spillgate.frame", frame as i64)];
            let builder = tracer.span_builder("frame").with_kind(SpanKind::Client);
            let span = builder.with_attributes(attributes).start(tracer);
            let context = span.span_context();
            let traceparent = format!("00-{}-{}-01", context.trace_id(), context.span_id());
            return FrameTrace {
                traceparent,
                span: Some(span),
            };
        }
        // All zeros means "none" in both fields.
        let trace = self.rng.random::<u128>().max(1);
        let span = self.rng.random::<u64>().max(1);
        let flags = u8::from(sampled);
        FrameTrace {
            traceparent: format!("00-{trace:032x}-{span:016x}-{flags:02x}"),
            span: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_well_formed_and_sampled_at_the_given_share() {
        let mut tracer = Tracer::with_seed(Some(0.25), 1);
        let headers: Vec<String> = (0..4000).map(|n| tracer.next(n).traceparent).collect();
        for header in &headers {
            let parts: Vec<&str> = header.split('-').collect();
            let lengths: Vec<usize> = parts.iter().map(|p| p.len()).collect();
            assert_eq!(lengths, [2, 32, 16, 2], "{header}");
        }
        let sampled = headers.iter().filter(|h| h.ends_with("-01")).count();
        assert!((900..1100).contains(&sampled), "{sampled}");
        assert_eq!(Tracer::with_seed(None, 1).next(0).traceparent, "");
    }
}
