use image::{ExtendedColorType, ImageEncoder};

use super::*;

fn limits() -> Limits {
    Limits {
        in_flight: 1,
        in_flight_per_stream: 1,
        pixels: 10_000,
        frame_bytes: 1 << 20,
        objects: 1,
    }
}

fn frame(format: FrameFormat, data: Vec<u8>) -> Frame {
    Frame {
        format,
        data: Bytes::from(data),
        width: 0,
        height: 0,
    }
}

fn gradient(width: u32, height: u32) -> Vec<u8> {
    (0..width * height)
        .flat_map(|i| [(i % width) as u8, (i / width) as u8, 128])
        .collect()
}

fn jpeg(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    image::codecs::jpeg::JpegEncoder::new_with_quality(&mut out, 95)
        .write_image(
            &gradient(width, height),
            width,
            height,
            ExtendedColorType::Rgb8,
        )
        .unwrap();
    out
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    image::codecs::png::PngEncoder::new(&mut out)
        .write_image(
            &gradient(width, height),
            width,
            height,
            ExtendedColorType::Rgb8,
        )
        .unwrap();
    out
}

fn error(frame: &Frame) -> String {
    decode(frame, &limits()).unwrap_err()
}

#[test]
fn reads_jpeg_png_and_raw() {
    let from_png = decode(&frame(FrameFormat::Auto, png(40, 30)), &limits()).unwrap();
    assert_eq!(&from_png.rgb[..], &gradient(40, 30)[..]);
    let from_jpeg = decode(&frame(FrameFormat::Auto, jpeg(40, 30)), &limits()).unwrap();
    assert_eq!((from_jpeg.width, from_jpeg.height), (40, 30));
    let off = from_jpeg
        .rgb
        .iter()
        .zip(gradient(40, 30))
        .map(|(a, b)| a.abs_diff(b))
        .max();
    assert!(
        off.unwrap() < 30,
        "JPEG is lossy, but not that lossy: {off:?}"
    );
    let raw = Frame {
        width: 40,
        height: 30,
        ..frame(FrameFormat::Rgb8, gradient(40, 30))
    };
    let decoded = decode(&raw, &limits()).unwrap();
    assert_eq!(
        decoded.rgb.as_ptr(),
        raw.data.as_ptr(),
        "raw frames are not copied"
    );
}

#[test]
fn a_corrupt_or_truncated_frame_is_told_so() {
    assert!(error(&frame(FrameFormat::Auto, vec![])).contains("empty"));
    assert!(error(&frame(FrameFormat::Auto, b"hello".to_vec())).contains("neither JPEG nor PNG"));
    for whole in [jpeg(60, 60), png(60, 60)] {
        for keep in [4, 20, whole.len() / 2] {
            let cut = frame(FrameFormat::Auto, whole[..keep].to_vec());
            let text = error(&cut);
            assert!(
                text.contains("not a readable") || text.contains("neither"),
                "{keep}: {text}"
            );
        }
    }
    let mut broken = png(60, 60);
    let middle = broken.len() / 2;
    broken[middle] ^= 0x55;
    assert!(error(&frame(FrameFormat::Png, broken)).contains("not a readable PNG"));
}

#[test]
fn a_huge_or_empty_picture_is_refused_by_its_header() {
    assert!(error(&frame(FrameFormat::Auto, png(200, 100))).contains("limits.pixels"));
    assert!(error(&frame(FrameFormat::Auto, jpeg(200, 100))).contains("limits.pixels"));
    // A header that claims 4 billion by 4 billion pixels, with no data behind it.
    let mut bomb = png(10, 10);
    bomb[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    let text = error(&frame(FrameFormat::Png, bomb));
    assert!(
        text.contains("limits.pixels") || text.contains("not a readable PNG"),
        "{text}"
    );
    let raw = |width, height| Frame {
        width,
        height,
        ..frame(FrameFormat::Rgb8, vec![0; 30])
    };
    assert!(error(&raw(0, 10)).contains("no pixels"));
    assert!(error(&raw(u32::MAX, u32::MAX)).contains("limits.pixels"));
    assert!(error(&raw(5, 5)).contains("75 bytes, not 30"));
}

#[test]
fn bytes_are_no_picture() {
    assert!(error(&frame(FrameFormat::Bytes, vec![1])).contains("takes pictures"));
}
