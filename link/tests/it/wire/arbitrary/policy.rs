//! What policies tell each other of modules and clients.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use spillgate_link::wire::bounds::SPAN_MAX;
use spillgate_pipeline::clients::{CLASSES, Claim, ClientKey};
use spillgate_pipeline::policy::{BudgetOrder, Guidance};
use spillgate_pipeline::spec::BATCH_MAX;
use spillgate_protocol::message::{
    BacklogCheck, BatchShape, ClientReport, Demand, ModulePlan, ModuleState, NAMED_MAX, Offered,
    Portion, SHARE_STEPS, STATE_SAMPLES_MAX,
};

use super::{capacity, module, positive, rate, ratio, span};

prop_compose! {
    pub(super) fn guidance()(
        downstream in span(),
        planned in span(),
        share in ratio(),
        order in order(),
        batch in option::of(0..=BATCH_MAX),
    ) -> Guidance {
        Guidance { downstream, planned, share, order, batch }
    }
}

pub(super) fn order() -> impl Strategy<Value = BudgetOrder> {
    prop_oneof![
        Just(BudgetOrder::LowestFirst),
        Just(BudgetOrder::HighestFirst)
    ]
}

prop_compose! {
    pub(super) fn plan()(
        shape in (0..=BATCH_MAX, span()),
        admits in ratio(),
        check in option::of((span(), span(), ratio())),
        part in ratio(),
        knows_gateways in any::<bool>(),
        guidance in guidance(),
    ) -> ModulePlan {
        let (size, execution) = shape;
        ModulePlan {
            shape: BatchShape { size, execution },
            admits,
            backlog_check: check.map(|(execution, downstream, margin)| BacklogCheck {
                execution,
                downstream,
                margin,
            }),
            part,
            knows_gateways,
            guidance,
        }
    }
}

fn samples() -> impl Strategy<Value = Vec<f32>> {
    let second = || 0.0..=SPAN_MAX.as_secs_f32();
    prop_oneof![4 => vec(second(), 0..8), 1 => vec(second(), STATE_SAMPLES_MAX)]
}

prop_compose! {
    pub(super) fn state()(
        ids in (module(), any::<u64>(), any::<u32>()),
        spans in (span(), span(), span()),
        samples in (samples(), samples()),
        rates in (rate(), rate(), capacity()),
        ratios in (ratio(), ratio(), ratio(), ratio(), ratio(), ratio()),
        asked in vec(0.0f32..=1.0, SHARE_STEPS),
        variants in vec(0.0f32..=1.0, 0..5),
    ) -> ModuleState {
        ModuleState {
            module: ids.0,
            version: ids.1,
            queueing: spans.0,
            execution: spans.1,
            batch_waits: samples.0.into(),
            executions: samples.1.into(),
            worst: spans.2,
            offered: rates.0,
            executed: rates.1,
            batch_size: ratios.0,
            capacity: rates.2,
            probability: ratios.1,
            workers: ids.2,
            pace: ratios.2,
            pace_by_variant: ratios.5,
            variants: variants.into(),
            spread: ratios.3,
            asked: asked.try_into().unwrap(),
            admit: ratios.4,
        }
    }
}

prop_compose! {
    pub(super) fn demand()(
        counts in any::<[u64; 5]>(),
        asked in any::<[u64; SHARE_STEPS]>(),
    ) -> Demand {
        let [offered, returned, reached, skipped, unasked] = counts;
        Demand { offered, returned, reached, skipped, unasked, asked }
    }
}

fn offered() -> impl Strategy<Value = Offered> {
    (
        any::<u64>(),
        0..CLASSES as u8,
        positive(),
        rate(),
        positive(),
    )
        .prop_map(|(client, class, weight, rate, asked)| Offered {
            client: ClientKey(client),
            class,
            weight,
            rate,
            asked,
        })
}

pub(super) fn clients() -> impl Strategy<Value = ClientReport> {
    let claim = (positive(), rate()).prop_map(|(weight, rate)| Claim { weight, rate });
    let named = prop_oneof![4 => vec(offered(), 0..4), 1 => vec(offered(), NAMED_MAX)];
    (capacity(), named, vec(option::of(claim), CLASSES)).prop_map(|(capacity, named, rest)| {
        ClientReport {
            capacity,
            named,
            rest: rest.try_into().unwrap(),
        }
    })
}

pub(super) fn portion() -> impl Strategy<Value = Portion> {
    let part = (any::<u64>().prop_map(ClientKey), ratio());
    (capacity(), vec(part, 0..6)).prop_map(|(rate, parts)| Portion {
        rate,
        parts: parts.into_iter().collect(),
    })
}
