//! The size of frames and the bandwidth of links over a run, in a few parts of equal length.

use std::time::Duration;

use crate::record::SentAs;

/// Most parts: as many as a line has room for. When there are more, each two become one.
const PARTS_MAX: usize = 10;
/// Length of the first parts.
const SHORTEST: Duration = Duration::from_secs(1);

/// Sums over a part of the run.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    frames: u32,
    sides: f64,
    /// Frames with a known bandwidth.
    measured: u32,
    /// Seconds that each of those took for a bit: times add up.
    paths: f64,
}

impl Part {
    fn add(&mut self, other: Part) {
        self.frames += other.frames;
        self.sides += other.sides;
        self.measured += other.measured;
        self.paths += other.paths;
    }
}

/// A part of the run, in means over all clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) from: Duration,
    /// Pixels of the longer side.
    pub(super) side: Option<f64>,
    /// Bits a second.
    pub(super) bandwidth: Option<f64>,
}

/// The parts of a run.
#[derive(Clone, Debug)]
pub(super) struct History {
    length: Duration,
    parts: Vec<Part>,
    latest: SentAs,
}

impl Default for History {
    fn default() -> Self {
        History {
            length: SHORTEST,
            parts: Vec::new(),
            latest: SentAs::default(),
        }
    }
}

impl History {
    /// A frame was sent at this time from the start of the run.
    pub(super) fn add(&mut self, at: Duration, sent: SentAs) {
        self.latest = sent;
        while at.as_nanos() / self.length.as_nanos() >= PARTS_MAX as u128 {
            self.length *= 2;
            let halves = std::mem::take(&mut self.parts);
            for pair in halves.chunks(2) {
                let mut both = Part::default();
                pair.iter().for_each(|half| both.add(*half));
                self.parts.push(both);
            }
        }
        let part = (at.as_nanos() / self.length.as_nanos()) as usize;
        if self.parts.len() <= part {
            self.parts.resize(part + 1, Part::default());
        }
        self.parts[part].add(Part {
            frames: u32::from(sent.side.is_some()),
            sides: sent.side.map_or(0.0, f64::from),
            measured: u32::from(sent.bandwidth.is_some()),
            paths: sent.bandwidth.map_or(0.0, |bandwidth| 1.0 / bandwidth),
        });
    }

    /// How the newest frame was sent.
    pub(super) fn latest(&self) -> SentAs {
        self.latest
    }

    /// The parts in order; none where no client knew its link.
    pub(super) fn means(&self) -> Vec<Mean> {
        if self.parts.iter().all(|part| part.measured == 0) {
            return Vec::new();
        }
        let mean = |sum: f64, n: u32| (n > 0).then(|| sum / f64::from(n));
        (0..)
            .zip(&self.parts)
            .map(|(n, part)| Mean {
                from: self.length * n,
                side: mean(part.sides, part.frames),
                bandwidth: mean(part.paths, part.measured).map(f64::recip),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(side: u32, bandwidth: f64) -> SentAs {
        SentAs {
            side: Some(side),
            bytes: None,
            bandwidth: Some(bandwidth),
        }
    }

    #[test]
    fn parts_become_longer_with_the_run() {
        let mut history = History::default();
        assert!(history.means().is_empty());
        for second in 0..35 {
            let side = if second < 16 { 640 } else { 320 };
            let bandwidth = if second % 2 == 0 { 1e6 } else { 4e6 };
            history.add(Duration::from_secs(second), sent(side, bandwidth));
        }
        let means = history.means();
        let sides: Vec<f64> = means.iter().filter_map(|m| m.side).collect();
        assert_eq!(
            sides,
            [
                640.0, 640.0, 640.0, 640.0, 320.0, 320.0, 320.0, 320.0, 320.0
            ]
        );
        assert_eq!(means[4].from, Duration::from_secs(16));
        assert_eq!(means[4].bandwidth.map(f64::round), Some(1.6e6));
        // A run of days has as many.
        history.add(Duration::from_secs(1 << 20), sent(640, 1e6));
        assert!(history.means().len() <= PARTS_MAX);
    }

    #[test]
    fn where_no_link_is_known_nothing_is_told() {
        let mut history = History::default();
        let side = Some(640);
        history.add(
            Duration::ZERO,
            SentAs {
                side,
                ..SentAs::default()
            },
        );
        assert!(history.means().is_empty());
        assert_eq!(history.latest().side, side);
    }
}
