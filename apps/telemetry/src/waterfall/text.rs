//! The waterfall in a terminal: the tree on the left, lengths, then a bar on a common time axis. The fill
//! distinguishes queueing (░), batch wait (▒) and execution (█) without colour.

use std::fmt::Write;
use std::time::Duration;

use super::{Part, Span, Trace, milliseconds, notes};

/// Fewest columns of a bar, however narrow the terminal.
const BAR_COLUMNS_MIN: usize = 24;
/// Most columns of a bar: a longer one is harder to match with its name.
const BAR_COLUMNS_MAX: usize = 100;

pub(super) fn draw(trace: &Trace, columns: usize) -> String {
    let labels: Vec<String> = trace.spans.iter().map(label).collect();
    let lengths: Vec<String> = trace
        .spans
        .iter()
        .map(|span| milliseconds(span.length))
        .collect();
    let widest = |texts: &[String]| texts.iter().map(|text| width(text)).max().unwrap_or(0);
    let (label_width, length_width) = (widest(&labels), widest(&lengths));
    let note_width = trace
        .spans
        .iter()
        .map(|span| width(&notes(span)))
        .max()
        .unwrap_or(0);
    let taken = label_width + length_width + note_width + 7;
    let bar_width = columns
        .saturating_sub(taken)
        .clamp(BAR_COLUMNS_MIN, BAR_COLUMNS_MAX);

    let mut out = String::new();
    let mut line = |text: &str| writeln!(out, "{}", text.trim_end()).expect("a string takes all");
    line(&format!("trace {}", trace.id));
    line(&trace.title());
    line("");
    let indent = " ".repeat(label_width + 2 + length_width + 2);
    line(&format!("{indent}{}", axis(trace.length, bar_width)));
    for ((span, label), length) in trace.spans.iter().zip(&labels).zip(&lengths) {
        let label_pad = " ".repeat(label_width - width(label) + 2);
        let length_pad = " ".repeat(length_width - width(length));
        let bar = bar(span, trace.length, bar_width);
        line(&format!(
            "{label}{label_pad}{length_pad}{length} │{bar}│ {}",
            notes(span)
        ));
        for event in &span.events {
            let column = column_of(event.at, trace.length, bar_width).min(bar_width - 1);
            let mark = format!(
                "{}▲{}",
                " ".repeat(column),
                " ".repeat(bar_width - 1 - column)
            );
            line(&format!(
                "{}│{mark}│",
                " ".repeat(label_width + 3 + length_width)
            ));
            let above = rails(&span.continues);
            line(&format!(
                "{above}  {} at {}: {}",
                event.name,
                milliseconds(event.at),
                event.text
            ));
        }
    }
    let linked = links(trace);
    if !linked.is_empty() {
        line("");
        line("batches (each a trace of its own):");
        linked.iter().for_each(|text| line(text));
    }
    line("");
    line("░ queueing  ▒ batch wait  █ execution  ─ request, module");
    out
}

/// The tree's lines and the name.
fn label(span: &Span) -> String {
    let Some((own, above)) = span.continues.split_last() else {
        return span.name.clone();
    };
    if above.is_empty() {
        return span.name.clone();
    }
    let branch = if *own { "├ " } else { "└ " };
    format!("{}{branch}{}", rails(above), span.name)
}

/// The vertical lines of the levels above; a root has none.
fn rails(continues: &[bool]) -> String {
    continues
        .iter()
        .skip(1)
        .map(|more| if *more { "│ " } else { "  " })
        .collect()
}

fn axis(length: Duration, bar_width: usize) -> String {
    let end = milliseconds(length);
    format!(
        " 0{}{end}",
        " ".repeat(bar_width.saturating_sub(1 + width(&end)))
    )
}

fn bar(span: &Span, length: Duration, bar_width: usize) -> String {
    let fill = match span.part {
        Part::Queueing => '░',
        Part::BatchWait => '▒',
        Part::Execution => '█',
        Part::Request | Part::Module | Part::Other => '─',
    };
    let from = column_of(span.start, length, bar_width).min(bar_width - 1);
    let to = column_of(span.start + span.length, length, bar_width).clamp(from, bar_width);
    let bar = match to - from {
        // Shorter than a column, or of length zero.
        0 if span.length.is_zero() => "·".to_owned(),
        0 => "▏".to_owned(),
        n => fill.to_string().repeat(n),
    };
    let after = bar_width - from - width(&bar);
    format!("{}{bar}{}", " ".repeat(from), " ".repeat(after))
}

/// The column nearest to a moment.
fn column_of(at: Duration, length: Duration, bar_width: usize) -> usize {
    if length.is_zero() {
        return 0;
    }
    (at.as_secs_f64() / length.as_secs_f64() * bar_width as f64).round() as usize
}

fn links(trace: &Trace) -> Vec<String> {
    let mut module = "";
    let mut lines = Vec::new();
    for span in &trace.spans {
        if span.part == Part::Module {
            module = &span.name;
        }
        for link in &span.links {
            let batch = span.tag("spillgate.batch").unwrap_or("?");
            let size = span.tag("spillgate.batch_size").unwrap_or("?");
            lines.push(format!(
                "  {module}: batch {batch}, {size} requests, trace {}",
                link.trace
            ));
        }
    }
    lines
}

fn width(text: &str) -> usize {
    text.chars().count()
}
