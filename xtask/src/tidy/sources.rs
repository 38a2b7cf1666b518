//! Checks of single files: nothing unfinished, no paths of the machine that a file was written on, nothing too long.

use std::path::Path;

use anyhow::Result;
use xtask::workspace::Workspace;

use super::{SourceFile, rust_text};

/// A Rust file beyond this holds more than one noun.
const LINES_MAX: usize = 600;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Shipped models stay small enough to lie in the repository.
const MODEL_BYTES_MAX: u64 = 3_000_000;

/// Folders that exist on some developer's machine only, below the file system's root.
const MACHINE_FOLDERS: [&str; 5] = ["home", "root", "Users", "tmp/bash_jobs", "tmp/t-"];

/// Lock files and checksums are generated, and hold whatever they hold.
fn is_generated(path: &str) -> bool {
    path.ends_with("Cargo.lock") || path.ends_with("go.sum")
}

/// Paths of the machine that a file was written on, its checkout's parent folder among them.
pub(super) fn machine_paths(files: &[SourceFile], root: &Path) -> Vec<String> {
    let mut patterns: Vec<String> = MACHINE_FOLDERS
        .iter()
        // A folder named in full, or the beginning of a name.
        .map(|folder| {
            if folder.ends_with('-') {
                format!("/{folder}")
            } else {
                format!("/{folder}/")
            }
        })
        .collect();
    for folder in [Some(root), root.parent()].into_iter().flatten() {
        let folder = folder.to_string_lossy();
        // A checkout right below the root or a shared folder says nothing of its machine.
        if !["/", "/tmp", "/src", "/opt", "/app"].contains(&folder.as_ref()) {
            patterns.push(format!("{folder}/"));
        }
    }
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| !is_generated(&file.path)) {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(pattern) = patterns
                .iter()
                .find(|pattern| contains_absolute(line, pattern))
            {
                problems.push(format!(
                    "{}:{}: names a path of one machine, {pattern}",
                    file.path,
                    number + 1
                ));
            }
        }
    }
    problems
}

/// True if the absolute path occurs, and not as the later part of another path or URL.
fn contains_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/~$}*>".contains(c))
    })
}

/// What says of itself that it is not done, and tests that do not run.
pub(super) fn unfinished(files: &[SourceFile]) -> Vec<String> {
    let note = concat!("FIX", "ME");
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| !is_generated(&file.path)) {
        for (number, line) in file.text.lines().enumerate() {
            if line.contains(note) {
                problems.push(format!("{}:{}: {note}", file.path, number + 1));
            }
        }
        if file.path.ends_with(".rs") {
            for (number, line) in rust_text::code(&file.text).lines().enumerate() {
                let words = ["todo!", "unimplemented!", "#[ignore"];
                if let Some(word) = words.iter().find(|word| line.contains(*word)) {
                    problems.push(format!("{}:{}: {word}", file.path, number + 1));
                }
            }
        }
    }
    problems
}

/// Rust files beyond [`LINES_MAX`], and exceptions that are no longer needed.
pub(super) fn long_files(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let n_lines = file.text.lines().count();
        let excepted = LONG_FILES.iter().any(|(path, _)| *path == file.path);
        if n_lines > LINES_MAX && !excepted {
            problems.push(format!(
                "{}: {n_lines} lines, more than {LINES_MAX}; split it by noun",
                file.path
            ));
        }
        if n_lines <= LINES_MAX && excepted {
            problems.push(format!(
                "{}: no longer needs its exception in LONG_FILES",
                file.path
            ));
        }
    }
    problems
}

/// The size of all shipped models together.
pub(super) fn model_sizes(workspace: &Workspace) -> Result<Option<String>> {
    let mut n_bytes = 0;
    for path in workspace.files()? {
        if path.starts_with("apps/modules/models/") {
            n_bytes += std::fs::metadata(workspace.path(&path))?.len();
        }
    }
    Ok(oversize(n_bytes))
}

fn oversize(n_bytes: u64) -> Option<String> {
    (n_bytes > MODEL_BYTES_MAX).then(|| {
        format!("apps/modules/models: {n_bytes} bytes, more than the {MODEL_BYTES_MAX} that may be shipped")
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn paths_of_a_machine_are_found() {
        let root = Path::new("/build-7/checkout");
        let files = [
            file("a.md", &format!("ok\nsee /{}/ann/x", "home")),
            file("b.sh", "cd /build-7/checkout/xtask"),
            file("c.sh", "cd \"/build-7/shared/x\""),
            file("d.toml", &format!("path = '/{}/job'", "tmp/bash_jobs")),
        ];
        let problems = machine_paths(&files, root);
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems[0].starts_with("a.md:2: "));
    }

    #[test]
    fn other_paths_and_urls_are_left_alone() {
        let home = "home";
        let files = [
            file(
                "a.md",
                &format!("https://example.org/{home}/page and $HOME/{home}/x and ./{home}/y"),
            ),
            file("b.md", "/usr/lib/x /etc/spillgate/x src/main.rs"),
            file("Cargo.lock", &format!("/{home}/ann/x")),
        ];
        let problems = machine_paths(&files, Path::new("/tmp/clone"));
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn unfinished_work_is_found_in_code_and_comments() {
        let files = [
            file(
                "a.rs",
                "fn f() { todo!() }\n#[ignore = \"slow\"]\nfn g() { unimplemented!() }",
            ),
            file("b.py", concat!("# FIX", "ME: later")),
        ];
        assert_eq!(unfinished(&files).len(), 4, "{:?}", unfinished(&files));
        let fine = [
            file(
                "c.rs",
                "// todo!() panics, as does unimplemented!()\nlet s = \"#[ignore]\";",
            ),
            file("d.md", "Write no `todo!` here."),
        ];
        assert!(unfinished(&fine).is_empty(), "{:?}", unfinished(&fine));
    }

    #[test]
    fn long_rust_files_are_found() {
        let files = [
            file("long.rs", &"x\n".repeat(LINES_MAX + 1)),
            file("fits.rs", &"x\n".repeat(LINES_MAX)),
            file("long.md", &"x\n".repeat(LINES_MAX + 1)),
        ];
        let problems = long_files(&files);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("long.rs: 601 lines"));
    }

    #[test]
    fn models_are_weighed_together() {
        assert!(oversize(MODEL_BYTES_MAX).is_none());
        assert!(oversize(MODEL_BYTES_MAX + 1).is_some());
    }
}
