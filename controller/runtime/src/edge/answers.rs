//! The body of an answer. It holds a lease for each piece until HTTP/2 has sent it, and notes whether it is read.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spillgate_process::account::Lease;
use tonic::Status;

use super::call::{Buffer, Call, Unread};

/// An answer's body.
pub(crate) struct Answers<B> {
    body: B,
    /// `None` for a refused call: it has no answers.
    call: Option<Arc<Call>>,
    is_unary: bool,
    /// The piece that was made ahead.
    first: Option<Frame<Bytes>>,
    is_over: bool,
    /// When the call is to end, where its service does not look to that.
    ends: Option<Ends>,
}

/// Waits until a call is to end; the status with which it does.
type Ends = Pin<Box<dyn Future<Output = Status> + Send>>;

impl<B> Answers<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    /// The answers of a call.
    pub(crate) fn new(body: B, call: Arc<Call>, is_unary: bool) -> Self {
        Answers {
            body,
            call: Some(call),
            is_unary,
            first: None,
            is_over: false,
            ends: None,
        }
    }

    /// The body of an answer that is all in its headers.
    pub(crate) fn nothing(body: B) -> Self {
        Answers {
            body,
            call: None,
            is_unary: true,
            first: None,
            is_over: true,
            ends: None,
        }
    }

    /// Ends with this status, too, once it is there.
    pub(crate) fn until(self, ends: impl Future<Output = Status> + Send + 'static) -> Self {
        Answers {
            ends: Some(Box::pin(ends)),
            ..self
        }
    }

    /// Encodes the one answer of a unary call at once, so that the values behind it are dropped.
    pub(crate) fn make(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Some(Ok(first))) = self.next(cx) {
            self.first = Some(first);
        }
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(call) = self.call.as_ref().filter(|_| !self.is_over) else {
            return Poll::Ready(None);
        };
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(frame)) => frame,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {
                let ends = self.ends.as_mut().map(|ends| ends.as_mut().poll(cx));
                let Some(Poll::Ready(status)) = ends else {
                    return Poll::Pending;
                };
                self.is_over = true;
                return Poll::Ready(Some(Ok(trailers(&status))));
            }
        };
        let data = match frame?.into_data() {
            Ok(data) => data,
            Err(other) => return Poll::Ready(Some(Ok(other))),
        };
        let kept = match self.is_unary {
            true => Ok(()),
            false => call.keep(Buffer::Answers, data.len()),
        };
        match kept.and_then(|()| call.holder().take_on(data.len() as u64)) {
            Ok(lease) => {
                let unread = call.unread();
                let held = Bytes::from_owner(Waiting {
                    data,
                    _lease: lease,
                    _unread: unread,
                });
                Poll::Ready(Some(Ok(Frame::data(held))))
            }
            Err(full) => {
                self.is_over = true;
                let status = Status::resource_exhausted(format!("the answer is not kept: {full}"));
                Poll::Ready(Some(Ok(trailers(&status))))
            }
        }
    }
}

impl<B> Body for Answers<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.next(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && (self.is_over || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The end of an answer.
fn trailers(status: &Status) -> Frame<Bytes> {
    let mut trailers = http::HeaderMap::new();
    let _ = status.add_header(&mut trailers);
    Frame::trailers(trailers)
}

/// A piece of an answer that waits to be sent.
struct Waiting {
    data: Bytes,
    _lease: Lease,
    _unread: Unread,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
