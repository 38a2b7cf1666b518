//! `setup`: checks that a C++ compiler is there and installs libtorch, both of which every build needs; and ONNX Runtime, which the program
//! loads for ONNX models.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::args::{Args, no_args};
use crate::process;
use crate::workspace::Workspace;

/// Something that must be installed by hand.
pub struct Prerequisite {
    /// What it is, in a sentence.
    pub name: &'static str,
    /// Programs that provide it, any of which will do, each with an argument that only succeeds.
    pub any_of: &'static [(&'static str, &'static [&'static str])],
    /// What is missing without it.
    pub used_for: &'static str,
    /// The command that installs it on Debian and its like.
    pub install: &'static str,
}

const COMPILER: Prerequisite = Prerequisite {
    name: "a C++ compiler",
    any_of: &[
        ("c++", &["--version"]),
        ("g++", &["--version"]),
        ("clang++", &["--version"]),
    ],
    used_for: "to build the Rust binding of libtorch",
    install: "apt-get install g++",
};

const PIP: Prerequisite = Prerequisite {
    name: "pip for Python 3",
    any_of: &[("python3", &["-m", "pip", "--version"])],
    used_for: "to fetch libtorch and ONNX Runtime, and the Python client of the end-to-end tests",
    install: "apt-get install python3-pip",
};

const PYTHON: Prerequisite = Prerequisite {
    name: "Python 3",
    any_of: &[("python3", &["--version"])],
    used_for: PIP.used_for,
    install: "apt-get install python3 python3-pip",
};

/// Python's virtual environments.
pub const VENV: Prerequisite = Prerequisite {
    name: "the venv module of Python 3",
    any_of: &[("python3", &["-c", "import venv, ensurepip"])],
    used_for: "for the Python client of the end-to-end tests",
    install: "apt-get install python3-venv",
};

/// What is built without it serves, but reads pictures more slowly.
const NASM: Prerequisite = Prerequisite {
    name: "nasm",
    any_of: &[("nasm", &["--version"])],
    used_for: "to decode JPEG faster",
    install: "apt-get install nasm, then cargo clean -p mozjpeg-sys if it was built before",
};

/// The Go toolchain.
pub const GO: Prerequisite = Prerequisite {
    name: "Go",
    any_of: &[("go", &["version"])],
    used_for: "to build Jaeger, grpcurl and Kubernetes for tests",
    install: "apt-get install golang-go (1.25.4 or later)",
};

impl Prerequisite {
    fn is_met(&self) -> bool {
        self.any_of
            .iter()
            .any(|(program, args)| process::succeeds(program, args))
    }

    /// What is missing and how to get it.
    fn complaint(&self) -> String {
        format!(
            "{} is missing; it is needed {}. Install it: {}",
            self.name, self.used_for, self.install
        )
    }
}

/// Complains about everything that is missing, at once.
pub fn require(prerequisites: &[&Prerequisite]) -> Result<()> {
    let complaints: Vec<String> = prerequisites
        .iter()
        .filter(|prerequisite| !prerequisite.is_met())
        .map(|prerequisite| prerequisite.complaint())
        .collect();
    if complaints.is_empty() {
        Ok(())
    } else {
        bail!("{}", complaints.join("\n       "))
    }
}

/// Where libtorch comes from.
#[derive(Debug, PartialEq, Eq)]
enum Source<'a> {
    /// The folder under third_party that [`run`] fills.
    Fetched,
    /// A folder that the user names in `LIBTORCH`.
    Folder(&'a Path),
    /// The torch package of the user's Python, by `LIBTORCH_USE_PYTORCH`.
    Python,
}

/// Decides from the environment, as torch-sys does. Cargo's configuration names our own folder in
/// `LIBTORCH` when the user names none.
fn source<'a>(libtorch: Option<&'a OsStr>, use_pytorch: Option<&OsStr>, own: &Path) -> Source<'a> {
    if use_pytorch.is_some_and(|value| value == "1") {
        return Source::Python;
    }
    match libtorch.map(Path::new) {
        Some(folder) if folder != own => Source::Folder(folder),
        _ => Source::Fetched,
    }
}

/// `cargo xtask setup`.
pub fn command(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    see_to(workspace, true)
}

/// Sees to it that the workspace can be compiled. Does nothing the second time. Without ONNX Runtime it says so and goes on.
pub fn run(workspace: &Workspace) -> Result<()> {
    see_to(workspace, false)
}

fn see_to(workspace: &Workspace, is_setup: bool) -> Result<()> {
    require(&[&COMPILER])?;
    if !NASM.is_met() {
        println!("setup: {}", NASM.complaint());
    }
    let own = workspace.own_libtorch();
    let libtorch = std::env::var_os("LIBTORCH");
    let use_pytorch = std::env::var_os("LIBTORCH_USE_PYTORCH");
    let source = source(libtorch.as_deref(), use_pytorch.as_deref(), &own);
    match source {
        Source::Python => println!("setup: libtorch is that of your Python (LIBTORCH_USE_PYTORCH)"),
        Source::Folder(folder) => {
            if !folder.join("lib/libtorch.so").is_file() {
                bail!(
                    "LIBTORCH is {}, which has no lib/libtorch.so; name a libtorch, or unset it to \
                     have one fetched",
                    folder.display()
                );
            }
            println!(
                "setup: libtorch is yours, in {} (LIBTORCH)",
                folder.display()
            );
        }
        Source::Fetched => fetch(workspace, &own)?,
    }
    provide_onnxruntime(workspace, source == Source::Fetched, is_setup)
}

/// The release of ONNX Runtime that is fetched. The script says the same.
const ONNXRUNTIME: &str = "1.32.0";
/// How programs find another one.
const OTHERWISE: &str =
    "ONNX models need it; `pip install onnxruntime` or ORT_DYLIB_PATH brings another one";

/// Fetches ONNX Runtime, where it is not there already. No build needs it, so that only a setup that fetches libtorch fails without it.
/// Commands of those who bring their own libtorch fetch nothing.
fn provide_onnxruntime(workspace: &Workspace, fetches: bool, is_setup: bool) -> Result<()> {
    if onnxruntime(workspace).is_ok() {
        println!("setup: ONNX Runtime {ONNXRUNTIME} is in place");
        return Ok(());
    }
    if !IS_FETCHED {
        println!(
            "setup: ONNX Runtime is fetched for x86_64 Linux only; `pip install onnxruntime` installs it for ONNX models"
        );
        return Ok(());
    }
    if !fetches && !is_setup {
        println!(
            "setup: ONNX Runtime is not in third_party; `cargo xtask setup` fetches it; {OTHERWISE}"
        );
        return Ok(());
    }
    let is_needed = fetches && is_setup;
    match fetch_onnxruntime(workspace) {
        Err(error) if !is_needed && !process::interrupted() => {
            let error = error.to_string();
            let lines: Vec<&str> = error.lines().map(str::trim).collect();
            println!(
                "setup: going on without ONNX Runtime: {}; {OTHERWISE}",
                lines.join("; ")
            );
            Ok(())
        }
        fetched => fetched,
    }
}

fn fetch_onnxruntime(workspace: &Workspace) -> Result<()> {
    require(&[&PYTHON, &PIP])?;
    process::run(
        workspace
            .program("python3")
            .arg("xtask/fetch_onnxruntime.py"),
    )
}

/// The folder of ONNX Runtime.
///
/// # Errors
/// When the release that is fetched is not there.
pub fn onnxruntime(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.own_onnxruntime();
    let version = std::fs::read_to_string(folder.join("build-version")).unwrap_or_default();
    if version.trim() != ONNXRUNTIME || !folder.join("lib/libonnxruntime.so.1").is_file() {
        bail!(
            "{} does not hold ONNX Runtime {ONNXRUNTIME}; fetch it: cargo xtask setup",
            folder.display()
        );
    }
    Ok(folder)
}

/// Whether the libraries that are fetched run here.
const IS_FETCHED: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

fn fetch(workspace: &Workspace, own: &Path) -> Result<()> {
    if !IS_FETCHED {
        bail!(
            "libtorch can be fetched for x86_64 Linux only; install libtorch 2.11 and name its folder \
             in LIBTORCH"
        );
    }
    require(&[&PYTHON, &PIP])?;
    if !own.join("build-version").is_file() {
        println!("setup: fetching libtorch (about 550 MB) into third_party/libtorch ...");
    }
    // The script knows the version, and says whether there was anything to do.
    process::run(workspace.program("python3").arg("xtask/fetch_libtorch.py"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_libtorch_comes_first() {
        let own = Path::new("repo/third_party/libtorch");
        let theirs = OsStr::new("opt/libtorch");
        assert_eq!(source(None, None, own), Source::Fetched);
        assert_eq!(source(Some(own.as_os_str()), None, own), Source::Fetched);
        assert_eq!(
            source(Some(theirs), None, own),
            Source::Folder(Path::new(theirs))
        );
        assert_eq!(
            source(Some(theirs), Some(OsStr::new("1")), own),
            Source::Python
        );
        assert_eq!(source(None, Some(OsStr::new("0")), own), Source::Fetched);
    }

    #[test]
    fn everything_missing_is_named_with_its_install_command() {
        let absent = |name, install| Prerequisite {
            name,
            any_of: &[("no-such-program-anywhere", &[])],
            used_for: "for a test",
            install,
        };
        let one = absent("one", "install one");
        let two = absent("two", "install two");
        let error = require(&[&one, &two]).unwrap_err().to_string();
        assert!(error.contains("one is missing; it is needed for a test. Install it: install one"));
        assert!(error.contains("Install it: install two"));
        assert!(require(&[]).is_ok());
    }

    /// A workspace in a folder of this test, which goes with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("xtask-{test}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(folder.join("third_party/onnxruntime/lib")).unwrap();
            std::fs::create_dir_all(folder.join("xtask")).unwrap();
            Scratch(folder)
        }

        fn workspace(&self) -> Workspace {
            Workspace::at(&self.0)
        }

        fn write(&self, path: &str, text: &str) {
            std::fs::write(self.0.join(path), text).unwrap();
        }

        /// Whether the script ran that fetches; in this workspace it fails.
        fn asked(&self, fetches: bool, is_setup: bool) -> (bool, bool) {
            self.write(
                "xtask/fetch_onnxruntime.py",
                "open('asked', 'w').close(); raise SystemExit(1)",
            );
            let went_on = provide_onnxruntime(&self.workspace(), fetches, is_setup).is_ok();
            let asked = std::fs::remove_file(self.0.join("asked")).is_ok();
            (asked, went_on)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn onnx_runtime_that_is_in_place_is_not_asked_for() {
        let scratch = Scratch::new("in-place");
        scratch.write("third_party/onnxruntime/lib/libonnxruntime.so.1", "");
        scratch.write("third_party/onnxruntime/build-version", "1.0.0\n");
        let said = onnxruntime(&scratch.workspace()).unwrap_err().to_string();
        assert!(said.ends_with("fetch it: cargo xtask setup"), "{said}");
        let stamp = format!("{ONNXRUNTIME}\n");
        scratch.write("third_party/onnxruntime/build-version", &stamp);
        assert!(onnxruntime(&scratch.workspace()).is_ok());
        assert_eq!(scratch.asked(true, true), (false, true));
        std::fs::remove_file(
            scratch
                .0
                .join("third_party/onnxruntime/lib/libonnxruntime.so.1"),
        )
        .unwrap();
        assert!(onnxruntime(&scratch.workspace()).is_err());
    }

    #[test]
    fn only_a_setup_that_fetches_libtorch_fails_without_onnx_runtime() {
        if !IS_FETCHED || require(&[&PYTHON, &PIP]).is_err() {
            return;
        }
        let scratch = Scratch::new("fails");
        assert_eq!(scratch.asked(true, true), (true, false));
        assert_eq!(scratch.asked(true, false), (true, true));
        assert_eq!(scratch.asked(false, true), (true, true));
        assert_eq!(scratch.asked(false, false), (false, true));
    }

    #[test]
    fn the_script_fetches_the_release_that_is_looked_for() {
        let script = include_str!("../fetch_onnxruntime.py");
        let line = format!("VERSION = \"{ONNXRUNTIME}\"");
        assert!(script.lines().any(|other| other == line));
    }
}
