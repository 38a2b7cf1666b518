//! The revisions of the pipelines of a process.

use serde::{Deserialize, Serialize};
use spillgate_controller_policy::rollout::RevisionView;
use spillgate_pipeline::time::Timestamp;

/// A revision of the pipelines of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RevisionStatus {
    /// Its id.
    pub revision: String,
    /// The part of the streams that go to it.
    pub share: f64,
    /// `stable`, `starting`, `old` (it serves beside one that starts or has a share), `moving` (it has a share), `watching`, `idle` (it is
    /// kept to serve again at once), `draining`, `taken_back`.
    pub state: String,
    /// For how long, in seconds; `null` where that is not kept.
    pub for_s: Option<f64>,
    /// Why it was taken back.
    pub why: Option<String>,
}

impl RevisionStatus {
    pub(super) fn of(view: &RevisionView, now: Timestamp) -> Self {
        let since = view.since.map(|since| now.since(since));
        RevisionStatus {
            revision: view.id.to_string(),
            share: view.share.part(),
            state: view.state.name().to_owned(),
            for_s: since.map(|since| since.as_secs_f64()),
            why: view.why.clone(),
        }
    }
}
