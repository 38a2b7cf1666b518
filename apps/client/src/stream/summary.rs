//! The closing summary of a run, as text.

use std::fmt::Write;
use std::time::Duration;

use spillgate_scenes::score::{Counts as FoundCounts, Hits, IOU};

use super::board::Counts;
use crate::report::{write_causes, write_emulated, write_modules, write_outcomes};

/// What the summary is of.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) pipeline: String,
    pub(crate) server: String,
    pub(crate) source: String,
    pub(crate) clients: usize,
    pub(crate) slo_ms: f64,
    pub(crate) frames_per_second: f64,
    pub(crate) elapsed: Duration,
    /// By how much the slowest source was behind.
    pub(crate) slipped: Duration,
    /// Frames saved, and frames for which saving was too slow.
    pub(crate) saved: (u64, u64),
}

pub(crate) fn render(heading: &Heading, counts: &Counts) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_heading(&mut text, heading, counts);
    let _ = write_outcomes(&mut text, &counts.tally, heading.elapsed);
    let _ = write_causes(&mut text, &counts.tally);
    let _ = write_modules(&mut text, &counts.tally);
    let _ = write_quality(&mut text, counts);
    let _ = write_notes(&mut text, heading, counts);
    text
}

fn write_heading(text: &mut String, heading: &Heading, counts: &Counts) -> std::fmt::Result {
    let clients = if heading.clients == 1 {
        "client"
    } else {
        "clients"
    };
    writeln!(
        text,
        "\n{} at {}, slo {}ms: {}, {} {clients} at {:.3} frames/s, {:.1}s",
        heading.pipeline,
        heading.server,
        heading.slo_ms,
        heading.source,
        heading.clients,
        heading.frames_per_second,
        heading.elapsed.as_secs_f64(),
    )?;
    let mean_kb = counts.bytes as f64 / counts.sent.max(1) as f64 / 1e3;
    writeln!(
        text,
        "\nframes     {:>8}  sent {}, {mean_kb:.1} kB each",
        counts.tally.outcomes.total(),
        counts.sent
    )
}

fn write_quality(text: &mut String, counts: &Counts) -> std::fmt::Result {
    let score = &counts.score;
    if score.frames == 0 {
        return Ok(());
    }
    writeln!(
        text,
        "\nquality against the ground truth ({} frames, overlap {IOU})",
        score.frames
    )?;
    for (name, found) in [("vehicles", &score.vehicles), ("people", &score.people)] {
        let FoundCounts {
            found: n,
            missed,
            spurious,
        } = found;
        writeln!(
            text,
            "  {name:<10} F1 {:.3}  precision {:.3}  recall {:.3}  ({n} found, {missed} missed, {spurious} spurious)",
            found.f1(),
            found.precision(),
            found.recall(),
        )?;
    }
    for (name, hits) in [("plates", &score.plates), ("identities", &score.faces)] {
        let Hits { right, all } = hits;
        if *all > 0 {
            let percent = 100.0 * hits.rate();
            writeln!(
                text,
                "  {name:<10} {percent:.1}% exactly right  ({right} of {all})"
            )?;
        }
    }
    Ok(())
}

fn write_notes(text: &mut String, heading: &Heading, counts: &Counts) -> std::fmt::Result {
    write_emulated(text, &counts.tally)?;
    if heading.slipped > Duration::from_millis(100) {
        let slipped = heading.slipped.as_secs_f64();
        writeln!(
            text,
            "\nnote: the source was {slipped:.1}s behind {:.3} frames/s in all; the schedule moved with it \
             (--preload makes frames beforehand)",
            heading.frames_per_second
        )?;
    }
    let (saved, skipped) = heading.saved;
    if saved + skipped > 0 {
        writeln!(text, "\nsaved {saved} frames")?;
    }
    if skipped > 0 {
        writeln!(
            text,
            "note: {skipped} frames were not saved: writing was slower than the stream"
        )?;
    }
    if counts.strays > 0 {
        writeln!(
            text,
            "\nnote: {} answers were to no frame of this client",
            counts.strays
        )?;
    }
    Ok(())
}
