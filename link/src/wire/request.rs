//! Requests, why they are dropped, and their way through a module.

use spillgate_pipeline::family::MEMBERS_MAX;
use spillgate_pipeline::id::{
    BatchId, ClientId, Incarnation, MemberId, ModuleId, RequestId, VariantId, WorkerId,
};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, ModuleTimes, Request};
use spillgate_pipeline::schedule::{APPLICATIONS_MAX, Application};
use spillgate_pipeline::spec::BATCH_MAX;
use spillgate_pipeline::time::Budget;
use spillgate_proto::link as pb;

use super::bounds::ns;
use super::error::{Field, WireError, field};

pub(super) fn encode(request: &Request) -> pb::Request {
    pb::Request {
        id: request.id.0,
        sent_at: request.sent_at.as_ns(),
        deadline: request.deadline.as_ns(),
        application: u32::from(request.application.0),
        client: request.client.0,
        decoding_us: request.decoding_us,
        rank: u32::from(request.rank),
        member: u32::from(request.member.0),
        variant: u32::from(request.variant.0),
        batch_most: u32::from(request.batch_most),
        background: request.background,
    }
}

pub(super) fn decode(request: pb::Request) -> Result<Request, WireError> {
    let of = |name| field("Request", name);
    Ok(Request {
        id: RequestId(request.id),
        sent_at: of("sent_at").time(request.sent_at)?,
        deadline: of("deadline").time(request.deadline)?,
        application: decode_application(of("application"), request.application)?,
        client: ClientId(request.client),
        decoding_us: request.decoding_us,
        rank: of("rank").u8(request.rank)?,
        member: decode_member(of("member"), request.member)?,
        variant: VariantId(of("variant").u16(request.variant)?),
        batch_most: of("batch_most").u16(request.batch_most)?,
        background: request.background,
    })
}

/// The ordinal of a member, below [`MEMBERS_MAX`].
fn decode_member(of: Field, ordinal: u32) -> Result<MemberId, WireError> {
    const LAST: u32 = MEMBERS_MAX as u32 - 1;
    let ordinal = of.up_to(ordinal, LAST)?;
    Ok(MemberId(of.u16(ordinal)?))
}

/// The ordinal of an application, below [`APPLICATIONS_MAX`].
pub(super) fn decode_application(of: Field, ordinal: u32) -> Result<Application, WireError> {
    const LAST: u32 = APPLICATIONS_MAX as u32 - 1;
    let ordinal = of.up_to(ordinal, LAST)?;
    Ok(Application(of.u16(ordinal)?))
}

pub(super) fn encode_drop(worker: WorkerId, request: RequestId, drop: &Drop) -> pb::Dropped {
    pb::Dropped {
        worker: worker.0,
        request: request.0,
        module: u32::from(drop.module.0),
        reason: encode_reason(drop.reason).into(),
        at: drop.at.as_ns(),
        budget_ns: drop.budget.as_ns(),
        estimate: drop.estimate.map(|estimate| pb::Estimate {
            wait_ns: ns(estimate.wait),
            execution_ns: ns(estimate.execution),
            downstream_ns: ns(estimate.downstream),
        }),
    }
}

pub(super) fn decode_drop(dropped: &pb::Dropped) -> Result<Drop, WireError> {
    let of = |name| field("Dropped", name);
    Ok(Drop {
        module: ModuleId(of("module").u16(dropped.module)?),
        reason: decode_reason(of("reason"), dropped.reason)?,
        at: of("at").time(dropped.at)?,
        budget: Budget::from_ns(dropped.budget_ns),
        estimate: dropped.estimate.map(decode_estimate).transpose()?,
    })
}

fn decode_estimate(estimate: pb::Estimate) -> Result<Estimate, WireError> {
    let of = |name| field("Estimate", name);
    Ok(Estimate {
        wait: of("wait_ns").span(estimate.wait_ns)?,
        execution: of("execution_ns").span(estimate.execution_ns)?,
        downstream: of("downstream_ns").span(estimate.downstream_ns)?,
    })
}

pub(super) fn encode_reason(reason: DropReason) -> pb::DropReason {
    match reason {
        DropReason::Expired => pb::DropReason::Expired,
        DropReason::Predicted => pb::DropReason::Predicted,
        DropReason::QueueFull => pb::DropReason::QueueFull,
        DropReason::Cancelled => pb::DropReason::Cancelled,
        DropReason::Superseded => pb::DropReason::Superseded,
        DropReason::Draining => pb::DropReason::Draining,
        DropReason::NoWorker => pb::DropReason::NoWorker,
        DropReason::Overload => pb::DropReason::Overload,
        DropReason::Decoding => pb::DropReason::Decoding,
        DropReason::Memory => pb::DropReason::Memory,
    }
}

pub(super) fn decode_reason(of: Field, reason: i32) -> Result<DropReason, WireError> {
    let unknown = || of.is(reason, "it must be a reason from 1 to 10");
    Ok(match pb::DropReason::try_from(reason) {
        Ok(pb::DropReason::Expired) => DropReason::Expired,
        Ok(pb::DropReason::Predicted) => DropReason::Predicted,
        Ok(pb::DropReason::QueueFull) => DropReason::QueueFull,
        Ok(pb::DropReason::Cancelled) => DropReason::Cancelled,
        Ok(pb::DropReason::Superseded) => DropReason::Superseded,
        Ok(pb::DropReason::Draining) => DropReason::Draining,
        Ok(pb::DropReason::NoWorker) => DropReason::NoWorker,
        Ok(pb::DropReason::Overload) => DropReason::Overload,
        Ok(pb::DropReason::Decoding) => DropReason::Decoding,
        Ok(pb::DropReason::Memory) => DropReason::Memory,
        Ok(pb::DropReason::Unspecified) | Err(_) => return Err(unknown()),
    })
}

pub(super) fn encode_times(times: &ModuleTimes) -> pb::ModuleTimes {
    pb::ModuleTimes {
        module: u32::from(times.module.0),
        worker: times.worker.0,
        arrived_at: times.arrived_at.as_ns(),
        batched_at: times.batched_at.as_ns(),
        started_at: times.started_at.as_ns(),
        ended_at: times.ended_at.as_ns(),
        batch: times.batch.0,
        batch_size: times.batch_size,
    }
}

/// `incarnation` is the sender's.
pub(super) fn decode_times(
    times: pb::ModuleTimes,
    incarnation: Incarnation,
) -> Result<ModuleTimes, WireError> {
    let of = |name| field("ModuleTimes", name);
    Ok(ModuleTimes {
        module: ModuleId(of("module").u16(times.module)?),
        worker: WorkerId(times.worker),
        arrived_at: of("arrived_at").time(times.arrived_at)?,
        batched_at: of("batched_at").time(times.batched_at)?,
        started_at: of("started_at").time(times.started_at)?,
        ended_at: of("ended_at").time(times.ended_at)?,
        batch: BatchId(times.batch),
        batch_size: of("batch_size").up_to(times.batch_size, BATCH_MAX)?,
        load: None,
        incarnation,
    })
}
