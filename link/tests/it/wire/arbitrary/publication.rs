//! Publications, reports of revisions, and what operators ask.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use spillgate_protocol::publication::{
    Definition, Operate, Operated, Operation, ProcessReport, Publication, RevisionReport,
    RevisionReports, RolloutReport,
};

fn definition() -> impl Strategy<Value = Arc<Definition>> {
    (any::<u64>(), "[ -~]{0,40}", "[ -~]{0,40}").prop_map(|(revision, pipeline, profiles)| {
        Arc::new(Definition {
            revision,
            pipeline: pipeline.into(),
            profiles: profiles.into(),
        })
    })
}

prop_compose! {
    pub(super) fn publication()(
        pipeline in "[ -~]{0,40}",
        generation in 1..=u64::MAX,
        (now, former) in (definition(), definition()),
        (how, why) in ("[ -~]{0,40}", "[ -~]{0,40}"),
    ) -> Publication {
        Publication {
            pipeline: pipeline.into(),
            generation,
            now,
            former,
            how: how.into(),
            why: why.into(),
        }
    }
}

prop_compose! {
    fn report()(
        id in any::<u64>(),
        share in 0_u32..=10_000,
        (state, why) in ("[a-z_]{0,20}", "[ -~]{0,40}"),
    ) -> RevisionReport {
        RevisionReport {
            id,
            share,
            state: state.into(),
            why: why.into(),
        }
    }
}

pub(super) fn reports() -> impl Strategy<Value = RevisionReports> {
    (any::<u64>(), vec(report(), 0..4)).prop_map(|(generation, revisions)| RevisionReports {
        generation,
        revisions,
    })
}

pub(super) fn operation() -> impl Strategy<Value = Operation> {
    let what = prop_oneof![
        (definition(), "[ -~]{0,40}").prop_map(|(definition, how)| Operate::Offer {
            definition,
            how: how.into(),
        }),
        "[ -~]{0,40}".prop_map(|pipeline| Operate::Undo(pipeline.into())),
        Just(Operate::Query),
    ];
    ("[ -~]{0,40}", what).prop_map(|(set, what)| Operation {
        set: set.into(),
        what,
    })
}

pub(super) fn operated() -> impl Strategy<Value = Operated> {
    let process = ("[ -~]{0,40}", any::<bool>(), vec(report(), 0..3)).prop_map(
        |(process, is_gateway, revisions)| ProcessReport {
            process: process.into(),
            is_gateway,
            revisions,
        },
    );
    let about = ("[ -~]{0,40}", any::<(u64, u64)>(), "[ -~]{0,40}");
    let rollout = (about, vec(process, 0..3)).prop_map(
        |((pipeline, (generation, revision), why), processes)| RolloutReport {
            pipeline: pipeline.into(),
            generation,
            revision,
            why: why.into(),
            processes,
        },
    );
    prop_oneof!["[ -~]{1,40}".prop_map(Err), vec(rollout, 0..3).prop_map(Ok),]
}
