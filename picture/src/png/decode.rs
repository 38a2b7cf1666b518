//! PNG, by the png crate, row by row.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, Cursor, Read, Seek, SeekFrom};

use ::png::{
    ColorType, DecodeOptions, Decoder, DecodingError, InterlaceInfo, Limits, Reader,
    Transformations,
};

use crate::upright::Upright;
use crate::{Decoded, NotDecoded, Picture};

/// Bytes that a decoder may hold beside the rows: palettes and the like.
const CHUNK_BYTES: usize = 1 << 20;

/// Most bytes that are read before it is asked whether to go on: the costliest take about a millisecond.
const READ_MOST: usize = 8 << 10;

/// Decodes upright. Transparency is ignored: colours are as stored.
pub(crate) fn decode(
    data: &[u8],
    picture: &Picture,
    interlaced: bool,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Decoded, NotDecoded> {
    let stopped = Cell::new(false);
    let asked = RefCell::new(stops);
    let stops = || {
        stopped.set(stopped.get() || (asked.borrow_mut())());
        stopped.get()
    };
    let wrong = |e: DecodingError| match stopped.get() {
        true => NotDecoded::Stopped,
        false => NotDecoded::Unreadable(crate::wrong("PNG", sentence(&e))),
    };
    // Texts and colour profiles are compressed separately and not used here.
    let mut options = DecodeOptions::default();
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let reader = Stoppable {
        inner: Cursor::new(data),
        stops: &stops,
    };
    let mut decoder = Decoder::new_with_options(reader, options);
    let held = usize::try_from(picture.bytes).unwrap_or(usize::MAX);
    decoder.set_limits(Limits {
        bytes: held.saturating_add(CHUNK_BYTES),
    });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(wrong)?;
    let (colour, _) = reader.output_color_type();
    let unreadable = |what: &str| NotDecoded::Unreadable(crate::wrong("PNG", what));
    // The decoder must find the size that was checked.
    if reader.info().size() != picture.stored() {
        return Err(unreadable("it claims two sizes"));
    }
    let mut upright = Upright::new(picture.stored(), picture.orientation);
    if interlaced {
        let size = reader.output_buffer_size();
        let mut rows = vec![0; size.ok_or_else(|| unreadable("it is too large"))?];
        read_passes(&mut reader, &mut rows, &stops, &wrong)?;
        let stride = reader.output_line_size(picture.stored().0);
        for row in rows.chunks_exact(stride.unwrap_or(1).max(1)) {
            put(&mut upright, colour, row);
        }
    } else {
        while let Some(row) = reader.next_row().map_err(wrong)? {
            put(&mut upright, colour, row.data());
            if stops() {
                return Err(NotDecoded::Stopped);
            }
        }
    }
    let rgb = upright.done();
    Ok(Decoded {
        rgb: rgb.ok_or_else(|| unreadable("rows are missing"))?.into(),
        damage: None,
    })
}

/// What an error of the decoder means.
fn sentence(error: &DecodingError) -> &'static str {
    match error {
        DecodingError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            "it is cut short: its data end before its pixels do"
        }
        DecodingError::LimitsExceeded => "decoding it takes more memory than its header promised",
        _ => "its data are damaged",
    }
}

/// All passes of an interlaced picture.
fn read_passes(
    reader: &mut Reader<Stoppable>,
    rows: &mut [u8],
    stops: &dyn Fn() -> bool,
    wrong: &dyn Fn(DecodingError) -> NotDecoded,
) -> Result<(), NotDecoded> {
    let (colour, depth) = reader.output_color_type();
    let bits = colour.samples() as u8 * depth as u8;
    let stride = reader.output_line_size(reader.info().width).unwrap_or(0);
    while let Some(row) = reader.next_interlaced_row().map_err(wrong)? {
        if let InterlaceInfo::Adam7(interlace) = row.interlace() {
            ::png::expand_interlaced_row(rows, stride, row.data(), interlace, bits);
        }
        if stops() {
            return Err(NotDecoded::Stopped);
        }
    }
    Ok(())
}

/// A reader that fails where it is told to stop.
struct Stoppable<'a> {
    inner: Cursor<&'a [u8]>,
    stops: &'a dyn Fn() -> bool,
}

impl Stoppable<'_> {
    fn goes_on(&self) -> io::Result<()> {
        match (self.stops)() {
            true => Err(io::Error::other("told to stop")),
            false => Ok(()),
        }
    }
}

impl Read for Stoppable<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.goes_on()?;
        let most = into.len().min(READ_MOST);
        self.inner.read(&mut into[..most])
    }
}

impl BufRead for Stoppable<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.goes_on()?;
        let all = self.inner.fill_buf()?;
        Ok(&all[..all.len().min(READ_MOST)])
    }

    fn consume(&mut self, n: usize) {
        self.inner.consume(n);
    }
}

impl Seek for Stoppable<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

fn put(upright: &mut Upright, colour: ColorType, row: &[u8]) {
    match colour {
        ColorType::Rgb => upright.row(row.as_chunks().0.iter().copied()),
        ColorType::Rgba => upright.row(row.as_chunks().0.iter().map(|&[r, g, b, _]| [r, g, b])),
        ColorType::Grayscale => upright.row(row.iter().map(|&p| [p; 3])),
        ColorType::GrayscaleAlpha => upright.row(row.as_chunks().0.iter().map(|&[p, _]| [p; 3])),
        // Palettes are expanded by the transformations asked for.
        ColorType::Indexed => {}
    }
}
