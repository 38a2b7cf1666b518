//! A pipeline as it is deployed: with the folder of its file, its profiles and its families.

use std::path::PathBuf;
use std::sync::Arc;

use spillgate_controller_policy::rollout::RevisionId;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::profile::ProfileSet;

use crate::model_check::Families;

/// What a process serves, under the id by which its rollout knows it.
#[derive(Clone)]
pub struct Revision {
    /// A hash of all that the files say, and of the models' times and sizes.
    pub id: RevisionId,
    /// The pipelines, in the order of their files.
    pub deployments: Vec<Deployment>,
}

/// A pipeline to be served.
#[derive(Clone)]
pub struct Deployment {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Folder of its file.
    pub base_dir: PathBuf,
    /// Profiles of its modules, none missing.
    pub profiles: ProfileSet,
    /// The files of its families: which of them may be loaded. Of a family that is not here all may be.
    pub families: Families,
}
