//! The body of a call, message by message. A message is passed on only once it is whole, so nothing is reserved for a
//! length that is only claimed. A lease covers the bytes that have come. A message that takes too long ends the call.
//!
//! A frame over the limit is passed on without its data, which is not kept: its reader refuses the frame, and the call
//! goes on. So is a frame of a stream whose bytes its client may not hold. A packed message is passed on unpacked.
//!
//! Whole messages of a stream of frames go to its [`Call`], and its reader gets empty ones: the buffer of tonic, which keeps its largest message, stays
//! empty.

pub(crate) mod outline;
pub(crate) mod packed;
mod pieces;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use spillgate_process::account::{Full, Lease};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use super::Call;
use super::call::{Buffer, LeftOut};
use outline::Outline;
use packed::{NotUnpacked, Unpacking};
use pieces::{Pieces, length_of};

/// Length of the header of a gRPC message: a flag and four bytes of length.
const HEADER: usize = 5;
/// What the reader gets in the place of a message that is handed over.
const EMPTY: Bytes = Bytes::from_static(&[PLAIN; HEADER]);
/// The flag of a message that is not packed.
const PLAIN: u8 = 0;
/// So much of the content of a packed message over the limit is looked at: its frame's number stands before its data.
const OUTLINE_OF: usize = 64 << 10;

/// Messages of one call.
pub(crate) struct Messages<B> {
    body: B,
    call: Arc<Call>,
    bytes_max: usize,
    limit: Duration,
    /// Its messages carry frames.
    has_frames: bool,
    /// Whole messages go to the call.
    hands_over: bool,
    /// Messages with a flag are packed with gzip.
    is_packed: bool,
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
    /// The message that is being read without being kept.
    oversized: Option<Oversized>,
    /// Why the message that is being read is not to be kept, until its header is whole.
    unheld: Option<Full>,
    /// The message that is being unpacked, and its packed bytes that are left.
    unpacking: Option<(Unpacking, usize)>,
    /// A whole message that is to be passed on next.
    ready: Option<Bytes>,
}

/// A message over the limit, or one that its client may not hold.
struct Oversized {
    /// Why its client may not.
    full: Option<Full>,
    /// Bytes of it that are still to come.
    left: usize,
    outline: Outline,
    /// The beginning of its content, where it is packed.
    unpacking: Option<Unpacking>,
}

impl Oversized {
    fn read(&mut self, bytes: &[u8]) -> Result<(), Status> {
        self.left -= bytes.len();
        let Some(unpacking) = &mut self.unpacking else {
            return self.outline.read(bytes).map_err(|why| no_frame(&why));
        };
        for piece in bytes.chunks(packed::PIECE) {
            if !unpacking.is_over() {
                unpacking.unpack(piece).map_err(not_unpacked)?;
            }
        }
        Ok(())
    }

    /// The message without its frame's data, and how many bytes that are.
    fn finish(mut self) -> Result<(Vec<u8>, usize), Status> {
        let ends_call = |why: String| match self.full {
            Some(full) => not_taken_in(full),
            None => no_frame(&why),
        };
        if let Some(unpacking) = &self.unpacking {
            let read = self.outline.read(unpacking.content());
            read.map_err(ends_call)?;
        }
        self.outline.finish().map_err(ends_call)
    }
}

/// How the messages of a call are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking {
    /// Most bytes of a message.
    pub(crate) bytes_max: usize,
    /// The time from the first byte of a message to its last.
    pub(crate) limit: Duration,
    /// There is exactly one message.
    pub(crate) is_unary: bool,
    /// They carry frames: one over the limit is passed on without its data.
    pub(crate) has_frames: bool,
    /// They go to the call, whose reader asks it for each.
    pub(crate) hands_over: bool,
    /// They may be packed with gzip.
    pub(crate) is_packed: bool,
}

impl<B> Messages<B> {
    /// The messages of a call. A pointer, because it is moved often.
    pub(crate) fn new(body: B, call: Arc<Call>, taking: Taking) -> Box<Self> {
        Box::new(Messages {
            body,
            call,
            is_unary: taking.is_unary,
            has_come: false,
            bytes_max: taking.bytes_max,
            limit: taking.limit,
            is_due: true,
            timer: None,
            began_at: None,
            pieces: Pieces::default(),
            lease: None,
            length: None,
            whole: 0,
            has_frames: taking.has_frames,
            hands_over: taking.hands_over,
            is_packed: taking.is_packed,
            oversized: None,
            unheld: None,
            unpacking: None,
            ready: None,
        })
    }

    /// Adds the data that came; returns it if it is a whole message.
    fn take_in(&mut self, data: Bytes) -> Result<Option<Bytes>, Status> {
        if self.has_come {
            return Err(second_message());
        }
        let mut data = data;
        let was_oversized = self.oversized.is_some();
        if let Some(oversized) = &mut self.oversized {
            // None of it is kept.
            oversized.read(&data.split_to(oversized.left.min(data.len())))?;
            self.oversized_ends()?;
            if data.is_empty() {
                return Ok(None);
            }
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
        match grown {
            Err(full) if self.hands_over => self.unheld = Some(full),
            grown => grown.map_err(not_taken_in)?,
        }
        if self.hands_over {
            self.call.message_came(bytes);
        } else if !self.is_unary {
            self.call
                .keep(Buffer::Messages, self.pieces.bytes + data.len())
                .map_err(not_taken_in)?;
        }
        let is_as_it_came = !self.hands_over && !was_oversized;
        if self.pieces.bytes == 0 && is_as_it_came && self.is_whole_and_plain(&data) {
            self.message_ends();
            return Ok(Some(data));
        }
        self.began_at.get_or_insert_with(Instant::now);
        self.pieces.push(data);
        // The reader has not taken the message before yet, if there is one.
        if self.ready.is_none() {
            self.look()?;
        }
        Ok(None)
    }

    /// Whether the data is a message as it is to be passed on.
    fn is_whole_and_plain(&self, data: &[u8]) -> bool {
        let is_whole = |n: usize| HEADER + n == data.len() && n <= self.bytes_max;
        let is_plain = !self.is_packed || data.first() == Some(&PLAIN);
        is_plain && length_of(data).is_some_and(is_whole)
    }

    /// Looks whether the message is whole. A message that is too long is passed on at once, and its reader refuses it; of
    /// one with a frame the frame alone is refused.
    fn look(&mut self) -> Result<(), Status> {
        if self.whole > 0 || self.unpacking.is_some() || self.oversized.is_some() {
            return Ok(());
        }
        if self.length.is_none() {
            self.length = self.pieces.length();
            self.ask_to_begin();
        }
        let Some(length) = self.length else {
            self.is_due |= self.pieces.bytes > 0;
            return Ok(());
        };
        let is_packed = self.is_packed && self.pieces.flag() != Some(PLAIN);
        let full = self.unheld.take();
        if full.is_some() || length > self.bytes_max && (self.has_frames || is_packed) {
            self.length = None;
            return self.oversized_begins(length, is_packed, full);
        }
        if self.pieces.bytes >= HEADER + length || length > self.bytes_max {
            self.length = None;
            if is_packed {
                self.pieces.drop_first(HEADER);
                let unpacking =
                    Unpacking::new(self.call.holder(), &[PLAIN; HEADER], self.bytes_max);
                self.unpacking = Some((unpacking.map_err(not_taken_in)?, length));
                return Ok(());
            }
            self.whole = self.pieces.bytes.min(HEADER + length);
            self.message_ends();
        } else {
            self.is_due = true;
        }
        Ok(())
    }

    /// A message of a stream whose rest is still to come begins if that fits beside the others of its client.
    fn ask_to_begin(&mut self) {
        let length = self
            .length
            .filter(|length| self.hands_over && *length <= self.bytes_max);
        let left = length.map_or(0, |length| {
            (HEADER + length).saturating_sub(self.pieces.bytes)
        });
        if left > 0 && self.unheld.is_none() {
            self.unheld = self.call.message_begins(left as u64).err();
        }
    }

    /// A message that is not kept begins: it is over the limit, or its client may not hold it. What has come of it is dropped.
    fn oversized_begins(
        &mut self,
        length: usize,
        is_packed: bool,
        full: Option<Full>,
    ) -> Result<(), Status> {
        self.pieces.drop_first(HEADER);
        let unpacking = is_packed.then(|| Unpacking::new(self.call.holder(), &[], OUTLINE_OF));
        let mut oversized = Oversized {
            full,
            left: length,
            outline: Outline::new(),
            unpacking: unpacking.transpose().map_err(not_taken_in)?,
        };
        while oversized.left > 0 && self.pieces.bytes > 0 {
            let piece = self.pieces.pop(oversized.left);
            oversized.read(&piece)?;
        }
        self.keep_lease_of_pieces();
        if self.lease.is_none() && self.pieces.bytes > 0 {
            // What follows came with bytes that could not be held.
            match self.call.holder().take(self.pieces.bytes as u64) {
                Ok(lease) => self.lease = Some(lease),
                Err(full) => self.unheld = Some(full),
            }
        }
        self.is_due = true;
        self.oversized = Some(oversized);
        self.oversized_ends()
    }

    /// Passes a message over the limit on without its frame's data, once it is at its end.
    fn oversized_ends(&mut self) -> Result<(), Status> {
        if let Some(oversized) = self.oversized.take_if(|oversized| oversized.left == 0) {
            let full = oversized.full;
            let (message, bytes) = oversized.finish()?;
            let too_long = LeftOut::TooLong { bytes };
            self.without_data(&message, full.map_or(too_long, LeftOut::Memory));
        }
        Ok(())
    }

    fn without_data(&mut self, message: &[u8], why: LeftOut) {
        let took = self.is_over();
        self.call.put_left_out(why, took);
        let mut whole = BytesMut::with_capacity(HEADER + message.len());
        whole.put_u8(PLAIN);
        whole.put_u32(message.len() as u32);
        whole.put_slice(message);
        self.ready = Some(whole.freeze());
    }

    /// Unpacks a part of the message, or its end.
    fn unpack(&mut self) -> Result<(), Status> {
        let Some((unpacking, left)) = &mut self.unpacking else {
            return Ok(());
        };
        let stop = unpacking.len() + packed::STEP;
        while *left > 0 && unpacking.len() < stop && !unpacking.is_over() {
            let piece = self.pieces.pop(packed::PIECE.min(*left));
            *left -= piece.len();
            unpacking.unpack(&piece).map_err(not_unpacked)?;
        }
        if *left > 0 && !unpacking.is_over() {
            return Ok(());
        }
        if !unpacking.is_over() {
            unpacking.finish().map_err(not_unpacked)?;
        }
        self.pieces.drop_first(*left);
        let Some((unpacking, _)) = self.unpacking.take() else {
            return Ok(());
        };
        self.keep_lease_of_pieces();
        if unpacking.is_over() {
            return self.unpacked_too_much(&unpacking);
        }
        let (mut bytes, lease) = unpacking.take();
        let length = (bytes.len() - HEADER) as u32;
        bytes[1..HEADER].copy_from_slice(&length.to_be_bytes());
        if !self.is_unary && !self.hands_over {
            let kept = self.call.keep(Buffer::Messages, bytes.len());
            kept.map_err(not_taken_in)?;
        }
        let took = self.is_over();
        self.call.put_message(Some(lease), took);
        let bytes = Bytes::from(bytes);
        self.ready = Some(match self.hands_over {
            true => {
                self.call.hand_over(bytes.slice(HEADER..));
                EMPTY
            }
            false => bytes,
        });
        Ok(())
    }

    /// Of a packed message whose content is over the limit, only its frame is refused if it has one.
    fn unpacked_too_much(&mut self, unpacking: &Unpacking) -> Result<(), Status> {
        let mut outline = Outline::new();
        let content = &unpacking.content()[HEADER..];
        let read = outline.read(content).and_then(|()| outline.finish());
        let (message, bytes) = read.map_err(|why| no_frame(&why))?;
        self.without_data(&message, LeftOut::TooLong { bytes });
        Ok(())
    }

    /// Hands the whole message over; returns what the reader gets instead.
    fn hand_over(&mut self) -> Bytes {
        let mut message = Vec::with_capacity(self.whole);
        // The pieces go as they are copied: each would keep the whole buffer that it was cut from.
        while self.whole > 0 {
            let piece = self.pieces.pop(self.whole);
            self.whole -= piece.len();
            message.extend_from_slice(&piece);
        }
        self.call.hand_over(Bytes::from(message).split_off(HEADER));
        EMPTY
    }

    /// The lease covers the pieces, and nothing more.
    fn keep_lease_of_pieces(&mut self) {
        match (&mut self.lease, self.pieces.bytes) {
            (lease, 0) => *lease = None,
            (Some(lease), bytes) => lease.shrink_to(bytes as u64),
            (None, _) => {}
        }
    }

    /// The lease of the whole message goes to the call; bytes that came after the message stay here.
    fn message_ends(&mut self) {
        let took = self.is_over();
        let mut lease = self.lease.take();
        let rest = (self.pieces.bytes - self.whole) as u64;
        if rest > 0 {
            self.lease = lease.as_mut().map(|lease| lease.split(rest));
        }
        self.call.put_message(lease, took);
    }

    /// The message is whole; how long it took to come.
    fn is_over(&mut self) -> Duration {
        if self.hands_over {
            self.call.message_ends();
        }
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
        took
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
        if let Some(message) = this.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        // Only now: the reader has taken the message before, with its lease.
        if let Err(status) = this.look() {
            return Poll::Ready(Some(Err(status)));
        }
        loop {
            if let Err(status) = this.unpack() {
                return Poll::Ready(Some(Err(status)));
            }
            if let Some(message) = this.ready.take() {
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            if this.unpacking.is_some() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if this.whole > 0 && this.hands_over {
                return Poll::Ready(Some(Ok(Frame::data(this.hand_over()))));
            }
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
                this.hands_over = false;
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
        self.pieces.bytes == 0 && self.ready.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Not the hint of the body: it is only a claim.
        SizeHint::default()
    }
}

fn not_taken_in(full: Full) -> Status {
    Status::resource_exhausted(format!("the message is not taken in: {full}"))
}

/// The message is over the limit, and there is no frame that could be refused alone.
fn no_frame(why: &str) -> Status {
    let text = format!("a message is longer than the server takes (limits.frame_bytes), and {why}");
    Status::resource_exhausted(text)
}

fn not_unpacked(error: NotUnpacked) -> Status {
    match error {
        NotUnpacked::Full(full) => not_taken_in(full),
        NotUnpacked::Malformed(error) => {
            let text = format!("a message says that it is packed with gzip, and is not: {error}");
            Status::invalid_argument(text)
        }
    }
}

/// The bytes of the first message are accounted for one message only.
fn second_message() -> Status {
    Status::invalid_argument("the call takes one message, and there came more")
}

#[cfg(test)]
mod tests;
