//! Where models may lie, by true paths: links and `..` are resolved.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spillgate_backend::operator::Library;

use crate::files::{LoadError, LoadedPipeline};
use crate::model_files::option_files;

/// ModelFolders of models, and files that options name.
#[derive(Clone, Debug)]
pub(super) struct ModelFolders {
    /// The folder that was given, if one was.
    given: Option<Arc<Path>>,
    /// All that may be read.
    all: Arc<[PathBuf]>,
}

impl ModelFolders {
    /// The given folder; where none is, nothing until pipelines are allowed.
    ///
    /// # Errors
    /// When the folder is none.
    pub(super) fn new(given: Option<&Path>) -> Result<Self, LoadError> {
        let canonical = |dir: &Path| {
            let found = dir.canonicalize().ok().filter(|d| d.is_dir());
            let shown = dir.display();
            let none = || LoadError::Models(format!("error: --model-dir {shown}: no such folder"));
            found.ok_or_else(none)
        };
        let given = given.map(canonical).transpose()?;
        Ok(ModelFolders {
            all: given.iter().cloned().collect(),
            given: given.map(Arc::from),
        })
    }

    /// See [`super::Checks::allow`].
    pub(super) fn allow(&mut self, pipelines: &[LoadedPipeline], library: &Library) {
        // By name first: the members of a family are many, and their folders few.
        let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
        let mut found: BTreeSet<PathBuf> = BTreeSet::new();
        for loaded in pipelines {
            let base_dir = loaded.base_dir();
            let modules = || loaded.pipeline.modules.iter();
            let options = modules().flat_map(|module| option_files(module, library));
            let options = options.filter_map(|(_, file)| base_dir.join(file).canonicalize().ok());
            found.extend(options);
            if self.given.is_some() {
                continue;
            }
            folders.insert(base_dir.clone());
            let families = loaded.pipeline.families();
            let members = families.flat_map(|(_, family)| &family.members);
            let members = members.map(|member| base_dir.join(&member.file));
            folders.extend(members.filter_map(|file| file.parent().map(Path::to_owned)));
            let variants = modules().flat_map(|module| &module.variants);
            let variants = variants.map(|variant| base_dir.join(&variant.model));
            let models = variants.filter_map(|file| file.canonicalize().ok());
            found.extend(models.filter_map(|file| file.parent().map(Path::to_owned)));
        }
        // The folder of a pipeline file that is named without one.
        let here = |dir: PathBuf| match dir.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => dir,
        };
        let folders = folders.into_iter().map(here);
        found.extend(folders.filter_map(|dir| dir.canonicalize().ok()));
        found.extend(self.given.as_deref().map(Path::to_owned));
        self.all = found.into_iter().collect();
    }

    /// ModelFolders, and files.
    pub(super) fn all(&self) -> &[PathBuf] {
        &self.all
    }

    /// Whether a file lies there.
    ///
    /// # Errors
    /// Where it lies instead, and what would be right.
    pub(super) fn inside(&self, path: &Path) -> Result<(), String> {
        let true_path = path.canonicalize().map_err(|e| e.to_string())?;
        if self.all.iter().any(|of| true_path.starts_with(of)) {
            return Ok(());
        }
        let lies = true_path.display();
        Err(match &self.given {
            Some(dir) => format!(
                "it lies at {lies}, outside of --model-dir {}",
                dir.display()
            ),
            None => {
                let all: Vec<String> = self.all.iter().map(|of| of.display().to_string()).collect();
                format!(
                    "it lies at {lies}, outside of the folders that pipelines and models were in at the start ({}); name a folder \
                     that holds all with --model-dir, and start anew",
                    all.join(", ")
                )
            }
        })
    }
}
