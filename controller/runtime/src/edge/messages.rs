//! The body of a call, message by message. A message is passed on only once it is whole, so nothing is reserved for a
//! length that is only claimed. A lease covers the bytes that have come. A message that takes too long ends the call.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use spillgate_backend::account::{Full, Lease};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use super::Call;
use super::call::Buffer;

/// Length of the header of a gRPC message: a flag and four bytes of length.
const HEADER: usize = 5;
/// Pieces smaller than this are copied together: each would keep the whole buffer that it was cut from.
const PIECE_MIN: usize = 4 << 10;

/// Messages of one call.
pub(crate) struct Messages<B> {
    body: B,
    call: Arc<Call>,
    bytes_max: usize,
    limit: Duration,
    /// The call has exactly one message.
    is_unary: bool,
    /// That message has come.
    has_come: bool,
    /// A message has begun, or the first one of the call is still to come.
    is_due: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// When the first of the pieces came.
    began_at: Option<Instant>,
    pieces: Pieces,
    /// The bytes of the pieces.
    lease: Option<Lease>,
    /// Bytes of the message that is being read, once its header is whole.
    length: Option<usize>,
    /// Bytes of a whole message that are still to be passed on.
    whole: usize,
}

impl<B> Messages<B> {
    /// Messages of at most `bytes_max`, each of which may take `limit` from its first byte to its last.
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
            began_at: None,
            pieces: Pieces::default(),
            lease: None,
            length: None,
            whole: 0,
        }
    }

    /// Adds the data that came; returns it if it is a whole message.
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
        self.began_at.get_or_insert_with(Instant::now);
        self.pieces.push(data);
        self.look();
        Ok(None)
    }

    /// Looks whether the message is whole. A message that is too long is passed on at once: its reader refuses it.
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

    /// The lease of the whole message goes to the call; bytes that came after the message stay here.
    fn message_ends(&mut self) {
        if self.is_unary {
            self.has_come = true;
        } else {
            self.is_due = false;
            self.timer = None;
        }
        let rest = (self.pieces.bytes - self.whole) as u64;
        let began_at = self.began_at.take();
        let took = began_at.map_or(Duration::ZERO, |at| at.elapsed());
        if rest > 0 {
            self.began_at = Some(Instant::now());
        }
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        if rest > 0 {
            self.lease = Some(lease.split(rest));
        }
        self.call.put_message(lease, took);
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
        // Only now: the reader has taken the message before, with its lease.
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
                // The body was cut short; the reader says so.
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
        // Not the hint of the body: it is only a claim.
        SizeHint::default()
    }
}

fn not_taken_in(full: Full) -> Status {
    Status::resource_exhausted(format!("the message is not taken in: {full}"))
}

/// The bytes of the first message are accounted for one message only.
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

/// The pieces that came, in order.
#[derive(Default)]
struct Pieces {
    /// Most messages are one piece. Empty where there are only small pieces.
    first: Bytes,
    more: VecDeque<Bytes>,
    /// Small pieces, copied together; they follow all others.
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

    /// The next piece, of at most `most` bytes.
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
