//! What decoding a picture takes, beside what its header is expected to cost (`Picture::decoding`), which is printed first.

use bytes::Bytes;
use divan::Bencher;
use spillgate_picture::{Frame, FrameFormat, Picture, decode};

const PIXELS: u64 = 1 << 26;

/// A picture by its name, and what makes it.
type Named = (&'static str, fn() -> Vec<u8>);

const PICTURES: [Named; 7] = [
    ("jpeg_720p", || jpeg(1280, 720, false, 0)),
    ("jpeg_720p_progressive", || jpeg(1280, 720, true, 0)),
    ("jpeg_8k", || jpeg(7680, 4320, false, 0)),
    ("jpeg_8k_empty_scans", || jpeg(7680, 4320, true, 60)),
    ("png_720p", || png(1280, 720, false)),
    ("png_8k_bits", || png(7680, 4320, true)),
    ("rgb_720p", || vec![7; 1280 * 720 * 3]),
];

fn main() {
    for (name, make) in PICTURES {
        let picture = Picture::of(&frame(name, make()), PIXELS).expect("a picture");
        println!("{name}: expected {:?}", picture.decoding);
    }
    divan::main();
}

fn frame(name: &str, data: Vec<u8>) -> Frame {
    let raw = name.starts_with("rgb");
    Frame {
        format: if raw {
            FrameFormat::Rgb8
        } else {
            FrameFormat::Auto
        },
        data: Bytes::from(data),
        width: if raw { 1280 } else { 0 },
        height: if raw { 720 } else { 0 },
    }
}

/// Noise over a gradient, as cameras see it.
fn rows(width: u32, height: u32) -> Vec<u8> {
    let mut noise = 1u32;
    (0..width * height)
        .flat_map(|i| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let grain = (noise >> 28) as u8;
            [
                (i % width / 8) as u8 + grain,
                (i / width / 4) as u8,
                90 + grain,
            ]
        })
        .collect()
}

fn jpeg(width: u32, height: u32, progressive: bool, empty_scans: usize) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut whole, 80);
    encoder.set_progressive(progressive);
    let rows = match empty_scans {
        0 => rows(width, height),
        _ => vec![128; (width * height * 3) as usize],
    };
    let size = (width as u16, height as u16);
    encoder
        .encode(&rows, size.0, size.1, jpeg_encoder::ColorType::Rgb)
        .expect("it encodes");
    let scan = whole
        .windows(2)
        .rposition(|w| w == [0xff, 0xda])
        .expect("a scan");
    let end = whole.len() - 2;
    let last = whole[scan..end].to_vec();
    whole.truncate(end);
    for _ in 0..empty_scans {
        whole.extend_from_slice(&last);
    }
    whole.extend_from_slice(&[0xff, 0xd9]);
    whole
}

fn png(width: u32, height: u32, bits: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    let rows = if bits {
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::One);
        vec![0x55; (width.div_ceil(8) * height) as usize]
    } else {
        encoder.set_color(png::ColorType::Rgb);
        rows(width, height)
    };
    let mut writer = encoder.write_header().expect("it encodes");
    writer.write_image_data(&rows).expect("it encodes");
    drop(writer);
    out
}

#[divan::bench(args = PICTURES.map(|(name, _)| name), sample_count = 5, sample_size = 1)]
fn decoding(bencher: Bencher<'_, '_>, name: &str) {
    let (_, make) = PICTURES
        .into_iter()
        .find(|(n, _)| *n == name)
        .expect("one of them");
    let frame = frame(name, make());
    let picture = Picture::of(&frame, PIXELS).expect("a picture");
    bencher.bench(|| decode(&frame, &picture, &mut || false).expect("it decodes"));
}

#[divan::bench(args = PICTURES.map(|(name, _)| name))]
fn header(bencher: Bencher<'_, '_>, name: &str) {
    let (_, make) = PICTURES
        .into_iter()
        .find(|(n, _)| *n == name)
        .expect("one of them");
    let frame = frame(name, make());
    bencher.bench(|| Picture::of(&frame, PIXELS).expect("a picture"));
}
