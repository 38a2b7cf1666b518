//! Model files are code. Before a server loads one, it looks at the file (`look`), and loads and runs it once in a
//! process of its own that has little memory and time, writes no file and reaches no network. The hashes of contents
//! that pass are remembered until the server ends. From then on only such contents are loaded, also by workers that
//! start later and whatever file lies at the path by then.
//!
//! ```text
//! module ─▶ inside of --model-dir? ─▶ look ─▶ known content? ── no ─▶ process "check-model" ─▶ verdict
//!                                                  └ yes ─▶ done                (sandbox)        │
//! TorchBackend::load reads the bytes ─▶ approved by hash? ─▶ loads these very bytes ◀────────────┘
//! ```
//!
//! Wherever a model is loaded, its code is looked at (`worker/backend/native/operators.cpp`): it names listed operators alone, and none of them
//! opens a file. And the threads that load or run models could not open others than those of models
//! ([`spillgate_worker::confinement`]).
//!
//! Not here: the results of a model, and errors in libtorch's own operators. A check does not prove that a model is harmless on every input.

pub(crate) mod child;
pub(crate) mod family;
mod folders;
mod look;
mod message;
pub(crate) mod sandbox;
mod verdict;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use spillgate_backend::model_file::{self, ModelFile};
use spillgate_backend::onnx;
use spillgate_backend::operator::Library;
use spillgate_backend::torch::FormId;
use spillgate_controller::convert::is_emulated;
use spillgate_pipeline::family::Family;
use spillgate_pipeline::pipeline::Module;
use spillgate_process::file;
use spillgate_worker::confinement;

use crate::files::{LoadError, LoadedPipeline};
use crate::model_files::option_files;
use folders::ModelFolders;
use look::Looked;
use message::{Answer, Hash, Question};

pub use child::run as answer;
pub use family::{Families, FamilyFiles};
pub(crate) use look::look as look_at;

/// Name of the hidden subcommand that checks a module.
pub const SUBCOMMAND: &str = "check-model";
/// Memory that a check may use beside four times the size of the module's files, in bytes, unless it is said otherwise.
pub const MEMORY_DEFAULT: u64 = 2 << 30;
/// Processor time that a check may take unless it is said otherwise.
pub const TIME_DEFAULT: Duration = Duration::from_secs(60);
/// A check on a busy machine may take this many times its processor time.
const WALL_TIMES: u32 = 3;
/// How often a process that checks is looked at.
const POLL: Duration = Duration::from_millis(5);
/// Most bytes that are kept of each of the process's output streams; the rest is read and discarded.
const SAID_BYTES_MAX: usize = 64 << 10;
/// How many times the files' size a check may use beside the memory it is given: the bytes, libtorch's copy, tensors.
const MEMORY_TIMES: u64 = 4;

/// What a check may use, and where models may lie.
#[derive(Clone, Debug)]
pub struct CheckConfig {
    /// Bytes of memory.
    pub memory: u64,
    /// Processor time.
    pub time: Duration,
    /// Models outside of this folder are refused.
    pub model_dir: Option<PathBuf>,
}

impl Default for CheckConfig {
    fn default() -> Self {
        CheckConfig {
            memory: MEMORY_DEFAULT,
            time: TIME_DEFAULT,
            model_dir: None,
        }
    }
}

/// The content of a file, and what it is loaded as: weights pass without a look at them, and could be a model in another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Content {
    is_weights: bool,
    hash: Hash,
}

impl Content {
    fn of(file: &ModelFile) -> Self {
        Content {
            is_weights: file.is_weights(),
            hash: Sha256::digest(file.bytes()).into(),
        }
    }
}

/// What may be loaded.
#[derive(Default)]
struct Approved {
    /// Files with these contents.
    contents: HashSet<Content>,
    /// Files of these forms in these folders: members of families.
    forms: HashSet<(PathBuf, FormId)>,
    /// Forms of which a member ran as a module of that kind: type, options, variants. With how long its load took.
    ran: HashMap<(Arc<str>, FormId), Duration>,
}

impl Approved {
    /// Whether this content of that file may be loaded. Its form is found in less time than a hash of all of it.
    fn allows(&self, path: &Path, file: &ModelFile) -> Result<(), String> {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let has_forms = self.forms.iter().any(|(of, _)| *of == folder);
        let form = has_forms.then(|| looked_at(file));
        let intact = match &form {
            Some(Ok(form)) if self.forms.contains(&(folder, *form)) => Some(file.intact()),
            _ => None,
        };
        if let Some(Ok(())) = intact {
            return Ok(());
        }
        if self.contents.contains(&Content::of(file)) {
            return Ok(());
        }
        if let (Some(Err(why)), _) | (_, Some(Err(why))) = (form.map(|f| f.map(|_| ())), intact) {
            return Err(why);
        }
        Err(
            "its content is not what was checked when the server listed it; restart the server, or let it read its files again (SIGHUP)"
                .to_owned(),
        )
    }
}

/// The form of a file, after a look at it. Weights beside a model can be any bytes.
fn looked_at(file: &ModelFile) -> Result<FormId, String> {
    if !file.is_weights() {
        look::look(&mut std::io::Cursor::new(file.bytes()))?;
    }
    file.form()
}

/// Asks processes of their own about models, and keeps what may be loaded.
#[derive(Clone)]
struct Asker {
    config: Arc<CheckConfig>,
    folders: ModelFolders,
    approved: Arc<RwLock<Approved>>,
}

/// The key of a check: type, options, and the contents of the files. Checks with equal keys are made once.
type Key = (String, String, Vec<Hash>);

/// Checks models, each content once.
pub struct Checks {
    library: Arc<Library>,
    asker: Asker,
    done: HashMap<Key, Option<String>>,
    confined: Option<String>,
}

impl Checks {
    /// Without any verdict yet.
    ///
    /// # Errors
    /// When the folder of models is none.
    pub fn new(config: CheckConfig, library: Arc<Library>) -> Result<Self, LoadError> {
        let asker = Asker {
            folders: ModelFolders::new(config.model_dir.as_deref())?,
            config: Arc::new(config),
            approved: Arc::default(),
        };
        Ok(Checks {
            library,
            asker,
            done: HashMap::new(),
            confined: None,
        })
    }

    /// From now on models may lie in the folder that was given; where none was, in those of these pipelines and of their models. Files that
    /// options name may be read where they lie.
    pub fn allow(&mut self, pipelines: &[LoadedPipeline]) {
        self.asker.folders.allow(pipelines, &self.library);
    }

    /// From now on this process loads only what passed, wherever it lies, and threads that load models, run them or decode pictures open only what
    /// lies in the folders that are allowed by now; `also` are read by them, too.
    ///
    /// # Errors
    /// Why this system does not confine threads. They go on without.
    pub fn guard_loading(&self, also: &[PathBuf]) -> Result<(), String> {
        let Asker {
            folders, approved, ..
        } = self.asker.clone();
        let opened = [folders.all(), also].concat();
        model_file::approve_with(move |path, file| {
            folders.inside(path)?;
            approved.read().allows(path, file)
        });
        confinement::confine_with(&opened)
    }

    /// Refuses files that options name and that lie elsewhere, which threads could not read.
    fn option_files(&self, loaded: &LoadedPipeline, module: &Module) -> Result<(), String> {
        for (option, file) in option_files(module, &self.library) {
            let path = loaded.base_dir().join(file);
            let told = |error: String| format!("options.{option}: {}: {error}", path.display());
            self.asker.folders.inside(&path).map_err(told)?;
        }
        Ok(())
    }

    /// The limits of the last check, and those that this system does not offer.
    pub fn confined(&self) -> Option<&str> {
        self.confined.as_deref()
    }

    /// Checks all models of a pipeline's modules that this process `runs`; `tell` hears each module before. Of a family the
    /// first members are checked until one is good; the others are for [`Families::check_rest`]. Gives the families, and warnings.
    ///
    /// # Errors
    /// A line for each module whose models must not be loaded.
    pub fn pipeline(
        &mut self,
        loaded: &LoadedPipeline,
        runs: &dyn Fn(&Module) -> bool,
        tell: &dyn Fn(&str),
    ) -> Result<(Families, Vec<String>), LoadError> {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let mut families = Families::default();
        let pipeline = loaded.pipeline.clone();
        let modules = pipeline.modules[1..].iter();
        for module in modules.filter(|m| !is_emulated(m) && !m.variants.is_empty() && runs(m)) {
            tell(&module.name);
            let checked = self.option_files(loaded, module).and_then(|()| {
                Ok(match &module.family {
                    Some(family) => {
                        let (files, refused) = self.family(loaded, module, family)?;
                        families.insert(module.id, files);
                        refused
                    }
                    None => self.module(loaded, module)?.into_iter().collect(),
                })
            });
            let (file, line, name) = (loaded.file.display(), module.line, &module.name);
            match checked {
                Ok(all) => warnings.extend(
                    all.iter()
                        .map(|w| format!("warning: {file}:{line}: modules.{name}: {w}")),
                ),
                Err(error) => errors.push(format!("error: {file}:{line}: modules.{name}: {error}")),
            }
        }
        if errors.is_empty() {
            return Ok((families, warnings));
        }
        Err(LoadError::Models(errors.join("\n")))
    }

    /// Checks one module's models. Returns the model's error on its own example, if there is one.
    fn module(
        &mut self,
        loaded: &LoadedPipeline,
        module: &Module,
    ) -> Result<Option<String>, String> {
        let mut hashes = Vec::new();
        let mut size = 0;
        for variant in &module.variants {
            let path = loaded.base_dir().join(&variant.model);
            let told = |error: String| format!("model file {}: {error}", path.display());
            self.asker.folders.inside(&path).map_err(told)?;
            let mut model = file::open(&path).map_err(|e| told(e.to_string()))?;
            let looked = look::look(&mut model).map_err(told)?;
            let mut files = vec![hash(&mut model)];
            if let Looked::Onnx(bytes) = looked {
                onnx::ready().map_err(told)?;
                for beside in onnx::weights_beside(&path, &bytes).map_err(told)? {
                    self.asker.folders.inside(&beside).map_err(told)?;
                    let opened = file::open(&beside).map_err(|e| told(e.to_string()))?;
                    files.push(hash(&mut { opened }));
                }
            }
            for file in files {
                let (hash, length) = file.map_err(|e| told(e.to_string()))?;
                hashes.push(hash);
                size += length;
            }
        }
        let key = (module.op.clone(), options_of(module), hashes);
        if let Some(done) = self.done.get(&key) {
            return Ok(done.clone());
        }
        let question = self.asker.question(loaded, module, size);
        let passed = self.asker.ask(&question)?;
        self.confined = passed.confined.or(self.confined.take());
        let mut approved = self.asker.approved.write();
        approved
            .contents
            .extend(passed.loaded.iter().map(|of| of.content));
        let warning = passed
            .error
            .map(|e| format!("the model fails on its own example: {e}"));
        self.done.insert(key, warning.clone());
        Ok(warning)
    }

    /// Lists a family's files and checks the first members, until one is good. Gives what is wrong with those before it.
    fn family(
        &mut self,
        loaded: &LoadedPipeline,
        module: &Module,
        family: &Family,
    ) -> Result<(FamilyFiles, Vec<String>), String> {
        let template = self.asker.question(loaded, module, 0);
        let kind = format!("{} {}", module.op, options_of(module));
        let files = FamilyFiles::new(family, template, &kind, self.asker.clone());
        let (refused, confined) = files.check_first()?;
        self.confined = confined.or(self.confined.take());
        Ok((files, refused))
    }
}

/// What is said of a module's models beside their files.
fn options_of(module: &Module) -> String {
    let is_batched = module.batch.max >= 2;
    format!("{:?} {:?} {is_batched}", module.options, module.variants)
}

/// What a process that checked said of models that may be loaded.
struct Passed {
    /// The error on the models' own example.
    error: Option<String>,
    confined: Option<String>,
    /// How long a member of a family took to load.
    load: Option<Duration>,
    /// The files that it loaded, each once.
    loaded: Vec<LoadedFile>,
}

/// A file that a process that checked loaded.
#[derive(PartialEq)]
struct LoadedFile {
    path: PathBuf,
    content: Content,
}

impl Asker {
    /// The question about a module whose models have that many bytes.
    fn question(&self, loaded: &LoadedPipeline, module: &Module, size: u64) -> Question {
        Question {
            file: loaded.file.display().to_string(),
            text: loaded.text.clone(),
            variables: loaded.variables.clone(),
            base_dir: loaded.base_dir(),
            module: module.name.clone(),
            model: None,
            memory: self.memory(size),
            seconds: self.config.time.as_secs().max(1),
            folders: self.folders.all().to_vec(),
            onnx: onnx::loaded().is_some(),
        }
    }

    /// Bytes that a check of files of that size may use.
    fn memory(&self, size: u64) -> u64 {
        self.config.memory.saturating_add(MEMORY_TIMES * size)
    }

    fn ask(&self, question: &Question) -> Result<Passed, String> {
        let wall = self.config.time * WALL_TIMES;
        let ended =
            ask(question, wall).map_err(|e| format!("its models cannot be checked: {e}"))?;
        let (mut loaded, mut confined) = (Vec::new(), None);
        for answer in &ended.answers {
            match answer {
                Answer::Held { by, lacking } => {
                    let by = by.join(", ");
                    confined = Some(match lacking.as_slice() {
                        [] => by,
                        lacking => format!("{by}; not here: {}", lacking.join(", ")),
                    });
                }
                Answer::Loads {
                    path,
                    hash,
                    is_weights,
                } => {
                    // Further parts of a model lie beside the first.
                    self.folders
                        .inside(path)
                        .map_err(|error| format!("model file {}: {error}", path.display()))?;
                    let one = LoadedFile {
                        path: path.clone(),
                        content: Content {
                            is_weights: *is_weights,
                            hash: *hash,
                        },
                    };
                    if !loaded.contains(&one) {
                        loaded.push(one);
                    }
                }
                Answer::Ran { error, load }
                    if !error.as_deref().is_some_and(verdict::out_of_memory) =>
                {
                    return Ok(Passed {
                        error: error.clone(),
                        confined,
                        load: *load,
                        loaded,
                    });
                }
                Answer::Ran { .. } | Answer::Refused { .. } => break,
            }
        }
        Err(verdict::why(&ended, question))
    }
}

/// A file's hash and length.
fn hash(model: &mut File) -> std::io::Result<(Hash, u64)> {
    use std::io::Seek;
    model.rewind()?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    let mut length = 0;
    loop {
        let n = model.read(&mut chunk)?;
        if n == 0 {
            return Ok((hasher.finalize().into(), length));
        }
        hasher.update(&chunk[..n]);
        length += n as u64;
    }
}

/// How a process that checked ended.
struct Ended {
    answers: Vec<Answer>,
    /// The end of its standard error.
    said: String,
    /// `None`: it was killed because its time was over.
    status: Option<ExitStatus>,
}

fn ask(question: &Question, wall: Duration) -> std::io::Result<Ended> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(SUBCOMMAND).env_clear();
    // Where the system finds libtorch, if not beside the program.
    if let Some(value) = std::env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", value);
    }
    // The library that this process has, wherever it was found.
    if let Some(library) = onnx::loaded() {
        command.env(onnx::VARIABLE, library);
    }
    command
        .env("OMP_NUM_THREADS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let answers = keep(child.stdout.take());
    let said = keep(child.stderr.take());
    let asked = serde_json::to_vec(question)?;
    // A process that ended before it read everything reports the reason in another way.
    let _ = child.stdin.take().map(|mut to| to.write_all(&asked));
    let status = wait(&mut child, wall)?;
    let text = |kept: Kept| {
        kept.join()
            .map(|b| String::from_utf8_lossy(&b).into_owned())
    };
    let lines = text(answers).unwrap_or_default();
    let answers = lines
        .lines()
        .map_while(|line| serde_json::from_str(line).ok());
    Ok(Ended {
        answers: answers.collect(),
        said: text(said).unwrap_or_default(),
        status,
    })
}

/// Waits for the end, or makes it when the time is over.
fn wait(child: &mut Child, wall: Duration) -> std::io::Result<Option<ExitStatus>> {
    let give_up = Instant::now() + wall;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= give_up {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// A thread that reads what a process says, and its result.
type Kept = std::thread::JoinHandle<Vec<u8>>;

/// Reads all of it and keeps this many bytes.
fn keep(from: Option<impl Read + Send + 'static>) -> Kept {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let Some(mut from) = from else { return kept };
        let mut chunk = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            let room = SAID_BYTES_MAX.saturating_sub(kept.len());
            kept.extend_from_slice(&chunk[..n.min(room)]);
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_as_weights_is_no_model_later_and_a_model_no_weights() {
        let (weights, model): (&[u8], &[u8]) = (b"some weights", b"a model");
        let mut approved = Approved::default();
        approved.contents.extend([
            Content::of(&ModelFile::Weights(weights)),
            Content::of(&ModelFile::of(model)),
        ]);
        let allows = |file: ModelFile| approved.allows(Path::new("m/a"), &file);
        assert_eq!(allows(ModelFile::Weights(weights)), Ok(()));
        assert_eq!(allows(ModelFile::of(model)), Ok(()));
        for swapped in [ModelFile::of(weights), ModelFile::Weights(model)] {
            let said = allows(swapped).unwrap_err();
            assert!(said.contains("not what was checked"), "{said}");
        }
    }
}
