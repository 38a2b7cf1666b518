//! Decodes frames: JPEG, PNG, WebP, raw RGB. The claims of a frame's header are checked before a byte is decoded ([`Picture::of`]).

use bytes::Bytes;

use crate::{Damage, Frame, Picture, PictureKind, jpeg, png, webp};

/// The pixels of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Rows of RGB from the top, upright.
    pub rgb: Bytes,
    /// What is damaged, where the decoder noticed it.
    pub damage: Option<Damage>,
}

/// Why a frame was not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDecoded {
    /// A sentence for the client that sent it: what is wrong with the frame and what would be right.
    Unreadable(String),
    /// It was stopped in the middle.
    Stopped,
}

/// Decodes a frame that looks like `picture`. The decoder asks `stops` regularly whether to stop: a JPEG each 64 KiB and each row of
/// blocks, a PNG each 8 KiB and each row. A WebP is asked for before its pixels only, because its decoder cannot be stopped; its work is
/// bounded by its size and its length.
///
/// # Errors
/// When it is no picture that can be read, or was stopped.
pub fn decode(
    frame: &Frame,
    picture: &Picture,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Decoded, NotDecoded> {
    match picture.kind {
        PictureKind::Jpeg => jpeg::decode(&frame.data, picture, stops),
        PictureKind::Png { interlaced } => png::decode(&frame.data, picture, interlaced, stops),
        PictureKind::Webp => webp::decode(&frame.data, picture, stops),
        PictureKind::Rgb8 => Ok(Decoded {
            rgb: frame.data.clone(),
            damage: None,
        }),
    }
}
