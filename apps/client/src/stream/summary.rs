//! The closing summary of a run, as text.

use std::fmt::Write;
use std::time::Duration;

use spillgate_scenes::score::{Counts as FoundCounts, Hits, IOU};

use super::board::Counts;
use crate::report;
use crate::report::{write_causes, write_modules, write_outcomes};

/// Streams that have a line of their own.
const NAMES_MAX: usize = 50;

/// The inputs of the summary.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) pipeline: String,
    pub(crate) server: String,
    pub(crate) source: String,
    pub(crate) clients: usize,
    pub(crate) sources: usize,
    /// When frames are sent.
    pub(crate) paced: String,
    pub(crate) slo_ms: f64,
    pub(crate) frames_per_second: f64,
    pub(crate) elapsed: Duration,
    /// Delay of the slowest source.
    pub(crate) slipped: Duration,
    /// Frames saved, and frames skipped because saving was too slow.
    pub(crate) saved: (u64, u64),
}

pub(crate) fn render(heading: &Heading, counts: &Counts) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_heading(&mut text, heading, counts);
    let _ = write_outcomes(&mut text, &counts.tally, heading.elapsed);
    let _ = write_names(&mut text, heading, counts);
    let _ = write_causes(&mut text, &counts.tally);
    let _ = write_modules(&mut text, &counts.tally);
    let _ = write_link(&mut text, counts);
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
        "\n{} at {}, slo {}ms: {}, {} {clients} {}, {:.1}s",
        heading.pipeline,
        heading.server,
        heading.slo_ms,
        heading.source,
        heading.clients,
        heading.paced,
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

/// Of several sources each has a line.
fn write_names(text: &mut String, heading: &Heading, counts: &Counts) -> std::fmt::Result {
    if heading.sources < 2 {
        return Ok(());
    }
    let width = counts.by_name.keys().map(|name| name.chars().count()).max();
    let width = width.unwrap_or_default().max("stream".len());
    writeln!(
        text,
        "\n{:<width$}  {:>8}  {:>8}",
        "stream", "frames", "in time"
    )?;
    for (name, outcomes) in counts.by_name.iter().take(NAMES_MAX) {
        let (all, in_time) = (outcomes.total(), outcomes.completed);
        writeln!(text, "{name:<width$}  {all:>8}  {in_time:>8}")?;
    }
    match counts.by_name.len().saturating_sub(NAMES_MAX) {
        0 => Ok(()),
        more => writeln!(text, "and {more} more (--results has all)"),
    }
}

/// Where the clients knew their links.
fn write_link(text: &mut String, counts: &Counts) -> std::fmt::Result {
    let means = counts.history.means();
    if means.is_empty() {
        return Ok(());
    }
    write!(text, "\nlink, from ")?;
    for mean in &means {
        write!(text, "{:>7}", format!("{}s", mean.from.as_secs()))?;
    }
    let mut line = |name: &str, values: Vec<Option<f64>>, digits: usize| {
        write!(text, "\n  {name:<9}")?;
        for value in values {
            let value = value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
            write!(text, "{value:>7}")?;
        }
        Ok(())
    };
    let megabits = means.iter().map(|m| m.bandwidth.map(|b| b / 1e6));
    line("Mbit/s", megabits.collect(), 1)?;
    line("side, px", means.iter().map(|m| m.side).collect(), 0)?;
    writeln!(text)
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
    writeln!(
        text,
        "  detection  mean F1 {:.3} over overlaps of 0.5 to 0.95, {:.3} with frames that are not in time as found nothing",
        counts.detection_in_time.value(),
        counts.detection.value(),
    )?;
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
    report::write_notes(text, &counts.tally)?;
    if heading.slipped > Duration::from_millis(100) {
        let slipped = heading.slipped.as_secs_f64();
        writeln!(
            text,
            "\nnote: the source was {slipped:.1}s behind {:.3} frames/s in all; the schedule moved with it \
             (--preload makes frames beforehand)",
            heading.frames_per_second
        )?;
    }
    for (what, n) in [
        ("source", counts.reconnected.0),
        ("server", counts.reconnected.1),
    ] {
        if n > 0 {
            let times = if n == 1 {
                "once".to_owned()
            } else {
                format!("{n} times")
            };
            writeln!(text, "\nnote: the {what} was lost and came back {times}")?;
        }
    }
    if counts.skipped > 0 {
        let n = counts.skipped;
        writeln!(
            text,
            "\nnote: {n} frames of live sources were not sent, since newer ones had come"
        )?;
    }
    if counts.jumps > 0 {
        let n = counts.jumps;
        writeln!(
            text,
            "\nnote: the clock of a source jumped {n} times; frames were sent by the own clock"
        )?;
    }
    let (lost, damaged) = counts.unreadable;
    if lost + damaged > 0 {
        writeln!(
            text,
            "\nnote: {lost} pictures of the source could not be decoded, {damaged} came damaged"
        )?;
    }
    let (saved, skipped) = heading.saved;
    if saved + skipped > 0 {
        writeln!(text, "\nsaved {saved} frames")?;
    }
    if skipped > 0 {
        writeln!(
            text,
            "note: not saved: {skipped}, as writing was slower than the stream"
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

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use spillgate_proto::pb;
    use spillgate_proto::pb::Outcome;
    use spillgate_scenes::score::Score;

    use super::*;

    fn counts() -> Counts {
        let mut counts = Counts::of_sent(3);
        counts.bytes = 60_000;
        let timing = pb::ModuleTiming {
            module: "detect".into(),
            queueing_ms: 1.0,
            batch_wait_ms: 4.0,
            execution_ms: 20.0,
            batch_size: 2,
            ..Default::default()
        };
        for (outcome, ms) in [
            (Outcome::Completed, 40),
            (Outcome::Completed, 60),
            (Outcome::Dropped, 5),
        ] {
            let result = pb::Result {
                outcome: outcome.into(),
                module: "plates".into(),
                reason: "estimate".into(),
                latency_ms: 35.0,
                timings: vec![timing.clone()],
                ..Default::default()
            };
            counts.tally.count(&result, Duration::from_millis(ms));
        }
        let refused = pb::Result {
            outcome: Outcome::Refused.into(),
            module: "source".into(),
            reason: "invalid_frame".into(),
            detail: "no JPEG or PNG".into(),
            ..Default::default()
        };
        counts.tally.count(&refused, Duration::from_millis(1));
        counts.score = Score {
            frames: 2,
            vehicles: FoundCounts {
                found: 9,
                missed: 1,
                spurious: 1,
            },
            plates: Hits { right: 7, all: 8 },
            ..Score::default()
        };
        counts
    }

    #[test]
    fn the_summary_says_all_that_a_user_asks_for() {
        let heading = Heading {
            pipeline: "traffic".into(),
            server: "http://127.0.0.1:7700".into(),
            source: "scene:".into(),
            clients: 1,
            slo_ms: 400.0,
            sources: 1,
            paced: "at 25.000 frames/s".to_owned(),
            frames_per_second: 25.0,
            elapsed: Duration::from_secs(1),
            slipped: Duration::from_millis(300),
            saved: (2, 1),
        };
        expect![[r#"

            traffic at http://127.0.0.1:7700, slo 400ms: scene:, 1 client at 25.000 frames/s, 1.0s

            frames            4  sent 3, 20.0 kB each
            completed         2   50.0%  goodput 2.0/s
            late              0    0.0%
            dropped           1   25.0%
            refused           1   25.0%
            failed            0    0.0%
            latency    p50 40.0ms  p90 60.0ms  p99 60.0ms  max 60.0ms  (from the moment a request was due)
            in server  p50 35.0ms  p90 35.0ms  p99 35.0ms  max 35.0ms

            not served
              dropped  plates         estimate                        1
              refused  source         invalid_frame                   1
                       such as: no JPEG or PNG

            module         requests         queueing       batch wait        execution   batch
                                       mean / p99 ms    mean / p99 ms    mean / p99 ms    mean
            detect                3        1.0 / 1.0        4.0 / 4.0      20.0 / 20.0     2.0

            quality against the ground truth (2 frames, overlap 0.5)
              vehicles   F1 0.900  precision 0.900  recall 0.900  (9 found, 1 missed, 1 spurious)
              people     F1 1.000  precision 1.000  recall 1.000  (0 found, 0 missed, 0 spurious)
              detection  mean F1 1.000 over overlaps of 0.5 to 0.95, 1.000 with frames that are not in time as found nothing
              plates     87.5% exactly right  (7 of 8)

            note: the source was 0.3s behind 25.000 frames/s in all; the schedule moved with it (--preload makes frames beforehand)

            saved 2 frames
            note: not saved: 1, as writing was slower than the stream
        "#]].assert_eq(&render(&heading, &counts()));
    }
}
