//! The files of families: listed when the server starts, and checked in the background. One check is made for each form of
//! archive ([`form`]), because members of one form have the same code. A member that is asked for before its turn
//! is checked next.
//!
//! The form of an ONNX file is its own bytes alone, so that a member with weights in other files is refused: they could change unseen.
//!
//! A member that cannot be served is refused by itself. So is one whose file has changed or is gone since it was listed;
//! a model that is in memory already serves on.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::{Condvar, Mutex};
use spillgate_backend::model_file::ModelFile;
use spillgate_backend::onnx::{self, weights_beside};
use spillgate_backend::torch::FormId;
use spillgate_backend::torch::archive::form;
use spillgate_pipeline::family::Family;
use spillgate_pipeline::id::{MemberId, ModuleId};
use spillgate_process::file;
use spillgate_worker::listed::ListedFile;
use spillgate_worker::members::Members;

use super::look::{Looked, look};
use super::message::Question;
use super::{Asker, Content, LoadedFile, looked_at};

/// Members that are checked before the server starts, until one is good.
pub(crate) const FIRST_MAX: usize = 8;
/// Members of a form that are checked, while none is good. The others of the form are refused then.
pub(crate) const FAILURES_MAX: u32 = 8;
/// Refused members that the log names.
pub(crate) const NAMED_MAX: usize = 20;
/// What is said of an ONNX model that is not all in one file.
const IN_ONE_FILE: &str = "it keeps weights in other files, and a model of a family is one file; save it with all in one file \
                           (onnx.save(model, FILE, save_as_external_data=False))";
/// Most bytes of a member that is checked.
const MODEL_BYTES_MAX: usize = 16 << 30;

/// The families of a pipeline, by module.
#[derive(Clone, Debug, Default)]
pub struct Families(IndexMap<ModuleId, Arc<FamilyFiles>>);

impl Families {
    pub(super) fn insert(&mut self, module: ModuleId, files: FamilyFiles) {
        self.0.insert(module, Arc::new(files));
    }

    /// The member that stands for all when the module is measured.
    pub fn representative(&self, module: ModuleId) -> MemberId {
        let files = self.0.get(&module);
        files.map_or(MemberId::default(), |files| files.representative())
    }

    /// Decides which members a worker of the module may load.
    pub(crate) fn members(&self, module: ModuleId) -> Option<Arc<dyn Members>> {
        let files = self.0.get(&module)?.clone();
        Some(files)
    }

    /// Checks the members that were not checked, in the background.
    pub fn check_rest(&self) {
        self.0.values().for_each(|files| files.check_rest());
    }

    /// Checks the members that were not checked, now. Gives the module and the cause of each that is refused.
    pub fn check_all(&self) -> impl Iterator<Item = (ModuleId, String)> {
        self.0.iter().flat_map(|(module, files)| {
            let refused = files.inner.check_all();
            refused.into_iter().map(|refused| (*module, refused))
        })
    }
}

/// The files of one family. Its checks end with it.
pub struct FamilyFiles {
    inner: Arc<Inner>,
}

impl Drop for FamilyFiles {
    fn drop(&mut self) {
        self.inner.state.lock().closed = true;
        self.inner.changed.notify_all();
    }
}

impl std::fmt::Debug for FamilyFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (module, n) = (&self.inner.question.module, self.inner.members.len());
        write!(f, "FamilyFiles({module}: {n})")
    }
}

struct Inner {
    members: Vec<Listed>,
    /// The question about any of them.
    question: Question,
    /// The kind of module that it is run as.
    kind: Arc<str>,
    asker: Asker,
    default: Option<MemberId>,
    representative: AtomicU16,
    state: Mutex<State>,
    changed: Condvar,
}

/// A member and its file.
struct Listed {
    name: String,
    /// As in the pipeline file.
    file: String,
    found: ListedFile,
}

/// Whether a member may be loaded; if not, why.
type Verdict = Result<(), Arc<str>>;

struct State {
    /// By member; `None` until it is known.
    verdicts: Vec<Option<Verdict>>,
    /// Members that were asked for before their turn, the latest last; each once.
    asked: VecDeque<MemberId>,
    /// Forms of good members, in the order in which they were found, with how long the load of one took.
    good: IndexMap<FormId, Duration>,
    /// Members that failed, by form, while none was good.
    failures: HashMap<FormId, u32>,
    closed: bool,
}

impl FamilyFiles {
    /// The files of a family, as they are now.
    pub(super) fn new(
        family: &Family,
        question: Question,
        kind: &str,
        asker: Asker,
    ) -> FamilyFiles {
        let base_dir = question.base_dir.clone();
        let list = family.members.iter().map(|member| Listed {
            name: member.name.clone(),
            file: member.file.clone(),
            found: ListedFile::now(base_dir.join(&member.file)),
        });
        let state = State {
            verdicts: vec![None; family.members.len()],
            asked: VecDeque::new(),
            good: IndexMap::new(),
            failures: HashMap::new(),
            closed: false,
        };
        let inner = Inner {
            members: list.collect(),
            question,
            kind: Arc::from(kind),
            asker,
            default: family.default,
            representative: AtomicU16::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        FamilyFiles {
            inner: Arc::new(inner),
        }
    }

    fn representative(&self) -> MemberId {
        MemberId(self.inner.representative.load(Ordering::Relaxed))
    }

    /// Checks the default and the first members, until one is good. Gives what is wrong with those before it, and what the
    /// check was confined by.
    ///
    /// # Errors
    /// When none of them is good.
    pub(super) fn check_first(&self) -> Result<(Vec<String>, Option<String>), String> {
        let inner = &self.inner;
        let mut refused = Vec::new();
        let mut confined = None;
        for member in inner.default.into_iter().chain(inner.ids()).take(FIRST_MAX) {
            match inner.check(member, &mut confined) {
                Ok(()) => {
                    inner.representative.store(member.0, Ordering::Relaxed);
                    return Ok((refused, confined));
                }
                Err(why) => {
                    let line = inner.line(member, &why);
                    if !refused.contains(&line) {
                        refused.push(line);
                    }
                }
            }
        }
        let n = inner.members.len();
        Err(format!(
            "none of the first models of its {n} can be served; {}",
            refused.join("; ")
        ))
    }

    fn check_rest(&self) {
        let inner = self.inner.clone();
        let (module, load) = (&inner.question.module, self.first_load());
        let load_ms = load.as_secs_f64() * 1e3;
        tracing::info!(
            module,
            load_ms,
            "a load of a model is expected to take so long at first"
        );
        let name = format!("family {}", inner.question.module);
        let started = std::thread::Builder::new().name(name).spawn(move || {
            inner.check_all_and_tell();
            while let Some(member) = inner.wait_for_asked() {
                let _ = inner.check(member, &mut None);
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "no thread for the checks of a family; its members are not served");
        }
    }
}

impl Members for FamilyFiles {
    fn may_load(&self, member: MemberId) -> Result<(), String> {
        let inner = &self.inner;
        let listed = inner.listed(member)?;
        listed.found.is_as_listed()?;
        let known = inner.state.lock().verdicts[member.idx()].clone();
        if let Some(verdict) = known {
            return verdict.map_err(|why| why.to_string());
        }
        // Reading its form takes less time than loading it.
        if listed.form().is_ok_and(|form| inner.is_good(form)) {
            inner.state.lock().verdicts[member.idx()] = Some(Ok(()));
            return Ok(());
        }
        let mut state = inner.state.lock();
        if !state.asked.contains(&member) {
            state.asked.push_back(member);
        }
        inner.changed.notify_all();
        Err(
            "it is checked now, because it was asked for first; send the frame again in a moment"
                .to_owned(),
        )
    }

    fn check(&self, member: MemberId) -> Result<(), String> {
        self.inner.listed(member)?;
        let verdict = self.inner.check(member, &mut None);
        verdict.map_err(|why| why.to_string())
    }

    fn form(&self, member: MemberId) -> Option<FormId> {
        self.inner.listed(member).ok()?.form().ok()
    }

    /// What the first good member took, on the CPU.
    fn first_load(&self) -> Duration {
        let state = self.inner.state.lock();
        let first = state.good.values().next();
        first.copied().unwrap_or_default()
    }
}

impl Inner {
    fn ids(&self) -> impl Iterator<Item = MemberId> + use<> {
        (0..self.members.len() as u16).map(MemberId)
    }

    fn listed(&self, member: MemberId) -> Result<&Listed, String> {
        let listed = self.members.get(member.idx());
        listed.ok_or_else(|| "its family has no such model".to_owned())
    }

    /// What is wrong with a member, with its name and file.
    fn line(&self, member: MemberId, why: &str) -> String {
        let Listed { name, found, .. } = &self.members[member.idx()];
        format!("model {name} ({}): {why}", found.path().display())
    }

    /// Checks the members that were not checked, those that are asked for first. Gives what is wrong with those that are refused.
    fn check_all(&self) -> Vec<String> {
        let mut refused = Vec::new();
        let mut rest = self.ids();
        while let Some(member) = self.next(&mut rest) {
            let was_known = self.state.lock().verdicts[member.idx()].is_some();
            if let Err(why) = self.check(member, &mut None)
                && !was_known
            {
                refused.push(self.line(member, &why));
            }
        }
        refused
    }

    /// The member to be checked next: one that was asked for, else the next of the rest. `None` at the end of the rest, or of the
    /// family.
    fn next(&self, rest: &mut impl Iterator<Item = MemberId>) -> Option<MemberId> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.asked.pop_front().or_else(|| rest.next())
    }

    fn check_all_and_tell(&self) {
        let refused = self.check_all();
        let state = self.state.lock();
        if state.closed {
            return;
        }
        let n_forms = state.good.len();
        let n_good = state
            .verdicts
            .iter()
            .flatten()
            .filter(|v| v.is_ok())
            .count();
        drop(state);
        let (module, n) = (&self.question.module, self.members.len());
        for line in refused.iter().take(NAMED_MAX) {
            tracing::warn!(module, "{line}");
        }
        tracing::info!(
            module,
            "{n_good} of its {n} models can be served; their architectures: {n_forms}"
        );
    }

    /// Waits for a member that is asked for; `None` when the family is no more.
    fn wait_for_asked(&self) -> Option<MemberId> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(asked) = state.asked.pop_front() {
                return Some(asked);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether a member may be loaded: known already, or found out now.
    fn check(&self, member: MemberId, confined: &mut Option<String>) -> Verdict {
        let listed = &self.members[member.idx()];
        // A file that has changed may change back.
        listed.found.is_as_listed().map_err(Arc::from)?;
        let known = self.state.lock().verdicts[member.idx()].clone();
        if let Some(verdict) = known {
            return verdict;
        }
        let verdict = self.find_out(listed, confined).map_err(Arc::from);
        self.state.lock().verdicts[member.idx()] = Some(verdict.clone());
        verdict
    }

    fn find_out(&self, listed: &Listed, confined: &mut Option<String>) -> Result<(), String> {
        self.asker.folders.inside(listed.found.path())?;
        let form = listed.form()?;
        if self.is_good(form) {
            return Ok(());
        }
        let failures = self.state.lock().failures.get(&form).copied();
        if let Some(failures) = failures.filter(|n| *n >= FAILURES_MAX) {
            return Err(format!(
                "{failures} models of its architecture were checked and failed, so it is not"
            ));
        }
        let result = self.try_out(listed, confined);
        match &result {
            Ok(load) => {
                let ran = (self.kind.clone(), form);
                self.asker.approved.write().ran.insert(ran, *load);
                self.state.lock().good.insert(form, *load);
            }
            Err(_) => *self.state.lock().failures.entry(form).or_default() += 1,
        }
        result.map(|_| ())
    }

    /// Whether a member of that form ran, here or in the families that this one takes the place of.
    fn is_good(&self, form: FormId) -> bool {
        if self.state.lock().good.contains_key(&form) {
            return true;
        }
        let ran = (self.kind.clone(), form);
        let load = self.asker.approved.read().ran.get(&ran).copied();
        if let Some(load) = load {
            self.state.lock().good.insert(form, load);
        }
        load.is_some()
    }

    /// Has a process of its own load and run a member. If it is good, files of the forms that were loaded may be. Gives the time of a load.
    fn try_out(&self, listed: &Listed, confined: &mut Option<String>) -> Result<Duration, String> {
        let read = |path: &Path| {
            file::read(path, MODEL_BYTES_MAX).map_err(|e| format!("{}: {e}", path.display()))
        };
        let bytes = read(listed.found.path())?;
        let file = ModelFile::of(&bytes);
        file.intact()?;
        if let ModelFile::Onnx(_) = file {
            onnx::ready()?;
        }
        let question = Question {
            model: Some(listed.file.clone()),
            memory: self.asker.memory(bytes.len() as u64),
            onnx: onnx::loaded().is_some(),
            ..self.question.clone()
        };
        drop(bytes);
        let passed = self.asker.ask(&question)?;
        *confined = passed.confined.or(confined.take());
        if let Some(error) = passed.error {
            return Err(format!("it fails on its own example: {error}"));
        }
        for LoadedFile { path, content } in passed.loaded {
            let bytes = read(&path)?;
            let file = ModelFile::of(&bytes);
            // A member that has weights beside it was another one before.
            if Content::of(&file) != content {
                return Err(format!("{} changed while it was checked", path.display()));
            }
            let form = looked_at(&file)?;
            let folder = path.parent().map(PathBuf::from).unwrap_or_default();
            self.asker.approved.write().forms.insert((folder, form));
        }
        Ok(passed.load.unwrap_or_default())
    }
}

impl Listed {
    fn form(&self) -> Result<FormId, String> {
        let mut file = file::open(self.found.path()).map_err(|e| e.to_string())?;
        match look(&mut file)? {
            Looked::TorchScript => form(&mut file).map(|form| form.id),
            // After that look the model itself is fine: an error is about files beside it, too.
            Looked::Onnx(bytes) => match weights_beside(self.found.path(), &bytes) {
                Ok(files) if files.is_empty() => ModelFile::Onnx(&bytes).form(),
                _ => Err(IN_ONE_FILE.to_owned()),
            },
        }
    }
}
