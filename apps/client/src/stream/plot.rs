//! `--plot`: a picture of one client's run: the bandwidth of its link, the size of its frames, and how long answers took.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use spillgate_chart::panels::{self, Colour, Curve, Panel, Shape};
use spillgate_proto::pb::Outcome;
use tokio::time::Instant;

use crate::connect::SlowLink;
use crate::record::FrameEnd;

/// The client that is shown.
const CLIENT: usize = 0;
/// Most frames that are kept: three for each pixel of the picture. When there are more, each second one goes.
pub(crate) const FRAMES_MAX: usize = 2000;
/// Most values of the link's bandwidth, and the shortest time that each is of.
const LINK_VALUES_MAX: f64 = 700.0;
const LINK_VALUE: Duration = Duration::from_millis(100);
/// The axis of latencies ends at so many SLOs: what is later is as bad.
const SLOS_SHOWN: f64 = 2.0;

/// What is kept of a frame.
#[derive(Clone, Copy, Debug)]
struct Shown {
    number: u64,
    /// When it was due, seconds from the start of the run.
    due: f64,
    /// Milliseconds from then to its answer; `None`: there was none.
    latency: Option<f64>,
    in_time: bool,
    side: Option<u32>,
    /// Bits a second.
    bandwidth: Option<f64>,
}

/// The frames of a run, of which each `every`th is kept.
#[derive(Debug)]
struct Frames {
    every: u64,
    shown: Vec<Shown>,
}

impl Frames {
    fn add(&mut self, shown: Shown) {
        if !shown.number.is_multiple_of(self.every) {
            return;
        }
        self.shown.push(shown);
        if self.shown.len() > FRAMES_MAX {
            self.every *= 2;
            let every = self.every;
            self.shown.retain(|s| s.number.is_multiple_of(every));
        }
    }
}

/// The run that is shown.
pub(super) struct Of<'a> {
    pub(super) pipeline: &'a str,
    pub(super) slo_ms: f64,
    pub(super) start: Instant,
    pub(super) elapsed: Duration,
    pub(super) link: Option<&'a SlowLink>,
}

/// A picture in the making.
pub(crate) struct Plot {
    path: PathBuf,
    frames: Mutex<Frames>,
}

impl Plot {
    /// A picture for this file. A path that cannot be written is told before the run.
    pub(super) fn create(path: &Path) -> Result<Self> {
        spillgate_output::check(path)?;
        Ok(Plot {
            path: path.to_owned(),
            frames: Mutex::new(Frames {
                every: 1,
                shown: Vec::new(),
            }),
        })
    }

    /// A frame ended.
    pub(super) fn ended(&self, end: &FrameEnd) {
        if end.client != CLIENT {
            return;
        }
        let outcome = end.result.outcome();
        let is_answered = matches!(outcome, Outcome::Completed | Outcome::Late);
        let shown = Shown {
            number: end.result.number,
            due: end.due.as_secs_f64(),
            latency: is_answered.then(|| end.latency().as_secs_f64() * 1e3),
            in_time: outcome == Outcome::Completed,
            side: end.sent_as.side,
            bandwidth: end.sent_as.bandwidth,
        };
        // Whoever panicked left whole frames behind.
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        frames.add(shown);
    }

    /// Writes the picture.
    pub(super) fn write(&self, of: &Of<'_>) -> Result<()> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        // Answers come in any order.
        frames.shown.sort_by_key(|s| s.number);
        let link = of.link.map_or_else(Vec::new, |link| link_values(link, of));
        let text = svg(&frames, of, link);
        Ok(spillgate_output::write(&self.path, text)?)
    }
}

/// Seconds from the start, and the bandwidth from then on in Mbit/s.
fn link_values(link: &SlowLink, of: &Of<'_>) -> Vec<(f64, f64)> {
    let each = of.elapsed.div_f64(LINK_VALUES_MAX).max(LINK_VALUE);
    let n = (of.elapsed.as_secs_f64() / each.as_secs_f64()).ceil() as u32;
    let value = |n: u32| {
        let from = each * n;
        let bandwidth = link.bandwidth(of.start + from, each);
        (from.as_secs_f64(), bandwidth / 1e6)
    };
    (0..n).map(value).collect()
}

fn svg(frames: &Frames, of: &Of<'_>, link: Vec<(f64, f64)>) -> String {
    let curve = |label: &str, shape, colour, points: Vec<(f64, f64)>| Curve {
        label: label.to_owned(),
        shape,
        colour,
        points,
    };
    let points = |value: &dyn Fn(&Shown) -> Option<f64>| -> Vec<(f64, f64)> {
        let known = frames.shown.iter();
        known.filter_map(|s| Some((s.due, value(s)?))).collect()
    };
    let until = of.elapsed.as_secs_f64();
    let has_slo = of.slo_ms > 0.0;
    let top = has_slo.then_some(SLOS_SHOWN * of.slo_ms);
    // A frame without an answer stands at the upper end.
    let longest = frames.shown.iter().filter_map(|s| s.latency);
    let missing = top.unwrap_or_else(|| longest.fold(1.0, f64::max));
    let estimate = points(&|s| s.bandwidth.map(|b| b / 1e6));
    let side = points(&|s| s.side.map(f64::from));
    // The server does not see the way back of an answer.
    let is_in_time = |s: &Shown| s.in_time && top.is_none_or(|_| s.latency <= Some(of.slo_ms));
    let in_time = points(&|s| s.latency.filter(|_| is_in_time(s)));
    let missed = points(&|s| (!is_in_time(s)).then(|| s.latency.unwrap_or(missing)));
    let mut bandwidths = vec![curve(
        "estimate of the client",
        Shape::Steps,
        Colour::Vermilion,
        estimate,
    )];
    if !link.is_empty() {
        bandwidths.insert(0, curve("link", Shape::Steps, Colour::Blue, link));
    }
    let mut latencies = vec![
        curve("in time", Shape::Dots, Colour::Blue, in_time),
        curve("missed", Shape::Crosses, Colour::Vermilion, missed),
    ];
    if has_slo {
        let slo = vec![(0.0, of.slo_ms), (until, of.slo_ms)];
        latencies.push(curve("SLO", Shape::Dashes, Colour::Black, slo));
    }
    let panel = |label: &str, top, curves| Panel {
        label: label.to_owned(),
        top,
        curves,
    };
    let panels = [
        panel("bandwidth, Mbit/s", None, bandwidths),
        panel(
            "longer side of the frames sent, pixels",
            None,
            vec![curve("side", Shape::Steps, Colour::Green, side)],
        ),
        panel(
            "from due to answered, ms; at the upper end: later, or no answer",
            top,
            latencies,
        ),
    ];
    let each = match frames.every {
        1 => "each frame".to_owned(),
        n => format!("1 of {n} frames"),
    };
    let title = format!("{}: one client, {each}", of.pipeline);
    panels::svg(&title, "seconds since the start", until, &panels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(number: u64) -> Shown {
        Shown {
            number,
            due: number as f64 / 10.0,
            latency: Some(50.0),
            in_time: true,
            side: Some(320),
            bandwidth: Some(2e6),
        }
    }

    fn frames(n: u64) -> Frames {
        let mut frames = Frames {
            every: 1,
            shown: Vec::new(),
        };
        (0..n).for_each(|number| frames.add(shown(number)));
        frames
    }

    fn of(elapsed: f64) -> Of<'static> {
        Of {
            pipeline: "traffic",
            slo_ms: 400.0,
            start: Instant::now(),
            elapsed: Duration::from_secs_f64(elapsed),
            link: None,
        }
    }

    #[test]
    fn a_run_of_days_has_as_many_points() {
        let frames = frames(100_000);
        assert!((FRAMES_MAX / 2..=FRAMES_MAX).contains(&frames.shown.len()));
        assert!(frames.every > 1);
        assert!(
            frames
                .shown
                .iter()
                .all(|s| s.number.is_multiple_of(frames.every))
        );
        let text = svg(&frames, &of(10_000.0), Vec::new());
        assert!(text.contains(&format!("1 of {} frames", frames.every)));
        assert_eq!(
            text.matches("h0").count(),
            frames.shown.len() + 1,
            "and the legend's"
        );
    }

    #[test]
    fn frames_in_time_are_dots_and_the_others_crosses() {
        let mut frames = frames(20);
        frames.shown[3].in_time = false;
        frames.shown[4] = Shown {
            latency: None,
            in_time: false,
            side: None,
            ..frames.shown[4]
        };
        // In time by the server's clock, and not by the client's.
        frames.shown[5].latency = Some(401.0);
        let text = svg(&frames, &of(2.0), vec![(0.0, 3.0), (1.0, 1.5)]);
        let cross = "l7,7m0,-7l-7,7";
        assert_eq!(text.matches("h0").count(), 17 + 1);
        assert_eq!(text.matches(cross).count(), 3 + 1);
        for part in [
            ">traffic: one client, each frame<",
            ">link<",
            ">SLO<",
            "Mbit/s",
            "pixels",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Without a slow link, and without an SLO, nothing is said of them.
        let without = Of {
            slo_ms: 0.0,
            ..of(2.0)
        };
        let text = svg(&frames, &without, Vec::new());
        assert!(!text.contains(">link<") && !text.contains(">SLO<"));
    }
}
