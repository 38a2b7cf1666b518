//! A revision and what its requests came to.

use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::history::History;
use super::{Outcomes, RevisionId};

/// A revision that the machine knows.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: RevisionId,
    /// It could serve, or does.
    pub(super) is_ready: bool,
    pub(super) is_drained: bool,
    /// By pipeline.
    pub(super) records: IndexMap<Arc<str>, Record, FxBuildHasher>,
}

/// The requests of one pipeline of a revision.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) history: History,
    /// Since the step began.
    pub(super) step: Outcomes,
    /// Since the step settled.
    pub(super) settled: Outcomes,
}

impl Known {
    pub(super) fn new(id: RevisionId, is_ready: bool) -> Self {
        Known {
            id,
            is_ready,
            is_drained: false,
            records: IndexMap::default(),
        }
    }

    pub(super) fn begin_step(&mut self) {
        for record in self.records.values_mut() {
            record.step = Outcomes::default();
            record.settled = Outcomes::default();
        }
    }
}
