//! The format of lines that `tracing`'s own formatter does not write.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::repeats::Repeated;

/// Lines for people or for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

impl Format {
    /// A line of the program itself: plain for people, or with its time where the program runs for long.
    pub(super) fn said(self, level: Level, target: &str, text: &str, is_timed: bool) -> Vec<u8> {
        match (self, is_timed) {
            (Format::Text, false) => format!("{text}\n").into_bytes(),
            (Format::Text, true) => format!("{} {text}\n", now()).into_bytes(),
            (Format::Json, _) => self.event(level, target, text),
        }
    }

    /// A line like that of an event.
    pub(super) fn event(self, level: Level, target: &str, text: &str) -> Vec<u8> {
        let at = now();
        let line = match self {
            Format::Text => format!("{at} {level:>5} {target}: {text}\n"),
            Format::Json => {
                let level = level.as_str();
                let line = serde_json::json!({ "timestamp": at, "level": level, "message": text, "target": target });
                format!("{line}\n")
            }
        };
        line.into_bytes()
    }

    /// The number of events of one call site that were not shown.
    pub(super) fn repeated(self, repeated: &Repeated) -> Vec<u8> {
        let (n, of) = (repeated.n, repeated.over.as_secs_f64());
        let text = format!("{n} more in {of:.0} s, last: {}", repeated.text);
        self.event(
            *repeated.metadata.level(),
            repeated.metadata.target(),
            &text,
        )
    }
}

/// The time as events have it.
fn now() -> String {
    let mut at = String::new();
    // The system's time can always be written.
    let _ = SystemTime.format_time(&mut Writer::new(&mut at));
    at
}

/// An event's message and fields as text.
pub(super) fn message_of(event: &Event<'_>) -> String {
    /// Longest text kept, since it stands for many.
    const TEXT_MAX: usize = 512;
    #[derive(Default)]
    struct Text(String);
    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            use fmt::Write;
            let space = if self.0.is_empty() { "" } else { " " };
            // Writing to a text does not fail.
            let _ = match field.name() {
                "message" => write!(self.0, "{space}{value:?}"),
                name => write!(self.0, "{space}{name}={value:?}"),
            };
        }
    }
    let mut text = Text::default();
    event.record(&mut text);
    let mut text = text.0;
    if text.len() > TEXT_MAX {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
        text.push('…');
    }
    text
}
