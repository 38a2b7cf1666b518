//! Reads the pipeline files again on SIGHUP, and serves what they say now.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use crate::deployment::{Deployment, Revision};
use crate::files::{self, LoadedPipeline};
use crate::model_check::Checks;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use spillgate_backend::operator::Library;
use spillgate_controller_policy::rollout::RevisionId;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::placement::ServedBy;
use spillgate_pipeline::profile::ProfileSet;

use super::start::{Loaded, check, complete};

/// What was read last.
struct LastRead {
    id: RevisionId,
    /// Profiles by pipeline: those that were measured are not measured again.
    profiles: Vec<(String, ProfileSet)>,
}

/// The pipeline files of a server or a set of processes, to be read again.
pub(crate) struct PipelineFiles {
    pipelines: Vec<PathBuf>,
    library: Arc<Library>,
    checks: Mutex<Checks>,
    served_by: ServedBy,
    last: Mutex<LastRead>,
}

impl PipelineFiles {
    /// After the first reading.
    pub(crate) fn new(pipelines: Vec<PathBuf>, served_by: ServedBy, loaded: Loaded) -> Self {
        PipelineFiles {
            served_by,
            pipelines,
            library: loaded.library,
            checks: Mutex::new(loaded.checks),
            last: Mutex::new(LastRead {
                id: loaded.revision.id,
                profiles: profiles_of(&loaded.revision.deployments),
            }),
        }
    }

    /// Reads the files and has `serve` serve what they say, unless that `is_served`: it is given their
    /// revision and the one that was read last. Returns what `serve` says about the result; `None`:
    /// nothing was done.
    ///
    /// # Errors
    /// When something is wrong with them. What was served is served on.
    pub(crate) fn run<T>(
        &self,
        is_served: impl FnOnce(RevisionId, RevisionId) -> bool,
        serve: impl FnOnce(Revision) -> anyhow::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        let mut last = self.last.lock();
        let mut all = files::load_all(&self.pipelines, &self.library.catalog())?;
        (all.iter_mut()).for_each(|loaded| loaded.served_by(self.served_by));
        let id = revision_of(&all, &self.library);
        if is_served(id, last.id) {
            return Ok(None);
        }
        for loaded in &mut all {
            let name = &loaded.pipeline.name;
            let known = last.profiles.iter().find(|(of, _)| of == name);
            if let Some((_, known)) = known {
                loaded.profiles.fill_from(known);
            }
        }
        let families = check(&all, &mut self.checks.lock(), &|_, _| true, &|_| {})?;
        let deployments = complete(all, families, &self.library, true, &|_| {})?;
        let profiles = profiles_of(&deployments);
        let served = serve(Revision {
            id,
            deployments,
            roles: Vec::new(),
        })?;
        *last = LastRead { id, profiles };
        Ok(Some(served))
    }
}

/// Those of real devices: those of emulated ones come from files alone.
fn profiles_of(deployments: &[Deployment]) -> Vec<(String, ProfileSet)> {
    let each = deployments.iter().map(|d| {
        let mut profiles = d.profiles.clone();
        profiles.devices.shift_remove("emulated");
        (d.pipeline.name.clone(), profiles)
    });
    each.collect()
}

/// The revision that is made of what the files say, and of the sizes and times of model files and those beside them. What a pipeline
/// file does not say (comments, order, when it was written) makes no other one, so the former file is the former revision.
pub(super) fn revision_of(all: &[LoadedPipeline], library: &Library) -> RevisionId {
    let mut text = String::new();
    for loaded in all {
        let mut pipeline = Pipeline::clone(&loaded.pipeline);
        pipeline
            .modules
            .iter_mut()
            .for_each(|module| module.line = 0);
        let _ = write!(text, "{pipeline:?} {:?}", loaded.profiles);
        let files = loaded.all_files(library).into_iter();
        for file in files.filter(|file| *file != loaded.file) {
            let written = std::fs::metadata(&file).map(|m| (m.len(), m.modified().ok()));
            let _ = write!(text, " {file:?} {:?}", written.ok());
        }
    }
    let hash = Sha256::digest(text);
    let first = hash.first_chunk().expect("it has 32 bytes");
    RevisionId(u64::from_be_bytes(*first))
}
