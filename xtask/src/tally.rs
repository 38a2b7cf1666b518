//! The sum of what cargo's test runs report.

/// Tests that passed, failed and were ignored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    /// Adds what one line of output says, if it is a result line:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    pub(crate) fn read(&mut self, line: &str) {
        let Some(counts) = line.trim().strip_prefix("test result: ") else {
            return;
        };
        for part in counts.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Sees to it that a run that failed without a failed test (it did not compile, say) shows.
    pub(crate) fn note_failure(&mut self) {
        self.failed = self.failed.max(1);
    }

    /// True if no test ran.
    pub(crate) fn is_empty(&self) -> bool {
        self.passed + self.failed == 0
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.ignored > 0 {
            write!(f, ", {} skipped", self.ignored)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read(line));
        tally
    }

    #[test]
    fn result_lines_are_summed_and_others_are_not() {
        let sum = tally(&[
            "running 4 tests",
            "test tests::a ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.50s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.00s",
            "all 99 passed; or so a program claims",
        ]);
        assert_eq!(sum.to_string(), "13 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn a_failure_without_failed_tests_shows() {
        let mut sum = tally(&["test result: ok. 3 passed; 0 failed; 0 ignored"]);
        assert!(!sum.is_empty());
        sum.note_failure();
        assert_eq!(sum.to_string(), "3 passed, 1 failed");
        sum.note_failure();
        assert_eq!(sum.to_string(), "3 passed, 1 failed");
        assert!(Tally::default().is_empty());
    }
}
