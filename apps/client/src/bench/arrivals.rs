//! When requests are due: at equal distances or by a Poisson process, at a constant rate or along a trace.
//!
//! Arrivals are drawn at rate one and stretched by the integral of the rate. So both kinds follow any trace exactly,
//! and a seed gives the same arrivals at any scale.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A span of constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) seconds: f64,
    pub(crate) rate: f64,
}

/// Due times, counted from the start of the run, in order.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    segments: Vec<Segment>,
    segment: usize,
    /// When the segment starts, and the number of arrivals before it at rate one.
    base_seconds: f64,
    base_arrivals: f64,
    /// The next arrival in the same unit: whole numbers when arrivals are even, so that no rounding adds up.
    next_arrival: f64,
    /// Generator of a Poisson process; `None` for even distances.
    rng: Option<ChaCha8Rng>,
    begun: bool,
}

impl Arrivals {
    /// At equal distances, the first one at once.
    pub(crate) fn even(segments: Vec<Segment>) -> Self {
        Arrivals {
            segments,
            segment: 0,
            base_seconds: 0.0,
            base_arrivals: 0.0,
            next_arrival: 0.0,
            rng: None,
            begun: false,
        }
    }

    /// By a Poisson process.
    pub(crate) fn poisson(segments: Vec<Segment>, seed: u64) -> Self {
        Arrivals {
            rng: Some(ChaCha8Rng::seed_from_u64(seed)),
            ..Self::even(segments)
        }
    }

    /// Length of the whole.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.segments.iter().map(|s| s.seconds).sum())
    }

    /// Until the next arrival, at rate one.
    fn step(&mut self) -> f64 {
        let first = !std::mem::replace(&mut self.begun, true);
        match &mut self.rng {
            Some(rng) => -(1.0 - rng.random::<f64>()).ln(),
            None if first => 0.0,
            None => 1.0,
        }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.next_arrival += self.step();
        loop {
            let Segment { seconds, rate } = *self.segments.get(self.segment)?;
            let into = self.next_arrival - self.base_arrivals;
            if into < seconds * rate {
                return Some(Duration::from_secs_f64(self.base_seconds + into / rate));
            }
            self.base_seconds += seconds;
            self.base_arrivals += seconds * rate;
            self.segment += 1;
        }
    }
}

/// Reads `second,rate` lines: a rate holds from its second on until the next line's. The header `second,rate` may
/// stand above them. `offset` and `duration` cut out a piece; `scale` multiplies the rates.
///
/// This differs from the simulator's reader of traces, whose seconds are whole: here they may be fractions, so that a
/// line for each gap replays exact arrivals (`cargo xtask live`).
pub(crate) fn read_trace(
    path: &Path,
    offset: Duration,
    duration: Option<Duration>,
    scale: f64,
) -> Result<Vec<Segment>> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let segments = parse_trace(&text, scale).with_context(|| format!("{name}"))?;
    let cut = cut(
        &segments,
        offset.as_secs_f64(),
        duration.map_or(f64::MAX, |d| d.as_secs_f64()),
    );
    if cut.iter().all(|s| s.rate == 0.0) {
        bail!(
            "{name}: no requests from second {} on",
            offset.as_secs_f64()
        );
    }
    Ok(cut)
}

fn parse_trace(text: &str, scale: f64) -> Result<Vec<Segment>> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (idx, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields = line.split_once(',').and_then(|(second, rate)| {
            let rate = rate.split(',').next()?;
            Some((
                second.trim().parse::<f64>().ok()?,
                rate.trim().parse::<f64>().ok()?,
            ))
        });
        match fields {
            Some((second, rate)) if second.is_finite() && rate.is_finite() && rate >= 0.0 => {
                if points.last().is_some_and(|last| last.0 >= second) {
                    bail!(
                        "line {}: second {second} is not after the one before",
                        idx + 1
                    );
                }
                points.push((second, rate * scale));
            }
            _ if idx == 0 && line == "second,rate" => {}
            _ => bail!("line {}: \"{line}\" is not second,rate", idx + 1),
        }
    }
    if points.is_empty() {
        bail!("no line of the form second,rate");
    }
    // The last rate holds as long as the one before it.
    let last_gap = match points.as_slice() {
        [.., a, b] => b.0 - a.0,
        _ => 1.0,
    };
    let ends = points
        .iter()
        .skip(1)
        .map(|p| p.0)
        .chain([points[points.len() - 1].0 + last_gap]);
    Ok(points
        .iter()
        .zip(ends)
        .map(|(p, end)| Segment {
            seconds: end - p.0,
            rate: p.1,
        })
        .collect())
}

fn cut(segments: &[Segment], mut offset: f64, mut duration: f64) -> Vec<Segment> {
    let mut piece = Vec::new();
    for segment in segments {
        let skipped = offset.min(segment.seconds);
        offset -= skipped;
        let seconds = (segment.seconds - skipped).min(duration);
        duration -= seconds;
        if seconds > 0.0 {
            piece.push(Segment {
                seconds,
                rate: segment.rate,
            });
        }
    }
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(seconds: f64, rate: f64) -> Vec<Segment> {
        vec![Segment { seconds, rate }]
    }

    #[test]
    fn even_arrivals_keep_their_distance() {
        let due: Vec<Duration> = Arrivals::even(constant(1.0, 4.0)).collect();
        assert_eq!(due, [0, 250, 500, 750].map(Duration::from_millis));
    }

    #[test]
    fn a_trace_is_followed_to_the_second() {
        let segments = parse_trace("second,rate\n0,10\n1,0\n2,40\n", 1.0).unwrap();
        let due: Vec<f64> = Arrivals::even(segments).map(|d| d.as_secs_f64()).collect();
        let within = |from: f64, to: f64| due.iter().filter(|d| (from..to).contains(*d)).count();
        assert_eq!(
            (within(0.0, 1.0), within(1.0, 2.0), within(2.0, 3.0)),
            (10, 0, 40)
        );
        assert!(due.is_sorted());
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread() {
        let due: Vec<f64> = Arrivals::poisson(constant(100.0, 200.0), 3)
            .map(|d| d.as_secs_f64())
            .collect();
        assert!((19_500..20_500).contains(&due.len()), "{}", due.len());
        let gaps: Vec<f64> = due.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let spread = variance.sqrt() / mean;
        assert!((0.95..1.05).contains(&spread), "{spread}");
        let again: Vec<Duration> = Arrivals::poisson(constant(100.0, 200.0), 3).collect();
        assert_eq!(again.len(), due.len());
    }

    #[test]
    fn a_piece_is_cut_out_and_scaled() {
        let segments = parse_trace("0,10\n1,20\n2,30\n3,40\n", 0.5).unwrap();
        assert_eq!(
            cut(&segments, 1.5, 2.0),
            [
                Segment {
                    seconds: 0.5,
                    rate: 10.0
                },
                Segment {
                    seconds: 1.0,
                    rate: 15.0
                },
                Segment {
                    seconds: 0.5,
                    rate: 20.0
                },
            ]
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, says) in [
            ("0,1\nx,2\n", "line 2"),
            ("0,1\n0,2\n", "not after"),
            ("second,rate\n", "no line"),
            ("minute,count\n0,1\n", "line 1"),
            ("0,1\n1,-2\n", "line 2"),
        ] {
            let error = parse_trace(text, 1.0).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
