//! The definitions of a process that registers: what its files say, and how others of its pipelines are read.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use parking_lot::Mutex;
use spillgate_backend::operator::Library;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::pipeline::{Module, Source};
use spillgate_pipeline::profile_file::render_profiles;
use spillgate_protocol::publication::Definition;

use super::role_source::RoleSource;
use super::start::{check, complete};
use crate::deployment::Revision;
use crate::files::{self, LoadedPipeline};
use crate::model_check::Checks;
use crate::publishing::Definitions;

/// A pipeline with which the process began.
struct First {
    name: String,
    file: PathBuf,
    source: Source,
    /// Those of `--modules` for it.
    entries: Vec<String>,
}

/// Reads definitions in the place of the files with which the process began.
struct Reader {
    source: RoleSource,
    library: Arc<Library>,
    pipelines: Vec<First>,
    checks: Mutex<Checks>,
}

/// What the files of a process say, before it is completed.
pub(super) struct FileTexts(Vec<(First, Definition)>);

impl FileTexts {
    /// Of pipelines that were read, with the profiles that are given.
    pub(super) fn of(all: &[LoadedPipeline]) -> Self {
        let of = |loaded: &LoadedPipeline| {
            let first = First {
                name: loaded.pipeline.name.clone(),
                file: loaded.file.clone(),
                source: loaded.pipeline.source.clone(),
                entries: Vec::new(),
            };
            let profiles = match loaded.profiles.devices.is_empty() {
                true => String::new(),
                false => render_profiles(&loaded.profiles, "As a process read it."),
            };
            let definition = Definition {
                revision: 0,
                pipeline: loaded.text.as_str().into(),
                profiles: profiles.into(),
            };
            (first, definition)
        };
        FileTexts(all.iter().map(of).collect())
    }

    /// The definitions of a process with this revision, which may serve others.
    pub(super) fn definitions(
        self,
        revision: &Revision,
        source: RoleSource,
        library: Arc<Library>,
        checks: Checks,
    ) -> anyhow::Result<Definitions> {
        let (mut pipelines, mut first) = (Vec::new(), Vec::new());
        let all = revision.deployments.iter();
        let all: Vec<&Pipeline> = all.map(|of| &*of.pipeline).collect();
        let entries = source.registration()?.entries(&all)?;
        let texts = self.0.into_iter().zip(entries);
        for (((of, definition), entries), deployment) in texts.zip(&revision.deployments) {
            let definition = Definition {
                revision: deployment.revision().0,
                ..definition
            };
            first.push((of.name.as_str().into(), Arc::new(definition)));
            pipelines.push(First { entries, ..of });
        }
        let reader = Arc::new(Reader {
            source,
            library,
            pipelines,
            checks: Mutex::new(checks),
        });
        Ok(Definitions {
            first,
            read: Arc::new({
                let reader = reader.clone();
                move |definition| reader.read(definition)
            }),
            check: Arc::new(move |definition| reader.check(definition)),
        })
    }
}

impl Reader {
    /// The revision that a definition makes here.
    fn read(&self, definition: &Definition) -> anyhow::Result<Revision> {
        let (loaded, first) = self.compile(definition)?;
        let registration = self.source.registration()?;
        let role = registration.role_for(&self.source.name, &loaded.pipeline, &first.entries)?;
        let runs = |_: &Pipeline, module: &Module| role.runs(module.id);
        let all = vec![loaded];
        let families = check(&all, &mut self.checks.lock(), &runs, &|_| {})?;
        let deployments = complete(all, families, &self.library, false, &|_| {})?;
        Ok(Revision {
            id: deployments[0].revision(),
            deployments,
            roles: vec![role],
        })
    }

    /// The name of the pipeline of a definition, and its revision.
    fn check(&self, definition: &Definition) -> anyhow::Result<(Arc<str>, u64)> {
        let (loaded, _) = self.compile(definition)?;
        loaded.check_profiles()?;
        let revision = crate::deployment::revision_of(&loaded.pipeline);
        Ok((loaded.pipeline.name.as_str().into(), revision.0))
    }

    /// The pipeline of a definition, and what its process began with.
    fn compile(&self, definition: &Definition) -> anyhow::Result<(LoadedPipeline, &First)> {
        let catalog = self.library.catalog();
        // The name says whose folder paths are relative to, so it is read first.
        let anywhere = PathBuf::from("published");
        let name = match &self.pipelines[..] {
            [only] => Some(only),
            all => {
                let named = files::load_definition(definition, &anywhere, &catalog)?;
                let name = &named.pipeline.name;
                all.iter().find(|of| of.name == *name)
            }
        };
        let file = name.map_or(&anywhere, |of| &of.file);
        let mut loaded = files::load_definition(definition, file, &catalog)?;
        loaded.served_by(self.source.registration()?.served_by());
        let name = &loaded.pipeline.name;
        let Some(first) = self.pipelines.iter().find(|of| of.name == *name) else {
            let names: Vec<&str> = self.pipelines.iter().map(|of| &*of.name).collect();
            bail!(
                "no pipeline of this set is named {name:?}; it serves {}: begin processes with the file of another one",
                names.join(", ")
            );
        };
        let (was, is) = (&first.source, &loaded.pipeline.source);
        if was != is {
            bail!(
                "pipeline {name} takes source {:?} of type {}, and this revision source {:?} of type {}: streams that are open go on \
                 sending what they send; give the pipeline another name, and begin processes with its file",
                was.field,
                was.ty.name(),
                is.field,
                is.ty.name()
            );
        }
        Ok((loaded, first))
    }
}
