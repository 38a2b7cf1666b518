//! Counts HTTP/2's frames as they come in: small ones of data, which take far more memory than their content, and pings and settings, each
//! of which has to be answered. Their number is visible only here. It also notes the preface: a connection that does not send it is not an HTTP/2
//! client. And it makes names of servers that gRPC sends for lists of them such that HTTP/2's parser takes them (`authority`).

mod authority;
mod pings;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Connection;
use super::connection::SMALL_FRAME;
use authority::HeaderBlocks;
use pings::{Boundaries, Came, Pings, goaway};

/// Length of HTTP/2's preface, and of the header of each of its frames.
const PREFACE: usize = 24;
const HEADER: usize = 9;
/// The type of a frame of data.
const DATA: u8 = 0;
/// Longest frame other than data. None needs more; a longer one would only grow the buffer that small frames then
/// hold.
const OTHER_MAX: usize = 16 << 10;

/// The types of frames of headers, settings and pings.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// The flag of the answer to settings or a ping.
const ACK: u8 = 1;
/// A connection's bytes.
pub(crate) struct Metered<S> {
    inner: S,
    connection: Arc<Connection>,
    frames: FrameCounter,
    /// Those that go out: an end may be said only between two of them.
    sent: Boundaries,
    pings: Pings,
    /// What is left to be sent of the connection's end.
    end: Option<Bytes>,
}

impl<S> Metered<S> {
    pub(crate) fn new(inner: S, connection: Arc<Connection>) -> Self {
        Metered {
            inner,
            connection,
            frames: FrameCounter::default(),
            sent: Boundaries::default(),
            pings: Pings::new(),
            end: None,
        }
    }
}

impl<S: AsyncWrite + Unpin> Metered<S> {
    /// Sends the rest of the connection's end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        while let Some(end) = self.end.as_mut().filter(|end| !end.is_empty()) {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, end)) {
                Ok(n @ 1..) => end.advance(n),
                // The peer is gone.
                _ => end.clear(),
            }
        }
        // TLS keeps the last record until it is told to send it; what that says changes nothing.
        let _ = ready!(Pin::new(&mut self.inner).poll_flush(cx));
        Poll::Ready(io::Error::other("too many pings or settings"))
    }
}

/// Follows the frames of HTTP/2 in a stream of bytes.
struct FrameCounter {
    /// Bytes until the next header.
    skip: usize,
    /// The preface has come.
    is_greeted: bool,
    header: [u8; HEADER],
    have: usize,
    /// Since this was last asked for.
    came: Came,
    /// A frame other than data was longer than any client needs.
    is_absurd: bool,
    headers: HeaderBlocks,
}

impl Default for FrameCounter {
    fn default() -> Self {
        FrameCounter {
            skip: PREFACE,
            is_greeted: false,
            header: [0; HEADER],
            have: 0,
            came: Came::default(),
            is_absurd: false,
            headers: HeaderBlocks::default(),
        }
    }
}

impl FrameCounter {
    /// Number of small frames of data whose headers end in these bytes.
    fn count(&mut self, mut bytes: &mut [u8]) -> u64 {
        let mut n = 0;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let (payload, rest) = bytes.split_at_mut(skipped);
            self.headers.read(payload);
            bytes = rest;
            self.is_greeted |= self.skip == 0;
            if self.have == 0
                && let &mut [a, b, c, kind, flags, _, _, _, _, ..] = bytes
            {
                n += self.begins([a, b, c, kind, flags]);
                bytes = &mut bytes[HEADER..];
                continue;
            }
            let taken = (HEADER - self.have).min(bytes.len());
            self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &mut bytes[taken..];
            if self.have == HEADER {
                let [a, b, c, kind, flags, ..] = self.header;
                n += self.begins([a, b, c, kind, flags]);
                self.have = 0;
            }
        }
        n
    }

    /// A frame begins, with this length, type and flags. Counts it if it is a small frame of data; empty ones do not count,
    /// since HTTP/2 drops them.
    fn begins(&mut self, [a, b, c, kind, flags]: [u8; 5]) -> u64 {
        self.came.calls += u64::from(matches!(kind, DATA | HEADERS));
        self.came.pings += u64::from(kind == PING && flags & ACK == 0);
        self.came.settings += u64::from(kind == SETTINGS && flags & ACK == 0);
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        self.headers.begins(kind, flags, self.skip);
        self.is_absurd |= kind != DATA && self.skip > OTHER_MAX;
        u64::from(kind == DATA && (1..SMALL_FRAME).contains(&self.skip))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.end.is_some() {
            return Poll::Ready(Err(ready!(this.poll_end(cx))));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let was_greeted = this.frames.is_greeted;
        let n = this.frames.count(&mut buf.filled_mut()[before..]);
        if this.frames.is_greeted && !was_greeted {
            this.connection.greet();
        }
        if this.frames.is_absurd {
            let text = "a frame that is none of data is longer than 16 KiB";
            return Poll::Ready(Err(io::Error::other(text)));
        }
        let came = std::mem::take(&mut this.frames.came);
        if let Some(text) = this.pings.too_many(&came) {
            tracing::info!(peer = %this.connection.peer(), "a connection is closed: {text}");
            // In the middle of a frame nothing else can be said.
            this.end = Some(match this.sent.is_between() {
                true => goaway(text),
                false => Bytes::new(),
            });
            return Poll::Ready(Err(ready!(this.poll_end(cx))));
        }
        if n > 0
            && let Err(full) = this.connection.frames_came(n)
        {
            let text = format!("too many small frames wait: {full}");
            return Poll::Ready(Err(io::Error::other(text)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        self.sent.follow(&buf[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs))?;
        let mut left = n;
        for buf in bufs {
            let of_it = left.min(buf.len());
            self.sent.follow(&buf[..of_it]);
            left -= of_it;
        }
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart_by_type_and_flags() {
        let mut counter = FrameCounter::default();
        counter.count(&mut b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec());
        for (kind, flags) in [
            (PING, 0),
            (PING, ACK),
            (DATA, 0),
            (SETTINGS, 0),
            (SETTINGS, ACK),
            (SETTINGS, 0),
        ] {
            counter.count(&mut [0, 0, 8, kind, flags, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        }
        let came = &counter.came;
        assert_eq!((came.calls, came.pings, came.settings), (1, 1, 2));
    }

    #[test]
    fn small_frames_of_data_are_counted_however_the_bytes_are_cut() {
        let frame = |kind: u8, length: usize| {
            let mut bytes = vec![0, (length >> 8) as u8, length as u8, kind, 0, 0, 0, 0, 1];
            bytes.extend(std::iter::repeat_n(kind, length));
            bytes
        };
        let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for (kind, length) in [
            (4, 12),
            (DATA, 1),
            (1, 300),
            (DATA, 0),
            (DATA, 9000),
            (DATA, 700),
            (6, 8),
        ] {
            all.extend(frame(kind, length));
        }
        for size in [1, 2, 8, 9, 10, 100, 2000] {
            let mut counter = FrameCounter::default();
            let mut all = all.clone();
            let n: u64 = all.chunks_mut(size).map(|bytes| counter.count(bytes)).sum();
            assert_eq!(n, 2, "in pieces of {size}");
            assert!(!counter.is_absurd);
        }
        let mut counter = FrameCounter::default();
        counter.count(&mut all.clone());
        counter.count(&mut frame(0xfa, OTHER_MAX + 1)[..HEADER]);
        assert!(counter.is_absurd, "it only makes the buffer grow");
    }
}
