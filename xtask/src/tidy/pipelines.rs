//! Every pipeline that we ship is valid, as a user would find out: by `spillgate validate`.

use std::path::Path;

use anyhow::{Result, bail};
use xtask::process;
use xtask::workspace::Workspace;

const FOLDER: &str = "apps/pipelines";

/// What `spillgate validate` says against the shipped pipelines.
pub(super) fn problems(workspace: &Workspace, program: &Path) -> Result<Vec<String>> {
    if !program.is_file() {
        bail!("{} is not built", program.display());
    }
    let files = workspace.files()?;
    let pipelines: Vec<&String> = files
        .iter()
        .filter(|path| path.starts_with(FOLDER) && is_pipeline(Path::new(path)))
        .collect();
    if pipelines.is_empty() {
        return Ok(vec![format!("{FOLDER}: no pipeline there")]);
    }
    let mut problems = Vec::new();
    for path in pipelines {
        let mut validate = workspace.program(program);
        validate.arg("validate").arg(path);
        let (valid, said) = process::judge(&mut validate)?;
        if !valid {
            problems.push(format!("{path}: does not validate\n{}", indented(&said)));
        }
    }
    Ok(problems)
}

/// True for YAML, except measured profiles, which lie beside their pipelines.
pub(crate) fn is_pipeline(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".yaml") && !name.ends_with(".profile.yaml")
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("      {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_are_told_from_what_lies_beside_them() {
        assert!(is_pipeline(Path::new("apps/pipelines/traffic.yaml")));
        assert!(!is_pipeline(Path::new(
            "apps/pipelines/traffic.profile.yaml"
        )));
        assert!(!is_pipeline(Path::new("apps/pipelines/README.md")));
    }

    #[test]
    fn a_program_that_is_not_built_is_an_error() {
        let workspace = Workspace::at(Path::new("nowhere"));
        let error = problems(&workspace, Path::new("nowhere/spillgate")).unwrap_err();
        assert!(error.to_string().contains("is not built"));
    }
}
