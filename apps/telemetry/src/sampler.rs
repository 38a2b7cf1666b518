//! Decides which requests are traced, once, at admission; reads and writes W3C trace context
//! (<https://www.w3.org/TR/trace-context/>).
//!
//! A client's choice counts: its flag says whether the rest of its trace exists. Other requests are sampled at a
//! ratio, by their trace id, so that every process decides alike. `tracestate` is not carried, because Spillgate
//! calls no other service.

use spillgate_controller::record::TraceContext;

use crate::ids::IdGenerator;

/// Length of `00-<32 hex>-<16 hex>-<2 hex>`.
const TRACEPARENT_LEN: usize = 55;
/// Flag bit of W3C: the caller may have recorded its part of the trace.
const SAMPLED: u8 = 1;

/// Decides which requests are traced.
#[derive(Debug)]
pub struct Sampler {
    /// A trace is sampled if the low 63 bits of its id are below this.
    bound: u64,
    ids: IdGenerator,
}

impl Sampler {
    /// Samples this part (0 to 1) of the traces that begin here; ids follow from `seed`. A ratio outside the range
    /// counts as its nearer end, NaN as 0.
    pub fn new(ratio: f64, seed: u64) -> Self {
        let ratio = if ratio.is_nan() {
            0.0
        } else {
            ratio.clamp(0.0, 1.0)
        };
        Sampler {
            bound: (ratio * (1u64 << 63) as f64) as u64,
            ids: IdGenerator::new(seed),
        }
    }

    /// The trace of a request that is being admitted. `traceparent` is the client's header, if it sent
    /// one; a malformed one counts as none, as W3C asks.
    pub fn decide(&self, traceparent: Option<&str>) -> TraceContext {
        if let Some(context) = traceparent.and_then(parse_traceparent) {
            return context;
        }
        let trace_id = self.ids.next_u128();
        let sampled = (trace_id as u64 >> 1) < self.bound;
        TraceContext {
            trace_id,
            parent_span_id: 0,
            sampled,
        }
    }
}

/// Reads a `traceparent` header; `None` when it is malformed.
pub fn parse_traceparent(header: &str) -> Option<TraceContext> {
    let header = header.trim_matches([' ', '\t']);
    let bytes = header.as_bytes();
    if bytes.len() < TRACEPARENT_LEN || !bytes.is_ascii() {
        return None;
    }
    let dashes = bytes[2] == b'-' && bytes[35] == b'-' && bytes[52] == b'-';
    let version = lower_hex(&header[0..2])? as u8;
    // Version 00 ends here; a later one may go on after a dash; ff is forbidden.
    let ends_well = match version {
        0x00 => bytes.len() == TRACEPARENT_LEN,
        0xff => false,
        _ => bytes.get(TRACEPARENT_LEN).is_none_or(|b| *b == b'-'),
    };
    if !dashes || !ends_well {
        return None;
    }
    let trace_id = lower_hex(&header[3..35])?;
    let parent_span_id = lower_hex(&header[36..52])? as u64;
    let flags = lower_hex(&header[53..55])? as u8;
    if trace_id == 0 || parent_span_id == 0 {
        return None;
    }
    Some(TraceContext {
        trace_id,
        parent_span_id,
        sampled: flags & SAMPLED != 0,
    })
}

/// Writes the `traceparent` header for work under `span_id` of this trace.
pub fn format_traceparent(context: &TraceContext, span_id: u64) -> String {
    let flags = if context.sampled { SAMPLED } else { 0 };
    format!("00-{:032x}-{span_id:016x}-{flags:02x}", context.trace_id)
}

/// The trace id as Jaeger and `spillgate trace` take it.
pub fn format_trace_id(trace_id: u128) -> String {
    format!("{trace_id:032x}")
}

/// Up to 32 hexadecimal digits, in lower case only: W3C forbids upper case.
fn lower_hex(digits: &str) -> Option<u128> {
    if !digits
        .bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        return None;
    }
    u128::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const W3C_EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_w3c_example_round_trips() {
        let context = parse_traceparent(W3C_EXAMPLE).unwrap();
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.parent_span_id, 0x00f0_67aa_0ba9_02b7);
        assert!(context.sampled);
        assert_eq!(
            format_traceparent(&context, context.parent_span_id),
            W3C_EXAMPLE
        );
        assert_eq!(
            format_trace_id(context.trace_id),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
    }

    #[test]
    fn malformed_headers_are_refused() {
        for bad in [
            "",
            "-",
            "00",
            "hello",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "zz-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse_traceparent(bad), None, "{bad}");
        }
    }

    #[test]
    fn later_versions_may_say_more() {
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-what-comes";
        assert!(parse_traceparent(later).unwrap().sampled);
        assert_eq!(parse_traceparent(&later.replace("-what", "_what")), None);
    }

    #[test]
    fn a_client_decides_for_itself() {
        let never = Sampler::new(0.0, 1);
        let always = Sampler::new(1.0, 1);
        assert!(never.decide(Some(W3C_EXAMPLE)).sampled);
        assert!(
            !always
                .decide(Some(&W3C_EXAMPLE.replace("-01", "-00")))
                .sampled
        );
    }

    #[test]
    fn without_a_good_header_a_trace_begins_here() {
        let always = Sampler::new(1.0, 1);
        for header in [None, Some("nonsense")] {
            let context = always.decide(header);
            assert_ne!(context.trace_id, 0);
            assert_eq!(context.parent_span_id, 0);
            assert!(context.sampled);
        }
    }

    #[test]
    fn the_ratio_holds() {
        let count = |ratio| {
            let sampler = Sampler::new(ratio, 42);
            (0..10_000).filter(|_| sampler.decide(None).sampled).count()
        };
        assert_eq!(count(0.0), 0);
        assert_eq!(count(1.0), 10_000);
        assert_eq!(count(f64::NAN), 0);
        assert_eq!(count(7.0), 10_000);
        // Four standard deviations around 1000 of 10,000.
        assert!((880..=1120).contains(&count(0.1)), "{}", count(0.1));
    }
}
