//! A connection over a slow link: what is written leaves at the pace of a trace of bandwidths, so that a run on one machine sees the
//! networks that cameras have.
//!
//! Bytes go into a small buffer, from which the link takes them one packet after another; when it is full, the writer waits, as it would
//! for a real link. What comes from the server is not slowed down, as answers are small. The round trip is divided evenly over
//! both directions: estimates of clocks presume that, as most networks do.
//!
//! All is driven from the polls of the one task that owns the connection; no task and no thread is added.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Result;
use bytes::{Buf, Bytes};
use spillgate_camera::bandwidth::BandwidthTrace;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::bandwidth;

/// The buffer before the link holds what leaves within this time: long enough for timers of a millisecond, short enough that the writer
/// feels each change of the link.
pub(crate) const BUFFER: Duration = Duration::from_millis(20);
/// Bytes that leave together, as one packet of Ethernet carries.
const PACKET: usize = 1448;
/// Most bytes on their way in one direction. With it 1 Gbit/s has room for a round trip of a second.
pub(crate) const ON_THE_WAY_MAX: usize = 64 << 20;
/// A packet that leaves later than this never leaves: a trace may bear next to nothing.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Bytes that are read at once.
const READ: usize = 16 << 10;

/// A slow link. Cheap to clone; clones share its time.
#[derive(Clone)]
pub(crate) struct SlowLink {
    trace: Arc<BandwidthTrace>,
    round_trip: Duration,
    /// When the trace began, by which its present place is known.
    began: Instant,
}

impl SlowLink {
    /// A link of the bandwidths of a file, which begins now.
    ///
    /// # Errors
    /// When the file is no trace of bandwidths; one line that names it.
    pub(crate) fn from_file(path: &Path, round_trip: Duration) -> Result<Self> {
        let trace = bandwidth::read(path)?;
        Ok(SlowLink::new(trace, round_trip))
    }

    fn new(trace: BandwidthTrace, round_trip: Duration) -> Self {
        SlowLink {
            trace: Arc::new(trace),
            round_trip,
            began: Instant::now(),
        }
    }

    /// Bits a second, in the mean, for so long from that time on.
    pub(crate) fn bandwidth(&self, from: Instant, span: Duration) -> f64 {
        let from = from.saturating_duration_since(self.began);
        let bits = self.trace.carried(from + span) - self.trace.carried(from);
        bits / span.as_secs_f64()
    }

    /// Time from one end to the other, beside the time of the bytes.
    fn one_way(&self) -> Duration {
        self.round_trip / 2
    }
}

/// Bytes that arrive at a time.
struct Packet {
    at: Instant,
    bytes: Bytes,
}

/// One direction: packets on their way.
struct Direction {
    packets: VecDeque<Packet>,
    bytes: usize,
    timer: Pin<Box<Sleep>>,
}

impl Direction {
    fn new() -> Self {
        Direction {
            packets: VecDeque::new(),
            bytes: 0,
            timer: Box::pin(sleep_until(Instant::now())),
        }
    }

    fn push(&mut self, at: Instant, bytes: Bytes) {
        self.bytes += bytes.len();
        self.packets.push_back(Packet { at, bytes });
    }

    /// The oldest packet, if it has arrived.
    fn arrived(&mut self) -> Option<&mut Bytes> {
        let packet = self.packets.front_mut()?;
        (packet.at <= Instant::now()).then_some(&mut packet.bytes)
    }

    /// So many bytes of the oldest packet were taken.
    fn taken(&mut self, n: usize) {
        self.bytes -= n;
        if self.packets.front().is_some_and(|p| p.bytes.is_empty()) {
            self.packets.pop_front();
        }
    }

    /// Wakes the task at that time.
    fn wake_at(&mut self, at: Instant, cx: &mut Context<'_>) {
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}

/// A connection over a slow link.
pub(crate) struct Shaped<S> {
    inner: S,
    link: SlowLink,
    /// Bits of the trace until the last packet has left.
    leaves_bits: f64,
    out: Direction,
    /// When the buffer has room again for which a writer waits.
    room_at: Option<Instant>,
    back: Direction,
    has_ended: bool,
}

impl<S> Shaped<S> {
    pub(crate) fn new(inner: S, link: SlowLink) -> Self {
        Shaped {
            inner,
            link,
            leaves_bits: 0.0,
            out: Direction::new(),
            room_at: None,
            back: Direction::new(),
            has_ended: false,
        }
    }

    /// When the last packet that was taken has left.
    fn leaves_at(&self) -> Instant {
        let leaves = self.link.trace.time_of(self.leaves_bits);
        self.link.began + leaves.min(FOREVER)
    }

    /// When the buffer takes another packet; `None`: now.
    fn full_until(&self, now: Instant) -> Option<Instant> {
        if self.out.bytes >= ON_THE_WAY_MAX {
            return self.out.packets.front().map(|p| p.at);
        }
        let leaves = self.leaves_at();
        (leaves > now + BUFFER).then(|| leaves - BUFFER)
    }

    /// Takes as many packets as the buffer has room for; the number of bytes.
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let now = Instant::now();
        let mut taken = 0;
        while !bytes.is_empty() {
            self.room_at = self.full_until(now);
            if self.room_at.is_some() {
                break;
            }
            let (packet, rest) = bytes.split_at(bytes.len().min(PACKET));
            let carried = self.link.trace.carried(now - self.link.began);
            self.leaves_bits = self.leaves_bits.max(carried) + packet.len() as f64 * 8.0;
            let at = self.leaves_at() + self.link.one_way();
            self.out.push(at, Bytes::copy_from_slice(packet));
            taken += packet.len();
            bytes = rest;
        }
        taken
    }
}

impl<S: AsyncWrite + Unpin> Shaped<S> {
    /// Writes what has come to the other end; ready when nothing is on its way.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(bytes) = self.out.arrived() {
            let n = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            bytes.advance(n);
            self.out.taken(n);
        }
        let next = self.out.packets.front().map(|p| p.at);
        if let Some(at) = next.into_iter().chain(self.room_at).min() {
            self.out.wake_at(at, cx);
        }
        match next {
            Some(_) => Poll::Pending,
            None => Pin::new(&mut self.inner).poll_flush(cx),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Shaped<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = self.take(buf);
        if let Poll::Ready(Err(error)) = self.drive(cx) {
            return Poll::Ready(Err(error));
        }
        match taken {
            0 if !buf.is_empty() => Poll::Pending,
            n => Poll::Ready(Ok(n)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.drive(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drive(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Shaped<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // A reader may be all that polls for a while.
        if let Poll::Ready(Err(error)) = this.drive(cx) {
            return Poll::Ready(Err(error));
        }
        while !this.has_ended && this.back.bytes < ON_THE_WAY_MAX {
            let mut space = [0; READ];
            let mut space = ReadBuf::new(&mut space);
            match Pin::new(&mut this.inner).poll_read(cx, &mut space)? {
                Poll::Pending => break,
                Poll::Ready(()) if space.filled().is_empty() => this.has_ended = true,
                Poll::Ready(()) => {
                    let at = Instant::now() + this.link.one_way();
                    this.back.push(at, Bytes::copy_from_slice(space.filled()));
                }
            }
        }
        if let Some(bytes) = this.back.arrived() {
            let n = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes.split_to(n));
            this.back.taken(n);
            return Poll::Ready(Ok(()));
        }
        match this.back.packets.front().map(|p| p.at) {
            Some(at) => this.back.wake_at(at, cx),
            None if this.has_ended => return Poll::Ready(Ok(())),
            None => {}
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
