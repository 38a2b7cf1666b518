//! JPEG: the header, and what decoding costs. Segments are found as libjpeg finds them: bytes between them that belong to nothing are
//! skipped.

mod decode;
mod libjpeg;

use crate::exif;
use crate::upright::Orientation;
use crate::{BYTE_NS, Header, PARTS_MAX, PictureKind, time};

pub(crate) use decode::decode;

/// Most scans of a JPEG. Encoders write about ten; each may pass over the whole picture.
pub const SCANS_MAX: u32 = 100;

// Costs of decoding on one core of a server, rounded up; `cargo bench -p spillgate-picture` measures them on this
// machine. The server learns the pace of its machine from the pictures that it decodes.
/// A pixel: inverse transform, upsampling, conversion of colours.
const PIXEL_NS: f64 = 3.0;
/// A byte of entropy-coded data.
const ENTROPY_BYTE_NS: f64 = 16.0;
/// The same where arithmetic codes stand in place of Huffman's.
const ARITHMETIC_BYTE_NS: f64 = 100.0;
/// A block that a scan of a progressive picture passes over.
const BLOCK_NS: f64 = 25.0;
/// A segment: finding it, and making the tables that it may hold.
const SEGMENT_NS: f64 = 2_000.0;

/// What libjpeg holds of any picture: tables and the like; and for each column: some rows of each component in several forms.
const HELD: u64 = 256 << 10;
/// See [`HELD`].
const HELD_A_COLUMN: u64 = 512;

/// Markers.
const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const APP1: u8 = 0xe1;

/// The content of a start-of-frame segment.
struct Frame {
    width: u32,
    height: u32,
    is_progressive: bool,
    is_arithmetic: bool,
    /// Id and number of 8 x 8 blocks of each component.
    components: Vec<(u8, u64)>,
}

/// Reads the header.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn header(data: &[u8]) -> Result<Header, String> {
    if !data.starts_with(&[0xff, SOI]) {
        return Err(match crate::foreign::name(data) {
            Some(name) => format!("it is {name}"),
            None => "it does not begin as one".to_owned(),
        });
    }
    let mut frame: Option<Frame> = None;
    let mut orientation = None;
    let (mut scans, mut passed_blocks, mut entropy_bytes) = (0, 0, 0);
    let mut is_in_parts = false;
    let (mut at, mut segments) = (2, 0);
    // Ends at the end of the bytes, wherever it is; the decoder will report it.
    while let Some((marker, start)) = marker(data, at) {
        at = start;
        segments += 1;
        if segments > PARTS_MAX {
            return Err(format!("it has more than {PARTS_MAX} segments"));
        }
        if marker == EOI {
            break;
        }
        // Markers without content.
        if matches!(marker, 0x01 | 0xd0..=SOI) {
            continue;
        }
        let Some((body, next)) = segment(data, at) else {
            break;
        };
        at = next;
        match marker {
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let found = start_of_frame(marker, body)?;
                if frame.replace(found).is_some() {
                    return Err("it has two frame headers".to_owned());
                }
            }
            APP1 if orientation.is_none() && body.starts_with(exif::PREFIX) => {
                orientation = Some(exif::orientation(body));
            }
            SOS => {
                scans += 1;
                if scans > SCANS_MAX {
                    return Err(format!("it has more than {SCANS_MAX} scans"));
                }
                passed_blocks += blocks_of_scan(frame.as_ref(), body);
                let n_of_scan = body.first().map(|n| usize::from(*n));
                is_in_parts |= n_of_scan != frame.as_ref().map(|f| f.components.len());
                let end = end_of_scan(data, at);
                entropy_bytes += end - at;
                at = end;
            }
            _ => {}
        }
    }
    let frame = frame.ok_or("it has no size")?;
    if scans == 0 {
        return Err("it ends before its pixels begin".to_owned());
    }
    let blocks: u64 = frame.components.iter().map(|(_, blocks)| blocks).sum();
    let passed = if frame.is_progressive {
        passed_blocks
    } else {
        0
    };
    let pixels = u64::from(frame.width) * u64::from(frame.height);
    // Coefficients of all components are kept until the last one is complete.
    let coefficients = if frame.is_progressive || is_in_parts {
        blocks * 64 * 2
    } else {
        0
    };
    let entropy_ns = match frame.is_arithmetic {
        true => ARITHMETIC_BYTE_NS,
        false => ENTROPY_BYTE_NS,
    };
    Ok(Header {
        kind: PictureKind::Jpeg,
        width: frame.width,
        height: frame.height,
        orientation: orientation.unwrap_or(Orientation::UPRIGHT),
        decoding: time(
            pixels as f64 * PIXEL_NS
                + entropy_bytes as f64 * entropy_ns
                + passed as f64 * BLOCK_NS
                + f64::from(segments) * SEGMENT_NS
                + data.len() as f64 * BYTE_NS,
        ),
        held: coefficients + HELD + u64::from(frame.width) * HELD_A_COLUMN,
    })
}

/// The next marker from `at` on, and what follows it. Whatever stands before it is skipped, as are fill bytes.
fn marker(data: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += memchr::memchr(0xff, data.get(at..)?)?;
        while *data.get(at)? == 0xff {
            at += 1;
        }
        if data[at] != 0 {
            return Some((data[at], at + 1));
        }
    }
}

/// The content of the segment whose length stands at `at`, and the start of what follows. `None` where it is cut. A length that counts
/// less than itself is that of an empty one.
fn segment(data: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let length = data.get(at..)?.first_chunk()?;
    let end = at + usize::from(u16::from_be_bytes(*length)).max(2);
    Some((data.get(at + 2..end)?, end))
}

fn start_of_frame(marker: u8, body: &[u8]) -> Result<Frame, String> {
    if !matches!(marker, 0xc0..=0xc2 | 0xc9 | 0xca) {
        return Err("it is lossless or hierarchical, which is not read".to_owned());
    }
    let cut = "its frame header is cut short";
    let &[precision, h0, h1, w0, w1, n, ref rest @ ..] = body else {
        return Err(cut.to_owned());
    };
    if precision != 8 {
        return Err(format!("its samples have {precision} bits; 8 are read"));
    }
    if !matches!(n, 1 | 3 | 4) {
        return Err(format!("it has {n} colour components; 1, 3 or 4 are read"));
    }
    let (width, height) = (u16::from_be_bytes([w0, w1]), u16::from_be_bytes([h0, h1]));
    let described = rest.get(..3 * usize::from(n)).ok_or(cut)?.chunks_exact(3);
    let sampling = |c: &[u8]| (u64::from(c[1] >> 4).max(1), u64::from(c[1] & 15).max(1));
    let across = described.clone().map(|c| sampling(c).0).max().unwrap_or(1);
    let down = described.clone().map(|c| sampling(c).1).max().unwrap_or(1);
    let (units_across, units_down) = (
        u64::from(width).div_ceil(8 * across),
        u64::from(height).div_ceil(8 * down),
    );
    let blocks = |c: &[u8]| {
        let (h, v) = sampling(c);
        (c[0], units_across * h * units_down * v)
    };
    Ok(Frame {
        width: u32::from(width),
        height: u32::from(height),
        is_progressive: matches!(marker, 0xc2 | 0xca),
        is_arithmetic: matches!(marker, 0xc9 | 0xca),
        components: described.map(blocks).collect(),
    })
}

/// Number of blocks that a scan passes over: those of its components.
fn blocks_of_scan(frame: Option<&Frame>, body: &[u8]) -> u64 {
    let Some(frame) = frame else { return 0 };
    let n = usize::from(body.first().copied().unwrap_or(0));
    let named = body.get(1..).unwrap_or_default().chunks_exact(2).take(n);
    let of = |id: u8| frame.components.iter().find(|(c, _)| *c == id);
    named
        .filter_map(|c| of(c[0]))
        .map(|(_, blocks)| blocks)
        .sum()
}

/// The end of the entropy-coded data that begins at `at`: a marker that is neither stuffing nor a restart.
fn end_of_scan(data: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr(0xff, &data[at..]) {
        at += found;
        match data.get(at + 1) {
            Some(0x00 | 0xd0..=0xd7) => at += 2,
            Some(0xff) => at += 1,
            _ => return at,
        }
    }
    data.len()
}
