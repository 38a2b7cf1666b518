//! SIGHUP: the pipeline file is read again, and the processes restart with what it says now.

use std::path::PathBuf;
use std::sync::Arc;

use crate::commands::serve::pipeline_files::PipelineFiles;
use crate::commands::serve::start::Loaded;
use crate::deployment::Deployment;
use crate::files;
use anyhow::Context;
use spillgate_pipeline::placement::ServedBy;
use spillgate_pipeline::profile_file::render_profiles;
use tokio::task::JoinHandle;

/// How the processes restart.
pub(super) enum Restart {
    /// One after the other, so that the others serve meanwhile.
    Rolling,
    /// All at once: those that serve another pipeline, or plan by other profiles, do not talk with each other.
    Together,
}

/// What was found, and the text of the profiles by which processes plan now, if it has changed.
type Found = (Restart, Option<String>);

/// The pipeline file of a set, and whether it is being read.
pub(super) struct SetReload {
    again: Arc<PipelineFiles>,
    topology: PathBuf,
    /// What all processes have in common, as it was read last.
    common: String,
    reading: Option<JoinHandle<anyhow::Result<(Found, String)>>>,
}

impl SetReload {
    /// For processes of this topology that serve this pipeline.
    pub(super) fn new(pipeline: PathBuf, topology: PathBuf, loaded: Loaded) -> Self {
        SetReload {
            common: common(&loaded.revision.deployments[0]),
            again: Arc::new(PipelineFiles::new(
                vec![pipeline],
                ServedBy::default(),
                loaded,
            )),
            topology,
            reading: None,
        }
    }

    /// Whether the file is being read.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Begins to read the file, on a thread of its own: profiles that are missing are measured.
    pub(super) fn begin(&mut self) {
        let (again, topology, last) = (
            self.again.clone(),
            self.topology.clone(),
            self.common.clone(),
        );
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let mut found = ((Restart::Rolling, None), last);
            again.run(
                |id, last| id == last,
                |revision| {
                    let deployment = &revision.deployments[0];
                    // The processes stay: there must be a worker of each module.
                    files::load_topology(&topology, &deployment.pipeline).context(
                        "the processes of this set cannot serve it; stop `up` and start it again",
                    )?;
                    let common = common(deployment);
                    let restart = match common == found.1 {
                        true => Restart::Rolling,
                        false => Restart::Together,
                    };
                    found = ((restart, Some(profiles(deployment))), common);
                    Ok(())
                },
            )?;
            Ok(found)
        }));
    }

    /// Waits until the file was read; for ever where it is not being read.
    ///
    /// # Errors
    /// What is wrong with it: nothing is to change.
    pub(super) async fn read(&mut self) -> anyhow::Result<Found> {
        let Some(reading) = &mut self.reading else {
            return std::future::pending().await;
        };
        let read = reading.await;
        self.reading = None;
        let (found, common) = read??;
        self.common = common;
        Ok(found)
    }
}

/// The file of profiles that all processes read.
pub(super) fn profiles(deployment: &Deployment) -> String {
    render_profiles(&deployment.profiles, "Made by `spillgate up`.")
}

fn common(deployment: &Deployment) -> String {
    format!("{:?} {:?}", deployment.pipeline, deployment.profiles)
}
