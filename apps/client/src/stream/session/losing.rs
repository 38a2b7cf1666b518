//! A server that is lost: what becomes of the frames that wait for its answers, and of those that were planned.

use std::time::Duration;

use spillgate_pipeline::printable::printable_line;
use spillgate_proto::pb;
use spillgate_proto::pb::Outcome;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{LOST, Running, SessionEnd, UNSENT_MAX};
use crate::record::{FrameEnd, SentAs};

impl Running<'_> {
    /// The stream broke: waiting frames fail, and so do planned frames that can no longer be sent.
    pub(super) fn lose(
        &mut self,
        cause: &str,
        end: &mut SessionEnd,
        due: Option<Instant>,
        stopping: bool,
    ) {
        end.lost = Some(format!(
            "{cause} (--reconnect waits for the server to come back)"
        ));
        self.fail_waiting(LOST, cause);
        let planned = self.frame_count.unwrap_or(self.next_number);
        if !self.sending || stopping {
            return;
        }
        self.sending = false;
        self.outgoing = None;
        let mut due = due;
        let until = planned.min(self.next_number + UNSENT_MAX);
        for number in self.next_number..until {
            let at = due
                .take()
                .unwrap_or_else(|| self.clock.due(Instant::now(), Duration::ZERO));
            let due = at.saturating_duration_since(self.run_start);
            let result = client_result(number, Outcome::Failed, LOST, cause);
            let client = self.config.client;
            let ended = self.run_start.elapsed();
            self.end(
                FrameEnd {
                    client,
                    name: self.config.name.clone(),
                    origin: None,
                    due,
                    sent: None,
                    sent_as: SentAs::default(),
                    ended,
                    result,
                },
                None,
                None,
            );
        }
    }

    pub(super) fn fail_waiting(&mut self, reason: &str, cause: &str) {
        self.held.clear();
        for (number, mut waiting) in std::mem::take(&mut self.waiting) {
            waiting.trace.ended(Outcome::Failed);
            self.close(
                waiting,
                client_result(number, Outcome::Failed, reason, cause),
            );
        }
    }
}

/// The client's own account of a frame that the server did not answer.
pub(super) fn client_result(
    number: u64,
    outcome: Outcome,
    reason: &str,
    detail: &str,
) -> pb::Result {
    let code = if outcome == Outcome::Refused {
        Code::ResourceExhausted
    } else {
        Code::Unavailable
    };
    pb::Result {
        number,
        outcome: outcome.into(),
        code: code.into(),
        module: "client".to_owned(),
        reason: reason.to_owned(),
        detail: detail.to_owned(),
        ..Default::default()
    }
}

pub(super) fn lost_cause(status: &Status) -> String {
    let message = printable_line(status.message());
    match status.code() {
        // tonic's messages for a broken connection.
        Code::Unknown | Code::Internal | Code::Cancelled => {
            format!("the connection to the server was lost: {message}")
        }
        code => format!("the server ended the stream: {code:?}: {message}"),
    }
}
