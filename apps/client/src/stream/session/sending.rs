//! The sending half of a session: frames and reports about the link.

use std::time::Duration;

use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Request;
use spillgate_proto::pb::{Outcome, StreamRequest};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::{LOST, Running, Waiting, client_result};
use crate::record::{FrameEnd, SentAs};
use crate::resize::Scale;
use crate::stream::adapting::Adapting;
use crate::stream::producer::{Made, Prepared};
use crate::stream::trace::FrameTrace;

/// A frame asks for an answer within this time at least: no time at all would mean the SLO.
const TIMEOUT_LEAST: Duration = Duration::from_millis(1);
/// The reason of a frame for which the connection has no room.
pub(super) const BACKLOG: &str = "backlog";

impl Running<'_> {
    /// Tells the server about the link. A report for which there is no room is left out: the next one says it, too.
    pub(super) fn report(&mut self) {
        if let (Some(adapting), Some(outgoing)) = (&mut self.adapting, &self.outgoing) {
            let message = Some(Request::Report(adapting.report()));
            let _ = outgoing.try_send(StreamRequest { message });
        }
    }

    /// Sends a frame that is due, or keeps it where others wait to be sent before it.
    pub(super) fn send(&mut self, frame: Prepared, due: Instant, waits: bool) {
        let number = self.next_number;
        self.next_number += 1;
        let Prepared {
            made,
            picture,
            truth,
            origin,
            ..
        } = frame;
        // A picture that is made smaller for the server is older by that time.
        let resized_in = self
            .adapting
            .as_ref()
            .map_or(Duration::ZERO, |_| made.resized_in);
        let due = due.saturating_duration_since(self.run_start);
        let due = due.saturating_sub(resized_in);
        let trace = self.tracer.next(number);
        let message = self.message(number, &made, &trace, resized_in);
        let sent_as = match &self.adapting {
            Some(adapting) => adapting.sent_as(&made),
            None => made.sent_as(),
        };
        let given = match waits {
            true => self.hold(number),
            false => self.give(message),
        };
        if let Err(result) = given {
            let end = FrameEnd {
                client: self.config.client,
                name: self.config.name.clone(),
                origin: Some(origin),
                due,
                sent: None,
                sent_as: SentAs {
                    side: None,
                    bytes: None,
                    ..sent_as
                },
                ended: self.run_start.elapsed(),
                result: *result,
            };
            self.end(end, picture, truth);
            return;
        }
        let bytes = made.encoded.data.len();
        let scale = match &mut self.adapting {
            Some(adapting) if !waits => {
                adapting.sent(number, &made, bytes);
                // The server knows the size of the source.
                Scale::ONE
            }
            _ => made.scale(),
        };
        let sent = self.run_start.elapsed();
        self.board.sent(sent, bytes, sent_as);
        let waiting = Waiting {
            due,
            sent,
            sent_as,
            made,
            picture,
            truth,
            origin,
            trace,
            scale,
            was_given_up: false,
        };
        self.waiting.insert(number, waiting);
    }

    /// The message of a frame that is older by so much than when it was due.
    pub(super) fn message(
        &self,
        number: u64,
        made: &Made,
        trace: &FrameTrace,
        older: Duration,
    ) -> pb::Frame {
        let with = self
            .adapting
            .as_ref()
            .map(|adapting| adapting.sending(made));
        let with = with.unwrap_or_default();
        let timeout = self.timeout_after(older);
        pb::Frame {
            number,
            format: made.encoded.format.into(),
            data: made.encoded.data.clone(),
            width: made.encoded.width,
            height: made.encoded.height,
            timeout_ms: timeout.map_or(0.0, |t| t.as_secs_f64() * 1e3),
            traceparent: trace.traceparent.clone(),
            tracestate: String::new(),
            application: self.config.application.clone(),
            models: self.config.models.clone(),
            sent_at_ns: with.sent_at_ns,
            source_width: with.source.0,
            source_height: with.source.1,
        }
    }

    /// The time for an answer that is left to a frame, where that is less than what the server gives it anyway.
    fn timeout_after(&self, older: Duration) -> Option<Duration> {
        if older.is_zero() {
            return self.config.timeout;
        }
        // Without an SLO there is no time that could be taken away.
        let slo = (self.opened.longest_ms <= self.opened.slo_ms).then(|| self.slo());
        let whole = self.config.timeout.into_iter().chain(slo).min()?;
        Some(whole.saturating_sub(older).max(TIMEOUT_LEAST))
    }

    /// Gives a frame to the connection.
    ///
    /// # Errors
    /// The client's own result, when the connection does not take it.
    fn give(&self, frame: pb::Frame) -> Result<(), Box<pb::Result>> {
        let number = frame.number;
        let Some(outgoing) = &self.outgoing else {
            let detail = "the server was lost, and is not back";
            return Err(Box::new(client_result(
                number,
                Outcome::Failed,
                LOST,
                detail,
            )));
        };
        if let Some(stands) = self.adapting.as_ref().and_then(Adapting::stalls) {
            let detail = format!(
                "the link does not carry frames in time: they wait {} ms for it",
                stands.as_millis()
            );
            let result = client_result(number, Outcome::Refused, BACKLOG, &detail);
            return Err(Box::new(result));
        }
        let message = Some(Request::Frame(frame));
        put(outgoing, StreamRequest { message }, number)
    }
}

/// Puts a frame into the connection.
///
/// # Errors
/// The client's own result, when the connection has no room.
fn put(
    outgoing: &mpsc::Sender<StreamRequest>,
    request: StreamRequest,
    number: u64,
) -> Result<(), Box<pb::Result>> {
    match outgoing.try_send(request) {
        // The end of the stream is on its way here. Until it is heard the frame waits as those that were sent before it,
        // and becomes what they become: sent again elsewhere, or lost with the server.
        Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        Err(TrySendError::Full(_)) => {
            let detail = "the connection does not take frames as fast as they are due";
            let result = client_result(number, Outcome::Refused, BACKLOG, detail);
            Err(Box::new(result))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_for_a_stream_that_has_ended_waits_with_those_before_it() {
        let (outgoing, requests) = mpsc::channel(1);
        assert!(put(&outgoing, StreamRequest::default(), 0).is_ok());
        let refused = put(&outgoing, StreamRequest::default(), 1).unwrap_err();
        assert_eq!((refused.number, refused.reason.as_str()), (1, BACKLOG));
        drop(requests);
        assert!(put(&outgoing, StreamRequest::default(), 2).is_ok());
    }
}
