//! The progress of a start or a measurement: a bar on a terminal, elsewhere a line now and then.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::measure::Missing;
use indicatif::{ProgressBar, ProgressStyle};
use spillgate_telemetry::logging::{is_json, say};

/// How often a line says how far it is where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(3);

/// Shows steps of a whole.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// When the last line was written.
    told: Option<Instant>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = (std::io::stderr().is_terminal() && !is_json()).then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
            ProgressBar::new(0).with_style(style.expect("the template is well-formed"))
        });
        Progress { bar, told: None }
    }

    /// Shows what is measured now, and how much is done of all; returns it as text.
    pub(crate) fn measuring(&mut self, what: &Missing, done: usize, total: usize) -> String {
        let text = format!("measuring {} on {}", what.module.name, what.device);
        self.show(text, done, total)
    }

    /// Shows what is under way, and how much is done of all; returns it as text.
    pub(crate) fn show(&mut self, text: String, done: usize, total: usize) -> String {
        let line = format!("{text}, {done} of {total} steps done");
        match &self.bar {
            Some(bar) => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(text);
            }
            None if self.told.is_none_or(|at| at.elapsed() >= LINE_INTERVAL) => {
                self.told = Some(Instant::now());
                say(&line);
            }
            None => {}
        }
        line
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
