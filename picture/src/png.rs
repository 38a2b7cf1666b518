//! PNG: the header, and what decoding costs.

mod decode;

use crate::exif;
use crate::upright::Orientation;
use crate::{BYTE_NS, Header, PARTS_MAX, PictureKind, time};

pub(crate) use decode::decode;

/// The first bytes.
pub(crate) const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

// Costs of decoding on one core of a server, rounded up; `cargo bench -p spillgate-picture` measures them on this machine.
/// A byte of a row: inflating and undoing its filter.
const ROW_BYTE_NS: f64 = 4.0;
/// A pixel: expanding it to RGB.
const PIXEL_NS: f64 = 3.0;
/// A compressed byte: codes and their tables.
const PACKED_BYTE_NS: f64 = 4.0;

/// A PNG has at most so many compressed bytes for each byte of its rows, and [`PACKED_BESIDE`] more: encoders store what they cannot
/// compress, which takes little more than the rows.
const PACKED_TIMES: u64 = 2;
/// See [`PACKED_TIMES`].
const PACKED_BESIDE: u64 = 64 << 10;

/// Reads the header.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn header(data: &[u8]) -> Result<Header, String> {
    let header = data
        .get(..33)
        .filter(|h| h.starts_with(SIGNATURE) && &h[12..16] == b"IHDR")
        .ok_or("it has no header")?;
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let (width, height) = (number(16), number(20));
    let (depth, colour, interlaced) = (header[24], header[25], header[28] != 0);
    let channels = match colour {
        0 | 3 => 1,
        2 => 3,
        4 => 2,
        6 => 4,
        other => return Err(format!("its colour type {other} is unknown")),
    };
    if !matches!(depth, 1 | 2 | 4 | 8 | 16) {
        return Err(format!("its bit depth {depth} is unknown"));
    }
    let row = (u64::from(width) * channels * u64::from(depth)).div_ceil(8) + 1;
    let rows = row.saturating_mul(u64::from(height));
    let pixels = u64::from(width) * u64::from(height);
    let Chunks {
        packed,
        orientation,
    } = chunks(data)?;
    if packed
        > rows
            .saturating_mul(PACKED_TIMES)
            .saturating_add(PACKED_BESIDE)
    {
        return Err(format!(
            "it has {packed} compressed bytes for rows of {rows}, far more than any encoder writes"
        ));
    }
    // Interlaced rows are of no use until the last pass, so all of them are held as they are expanded.
    let held = match interlaced {
        true => pixels.saturating_mul(4),
        false => row * 5,
    };
    Ok(Header {
        kind: PictureKind::Png { interlaced },
        width,
        height,
        orientation,
        decoding: time(
            rows as f64 * ROW_BYTE_NS
                + pixels as f64 * PIXEL_NS
                + packed as f64 * PACKED_BYTE_NS
                + data.len() as f64 * BYTE_NS,
        ),
        held,
    })
}

/// What its chunks say.
struct Chunks {
    /// Compressed bytes of pixels.
    packed: u64,
    orientation: Orientation,
}

/// Looks through the chunks. Ends at the first bytes that are none; the decoder will report them.
fn chunks(data: &[u8]) -> Result<Chunks, String> {
    let (mut at, mut n) = (SIGNATURE.len(), 0);
    let mut chunks = Chunks {
        packed: 0,
        orientation: Orientation::UPRIGHT,
    };
    while let Some(&[a, b, c, d, ref kind @ ..]) = data.get(at..at + 8) {
        n += 1;
        if n > PARTS_MAX {
            return Err(format!("it has more than {PARTS_MAX} chunks"));
        }
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        // Its length and its kind before it, its sum behind.
        let content = at + 8;
        let end = content.saturating_add(length);
        match kind {
            b"IDAT" => chunks.packed += length.min(data.len() - content) as u64,
            b"eXIf" => {
                let exif = data.get(content..end).unwrap_or_default();
                chunks.orientation = exif::orientation(exif);
            }
            _ => {}
        }
        at = end.saturating_add(4);
    }
    Ok(chunks)
}
