//! A connection that is watched: whether the server greets, and whether it takes what is sent.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Most time from the connection to the first byte of the server: HTTP/2 begins with its settings, which need no work.
pub(crate) const GREETING_TIME_MAX: Duration = Duration::from_secs(5);

/// When the server's side last made room for what is sent. A link that is slow does so all the time; a server that is frozen does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upload(Arc<Mutex<Option<Instant>>>);

impl Upload {
    /// None while there was always room.
    pub(crate) fn room_at(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn made_room(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Bytes to and from a server.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    inner: S,
    /// Until the first byte has come.
    greeting: Option<Pin<Box<Sleep>>>,
    upload: Upload,
    was_full: bool,
}

impl<S> Watched<S> {
    /// A connection that was made just now.
    pub(super) fn new(inner: S, upload: Upload) -> Self {
        Watched {
            inner,
            greeting: Some(Box::pin(sleep(GREETING_TIME_MAX))),
            upload,
            was_full: false,
        }
    }

    /// What became of a write.
    fn wrote(&mut self, written: &Poll<Result<usize>>) {
        match written {
            Poll::Pending => self.was_full = true,
            Poll::Ready(_) if self.was_full => {
                self.was_full = false;
                self.upload.made_room();
            }
            Poll::Ready(_) => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, into);
        let Some(greeting) = &mut self.greeting else {
            return read;
        };
        if read.is_ready() {
            self.greeting = None;
            return read;
        }
        ready!(greeting.as_mut().poll(cx));
        let what = format!(
            "it took the connection and sent no greeting of HTTP/2 within {GREETING_TIME_MAX:?}"
        );
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, what)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bytes);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_greet_is_given_up() {
        let (near, mut far) = duplex(16);
        let mut near = Watched::new(near, Upload::default());
        let start = Instant::now();
        let error = near.read_u8().await.unwrap_err();
        assert_eq!(
            (error.kind(), start.elapsed()),
            (ErrorKind::TimedOut, GREETING_TIME_MAX)
        );
        // After the greeting it may be silent as long as it likes.
        let (near, mut greets) = duplex(16);
        let mut near = Watched::new(near, Upload::default());
        greets.write_u8(1).await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), 1);
        let silence = tokio::time::timeout(100 * GREETING_TIME_MAX, near.read_u8()).await;
        assert!(silence.is_err());
        far.write_u8(1).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn only_room_that_had_to_be_made_is_a_sign() {
        let (near, mut far) = duplex(4);
        let upload = Upload::default();
        let mut near = Watched::new(near, upload.clone());
        near.write_all(&[0; 4]).await.unwrap();
        assert_eq!(upload.room_at(), None, "the buffer took it");
        let start = Instant::now();
        let pause = Duration::from_secs(7);
        let reads = async {
            sleep(pause).await;
            far.read_u8().await.unwrap();
        };
        let (written, ()) = tokio::join!(near.write_all(&[0]), reads);
        written.unwrap();
        assert_eq!(upload.room_at(), Some(start + pause));
    }
}
