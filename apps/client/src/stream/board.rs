//! The board to which all clients of a run report: counts, the results file, the terminal.
//!
//! Clients call it for each frame, so its locks are held briefly and never across a wait.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufWriter, IntoInnerError, LineWriter, Stdout, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use spillgate_output::Output;
use spillgate_proto::pb::Outcome;
use spillgate_scenes::GroundTruth;
use spillgate_scenes::score::{Findings, IOU, MeanF1, Score};
use tokio_util::sync::CancellationToken;

use super::history::History;
use super::pace::Sample;
use super::plot::Plot;
use super::screen::Screen;
use crate::findings::Shown;
use crate::record::{FrameEnd, SentAs};
use crate::tally::{Outcomes, Tally};

/// The live line describes the last second.
const WINDOW: Duration = Duration::from_secs(1);
/// Most ends that the window holds: at higher rates it is shorter than a second.
const WINDOW_ENDS_MAX: usize = 20_000;

/// Counts of a run so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) tally: Tally,
    pub(crate) score: Score,
    /// Of all frames, where those that were not answered in time count as found nothing; and of those in time alone.
    pub(crate) detection: MeanF1,
    pub(crate) detection_in_time: MeanF1,
    pub(crate) sent: u64,
    pub(crate) bytes: u64,
    pub(super) history: History,
    /// Answers that match no waiting frame.
    pub(crate) strays: u64,
    /// How often a source, and a server, was lost and found again.
    pub(crate) reconnected: (u64, u64),
    /// Frames of live sources that were not sent, since newer ones had come.
    pub(crate) skipped: u64,
    /// How often a source's clock jumped.
    pub(crate) jumps: u64,
    /// Pictures of sources that did not come, and that came with wrong parts.
    pub(crate) unreadable: (u64, u64),
    /// By the names of their clients.
    pub(crate) by_name: BTreeMap<Arc<str>, Outcomes>,
    /// Total delay of the schedules by the sources.
    slipped: Duration,
    /// Ends of the last second: time, latency if served, whether in time.
    window: VecDeque<(Duration, Option<Duration>, bool)>,
}

/// What was lost and is back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lost {
    Source,
    Server,
}

/// The last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    pub(crate) goodput_per_s: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

impl Counts {
    #[cfg(test)]
    pub(crate) fn of_sent(sent: u64) -> Self {
        Counts {
            sent,
            ..Counts::default()
        }
    }

    /// `now` counts from the start of the run.
    pub(crate) fn recent(&mut self, now: Duration) -> Recent {
        let from = now.saturating_sub(WINDOW);
        while self.window.front().is_some_and(|(ended, ..)| *ended < from) {
            self.window.pop_front();
        }
        let in_time = self.window.iter().filter(|(.., in_time)| *in_time).count();
        let mut latencies: Vec<Duration> = self.window.iter().filter_map(|w| w.1).collect();
        latencies.sort_unstable();
        let quantile = |q: f64| {
            let idx = (latencies.len() as f64 * q) as usize;
            latencies.get(idx).map(|l| l.as_secs_f64() * 1e3)
        };
        let seconds = WINDOW.min(now).as_secs_f64().max(1e-3);
        Recent {
            goodput_per_s: in_time as f64 / seconds,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
        }
    }
}

/// Where results go that are wanted as lines of JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Results<'a> {
    None,
    File(&'a Path),
    /// Line by line. When their reader is gone, the run is over.
    Stdout,
}

/// The results while they are written.
enum Lines {
    Stdout(LineWriter<Stdout>),
    File(BufWriter<Output>),
}

impl Lines {
    fn of(results: Results<'_>) -> Result<Option<Self>> {
        Ok(match results {
            Results::None => None,
            Results::Stdout => Some(Lines::Stdout(LineWriter::new(std::io::stdout()))),
            Results::File(path) => Some(Lines::File(BufWriter::new(Output::begin(path)?))),
        })
    }

    fn add(&mut self, line: &str) -> std::io::Result<()> {
        match self {
            Lines::Stdout(out) => writeln!(out, "{line}"),
            Lines::File(file) => writeln!(file, "{line}"),
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Lines::Stdout(mut out) => Ok(out.flush()?),
            Lines::File(file) => {
                let file = file.into_inner().map_err(IntoInnerError::into_error)?;
                Ok(file.finish()?)
            }
        }
    }
}

/// Shared by the clients of a run.
pub(crate) struct Board {
    counts: Mutex<Counts>,
    /// None where none are wanted, and once they are complete or could not be written.
    results: Mutex<Option<Lines>>,
    /// Why the results could not be written.
    unwritten: Mutex<Option<anyhow::Error>>,
    /// The picture of the run, where one is wanted.
    pub(super) plot: Option<Plot>,
    pub(crate) screen: Screen,
    verbose: bool,
    /// Cancelled when nobody gets the results.
    unread: CancellationToken,
    /// When the run started.
    started: OnceLock<SystemTime>,
}

impl Board {
    /// `unread` is cancelled when the results cannot be written, or their reader has gone.
    pub(crate) fn new(
        results: Results<'_>,
        plot: Option<Plot>,
        screen: Screen,
        verbose: bool,
        unread: CancellationToken,
    ) -> Result<Self> {
        Ok(Board {
            counts: Mutex::default(),
            results: Mutex::new(Lines::of(results)?),
            unwritten: Mutex::default(),
            plot,
            screen,
            verbose,
            unread,
            started: OnceLock::new(),
        })
    }

    /// Times of frames count from this one on.
    pub(crate) fn starts(&self, at: SystemTime) {
        self.started.get_or_init(|| at);
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        // A client that panicked while counting left whole numbers behind.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame left, at this time from the start of the run.
    pub(crate) fn sent(&self, at: Duration, bytes: usize, sent_as: SentAs) {
        let mut counts = self.counts();
        counts.history.add(at, sent_as);
        counts.sent += 1;
        counts.bytes += bytes as u64;
    }

    /// An answer came to a frame that waits for none.
    pub(crate) fn stray(&self) {
        self.counts().strays += 1;
    }

    /// A source delayed its schedule.
    pub(crate) fn slipped(&self, by: Duration) {
        self.counts().slipped += by;
    }

    /// What was lost is there again.
    pub(crate) fn reconnected(&self, what: Lost) {
        let mut counts = self.counts();
        match what {
            Lost::Source => counts.reconnected.0 += 1,
            Lost::Server => counts.reconnected.1 += 1,
        }
    }

    /// Counts at a time since the start of the run, for [`super::pace`].
    pub(crate) fn sample(&self, at: Duration) -> Sample {
        let counts = self.counts();
        let outcomes = &counts.tally.outcomes;
        Sample {
            at,
            slipped: counts.slipped,
            judged: outcomes.total() - outcomes.failed,
            in_time: outcomes.completed,
        }
    }

    /// A frame ended: once for each.
    pub(crate) fn ended(&self, end: &FrameEnd, truth: Option<&GroundTruth>) {
        let outcome = end.result.outcome();
        let served = matches!(outcome, Outcome::Completed | Outcome::Late);
        let in_time = outcome == Outcome::Completed;
        // Emulated devices answer something: there is nothing to judge.
        let truth = truth.filter(|_| !end.result.emulated);
        let findings = truth.filter(|_| served);
        let findings = findings.map(|_| Shown::from_outputs(&end.result.outputs).findings());
        let detection = truth.map(|truth| {
            let nothing = Findings::default();
            let useful = findings.as_ref().filter(|_| in_time);
            let mut detection = MeanF1::default();
            detection.add_frame(truth, useful.unwrap_or(&nothing));
            detection
        });
        {
            let mut counts = self.counts();
            counts.tally.count(&end.result, end.latency());
            match counts.by_name.get_mut(&end.name) {
                Some(of_name) => of_name.count(outcome),
                None => counts
                    .by_name
                    .entry(end.name.clone())
                    .or_default()
                    .count(outcome),
            }
            if let (Some(truth), Some(findings)) = (truth, &findings) {
                counts.score.add_frame(truth, findings, IOU);
            }
            if let Some(detection) = &detection {
                counts.detection.add(detection);
                if in_time {
                    counts.detection_in_time.add(detection);
                }
            }
            if counts.window.len() == WINDOW_ENDS_MAX {
                counts.window.pop_front();
            }
            let latency = served.then(|| end.latency());
            counts.window.push_back((end.ended, latency, in_time));
        }
        if let Some(plot) = &self.plot {
            plot.ended(end);
        }
        let started = *self.started.get_or_init(SystemTime::now);
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = &mut *results
            && let Err(error) = lines.add(&end.to_json_line(started, detection.as_ref()))
        {
            *results = None;
            self.stop_for(error.into());
        }
        drop(results);
        if self.verbose {
            self.screen.line(&super::screen::result_line(end));
        }
    }

    /// Completes the results.
    ///
    /// # Errors
    /// When they could not be written, at whatever time.
    pub(crate) fn finish_results(&self) -> Result<()> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = results.take().map(Lines::finish) {
            self.stop_for(error);
        }
        let mut unwritten = self
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unwritten
            .take()
            .map_or(Ok(()), Err)
            .context("cannot write the results")
    }

    /// Nobody gets the results, so the run ends. Frames that are not read any more were streamed for nothing: that is an error.
    fn stop_for(&self, error: anyhow::Error) {
        let mut unwritten = self
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unwritten.get_or_insert(error);
        self.unread.cancel();
    }
}
