//! ONNX Runtime: looked for with the first ONNX model of the process, never before, and once: what was found, or why nothing was, holds until
//! the process ends.

use std::env;
use std::error::Error;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ort::environment::Environment;
use ort::logging::LogLevel;

/// The variable that names a library, in place of all others.
pub const VARIABLE: &str = "ORT_DYLIB_PATH";
/// Its name where libraries are looked for: beside the program, where it was built against, and where the system has them.
const NAME: &str = "libonnxruntime.so.1";
/// The least version that will do.
const LEAST: u32 = ort::MINOR_VERSION;
/// Programs of Python, in the order in which they are asked.
const PYTHONS: [&str; 2] = ["python3", "python"];
/// Prints the folder of the package, without running its code and without looking in the working directory.
const WHERE: &str = "import sys\nsys.path = [p for p in sys.path if p]\nimport importlib.util\ns = importlib.util.find_spec('onnxruntime')\n\
                     print(list(s.submodule_search_locations)[0] if s and s.submodule_search_locations else '')";
/// How long a Python may take to answer: a cold one on a busy machine takes a few seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are read: more than the longest path has.
const ANSWER_BYTES_MAX: usize = 8 << 10;
/// How often a Python that was asked is looked at: short against its start.
const POLL: Duration = Duration::from_millis(5);

/// A library that is loaded.
struct Loaded {
    environment: Environment,
    path: PathBuf,
}

/// Where a library may be.
enum Candidate {
    Named(PathBuf),
    Beside(PathBuf),
    Python(&'static str),
}

impl Candidate {
    fn place(&self) -> String {
        match self {
            Candidate::Named(_) => VARIABLE.to_owned(),
            Candidate::Beside(_) => {
                "beside the program and among the system's libraries".to_owned()
            }
            Candidate::Python(program) => format!("the package onnxruntime of {program}"),
        }
    }

    /// Its path. A Python is asked for it.
    fn path(self) -> Result<PathBuf, String> {
        match self {
            Candidate::Named(path) | Candidate::Beside(path) => Ok(path),
            Candidate::Python(program) => python(program, ANSWER_TIME_MAX),
        }
    }
}

/// Why a library is not used.
#[derive(Debug)]
enum Refused {
    /// It is not in this process: another may be tried.
    NotLoaded(String),
    /// It is in this process, where no other can take its place.
    NotStarted(String),
}

/// What this process found. Threads that need it wait for the one that looks, and for nothing else.
static FOUND: OnceLock<Result<Loaded, String>> = OnceLock::new();

/// Loads ONNX Runtime, if it is not loaded yet. A thread that is confined cannot look for it, so that one that is not should call this first.
///
/// # Errors
/// What was looked at, and the command that installs it.
pub fn ready() -> Result<(), String> {
    environment().map(|_| ())
}

/// The library that was loaded, as it was named. Does not wait for a thread that looks for it.
pub fn loaded() -> Option<PathBuf> {
    let found = FOUND.get()?.as_ref().ok()?;
    Some(found.path.clone())
}

/// What sessions are made in.
pub(super) fn environment() -> Result<Environment, String> {
    let found = FOUND.get_or_init(|| {
        let named = env::var_os(VARIABLE).map(PathBuf::from);
        let (environment, path) = find(named, Path::new(NAME), open)?;
        tracing::debug!(library = %path.display(), "ONNX Runtime is loaded");
        Ok(Loaded { environment, path })
    });
    match found {
        Ok(loaded) => Ok(loaded.environment.clone()),
        Err(why) => Err(why.clone()),
    }
}

/// Finds one that `open` takes: the one that is named, else one of that name beside the program, else that of a Python. Gives what was opened,
/// and its path.
fn find<T>(
    named: Option<PathBuf>,
    beside: &Path,
    open: impl Fn(&Path) -> Result<T, Refused>,
) -> Result<(T, PathBuf), String> {
    let candidates = match named.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => vec![Candidate::Named(path)],
        None => [Candidate::Beside(beside.to_owned())]
            .into_iter()
            .chain(PYTHONS.map(Candidate::Python))
            .collect(),
    };
    let mut said = Vec::new();
    for candidate in candidates {
        let place = candidate.place();
        let opened = candidate
            .path()
            .map_err(Refused::NotLoaded)
            .and_then(|path| Ok((open(&path)?, path)));
        match opened {
            Ok(found) => return Ok(found),
            Err(Refused::NotLoaded(why)) => said.push(format!("{place}: {why}")),
            Err(Refused::NotStarted(why)) => {
                return Err(format!(
                    "the ONNX Runtime that was found does not start ({place}: {why}); name another library in {VARIABLE}, and start this \
                     program again"
                ));
            }
        }
    }
    Err(format!(
        "ONNX models need ONNX Runtime 1.{LEAST} or newer, which was not found: {}; `pip install onnxruntime` installs it, in a checkout \
         `cargo xtask setup`, or name the library in {VARIABLE}; then start this program again",
        said.join("; ")
    ))
}

fn open(path: &Path) -> Result<Environment, Refused> {
    // From here on ort keeps this library, and takes no other.
    let environment = ort::init_from(path).map_err(|error| Refused::NotLoaded(unusable(&error)))?;
    let environment = environment
        .with_name("spillgate")
        .with_telemetry(false)
        .with_logger(Arc::new(|level, _, _, _, message| log(level, message)))
        .build()
        .map_err(|error| Refused::NotStarted(format!("{}: {error}", path.display())))?;
    environment.set_log_level(LogLevel::Warning);
    Ok(environment)
}

/// What it says by itself: errors come to callers, too.
fn log(level: LogLevel, message: &str) {
    match level {
        LogLevel::Warning | LogLevel::Error | LogLevel::Fatal => {
            tracing::debug!("ONNX Runtime: {message}");
        }
        LogLevel::Verbose | LogLevel::Info => {}
    }
}

fn unusable(error: &ort::LoadDynamicError) -> String {
    use ort::LoadDynamicError as E;
    match error {
        // It says what was tried, and its source what the system says.
        E::Dlopen { error, .. } => error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string),
        E::MissingApi { path } => format!("{} is no ONNX Runtime", path.display()),
        E::InvalidVersionString => "it does not say its version".to_owned(),
        E::BadVersion { version_str, path } => {
            format!("{} is too old: it is version {version_str}", path.display())
        }
    }
}

/// The library in the package of a program of Python.
fn python(program: &str, limit: Duration) -> Result<PathBuf, String> {
    let mut command = Command::new(program);
    command.args(["-c", WHERE]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let ended = wait(&mut child, limit).map_err(|error| error.to_string())?;
    let Some(status) = ended else {
        return Err(format!(
            "it was asked where the package is, did not answer within {limit:?}, and was ended"
        ));
    };
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let mut n = 0;
    // One read: it succeeded, so that a line is there, and what it started may keep the pipe open.
    if status.success()
        && let Some(mut said) = child.stdout.take()
    {
        n = said.read(&mut answer).map_err(|error| error.to_string())?;
    }
    let text = String::from_utf8_lossy(&answer[..n]);
    let folder = text.trim();
    if folder.is_empty() {
        return Err("it is not installed".to_owned());
    }
    in_package(Path::new(folder))
}

/// Waits for its end, or makes it when the time is over.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let give_up = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= give_up {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// The library in a package.
fn in_package(folder: &Path) -> Result<PathBuf, String> {
    let folder = folder.join("capi");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libonnxruntime.so"))
    };
    files
        .find(is_library)
        .ok_or_else(|| format!("{} has no libonnxruntime.so", folder.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Set in the process that looks for the library. It can do so once.
    const LOOKS: &str = "SPILLGATE_TEST_LOOKS";

    /// What this test says in a process of its own, where `find` is called with these.
    fn said(test: &str, path: Option<&Path>, named: Option<&str>, beside: &str) -> Option<String> {
        if env::var_os(LOOKS).is_some() {
            let named = env::var_os(VARIABLE).map(PathBuf::from);
            let beside = env::var_os("SPILLGATE_TEST_BESIDE").unwrap_or_default();
            match find(named, Path::new(&beside), open) {
                Ok((_, path)) => println!("found <{}>", path.display()),
                Err(why) => println!("found <{why}>"),
            }
            return None;
        }
        let mut again = Command::new(env::current_exe().expect("a program"));
        again
            .args([
                "--exact",
                &format!("onnx::library::tests::{test}"),
                "--nocapture",
            ])
            .env(LOOKS, "1")
            .env("SPILLGATE_TEST_BESIDE", beside)
            .env("PATH", path.unwrap_or(Path::new("")));
        match named {
            Some(named) => again.env(VARIABLE, named),
            None => again.env_remove(VARIABLE),
        };
        let output = again.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = text
            .split_once("found <")
            .and_then(|(_, rest)| rest.split_once(">\n"));
        let (said, _) = said.unwrap_or_else(|| panic!("{output:?}"));
        Some(said.to_owned())
    }

    #[test]
    fn the_library_is_found_beside_the_program() {
        let said = said("the_library_is_found_beside_the_program", None, None, NAME);
        assert!(said.is_none_or(|said| said == NAME));
    }

    #[test]
    fn without_a_library_it_is_said_where_it_was_looked_for_and_how_to_get_it() {
        let test = "without_a_library_it_is_said_where_it_was_looked_for_and_how_to_get_it";
        let Some(said) = said(test, None, None, "libnone.so.1") else {
            return;
        };
        for part in [
            "ONNX Runtime 1.18 or newer",
            "libnone.so.1: cannot open shared object file",
            "the package onnxruntime of python3: No such file",
            "the package onnxruntime of python: No such file",
            "`pip install onnxruntime` installs it",
            "`cargo xtask setup`",
            "ORT_DYLIB_PATH",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn a_library_that_is_named_is_the_only_one_that_is_tried() {
        let test = "a_library_that_is_named_is_the_only_one_that_is_tried";
        let Some(said) = said(test, None, Some("/no/such/library.so"), NAME) else {
            return;
        };
        assert!(
            said.contains("ORT_DYLIB_PATH: /no/such/library.so: cannot open"),
            "{said}"
        );
        assert!(!said.contains("beside the program"), "{said}");
    }

    #[test]
    fn another_library_is_not_taken_for_it() {
        let Some(said) = said(
            "another_library_is_not_taken_for_it",
            None,
            Some("libc.so.6"),
            NAME,
        ) else {
            return;
        };
        assert!(said.contains("libc.so.6 is no ONNX Runtime"), "{said}");
    }

    #[test]
    fn the_package_of_a_python_is_found_without_running_it() {
        let test = "the_package_of_a_python_is_found_without_running_it";
        let folder = env::temp_dir().join(format!("spillgate-python-{}", std::process::id()));
        let capi = folder.join("onnxruntime/capi");
        if env::var_os(LOOKS).is_none() {
            std::fs::create_dir_all(&capi).expect("a folder");
            let ours = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../third_party/onnxruntime/lib")
                .join(NAME);
            symlink(ours, capi.join("libonnxruntime.so.1.32.0")).expect("a link");
            // A Python that says where the package lies.
            let program = folder.join("python3");
            let script = format!("#!/bin/sh\necho {}\n", folder.join("onnxruntime").display());
            std::fs::write(&program, script).expect("written");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&program, mode).expect("its mode");
        }
        let said = said(test, Some(&folder), None, "libnone.so.1");
        if let Some(said) = said {
            let found = capi.join("libonnxruntime.so.1.32.0");
            std::fs::remove_dir_all(&folder).expect("it goes");
            assert_eq!(said, found.display().to_string());
        }
    }

    /// A folder of one test, which goes with it, and a program `python3` in it that runs this script.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str, script: &str) -> Self {
            let folder = env::temp_dir().join(format!("spillgate-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder");
            let program = folder.join("python3");
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&program, mode).expect("its mode");
            Scratch(folder)
        }

        fn asked(&self, limit: Duration) -> Result<PathBuf, String> {
            python(self.0.join("python3").to_str().expect("UTF-8"), limit)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_python_that_does_not_answer_is_ended_and_that_is_said() {
        let scratch = Scratch::new("silent", "echo $$ > \"$0.id\"\nexec /bin/sleep 600");
        let said = scratch.asked(Duration::from_secs(1)).unwrap_err();
        assert!(
            said.ends_with("did not answer within 1s, and was ended"),
            "{said}"
        );
        let id = std::fs::read_to_string(scratch.0.join("python3.id")).expect("it ran");
        assert!(!Path::new("/proc").join(id.trim()).exists());
    }

    #[test]
    fn a_python_is_not_waited_for_because_of_what_it_started() {
        let scratch = Scratch::new("starts", "/bin/sleep 20 &\necho /no/such/package");
        let begun = Instant::now();
        let said = scratch.asked(ANSWER_TIME_MAX).unwrap_err();
        assert!(said.starts_with("/no/such/package/capi: "), "{said}");
        assert!(begun.elapsed() < ANSWER_TIME_MAX);
    }

    #[test]
    fn a_python_that_fails_has_no_package() {
        let scratch = Scratch::new("fails", "echo /no/such/package\nexit 1");
        let said = scratch.asked(ANSWER_TIME_MAX).unwrap_err();
        assert_eq!(said, "it is not installed");
    }

    #[test]
    fn after_a_library_that_was_loaded_no_other_is_tried() {
        let tried = std::cell::RefCell::new(Vec::new());
        let found = find(None, Path::new("libfirst.so"), |path| -> Result<(), _> {
            tried.borrow_mut().push(path.to_owned());
            Err(Refused::NotStarted(format!(
                "{}: no memory",
                path.display()
            )))
        });
        let said = found.unwrap_err();
        assert_eq!(tried.into_inner(), [PathBuf::from("libfirst.so")]);
        assert!(said.contains("libfirst.so: no memory"), "{said}");
        assert!(said.contains("ORT_DYLIB_PATH"), "{said}");
        assert!(!said.contains("python"), "{said}");
    }

    #[test]
    fn what_was_not_found_is_not_looked_for_again() {
        let test = "what_was_not_found_is_not_looked_for_again";
        let folder = env::temp_dir().join(format!("spillgate-again-{}", std::process::id()));
        if env::var_os(LOOKS).is_some() {
            let named = env::var_os(VARIABLE).map(PathBuf::from).expect("a name");
            let first = ready().expect_err("there is none");
            let ours = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../third_party/onnxruntime/lib")
                .join(NAME);
            symlink(ours, &named).expect("a link");
            let again = ready().expect_err("it is known");
            println!("found <{} {}>", first == again, loaded().is_none());
            return;
        }
        std::fs::create_dir_all(&folder).expect("a folder");
        let library = folder.join("library.so");
        let said = said(test, None, library.to_str(), NAME);
        std::fs::remove_dir_all(&folder).expect("it goes");
        assert_eq!(said.as_deref(), Some("true true"));
    }
}
