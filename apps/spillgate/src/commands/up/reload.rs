//! SIGHUP: the pipeline files are read again. Pipelines that state something else are rolled out; for models or profiles that changed in
//! place the processes restart, one after the other.

use std::path::PathBuf;
use std::sync::Arc;

use crate::commands::rollout::definition;
use crate::commands::serve::pipeline_files::PipelineFiles;
use crate::commands::serve::start::Loaded;
use crate::deployment::Deployment;
use spillgate_controller_policy::rollout::RevisionId;
use spillgate_pipeline::placement::ServedBy;
use spillgate_pipeline::profile_file::render_profiles;
use spillgate_protocol::publication::Definition;
use tokio::task::JoinHandle;

use super::with_workers;

/// What was found.
pub(super) struct Found {
    /// By pipeline: the text of the profiles by which processes plan now; none where nothing has changed.
    pub(super) profiles: Vec<String>,
    /// Of the pipelines that state something else.
    pub(super) definitions: Vec<Arc<Definition>>,
    /// By pipeline: its revision.
    revisions: Vec<RevisionId>,
}

/// The pipeline files of a set, and whether they are being read.
pub(super) struct SetReload {
    again: Arc<PipelineFiles>,
    files: Vec<PathBuf>,
    /// Of the pipelines.
    names: Vec<String>,
    /// By pipeline: the modules that have workers.
    modules: Vec<Vec<String>>,
    /// By pipeline: the revision that was read last.
    revisions: Vec<RevisionId>,
    reading: Option<JoinHandle<anyhow::Result<Found>>>,
}

impl SetReload {
    /// For processes that serve these pipelines, and have workers of these modules of each.
    pub(super) fn new(pipelines: Vec<PathBuf>, modules: Vec<Vec<String>>, loaded: Loaded) -> Self {
        let deployments = loaded.revision.deployments.iter();
        let names = deployments.map(|of| of.pipeline.name.clone()).collect();
        SetReload {
            names,
            revisions: revisions(&loaded.revision.deployments),
            files: pipelines.clone(),
            again: Arc::new(PipelineFiles::new(pipelines, ServedBy::default(), loaded)),
            modules,
            reading: None,
        }
    }

    /// Whether the files are being read.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Begins to read the files, on a thread of its own: profiles that are missing are measured.
    pub(super) fn begin(&mut self) {
        let (again, files) = (self.again.clone(), self.files.clone());
        let (modules, last) = (self.modules.clone(), self.revisions.clone());
        let names = self.names.clone();
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let mut found = Found {
                profiles: Vec::new(),
                definitions: Vec::new(),
                revisions: last,
            };
            again.run(
                |id, last| id == last,
                |revision| {
                    let deployments = &revision.deployments;
                    // The processes stay: there must be a worker of each module.
                    for (deployment, modules) in deployments.iter().zip(&modules) {
                        if !names.contains(&deployment.pipeline.name) {
                            anyhow::bail!(
                                "no pipeline of this set is named {:?}; stop `up` and start it again",
                                deployment.pipeline.name
                            );
                        }
                        let mut of = with_workers(&deployment.pipeline);
                        if let Some(module) = of.find(|of| !modules.iter().any(|m| m == of)) {
                            anyhow::bail!(
                                "the processes of this set have no worker of {module}; stop `up` and start it again"
                            );
                        }
                    }
                    let profiles: Vec<String> = deployments.iter().map(profiles).collect();
                    let now = revisions(deployments);
                    let mut definitions = Vec::new();
                    for (i, file) in files.iter().enumerate() {
                        if now.get(i) != found.revisions.get(i) {
                            definitions.push(Arc::new(Definition {
                                profiles: profiles[i].as_str().into(),
                                ..Definition::clone(&*definition(file, None)?)
                            }));
                        }
                    }
                    found = Found {
                        profiles,
                        definitions,
                        revisions: now,
                    };
                    Ok(())
                },
            )?;
            Ok(found)
        }));
    }

    /// Waits until the files were read; for ever where they are not being read.
    ///
    /// # Errors
    /// What is wrong with them: nothing is to change.
    pub(super) async fn read(&mut self) -> anyhow::Result<Found> {
        let Some(reading) = &mut self.reading else {
            return std::future::pending().await;
        };
        let read = reading.await;
        self.reading = None;
        let found = read??;
        self.revisions.clone_from(&found.revisions);
        Ok(found)
    }
}

/// The file of profiles that all processes of a pipeline read.
pub(super) fn profiles(deployment: &Deployment) -> String {
    render_profiles(&deployment.profiles, "Made by `spillgate up`.")
}

fn revisions(deployments: &[Deployment]) -> Vec<RevisionId> {
    deployments.iter().map(Deployment::revision).collect()
}
