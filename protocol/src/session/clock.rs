//! The offset of a peer's clock, from heartbeats and their answers.
//!
//! A heartbeat and its answer give four timestamps: sent (t1, my clock), received and answered (t2, t3, the peer's clock),
//! answer received (t4, my clock). Offset and round trip are, as in RFC 5905 section 8,
//!
//! ```text
//! offset = ((t2 - t1) + (t3 - t4)) / 2        round trip = (t4 - t1) - (t3 - t2)
//! ```
//!
//! The true offset at that time is within half the round trip of this one, whatever the two delays are. Of the last 8
//! samples the best counts, as in NTP's clock filter (section 10). The best is the one with the least error bound: half its round
//! trip plus the drift since. (The filter's text sorts by the round trip alone; samples here may be a second apart, and
//! local round trips are shorter than the drift of a few seconds.) The best offsets are averaged.
//!
//! Limit: where one direction takes longer than the other by nature, the offset is wrong by half the difference. No exchange of
//! timestamps can see this. The error bound covers it.

use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

/// Samples that the filter chooses from, as in RFC 5905.
pub(crate) const SAMPLES: usize = 8;

/// Heartbeats whose answers are waited for. More are under way only if a round trip takes longer than the death
/// time; the oldest is forgotten.
pub(crate) const UNANSWERED_MAX: usize = 16;

/// Best offsets that are averaged: 4 to 8 s of heartbeats. A longer average would lag behind clocks that drift.
const AVERAGED: i128 = 16;

/// Most drift between two clocks: 200 ppm, each 100 ppm. Quartz clocks have 50 ppm or less.
const DRIFT_PER: u64 = 5_000;

/// Error by rounding to nanoseconds.
const ROUNDING_NS: u64 = 2;

/// The latest timestamp that is believed. Later ones (292 years) come from broken clocks only, and differences of those that
/// remain fit into an `i64`.
const TIMESTAMP_MAX: Timestamp = Timestamp::from_ns(i64::MAX as u64);

/// The difference of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The peer's clock minus mine, in nanoseconds.
    pub ns: i64,
    /// The true offset is within this of `ns`, if no clock leaps or drifts by more than 100 ppm.
    pub error: Duration,
}

/// The timestamps of a heartbeat's answer, as the peer sent them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When the heartbeat was sent, by the clock of its sender (t1).
    pub heartbeat_sent_at: Timestamp,
    /// When it was received, by the clock of its receiver (t2).
    pub received_at: Timestamp,
    /// When it was answered, by the same clock (t3).
    pub sent_at: Timestamp,
}

/// What is known of a peer's clock.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// When the unanswered heartbeats were sent.
    unanswered: [Option<Timestamp>; UNANSWERED_MAX],
    next_unanswered: usize,
    samples: [Option<Sample>; SAMPLES],
    next_sample: usize,
    estimate: Option<Estimate>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The peer's clock minus mine, in nanoseconds.
    offset: i64,
    round_trip: Duration,
    /// When the heartbeat was sent.
    at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    best: Sample,
    /// The average of the best offsets, in nanoseconds.
    offset: i64,
    /// Offsets in the average, at most `AVERAGED`.
    n_averaged: i128,
}

impl Clock {
    /// A heartbeat is sent.
    pub(super) fn heartbeat(&mut self, now: Timestamp) {
        self.unanswered[self.next_unanswered] = Some(now);
        self.next_unanswered = (self.next_unanswered + 1) % UNANSWERED_MAX;
    }

    /// When the oldest heartbeat was sent that is not answered.
    pub(super) fn unanswered_since(&self) -> Option<Timestamp> {
        self.unanswered.iter().flatten().min().copied()
    }

    /// An answer came. An answer to no heartbeat, and one with impossible timestamps, changes nothing.
    pub(super) fn answered(&mut self, now: Timestamp, answer: Answer) {
        let sent_at = Some(answer.heartbeat_sent_at);
        let Some(heartbeat) = self.unanswered.iter_mut().find(|h| **h == sent_at) else {
            return;
        };
        *heartbeat = None;
        let Some(sample) = Sample::of(now, answer) else {
            return;
        };
        self.samples[self.next_sample] = Some(sample);
        self.next_sample = (self.next_sample + 1) % SAMPLES;
        let samples = self.samples.iter().flatten();
        // `error` grows equally for all samples, so the best stays the best until the next one comes.
        let best = samples.min_by_key(|s| (s.error(now), s.at)).copied();
        self.estimate = best.map(|best| match self.estimate {
            Some(estimate) => estimate.with(now, best),
            None => Estimate {
                best,
                offset: best.offset,
                n_averaged: 1,
            },
        });
    }

    /// The peer's clock minus mine; `None` before the first answer.
    pub(super) fn offset(&self, now: Timestamp) -> Option<Offset> {
        let Estimate { best, offset, .. } = self.estimate?;
        let error_ns = best.error(now).saturating_add(best.offset.abs_diff(offset));
        Some(Offset {
            ns: offset,
            error: Duration::from_nanos(error_ns),
        })
    }

    /// A timestamp of the peer's clock in mine, at an end of my clock where it is beyond; `None` before the first answer.
    pub(super) fn to_mine(&self, theirs: Timestamp) -> Option<Timestamp> {
        let ns = i128::from(theirs.as_ns()) - i128::from(self.estimate?.offset);
        let ns = ns.clamp(0, i128::from(u64::MAX));
        Some(Timestamp::from_ns(ns as u64))
    }
}

impl Sample {
    fn of(now: Timestamp, answer: Answer) -> Option<Sample> {
        let Answer {
            heartbeat_sent_at,
            received_at,
            sent_at,
        } = answer;
        let believed = received_at <= sent_at && sent_at <= TIMESTAMP_MAX && now <= TIMESTAMP_MAX;
        if !believed {
            return None;
        }
        let [t1, t2, t3, t4] =
            [heartbeat_sent_at, received_at, sent_at, now].map(|t| i128::from(t.as_ns()));
        let round_trip = u64::try_from((t4 - t1) - (t3 - t2)).ok()?;
        Some(Sample {
            offset: i64::try_from(((t2 - t1) + (t3 - t4)) / 2).ok()?,
            round_trip: Duration::from_nanos(round_trip),
            at: heartbeat_sent_at,
        })
    }

    /// The true offset is within so many nanoseconds of this one.
    fn error(&self, now: Timestamp) -> u64 {
        let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        ns(self.round_trip) / 2 + ns(now.since(self.at)) / DRIFT_PER + ROUNDING_NS
    }
}

impl Estimate {
    /// With one more best sample. The average stays within what this sample proves.
    fn with(self, now: Timestamp, best: Sample) -> Self {
        let n_averaged = (self.n_averaged + 1).min(AVERAGED);
        let [old, new] = [self.offset, best.offset].map(i128::from);
        let error = i128::from(best.error(now));
        let average = old + (new - old) / n_averaged;
        let offset = average
            .clamp(new - error, new + error)
            .clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Estimate {
            best,
            offset: offset as i64,
            n_averaged,
        }
    }
}

#[cfg(test)]
mod tests;
