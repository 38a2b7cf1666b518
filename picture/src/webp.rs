//! WebP, by image-webp: the header, what decoding costs, and the pixels. Of an animation the first picture counts.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use crate::exif;
use crate::upright::{Orientation, Upright};
use crate::{BYTE_NS, Decoded, Header, NotDecoded, PARTS_MAX, Picture, PictureKind, time};

// Costs of decoding on one core of a server, rounded up; `cargo bench -p spillgate-picture` measures them on this machine.
/// A pixel, with or without loss.
const PIXEL_NS: f64 = 20.0;
/// A byte of compressed data.
const PACKED_BYTE_NS: f64 = 40.0;
/// Bytes that the decoder holds for each pixel: four of a canvas, and four of a picture on it.
const HELD: u64 = 8;

/// Length of the header of the file, and of each chunk.
const RIFF: usize = 12;
const CHUNK: usize = 8;

pub(crate) fn is_webp(data: &[u8]) -> bool {
    data.starts_with(b"RIFF") && data.get(8..RIFF) == Some(b"WEBP")
}

/// Reads the header.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn header(data: &[u8]) -> Result<Header, String> {
    if !is_webp(data) {
        return Err(match crate::foreign::name(data) {
            Some(name) => format!("it is {name}"),
            None => "it does not begin as one".to_owned(),
        });
    }
    let (mut at, mut n) = (RIFF, 0);
    let mut size = None;
    let mut orientation = Orientation::UPRIGHT;
    // Ends at the first bytes that are no chunk; the decoder will report them.
    while let Some(&[ref kind @ .., a, b, c, d]) = data.get(at..at + CHUNK) {
        n += 1;
        if n > PARTS_MAX {
            return Err(format!("it has more than {PARTS_MAX} chunks"));
        }
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let content = at + CHUNK;
        let end = content.saturating_add(length);
        let body = data.get(content..end.min(data.len())).unwrap_or_default();
        if kind == b"EXIF" {
            orientation = exif::orientation(body);
        }
        // The first of these says how large the whole is.
        size = size.or_else(|| match kind {
            b"VP8X" => canvas(body),
            b"VP8 " => lossy(body),
            b"VP8L" => lossless(body),
            _ => None,
        });
        // Chunks have an even length.
        at = end.saturating_add(length % 2);
    }
    let (width, height) = size.ok_or("it has no size")?;
    let pixels = u64::from(width) * u64::from(height);
    Ok(Header {
        kind: PictureKind::Webp,
        width,
        height,
        orientation,
        decoding: time(pixels as f64 * PIXEL_NS + data.len() as f64 * (PACKED_BYTE_NS + BYTE_NS)),
        held: pixels.saturating_mul(HELD),
    })
}

/// The size in the header of a file with more than a picture: 24 bits each, less one.
fn canvas(body: &[u8]) -> Option<(u32, u32)> {
    let &[a, b, c, d, e, f] = body.get(4..)?.first_chunk()?;
    let size = |bytes: [u8; 3]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) + 1;
    Some((size([a, b, c]), size([d, e, f])))
}

/// The size of a picture with loss: 14 bits each (RFC 6386, 9.1).
fn lossy(body: &[u8]) -> Option<(u32, u32)> {
    let &[0x9d, 0x01, 0x2a, a, b, c, d] = body.get(3..)?.first_chunk()? else {
        return None;
    };
    let size = |bytes| u32::from(u16::from_le_bytes(bytes) & 0x3fff);
    Some((size([a, b]), size([c, d])))
}

/// The size of a picture without loss: 14 bits each, less one (RFC 9649, 3.4).
fn lossless(body: &[u8]) -> Option<(u32, u32)> {
    let &[0x2f, a, b, c, d] = body.first_chunk()? else {
        return None;
    };
    let bits = u32::from_le_bytes([a, b, c, d]);
    Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
}

/// Decodes upright. Transparency is ignored: colours are as stored.
pub(crate) fn decode(
    data: &[u8],
    picture: &Picture,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Decoded, NotDecoded> {
    let unreadable = |what: &str| NotDecoded::Unreadable(crate::wrong("WebP", what));
    let wrong = |e: DecodingError| unreadable(sentence(&e));
    if stops() {
        return Err(NotDecoded::Stopped);
    }
    let mut decoder = WebPDecoder::new(Cursor::new(data)).map_err(wrong)?;
    // The decoder must find the size that was checked.
    let size = picture.stored();
    if decoder.dimensions() != size {
        return Err(unreadable("it claims two sizes"));
    }
    decoder.set_memory_limit(usize::try_from(picture.bytes).unwrap_or(usize::MAX));
    let bytes = decoder.output_buffer_size();
    let mut rows = vec![0; bytes.ok_or_else(|| unreadable("it is too large"))?];
    decoder.read_image(&mut rows).map_err(wrong)?;
    let mut upright = Upright::new(size, picture.orientation);
    let width = size.0 as usize;
    match decoder.has_alpha() {
        true => {
            for row in rows.chunks_exact(width * 4) {
                upright.row(row.as_chunks().0.iter().map(|&[r, g, b, _]| [r, g, b]));
            }
        }
        false => {
            for row in rows.chunks_exact(width * 3) {
                upright.row(row.as_chunks().0.iter().copied());
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
        DecodingError::IoError(_) | DecodingError::BitStreamError => "it is cut short or damaged",
        DecodingError::ImageTooLarge | DecodingError::MemoryLimitExceeded => {
            "decoding it takes more memory than its header promised"
        }
        DecodingError::UnsupportedFeature(_) => "it is of a kind that is not read",
        _ => "its data are damaged",
    }
}
