//! A pipeline as it is deployed: with the folder of its file, its profiles and its families.

use std::path::PathBuf;
use std::sync::Arc;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::profile::ProfileSet;

use crate::model_check::Families;

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
