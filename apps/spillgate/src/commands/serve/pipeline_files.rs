//! Reads the pipeline files again on SIGHUP, and serves what they say now.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use crate::deployment::Deployment;
use crate::files::{self, LoadedPipeline};
use crate::model_check::Checks;
use parking_lot::Mutex;
use spillgate_backend::operator::Library;
use spillgate_pipeline::placement::ServedBy;
use spillgate_pipeline::profile::ProfileSet;

use super::start::{Loaded, check, complete};

/// What was read last.
struct LastRead {
    /// Differs when something has changed.
    fingerprint: String,
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
                fingerprint: loaded.fingerprint,
                profiles: profiles_of(&loaded.deployments),
            }),
        }
    }

    /// Reads the files and has `serve` serve what they say, if that has changed. Returns a line about the result.
    ///
    /// # Errors
    /// When something is wrong with them. What was served is served on.
    pub(crate) fn run(
        &self,
        serve: impl FnOnce(&[Deployment]) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let mut last = self.last.lock();
        let mut all = files::load_all(&self.pipelines, &self.library.catalog())?;
        (all.iter_mut()).for_each(|loaded| loaded.served_by(self.served_by));
        let fingerprint = fingerprint(&all, &self.library);
        if fingerprint == last.fingerprint {
            return Ok("nothing has changed".to_owned());
        }
        for loaded in &mut all {
            let name = &loaded.pipeline.name;
            let known = last.profiles.iter().find(|(of, _)| of == name);
            if let Some((_, known)) = known {
                loaded.profiles.fill_from(known);
            }
        }
        let families = check(&all, &mut self.checks.lock(), &|_| true, &|_| {})?;
        let deployments = complete(all, families, &self.library, true, &|_| {})?;
        serve(&deployments)?;
        *last = LastRead {
            fingerprint,
            profiles: profiles_of(&deployments),
        };
        let names = deployments.iter().map(|d| d.pipeline.name.as_str());
        let names: Vec<&str> = names.collect();
        Ok(format!(
            "{}; requests under way end as they began",
            names.join(", ")
        ))
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

/// What the files say, and when pipeline and model files and those beside them were written.
pub(super) fn fingerprint(all: &[LoadedPipeline], library: &Library) -> String {
    let mut text = String::new();
    for loaded in all {
        let _ = write!(text, "{:?} {:?}", loaded.pipeline, loaded.profiles);
        for file in loaded.all_files(library) {
            let written = std::fs::metadata(&file).map(|m| (m.len(), m.modified().ok()));
            let _ = write!(text, " {file:?} {:?}", written.ok());
        }
    }
    text
}
