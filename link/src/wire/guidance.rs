//! Guidance and plans of a module.

use spillgate_pipeline::policy::{BudgetOrder, Guidance};
use spillgate_pipeline::spec::BATCH_MAX;
use spillgate_proto::link as pb;
use spillgate_protocol::message::{BacklogCheck, BatchShape, ModulePlan};

use super::bounds::ns;
use super::error::{Field, WireError, field};

pub(super) fn encode(guidance: &Guidance) -> pb::Guidance {
    pb::Guidance {
        downstream_ns: ns(guidance.downstream),
        planned_ns: ns(guidance.planned),
        share: guidance.share,
        order: encode_order(guidance.order).into(),
        batch: guidance.batch,
    }
}

pub(super) fn decode(guidance: pb::Guidance) -> Result<Guidance, WireError> {
    let of = |name| field("Guidance", name);
    let batch = |size| of("batch").up_to(size, BATCH_MAX);
    Ok(Guidance {
        downstream: of("downstream_ns").span(guidance.downstream_ns)?,
        planned: of("planned_ns").span(guidance.planned_ns)?,
        share: of("share").ratio(guidance.share)?,
        order: decode_order(of("order"), guidance.order)?,
        batch: guidance.batch.map(batch).transpose()?,
    })
}

pub(super) fn encode_order(order: BudgetOrder) -> pb::BudgetOrder {
    match order {
        BudgetOrder::LowestFirst => pb::BudgetOrder::LowestFirst,
        BudgetOrder::HighestFirst => pb::BudgetOrder::HighestFirst,
    }
}

pub(super) fn decode_order(of: Field, order: i32) -> Result<BudgetOrder, WireError> {
    match pb::BudgetOrder::try_from(order) {
        Ok(pb::BudgetOrder::LowestFirst) => Ok(BudgetOrder::LowestFirst),
        Ok(pb::BudgetOrder::HighestFirst) => Ok(BudgetOrder::HighestFirst),
        Ok(pb::BudgetOrder::Unspecified) | Err(_) => {
            Err(of.is(order, "it must be 1 (lowest first) or 2 (highest first)"))
        }
    }
}

/// All of a [`pb::Plan`] but the module.
pub(super) fn encode_plan(module: u32, plan: &ModulePlan) -> pb::Plan {
    pb::Plan {
        module,
        shape: Some(pb::BatchShape {
            size: plan.shape.size,
            execution_ns: ns(plan.shape.execution),
        }),
        admits: plan.admits,
        backlog_check: plan.backlog_check.map(|check| pb::BacklogCheck {
            execution_ns: ns(check.execution),
            downstream_ns: ns(check.downstream),
            margin: check.margin,
        }),
        part: plan.part,
        knows_gateways: plan.knows_gateways,
        guidance: Some(encode(&plan.guidance)),
    }
}

pub(super) fn decode_plan(plan: pb::Plan) -> Result<ModulePlan, WireError> {
    let of = |name| field("Plan", name);
    let guidance = of("guidance").required(plan.guidance)?;
    Ok(ModulePlan {
        shape: decode_shape(of("shape").required(plan.shape)?)?,
        admits: of("admits").ratio(plan.admits)?,
        backlog_check: plan.backlog_check.map(decode_backlog_check).transpose()?,
        part: of("part").ratio(plan.part)?,
        knows_gateways: plan.knows_gateways,
        guidance: decode(guidance)?,
    })
}

fn decode_shape(shape: pb::BatchShape) -> Result<BatchShape, WireError> {
    let of = |name| field("BatchShape", name);
    Ok(BatchShape {
        size: of("size").up_to(shape.size, BATCH_MAX)?,
        execution: of("execution_ns").span(shape.execution_ns)?,
    })
}

fn decode_backlog_check(check: pb::BacklogCheck) -> Result<BacklogCheck, WireError> {
    let of = |name| field("BacklogCheck", name);
    Ok(BacklogCheck {
        execution: of("execution_ns").span(check.execution_ns)?,
        downstream: of("downstream_ns").span(check.downstream_ns)?,
        margin: of("margin").ratio(check.margin)?,
    })
}
