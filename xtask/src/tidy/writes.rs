//! Files are written through `output/`, which leaves no part of a file at its path.

use super::purity::is_test_file;
use super::{SourceFile, rust_text};

/// What makes or truncates a file.
const MAKES: [&str; 5] = [
    "fs::write(",
    "File::create",
    "create_new(",
    ".create(true)",
    "truncate(true)",
];

/// Where other ways are right, each with its reason.
const EXCEPTIONS: [(&str, &str); 6] = [
    ("output/src/lib.rs", "the one way"),
    (
        "apps/spillgate/src/commands/up/folder.rs",
        "logs of children grow while they are read",
    ),
    (
        "lab/hostile/src/",
        "files of a server under attack, in a folder that goes with it",
    ),
    (
        "xtask/src/",
        "the output folder of a build, and logs of children",
    ),
    ("/build.rs", "files of a build script are cargo's"),
    ("/examples/", "to be copied on their own"),
];

/// Shipped code that writes files in another way.
pub(super) fn problems(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let path = &file.path;
        let excepted = EXCEPTIONS.iter().any(|(part, _)| path.contains(part));
        if excepted || !path.ends_with(".rs") || is_test_file(path) {
            continue;
        }
        for (number, line) in rust_text::shipped_code(&file.text).lines().enumerate() {
            if MAKES.iter().any(|makes| line.contains(makes)) {
                let number = number + 1;
                problems.push(format!(
                    "{path}:{number}: writes a file; use spillgate_output"
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn shipped_code_that_makes_files_by_itself_is_found() {
        let files = [
            file(
                "apps/a/src/lib.rs",
                "fn f() {\n    std::fs::write(p, t);\n}",
            ),
            file(
                "apps/a/src/b.rs",
                "fn f() { File::options().append(true).create(true); }",
            ),
        ];
        let found = problems(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("apps/a/src/lib.rs:2: "), "{found:?}");
        let fine = [
            file(
                "apps/a/src/lib.rs",
                "// fs::write(\n#[cfg(test)]\nmod tests { fn f() { std::fs::write(p, t); } }",
            ),
            file("apps/a/tests/it.rs", "fn f() { std::fs::write(p, t); }"),
            file(
                "apps/a/src/c.rs",
                "fn f() { spillgate_output::write(p, t); }",
            ),
            file("proto/build.rs", "fn f() { std::fs::write(p, t); }"),
        ];
        assert!(problems(&fine).is_empty(), "{:?}", problems(&fine));
    }
}
