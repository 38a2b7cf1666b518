//! Reads pipeline files and the profile files beside them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spillgate_backend::operator::Library;
use spillgate_controller::convert::is_emulated;
use spillgate_pipeline::Catalog;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::compile::{Outside, compile_with};
use spillgate_pipeline::diagnostic::Diagnostics;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::family::MEMBERS_MAX;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::placement::ServedBy;
use spillgate_pipeline::profile::{ProfileSet, device_kind};
use spillgate_pipeline::profile_file::parse_profiles;
use spillgate_process::file::{self, FileError};
use spillgate_protocol::publication::Definition;
use spillgate_protocol::topology::{Topology, parse_topology};
use spillgate_sim::cluster::Cluster;
use spillgate_sim::cluster_file::{Served, parse_cluster};
use spillgate_worker_policy::schedule::SchedulerConfig;

use crate::device_name::resolve_device;
use crate::model_files::{Folders, option_files};
use crate::start_error::PlacingError;

/// Most bytes that are read of a pipeline or profile file: a little more than the compiler takes, which then says so.
pub(crate) const FILE_BYTES_MAX: usize = 5 << 20;

/// The variables that a pipeline file names, with their values.
pub(crate) type Variables = BTreeMap<String, String>;

/// A pipeline file, read and checked.
#[derive(Clone, Debug)]
pub struct LoadedPipeline {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// The file.
    pub file: PathBuf,
    /// Its profiles; empty when there is no profile file.
    pub profiles: ProfileSet,
    /// Warnings, one a line.
    pub warnings: Vec<String>,
    /// The file's text, and the variables that it names.
    pub(crate) text: String,
    pub(crate) variables: Variables,
}

impl LoadedPipeline {
    /// Folder of the file: paths in it are relative to this.
    pub fn base_dir(&self) -> PathBuf {
        self.file.parent().map_or_else(PathBuf::new, Path::to_owned)
    }

    /// It is served by that.
    pub fn served_by(&mut self, by: ServedBy) {
        let pipeline = Pipeline::clone(&self.pipeline);
        self.pipeline = Arc::new(pipeline.served_by(by));
    }

    /// The files that it is made of: its own, those of its models with what lies beside them, and those that options name.
    pub fn all_files(&self, library: &Library) -> Vec<PathBuf> {
        let base_dir = self.base_dir();
        let modules = self.pipeline.modules.iter();
        let named = modules.flat_map(|m| option_files(m, library));
        let mut all: Vec<PathBuf> = named.map(|(_, file)| base_dir.join(file)).collect();
        let variants = self.pipeline.modules.iter().flat_map(|m| &m.variants);
        let families = self.pipeline.families();
        let members = families.flat_map(|(_, family)| family.members.iter().map(|m| &m.file));
        let mut folders = Folders::default();
        for model in variants.map(|variant| &variant.model).chain(members) {
            let of_model = folders.of_model(&base_dir.join(model));
            all.extend(of_model.into_iter().map(|(_, file)| file));
        }
        all.push(self.file.clone());
        all
    }

    /// Whether each model file is there that would be run, of the modules that this process `runs`.
    ///
    /// # Errors
    /// A line for each that is not.
    pub fn check_models(&self, runs: &dyn Fn(&Module) -> bool) -> Result<(), LoadError> {
        let modules = self.pipeline.modules.iter();
        // The files of a family were listed, so they are there.
        let modules = modules.filter(|m| !is_emulated(m) && m.family.is_none() && runs(m));
        let models = modules.flat_map(|m| m.variants.iter().map(move |v| (m, &v.model)));
        let mut lines: Vec<String> = models
            .filter(|(_, model)| !self.base_dir().join(model).is_file())
            .map(|(module, model)| {
                format!(
                    "error: {}:{}: modules.{}: no model file {}; paths are relative to the pipeline file",
                    self.file.display(),
                    module.line,
                    module.name,
                    self.base_dir().join(model).display()
                )
            })
            .collect();
        lines.dedup();
        if lines.is_empty() {
            return Ok(());
        }
        Err(LoadError::Models(lines.join("\n")))
    }
}

impl LoadedPipeline {
    /// Whether the pipeline can be served with these profiles. Emulated devices need a profile, and a scheduler needs
    /// one that fits its form. A missing profile of a real device is measured before it serves.
    ///
    /// # Errors
    /// A line for each module whose profile is not sufficient.
    pub fn check_profiles(&self) -> Result<(), LoadError> {
        let mut lines: Vec<String> = Vec::new();
        for module in &self.pipeline.modules[1..] {
            let problem = module.devices.iter().find_map(|device| {
                let device = resolve_device(device);
                let problem = match ModuleExecution::of(module, &device, &self.profiles) {
                    Ok(times) => {
                        let largest = module.batch.max;
                        let scheduler = SchedulerConfig::of(module, times.served(), largest);
                        scheduler.err().map(PlacingError::from)
                    }
                    Err(missing) if device_kind(&device) == "emulated" => Some(missing.into()),
                    Err(_) => None,
                }?;
                Some(problem.to_string())
            });
            if let Some(problem) = problem {
                let file = self.file.display();
                lines.push(format!("error: {file}:{}: {problem}", module.line));
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        Err(LoadError::Models(lines.join("\n")))
    }
}

/// Why a pipeline file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("error: {}: cannot be read: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: FileError,
    },
    /// The file has errors, one a line.
    #[error("{0}")]
    Spec(Diagnostics),
    /// Models or profiles with which the pipeline cannot be served, one a line.
    #[error("{0}")]
    Models(String),
    /// Two files define pipelines of the same name.
    #[error("error: {}: the name \"{name}\" is taken by {}; pipelines of one server need different names", second.display(), first.display())]
    SameName {
        /// The name.
        name: String,
        /// The earlier file.
        first: PathBuf,
        /// The later file.
        second: PathBuf,
    },
}

/// Where the profiles of a pipeline file lie: `traffic.yaml` has `traffic.profile.yaml`.
pub fn profile_path(file: &Path) -> PathBuf {
    file.with_extension("profile.yaml")
}

/// Whether a file is a profile file, by its name.
pub fn is_profile(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().ends_with(".profile.yaml")
}

/// Loads a profile file by itself.
///
/// # Errors
/// When it cannot be read or has errors.
pub fn load_profiles(file: &Path) -> Result<ProfileSet, LoadError> {
    parse_profiles(&read(file)?, &name_of(file)).map_err(LoadError::Spec)
}

/// Loads a pipeline file and, if there is one, its profile file.
///
/// # Errors
/// When a file cannot be read or has errors.
pub fn load(file: &Path, catalog: &Catalog) -> Result<LoadedPipeline, LoadError> {
    let text = read(file)?;
    let profile_file = profile_path(file);
    let profiles = match read(&profile_file) {
        Ok(text) => parse_profiles(&text, &name_of(&profile_file)).map_err(LoadError::Spec)?,
        Err(LoadError::Read {
            cause: FileError::Io(error),
            ..
        }) if error.kind() == ErrorKind::NotFound => ProfileSet::default(),
        Err(error) => return Err(error),
    };
    compile(text, profiles, file, catalog)
}

/// Loads a definition as if it were in these files.
///
/// # Errors
/// When it has errors.
pub fn load_definition(
    definition: &Definition,
    file: &Path,
    catalog: &Catalog,
) -> Result<LoadedPipeline, LoadError> {
    let profiles = match &*definition.profiles {
        "" => ProfileSet::default(),
        text => parse_profiles(text, &name_of(&profile_path(file))).map_err(LoadError::Spec)?,
    };
    compile(definition.pipeline.to_string(), profiles, file, catalog)
}

/// A pipeline of this text, without profiles, as if it were in that file.
///
/// # Errors
/// When it has errors.
pub(crate) fn of_text(
    text: String,
    file: &Path,
    catalog: &Catalog,
) -> Result<LoadedPipeline, LoadError> {
    compile(text, ProfileSet::default(), file, catalog)
}

fn compile(
    text: String,
    profiles: ProfileSet,
    file: &Path,
    catalog: &Catalog,
) -> Result<LoadedPipeline, LoadError> {
    let variables = RefCell::new(Variables::new());
    let environment = |name: &str| {
        let value = std::env::var(name).ok()?;
        variables
            .borrow_mut()
            .insert(name.to_owned(), value.clone());
        Some(value)
    };
    let name = name_of(file);
    let base_dir = file.parent().unwrap_or(Path::new(""));
    let outside = Outside {
        variables: &environment,
        files: Some(&|folder, is_asked_for| list(&base_dir.join(folder), is_asked_for)),
    };
    let compiled =
        compile_with(&text, &name, catalog, Some(&profiles), outside).map_err(LoadError::Spec)?;
    let mut warnings: Vec<String> = compiled.warnings.iter().map(ToString::to_string).collect();
    warnings.extend(strangers(
        &compiled.pipeline,
        &profiles,
        &profile_path(file),
    ));
    Ok(LoadedPipeline {
        pipeline: Arc::new(compiled.pipeline),
        file: file.to_owned(),
        profiles,
        warnings,
        text,
        variables: variables.into_inner(),
    })
}

/// The names of a folder's files that are asked for: one more than a family may have, at most.
fn list(folder: &Path, is_asked_for: &dyn Fn(&str) -> bool) -> Result<Vec<String>, String> {
    // The folder of a pipeline file that is named without one.
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let entries = std::fs::read_dir(folder).map_err(|e| e.to_string())?;
    let names = entries.filter_map(|entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error.to_string())),
        };
        let is_folder = entry.file_type().is_ok_and(|ty| ty.is_dir());
        // A name that is no text names no model.
        let name = entry.file_name().into_string().ok()?;
        (!is_folder && is_asked_for(&name)).then_some(Ok(name))
    });
    names.take(MEMBERS_MAX + 1).collect()
}

/// Modules that have a profile but are not in the pipeline: misspelt, or removed. The intended module would count as
/// one without a profile. For types without a model this means that it takes no time.
fn strangers(pipeline: &Pipeline, profiles: &ProfileSet, file: &Path) -> Vec<String> {
    let modules = &pipeline.modules[1..];
    let known: Vec<&str> = modules.iter().map(|m| m.name.as_str()).collect();
    let profiled = profiles.devices.values().flat_map(|modules| modules.keys());
    let strangers: BTreeSet<&String> = profiled
        .filter(|name| !known.contains(&name.as_str()))
        .collect();
    let warning = |name: &&String| {
        let (file, known) = (file.display(), known.join(", "));
        format!("warning: {file}: the pipeline has no module \"{name}\"; its modules are {known}")
    };
    strangers.iter().map(warning).collect()
}

/// Loads several files, whose pipelines must have different names.
///
/// # Errors
/// The first file that cannot be loaded.
pub fn load_all(files: &[PathBuf], catalog: &Catalog) -> Result<Vec<LoadedPipeline>, LoadError> {
    let mut loaded: Vec<LoadedPipeline> = Vec::new();
    for file in files {
        let next = load(file, catalog)?;
        let name = &next.pipeline.name;
        if let Some(first) = loaded.iter().find(|l| l.pipeline.name == *name) {
            return Err(LoadError::SameName {
                name: name.clone(),
                first: first.file.clone(),
                second: file.clone(),
            });
        }
        loaded.push(next);
    }
    Ok(loaded)
}

/// Reads the file of a cluster for the simulator.
///
/// # Errors
/// It cannot be read, or has errors.
pub fn load_cluster(path: &Path, served: Served<'_>) -> Result<Cluster, LoadError> {
    let text = read(path)?;
    parse_cluster(&text, &name_of(path), served).map_err(LoadError::Spec)
}

/// Reads the file of a topology.
///
/// # Errors
/// It cannot be read, or has errors.
pub fn load_topology(path: &Path, pipeline: &Pipeline) -> Result<Topology, LoadError> {
    let text = read(path)?;
    parse_topology(&text, &name_of(path), pipeline).map_err(LoadError::Spec)
}

pub(crate) fn read(path: &Path) -> Result<String, LoadError> {
    file::read_text(path, FILE_BYTES_MAX).map_err(|cause| LoadError::Read {
        path: path.to_owned(),
        cause,
    })
}

/// The file as messages name it: as the user wrote it.
fn name_of(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_model_is_named_with_its_line() {
        let folder = std::env::temp_dir().join(format!("spillgate-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("p.yaml");
        let text = "name: p\nslo: 100ms\nmodules:\n  a:\n    op: classifier\n    model: gone.pt\n    \
                    inputs: { image: $source.frame }\noutputs: { a: $a.labels }\n";
        std::fs::write(&file, text).unwrap();
        let loaded = load(&file, &spillgate_modules::library().catalog()).unwrap();
        let error = loaded.check_models(&|_| true).unwrap_err().to_string();
        assert!(
            error.contains("p.yaml:4: modules.a: no model file") && !error.contains('\n'),
            "{error}"
        );
        std::fs::write(folder.join("gone.pt"), "junk").unwrap();
        assert!(loaded.check_models(&|_| true).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_profile_of_a_module_that_is_not_there_is_a_warning() {
        let folder =
            std::env::temp_dir().join(format!("spillgate-misnamed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("p.yaml");
        let pipeline = "{ name: p, slo: 1s, source: { payload: bytes }, modules: { detect: { op: noop, inputs: { payload: \
            $source.payload }, device: emulated } }, outputs: { payload: $detect.payload } }";
        std::fs::write(&file, pipeline).unwrap();
        let profile = "emulated: { detct: { \"-\": { alpha: 1ms, beta: 1ms, max: 32 } } }";
        std::fs::write(profile_path(&file), profile).unwrap();
        let loaded = load(&file, &spillgate_modules::library().catalog());
        std::fs::remove_dir_all(&folder).unwrap();
        let warnings = loaded.unwrap().warnings;
        let found = warnings.iter().find(|w| w.contains("no module \"detct\""));
        assert!(
            found.is_some_and(|w| w.ends_with("its modules are detect")),
            "{warnings:?}"
        );
    }
}
