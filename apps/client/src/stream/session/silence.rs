//! A server that is silent: frames wait for it, and nothing comes.

use std::future::pending;

use tokio::time::{Instant, sleep_until};

use super::{Attempt, Running, SessionEnd, span};

/// Waits until then; for ever where there is no such time.
pub(super) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

impl Running<'_> {
    /// When a server that is sent frames is lost for its silence: a frame has waited as long as an answer may take, and in that time
    /// nothing came, nor did a full connection take more. A frame that a slow link carries for long is no reason.
    pub(super) fn silent_at(&self, way: &Attempt) -> Option<Instant> {
        let Attempt::Open(link) = way else {
            return None;
        };
        let (_, first) = self.waiting.first_key_value()?;
        let since = (self.run_start + first.sent).max(self.heard);
        let since = link.upload.room_at().map_or(since, |at| at.max(since));
        self.sending.then(|| since + self.answers_take())
    }

    /// What is said of it.
    pub(super) fn silence(&self) -> String {
        let silent = self.heard.elapsed().as_secs_f64();
        let waiting = self.waiting.len();
        format!("the server has said nothing for {silent:.1} s, and {waiting} frames wait for it")
    }

    /// The stream is over, and frames may still wait. That is the server's doing, unless the user would not wait for answers that may
    /// take longer.
    pub(super) fn unanswered(&mut self, end: &mut SessionEnd, detail: &str) {
        let gives_up = self.interrupted.is_cancelled() && span(self.opened.longest_ms) > self.slo();
        if !self.waiting.is_empty() && !gives_up {
            let waiting = self.waiting.len();
            end.lost = Some(format!("{waiting} frames have no answer: {detail}"));
        }
        self.fail_waiting("no_answer", detail);
    }
}
