//! The waterfall as a picture, for documents: the same rows, in colours that also differ in brightness.

use std::fmt::Write;
use std::time::Duration;

use super::{Part, Span, Trace, milliseconds, notes};

const WIDTH: f64 = 1080.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 74.0;
const FOOT: f64 = 40.0;
/// Left end of the time axis, after the names.
const AXIS_LEFT: f64 = 250.0;
/// Right end of the time axis, before the notes.
const AXIS_RIGHT: f64 = 860.0;
/// Most intervals between ticks.
const TICKS_MAX: u128 = 8;
const INDENT: f64 = 16.0;
/// Most characters of an event's line, which begins at the axis and must stay inside the picture.
const EVENT_LINE_CHARS: usize = 128;

pub(super) fn draw(trace: &Trace) -> String {
    let n_events: usize = trace.spans.iter().map(|span| event_lines(span).len()).sum();
    let rows = (trace.spans.len() + n_events) as f64;
    let (bottom, height) = (HEAD + rows * ROW, HEAD + rows * ROW + FOOT);
    let mut svg = Canvas {
        text: String::new(),
    };
    svg.line(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\" font-size=\"12\">"
    ));
    svg.line(&format!(
        "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>"
    ));
    svg.label(
        16.0,
        24.0,
        &trace.title(),
        "font-size=\"15\" font-weight=\"bold\" fill=\"#1b2733\"",
    );
    svg.label(
        16.0,
        42.0,
        &format!("trace {}", trace.id),
        "fill=\"#6b7885\"",
    );
    axis(&mut svg, trace.length, bottom);
    let mut y = HEAD;
    for span in &trace.spans {
        row(&mut svg, trace, span, y);
        y += ROW;
        for text in event_lines(span) {
            svg.label(AXIS_LEFT, y + 15.0, &text, "fill=\"#b3261e\"");
            y += ROW;
        }
    }
    legend(&mut svg, bottom + 26.0);
    svg.line("</svg>");
    svg.text
}

struct Canvas {
    text: String,
}

impl Canvas {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("a string takes all");
    }

    fn label(&mut self, x: f64, y: f64, text: &str, style: &str) {
        self.line(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>",
            escaped(text)
        ));
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        self.line(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" \
             fill=\"{fill}\"/>"
        ));
    }
}

fn axis(svg: &mut Canvas, length: Duration, bottom: f64) {
    let step = tick_step(length);
    let mut at = Duration::ZERO;
    while at <= length {
        let x = x_of(at, length);
        svg.line(&format!(
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#e3e8ed\"/>",
            HEAD - 4.0
        ));
        let style = "text-anchor=\"middle\" font-size=\"11\" fill=\"#6b7885\"";
        svg.label(x, HEAD - 9.0, &milliseconds(at), style);
        at += step;
    }
}

/// The shortest of 1, 2, 5, 10, ... microseconds with few enough ticks.
fn tick_step(length: Duration) -> Duration {
    let decades = (0..).map(|exponent| 10_u64.saturating_pow(exponent));
    let mut steps = decades.flat_map(|decade| [1, 2, 5].map(|n| decade.saturating_mul(n)));
    let fits = |us: &u64| length.as_micros() <= u128::from(*us) * TICKS_MAX;
    Duration::from_micros(steps.find(fits).expect("steps grow until one fits"))
}

fn row(svg: &mut Canvas, trace: &Trace, span: &Span, y: f64) {
    let indent = span.depth() as f64 * INDENT;
    let name_style = match span.part {
        Part::Request | Part::Module => "font-weight=\"bold\" fill=\"#1b2733\"",
        _ => "fill=\"#44525f\"",
    };
    svg.label(16.0 + indent, y + 15.0, &span.name, name_style);
    let (left, right) = (
        x_of(span.start, trace.length),
        x_of(span.start + span.length, trace.length),
    );
    let thickness = if matches!(span.part, Part::Request | Part::Module) {
        8.0
    } else {
        14.0
    };
    let colour = if span.error.is_some() {
        "#b3261e"
    } else {
        colour(span.part)
    };
    svg.bar(
        left,
        y + (ROW - thickness) / 2.0,
        (right - left).max(1.0),
        thickness,
        colour,
    );
    for event in &span.events {
        let (x, middle) = (x_of(event.at, trace.length), y + ROW / 2.0);
        svg.line(&format!(
            "<path d=\"M{x:.1} {:.1} l6 6 l-6 6 l-6 -6 z\" fill=\"#b3261e\"/>",
            middle - 6.0
        ));
    }
    let note = match notes(span) {
        note if note.is_empty() => milliseconds(span.length),
        note => format!("{} · {note}", milliseconds(span.length)),
    };
    svg.label(
        AXIS_RIGHT + 14.0,
        y + 15.0,
        &note,
        "font-size=\"11\" fill=\"#44525f\"",
    );
}

/// The text of an event, in lines that fit.
fn event_lines(span: &Span) -> Vec<String> {
    let mut lines = Vec::new();
    for event in &span.events {
        let mut line = format!("{} at {}:", event.name, milliseconds(event.at));
        for word in event.text.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > EVENT_LINE_CHARS {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

fn legend(svg: &mut Canvas, y: f64) {
    let entries = [
        (Part::Module, "module"),
        (Part::Queueing, "queueing"),
        (Part::BatchWait, "batch wait"),
        (Part::Execution, "execution"),
    ];
    let mut x = AXIS_LEFT;
    for (part, name) in entries {
        svg.bar(x, y - 10.0, 14.0, 10.0, colour(part));
        svg.label(x + 20.0, y, name, "font-size=\"11\" fill=\"#44525f\"");
        x += 110.0;
    }
}

fn colour(part: Part) -> &'static str {
    match part {
        Part::Request => "#1b2733",
        Part::Module => "#8a97a5",
        Part::Queueing => "#f2c14e",
        Part::BatchWait => "#e07a3f",
        Part::Execution => "#1f7a8c",
        Part::Other => "#a8b3be",
    }
}

fn x_of(at: Duration, length: Duration) -> f64 {
    if length.is_zero() {
        return AXIS_LEFT;
    }
    AXIS_LEFT + at.as_secs_f64() / length.as_secs_f64() * (AXIS_RIGHT - AXIS_LEFT)
}

fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}
