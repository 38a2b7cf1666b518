//! Decodes frames: JPEG, PNG, raw RGB. The size in a frame's header is checked before a byte of it is
//! decoded, so that a small message cannot claim much memory.

use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use image::ImageDecoder;
use image::codecs::png::PngDecoder;
use spillgate_backend::job::{Frame, FrameFormat};
use spillgate_backend::value::Image;
use spillgate_pipeline::pipeline::Limits;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Decodes a frame.
///
/// # Errors
/// A sentence for the client that sent it: what is wrong with the frame and what would be right.
pub fn decode(frame: &Frame, limits: &Limits) -> Result<Arc<Image>, String> {
    let data = &frame.data;
    if data.is_empty() {
        return Err("the frame is empty; send JPEG, PNG or raw RGB bytes".to_owned());
    }
    let image = match resolve(frame)? {
        FrameFormat::Jpeg => decode_jpeg(data, limits),
        FrameFormat::Png => decode_png(data, limits),
        _ => decode_rgb(frame, limits),
    }?;
    Ok(Arc::new(image))
}

fn resolve(frame: &Frame) -> Result<FrameFormat, String> {
    match frame.format {
        FrameFormat::Auto if frame.data.starts_with(&[0xff, 0xd8, 0xff]) => Ok(FrameFormat::Jpeg),
        FrameFormat::Auto if frame.data.starts_with(b"\x89PNG\r\n\x1a\n") => Ok(FrameFormat::Png),
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

fn check_size(width: u64, height: u64, limits: &Limits) -> Result<(), String> {
    if width == 0 || height == 0 {
        return Err(format!("the frame has no pixels ({width}x{height})"));
    }
    match width.checked_mul(height) {
        Some(pixels) if pixels <= limits.pixels => Ok(()),
        _ => Err(format!(
            "the frame is {width}x{height}, more than the {} pixels that the server takes (limits.pixels)",
            limits.pixels
        )),
    }
}

fn decode_jpeg(data: &Bytes, limits: &Limits) -> Result<Image, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("the frame is not a readable JPEG: {e}");
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&data[..]), options);
    decoder.decode_headers().map_err(|e| wrong(&e))?;
    let (width, height) = decoder
        .dimensions()
        .ok_or_else(|| wrong(&"it has no size"))?;
    check_size(width as u64, height as u64, limits)?;
    let rgb = decoder.decode().map_err(|e| wrong(&e))?;
    finish(width as u32, height as u32, rgb)
}

fn decode_png(data: &Bytes, limits: &Limits) -> Result<Image, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("the frame is not a readable PNG: {e}");
    let decoder = PngDecoder::new(Cursor::new(&data[..])).map_err(|e| wrong(&e))?;
    let (width, height) = decoder.dimensions();
    check_size(u64::from(width), u64::from(height), limits)?;
    let picture = image::DynamicImage::from_decoder(decoder).map_err(|e| wrong(&e))?;
    finish(width, height, picture.into_rgb8().into_raw())
}

fn decode_rgb(frame: &Frame, limits: &Limits) -> Result<Image, String> {
    check_size(u64::from(frame.width), u64::from(frame.height), limits)?;
    let expected = u64::from(frame.width) * u64::from(frame.height) * 3;
    if frame.data.len() as u64 != expected {
        return Err(format!(
            "a raw RGB frame of {}x{} has {expected} bytes, not {}",
            frame.width,
            frame.height,
            frame.data.len()
        ));
    }
    Ok(Image {
        width: frame.width,
        height: frame.height,
        rgb: frame.data.clone(),
    })
}

fn finish(width: u32, height: u32, rgb: Vec<u8>) -> Result<Image, String> {
    if rgb.len() as u64 != u64::from(width) * u64::from(height) * 3 {
        return Err(format!(
            "the decoded frame has {} bytes for {width}x{height}",
            rgb.len()
        ));
    }
    Ok(Image {
        width,
        height,
        rgb: Bytes::from(rgb),
    })
}

#[cfg(test)]
mod tests;
