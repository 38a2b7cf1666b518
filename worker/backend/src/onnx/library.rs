//! ONNX Runtime: found and loaded with the first ONNX model of the process, never before.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ort::environment::Environment;
use ort::logging::LogLevel;
use parking_lot::Mutex;

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

/// A library that is loaded.
struct Loaded {
    environment: Environment,
    path: PathBuf,
}

/// What this process has loaded.
static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// Loads ONNX Runtime, if it is not loaded yet. A thread that is confined cannot look for it, so that one that is not should call this first.
///
/// # Errors
/// What was looked at, and the command that installs it.
pub fn ready() -> Result<(), String> {
    environment().map(|_| ())
}

/// The library that was loaded, as it was named.
pub fn loaded() -> Option<PathBuf> {
    LOADED.lock().as_ref().map(|loaded| loaded.path.clone())
}

/// What sessions are made in.
pub(super) fn environment() -> Result<Environment, String> {
    let mut loaded = LOADED.lock();
    if let Some(loaded) = &*loaded {
        return Ok(loaded.environment.clone());
    }
    let found = find(env::var_os(VARIABLE).map(PathBuf::from), Path::new(NAME))?;
    let environment = found.environment.clone();
    tracing::debug!(library = %found.path.display(), "ONNX Runtime is loaded");
    *loaded = Some(found);
    Ok(environment)
}

/// Finds and loads it: the one that is named, else one of that name beside the program, else that of a Python.
fn find(named: Option<PathBuf>, beside: &Path) -> Result<Loaded, String> {
    let named = named.filter(|path| !path.as_os_str().is_empty());
    let mut said = Vec::new();
    if let Some(path) = named {
        match open(&path) {
            Ok(loaded) => return Ok(loaded),
            Err(why) => said.push(format!("{VARIABLE}: {why}")),
        }
    } else {
        match open(beside) {
            Ok(loaded) => return Ok(loaded),
            Err(why) => said.push(format!(
                "beside the program and among the system's libraries: {why}"
            )),
        }
        for program in PYTHONS {
            match python(program).and_then(|path| open(&path)) {
                Ok(loaded) => return Ok(loaded),
                Err(why) => said.push(format!("the package onnxruntime of {program}: {why}")),
            }
        }
    }
    Err(format!(
        "ONNX models need ONNX Runtime 1.{LEAST} or newer, which was not found: {}; `pip install onnxruntime` installs it, in a checkout \
         `cargo xtask setup`, or name the library in {VARIABLE}",
        said.join("; ")
    ))
}

fn open(path: &Path) -> Result<Loaded, String> {
    let environment = ort::init_from(path).map_err(|error| unusable(&error))?;
    let environment = environment
        .with_name("spillgate")
        .with_telemetry(false)
        .with_logger(Arc::new(|level, _, _, _, message| log(level, message)))
        .build()
        .map_err(|error| error.to_string())?;
    environment.set_log_level(LogLevel::Warning);
    Ok(Loaded {
        environment,
        path: path.to_owned(),
    })
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
fn python(program: &str) -> Result<PathBuf, String> {
    let mut command = Command::new(program);
    command.args(["-c", WHERE]).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let folder = text.trim();
    if !output.status.success() || folder.is_empty() {
        return Err("it is not installed".to_owned());
    }
    in_package(Path::new(folder))
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
            match find(named, Path::new(&beside)) {
                Ok(found) => println!("found <{}>", found.path.display()),
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
}
