//! Arrival times of requests: a rate that jumps from second to second, and exact times, the same for the server and the
//! simulator.

use std::fmt::Write as _;

/// Standard deviation of a second's rate over the mean.
const SPREAD: f64 = 0.3;
/// No second is quieter, as a part of the mean.
const LOWEST: f64 = 0.1;
/// Distances below this are lost in writing.
const TICK: f64 = 1e-6;

/// SplitMix64: enough for loads, and the same on every machine.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// From 0, which is possible, to 1, which is not.
    pub(super) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / 2f64.powi(53)
    }

    /// Close to a standard normal variable.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// Each second's rate over the mean; their own mean is one.
pub(super) fn shape(seconds: usize, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let raw: Vec<f64> = (0..seconds)
        .map(|_| (1.0 + SPREAD * random.normal()).max(LOWEST))
        .collect();
    let mean = raw.iter().sum::<f64>() / raw.len() as f64;
    raw.iter().map(|rate| rate / mean).collect()
}

/// Standard deviation over mean.
pub(super) fn variation(shape: &[f64]) -> f64 {
    let n = shape.len() as f64;
    let mean = shape.iter().sum::<f64>() / n;
    let variance = shape.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    variance.sqrt() / mean
}

/// Times of a Poisson process whose rate is `mean` times the shape, in whole microseconds.
pub(super) fn times(shape: &[f64], mean: f64, seed: u64) -> Vec<f64> {
    // Not the numbers that made the shape.
    let mut random = Random::new(seed ^ 0x5eed_0000_0000_0000);
    let mut times: Vec<f64> = Vec::new();
    for (second, factor) in shape.iter().enumerate() {
        let mut at = second as f64;
        loop {
            at -= (1.0 - random.uniform()).ln() / (mean * factor);
            if at >= second as f64 + 1.0 {
                break;
            }
            let rounded = (at / TICK).round() * TICK;
            if times.last().is_none_or(|last| rounded > last + TICK / 2.0) {
                times.push(rounded);
            }
        }
    }
    times
}

/// A time a line, as `simulate --arrivals` reads them.
pub(super) fn lines(times: &[f64]) -> String {
    times.iter().fold(String::new(), |mut text, time| {
        let _ = writeln!(text, "{time:.6}");
        text
    })
}

/// The same as `bench --trace` reads it: a span for each distance, with the rate at which just one request comes
/// in it. Without `--poisson` requests leave at exactly those times.
pub(super) fn trace(times: &[f64], seconds: f64) -> String {
    let mut text = String::from("second,rate\n");
    if times.first().is_some_and(|first| *first > 0.0) {
        text.push_str("0,0\n");
    }
    // As written, so that the span that is read back is the one that the rate was made for.
    let written: Vec<String> = times.iter().map(|time| format!("{time:.6}")).collect();
    let read: Vec<f64> = written
        .iter()
        .map(|time| time.parse().expect("a number was written"))
        .collect();
    for (idx, time) in written.iter().enumerate() {
        // The last one has the rest, and at least as much as keeps the lines in order.
        let end = read
            .get(idx + 1)
            .copied()
            .unwrap_or_else(|| seconds.max(read[idx] + TICK));
        let _ = writeln!(text, "{time},{}", 1.0 / (end - read[idx]));
    }
    if let Some(last) = read.last() {
        let _ = writeln!(text, "{:.6},0", seconds.max(last + TICK));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_has_its_mean_and_spread_and_depends_on_the_seed_only() {
        let shape = shape(2_000, 1);
        assert!((shape.iter().sum::<f64>() / 2_000.0 - 1.0).abs() < 1e-9);
        let variation = variation(&shape);
        assert!((0.27..0.33).contains(&variation), "{variation}");
        assert_eq!(shape, super::shape(2_000, 1));
        assert_ne!(shape, super::shape(2_000, 2));
    }

    #[test]
    fn times_follow_the_shape() {
        let times = times(&[0.5, 1.5], 10_000.0, 3);
        assert!(times.is_sorted_by(|a, b| a < b) && times[times.len() - 1] <= 2.0);
        let first = times.iter().filter(|time| **time < 1.0).count();
        assert!((4_700..5_300).contains(&first), "{first}");
        let rest = times.len() - first;
        assert!((14_400..15_600).contains(&rest), "{rest}");
    }

    #[test]
    fn both_files_tell_the_same_times() {
        let times = [0.25, 0.5, 1.75];
        assert_eq!(lines(&times), "0.250000\n0.500000\n1.750000\n");
        assert_eq!(
            trace(&times, 2.0),
            "second,rate\n0,0\n0.250000,4\n0.500000,0.8\n1.750000,4\n2.000000,0\n"
        );
    }

    /// Every span, as it is read back, holds one request: what `bench` sends does not drift from the times.
    #[test]
    fn spans_hold_one_request_each() {
        let times = times(&shape(5, 1), 1_000.0, 1);
        let text = trace(&times, 5.0);
        let rows: Vec<(f64, f64)> = text
            .lines()
            .skip(1)
            .map(|line| {
                let (at, rate) = line.split_once(',').unwrap();
                (at.parse().unwrap(), rate.parse().unwrap())
            })
            .collect();
        let spans = rows.windows(2).filter(|pair| pair[0].1 > 0.0);
        let held: Vec<f64> = spans
            .map(|pair| (pair[1].0 - pair[0].0) * pair[0].1)
            .collect();
        assert_eq!(held.len(), times.len());
        assert!(held.iter().all(|n| (n - 1.0).abs() < 1e-9));
    }
}
