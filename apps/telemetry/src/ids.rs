//! Trace and span ids. They are drawn from a seeded generator that threads use without waiting. Ids of batches are
//! derived from the batch instead, so that a request can link to it without a table of ids.

use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use spillgate_pipeline::id::{BatchId, Incarnation, WorkerId};

/// Step of SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators"): odd, so that
/// the state visits every value.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finaliser: a bijection, so distinct states give distinct ids.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Ids for spans and traces: SplitMix64 over one atomic counter. Not for secrets.
#[derive(Debug)]
pub struct IdGenerator {
    state: AtomicU64,
}

impl IdGenerator {
    /// A generator whose ids follow from `seed`.
    pub fn new(seed: u64) -> Self {
        IdGenerator {
            state: AtomicU64::new(mix(seed.wrapping_add(GAMMA))),
        }
    }

    /// 64 bits, not zero: zero is W3C's invalid span id.
    pub fn next_u64(&self) -> u64 {
        loop {
            let id = mix(self.state.fetch_add(GAMMA, Ordering::Relaxed));
            if id != 0 {
                return id;
            }
        }
    }

    /// 128 bits, not zero.
    pub fn next_u128(&self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }
}

/// Trace id and span id of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchSpanId {
    pub(crate) trace: u128,
    pub(crate) span: u64,
}

impl BatchSpanId {
    /// The ids of one batch. The process that ran it and those of its requests know what they are made from.
    pub(crate) fn of(
        incarnation: Incarnation,
        pipeline: &str,
        worker: WorkerId,
        batch: BatchId,
    ) -> Self {
        let absorb = |state: u64, word: u64| mix(state.wrapping_add(GAMMA) ^ mix(word));
        let mut state = pipeline
            .bytes()
            .fold(incarnation.0, |state, byte| absorb(state, u64::from(byte)));
        for word in [u64::from(worker.0), batch.0] {
            state = absorb(state, word);
        }
        let [high, low, span] = [1, 2, 3].map(|word| absorb(state, word).max(1));
        BatchSpanId {
            trace: u128::from(high) << 64 | u128::from(low),
            span,
        }
    }

    pub(crate) fn context(self) -> SpanContext {
        span_context(self.trace, self.span)
    }
}

/// The context of a sampled span of this process.
pub(crate) fn span_context(trace: u128, span: u64) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(trace.to_be_bytes()),
        SpanId::from_bytes(span.to_be_bytes()),
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_the_seed_and_differ() {
        let draw = |seed| {
            let ids = IdGenerator::new(seed);
            (0..1000).map(|_| ids.next_u128()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut all = draw(7);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1000);
    }

    #[test]
    fn every_part_of_a_batch_counts() {
        let id = |life, name, worker, batch| {
            BatchSpanId::of(Incarnation(life), name, WorkerId(worker), BatchId(batch))
        };
        let one = id(1, "traffic", 2, 3);
        assert_eq!(one, id(1, "traffic", 2, 3));
        for other in [
            id(2, "traffic", 2, 3),
            id(1, "traffix", 2, 3),
            id(1, "traffic", 3, 3),
            id(1, "traffic", 2, 4),
            id(1, "traffic", 3, 2),
        ] {
            assert_ne!(one.span, other.span);
            assert_ne!(one.trace, other.trace);
        }
    }
}
