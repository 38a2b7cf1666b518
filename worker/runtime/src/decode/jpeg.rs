//! JPEG, by zune-jpeg, from a reader that can end early.

use std::fmt::Display;

use spillgate_backend::picture::Picture;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZCursor, ZSeekFrom};
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::NotDecoded;

/// Number of reads after which the reader asks whether to go on. A read is of a few bytes, so it asks every few
/// thousand bytes. Headers of scans are read in pieces, so in a picture of many empty scans it asks at each scan.
const READS_BETWEEN: u32 = 512;

/// Decodes to RGB.
pub(super) fn decode(
    data: &[u8],
    picture: &Picture,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Vec<u8>, NotDecoded> {
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut stopped = false;
    let reader = Stoppable {
        inner: ZCursor::new(data),
        stops,
        stopped: &mut stopped,
        reads: 0,
    };
    let mut decoder = JpegDecoder::new_with_options(reader, options);
    let wrong = |e: &dyn Display| Err(format!("the frame is not a readable JPEG: {e}").into());
    if let Err(e) = decoder.decode_headers() {
        return wrong(&e);
    }
    // The decoder must find the size that was checked.
    let size = (picture.width as usize, picture.height as usize);
    if decoder.dimensions() != Some(size) {
        return wrong(&"it claims two sizes");
    }
    let decoded = decoder.decode();
    drop(decoder);
    match decoded {
        _ if stopped => Err(NotDecoded::Stopped),
        Ok(rgb) => Ok(rgb),
        Err(e) => wrong(&e),
    }
}

/// A reader that ends where it is told to stop.
struct Stoppable<'a> {
    inner: ZCursor<&'a [u8]>,
    stops: &'a mut dyn FnMut() -> bool,
    stopped: &'a mut bool,
    reads: u32,
}

impl Stoppable<'_> {
    /// Whether to go on, asked every so often.
    fn goes_on(&mut self) -> bool {
        self.reads += 1;
        if self.reads >= READS_BETWEEN {
            self.look();
        }
        !*self.stopped
    }

    fn look(&mut self) {
        self.reads = 0;
        *self.stopped |= (self.stops)();
    }
}

impl ZByteReaderTrait for Stoppable<'_> {
    fn read_byte_no_error(&mut self) -> u8 {
        match self.goes_on() {
            true => self.inner.read_byte_no_error(),
            false => 0,
        }
    }

    fn read_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        match self.goes_on() {
            true => self.inner.read_exact_bytes(buf),
            false => Err(ZByteIoError::NotEnoughBytes(0, buf.len())),
        }
    }

    fn read_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        match self.goes_on() {
            true => self.inner.read_bytes(buf),
            false => Ok(0),
        }
    }

    fn peek_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        self.inner.peek_bytes(buf)
    }

    fn peek_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        self.inner.peek_exact_bytes(buf)
    }

    /// Decoders seek back once a scan has ended.
    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        self.look();
        self.inner.z_seek(from)
    }

    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        Ok(*self.stopped || self.inner.is_eof()?)
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        self.inner.z_position()
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        self.inner.read_remaining(sink)
    }
}
