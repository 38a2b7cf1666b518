//! Checks that the documents are right: the files, headings and commands that they name exist.

use std::path::{Component, Path, PathBuf};

use super::SourceFile;
use crate::commands;

/// Without these a visitor is lost.
const DOCUMENTS: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
];

/// Pages that a stranger reads first, and their most bytes. What does not fit has a page of its own below docs/.
const SHORT: [(&str, usize); 2] = [("README.md", 8 << 10), ("ARCHITECTURE.md", 15 << 10)];

/// Missing documents, pages that are too long, broken links, paths and commands that do not exist.
pub(super) fn problems(root: &Path, files: &[SourceFile]) -> Vec<String> {
    let mut problems: Vec<String> = DOCUMENTS
        .iter()
        .filter(|name| !files.iter().any(|file| file.path == **name))
        .map(|name| format!("{name} is missing"))
        .collect();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        problems.extend(broken_links(file, files, &|path| root.join(path).exists()));
        problems.extend(missing_paths(file, files, &|path| root.join(path).exists()));
        problems.extend(unknown_commands(file));
        problems.extend(too_long(file));
        if file.path == "README.md" {
            problems.extend(unnamed_commands(file));
        }
    }
    if let Some(file) = files.iter().find(|file| file.path == "CHANGELOG.md") {
        problems.extend(changelog(file));
    }
    problems
}

/// A page that is to be short, and is not.
fn too_long(file: &SourceFile) -> Option<String> {
    let (_, most) = SHORT.iter().find(|(name, _)| *name == file.path)?;
    let n = file.text.len();
    (n > *most).then(|| {
        format!(
            "{}: {n} bytes, at most {most}: what is left out goes to a page below docs/",
            file.path
        )
    })
}

/// The first page names the commands that CI runs, so that what it promises is what is tested.
fn unnamed_commands(file: &SourceFile) -> Vec<String> {
    ["cargo xtask demo", "cargo xtask test"]
        .iter()
        .filter(|command| !file.text.contains(*command))
        .map(|command| format!("{}: does not name `{command}`", file.path))
        .collect()
}

/// Links of one document to files or headings that are not there. Links out of the repository are
/// not followed.
fn broken_links(
    file: &SourceFile,
    files: &[SourceFile],
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, link) in links(&file.text) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let place = format!("{}:{number}", file.path);
        let (path, heading) = link
            .split_once('#')
            .map_or((link, None), |(path, h)| (path, Some(h)));
        let target = if path.is_empty() {
            Some(PathBuf::from(&file.path))
        } else {
            let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
            normal(&folder.join(path))
        };
        let Some(target) = target.filter(|target| path.is_empty() || exists(target)) else {
            problems.push(format!("{place}: the link to {link} leads nowhere"));
            continue;
        };
        let document = files.iter().find(|other| Path::new(&other.path) == target);
        if let (Some(heading), Some(document)) = (heading, document)
            && document.path.ends_with(".md")
            && !headings(&document.text).any(|slug| slug == heading)
        {
            problems.push(format!(
                "{place}: {} has no heading #{heading}",
                document.path
            ));
        }
    }
    problems
}

/// Paths in backticks that begin with a folder of the repository, and are not there.
fn missing_paths(
    file: &SourceFile,
    files: &[SourceFile],
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<String> {
    let is_path = |text: &str| {
        let folder = text.split_once('/').map(|(folder, _)| folder);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        folder.is_some_and(|folder| {
            let of_folder =
                |other: &SourceFile| other.path.split_once('/').map(|(of, _)| of) == Some(folder);
            text.chars().all(is_plain) && files.iter().any(of_folder)
        })
    };
    let mut problems = Vec::new();
    for (number, line) in prose(&file.text) {
        let quoted = line.split('`').skip(1).step_by(2);
        for path in quoted.filter(|text| is_path(text) && !exists(Path::new(text))) {
            problems.push(format!("{}:{number}: {path} is not there", file.path));
        }
    }
    problems
}

/// The path without `.` and `..`; none if it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

/// Lines outside code blocks, numbered from one.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code).then_some((number + 1, line))
    })
}

/// The targets of `[…](target)`, `![…](target)` and of `href="target"` and `src="target"`.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for (open, close) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
            for (at, _) in line.match_indices(open) {
                let rest = &line[at + open.len()..];
                // A title may follow the target: `[…](target "title")`.
                let target = rest
                    .split(close)
                    .next()
                    .and_then(|target| target.split_whitespace().next());
                found.extend(target.map(|target| (number, target)));
            }
        }
    }
    found
}

/// Headings as links name them: small letters, digits, hyphens for spaces.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|(_, line)| {
        let title = line
            .strip_prefix('#')?
            .trim_start_matches('#')
            .strip_prefix(' ')?;
        let slug = title.trim().to_lowercase().replace(' ', "-");
        Some(
            slug.chars()
                .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
                .collect(),
        )
    })
}

/// `cargo xtask WORD` with a word that is no command, anywhere in the document.
fn unknown_commands(file: &SourceFile) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for (at, prefix) in line.match_indices("cargo xtask ") {
            let word: String = line[at + prefix.len()..]
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '-' || c.is_ascii_digit())
                .collect();
            if !word.is_empty() && word != "help" && commands::find(&word).is_none() {
                problems.push(format!(
                    "{}:{}: no command `cargo xtask {word}`",
                    file.path,
                    number + 1
                ));
            }
        }
    }
    problems
}

/// The change log has a part for what comes next or for the version at hand.
fn changelog(file: &SourceFile) -> Option<String> {
    let current = format!("## {}", env!("CARGO_PKG_VERSION"));
    let known = |line: &str| line.starts_with("## Unreleased") || line.starts_with(&current);
    (!file.text.lines().any(known))
        .then(|| format!("{}: neither `## Unreleased` nor `{current}`", file.path))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn broken(text: &str, there: &[&str]) -> Vec<String> {
        let mut files = vec![file("docs/a.md", "# One\n## Two Words, `three`!\n")];
        files.push(file("README.md", text));
        broken_links(&files[1], &files, &|path| {
            there.iter().any(|name| path == Path::new(name))
        })
    }

    #[test]
    fn links_to_files_and_headings_resolve() {
        let text = "# Top\n[a](docs/a.md) ![b](b.png \"title\") [c](docs/a.md#two-words-three) [d](#top)\n\
                    [e](https://example.org/x) <img src=\"./b.png\">\n```\n[f](nowhere.md)\n```\n";
        let problems = broken(text, &["docs/a.md", "b.png"]);
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn links_that_lead_nowhere_are_found_with_their_line() {
        let text =
            "\n[a](gone.md)\n[b](docs/a.md#three)\n[c](../outside.md)\n<a href=\"gone.html\">";
        let problems = broken(text, &["docs/a.md"]);
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert_eq!(
            problems[0],
            "README.md:2: the link to gone.md leads nowhere"
        );
        assert_eq!(problems[1], "README.md:3: docs/a.md has no heading #three");
    }

    #[test]
    fn paths_that_are_not_there_are_found_with_their_line() {
        let files = [file("sim/src/lib.rs", "")];
        let missing = |text: &str| {
            let page = file("a.md", text);
            missing_paths(&page, &files, &|path| path == Path::new("sim/src/lib.rs"))
        };
        let fine =
            "`sim/src/lib.rs`, `out/demo`, `a/b`, `sim/*.rs`, `x`\n```\n`sim/gone.rs`\n```\n";
        assert_eq!(missing(fine), [""; 0]);
        assert_eq!(
            missing("\nsee `sim/gone.rs`, `b`"),
            ["a.md:2: sim/gone.rs is not there"]
        );
    }

    #[test]
    fn commands_must_exist() {
        let good = file(
            "a.md",
            "`cargo xtask test` then `cargo xtask help`, or `cargo xtask COMMAND`",
        );
        assert!(unknown_commands(&good).is_empty());
        let bad = file("a.md", "\nrun `cargo xtask tset`");
        assert_eq!(
            unknown_commands(&bad),
            ["a.md:2: no command `cargo xtask tset`"]
        );
    }

    #[test]
    fn the_first_page_names_what_is_tested() {
        let page = |text| unnamed_commands(&file("README.md", text));
        assert!(page("`cargo xtask demo`, then\n    cargo xtask test").is_empty());
        assert_eq!(
            page("cargo xtask demo"),
            ["README.md: does not name `cargo xtask test`"]
        );
    }

    #[test]
    fn the_first_pages_stay_short() {
        let page = |name, n| too_long(&file(name, &"x".repeat(n)));
        assert_eq!(page("README.md", 8192), None);
        assert!(page("README.md", 8193).is_some());
        assert!(page("ARCHITECTURE.md", 15_361).is_some());
        assert_eq!(page("docs/policy.md", 100_000), None);
    }

    #[test]
    fn the_change_log_knows_what_comes_next() {
        assert!(changelog(&file("CHANGELOG.md", "# Changes\n\n## Unreleased\n")).is_none());
        assert!(changelog(&file("CHANGELOG.md", "# Changes\n")).is_some());
    }

    #[test]
    fn missing_documents_are_named() {
        let problems = problems(Path::new("."), &[file("README.md", "")]);
        assert!(
            problems.contains(&"LICENSE is missing".to_owned()),
            "{problems:?}"
        );
        assert!(!problems.contains(&"README.md is missing".to_owned()));
    }
}
