//! What is published of pipelines, and what operators ask.

use std::sync::Arc;

use spillgate_proto::link as pb;
use spillgate_protocol::membership::{MEMBERS_MAX, PIPELINES_MAX};
use spillgate_protocol::publication::{
    DEFINITION_BYTES_MAX, Definition, HOW_BYTES_MAX, Operate, Operated, Operation, ProcessReport,
    Publication, REPORTS_MAX, RevisionReport, RolloutReport, STATE_BYTES_MAX,
};
use spillgate_protocol::session::NAME_BYTES_MAX;

use super::bounds::REASON_BYTES_MAX;
use super::cut;
use super::error::{Field, WireError, field};
use pb::operation::What;

fn text(of: Field, text: String, most: usize) -> Result<Arc<str>, WireError> {
    of.at_most_bytes(text.len(), most)?;
    Ok(text.into())
}

fn encode_definition(definition: &Definition) -> Option<pb::Definition> {
    Some(pb::Definition {
        pipeline: definition.pipeline.to_string(),
        profiles: definition.profiles.to_string(),
        revision: definition.revision,
    })
}

fn decode_definition(
    of: Field,
    definition: Option<pb::Definition>,
) -> Result<Arc<Definition>, WireError> {
    let pb::Definition {
        pipeline,
        profiles,
        revision,
    } = of.required(definition)?;
    let definition = Definition {
        revision,
        pipeline: pipeline.into(),
        profiles: profiles.into(),
    };
    let of = field("Definition", "pipeline");
    of.at_most_bytes(definition.bytes(), DEFINITION_BYTES_MAX)?;
    Ok(Arc::new(definition))
}

pub(super) fn encode(published: &Publication) -> pb::Publication {
    pb::Publication {
        pipeline: published.pipeline.to_string(),
        generation: published.generation,
        now: encode_definition(&published.now),
        former: encode_definition(&published.former),
        how: published.how.to_string(),
        why: cut(&published.why),
    }
}

pub(super) fn decode(published: pb::Publication) -> Result<Publication, WireError> {
    let of = |name| field("Publication", name);
    if published.generation == 0 {
        return Err(of("generation").is(0, "it must be 1 or more"));
    }
    Ok(Publication {
        pipeline: text(of("pipeline"), published.pipeline, NAME_BYTES_MAX)?,
        generation: published.generation,
        now: decode_definition(of("now"), published.now)?,
        former: decode_definition(of("former"), published.former)?,
        how: text(of("how"), published.how, HOW_BYTES_MAX)?,
        why: text(of("why"), published.why, REASON_BYTES_MAX)?,
    })
}

pub(super) fn encode_reports(reports: &[RevisionReport]) -> Vec<pb::Revision> {
    let of = |report: &RevisionReport| pb::Revision {
        id: report.id,
        share: report.share,
        state: report.state.to_string(),
        why: cut(&report.why),
    };
    reports.iter().map(of).collect()
}

pub(super) fn decode_reports(reports: Vec<pb::Revision>) -> Result<Vec<RevisionReport>, WireError> {
    field("Revisions", "revisions").at_most(reports.len(), REPORTS_MAX)?;
    let of = |name| field("Revision", name);
    let report = |report: pb::Revision| {
        Ok(RevisionReport {
            id: report.id,
            share: of("share").up_to(report.share, 10_000)?,
            state: text(of("state"), report.state, STATE_BYTES_MAX)?,
            why: text(of("why"), report.why, REASON_BYTES_MAX)?,
        })
    };
    reports.into_iter().map(report).collect()
}

pub(super) fn encode_operation(operation: &Operation) -> pb::Operation {
    pb::Operation {
        set: operation.set.to_string(),
        what: Some(match &operation.what {
            Operate::Offer { definition, how } => What::Offer(pb::Offer {
                definition: encode_definition(definition),
                how: how.to_string(),
            }),
            Operate::Undo(pipeline) => What::Undo(pipeline.to_string()),
            Operate::Query => What::Query(pb::Query {}),
        }),
    }
}

/// `None`: programs of later releases ask for more.
pub(super) fn decode_operation(operation: pb::Operation) -> Result<Option<Operation>, WireError> {
    let of = |name| field("Operation", name);
    let Some(what) = operation.what else {
        return Ok(None);
    };
    Ok(Some(Operation {
        set: text(of("set"), operation.set, NAME_BYTES_MAX)?,
        what: match what {
            What::Offer(pb::Offer { definition, how }) => Operate::Offer {
                definition: decode_definition(field("Offer", "definition"), definition)?,
                how: text(field("Offer", "how"), how, HOW_BYTES_MAX)?,
            },
            What::Undo(pipeline) => Operate::Undo(text(of("undo"), pipeline, NAME_BYTES_MAX)?),
            What::Query(pb::Query {}) => Operate::Query,
        },
    }))
}

pub(super) fn encode_operated(operated: &Operated) -> pb::Operated {
    let process = |process: &ProcessReport| pb::ProcessRevisions {
        process: process.process.to_string(),
        is_gateway: process.is_gateway,
        revisions: encode_reports(&process.revisions),
    };
    let rollout = |of: &RolloutReport| pb::Rollout {
        pipeline: of.pipeline.to_string(),
        generation: of.generation,
        revision: of.revision,
        why: cut(&of.why),
        processes: of.processes.iter().map(process).collect(),
    };
    match operated {
        Ok(rollouts) => pb::Operated {
            refused: String::new(),
            rollouts: rollouts.iter().map(rollout).collect(),
        },
        Err(refused) => pb::Operated {
            refused: cut(refused),
            rollouts: Vec::new(),
        },
    }
}

pub(super) fn decode_operated(operated: pb::Operated) -> Result<Operated, WireError> {
    let pb::Operated { refused, rollouts } = operated;
    if !refused.is_empty() {
        field("Operated", "refused").at_most_bytes(refused.len(), REASON_BYTES_MAX)?;
        return Ok(Err(refused));
    }
    field("Operated", "rollouts").at_most(rollouts.len(), PIPELINES_MAX)?;
    let process = |process: pb::ProcessRevisions| {
        let of = field("ProcessRevisions", "process");
        Ok(ProcessReport {
            process: text(of, process.process, NAME_BYTES_MAX)?,
            is_gateway: process.is_gateway,
            revisions: decode_reports(process.revisions)?,
        })
    };
    let of = |name| field("Rollout", name);
    let rollout = |rollout: pb::Rollout| {
        of("processes").at_most(rollout.processes.len(), MEMBERS_MAX + 1)?;
        let processes = rollout.processes.into_iter().map(process);
        Ok(RolloutReport {
            pipeline: text(of("pipeline"), rollout.pipeline, NAME_BYTES_MAX)?,
            generation: rollout.generation,
            revision: rollout.revision,
            why: text(of("why"), rollout.why, REASON_BYTES_MAX)?,
            processes: processes.collect::<Result<_, WireError>>()?,
        })
    };
    let rollouts = rollouts.into_iter().map(rollout);
    Ok(Ok(rollouts.collect::<Result<_, WireError>>()?))
}
