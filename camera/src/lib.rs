//! What a camera decides that adapts to its link and its server: what it thinks of the link, the size of its frames, and whether a frame
//! is sent at all. The client drives it with real time and the simulator with virtual time.
//!
//! A driver says what happens: frames that it gives to the connection, and what the server says. It reports when that is due, makes frames
//! of [`CameraPolicy::wanted`], and asks [`CameraPolicy::stalls`] before it sends one.
//!
//! Not here: which variant serves the camera and so which size it is asked for, which the server decides.

pub mod bandwidth;
pub mod bounds;
mod density;
mod size;
#[cfg(test)]
mod tests;
mod uplink;

use std::time::Duration;

pub use density::BitDensity;
use size::{SizeChooser, UplinkNow};
use uplink::UplinkEstimate;

use spillgate_pipeline::time::Timestamp;

/// Between two reports: a few a second, as a link changes within seconds.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// What a camera says of its link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CameraReport {
    /// The camera's clock as it left. The server's answer names it.
    pub clock: Timestamp,
    /// Bits a second; `None`: not known yet.
    pub bandwidth: Option<f64>,
    /// Time to the server and back; `None`: not known yet.
    pub round_trip: Option<Duration>,
}

/// The server's answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnswer {
    /// [`CameraReport::clock`].
    pub reported: Timestamp,
    /// The server's clock when the report came.
    pub came: Timestamp,
    /// The server's clock when this left.
    pub written: Timestamp,
}

/// A frame as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CameraFrame {
    /// Frames of a stream are counted.
    pub number: u64,
    /// Width and height of the camera's picture, in pixels; (0, 0): it is no picture.
    pub source: (u32, u32),
    /// The same of the picture that is sent.
    pub size: (u32, u32),
    /// Its bytes.
    pub bytes: usize,
}

/// Decides for one open stream. Times are the camera's clock, which counts from when the stream was opened.
#[derive(Clone, Debug)]
pub struct CameraPolicy {
    link: UplinkEstimate,
    sizes: SizeChooser,
    wanted: Option<u32>,
    reports_at: Timestamp,
    patience: Duration,
}

impl CameraPolicy {
    /// A stream that was opened at time 0. A frame that waits for the link for longer than `patience` is late.
    pub fn new(frames_per_second: f64, patience: Duration) -> Self {
        CameraPolicy {
            link: UplinkEstimate::default(),
            sizes: SizeChooser::new(frames_per_second),
            wanted: None,
            reports_at: Timestamp::ZERO,
            patience,
        }
    }

    /// The longer side in which frames are wanted, in pixels; `None`: as they are.
    pub fn wanted(&self) -> Option<u32> {
        self.wanted
    }

    /// When the next report is due.
    pub fn reports_at(&self) -> Timestamp {
        self.reports_at
    }

    /// The report that is due.
    pub fn report(&mut self, now: Timestamp) -> CameraReport {
        self.reports_at = now + REPORT_EVERY;
        self.link.report(now)
    }

    /// The server answered a report.
    pub fn answered(&mut self, now: Timestamp, answer: &ClockAnswer) {
        self.link.answered(now, answer);
    }

    /// The server asks for frames of this longer side, in pixels; 0: as they are.
    pub fn asked(&mut self, now: Timestamp, side: u32) {
        self.sizes.told(side);
        self.choose(now);
    }

    /// How long frames wait for the link, if that is so long that another one would be late.
    pub fn stalls(&self, now: Timestamp) -> Option<Duration> {
        let longest = self.link.longest_out(now).max(self.link.waits(now));
        (longest > self.patience).then_some(longest)
    }

    /// The connection took a frame.
    pub fn sent(&mut self, now: Timestamp, frame: &CameraFrame) {
        self.link.sent(now, frame.number, frame.bytes);
        self.sizes.made(frame.source, frame.size, frame.bytes);
        self.choose(now);
    }

    /// The server has the frame of that number since that moment of its clock. It says so in the order of the frames.
    pub fn received(&mut self, now: Timestamp, number: u64, came: Timestamp) {
        self.link.received(now, number, came);
        self.choose(now);
    }

    /// The server answered the frame of that number, so that it has come, and all before it have.
    pub fn came(&mut self, number: u64) {
        self.link.came(number);
    }

    /// Bits a second of the link; `None` before the first frame has come.
    pub fn bandwidth(&self, now: Timestamp) -> Option<f64> {
        self.link.bandwidth(now)
    }

    /// The server's clock at that moment; `None` before the first answer to a report, and before the server's clock began.
    pub fn server_clock(&self, at: Timestamp) -> Option<Timestamp> {
        self.link.server_clock(at)
    }

    fn choose(&mut self, now: Timestamp) {
        let link = UplinkNow {
            bandwidth: self.link.bandwidth(now),
            bits_waiting: self.link.bits_waiting(now),
        };
        self.wanted = self.sizes.choose(now, link);
    }
}
