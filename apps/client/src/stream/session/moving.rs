//! A stream that its server ended in order goes on at another server, or on another connection. Frames without an
//! answer were not taken there: they are sent again, and frames that become due meanwhile wait behind them.

use spillgate_pipeline::request::DropReason;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Request;
use spillgate_proto::pb::{Outcome, StreamRequest};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::sending::BACKLOG;
use super::{Attempt, Running, client_result};
use crate::resize::Scale;
use crate::stream::open_stream::OpenStream;

/// Most frames that wait to be sent while the stream moves: ten seconds of a fast camera. A frame that becomes due
/// beyond them is refused.
pub(crate) const HELD_MAX: usize = 300;
/// Most times that a stream goes on elsewhere without an answer in between: as often as several servers of a set may be
/// shutting down at a time.
pub(crate) const MOVES_MAX: usize = 8;

/// Whether a server said itself that the stream ends in order, for example since it is shutting down. A connection that
/// breaks says nothing.
pub(super) fn ended_in_order(status: &Status) -> bool {
    status.code() == Code::Unavailable && std::error::Error::source(status).is_none()
}

impl Running<'_> {
    /// Whether the stream may go on elsewhere: one that ends again and again without an answer may not.
    pub(super) fn may_move(&self) -> bool {
        self.moves < MOVES_MAX
    }

    /// The stream goes on elsewhere.
    pub(super) fn move_on(&mut self, cause: &str) -> Attempt {
        self.moves += 1;
        self.outgoing = None;
        // Those that were to be sent again wait among the others.
        self.held = self.waiting.keys().copied().collect();
        let name = &self.config.name;
        let line = format!("{name}: {cause}; going on at another one");
        self.board.screen.line(&line);
        Attempt::Moving {
            cause: cause.to_owned(),
            attempt: Box::pin(OpenStream::elsewhere(self.config.clone())),
        }
    }

    /// Whether frames wait to be sent.
    pub(super) fn holds_frames(&self, way: &Attempt) -> bool {
        matches!(way, Attempt::Moving { .. }) || !self.held.is_empty()
    }

    /// Makes room for one more frame that waits.
    ///
    /// # Errors
    /// The client's own result, when too many do.
    pub(super) fn hold(&mut self, number: u64) -> Result<(), Box<pb::Result>> {
        if self.held.len() >= HELD_MAX {
            let detail = format!("{HELD_MAX} frames wait for another server already");
            let result = client_result(number, Outcome::Refused, BACKLOG, &detail);
            return Err(Box::new(result));
        }
        self.held.push_back(number);
        Ok(())
    }

    /// Sends the next frame that waits. The connection has room.
    pub(super) fn send_held(&mut self) {
        let (Some(number), Some(outgoing)) = (self.held.pop_front(), self.outgoing.clone()) else {
            return;
        };
        // It may have been answered meanwhile.
        if let Some(waiting) = self.waiting.get(&number) {
            let waited = self.run_start.elapsed().saturating_sub(waiting.sent);
            let frame = self.message(number, &waiting.made, &waiting.trace, waited);
            let message = Some(Request::Frame(frame));
            let _ = outgoing.try_send(StreamRequest { message });
        }
        if let Some(waiting) = self.waiting.get_mut(&number) {
            let made = &waiting.made;
            waiting.scale = match &mut self.adapting {
                Some(adapting) => {
                    adapting.sent(number, made, made.encoded.data.len());
                    // The server knows the size of the source.
                    Scale::ONE
                }
                None => made.scale(),
            };
        }
        if self.held.is_empty() && !self.sending {
            self.outgoing = None;
        }
    }

    /// Whether a server that shuts down gave a frame up that another one may answer. Each frame is sent again once for it.
    pub(super) fn is_for_another(&mut self, result: &pb::Result) -> bool {
        let draining = DropReason::Draining.label();
        if result.code != i32::from(Code::Unavailable) || result.reason != draining {
            return false;
        }
        let waiting = self.waiting.get_mut(&result.number);
        let Some(waiting) = waiting.filter(|waiting| !waiting.was_given_up) else {
            return false;
        };
        waiting.was_given_up = true;
        self.held.push_back(result.number);
        true
    }
}

/// Waits until a connection has room for a message; for ever where there is none, or it has ended.
pub(super) async fn room(outgoing: Option<&mpsc::Sender<StreamRequest>>) {
    let reserved = match outgoing {
        Some(outgoing) => outgoing.reserve().await.map(drop),
        None => std::future::pending().await,
    };
    if reserved.is_err() {
        std::future::pending().await
    }
}
