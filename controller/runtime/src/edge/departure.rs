//! How a connection ends in order. First it takes no new calls, which HTTP/2 tells its client. Then its streams end,
//! each once all that it took is answered, with a status that says what to do: a client that opens its stream again
//! and sends what was not answered loses nothing.

use std::sync::OnceLock;

use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Why a connection takes no new calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The server ends.
    ServerEnds,
    /// It has its age.
    Age,
}

impl Why {
    /// The status of a stream that ends for this reason.
    fn status(self) -> Status {
        let text = match self {
            Why::ServerEnds => {
                "the server is shutting down: open the stream again at another one; frames without an answer were not taken"
            }
            Why::Age => {
                "the connection has its age (--connection-age): open the stream again on a new one; frames without an answer were not taken"
            }
        };
        Status::unavailable(text)
    }
}

/// The steps to a connection's end.
#[derive(Default)]
pub(super) struct Departure {
    why: OnceLock<Why>,
    takes_no_calls: CancellationToken,
    streams_end: CancellationToken,
}

impl Departure {
    /// It takes no new calls from now on.
    pub(super) fn begin(&self, why: Why) {
        // The first reason counts.
        self.why.get_or_init(|| why);
        self.takes_no_calls.cancel();
    }

    /// Its streams end, too.
    pub(super) fn end_streams(&self, why: Why) {
        self.begin(why);
        self.streams_end.cancel();
    }

    /// Waits until it takes no new calls.
    pub(super) async fn begun(&self) {
        self.takes_no_calls.cancelled().await;
    }

    /// Waits until streams are to end; the status with which they do.
    pub(super) async fn streams_ended(&self) -> Status {
        self.streams_end.cancelled().await;
        let why = self.why.get().copied();
        why.unwrap_or(Why::ServerEnds).status()
    }
}
