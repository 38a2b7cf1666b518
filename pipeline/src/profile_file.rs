//! Profile files: YAML text to a [`ProfileSet`] and back, exact to the nanosecond.
//!
//! ```yaml
//! entries: 4                            # all entries below, loads among them: without some the file was cut off
//! cpu:                                  # kind of device
//!   detect:                             # module
//!     "models/road.pt@320":             # variant; - for a module without a model
//!       - { load: 31ms }                # reading the model, where it was measured
//!       - { batch: 1, mean: 21.3ms, p50: 21ms, p99: 25ms }
//!       - { batch: 8, mean: 92ms, p50: 91ms, p99: 104ms }
//! emulated:
//!   plates:
//!     "models/plate.pt": { alpha: 5ms, beta: 2ms, max: 32 }   # alpha + beta * batch
//! ```
//!
//! Files that are written by hand may leave `entries` out.

use std::fmt::Write;
use std::time::Duration;

use indexmap::IndexMap;

use crate::diagnostic::{Diagnostics, Place, Sink};
use crate::document::{self, Content, Node};
use crate::problem::Problem;
use crate::profile::{BatchLatency, ModuleProfile, ProfileSet};
use crate::reader;
use crate::spec::BATCH_MAX;

/// Longest execution of a batch.
const EXECUTION_MAX: Duration = Duration::from_secs(3600);

const KINDS: [&str; 3] = ["cpu", "cuda", "emulated"];
const POINT_FIELDS: [&str; 4] = ["batch", "mean", "p50", "p99"];
const LINEAR_FIELDS: [&str; 4] = ["alpha", "beta", "max", "load"];
const LOAD: &str = "load";
const ENTRIES: &str = "entries";
/// Most entries that a file may say it has: more than the reader takes of any file.
const ENTRIES_MAX: u32 = 1 << 24;

/// Reads the text of a profile file. `file` is its name in messages and the set's origin.
///
/// # Errors
/// All problems of the file, sorted by line.
pub fn parse_profiles(text: &str, file: &str) -> Result<ProfileSet, Diagnostics> {
    let mut sink = Sink::new(file);
    let mut set = ProfileSet {
        origin: Some(file.to_owned()),
        ..ProfileSet::default()
    };
    // Profiles are measured, not written by hand, so they have no variables.
    match document::read(text, None) {
        Ok(Some(root)) if root.describe() != "nothing" => read_set(&mut sink, &root, &mut set),
        // Also what is left of a file that was cut off within its comments.
        Ok(_) => sink.error(
            &Place::root(),
            Problem::Empty {
                fields: "entries: 0, or profiles as `spillgate profile` measures them",
            },
        ),
        Err(stops) => reader::broken(&mut sink, stops),
    }
    sink.finish()?;
    Ok(set)
}

fn read_set(sink: &mut Sink, root: &Node, set: &mut ProfileSet) {
    let place = Place::root();
    let expected = "a map of kinds of devices, like { cpu: ... }";
    let (mut said, mut found) = (None, 0);
    let kinds = reader::map(sink, root, &place, expected);
    for kind in kinds.iter() {
        if kind.key == ENTRIES {
            let n = reader::count(sink, kind.node, &kind.place, 0, ENTRIES_MAX);
            said = n.map(|n| (n, &kind.place));
            continue;
        }
        if !KINDS.contains(&kind.key) {
            // No near name: a writer of `gpu` does not mean `cpu`.
            let (what, value) = ("kind of device".to_owned(), kind.key.to_owned());
            let known = crate::near::known(KINDS);
            sink.error(
                &kind.place,
                Problem::UnknownChoice {
                    what,
                    value,
                    near: None,
                    known,
                },
            );
        }
        let mut modules: IndexMap<String, IndexMap<String, ModuleProfile>> = IndexMap::new();
        for module in reader::map(sink, kind.node, &kind.place, "a map of modules").iter() {
            let variants = modules.entry(module.key.to_owned()).or_default();
            let expected = "a map of variants, like { \"road.pt@320\": ... }";
            for variant in reader::map(sink, module.node, &module.place, expected).iter() {
                found += entries_of(variant.node);
                if let Some(profile) = read_profile(sink, variant.node, &variant.place) {
                    variants.insert(variant.key.to_owned(), profile);
                }
            }
        }
        set.devices.insert(kind.key.to_owned(), modules);
    }
    if let Some((said, place)) = said
        && said != found
    {
        sink.error(place, Problem::OtherEntries { said, found });
    }
}

/// The entries of a variant: those of its list, or one that stands for all.
fn entries_of(node: &Node) -> u32 {
    match &node.content {
        Content::Sequence(entries) => u32::try_from(entries.len()).unwrap_or(u32::MAX),
        _ => 1,
    }
}

fn read_profile(sink: &mut Sink, node: &Node, place: &Place) -> Option<ModuleProfile> {
    if matches!(node.content, Content::Mapping(_)) {
        return read_linear(sink, node, place);
    }
    let expected = "a list of points, or { alpha: 5ms, beta: 2ms, max: 32 }";
    let mut entries = reader::list(sink, node, place, expected)?;
    let (mut load, mut before) = (None, 0);
    if let Some((first, rest)) = entries.split_first()
        && names_load(first)
    {
        let at = place.index(0, first.line);
        let fields = reader::record(sink, first, &at, "a load, like { load: 31ms }", &[LOAD]);
        let f = fields.get(LOAD)?;
        load = reader::duration(sink, f.node, &f.place, Duration::ZERO, EXECUTION_MAX);
        (entries, before) = (rest, 1);
    }
    if entries.is_empty() {
        let example = "{ batch: 1, mean: 21ms, p50: 21ms, p99: 25ms }";
        sink.error(place, Problem::NoEntries { example });
    }
    let mut points: Vec<BatchLatency> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let place = place.index(before + i, entry.line);
        let Some(point) = read_point(sink, entry, &place) else {
            continue;
        };
        match points.last() {
            Some(last) if last.batch >= point.batch => {
                let (batch, before) = (u64::from(point.batch), u64::from(last.batch));
                sink.error(&place, Problem::BatchNotRising { batch, before });
            }
            _ => points.push(point),
        }
    }
    Some(ModuleProfile { points, load })
}

/// Whether an entry has the time of a load.
fn names_load(entry: &Node) -> bool {
    let is_load = |key: &Node| matches!(&key.content, Content::Scalar(text, _) if text == LOAD);
    matches!(&entry.content, Content::Mapping(fields) if fields.iter().any(|(key, _)| is_load(key)))
}

/// A point; `p50` and `p99` are the mean where they are not written.
fn read_point(sink: &mut Sink, node: &Node, place: &Place) -> Option<BatchLatency> {
    let expected = "a point, like { batch: 1, mean: 21ms, p50: 21ms, p99: 25ms }";
    let fields = reader::record(sink, node, place, expected, &POINT_FIELDS);
    if matches!(node.content, Content::Mapping(_)) {
        for (field, example) in [("batch", "batch: 1"), ("mean", "mean: 21ms")] {
            if fields.get(field).is_none() {
                let (field, example) = (field.to_owned(), example.to_owned());
                sink.error(place, Problem::MissingField { field, example });
            }
        }
    }
    let batch = fields
        .get("batch")
        .map(|f| reader::count(sink, f.node, &f.place, 1, BATCH_MAX));
    let mut span = |key: &str| {
        let f = fields.get(key)?;
        reader::duration(sink, f.node, &f.place, Duration::ZERO, EXECUTION_MAX)
    };
    let (mean, p50, p99) = (span("mean"), span("p50"), span("p99"));
    let (batch, mean) = (batch??, mean?);
    let point = BatchLatency {
        batch,
        mean,
        p50: p50.unwrap_or(mean),
        p99: p99.or(p50).unwrap_or(mean),
    };
    if let (Some(p50), Some(p99)) = (p50, p99)
        && p99 < p50
    {
        sink.error(place, Problem::PercentilesCrossed { p50, p99 });
    }
    Some(point)
}

fn read_linear(sink: &mut Sink, node: &Node, place: &Place) -> Option<ModuleProfile> {
    let expected = "{ alpha: 5ms, beta: 2ms, max: 32 }";
    let fields = reader::record(sink, node, place, expected, &LINEAR_FIELDS);
    for (field, example) in [
        ("alpha", "alpha: 5ms"),
        ("beta", "beta: 2ms"),
        ("max", "max: 32"),
    ] {
        if fields.get(field).is_none() {
            let (field, example) = (field.to_owned(), example.to_owned());
            sink.error(place, Problem::MissingField { field, example });
        }
    }
    let mut span = |key: &str| {
        let f = fields.get(key)?;
        reader::duration(sink, f.node, &f.place, Duration::ZERO, EXECUTION_MAX)
    };
    let (alpha, beta, load) = (span("alpha"), span("beta"), span(LOAD));
    let max = fields
        .get("max")
        .map(|f| reader::count(sink, f.node, &f.place, 1, BATCH_MAX));
    let times = ModuleProfile::linear(alpha?, beta?, max??);
    Some(ModuleProfile { load, ..times })
}

/// The text of a profile file; each line of `header` becomes a comment above it.
pub fn render_profiles(set: &ProfileSet, header: &str) -> String {
    let mut out = String::new();
    for line in header.lines() {
        let comment = format!("# {}", crate::problem::one_line_of(line, usize::MAX));
        out.push_str(comment.trim_end());
        out.push('\n');
    }
    let all = set.devices.values().flat_map(IndexMap::values);
    let all = all.flat_map(IndexMap::values);
    let entries: usize = all
        .map(|p| p.points.len() + usize::from(p.load.is_some()))
        .sum();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{ENTRIES}: {entries}");
    for (kind, modules) in &set.devices {
        let empty = if modules.is_empty() { " {}" } else { "" };
        out.push_str(&format!("{}:{empty}\n", quoted(kind)));
        for (module, variants) in modules {
            let empty = if variants.is_empty() { " {}" } else { "" };
            out.push_str(&format!("  {}:{empty}\n", quoted(module)));
            for (variant, profile) in variants {
                out.push_str(&format!("    {}:\n", quoted(variant)));
                if let Some(load) = profile.load {
                    let _ = writeln!(out, "      - {{ {LOAD}: {} }}", exact_ms(load));
                }
                for p in &profile.points {
                    let _ = writeln!(
                        out,
                        "      - {{ batch: {}, mean: {}, p50: {}, p99: {} }}",
                        p.batch,
                        exact_ms(p.mean),
                        exact_ms(p.p50),
                        exact_ms(p.p99)
                    );
                }
            }
        }
    }
    out
}

/// Milliseconds with as many decimals as it takes.
fn exact_ms(span: Duration) -> String {
    let ns = span.as_nanos();
    let (whole, rest) = (ns / 1_000_000, ns % 1_000_000);
    if rest == 0 {
        return format!("{whole}ms");
    }
    let decimals = format!("{rest:06}");
    format!("{whole}.{}ms", decimals.trim_end_matches('0'))
}

/// A key: bare where it is a plain name, else in double quotes.
fn quoted(key: &str) -> String {
    if reader::is_name(key) {
        return key.to_owned();
    }
    let mut out = String::from("\"");
    for c in key.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            c if u32::from(c) <= 0xff => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) <= 0xffff && !c.is_alphanumeric() => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c if !c.is_alphanumeric() => out.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
