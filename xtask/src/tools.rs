//! Foreign programs, pinned and built from source: cargo-deny, Jaeger, grpcurl, Kubernetes, Helm, and a Python with gRPC.
//!
//! Each lies under [`Workspace::tools`] beside a note of what it was built from; it is built again only
//! when the note no longer matches the pin.

mod cluster;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::args::{Args, no_args};
use crate::process;
use crate::setup::{GO, VENV, require};
use crate::workspace::Workspace;

pub use cluster::{build_cluster, build_helm};

const CARGO_DENY: &str = "0.20.2";
const GRPCURL: &str = "v1.9.4";
/// What deploy/jaeger/go.mod asks for.
const GO_AT_LEAST: (u32, u32, u32) = (1, 25, 4);

/// A built program and the pin it must match.
struct Tool {
    program: PathBuf,
    note: PathBuf,
    pin: String,
}

impl Tool {
    fn new(workspace: &Workspace, program: &str, pin: String) -> Tool {
        let program = workspace.tools().join(program);
        let mut note = program.clone().into_os_string();
        note.push(".built-from");
        Tool {
            program,
            note: note.into(),
            pin,
        }
    }

    fn is_built(&self) -> bool {
        self.program.is_file()
            && std::fs::read_to_string(&self.note).is_ok_and(|note| note == self.pin)
    }

    fn note_built(&self) -> Result<()> {
        std::fs::write(&self.note, &self.pin)
            .with_context(|| format!("cannot write {}", self.note.display()))
    }
}

/// Puts a freshly built program in place at once: another process may be running the old one.
fn put(built: &Path, program: &Path) -> Result<()> {
    std::fs::rename(built, program)
        .with_context(|| format!("cannot move {} to {}", built.display(), program.display()))
}

/// `cargo xtask tools`.
pub fn all(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    require(&[&GO, &VENV])?;
    build_python(workspace)?;
    build_grpcurl(workspace)?;
    build_jaeger(workspace)?;
    build_cargo_deny(workspace)?;
    Ok(())
}

/// `cargo xtask deny`. Advisories are not among the checks: their database is fetched from the
/// network by git, which CI cannot do.
pub fn deny(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    let program = build_cargo_deny(workspace)?;
    let mut deny = workspace.program(program);
    deny.args(["--all-features", "check", "licenses", "bans", "sources"]);
    process::run(&mut deny)
}

/// cargo-deny, built if need be.
fn build_cargo_deny(workspace: &Workspace) -> Result<PathBuf> {
    let tool = Tool::new(
        workspace,
        "bin/cargo-deny",
        format!("cargo-deny {CARGO_DENY}\n"),
    );
    if !tool.is_built() {
        println!("tools: building cargo-deny {CARGO_DENY} (a minute or two) ...");
        let mut cargo = workspace.cargo();
        // It runs for a second: its own release profile, with fat LTO, costs more to build than it gains.
        for (setting, value) in [("OPT_LEVEL", "0"), ("LTO", "off"), ("CODEGEN_UNITS", "16")] {
            cargo.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
        }
        cargo.args([
            "install",
            "--quiet",
            "--locked",
            "--force",
            "cargo-deny",
            "--version",
            CARGO_DENY,
        ]);
        cargo.arg("--root").arg(workspace.tools());
        // A folder of its own: it shares no crate with us, and must not hold the lock on ours.
        cargo
            .arg("--target-dir")
            .arg(workspace.tools().join("cargo-deny-target"));
        process::run(&mut cargo)?;
        std::fs::remove_dir_all(workspace.tools().join("cargo-deny-target"))?;
        tool.note_built()?;
    }
    Ok(tool.program)
}

/// `cargo xtask grpcurl`.
pub fn grpcurl(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    println!("{}", build_grpcurl(workspace)?.display());
    Ok(())
}

/// grpcurl, built if need be.
pub fn build_grpcurl(workspace: &Workspace) -> Result<PathBuf> {
    let module = "github.com/fullstorydev/grpcurl/cmd/grpcurl";
    let tool = Tool::new(workspace, "grpcurl", format!("{module}@{GRPCURL}\n"));
    if !tool.is_built() {
        require_go(workspace)?;
        println!("tools: building grpcurl {GRPCURL} (under a minute) ...");
        let staging = workspace.tools().join("grpcurl-new");
        let mut go = workspace.program("go");
        go.args(["install", &format!("{module}@{GRPCURL}")])
            .env("GOBIN", &staging);
        process::run(&mut go)?;
        put(&staging.join("grpcurl"), &tool.program)?;
        std::fs::remove_dir(&staging)?;
        tool.note_built()?;
    }
    Ok(tool.program)
}

/// `cargo xtask jaeger`.
pub fn jaeger(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    let program = build_jaeger(workspace)?;
    println!(
        "jaeger: send traces to 127.0.0.1:24317 (OTLP over gRPC) or 127.0.0.1:24318 (over HTTP), read \
         them at 127.0.0.1:26686/api/traces; Ctrl-C ends it"
    );
    let mut jaeger = workspace.program(program);
    jaeger
        .arg("--config")
        .arg(workspace.path("deploy/jaeger/config.yaml"))
        // Else it tries, and complains, to send traces of its own to the usual port.
        .env("OTEL_TRACES_SAMPLER", "always_off");
    match process::run(&mut jaeger) {
        // How it is meant to end.
        Err(_) if process::interrupted() => Ok(()),
        other => other,
    }
}

/// Jaeger, built if need be.
pub fn build_jaeger(workspace: &Workspace) -> Result<PathBuf> {
    let module = workspace.path("deploy/jaeger");
    let pin = std::fs::read_to_string(module.join("go.mod")).context("deploy/jaeger/go.mod")?;
    let tool = Tool::new(workspace, "jaeger", pin);
    if !tool.is_built() {
        require_go(workspace)?;
        println!("tools: building Jaeger (minutes when Go's cache is empty) ...");
        let built = workspace.tools().join("jaeger-new");
        std::fs::create_dir_all(workspace.tools())?;
        let mut go = workspace.program("go");
        go.current_dir(&module)
            .args(["build", "-mod=readonly", "-o"])
            .arg(&built);
        // Unoptimised it is compiled sooner, and fast enough for the traces of one machine.
        go.args(["-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w"]);
        go.arg("github.com/jaegertracing/jaeger/cmd/jaeger");
        process::run(&mut go)?;
        put(&built, &tool.program)?;
        tool.note_built()?;
    }
    Ok(tool.program)
}

/// A Python with the gRPC packages, installed if need be.
pub fn build_python(workspace: &Workspace) -> Result<PathBuf> {
    build_venv(workspace, "venv", "xtask/e2e-requirements.txt")
}

/// A Python with the packages that a file of requirements pins, in a folder below the tools.
pub fn build_venv(workspace: &Workspace, folder: &str, requirements: &str) -> Result<PathBuf> {
    let file = workspace.path(requirements);
    let pin = std::fs::read_to_string(&file).with_context(|| requirements.to_owned())?;
    let tool = Tool::new(workspace, &format!("{folder}/bin/python3"), pin);
    if !tool.is_built() {
        require(&[&VENV])?;
        println!("tools: installing what {requirements} names ...");
        let venv = workspace.tools().join(folder);
        process::run(
            workspace
                .program("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&venv),
        )?;
        let mut pip = workspace.program(&tool.program);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--only-binary=:all:",
            "-r",
        ])
        .arg(&file);
        process::run(&mut pip)?;
        tool.note_built()?;
    }
    Ok(tool.program)
}

/// Complains unless Go is there and recent enough to build the pinned modules.
fn require_go(workspace: &Workspace) -> Result<()> {
    require(&[&GO])?;
    let said = process::capture(workspace.program("go").args(["env", "GOVERSION"]))?;
    let (major, minor, patch) = GO_AT_LEAST;
    match go_version(said.trim()) {
        Some(version) if version < GO_AT_LEAST => bail!(
            "{} is too old to build the pinned modules, which need Go {major}.{minor}.{patch}; install a \
             newer Go and put it first on PATH",
            said.trim()
        ),
        // A development version names no number; let the build decide.
        _ => Ok(()),
    }
}

/// `go1.26.8` as numbers.
fn go_version(said: &str) -> Option<(u32, u32, u32)> {
    let digits = said.strip_prefix("go")?;
    // Release candidates read `1.26rc1`.
    let digits = digits
        .split(|c: char| c != '.' && !c.is_ascii_digit())
        .next()?;
    let mut parts = digits.split('.').map(str::parse);
    let mut part = || parts.next().unwrap_or(Ok(0)).ok();
    Some((part()?, part()?, part()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_compare_as_numbers() {
        assert_eq!(go_version("go1.26.8"), Some((1, 26, 8)));
        assert_eq!(go_version("go1.26rc1"), Some((1, 26, 0)));
        assert_eq!(go_version("go1.9"), Some((1, 9, 0)));
        assert!(go_version("go1.9").unwrap() < GO_AT_LEAST);
        assert_eq!(go_version("devel abc"), None);
    }

    #[test]
    fn the_oldest_go_is_the_one_that_the_jaeger_module_names() {
        let go_mod = include_str!("../../deploy/jaeger/go.mod");
        let (major, minor, patch) = GO_AT_LEAST;
        assert!(
            go_mod
                .lines()
                .any(|line| line == format!("go {major}.{minor}.{patch}"))
        );
    }

    #[test]
    fn a_tool_is_built_again_when_its_pin_changes() {
        let folder = std::env::temp_dir().join(format!("xtask-tool-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let tool = |pin: &str| Tool {
            program: folder.join("program"),
            note: folder.join("program.built-from"),
            pin: pin.into(),
        };
        assert!(!tool("1").is_built());
        std::fs::write(folder.join("program"), "").unwrap();
        tool("1").note_built().unwrap();
        assert!(tool("1").is_built());
        assert!(!tool("2").is_built());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
