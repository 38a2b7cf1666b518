//! Reads the header of a picture before a byte of it is decoded: its kind, its size, and the time and memory that
//! decoding needs. A small message can claim much time and memory.

use std::time::Duration;

use spillgate_pipeline::pipeline::Limits;

use crate::job::{Frame, FrameFormat};

/// Most scans of a JPEG. Encoders write about ten; each may pass over the whole picture.
pub const SCANS_MAX: u32 = 100;

// Costs of decoding on one core of a server, rounded up; `cargo bench -p spillgate-worker` measures them on this
// machine. The server learns the pace of its machine from the pictures that it decodes.
/// Reading a header and making the decoder.
const START_NS: u64 = 20_000;
/// A pixel of a JPEG: inverse transform, upsampling, conversion of colours.
const JPEG_PIXEL_NS: f64 = 3.0;
/// A byte of entropy-coded data.
const JPEG_BYTE_NS: f64 = 16.0;
/// A block that a scan of a progressive JPEG passes over.
const JPEG_BLOCK_NS: f64 = 25.0;
/// A byte of a row of a PNG: inflating and undoing its filter.
const PNG_BYTE_NS: f64 = 4.0;
/// A pixel of a PNG: expanding it to RGB.
const PNG_PIXEL_NS: f64 = 3.0;
/// A compressed byte of a PNG: codes and their tables.
const PNG_PACKED_NS: f64 = 4.0;
/// A byte of a file that is read past, or summed.
const BYTE_NS: f64 = 1.0;
/// A segment of a JPEG: finding it, and making the tables that it may hold.
const JPEG_SEGMENT_NS: f64 = 2_000.0;

/// Most segments of a JPEG, or chunks of a PNG: those of 16 MiB have 1 KiB each. Encoders write some dozens, or 8 KiB each.
const PARTS_MAX: u32 = 16_384;
/// A PNG has at most so many compressed bytes for each byte of its rows, and [`PACKED_BESIDE`] more: encoders store what they cannot
/// compress, which takes little more than the rows.
const PACKED_TIMES: u64 = 2;
/// See [`PACKED_TIMES`].
const PACKED_BESIDE: u64 = 64 << 10;

/// A picture as its header describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its kind.
    pub kind: PictureKind,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Expected time to decode it, on a machine of usual pace.
    pub decoding: Duration,
    /// Most bytes that decoding holds, the decoded picture included.
    pub bytes: u64,
}

/// How a picture is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureKind {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png {
        /// Its rows are interlaced.
        interlaced: bool,
    },
    /// Rows of RGB: nothing is decoded.
    Rgb8,
}

impl Picture {
    /// Reads a frame's header.
    ///
    /// # Errors
    /// A sentence for the client that sent the frame: what is wrong with it and what would be right.
    pub fn of(frame: &Frame, limits: &Limits) -> Result<Picture, String> {
        let data = &frame.data[..];
        if data.is_empty() {
            return Err("the frame is empty; send JPEG, PNG or raw RGB bytes".to_owned());
        }
        let wrong = |kind| move |e| format!("the frame is not a readable {kind}: {e}");
        let picture = match resolve(frame)? {
            FrameFormat::Jpeg => jpeg(data).map_err(wrong("JPEG")),
            FrameFormat::Png => png(data).map_err(wrong("PNG")),
            _ => Ok(Picture {
                kind: PictureKind::Rgb8,
                width: frame.width,
                height: frame.height,
                decoding: Duration::ZERO,
                bytes: 0,
            }),
        }?;
        check_size(&picture, limits)?;
        if picture.kind == PictureKind::Rgb8 {
            check_length(&picture, data.len())?;
        }
        Ok(picture)
    }

    /// Bytes of the decoded picture.
    pub fn rgb_bytes(&self) -> u64 {
        rgb_bytes(self.width, self.height)
    }
}

fn rgb_bytes(width: u32, height: u32) -> u64 {
    (u64::from(width) * u64::from(height)).saturating_mul(3)
}

fn resolve(frame: &Frame) -> Result<FrameFormat, String> {
    match frame.format {
        FrameFormat::Auto if frame.data.starts_with(&[0xff, 0xd8, 0xff]) => Ok(FrameFormat::Jpeg),
        FrameFormat::Auto if frame.data.starts_with(PNG_SIGNATURE) => Ok(FrameFormat::Png),
        FrameFormat::Auto => Err(format!(
            "the frame's {} bytes are neither JPEG nor PNG; set its format for raw RGB",
            frame.data.len()
        )),
        FrameFormat::Bytes => {
            Err("this pipeline takes pictures, and the frame says that it is none".to_owned())
        }
        other => Ok(other),
    }
}

fn check_size(picture: &Picture, limits: &Limits) -> Result<(), String> {
    let (width, height) = (picture.width, picture.height);
    if width == 0 || height == 0 {
        return Err(format!("the frame has no pixels ({width}x{height})"));
    }
    if u64::from(width) * u64::from(height) > limits.pixels {
        return Err(format!(
            "the frame is {width}x{height}, more than the {} pixels that the server takes (limits.pixels)",
            limits.pixels
        ));
    }
    Ok(())
}

fn check_length(picture: &Picture, length: usize) -> Result<(), String> {
    let expected = picture.rgb_bytes();
    if length as u64 == expected {
        return Ok(());
    }
    Err(format!(
        "a raw RGB frame of {}x{} has {expected} bytes, not {length}",
        picture.width, picture.height
    ))
}

fn time(ns: f64) -> Duration {
    Duration::from_nanos(START_NS.saturating_add(ns as u64))
}

const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

fn png(data: &[u8]) -> Result<Picture, String> {
    let header = data
        .get(..33)
        .filter(|h| h.starts_with(PNG_SIGNATURE) && &h[12..16] == b"IHDR")
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
    let packed = packed(data)?;
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
    Ok(Picture {
        kind: PictureKind::Png { interlaced },
        width,
        height,
        decoding: time(
            rows as f64 * PNG_BYTE_NS
                + pixels as f64 * PNG_PIXEL_NS
                + packed as f64 * PNG_PACKED_NS
                + data.len() as f64 * BYTE_NS,
        ),
        bytes: rgb_bytes(width, height).saturating_add(held),
    })
}

/// The compressed bytes of a PNG: those of its IDAT chunks. Ends at the first bytes that are no chunk; the decoder will report them.
fn packed(data: &[u8]) -> Result<u64, String> {
    let (mut at, mut chunks, mut packed) = (PNG_SIGNATURE.len(), 0, 0);
    while let Some(&[a, b, c, d, ref kind @ ..]) = data.get(at..at + 8) {
        chunks += 1;
        if chunks > PARTS_MAX {
            return Err(format!("it has more than {PARTS_MAX} chunks"));
        }
        let length = u32::from_be_bytes([a, b, c, d]);
        if kind == b"IDAT" {
            packed += u64::from(length).min((data.len() - at) as u64);
        }
        // Its length, its kind and its sum beside it.
        at = at.saturating_add(length as usize).saturating_add(12);
    }
    Ok(packed)
}

/// The content of a start-of-frame segment.
struct JpegFrame {
    width: u32,
    height: u32,
    is_progressive: bool,
    /// Id and number of 8 x 8 blocks of each component.
    components: Vec<(u8, u64)>,
}

fn jpeg(data: &[u8]) -> Result<Picture, String> {
    let mut frame: Option<JpegFrame> = None;
    let (mut scans, mut passed_blocks, mut entropy_bytes) = (0, 0, 0);
    let mut is_in_parts = false;
    let (mut at, mut segments) = (2, 0);
    if !data.starts_with(&[0xff, 0xd8]) {
        return Err("it does not begin as one".to_owned());
    }
    // Ends at the first bytes that are not a segment; the decoder will report them.
    while let Some((marker, body, next)) = segment(data, at) {
        at = next;
        segments += 1;
        if segments > PARTS_MAX {
            return Err(format!("it has more than {PARTS_MAX} segments"));
        }
        match marker {
            0xd9 => break,
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let found = start_of_frame(marker, body).ok_or("its frame header is cut short")?;
                if frame.replace(found).is_some() {
                    return Err("it has two frame headers".to_owned());
                }
            }
            0xda => {
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
    Ok(Picture {
        kind: PictureKind::Jpeg,
        width: frame.width,
        height: frame.height,
        decoding: time(
            pixels as f64 * JPEG_PIXEL_NS
                + entropy_bytes as f64 * JPEG_BYTE_NS
                + passed as f64 * JPEG_BLOCK_NS
                + f64::from(segments) * JPEG_SEGMENT_NS
                + data.len() as f64 * BYTE_NS,
        ),
        bytes: rgb_bytes(frame.width, frame.height) + coefficients,
    })
}

/// The segment at `at`: its marker, its content, the start of the next one. `None` at the end, or where there is no
/// segment.
fn segment(data: &[u8], mut at: usize) -> Option<(u8, &[u8], usize)> {
    if *data.get(at)? != 0xff {
        return None;
    }
    while *data.get(at)? == 0xff {
        at += 1;
    }
    let marker = data[at];
    at += 1;
    if matches!(marker, 0x01 | 0xd0..=0xd9) {
        return Some((marker, &[], at));
    }
    let length = usize::from(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]));
    let body = data.get(at + 2..at + length)?;
    Some((marker, body, at + length))
}

fn start_of_frame(marker: u8, body: &[u8]) -> Option<JpegFrame> {
    let number = |at: usize| {
        Some(u32::from(u16::from_be_bytes([
            *body.get(at)?,
            *body.get(at + 1)?,
        ])))
    };
    let (height, width) = (number(1)?, number(3)?);
    let described = body.get(6..6 + 3 * usize::from(*body.get(5)?))?;
    let sampling = |c: &[u8]| (u64::from(c[1] >> 4).max(1), u64::from(c[1] & 15).max(1));
    let described = described.chunks_exact(3);
    let across = described.clone().map(|c| sampling(c).0).max()?;
    let down = described.clone().map(|c| sampling(c).1).max()?;
    let (units_across, units_down) = (
        u64::from(width).div_ceil(8 * across),
        u64::from(height).div_ceil(8 * down),
    );
    let blocks = |c: &[u8]| {
        let (h, v) = sampling(c);
        (c[0], units_across * h * units_down * v)
    };
    Some(JpegFrame {
        width,
        height,
        is_progressive: matches!(marker, 0xc2 | 0xc6 | 0xca | 0xce),
        components: described.map(blocks).collect(),
    })
}

/// Number of blocks that a scan passes over: those of its components.
fn blocks_of_scan(frame: Option<&JpegFrame>, body: &[u8]) -> u64 {
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
