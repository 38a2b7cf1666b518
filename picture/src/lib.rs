//! Pictures as strangers send them. [`Picture::of`] reads a header before a byte is decoded: kind, size, and the time and memory that
//! decoding needs, since a small message can claim much of both. [`decode()`] gives the pixels, upright, and what is damaged.

mod damage;
mod decode;
mod exif;
mod foreign;
mod jpeg;
mod png;
mod upright;
mod webp;

use std::time::Duration;

use bytes::Bytes;

pub use damage::Damage;
pub use decode::{Decoded, NotDecoded, decode};
pub use jpeg::SCANS_MAX;
pub use upright::Orientation;

/// Time to read a header and to make the decoder, on one core of a server.
const START_NS: u64 = 20_000;
/// A byte of a file that is read past, or summed.
const BYTE_NS: f64 = 1.0;
/// Most segments of a JPEG, or chunks of a PNG or WebP: those of 16 MiB have 1 KiB each. Encoders write some dozens, or 8 KiB each.
const PARTS_MAX: u32 = 16_384;

/// How the bytes of a frame are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// JPEG, PNG or WebP, detected from the first bytes.
    Auto,
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP.
    Webp,
    /// Rows from the top, RGB, 8 bits a channel, `width * height * 3` bytes.
    Rgb8,
    /// No picture.
    Bytes,
}

/// A frame as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// How to read `data`.
    pub format: FrameFormat,
    /// The content; a slice of the message that brought it.
    pub data: Bytes,
    /// Columns, for `Rgb8`.
    pub width: u32,
    /// Rows, for `Rgb8`.
    pub height: u32,
}

impl Frame {
    /// A picture in a file, of a kind that its first bytes tell.
    pub fn file(data: Bytes) -> Self {
        Frame {
            format: FrameFormat::Auto,
            data,
            width: 0,
            height: 0,
        }
    }
}

/// A picture as its header describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its kind.
    pub kind: PictureKind,
    /// Columns, upright.
    pub width: u32,
    /// Rows, upright.
    pub height: u32,
    /// How it lies in the file.
    pub orientation: Orientation,
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
    /// WebP.
    Webp,
    /// Rows of RGB: nothing is decoded.
    Rgb8,
}

/// What a header says, as the file stores it.
struct Header {
    kind: PictureKind,
    width: u32,
    height: u32,
    orientation: Orientation,
    decoding: Duration,
    /// Most bytes that decoding holds beside the decoded picture.
    held: u64,
}

impl Picture {
    /// Reads a frame's header. No more than `pixels` are taken.
    ///
    /// # Errors
    /// A sentence for the client that sent the frame: what is wrong with it and what would be right.
    pub fn of(frame: &Frame, pixels: u64) -> Result<Picture, String> {
        let data = &frame.data[..];
        if data.is_empty() {
            return Err("the frame is empty; send JPEG, PNG, WebP or raw RGB bytes".to_owned());
        }
        let format = match frame.format {
            FrameFormat::Auto => detect(data)?,
            other => other,
        };
        let header = match format {
            FrameFormat::Jpeg => jpeg::header(data).map_err(|e| wrong("JPEG", &e)),
            FrameFormat::Png => png::header(data).map_err(|e| wrong("PNG", &e)),
            FrameFormat::Webp => webp::header(data).map_err(|e| wrong("WebP", &e)),
            FrameFormat::Auto | FrameFormat::Rgb8 => Ok(Header {
                kind: PictureKind::Rgb8,
                width: frame.width,
                height: frame.height,
                orientation: Orientation::UPRIGHT,
                decoding: Duration::ZERO,
                held: 0,
            }),
            FrameFormat::Bytes => {
                Err("this pipeline takes pictures, and the frame says that it is none".to_owned())
            }
        }?;
        let (width, height) = header.orientation.upright((header.width, header.height));
        check_size((width, height), pixels)?;
        let rgb = rgb_bytes(width, height);
        let bytes = match header.kind {
            PictureKind::Rgb8 => {
                check_length((width, height), data.len())?;
                0
            }
            _ => rgb.saturating_add(header.held),
        };
        Ok(Picture {
            kind: header.kind,
            width,
            height,
            orientation: header.orientation,
            decoding: header.decoding,
            bytes,
        })
    }

    /// Bytes of the decoded picture.
    pub fn rgb_bytes(&self) -> u64 {
        rgb_bytes(self.width, self.height)
    }

    /// Columns and rows as the file stores them.
    fn stored(&self) -> (u32, u32) {
        self.orientation.upright((self.width, self.height))
    }
}

/// Most bytes of a decoded picture of so many pixels.
pub fn bytes_of_pixels(pixels: u64) -> u64 {
    pixels.saturating_mul(3)
}

fn rgb_bytes(width: u32, height: u32) -> u64 {
    bytes_of_pixels(u64::from(width) * u64::from(height))
}

fn wrong(kind: &str, what: &str) -> String {
    format!("the frame is not a readable {kind}: {what}")
}

fn detect(data: &[u8]) -> Result<FrameFormat, String> {
    if data.starts_with(&[0xff, 0xd8, 0xff]) {
        return Ok(FrameFormat::Jpeg);
    }
    if data.starts_with(png::SIGNATURE) {
        return Ok(FrameFormat::Png);
    }
    if webp::is_webp(data) {
        return Ok(FrameFormat::Webp);
    }
    Err(match foreign::name(data) {
        Some(name) => format!("the frame is {name}, which is not read; send JPEG, PNG or WebP"),
        None => format!(
            "the frame's {} bytes are neither JPEG, PNG nor WebP; set its format for raw RGB",
            data.len()
        ),
    })
}

fn check_size((width, height): (u32, u32), pixels: u64) -> Result<(), String> {
    if width == 0 || height == 0 {
        return Err(format!("the frame has no pixels ({width}x{height})"));
    }
    if u64::from(width) * u64::from(height) > pixels {
        return Err(format!(
            "the frame is {width}x{height}, more than the {pixels} pixels that the server takes (limits.pixels)"
        ));
    }
    Ok(())
}

fn check_length((width, height): (u32, u32), length: usize) -> Result<(), String> {
    let expected = rgb_bytes(width, height);
    if length as u64 == expected {
        return Ok(());
    }
    Err(format!(
        "a raw RGB frame of {width}x{height} has {expected} bytes, not {length}"
    ))
}

fn time(ns: f64) -> Duration {
    Duration::from_nanos(START_NS.saturating_add(ns as u64))
}

#[cfg(test)]
mod tests;
