//! The labels of each family. They are made with the handles, never for a request.

use prometheus_client::encoding::EncodeLabelSet;

/// Labels of `REQUESTS`; `module` and `reason` are empty where they do not apply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) pipeline: String,
    pub(super) outcome: &'static str,
    pub(super) module: String,
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct PipelineLabels {
    pub(super) pipeline: String,
}

/// Processes of a topology.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct PeerLabels {
    pub(super) peer: String,
}

/// The heaviest clients of a pipeline, and its tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct ClientLabels {
    pub(super) pipeline: String,
    pub(super) client: String,
}

/// The streams with names that send most.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct NamedLabels {
    pub(super) pipeline: String,
    pub(super) stream: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct RefusedLabels {
    pub(super) pipeline: String,
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    pub(super) pipeline: String,
    pub(super) outcome: &'static str,
}

/// Revisions that live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct RevisionLabels {
    pub(super) pipeline: String,
    pub(super) revision: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct RevisionOutcomeLabels {
    pub(super) pipeline: String,
    pub(super) revision: String,
    pub(super) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct ModuleLabels {
    pub(super) pipeline: String,
    pub(super) module: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct LeftOutLabels {
    pub(super) pipeline: String,
    pub(super) module: String,
    pub(super) reason: &'static str,
}

/// `obstacle` is empty for streams that have the best variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct StreamLabels {
    pub(super) pipeline: String,
    pub(super) module: String,
    pub(super) variant: String,
    pub(super) obstacle: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct ErrorLabels {
    pub(super) pipeline: String,
    pub(super) module: String,
    pub(super) direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct FileLabels {
    pub(super) file: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct QueueLabels {
    pub(super) pipeline: String,
    pub(super) module: String,
    pub(super) worker: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct DeviceLabels {
    pub(super) device: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct RefusedActionLabels {
    pub(super) device: String,
    pub(super) cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct PredictionLabels {
    pub(super) device: String,
    pub(super) action: &'static str,
    pub(super) of: &'static str,
    pub(super) quantile: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct LostLabels {
    pub(super) kind: &'static str,
    pub(super) cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct CauseLabels {
    pub(super) cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct InvariantLabels {
    pub(super) pipeline: String,
    pub(super) invariant: &'static str,
}
