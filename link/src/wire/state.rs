//! The state of a module.

use std::sync::Arc;

use spillgate_pipeline::id::ModuleId;
use spillgate_proto::link as pb;
use spillgate_protocol::message::{ModuleState, STATE_SAMPLES_MAX};

use super::bounds::{RATIO_MAX, SPAN_MAX, ns};
use super::error::{Field, WireError, field};
use spillgate_pipeline::spec::VARIANTS_MAX;

pub(super) fn encode(state: &ModuleState) -> pb::ModuleState {
    pb::ModuleState {
        module: u32::from(state.module.0),
        version: state.version,
        queueing_ns: ns(state.queueing),
        execution_ns: ns(state.execution),
        batch_waits: state.batch_waits.to_vec(),
        executions: state.executions.to_vec(),
        worst_ns: ns(state.worst),
        offered: state.offered,
        executed: state.executed,
        batch_size: state.batch_size,
        capacity: state.capacity,
        probability: state.probability,
        workers: state.workers,
        pace: state.pace,
        pace_by_variant: state.pace_by_variant,
        variants: state.variants.to_vec(),
        spread: state.spread,
        asked: state.asked.to_vec(),
        admit: state.admit,
    }
}

pub(super) fn decode(state: pb::ModuleState) -> Result<Arc<ModuleState>, WireError> {
    let of = |name| field("ModuleState", name);
    of("asked").each(&state.asked, RATIO_MAX)?;
    of("variants").at_most(state.variants.len(), VARIANTS_MAX)?;
    of("variants").each(&state.variants, RATIO_MAX)?;
    Ok(Arc::new(ModuleState {
        module: ModuleId(of("module").u16(state.module)?),
        version: state.version,
        queueing: of("queueing_ns").span(state.queueing_ns)?,
        execution: of("execution_ns").span(state.execution_ns)?,
        batch_waits: decode_samples(of("batch_waits"), state.batch_waits)?,
        executions: decode_samples(of("executions"), state.executions)?,
        worst: of("worst_ns").span(state.worst_ns)?,
        offered: of("offered").rate(state.offered)?,
        executed: of("executed").rate(state.executed)?,
        batch_size: of("batch_size").ratio(state.batch_size)?,
        capacity: of("capacity").capacity(state.capacity)?,
        probability: of("probability").ratio(state.probability)?,
        workers: state.workers,
        pace: of("pace").ratio(state.pace)?,
        pace_by_variant: of("pace_by_variant").ratio(state.pace_by_variant)?,
        variants: state.variants.into(),
        spread: of("spread").ratio(state.spread)?,
        asked: of("asked").exactly(&state.asked)?,
        admit: of("admit").ratio(state.admit)?,
    }))
}

/// Samples in seconds.
fn decode_samples(of: Field, samples: Vec<f32>) -> Result<Arc<[f32]>, WireError> {
    of.at_most(samples.len(), STATE_SAMPLES_MAX)?;
    of.each(&samples, SPAN_MAX.as_secs_f64())?;
    Ok(samples.into())
}
