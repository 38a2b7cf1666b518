//! The times of a source's frames, made into one that only grows. A source's clock may jump, wrap or go back: the stream goes on, and that is
//! an event. Pure: the source's times are its input.

use std::time::Duration;

/// A step of the source's clock by more than this is a jump, unless its frames are usually that far apart.
const STEP_MAX: f64 = 10.0;
/// It is usual up to so many times the last step.
const USUAL: f64 = 10.0;
/// The step after a jump, where none was seen yet, in seconds: a usual camera's.
const STEP_FIRST: f64 = 0.04;

/// A jump of the source's clock, in its seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Jump {
    pub(super) from: f64,
    pub(super) to: f64,
}

/// Where the frames of a source lie.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// The last frame's time by the source, and here.
    last: Option<f64>,
    at: f64,
    step: f64,
    has_begun: bool,
}

impl Timeline {
    /// For a source whose frames usually are so far apart, where that is known.
    pub(super) fn new(frames_per_second: Option<f64>) -> Self {
        Timeline {
            last: None,
            at: 0.0,
            step: frames_per_second.map_or(STEP_FIRST, |rate| 1.0 / rate),
            has_begun: false,
        }
    }

    /// The next frame with its time by the source: its time here, from the first frame, and whether the source's clock jumped.
    pub(super) fn next(&mut self, media: Option<f64>) -> (Duration, Option<Jump>) {
        let mut jump = None;
        let step = match (self.last, media) {
            _ if !self.has_begun => 0.0,
            (Some(from), Some(to)) => {
                let step = to - from;
                let most = STEP_MAX.max(USUAL * self.step);
                if (0.0..=most).contains(&step) {
                    // Two frames of one moment say nothing about the next.
                    self.step = if step > 0.0 { step } else { self.step };
                    step
                } else {
                    jump = Some(Jump { from, to });
                    self.step
                }
            }
            _ => self.step,
        };
        self.has_begun = true;
        self.last = media.or_else(|| self.last.map(|last| last + step));
        self.at += step;
        (Duration::from_secs_f64(self.at), jump)
    }

    /// The source begins again: its next frame follows the last one.
    pub(super) fn begins_again(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times in milliseconds, and jumps.
    fn times(rate: Option<f64>, media: &[Option<f64>]) -> (Vec<u128>, Vec<Jump>) {
        let mut line = Timeline::new(rate);
        let mut jumps = Vec::new();
        let times = media.iter().map(|media| {
            let (at, jump) = line.next(*media);
            jumps.extend(jump);
            (at.as_secs_f64() * 1e3).round() as u128
        });
        (times.collect(), jumps)
    }

    #[test]
    fn frames_keep_their_distances() {
        let media = [5.0, 5.5, 5.51, 5.51, 6.0].map(Some);
        assert_eq!(times(None, &media), (vec![0, 500, 510, 510, 1000], vec![]));
        // One in 30 s, as its rate says.
        let slow = [0.0, 30.0, 60.0].map(Some);
        assert_eq!(times(Some(1.0 / 30.0), &slow).0, [0, 30_000, 60_000]);
        let timeless = [Some(1.0), None, Some(1.08), None];
        assert_eq!(times(Some(25.0), &timeless), (vec![0, 40, 80, 120], vec![]));
    }

    #[test]
    fn a_clock_that_jumps_is_an_event_and_time_goes_on() {
        for to in [0.0, 1e6, -95_443.7, 2.0] {
            let media = [3.0, 3.1, to, to + 0.1].map(Some);
            let jump = Jump { from: 3.1, to };
            assert_eq!(
                times(None, &media),
                (vec![0, 100, 200, 300], vec![jump]),
                "{to}"
            );
        }
    }

    #[test]
    fn what_begins_again_goes_on() {
        let mut line = Timeline::new(Some(10.0));
        line.next(Some(7.0));
        line.begins_again();
        assert_eq!(line.next(Some(0.0)), (Duration::from_millis(100), None));
    }
}
