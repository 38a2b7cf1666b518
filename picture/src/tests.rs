//! Pictures of the crates that write them, and ones made by hand to break readers.

use ::png as png_file;
use image::{ExtendedColorType, ImageEncoder};

use super::*;

/// Most pixels of small pictures, and of large ones.
const FEW: u64 = 10_000;
const MANY: u64 = 1 << 26;

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

fn read(frame: &Frame) -> Result<Bytes, NotDecoded> {
    let picture = Picture::of(frame, FEW).map_err(NotDecoded::Unreadable)?;
    decode(frame, &picture, &mut || false).map(|decoded| decoded.rgb)
}

fn error(frame: &Frame) -> String {
    match read(frame) {
        Err(NotDecoded::Unreadable(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_jpeg_png_and_raw() {
    let from_png = read(&frame(FrameFormat::Auto, png(40, 30))).unwrap();
    assert_eq!(&from_png[..], &gradient(40, 30)[..]);
    let from_jpeg = read(&frame(FrameFormat::Auto, jpeg(40, 30))).unwrap();
    let off = from_jpeg
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
    let decoded = read(&raw).unwrap();
    assert_eq!(
        decoded.as_ptr(),
        raw.data.as_ptr(),
        "raw frames are not copied"
    );
}

#[test]
fn a_corrupt_or_truncated_frame_is_told_so() {
    assert!(error(&frame(FrameFormat::Auto, vec![])).contains("empty"));
    assert!(
        error(&frame(FrameFormat::Auto, b"hello".to_vec())).contains("neither JPEG, PNG nor WebP")
    );
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

/// A PNG of one bit a pixel, interlaced or not, whose pixels are the low bits of their columns.
fn bits_png(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png_file::Encoder::new(&mut out, width, height);
    encoder.set_color(png_file::ColorType::Grayscale);
    encoder.set_depth(png_file::BitDepth::One);
    let rows = vec![0x55; (width.div_ceil(8) * height) as usize];
    encoder
        .write_header()
        .unwrap()
        .write_image_data(&rows)
        .unwrap();
    out
}

#[test]
fn every_kind_of_png_is_read_as_rgb() {
    let from_bits = read(&frame(FrameFormat::Auto, bits_png(16, 4))).unwrap();
    let expected: Vec<u8> = (0..64)
        .flat_map(|i| [if i % 2 == 0 { 0 } else { 255 }; 3])
        .collect();
    assert_eq!(&from_bits[..], &expected[..]);
    let mut alpha = Vec::new();
    let rgba: Vec<u8> = gradient(8, 4)
        .chunks(3)
        .flat_map(|p| [p[0], p[1], p[2], 7])
        .collect();
    image::codecs::png::PngEncoder::new(&mut alpha)
        .write_image(&rgba, 8, 4, ExtendedColorType::Rgba8)
        .unwrap();
    assert_eq!(
        &read(&frame(FrameFormat::Auto, alpha)).unwrap()[..],
        &gradient(8, 4)[..]
    );
    let interlaced = read(&frame(FrameFormat::Auto, INTERLACED.to_vec())).unwrap();
    assert_eq!(&interlaced[..], &gradient(9, 5)[..]);
}

/// `gradient(9, 5)`, interlaced; made by hand, since the png crate writes none.
const INTERLACED: &[u8] = include_bytes!("interlaced.png");

/// A progressive JPEG with that many scans that bring nothing: a scan each that says "no change" for all blocks.
fn empty_scans(width: u32, height: u32, scans: usize) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut whole, 50);
    encoder.set_progressive(true);
    let rows = vec![128; (width * height) as usize];
    encoder
        .encode(
            &rows,
            width as u16,
            height as u16,
            jpeg_encoder::ColorType::Luma,
        )
        .unwrap();
    let end = whole.len() - 2;
    // The last scan once more, as often as asked for.
    let scan = whole.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap();
    let last = whole[scan..end].to_vec();
    let mut out = whole[..end].to_vec();
    for _ in 0..scans {
        out.extend_from_slice(&last);
    }
    out.extend_from_slice(&[0xff, 0xd9]);
    out
}

#[test]
fn the_cost_of_a_picture_is_read_from_its_header() {
    let of = |data| Picture::of(&frame(FrameFormat::Auto, data), MANY).unwrap();
    let (plain, many) = (of(empty_scans(640, 480, 0)), of(empty_scans(640, 480, 50)));
    assert_eq!((plain.width, plain.height), (640, 480));
    assert!(many.decoding > plain.decoding * 5, "{plain:?} {many:?}");
    // 8 x 8 blocks of two bytes a coefficient are held beside the picture, and some rows.
    let least = 640 * 480 * (3 + 2);
    assert!(
        (least..least + (1 << 20)).contains(&plain.bytes),
        "{plain:?}"
    );
    // And of a picture that comes in parts, though it is not progressive.
    let mut parts = jpeg(640, 480);
    let in_one = of(parts.clone()).bytes;
    let scan = parts.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
    parts[scan + 4] = 1;
    assert!(of(parts).bytes > in_one);
    let (small, large) = (of(bits_png(100, 100)), of(bits_png(4000, 4000)));
    assert!(large.decoding > small.decoding * 100, "{small:?} {large:?}");
    let text = Picture::of(&frame(FrameFormat::Auto, empty_scans(64, 64, 100)), MANY);
    assert!(text.unwrap_err().contains("more than 100 scans"));
}

#[test]
fn a_decoder_stops_in_the_middle() {
    for data in [
        empty_scans(640, 480, 50),
        jpeg(640, 480),
        bits_png(640, 480),
    ] {
        let frame = frame(FrameFormat::Auto, data);
        let picture = Picture::of(&frame, MANY).unwrap();
        let mut looks = 0;
        let whole = decode(&frame, &picture, &mut || {
            looks += 1;
            false
        });
        assert!(whole.is_ok() && looks >= 4, "{whole:?} after {looks} looks");
        let mut left = looks / 2;
        let stopped = decode(&frame, &picture, &mut || {
            left -= 1;
            left <= 0
        });
        assert_eq!(stopped, Err(NotDecoded::Stopped));
    }
}

/// A PNG whose data are deflate blocks that bring nothing, of about so many bytes: each has tables of its own.
fn empty_blocks(width: u32, height: u32, bytes: usize) -> Vec<u8> {
    // The header of a block with a code of two lengths, in which only the end of the block is used; then that end.
    let mut block: Vec<bool> = Vec::new();
    let mut put = |value: u32, bits: u32| block.extend((0..bits).map(|bit| value >> bit & 1 == 1));
    put(0b100, 3);
    // 257 literals and lengths, one distance, 18 lengths of codes for lengths: of 18 (zeros) and 1, a bit each.
    put(0, 5);
    put(0, 5);
    put(14, 4);
    for place in 0..18 {
        put(u32::from(place == 2 || place == 17), 3);
    }
    // The first literal and the end have a bit each, and 255 others none; the distance has one.
    put(0, 1);
    put(1, 1);
    put(138 - 11, 7);
    put(1, 1);
    put(117 - 11, 7);
    put(0, 1);
    put(0, 1);
    put(1, 1);
    let all = block
        .iter()
        .cycle()
        .take(bytes * 8 / block.len() * block.len());
    let bits: Vec<bool> = all.copied().collect();
    let packed = bits.chunks(8).map(|byte| {
        let bits = byte.iter().zip(0..);
        bits.fold(0, |sum, (bit, at)| sum | u8::from(*bit) << at)
    });
    let mut data = vec![0x78, 0x01];
    data.extend(packed);
    let mut out = Vec::new();
    let mut encoder = png_file::Encoder::new(&mut out, width, height);
    encoder.set_color(png_file::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_chunk(png_file::chunk::IDAT, &data).unwrap();
    drop(writer);
    out
}

/// Blocks that bring nothing cost the decoder twenty times as much as their bytes do elsewhere.
#[test]
fn a_decoder_stops_also_where_no_row_comes_out() {
    let data = empty_blocks(400, 400, 900_000);
    let asked = data.len() / (8 << 10);
    let frame = frame(FrameFormat::Auto, data);
    let picture = Picture::of(&frame, MANY).unwrap();
    let mut looks = 0;
    let mut whole = |most: usize| {
        looks = 0;
        let decoded = decode(&frame, &picture, &mut || {
            looks += 1;
            looks > most
        });
        (decoded, looks)
    };
    let (decoded, looks) = whole(usize::MAX);
    assert!(
        matches!(decoded, Err(NotDecoded::Unreadable(_))),
        "{decoded:?}"
    );
    assert!(looks >= asked, "{looks} looks in {asked} times 8 KiB");
    assert_eq!(whole(asked / 2), (Err(NotDecoded::Stopped), asked / 2 + 1));
}

#[test]
fn pictures_of_more_data_or_parts_than_encoders_write_are_refused_by_name() {
    let said = |data: Vec<u8>| {
        let picture = Picture::of(&frame(FrameFormat::Auto, data), MANY);
        picture.map_or_else(|text| text, |picture| format!("{picture:?}"))
    };
    let bomb = said(empty_blocks(1, 1, 1 << 20));
    assert!(bomb.contains("far more than any encoder writes"), "{bomb}");
    // Chunks and segments without content.
    let mut chunks = png(16, 16);
    let end = chunks.len() - 12;
    let empty = [0, 0, 0, 0, b't', b'E', b'X', b't', 0xaa, 0, 0, 0];
    chunks.splice(end..end, empty.repeat(20_000));
    assert!(said(chunks).contains("more than 16384 chunks"));
    let mut segments = jpeg(16, 16);
    segments.splice(2..2, [0xff, 0xe1, 0, 2].repeat(20_000));
    assert!(said(segments).contains("more than 16384 segments"));
}

#[test]
fn compressed_bytes_cost_time() {
    let of = |data| Picture::of(&frame(FrameFormat::Auto, data), MANY).unwrap();
    let (few, many) = (
        of(empty_blocks(400, 400, 1000)),
        of(empty_blocks(400, 400, 900_000)),
    );
    assert!(many.decoding > few.decoding * 2, "{few:?} {many:?}");
}

fn webp(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    image_webp::WebPEncoder::new(&mut out)
        .encode(
            &gradient(width, height),
            width,
            height,
            image_webp::ColorType::Rgb8,
        )
        .unwrap();
    out
}

#[test]
fn a_webp_is_read_and_one_that_is_cut_or_lies_is_refused() {
    let whole = webp(40, 30);
    let decoded = read(&frame(FrameFormat::Auto, whole.clone())).unwrap();
    assert_eq!(&decoded[..], &gradient(40, 30)[..]);
    for keep in [12, 20, 30, whole.len() / 2] {
        let cut = frame(FrameFormat::Webp, whole[..keep].to_vec());
        assert!(error(&cut).contains("not a readable WebP"), "{keep}");
    }
    assert!(error(&frame(FrameFormat::Auto, webp(200, 100))).contains("limits.pixels"));
    let png_of_that_name = error(&frame(FrameFormat::Webp, png(4, 4)));
    assert!(png_of_that_name.contains("it does not begin as one"));
    let mut chunks = whole;
    chunks.extend(b"abcd\0\0\0\0".repeat(20_000));
    let text = error(&frame(FrameFormat::Auto, chunks));
    assert!(text.contains("more than 16384 chunks"), "{text}");
}

#[test]
fn what_is_no_picture_is_named() {
    for (data, name) in [
        (&b"GIF89a\x01\x00\x01\x00"[..], "is a GIF"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "is an AVIF picture"),
        (b"<!DOCTYPE html><title>401</title>", "is an HTML page"),
    ] {
        let text = error(&frame(FrameFormat::Auto, data.to_vec()));
        assert!(text.contains(name), "{text}");
        let text = error(&frame(FrameFormat::Jpeg, data.to_vec()));
        assert!(text.contains(&name.replace("is a", "it is a")), "{text}");
    }
}

/// A deterministic draw below `n`.
fn draw(state: &mut u64, n: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % n as u64) as usize
}

#[test]
fn flipped_bytes_break_no_reader_and_no_promise() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut read = 0;
    let whole = [
        jpeg(60, 45),
        empty_scans(60, 45, 3),
        png(60, 45),
        INTERLACED.to_vec(),
        webp(60, 45),
    ];
    for n in 0..4000 {
        let mut data = whole[n % whole.len()].clone();
        for _ in 0..1 + draw(&mut state, 4) {
            let at = draw(&mut state, data.len());
            data[at] = draw(&mut state, 256) as u8;
        }
        if n % 7 == 0 {
            data.truncate(draw(&mut state, data.len()));
        }
        let frame = frame(FrameFormat::Auto, data);
        let Ok(picture) = Picture::of(&frame, FEW) else {
            continue;
        };
        if let Ok(decoded) = decode(&frame, &picture, &mut || false) {
            assert_eq!(decoded.rgb.len() as u64, picture.rgb_bytes());
            read += 1;
        }
    }
    assert!(read > 500, "{read} of 4000 were read");
}

#[test]
fn damage_is_told_and_what_is_harmless_is_not() {
    let damage = |data: Vec<u8>| {
        let frame = frame(FrameFormat::Auto, data);
        let picture = Picture::of(&frame, FEW).unwrap();
        decode(&frame, &picture, &mut || false).unwrap().damage
    };
    let whole = jpeg(90, 90);
    assert_eq!(damage(whole.clone()), None);
    let scan = whole.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
    let mut padded = whole.clone();
    padded.splice(scan..scan, [0; 40]);
    assert_eq!(damage(padded), None);
    let mut hole = whole;
    let middle = scan + (hole.len() - scan) / 2;
    hole.splice(middle..middle + 200, [0xff, 0xd9]);
    assert_eq!(damage(hole), Some(Damage::Missing));
}
