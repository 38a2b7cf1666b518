//! The video client of Spillgate, and its load generator. The `spillgate` binary calls [`stream::run_until`] and
//! [`bench::run_until`]; everything else here serves those two.
//!
//! | module | has |
//! |---|---|
//! | [`source`] | pictures from a video file, a camera, a folder, a pipe, a synthetic scene |
//! | [`encode`] | pictures to JPEG |
//! | [`stream`] | frames at a given rate over `Stream`, live view, closing summary |
//! | [`annotate`], [`video`] | results drawn into pictures; pictures to an MP4 file |
//! | [`mod@bench`] | load at exact times, latencies free of coordinated omission |
//! | [`tally`] | how requests ended, counted for both |
//!
//! This crate makes no decisions about serving: it sends what it is told to send, when it is told to, and reports the
//! answers. It knows no model and no policy.

use std::io::Write;

use spillgate_pipeline::printable::printable;

pub mod annotate;
pub mod bench;
pub mod bounds;
pub mod connect;
pub mod encode;
pub mod findings;
mod models;
mod picture;
pub mod record;
mod report;
mod resize;
pub mod source;
pub mod stream;
pub mod tally;
pub mod video;

/// Writes a text to standard output, without what a terminal would obey. A reader that stops early, such as `head`, is not an error.
///
/// # Errors
/// When it cannot be written.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let text = printable(text);
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The result of a run after its summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitSummary {
    /// Requests that were sent, or were due and could not be sent.
    pub requests: u64,
    /// Requests that completed, in time or late.
    pub served: u64,
}

impl ExitSummary {
    /// Exit code of the process: 0 when at least one request was served, 1 otherwise.
    pub fn exit_code(self) -> u8 {
        u8::from(self.served == 0)
    }
}
