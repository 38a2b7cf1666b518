//! What became of cameras' frames, by the cameras' clocks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// The frames of all cameras, and of each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FramesReport {
    /// Of all together.
    pub all: CameraFigures,
    /// By camera.
    pub each: Vec<CameraFigures>,
}

/// Figures of a camera, or of all together. Frames count that were captured after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CameraFigures {
    /// The camera's name; empty for all.
    pub name: String,
    /// Frames captured.
    pub frames: u64,
    /// Of them without a result in time: not sent, refused, dropped or late.
    pub missed: u64,
    /// missed / frames.
    pub miss_rate: f64,
    /// Frames not sent, as those before them waited for the link.
    pub unsent: u64,
    /// Frames that the gateway refused.
    pub refused: u64,
    /// Frames dropped, or whose worker died.
    pub dropped: u64,
    /// Frames whose result came after their SLO.
    pub late: u64,
    /// Mean longer side of the frames sent, in pixels; 0 of none.
    pub side_mean: f64,
    /// Times that a frame that was sent had another side than the one before.
    pub switches: u64,
    /// Mean accuracy of frames in time, where variants state theirs: of the variant that served a frame, or as much of it as a frame of that side
    /// shows. 0 of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_mean: Option<f64>,
    /// The sum of the same by second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_weighted: Option<f64>,
    /// Time from capture to the result in ms, of frames that have one: p50.
    pub latency_ms_p50: f64,
    /// p99.
    pub latency_ms_p99: f64,
    /// Frames in time, by what was seen of them: the smaller of the sides of the frame and of its variant's input, in pixels.
    pub in_time_by_side: BTreeMap<u32, u64>,
    /// Frames with a result, by the variant that served them.
    pub served: Vec<u64>,
}

/// How a frame ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::world) enum FrameEnd {
    Unsent,
    Refused,
    Dropped,
    /// Its camera has the result.
    Answered {
        latency: Duration,
        in_time: bool,
        variant: usize,
        /// What the variant saw of it, in pixels.
        seen: u32,
        accuracy: f64,
    },
}

/// Gathers the figures of one camera.
#[derive(Clone, Debug, Default)]
pub(super) struct FramesTally {
    pub(super) figures: CameraFigures,
    latencies: Vec<Duration>,
    sides: u64,
    sent: u64,
    last_side: Option<u32>,
    accuracies: f64,
}

impl FramesTally {
    pub(super) fn named(name: &str) -> Self {
        let name = name.to_owned();
        FramesTally {
            figures: CameraFigures {
                name,
                ..CameraFigures::default()
            },
            ..FramesTally::default()
        }
    }

    /// A frame of that longer side was sent.
    pub(super) fn sent(&mut self, side: u32) {
        let before = self.last_side.replace(side);
        self.figures.switches += u64::from(before.is_some_and(|before| before != side));
        self.sides += u64::from(side);
        self.sent += 1;
    }

    pub(super) fn ended(&mut self, end: FrameEnd) {
        let figures = &mut self.figures;
        figures.frames += 1;
        match end {
            FrameEnd::Unsent => figures.unsent += 1,
            FrameEnd::Refused => figures.refused += 1,
            FrameEnd::Dropped => figures.dropped += 1,
            FrameEnd::Answered {
                latency,
                in_time,
                variant,
                seen,
                accuracy,
            } => {
                self.latencies.push(latency);
                if figures.served.len() <= variant {
                    figures.served.resize(variant + 1, 0);
                }
                figures.served[variant] += 1;
                match in_time {
                    true => {
                        self.accuracies += accuracy;
                        *figures.in_time_by_side.entry(seen).or_default() += 1;
                    }
                    false => figures.late += 1,
                }
            }
        }
    }

    fn add(&mut self, other: &FramesTally) {
        let (all, one) = (&mut self.figures, &other.figures);
        all.frames += one.frames;
        all.unsent += one.unsent;
        all.refused += one.refused;
        all.dropped += one.dropped;
        all.late += one.late;
        all.switches += one.switches;
        for (side, n) in &one.in_time_by_side {
            *all.in_time_by_side.entry(*side).or_default() += n;
        }
        let n_variants = all.served.len().max(one.served.len());
        all.served.resize(n_variants, 0);
        for (all, n) in all.served.iter_mut().zip(&one.served) {
            *all += n;
        }
        self.latencies.extend(&other.latencies);
        self.sides += other.sides;
        self.sent += other.sent;
        self.accuracies += other.accuracies;
    }

    fn finish(mut self, states_accuracy: bool, reported: Duration) -> CameraFigures {
        let mut figures = self.figures;
        let mean = |sum: f64, n: u64| if n == 0 { 0.0 } else { sum / n as f64 };
        figures.missed = figures.unsent + figures.refused + figures.dropped + figures.late;
        figures.miss_rate = mean(figures.missed as f64, figures.frames);
        figures.side_mean = mean(self.sides as f64, self.sent);
        let in_time = figures.frames - figures.missed;
        figures.accuracy_mean = states_accuracy.then(|| mean(self.accuracies, in_time));
        let seconds = reported.as_secs_f64();
        figures.goodput_weighted =
            (states_accuracy && seconds > 0.0).then(|| self.accuracies / seconds);
        self.latencies.sort_unstable();
        let quantile = |q: f64| {
            let rank = (q * self.latencies.len() as f64).ceil() as usize;
            let latency = self.latencies.get(rank.max(1) - 1);
            latency.map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        figures.latency_ms_p50 = quantile(0.5);
        figures.latency_ms_p99 = quantile(0.99);
        figures
    }
}

/// The report of those cameras over that time; `None` of none.
pub(super) fn report(
    tallies: Vec<FramesTally>,
    states_accuracy: bool,
    reported: Duration,
) -> Option<FramesReport> {
    if tallies.is_empty() {
        return None;
    }
    let mut all = FramesTally::default();
    tallies.iter().for_each(|one| all.add(one));
    let finish = |one: FramesTally| one.finish(states_accuracy, reported);
    Some(FramesReport {
        all: finish(all),
        each: tallies.into_iter().map(finish).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(ms: u64, in_time: bool) -> FrameEnd {
        FrameEnd::Answered {
            latency: Duration::from_millis(ms),
            in_time,
            variant: 1,
            seen: 320,
            accuracy: 0.8,
        }
    }

    #[test]
    fn each_frame_counts_once_and_all_is_the_sum() {
        let mut near = FramesTally::named("near");
        [320, 320, 256, 320]
            .into_iter()
            .for_each(|side| near.sent(side));
        near.ended(answered(20, true));
        near.ended(answered(40, true));
        near.ended(answered(300, false));
        near.ended(FrameEnd::Dropped);
        let mut far = FramesTally::named("far");
        far.ended(FrameEnd::Unsent);
        far.ended(FrameEnd::Refused);
        let report = report(vec![near, far], true, Duration::from_secs(2)).unwrap();
        let near = &report.each[0];
        assert_eq!((near.frames, near.missed, near.switches), (4, 2, 2));
        assert_eq!((near.latency_ms_p50, near.latency_ms_p99), (40.0, 300.0));
        assert_eq!(near.side_mean, 304.0);
        assert_eq!(report.each[1].miss_rate, 1.0);
        assert_eq!(report.each[1].accuracy_mean, Some(0.0));
        let all = &report.all;
        assert_eq!((all.frames, all.missed), (6, 4));
        assert_eq!(
            [all.unsent, all.refused, all.dropped, all.late],
            [1, 1, 1, 1]
        );
        assert_eq!(
            (all.accuracy_mean, all.goodput_weighted),
            (Some(0.8), Some(0.8))
        );
        assert_eq!((all.in_time_by_side[&320], &all.served), (2, &vec![0, 3]));
    }
}
