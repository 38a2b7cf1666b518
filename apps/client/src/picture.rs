//! Reads pictures as the server does: upright, and with its reasons where one cannot be read.

use anyhow::{Result, anyhow};
use bytes::Bytes;
use image::RgbImage;
use spillgate_picture::{Frame, NotDecoded, Picture, decode};

/// Most pixels that are taken into memory: 3 GiB of them, more than any camera sends.
const PIXELS_MAX: u64 = 1 << 30;

/// The upright size of a picture, from its header.
///
/// # Errors
/// When it is none that can be read.
pub(crate) fn size(data: &Bytes) -> Result<(u32, u32)> {
    let picture = header(&Frame::file(data.clone()))?;
    Ok((picture.width, picture.height))
}

/// The upright pixels of a picture.
///
/// # Errors
/// When it is none that can be read.
pub(crate) fn read(data: &Bytes) -> Result<RgbImage> {
    let frame = Frame::file(data.clone());
    let picture = header(&frame)?;
    let decoded = decode(&frame, &picture, &mut || false).map_err(|error| match error {
        NotDecoded::Unreadable(text) => anyhow!(text),
        NotDecoded::Stopped => unreachable!("nothing stops it"),
    })?;
    let pixels = RgbImage::from_raw(picture.width, picture.height, decoded.rgb.into());
    pixels.ok_or_else(|| anyhow!("the picture has not all its pixels"))
}

fn header(frame: &Frame) -> Result<Picture> {
    Picture::of(frame, PIXELS_MAX).map_err(|text| anyhow!(text))
}
