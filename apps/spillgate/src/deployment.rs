//! A pipeline as it is deployed: with the folder of its file, its profiles and its families.

use std::path::PathBuf;
use std::sync::Arc;

use spillgate_controller_policy::rollout::RevisionId;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::profile::ProfileSet;
use spillgate_protocol::session::PipelineHash;

use crate::agreement;
use crate::model_check::Families;
use crate::process_role::PipelineRole;

/// What a process serves, under the id by which its rollout knows it.
#[derive(Clone)]
pub struct Revision {
    /// A hash of all that the files say, and of the models' times and sizes.
    pub id: RevisionId,
    /// The pipelines, in the order of their files.
    pub deployments: Vec<Deployment>,
    /// What the process is for each of them, in a set.
    pub roles: Vec<PipelineRole>,
}

impl Revision {
    /// By group of pipelines that are rolled out together: each by itself in a set, otherwise all.
    pub(crate) fn by_group(self, in_set: bool) -> Vec<Revision> {
        if !in_set {
            return vec![self];
        }
        let roles = &self.roles;
        let alone = |of: Deployment| Revision {
            id: of.revision(),
            roles: (roles.iter())
                .filter(|role| role.pipeline == of.pipeline.name)
                .cloned()
                .collect(),
            deployments: vec![of],
        };
        self.deployments.iter().cloned().map(alone).collect()
    }
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

impl Deployment {
    /// The revision that it is in a set.
    pub fn revision(&self) -> RevisionId {
        revision_of(&self.pipeline)
    }
}

/// The revision of a pipeline in a set: the beginning of the hash of what it states, alike in all processes.
pub(crate) fn revision_of(pipeline: &Pipeline) -> RevisionId {
    let PipelineHash(hash) = agreement::hash(pipeline);
    let first = hash.first_chunk().expect("it has 32 bytes");
    RevisionId(u64::from_be_bytes(*first))
}
