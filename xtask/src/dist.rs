//! `dist`: the release archive, `dist/spillgate-VERSION-TARGET.tar.gz`.
//!
//! The program finds libtorch in `lib/` beside `bin/` (its run path is `$ORIGIN/../lib`). The libraries
//! are put there only with `--with-libtorch`, since they are a hundred times the size of everything else;
//! without them `run.sh` takes those of the user's `LIBTORCH`. ONNX Runtime lies there with libtorch; without it the program looks for the
//! user's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xtask::args::{Args, only_switch};
use xtask::workspace::Workspace;
use xtask::{process, setup};

use crate::profile::Profile;
use crate::tidy::is_pipeline;

/// What lies beside the program, in the archive and in the repository.
const FOLDERS: [(&str, &str); 2] = [
    ("modules/models", "apps/modules/models"),
    ("pipelines", "apps/pipelines"),
];
const FILES: [&str; 3] = ["README.md", "LICENSE", "CHANGELOG.md"];

/// The start of the run path that worker/backend/build.rs gives every program; what follows it names
/// the folder that libtorch was built against, which no other machine has.
const RUN_PATH: &[u8] = b"\0$ORIGIN/../lib:";

const RUN_SH: &str = r#"#!/bin/sh
# Starts spillgate. libtorch is taken from lib/ beside this script (archives made with
# --with-libtorch), else from the libtorch 2.11 that LIBTORCH names, else from the system.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ ! -e "$here/lib/libtorch.so" ] && [ -n "${LIBTORCH:-}" ]; then
    LD_LIBRARY_PATH="$LIBTORCH/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LD_LIBRARY_PATH
fi
exec "$here/bin/spillgate" "$@"
"#;

/// `cargo xtask dist`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let with_libtorch = only_switch(args, "with-libtorch")?;
    run(workspace, Profile::Release, with_libtorch)
}

/// Makes the archive of a build.
pub(crate) fn run(workspace: &Workspace, profile: Profile, with_libtorch: bool) -> Result<()> {
    let name = format!("spillgate-{}-{}", version(workspace)?, target(workspace)?);
    let dist = workspace.path("dist");
    let folder = dist.join(&name);
    setup::run(workspace)?;
    let built = profile.program(workspace, "spillgate")?;
    stage(workspace, &built, with_libtorch, &folder)?;
    try_out(workspace, &folder)?;

    let archive = dist.join(format!("{name}.tar.gz"));
    pack(workspace, &dist, &name, &archive)?;
    fs::remove_dir_all(&folder)?;
    let size = fs::metadata(&archive)?.len();
    println!("dist: dist/{name}.tar.gz, {:.1} MB", size as f64 / 1e6);
    Ok(())
}

/// Lays out, in a folder of its own, what belongs to a program.
pub(crate) fn stage(
    workspace: &Workspace,
    built: &Path,
    with_libtorch: bool,
    folder: &Path,
) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder.join("bin"))?;

    let program = folder.join("bin/spillgate");
    copy(built, &program)?;
    strip(workspace, &program)?;
    let mut elf = fs::read(&program)?;
    cut_run_path(&mut elf);
    fs::write(&program, elf)?;

    for (to, from) in FOLDERS {
        copy_tree(&workspace.path(from), &folder.join(to))?;
    }
    for file in FILES {
        copy(&workspace.path(file), &folder.join(file))?;
    }
    write_script(&folder.join("run.sh"))?;
    if with_libtorch {
        copy_libtorch(workspace, folder)?;
    }
    Ok(())
}

/// Takes the symbols out of a program.
pub(crate) fn strip(workspace: &Workspace, program: &Path) -> Result<()> {
    if process::succeeds("strip", &["--version"]) {
        process::run(workspace.program("strip").arg("--strip-all").arg(program))
    } else {
        println!(
            "dist: `strip` is missing (apt-get install binutils); the program keeps its symbols"
        );
        Ok(())
    }
}

/// The version of the workspace.
pub(crate) fn version(workspace: &Workspace) -> Result<String> {
    let metadata = workspace.metadata()?;
    let packages = metadata["packages"]
        .as_array()
        .context("metadata has no packages")?;
    let package = packages
        .iter()
        .find(|package| package["name"] == "spillgate");
    let version = package.and_then(|package| package["version"].as_str());
    Ok(version.context("no package named spillgate")?.to_owned())
}

/// The target triple of this machine.
fn target(workspace: &Workspace) -> Result<String> {
    let said = process::capture(workspace.program("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

/// Ends the run path after `$ORIGIN/../lib`, in place: the string keeps its slot, padded with zeros.
fn cut_run_path(elf: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = elf[from..]
        .windows(RUN_PATH.len())
        .position(|window| window == RUN_PATH)
    {
        let colon = from + at + RUN_PATH.len() - 1;
        let end = elf[colon..]
            .iter()
            .position(|&byte| byte == 0)
            .map_or(elf.len(), |n| colon + n);
        elf[colon..end].fill(0);
        from = end;
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            copy(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn write_script(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, RUN_SH)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The libraries that a CPU program loads, and their licences.
fn copy_libtorch(workspace: &Workspace, stage: &Path) -> Result<()> {
    let libtorch =
        std::env::var_os("LIBTORCH").map_or_else(|| workspace.own_libtorch(), PathBuf::from);
    // By their true paths: one of them may be a link to the other.
    if libtorch.canonicalize().ok() != workspace.own_libtorch().canonicalize().ok() {
        bail!(
            "--with-libtorch packs the libtorch that setup fetches, and LIBTORCH names another; unset it"
        );
    }
    let onnxruntime = setup::onnxruntime(workspace)
        .context("--with-libtorch and images pack ONNX Runtime, too")?;
    copy_tree(&libtorch.join("lib"), &stage.join("lib"))?;
    copy_tree(&libtorch.join("licenses"), &stage.join("lib/licenses"))
        .context("a libtorch fetched before its licences were kept: delete third_party/libtorch")?;
    copy_tree(&onnxruntime.join("lib"), &stage.join("lib"))?;
    copy_tree(&onnxruntime.join("licenses"), &stage.join("lib/licenses"))
}

/// The program starts where it lies, and finds the models of every pipeline beside it.
fn try_out(workspace: &Workspace, stage: &Path) -> Result<()> {
    for entry in fs::read_dir(stage.join("pipelines"))? {
        let path = entry?.path();
        if is_pipeline(&path) {
            let mut validate = workspace.program(stage.join("run.sh"));
            if std::env::var_os("LIBTORCH").is_none() {
                validate.env("LIBTORCH", workspace.own_libtorch());
            }
            let (valid, said) = process::judge(validate.arg("validate").arg(&path))?;
            if !valid {
                bail!(
                    "{} is not valid where the archive has it:\n{said}",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

/// The same content gives the same archive: sorted names, no owners, one date.
fn pack(workspace: &Workspace, dist: &Path, name: &str, archive: &Path) -> Result<()> {
    let (committed, date) =
        process::judge(workspace.program("git").args(["log", "-1", "--format=%ct"]))?;
    let date = if committed {
        date.trim().to_owned()
    } else {
        "0".to_owned()
    };
    let mut tar = workspace.program("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--format=gnu",
    ]);
    tar.arg(format!("--mtime=@{date}"))
        .args(["--use-compress-program=gzip -n", "-cf"]);
    tar.arg(archive).arg("-C").arg(dist).arg(name);
    process::run(&mut tar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_path_ends_after_the_relative_part() {
        let mut elf = b"abc\0$ORIGIN/../lib:over/there/lib\0libtorch.so\0".to_vec();
        let length = elf.len();
        cut_run_path(&mut elf);
        assert_eq!(elf.len(), length);
        assert!(elf.starts_with(b"abc\0$ORIGIN/../lib\0\0\0"));
        assert!(elf.ends_with(b"\0\0libtorch.so\0"));
        let cut = elf.clone();
        cut_run_path(&mut elf);
        assert_eq!(elf, cut);
    }

    #[test]
    fn a_program_without_a_run_path_stays_as_it_is() {
        let mut elf = b"abc\0def".to_vec();
        cut_run_path(&mut elf);
        assert_eq!(elf, b"abc\0def");
    }

    #[test]
    fn libraries_are_not_packed_without_onnx_runtime() {
        let folder = std::env::temp_dir().join(format!("xtask-dist-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let workspace = Workspace::at(&folder);
        fs::create_dir_all(folder.join("third_party")).unwrap();
        if let Some(libtorch) = std::env::var_os("LIBTORCH") {
            std::os::unix::fs::symlink(libtorch, workspace.own_libtorch()).unwrap();
        }
        let error = copy_libtorch(&workspace, &folder.join("stage")).unwrap_err();
        let staged = folder.join("stage").exists();
        fs::remove_dir_all(&folder).unwrap();
        let said = format!("{error:#}");
        assert!(
            said.contains("third_party/onnxruntime does not hold ONNX Runtime")
                && said.ends_with("fetch it: cargo xtask setup"),
            "{said}"
        );
        assert!(!staged);
    }
}
