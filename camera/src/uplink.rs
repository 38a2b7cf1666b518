//! What a camera knows of its link to the server: bandwidth, round trip, and the difference of the clocks.
//!
//! Bandwidth comes from acknowledgements: each frame's bits over the time from its first bit leaving to its last one coming, less half
//! the round trip; and of the last frames the harmonic mean, since it is times that add up (Jellyfish §3.3). Unlike there, a frame came
//! when the server's clock says so, whatever the acknowledgement met on its way; frames count by their bits, as small ones tell less; a
//! frame that had to wait for the one before counts from when that one came; and a frame that is still out counts once it is slower than
//! the others: a link that stands still is noticed before it goes on.
//!
//! The offset of the clocks may be wrong by as much as the ways there and back differ. Half the round trip is then wrong by the same,
//! and the time of a frame is right.

use std::collections::VecDeque;
use std::time::Duration;

use super::{CameraReport, ClockAnswer};
use spillgate_pipeline::time::Timestamp;

/// Frames of which the mean is taken: enough to smooth single ones, few enough to follow a link that changes each second within a part of it.
const FRAMES: usize = 3;
/// Frames that are out and have a place here. More are out only while the link stands still, and the oldest one tells that.
pub(crate) const OUT_MAX: usize = 64;
/// A frame that is out for longer is not waited for: it may be that the server does not acknowledge, though it said that it would.
pub(crate) const OUT_LONGEST: Duration = Duration::from_secs(5);
/// Reports whose answers may still come.
pub(crate) const REPORTS_OUT_MAX: usize = 8;
/// Exchanges of clocks that count: those of about eight seconds, in which a link's queue has been empty once.
pub(crate) const EXCHANGES: usize = 32;
/// Bits a second that are believed: a modem, and more than any network of cameras.
const BANDWIDTH: (f64, f64) = (1e3, 1e11);

/// A frame on its way.
#[derive(Clone, Copy, Debug)]
struct Out {
    number: u64,
    bits: f64,
    sent_at: Timestamp,
}

/// A frame's way.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    bits: f64,
    seconds: f64,
}

/// A report that was answered.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    round_trip: Duration,
    /// Nanoseconds that the server's clock is ahead.
    offset: i128,
}

/// The link, as one stream finds it. Times are the camera's clock, but for those of [`ClockAnswer`].
#[derive(Clone, Debug, Default)]
pub(super) struct UplinkEstimate {
    out: VecDeque<Out>,
    /// Of the last frames.
    paths: VecDeque<Path>,
    reports: VecDeque<Timestamp>,
    exchanges: VecDeque<Exchange>,
    /// When the last frame came.
    came_at: Timestamp,
}

impl UplinkEstimate {
    /// A frame was given to the connection.
    pub(super) fn sent(&mut self, now: Timestamp, number: u64, bytes: usize) {
        let is_waited_for = |out: &Out| now.since(out.sent_at) < OUT_LONGEST;
        while self.out.front().is_some_and(|out| !is_waited_for(out)) {
            self.out.pop_front();
        }
        if self.out.len() < OUT_MAX {
            self.out.push_back(Out {
                number,
                bits: bytes as f64 * 8.0,
                sent_at: now,
            });
        }
    }

    /// The server has a frame since that moment of its clock. Acknowledgements come in the order of the frames.
    pub(super) fn received(&mut self, now: Timestamp, number: u64, clock: Timestamp) {
        let Some(at) = self.out.iter().position(|out| out.number == number) else {
            return;
        };
        let out = self.out[at];
        self.out.drain(..=at);
        let came_at = self.came_at(&out, now, clock);
        if let Some(path) = self.path(&out, came_at) {
            if self.paths.len() == FRAMES {
                self.paths.pop_front();
            }
            self.paths.push_back(path);
        }
        self.came_at = came_at;
    }

    /// When a frame came that is acknowledged now. A server's clock that cannot be is not believed.
    fn came_at(&self, out: &Out, now: Timestamp, clock: Timestamp) -> Timestamp {
        let came = self.best().and_then(|exchange| {
            let ns = i128::from(clock.as_ns()) - exchange.offset;
            Some(Timestamp::from_ns(u64::try_from(ns).ok()?))
        });
        came.filter(|came| (out.sent_at..=now).contains(came))
            .unwrap_or(now - self.round_trip().unwrap_or_default() / 2)
    }

    /// The server answered a frame, so that it has come, and all before it have.
    pub(super) fn came(&mut self, number: u64) {
        if let Some(at) = self.out.iter().position(|out| out.number == number) {
            self.out.drain(..=at);
        }
    }

    /// The way of a frame, if all of it came at that moment.
    fn path(&self, out: &Out, came_at: Timestamp) -> Option<Path> {
        let began = (out.sent_at + self.round_trip()? / 2).max(self.came_at);
        Some(Path {
            bits: out.bits,
            seconds: came_at.since(began).as_secs_f64(),
        })
    }

    /// Bits a second; `None` before the first acknowledgement.
    pub(super) fn bandwidth(&self, now: Timestamp) -> Option<f64> {
        let all = mean(self.paths.iter().copied())?;
        // What came until then would have been acknowledged by now.
        let until = now - self.round_trip()? / 2;
        let waiting = self.out.front().and_then(|out| self.path(out, until));
        let waiting = waiting.filter(|path| path.bits < all * path.seconds);
        match waiting {
            None => Some(all),
            Some(path) => {
                let oldest = usize::from(self.paths.len() == FRAMES);
                mean(self.paths.iter().skip(oldest).copied().chain([path]))
            }
        }
    }

    /// Bits that are out: those that the link has yet to carry, and those whose acknowledgement is on its way.
    pub(super) fn bits_out(&self) -> f64 {
        self.out.iter().map(|out| out.bits).sum()
    }

    /// Those of them that the link has yet to carry, by its bandwidth. Of what it should have carried only the first frame, and what comes
    /// while an acknowledgement is on its way, are taken for carried.
    pub(super) fn bits_waiting(&self, now: Timestamp) -> f64 {
        let known = self.bandwidth(now).zip(self.round_trip());
        let (Some((bandwidth, round_trip)), Some(first)) = (known, self.out.front()) else {
            return self.bits_out();
        };
        let began = first.sent_at.max(self.came_at - round_trip / 2);
        let should = bandwidth * now.since(began).as_secs_f64();
        let carried = should.min(first.bits + bandwidth * round_trip.as_secs_f64());
        (self.bits_out() - carried).max(0.0)
    }

    /// How long a frame that is sent now waits until the others have come, as far as that is known.
    pub(super) fn waits(&self, now: Timestamp) -> Duration {
        let bandwidth = self.bandwidth(now);
        let seconds = bandwidth.map_or(0.0, |bandwidth| self.bits_out() / bandwidth);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// How long the oldest frame has been out.
    pub(super) fn longest_out(&self, now: Timestamp) -> Duration {
        let outs = self.out.iter().map(|out| now.since(out.sent_at));
        let mut waited_for = outs.skip_while(|span| *span >= OUT_LONGEST);
        waited_for.next().unwrap_or_default()
    }

    /// The report that is due, with this clock.
    pub(super) fn report(&mut self, now: Timestamp) -> CameraReport {
        if self.reports.len() == REPORTS_OUT_MAX {
            self.reports.pop_front();
        }
        self.reports.push_back(now);
        CameraReport {
            clock: now,
            bandwidth: self.bandwidth(now),
            round_trip: self.round_trip(),
        }
    }

    /// The server answered a report. What is no answer to one of the last reports, or cannot be, is not believed.
    pub(super) fn answered(&mut self, now: Timestamp, answer: &ClockAnswer) {
        let of = |report: &Timestamp| *report == answer.reported;
        let Some(at) = self.reports.iter().position(of) else {
            return;
        };
        self.reports.drain(..=at);
        let clocks = [answer.reported, answer.came, answer.written, now];
        let [sent, came, written, back] = clocks.map(|clock| i128::from(clock.as_ns()));
        let Ok(round_trip) = u64::try_from((back - sent) - (written - came)) else {
            return;
        };
        if written < came {
            return;
        }
        if self.exchanges.len() == EXCHANGES {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back(Exchange {
            round_trip: Duration::from_nanos(round_trip),
            offset: ((came - sent) + (written - back)) / 2,
        });
    }

    /// The quickest of the last exchanges: nothing was in its way.
    fn best(&self) -> Option<&Exchange> {
        self.exchanges.iter().min_by_key(|e| e.round_trip)
    }

    /// Time to the server and back; `None` before the first exchange of clocks.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        Some(self.best()?.round_trip)
    }

    /// The server's clock at that moment; `None` before the first exchange of clocks, and before the server's clock began.
    pub(super) fn server_clock(&self, at: Timestamp) -> Option<Timestamp> {
        let clock = u64::try_from(i128::from(at.as_ns()) + self.best()?.offset);
        Some(Timestamp::from_ns(clock.ok()?))
    }
}

/// The harmonic mean of bandwidths, by bits.
fn mean(paths: impl Iterator<Item = Path>) -> Option<f64> {
    let (least, most) = BANDWIDTH;
    let all = paths.fold(Path::default(), |sum, path| Path {
        bits: sum.bits + path.bits,
        seconds: sum.seconds + path.seconds,
    });
    let bandwidth = all.bits / all.seconds.max(all.bits / most);
    (all.bits > 0.0).then(|| bandwidth.max(least))
}

#[cfg(test)]
mod tests;
