//! Decodes frames: JPEG, PNG, raw RGB. The claims of a frame's header are checked before a byte is decoded
//! ([`Picture::of`]). A decoder can be stopped in the middle.

mod jpeg;
mod png;

use bytes::Bytes;
use spillgate_backend::job::Frame;
use spillgate_backend::picture::{Picture, PictureKind};

/// Why a frame was not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDecoded {
    /// A sentence for the client that sent it: what is wrong with the frame and what would be right.
    Unreadable(String),
    /// It was stopped in the middle.
    Stopped,
}

impl From<String> for NotDecoded {
    fn from(text: String) -> Self {
        NotDecoded::Unreadable(text)
    }
}

/// Decodes a frame that looks like `picture` to rows of RGB. The decoder asks `stops` regularly whether to stop, wherever it is: each few
/// thousand bytes that it reads, and at each row of a PNG and each scan of a JPEG.
///
/// # Errors
/// When it is no picture that can be read, or was stopped.
pub fn decode(
    frame: &Frame,
    picture: &Picture,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Bytes, NotDecoded> {
    let rgb = match picture.kind {
        PictureKind::Jpeg => Bytes::from(jpeg::decode(&frame.data, picture, stops)?),
        PictureKind::Png { interlaced } => {
            Bytes::from(png::decode(&frame.data, picture, interlaced, stops)?)
        }
        PictureKind::Rgb8 => frame.data.clone(),
    };
    if rgb.len() as u64 != picture.rgb_bytes() {
        let (width, height) = (picture.width, picture.height);
        let text = format!(
            "the decoded frame has {} bytes for {width}x{height}",
            rgb.len()
        );
        return Err(text.into());
    }
    Ok(rgb)
}

#[cfg(test)]
mod tests;
