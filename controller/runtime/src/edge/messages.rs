//! The body of a call, message by message: passes one on only once it is whole, so that nothing is reserved for a
//! length that is only claimed, and holds a lease for what has come of it. A message that takes too long to come ends
//! the call.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use spillgate_backend::account::{Full, Lease};
use tokio::time::Sleep;
use tonic::Status;

use super::Call;
use super::call::Buffer;

/// Length of the header of a gRPC message: a flag and four bytes of length.
const HEADER: usize = 5;
/// Pieces smaller than this are put together: each would hold the buffer that it was cut from.
const PIECE_MIN: usize = 4 << 10;

/// Messages of one call.
pub(crate) struct Messages<B> {
    body: B,
    call: Arc<Call>,
    bytes_max: usize,
    limit: Duration,
    /// The call has one message: it is to be over after that.
    is_unary: bool,
    /// That one has come.
    has_come: bool,
    /// A message has begun, or the call's first one is still to come.
    is_due: bool,
    timer: Option<Pin<Box<Sleep>>>,
    pieces: Pieces,
    /// What the pieces hold.
    lease: Option<Lease>,
    /// Bytes of the message that is being read, once its header is whole.
    length: Option<usize>,
    /// Bytes of whole messages that are still to be passed on.
    whole: usize,
}

impl<B> Messages<B> {
    /// Messages of `bytes_max` at most, each of which may take `limit` from its first byte to its last.
    pub(crate) fn new(
        body: B,
        call: Arc<Call>,
        is_unary: bool,
        bytes_max: usize,
        limit: Duration,
    ) -> Self {
        Messages {
            body,
            call,
            is_unary,
            has_come: false,
            bytes_max,
            limit,
            is_due: true,
            timer: None,
            pieces: Pieces::default(),
            lease: None,
            length: None,
            whole: 0,
        }
    }

    /// Takes in what came; gives it back if it is a whole message.
    fn take_in(&mut self, data: Bytes) -> Result<Option<Bytes>, Status> {
        if self.has_come {
            return Err(second_message());
        }
        let bytes = data.len() as u64;
        let grown = match &mut self.lease {
            Some(lease) => lease.grow(bytes),
            None => self
                .call
                .holder()
                .take(bytes)
                .map(|lease| self.lease = Some(lease)),
        };
        grown.map_err(not_taken_in)?;
        if !self.is_unary {
            self.call
                .keep(Buffer::Messages, self.pieces.bytes + data.len())
                .map_err(not_taken_in)?;
        }
        if self.pieces.bytes == 0 && length_of(&data).is_some_and(|n| HEADER + n == data.len()) {
            self.message_ends();
            return Ok(Some(data));
        }
        self.pieces.push(data);
        self.look();
        Ok(None)
    }

    /// Looks whether the message is whole. One that is too long is passed on at once: its reader says so.
    fn look(&mut self) {
        if self.whole > 0 {
            return;
        }
        if self.length.is_none() {
            self.length = self.pieces.length();
        }
        let Some(length) = self.length else {
            self.is_due |= self.pieces.bytes > 0;
            return;
        };
        if self.pieces.bytes >= HEADER + length || length > self.bytes_max {
            self.whole = self.pieces.bytes.min(HEADER + length);
            self.length = None;
            self.message_ends();
        } else {
            self.is_due = true;
        }
    }

    /// The bytes of the whole message are whoever's who takes it; what came after it stays here.
    fn message_ends(&mut self) {
        if self.is_unary {
            self.has_come = true;
        } else {
            self.is_due = false;
            self.timer = None;
        }
        let rest = (self.pieces.bytes - self.whole) as u64;
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        if rest > 0 {
            self.lease = Some(lease.split(rest));
        }
        self.call.put_message(lease);
    }

    /// Whether the message that is due takes too long.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.is_due {
            return false;
        }
        let limit = self.limit;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        timer.as_mut().poll(cx).is_ready()
    }
}

impl<B> Body for Messages<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.has_come && this.pieces.bytes > this.whole {
            return Poll::Ready(Some(Err(second_message())));
        }
        // Only now: the message before was read, and what it holds was taken.
        this.look();
        loop {
            if this.whole > 0 {
                let piece = this.pieces.pop(this.whole);
                this.whole -= piece.len();
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let polled = Pin::new(&mut this.body).poll_frame(cx);
            if polled.is_pending() && this.is_late(cx) {
                let text = format!("a message of the call was not whole after {:?}", this.limit);
                return Poll::Ready(Some(Err(Status::deadline_exceeded(text))));
            }
            let Some(frame) = ready!(polled) else {
                // Cut short: its reader says so.
                this.whole = this.pieces.bytes;
                if this.whole == 0 {
                    return Poll::Ready(None);
                }
                continue;
            };
            let frame = frame.map_err(|e| Status::from_error(e.into()))?;
            match frame.into_data() {
                Ok(data) => {
                    this.call.frame_taken(data.len());
                    if data.is_empty() {
                        continue;
                    }
                    match this.take_in(data) {
                        Ok(None) => {}
                        Ok(Some(whole)) => return Poll::Ready(Some(Ok(Frame::data(whole)))),
                        Err(status) => return Poll::Ready(Some(Err(status))),
                    }
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.bytes == 0 && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Not the body's: it only claims one.
        SizeHint::default()
    }
}

fn not_taken_in(full: Full) -> Status {
    Status::resource_exhausted(format!("the message is not taken in: {full}"))
}

/// What the first one holds is accounted as one message's.
fn second_message() -> Status {
    Status::invalid_argument("the call takes one message, and there came more")
}

/// The length of the message that begins here, if its header is whole.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let &[_, a, b, c, d, ..] = bytes else {
        return None;
    };
    Some(u32::from_be_bytes([a, b, c, d]) as usize)
}

/// What has come, in order.
#[derive(Default)]
struct Pieces {
    /// Most messages come as one piece. Empty where small pieces are all there is.
    first: Bytes,
    more: VecDeque<Bytes>,
    /// Small pieces, put together; after all the others.
    small: BytesMut,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, data: Bytes) {
        self.bytes += data.len();
        if self.bytes == data.len() {
            self.first = match data.len() < PIECE_MIN {
                true => Bytes::copy_from_slice(&data),
                false => data,
            };
            return;
        }
        if data.len() < PIECE_MIN {
            self.small.extend_from_slice(&data);
            return;
        }
        if !self.small.is_empty() {
            self.more.push_back(self.small.split().freeze());
        }
        self.more.push_back(data);
    }

    /// The length of the message that begins here, once its header is whole.
    fn length(&self) -> Option<usize> {
        if let Some(length) = length_of(&self.first) {
            return Some(length);
        }
        let mut header = [0; HEADER];
        let mut n = 0;
        let more = self.more.iter().map(|b| &b[..]);
        for part in [&self.first[..]]
            .into_iter()
            .chain(more)
            .chain([&self.small[..]])
        {
            let take = part.len().min(HEADER - n);
            header[n..n + take].copy_from_slice(&part[..take]);
            n += take;
        }
        length_of(&header[..n])
    }

    /// The next piece, of `most` bytes at most.
    fn pop(&mut self, most: usize) -> Bytes {
        if self.first.is_empty() {
            let next = self.more.pop_front();
            self.first = next.unwrap_or_else(|| self.small.split().freeze());
        }
        let piece = self.first.split_to(most.min(self.first.len()));
        self.bytes -= piece.len();
        piece
    }
}

#[cfg(test)]
mod tests;
