//! Which tests took longest, from what test programs report.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use xtask::process;
use xtask::workspace::Workspace;

use crate::cargo;

/// So many are listed.
const LISTED: usize = 10;
/// The one target of this project.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// What a package's test program is announced by.
const PACKAGE: &str = "tests of ";

/// Tests and how long they took.
#[derive(Debug, Default)]
pub(crate) struct Slowest {
    package: String,
    tests: Vec<(Duration, String)>,
}

impl Slowest {
    /// Takes in one line of output: `test a::b ... ok <1.234s>`, or which package's tests follow.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(package) = line.strip_prefix(PACKAGE) {
            self.package = package.to_owned();
            return;
        }
        let test = line.strip_prefix("test ").and_then(|rest| {
            let (name, verdict) = rest.split_once(" ... ")?;
            let (_, seconds) = verdict.rsplit_once('<')?;
            let seconds: f64 = seconds.strip_suffix("s>")?.parse().ok()?;
            Some((Duration::try_from_secs_f64(seconds).ok()?, name))
        });
        if let Some((took, name)) = test {
            self.tests.push((took, format!("{} {name}", self.package)));
        }
    }
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        write!(f, "the slowest of {} tests:", tests.len())?;
        for (took, name) in tests.into_iter().take(LISTED) {
            write!(f, "\n{:7.1} s  {name}", took.as_secs_f64())?;
        }
        Ok(())
    }
}

/// Runs the tests, and lists those that took longest, however they end. Test programs of a stable toolchain report times only where they take themselves for
/// unstable ones, so they are started as such; nothing is built otherwise for it.
pub(crate) fn run(
    workspace: &Workspace,
    args: &[std::ffi::OsString],
    mut on_line: impl FnMut(&str),
) -> Result<()> {
    let start = format!(
        "echo; echo \\\"{PACKAGE}$CARGO_PKG_NAME\\\"; RUSTC_BOOTSTRAP=1 exec \\\"$0\\\" \\\"$@\\\""
    );
    let runner = format!("target.{TARGET}.runner=[\"sh\", \"-c\", \"{start}\"]");
    let mut slowest = Slowest::default();
    let mut command = cargo::test_command(workspace);
    command.args(args).args([
        "--config",
        &runner,
        "--",
        "-Zunstable-options",
        "--report-time",
    ]);
    let ended = process::run_lines(&mut command, cargo::SILENCE, |line| {
        slowest.read(line);
        on_line(line);
    });
    println!("\n{slowest}");
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_listed_with_their_package_the_slowest_first() {
        let mut slowest = Slowest::default();
        for line in [
            "tests of one",
            "test a::quick ... ok <0.250s>",
            "test a::odd ... ignored",
            "test result: ok. 1 passed; finished in 3.00s",
            "tests of two",
            "test slow ... FAILED <12.060s>",
        ] {
            slowest.read(line);
        }
        for i in 0..10 {
            slowest.read(&format!("test more::{i} ... ok <0.{i}00s>"));
        }
        let text = slowest.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "the slowest of 12 tests:");
        assert_eq!(lines[1], "   12.1 s  two slow");
        assert_eq!(lines.len(), 1 + LISTED);
        assert!(text.contains("    0.2 s  one a::quick"), "{text}");
        assert!(!text.contains("more::1"), "{text}");
    }
}
