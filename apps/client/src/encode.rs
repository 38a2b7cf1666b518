//! Encodes pictures for the wire.

use anyhow::{Result, bail};
use bytes::Bytes;
use image::RgbImage;
use spillgate_proto::pb::FrameFormat;

/// Quality of the JPEG that frames are sent as, unless another one is asked for.
pub const JPEG_QUALITY: u8 = 90;

/// The format in which pictures are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JPEG of this quality, 1 to 100.
    Jpeg(u8),
    /// Three bytes a pixel: no loss and no work at either end, about ten times the bytes.
    Rgb,
}

/// A picture as it is sent.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The format of `data`.
    pub format: FrameFormat,
    /// The bytes.
    pub data: Bytes,
    /// Columns; zero when the format contains them.
    pub width: u32,
    /// Rows; zero when the format contains them.
    pub height: u32,
}

/// Encodes a picture.
///
/// # Errors
/// When a side is longer than JPEG allows.
pub fn encode(picture: &RgbImage, encoding: Encoding) -> Result<Encoded> {
    let (width, height) = picture.dimensions();
    match encoding {
        Encoding::Rgb => Ok(Encoded {
            format: FrameFormat::Rgb8,
            data: Bytes::copy_from_slice(picture.as_raw()),
            width,
            height,
        }),
        Encoding::Jpeg(quality) => Ok(Encoded {
            format: FrameFormat::Jpeg,
            data: jpeg(picture, quality)?.into(),
            width: 0,
            height: 0,
        }),
    }
}

/// A picture as a JPEG file.
///
/// # Errors
/// When a side is longer than JPEG allows.
pub fn jpeg(picture: &RgbImage, quality: u8) -> Result<Vec<u8>> {
    let (width, height) = picture.dimensions();
    let (Ok(columns), Ok(rows)) = (u16::try_from(width), u16::try_from(height)) else {
        bail!("a frame of {width}x{height} is too large for JPEG; send it with --raw");
    };
    let mut data = Vec::with_capacity(picture.as_raw().len() / 8);
    jpeg_encoder::Encoder::new(&mut data, quality).encode(
        picture.as_raw(),
        columns,
        rows,
        jpeg_encoder::ColorType::Rgb,
    )?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jpeg_reads_back() {
        let picture = RgbImage::from_fn(64, 48, |x, y| image::Rgb([x as u8 * 3, y as u8 * 4, 90]));
        let encoded = encode(&picture, Encoding::Jpeg(90)).unwrap();
        let back = image::load_from_memory(&encoded.data).unwrap().to_rgb8();
        assert_eq!(back.dimensions(), (64, 48));
        let worst = picture
            .iter()
            .zip(back.iter())
            .map(|(a, b)| a.abs_diff(*b))
            .max()
            .unwrap();
        assert!(worst < 24, "differs by {worst}");
    }

    #[test]
    fn raw_frames_carry_their_size() {
        let encoded = encode(&RgbImage::new(5, 3), Encoding::Rgb).unwrap();
        assert_eq!(
            (encoded.width, encoded.height, encoded.data.len()),
            (5, 3, 45)
        );
    }
}
