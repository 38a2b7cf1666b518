//! `tidy`: the checks that neither rustc nor clippy makes. Each is a function from what it looks at to
//! the problems it found, so that its tests need no repository.

mod documents;
mod layering;
mod pipelines;
mod purity;
mod rust_text;
mod sources;
mod writes;

use std::path::PathBuf;

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

pub(crate) use pipelines::is_pipeline;
pub(crate) use purity::PURE_CRATES;

/// A file with its path relative to the repository root.
pub(crate) struct SourceFile {
    path: String,
    text: String,
}

/// `cargo xtask tidy`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let mut build = true;
    let mut spillgate: Option<PathBuf> = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("no-build") => build = false,
            Long("spillgate") => spillgate = Some(parser.value()?.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let first = sources(workspace);
    // Both halves are heard, so that one run shows all there is to repair.
    let second = match spillgate {
        Some(program) => pipelines_with(workspace, program),
        None if build => {
            process::run(
                workspace
                    .cargo()
                    .args(["build", "--quiet", "-p", "spillgate"]),
            )
            .and_then(|()| built_pipelines(workspace))
        }
        None => Ok(()),
    };
    match (first, second) {
        (Err(one), Err(two)) => bail!("{one:#}\n       {two:#}"),
        (first, second) => first.and(second),
    }
}

/// Everything that can be checked without compiling the product.
pub(crate) fn sources(workspace: &Workspace) -> Result<()> {
    let files = read_files(workspace)?;
    let mut problems = Vec::new();
    problems.extend(sources::machine_paths(&files, workspace.root()));
    problems.extend(sources::unfinished(&files));
    problems.extend(sources::long_files(&files));
    problems.extend(writes::problems(&files));
    problems.extend(sources::model_sizes(workspace)?);
    problems.extend(purity::sources(&files));
    problems.extend(purity::dependencies(workspace)?);
    problems.extend(layering::problems(&workspace.metadata()?));
    problems.extend(documents::problems(workspace.root(), &files));
    report("sources", &problems)
}

/// Every shipped pipeline is valid, by the program that was built for development.
pub(crate) fn built_pipelines(workspace: &Workspace) -> Result<()> {
    pipelines_with(workspace, workspace.target_dir()?.join("debug/spillgate"))
}

fn pipelines_with(workspace: &Workspace, program: PathBuf) -> Result<()> {
    report("pipelines", &pipelines::problems(workspace, &program)?)
}

fn report(what: &str, problems: &[String]) -> Result<()> {
    for problem in problems {
        println!("tidy: {problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: {what}: nothing to complain about");
            Ok(())
        }
        n => bail!("tidy: {what}: problems found: {n}"),
    }
}

/// Every text file of the repository. Files that are not UTF-8 are data, and left out.
fn read_files(workspace: &Workspace) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for path in workspace.files()? {
        if let Ok(text) = String::from_utf8(std::fs::read(workspace.path(&path))?) {
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}

#[cfg(test)]
fn file(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}
