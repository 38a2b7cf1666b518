//! Detects whether the source and the server keep up with the rate, and reports changes. Pure: counts are its input.

use std::collections::VecDeque;
use std::time::Duration;

/// The window of the judgement: one slow frame does not matter in it, and reports are still recent.
const WINDOW: Duration = Duration::from_secs(3);
/// Least answers in the window for a judgement about the server.
const ANSWERS_MIN: u64 = 5;
/// Below this share of the rate, or of answers in time, a side does not keep up.
const SLOW_BELOW: f64 = 0.9;
/// From this share on it keeps up again. It is above the other, so that reports do not alternate.
const WELL_FROM: f64 = 0.97;

/// Counts since the start of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Time of the counts, from the start of the run.
    pub(super) at: Duration,
    /// Total delay of the schedules by the sources, over all clients.
    pub(super) slipped: Duration,
    /// Frames that ended at the server: completed, late, dropped or refused.
    pub(super) judged: u64,
    /// Frames answered in time.
    pub(super) in_time: u64,
}

/// Judges a run each second.
#[derive(Debug)]
pub(super) struct Pace {
    frames_per_second: f64,
    clients: usize,
    window: VecDeque<Sample>,
    source_slow: bool,
    server_slow: bool,
}

impl Pace {
    /// For clients with this rate each.
    pub(super) fn new(frames_per_second: f64, clients: usize) -> Self {
        Pace {
            frames_per_second,
            clients,
            window: VecDeque::from([Sample::default()]),
            source_slow: false,
            server_slow: false,
        }
    }

    /// The report that is due now, if any.
    pub(super) fn judge(&mut self, now: Sample) -> Vec<String> {
        self.window.push_back(now);
        while self
            .window
            .get(1)
            .is_some_and(|s| now.at.saturating_sub(s.at) >= WINDOW)
        {
            self.window.pop_front();
        }
        let mut says = Vec::new();
        let Some(first) = self.window.front().copied() else {
            return says;
        };
        let seconds = now.at.saturating_sub(first.at).as_secs_f64();
        if seconds < WINDOW.as_secs_f64() {
            return says;
        }
        let slipped = now.slipped.saturating_sub(first.slipped).as_secs_f64();
        let behind = slipped / (seconds * self.clients.max(1) as f64);
        let rate = self.frames_per_second;
        if turned(&mut self.source_slow, 1.0 - behind) {
            says.push(if self.source_slow {
                let comes = rate * (1.0 - behind).max(0.0);
                format!("the source is slow: {comes:.1} of {rate:.1} frames/s come from it")
            } else {
                format!("the source keeps up again: {rate:.1} frames/s")
            });
        }
        let judged = now.judged.saturating_sub(first.judged);
        let in_time = now.in_time.saturating_sub(first.in_time);
        if judged >= ANSWERS_MIN && turned(&mut self.server_slow, in_time as f64 / judged as f64) {
            let (in_time, judged) = (in_time as f64 / seconds, judged as f64 / seconds);
            says.push(if self.server_slow {
                format!(
                    "the server does not keep up: {in_time:.1} of {judged:.1} frames/s are in time"
                )
            } else {
                format!("the server keeps up again: {in_time:.1} frames/s are in time")
            });
        }
        says
    }
}

/// Whether `slow` changes with this share.
fn turned(slow: &mut bool, share: f64) -> bool {
    let now = if *slow {
        share < WELL_FROM
    } else {
        share < SLOW_BELOW
    };
    std::mem::replace(slow, now) != now
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges seconds of (slipped in ms, answers, of them in time); what was said, with the second.
    fn judge(seconds: &[(u64, u64, u64)]) -> Vec<String> {
        let mut pace = Pace::new(25.0, 1);
        let mut sample = Sample::default();
        let mut said = Vec::new();
        for (second, (slipped_ms, judged, in_time)) in seconds.iter().enumerate() {
            sample.at += Duration::from_secs(1);
            sample.slipped += Duration::from_millis(*slipped_ms);
            sample.judged += judged;
            sample.in_time += in_time;
            said.extend(
                pace.judge(sample)
                    .into_iter()
                    .map(|s| format!("{}s {s}", second + 1)),
            );
        }
        said
    }

    #[test]
    fn who_keeps_up_is_not_mentioned() {
        assert!(judge(&[(0, 25, 25); 20]).is_empty());
        assert!(judge(&[(0, 0, 0); 20]).is_empty());
    }

    #[test]
    fn a_slow_source_is_told_while_it_is_slow_and_once() {
        let mut seconds = vec![(500, 12, 12); 6];
        seconds.extend([(0, 25, 25); 6]);
        assert_eq!(
            judge(&seconds),
            [
                "3s the source is slow: 12.5 of 25.0 frames/s come from it",
                "9s the source keeps up again: 25.0 frames/s",
            ]
        );
    }

    #[test]
    fn a_slow_server_is_told_while_it_is_slow_and_once() {
        let mut seconds = vec![(0, 25, 10); 6];
        seconds.extend([(0, 25, 25); 6]);
        assert_eq!(
            judge(&seconds),
            [
                "3s the server does not keep up: 10.0 of 25.0 frames/s are in time",
                "9s the server keeps up again: 25.0 frames/s are in time",
            ]
        );
    }
}
