//! Arrivals from files: traces of requests an interval, windows of them, and exact arrival times. Also synthetic
//! bursty traces, and the windows of the reference workload: nine windows of the kinds of traces that PARD §5.1 uses.
//!
//! The input is text and the output arrival times; the caller reads the files.

mod parse;
mod synthetic;
#[cfg(test)]
mod tests;

use std::fmt;

use rand::Rng;
use spillgate_pipeline::time::Timestamp;

use crate::draw::gap;
pub use parse::{parse_arrivals, parse_trace};
pub use synthetic::Bursty;

/// Largest trace or table that should be read, in bytes: days of arrivals, one a line.
pub const TABLE_BYTES_MAX: usize = 256 << 20;

/// Requests in each interval of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The kind of interval, from the header: `second`, `minute` or `hour`.
    pub unit: &'static str,
    /// Index of the interval and number of requests in it, by rising index. Some may be missing.
    pub rows: Vec<(u64, f64)>,
}

/// A part of a trace, and the speed of its replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Index of its first row.
    pub offset: u64,
    /// Number of rows.
    pub rows: u64,
    /// Seconds in which a row is replayed; its requests spread evenly over them.
    pub seconds_per_row: u32,
}

/// A window of the reference workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceWindow {
    /// Short name of the trace.
    pub trace: &'static str,
    /// Its file.
    pub file: &'static str,
    /// Its 300 s.
    pub window: Window,
}

const fn reference(
    trace: &'static str,
    file: &'static str,
    offset: u64,
    seconds_per_row: u32,
) -> ReferenceWindow {
    let window = Window {
        offset,
        rows: 300 / seconds_per_row as u64,
        seconds_per_row,
    };
    ReferenceWindow {
        trace,
        file,
        window,
    }
}

/// The windows of the reference workload: each 300 s long, scaled to a mean rate of load x bottleneck throughput of the
/// reference plan.
pub const REFERENCE_WINDOWS: [ReferenceWindow; 9] = [
    reference("tweet", "tweet.csv", 5160, 1),
    reference("tweet", "tweet.csv", 12600, 1),
    reference("tweet", "tweet.csv", 4560, 1),
    reference("wiki", "wiki.csv", 29280, 5),
    reference("wiki", "wiki.csv", 29352, 5),
    reference("wiki", "wiki.csv", 29424, 5),
    reference("azure", "azure_400fn.csv", 80, 1),
    reference("azure", "azure_400fn.csv", 240, 1),
    reference("azure", "azure_400fn.csv", 420, 1),
];

/// A problem of a trace, with what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Line of the text, from 1; `None` when it is about the choice of a window or a rate.
    pub line: Option<usize>,
    /// A sentence.
    pub problem: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl std::error::Error for TraceError {}

impl TraceError {
    fn choice(problem: String) -> Self {
        TraceError {
            line: None,
            problem,
        }
    }
}

impl Trace {
    /// The window from the row of index `offset` to the last one (replayed at `seconds_per_row`).
    pub fn window_from(&self, offset: u64, seconds_per_row: u32) -> Window {
        let end = self.rows.last().map_or(0, |(index, _)| index + 1);
        Window {
            offset,
            rows: end.saturating_sub(offset),
            seconds_per_row,
        }
    }

    /// Requests a second in each second of a window. Rows are found by their index, since some may be missing; a
    /// window over a hole would replay another part than its name says.
    ///
    /// # Errors
    /// When a row of the window is missing, or it has none.
    pub fn rates(&self, window: Window) -> Result<Vec<f64>, TraceError> {
        let unit = self.unit;
        let (first, last) = match (self.rows.first(), self.rows.last()) {
            (Some(first), Some(last)) => (first.0, last.0),
            _ => return Err(TraceError::choice("the trace has no rows".to_owned())),
        };
        if window.rows == 0 || window.seconds_per_row == 0 {
            return Err(TraceError::choice(format!(
                "a window from {unit} {} of no length; the trace has {unit}s {first} to {last}",
                window.offset
            )));
        }
        let from = self.rows.partition_point(|row| row.0 < window.offset);
        let mut rates = Vec::new();
        for i in 0..window.rows {
            let index = window.offset.saturating_add(i);
            let row = self.rows.get(from + i as usize);
            let row = row.filter(|row| row.0 == index);
            let Some((_, count)) = row else {
                return Err(TraceError::choice(format!(
                    "the trace has no {unit} {index}; choose a window inside {unit}s {first} to {last} without a hole"
                )));
            };
            let rate = count / f64::from(window.seconds_per_row);
            rates.extend((0..window.seconds_per_row).map(|_| rate));
        }
        Ok(rates)
    }
}

/// Scales rates to a mean of `mean` requests a second.
///
/// # Errors
/// When they are all zero, or `mean` is no positive number.
pub fn scaled(rates: &[f64], mean: f64) -> Result<Vec<f64>, TraceError> {
    if !(mean.is_finite() && mean > 0.0) {
        let problem = format!("a mean rate of {mean} requests a second; it must be above 0");
        return Err(TraceError::choice(problem));
    }
    let now = rates.iter().sum::<f64>() / rates.len() as f64;
    if now.is_nan() || now <= 0.0 {
        let problem = "a window without requests cannot be scaled to a rate; choose another";
        return Err(TraceError::choice(problem.to_owned()));
    }
    Ok(rates.iter().map(|rate| rate * mean / now).collect())
}

/// Arrival times, in order, of a Poisson process with that rate in each second: the number of arrivals in a second
/// is Poisson and their times are uniform in it. Drawn as exponential gaps, which is the same and comes sorted.
pub fn poisson_arrivals(rates: &[f64], rng: &mut impl Rng) -> Vec<Timestamp> {
    let mut times = Vec::with_capacity((rates.iter().sum::<f64>() * 1.02) as usize);
    for (second, &rate) in rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
        let mut at = 0.0;
        loop {
            at += gap(rng, rate);
            if at >= 1.0 {
                break;
            }
            times.push(Timestamp::from_ns(
                second as u64 * 1_000_000_000 + (at * 1e9) as u64,
            ));
        }
    }
    times
}
