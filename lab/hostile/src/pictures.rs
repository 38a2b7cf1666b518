//! Pictures, honest and not.

use jpeg_encoder::{ColorType, Encoder};

/// A picture as a camera sends it.
pub(crate) fn honest(width: u16, height: u16) -> Vec<u8> {
    let rows: Vec<u8> = (0..u32::from(width) * u32::from(height))
        .flat_map(|i| {
            [
                (i % u32::from(width)) as u8,
                (i / u32::from(width)) as u8,
                90,
            ]
        })
        .collect();
    let mut out = Vec::new();
    let encoder = Encoder::new(&mut out, 80);
    encoder
        .encode(&rows, width, height, ColorType::Rgb)
        .expect("it encodes");
    out
}

/// A grey picture of that size and little else.
pub(crate) fn grey(width: u16, height: u16) -> Vec<u8> {
    let rows = vec![128; usize::from(width) * usize::from(height)];
    let mut out = Vec::new();
    let encoder = Encoder::new(&mut out, 50);
    encoder
        .encode(&rows, width, height, ColorType::Luma)
        .expect("it encodes");
    out
}

/// A progressive JPEG with that many scans that bring nothing: its last one of brightness again and again.
pub(crate) fn empty_scans(width: u16, height: u16, scans: usize, color: ColorType) -> Vec<u8> {
    let pixels = usize::from(width) * usize::from(height);
    let channels = if matches!(color, ColorType::Rgb) {
        3
    } else {
        1
    };
    let rows = vec![128; pixels * channels];
    let mut whole = Vec::new();
    let mut encoder = Encoder::new(&mut whole, 50);
    encoder.set_progressive(true);
    encoder
        .encode(&rows, width, height, color)
        .expect("it encodes");
    // Its header says how many components it has, and which: 0 is brightness.
    let is_of_brightness = |w: &[u8]| matches!(w, [0xff, 0xda, _, _, 1, 0, ..]);
    let begins = whole
        .windows(6)
        .rposition(is_of_brightness)
        .expect("a scan");
    let is_marker = |w: &[u8]| w[0] == 0xff && w[1] >= 0xc0 && !(0xd0..=0xd7).contains(&w[1]);
    let length = whole[begins + 2..].windows(2).position(is_marker);
    let scan = whole[begins..][..length.expect("an end") + 2].to_vec();
    whole.truncate(whole.len() - 2);
    for _ in 0..scans {
        whole.extend_from_slice(&scan);
    }
    whole.extend_from_slice(&[0xff, 0xd9]);
    whole
}

/// A PNG of one bit a pixel.
pub(crate) fn bits(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    encoder.set_compression(png::Compression::High);
    let rows = vec![0; (width.div_ceil(8) * height) as usize];
    let mut writer = encoder.write_header().expect("it encodes");
    writer.write_image_data(&rows).expect("it encodes");
    drop(writer);
    out
}

/// A PNG whose data are deflate blocks that bring nothing, of about so many bytes: each has tables of its own.
pub(crate) fn empty_blocks(width: u32, height: u32, bytes: usize) -> Vec<u8> {
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
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("it encodes");
    writer
        .write_chunk(png::chunk::IDAT, &data)
        .expect("it encodes");
    drop(writer);
    out
}
