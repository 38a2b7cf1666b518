//! A message that came packed with gzip. It is unpacked in steps, so that a serving thread does other work in between, and
//! what comes out is on the account of bytes with each step.

use std::io::{self, Write};
use std::sync::Arc;

use flate2::write::GzDecoder;
use spillgate_process::account::{Full, Holder, Lease};

/// Bytes that the decoder holds: its window and tables.
const DECODER_BYTES: u64 = 64 << 10;
/// Packed bytes that are unpacked at a time. No more than a thousand times as many come out.
pub(super) const PIECE: usize = 1 << 10;
/// After this many bytes of content other tasks of the thread have their turn.
pub(crate) const STEP: usize = 256 << 10;

/// The content so far.
struct Content {
    bytes: Vec<u8>,
    max: usize,
    is_over: bool,
}

impl Write for Content {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.max - self.bytes.len();
        self.is_over |= bytes.len() > room;
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        // What is over the limit is not kept.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a message cannot be unpacked.
#[derive(Debug)]
pub(super) enum NotUnpacked {
    /// Its client may hold no more.
    Full(Full),
    /// It is not gzip, or cut short.
    Malformed(io::Error),
}

/// Unpacks one message.
pub(super) struct Unpacking {
    decoder: GzDecoder<Content>,
    lease: Lease,
}

impl Unpacking {
    /// Before the first byte. The content begins with these bytes, and has at most `max` further ones.
    ///
    /// # Errors
    /// When the client may hold no more.
    pub(super) fn new(holder: &Arc<Holder>, head: &[u8], max: usize) -> Result<Self, Full> {
        let content = Content {
            bytes: head.to_vec(),
            max: head.len() + max,
            is_over: false,
        };
        Ok(Unpacking {
            decoder: GzDecoder::new(content),
            lease: holder.take(DECODER_BYTES)?,
        })
    }

    /// Whether there is more content than may be.
    pub(super) fn is_over(&self) -> bool {
        self.decoder.get_ref().is_over
    }

    /// Bytes of content so far.
    pub(super) fn len(&self) -> usize {
        self.decoder.get_ref().bytes.len()
    }

    /// Unpacks the next bytes, at most [`PIECE`].
    ///
    /// # Errors
    /// When they are not gzip, or the client may hold no more.
    pub(super) fn unpack(&mut self, packed: &[u8]) -> Result<(), NotUnpacked> {
        let written = self.decoder.write_all(packed);
        written.map_err(NotUnpacked::Malformed)?;
        // What was reserved, which may be twice the content.
        let reserved = DECODER_BYTES + self.decoder.get_ref().bytes.capacity() as u64;
        let more = reserved.saturating_sub(self.lease.bytes());
        self.lease.grow(more).map_err(NotUnpacked::Full)
    }

    /// The content so far.
    pub(super) fn content(&self) -> &[u8] {
        &self.decoder.get_ref().bytes
    }

    /// All packed bytes are there: unpacks what the decoder holds back.
    ///
    /// # Errors
    /// When it is cut short, or not what was packed.
    pub(super) fn finish(&mut self) -> Result<(), NotUnpacked> {
        self.decoder.try_finish().map_err(NotUnpacked::Malformed)
    }

    /// Takes the content, with its lease.
    pub(super) fn take(mut self) -> (Vec<u8>, Lease) {
        let bytes = std::mem::take(&mut self.decoder.get_mut().bytes);
        self.lease.shrink_to(bytes.capacity() as u64);
        (bytes, self.lease)
    }
}
