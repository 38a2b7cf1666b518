//! The terminal: one status line that is refreshed in place, or, where the output is no terminal, a line
//! every second. Other lines go above it.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use spillgate_pipeline::printable::{printable, printable_line};
use spillgate_proto::pb::Outcome;

use super::board::{Board, Counts, Recent};
use crate::findings::Shown;
use crate::record::FrameEnd;
use crate::tally::outcome_word;

const REFRESH_TERMINAL: Duration = Duration::from_millis(200);
const REFRESH_PLAIN: Duration = Duration::from_secs(1);
/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";
/// Longest line: it must not wrap, or it could not be cleared. Terminals have 80 columns, and some wrap after the
/// last.
const COLUMNS: usize = 79;

/// The target of the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Display {
    Stdout,
    /// Standard output carries results.
    Stderr,
}

impl Display {
    fn is_terminal(self) -> bool {
        match self {
            Display::Stdout => std::io::stdout().is_terminal(),
            Display::Stderr => std::io::stderr().is_terminal(),
        }
    }

    /// A closed pipe must not end the program: the results file is still being written.
    fn print(self, text: &str) {
        let _ = match self {
            Display::Stdout => write(std::io::stdout().lock(), text),
            Display::Stderr => write(std::io::stderr().lock(), text),
        };
    }
}

fn write(mut out: impl Write, text: &str) -> std::io::Result<()> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// The display of a run. Lines of several clients do not mix.
pub(crate) struct Screen {
    display: Display,
    terminal: bool,
    quiet: bool,
    status: Mutex<String>,
}

impl Screen {
    pub(crate) fn new(display: Display, quiet: bool) -> Self {
        Screen {
            display,
            terminal: display.is_terminal(),
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
        let text = printable_line(text);
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if self.terminal && !status.is_empty() {
            self.display.print(&format!("{CLEAR}{text}\n{status}"));
        } else {
            self.display.print(&format!("{text}\n"));
        }
    }

    /// The new status.
    pub(crate) fn status(&self, text: &str) {
        if self.quiet {
            return;
        }
        let text = printable_line(text);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if self.terminal {
            *status = text.chars().take(COLUMNS).collect();
            self.display.print(&format!("{CLEAR}{status}"));
        } else {
            self.display.print(&format!("{text}\n"));
        }
    }

    /// The closing summary, in the place of the status.
    pub(crate) fn summary(&self, text: &str) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if self.terminal && !status.is_empty() && !self.quiet {
            self.display.print(CLEAR);
        }
        status.clear();
        self.display.print(&printable(text));
    }
}

/// The status `now` after the start of the run.
pub(crate) fn status_line(board: &Board, now: Duration) -> String {
    let mut counts = board.counts();
    let recent = counts.recent(now);
    format_status(now, &counts, recent)
}

fn format_status(now: Duration, counts: &Counts, recent: Recent) -> String {
    let outcomes = &counts.tally.outcomes;
    let in_flight = counts.sent.saturating_sub(outcomes.total());
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.0}ms"));
    let mut line = format!(
        "{:.1}s  good {:.1}/s  p50 {} p99 {}  sent {}",
        now.as_secs_f64(),
        recent.goodput_per_s,
        ms(recent.p50_ms),
        ms(recent.p99_ms),
        counts.sent,
    );
    let latest = counts.history.latest();
    if let (Some(side), Some(bandwidth)) = (latest.side, latest.bandwidth) {
        line += &format!("  {side}px at {:.1}Mbit/s", bandwidth / 1e6);
    }
    // Counts of zero are left out: the line is short.
    for (word, n) in [
        ("in flight", in_flight),
        ("late", outcomes.late),
        ("dropped", outcomes.dropped),
        ("refused", outcomes.refused),
        ("failed", outcomes.failed),
    ] {
        if n > 0 {
            let part = format!("  {word} {n}");
            if line.len() + part.len() > COLUMNS {
                line.push('+');
                break;
            }
            line += &part;
        }
    }
    line
}

/// The end of one frame in words.
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
    fn the_status_fits_a_terminal_of_80_columns() {
        let mut counts = Counts::of_sent(1250);
        let mut recent = Recent {
            goodput_per_s: 24.96,
            p50_ms: Some(38.2),
            p99_ms: None,
        };
        let line = format_status(Duration::from_millis(50_040), &counts, recent);
        assert_eq!(
            line,
            "50.0s  good 25.0/s  p50 38ms p99 -  sent 1250  in flight 1250"
        );
        counts.tally.outcomes.completed = 1050;
        counts.tally.outcomes.dropped = 180;
        let line = format_status(Duration::from_millis(50_040), &counts, recent);
        assert_eq!(
            line,
            "50.0s  good 25.0/s  p50 38ms p99 -  sent 1250  in flight 20  dropped 180"
        );
        counts = Counts::of_sent(9_999_999);
        counts.tally.outcomes.late = 99_999;
        counts.tally.outcomes.dropped = 99_999;
        counts.tally.outcomes.refused = 99_999;
        recent.p99_ms = Some(99_999.0);
        let line = format_status(Duration::from_secs(360_000), &counts, recent);
        assert!(line.len() <= 80 && line.ends_with('+'), "{line}");
    }
}
