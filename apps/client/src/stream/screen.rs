//! The terminal: one status line that is refreshed in place, or, where the output is no terminal, a line
//! every second. Other lines go above it.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use spillgate_proto::pb::Outcome;

use super::board::{Board, Counts, Recent};
use crate::findings::Shown;
use crate::record::FrameEnd;
use crate::tally::outcome_word;

const REFRESH_TERMINAL: Duration = Duration::from_millis(200);
const REFRESH_PLAIN: Duration = Duration::from_secs(1);
/// To the start of the line, and nothing on it.
const CLEAR: &str = "\r\x1b[2K";
/// The line must not wrap: it could not be cleared then.
const COLUMNS: usize = 118;

/// Standard output. Lines of several clients do not mix.
pub(crate) struct Screen {
    terminal: bool,
    quiet: bool,
    status: Mutex<String>,
}

impl Screen {
    pub(crate) fn new(quiet: bool) -> Self {
        Screen {
            terminal: std::io::stdout().is_terminal(),
            quiet,
            status: Mutex::default(),
        }
    }

    pub(crate) fn refresh_every(&self) -> Duration {
        if self.terminal {
            REFRESH_TERMINAL
        } else {
            REFRESH_PLAIN
        }
    }

    /// A line of its own.
    pub(crate) fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if self.terminal && !status.is_empty() {
            print(&format!("{CLEAR}{text}\n{status}"));
        } else {
            print(&format!("{text}\n"));
        }
    }

    /// The new status.
    pub(crate) fn status(&self, text: &str) {
        if self.quiet {
            return;
        }
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if self.terminal {
            *status = text.chars().take(COLUMNS).collect();
            print(&format!("{CLEAR}{status}"));
        } else {
            print(&format!("{text}\n"));
        }
    }

    /// Removes the status line: the summary follows.
    pub(crate) fn clear_status(&self) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if self.terminal && !status.is_empty() && !self.quiet {
            print(CLEAR);
        }
        status.clear();
    }
}

/// A closed pipe must not end the program: the results file is still being written.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The status after `now` of running.
pub(crate) fn status_line(board: &Board, now: Duration) -> String {
    let mut counts = board.counts();
    let recent = counts.recent(now);
    format_status(now, &counts, recent)
}

fn format_status(now: Duration, counts: &Counts, recent: Recent) -> String {
    let outcomes = &counts.tally.outcomes;
    let in_flight = counts.sent.saturating_sub(outcomes.total());
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.0}ms"));
    format!(
        "{:6.1}s  good {:.1}/s  p50 {} p99 {}  sent {}  late {} dropped {} refused {} failed {}  in flight {}",
        now.as_secs_f64(),
        recent.goodput_per_s,
        ms(recent.p50_ms),
        ms(recent.p99_ms),
        counts.sent,
        outcomes.late,
        outcomes.dropped,
        outcomes.refused,
        outcomes.failed,
        in_flight,
    )
}

/// One frame's end in words.
pub(crate) fn result_line(end: &FrameEnd) -> String {
    let result = &end.result;
    let outcome = result.outcome();
    let head = format!(
        "client {} frame {}: {}",
        end.client,
        result.number,
        outcome_word(outcome)
    );
    if !matches!(outcome, Outcome::Completed | Outcome::Late) {
        return format!(
            "{head} at {}: {}: {}",
            result.module, result.reason, result.detail
        );
    }
    let shown = Shown::from_outputs(&result.outputs);
    let mut parts = vec![format!(
        "{head} in {:.1}ms",
        end.latency().as_secs_f64() * 1e3
    )];
    for group in &shown.groups {
        let captions: Vec<&str> = group
            .found
            .iter()
            .flat_map(|f| &f.captions)
            .map(String::as_str)
            .collect();
        let named = if captions.is_empty() {
            String::new()
        } else {
            format!(" ({})", captions.join(", "))
        };
        parts.push(format!("{} {}{named}", group.found.len(), group.name));
    }
    parts.extend(shown.notes);
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_fits_a_terminal() {
        let counts = Counts::of_sent(1250);
        let recent = Recent {
            goodput_per_s: 24.96,
            p50_ms: Some(38.2),
            p99_ms: None,
        };
        let line = format_status(Duration::from_millis(50_040), &counts, recent);
        assert_eq!(
            line,
            "  50.0s  good 25.0/s  p50 38ms p99 -  sent 1250  late 0 dropped 0 refused 0 failed 0  in flight 1250"
        );
        assert!(line.len() <= COLUMNS);
    }
}
