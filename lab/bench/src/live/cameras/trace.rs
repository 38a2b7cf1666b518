//! Traces of a link's bandwidth, as clients replay them: read, scaled, and begun at another place.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The synthetic trace of Jellyfish's evaluation: each for the same time.
const SYNTHETIC: [f64; 7] = [20.0, 15.0, 10.0, 7.5, 10.0, 15.0, 20.0];
/// Rows of each of them: clients can begin at so many places.
const ROWS_OF_EACH: usize = 20;
/// The most that a value of it holds, seconds.
const HELD_MAX: f64 = 20.0;
/// The first line of a file.
const HEADER: &str = "second,mbps";

/// Bandwidths, each for the same time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trace {
    /// Seconds of a row.
    row: f64,
    mbps: Vec<f64>,
}

impl Trace {
    /// The synthetic one, whole within so many seconds and the longest of its kind.
    pub(super) fn synthetic(seconds: f64) -> Trace {
        let held = (seconds / SYNTHETIC.len() as f64).min(HELD_MAX);
        let each = |mbps| [mbps; ROWS_OF_EACH];
        Trace {
            row: held / ROWS_OF_EACH as f64,
            mbps: SYNTHETIC.into_iter().flat_map(each).collect(),
        }
    }

    /// Reads a file of the columns second,mbps.
    pub(super) fn read(path: &Path) -> Result<Trace> {
        let text = std::fs::read_to_string(path);
        let trace = text
            .map_err(Into::into)
            .and_then(|text| Trace::parse(&text));
        trace.with_context(|| format!("{} is no trace", path.display()))
    }

    fn parse(text: &str) -> Result<Trace> {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        if lines.next().map(str::trim) != Some(HEADER) {
            bail!("the first line is not {HEADER}");
        }
        let number = |field: &str| -> Option<f64> { field.trim().parse().ok() };
        let row = |line: &str| {
            let (second, mbps) = line.split_once(',')?;
            Some((number(second)?, number(mbps).filter(|mbps| *mbps >= 0.0)?))
        };
        let rows = lines.map(|line| row(line).with_context(|| format!("\"{line}\" is no row")));
        let rows = rows.collect::<Result<Vec<(f64, f64)>>>()?;
        let [(first, _), (second, _), ..] = rows[..] else {
            bail!("it has fewer than two rows");
        };
        let each = second - first;
        let apart = |pair: &[(f64, f64)]| pair[1].0 - pair[0].0;
        // Rows change places when a trace is begun elsewhere, and then each must hold as long.
        if each <= 0.0
            || rows
                .windows(2)
                .any(|pair| (apart(pair) - each).abs() > 1e-6)
        {
            bail!("its rows are not equally far apart");
        }
        let trace = Trace {
            row: each,
            mbps: rows.into_iter().map(|(_, mbps)| mbps).collect(),
        };
        if trace.mean() <= 0.0 {
            bail!("nothing ever passes");
        }
        Ok(trace)
    }

    /// The mean bandwidth, Mbit/s.
    pub(super) fn mean(&self) -> f64 {
        self.mbps.iter().sum::<f64>() / self.mbps.len() as f64
    }

    /// The same with another mean.
    pub(super) fn scaled(&self, mean: f64) -> Trace {
        let factor = mean / self.mean();
        Trace {
            row: self.row,
            mbps: self.mbps.iter().map(|mbps| mbps * factor).collect(),
        }
    }

    /// The same, begun where that part of it has passed, from 0 to 1.
    pub(super) fn begun_at(&self, part: f64) -> Trace {
        let n = self.mbps.len();
        let mut mbps = self.mbps.clone();
        mbps.rotate_left((part * n as f64) as usize % n);
        Trace {
            row: self.row,
            mbps,
        }
    }

    /// As `spillgate stream --link` reads it.
    pub(super) fn csv(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for (n, mbps) in self.mbps.iter().enumerate() {
            let _ = writeln!(text, "{:.6},{mbps:.6}", n as f64 * self.row);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_synthetic_trace_is_whole_in_a_short_run_and_no_slower_in_a_long_one() {
        for (seconds, row) in [(14.0, 0.1), (140.0, 1.0), (600.0, 1.0)] {
            let trace = Trace::synthetic(seconds);
            assert_eq!(trace.mbps.len(), 140);
            assert!((trace.row - row).abs() < 1e-9, "{seconds}: {}", trace.row);
        }
        let mean = Trace::synthetic(60.0).mean();
        assert!((mean - 97.5 / 7.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn a_trace_is_scaled_to_a_mean_and_begun_elsewhere() {
        let trace = Trace::parse("second,mbps\n3,1\n5,2\n7,6\n9,3\n").unwrap();
        assert_eq!((trace.row, trace.mean()), (2.0, 3.0));
        let scaled = trace.scaled(0.6);
        assert!((scaled.mean() - 0.6).abs() < 1e-9);
        let shape = scaled.begun_at(0.5);
        let expected = "second,mbps\n0.000000,1.200000\n2.000000,0.600000\n4.000000,0.200000\n6.000000,0.400000\n";
        assert_eq!(shape.csv(), expected);
        assert_eq!(
            Trace::parse(&shape.csv()).unwrap().begun_at(0.5).csv(),
            scaled.csv()
        );
        assert_eq!(trace.begun_at(0.0), trace);
        // Eight clients begin at eight places.
        let synthetic = Trace::synthetic(14.0);
        let mut begun: Vec<usize> = (0..8)
            .map(|n| (f64::from(n) / 8.0 * synthetic.mbps.len() as f64) as usize)
            .collect();
        begun.dedup();
        assert_eq!(begun.len(), 8);
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for (text, says) in [
            ("second\n0,1\n", "first line"),
            ("second,mbps\n0,1\n", "fewer than two"),
            ("second,mbps\n0,1\n1,x\n", "\"1,x\" is no row"),
            ("second,mbps\n0,1\n1,-1\n", "is no row"),
            ("second,mbps\n0,1\n1,1\n3,1\n", "equally far"),
            ("second,mbps\n0,0\n1,0\n", "nothing"),
        ] {
            let error = Trace::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
