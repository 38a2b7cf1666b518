//! Video files: what our own encoder writes reads back; damaged files are errors and never panics.

use std::path::PathBuf;

use image::{Rgb, RgbImage};
use spillgate_client::source::{Content, SourceSpec};
use spillgate_client::video::VideoWriter;

const SIZE: (u32, u32) = (160, 96);

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        File(
            std::env::temp_dir().join(format!("spillgate-video-{}-{name}.mp4", std::process::id())),
        )
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A bright square that moves over a gradient, from left to right and again.
fn picture(n: u32) -> RgbImage {
    RgbImage::from_fn(SIZE.0, SIZE.1, |x, y| {
        let left = n % 32 * 4;
        let inside = (left..left + 24).contains(&x) && (30..54).contains(&y);
        if inside {
            Rgb([240, 200, 40])
        } else {
            Rgb([x as u8, 60, y as u8 * 2])
        }
    })
}

fn write_video(file: &File, frames: u32) {
    let mut writer = VideoWriter::create(&file.0, SIZE.0, SIZE.1, 25.0).unwrap();
    for n in 0..frames {
        writer.write(&picture(n)).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), u64::from(frames));
}

fn read_video(path: &std::path::Path) -> anyhow::Result<Vec<RgbImage>> {
    let mut source = SourceSpec::Mp4(path.to_owned()).open(0)?;
    let mut pictures = Vec::new();
    while let Some(frame) = source.next_frame()? {
        if let Content::Picture(picture) = frame.content {
            pictures.push(picture);
        }
    }
    Ok(pictures)
}

fn mean_difference(a: &RgbImage, b: &RgbImage) -> f64 {
    let sum: u64 = a
        .iter()
        .zip(b.iter())
        .map(|(a, b)| u64::from(a.abs_diff(*b)))
        .sum();
    sum as f64 / a.as_raw().len() as f64
}

#[test]
fn a_video_reads_back_as_it_was_written() {
    let file = File::new("round-trip");
    write_video(&file, 60);
    let source = SourceSpec::parse(&file.0.to_string_lossy())
        .unwrap()
        .open(0)
        .unwrap();
    assert_eq!(source.frame_count(), Some(60));
    assert!((source.frames_per_second().unwrap() - 25.0).abs() < 0.01);
    let pictures = read_video(&file.0).unwrap();
    assert_eq!(pictures.len(), 60);
    for (n, back) in pictures.iter().enumerate() {
        let original = picture(n as u32);
        assert_eq!(back.dimensions(), SIZE);
        let difference = mean_difference(&original, back);
        assert!(difference < 6.0, "frame {n} differs by {difference}");
        // The square has moved: the neighbours in time are further away.
        let other = mean_difference(&picture(n as u32 + 3), back);
        assert!(other > difference, "frame {n} is in the wrong place");
    }
}

#[test]
fn other_sizes_are_fitted() {
    let file = File::new("sizes");
    let mut writer = VideoWriter::create(&file.0, 161, 97, 30.0).unwrap();
    writer.write(&RgbImage::new(161, 97)).unwrap();
    writer.write(&RgbImage::new(320, 200)).unwrap();
    writer.finish().unwrap();
    let pictures = read_video(&file.0).unwrap();
    assert!(pictures.len() == 2 && pictures.iter().all(|p| p.dimensions() == (160, 96)));
}

#[test]
fn cut_off_files_are_errors() {
    let file = File::new("cut");
    write_video(&file, 12);
    let whole = std::fs::read(&file.0).unwrap();
    let cut = File::new("cut-off");
    for eighth in 0..8 {
        std::fs::write(&cut.0, &whole[..whole.len() * eighth / 8]).unwrap();
        let error = format!("{:#}", read_video(&cut.0).unwrap_err());
        assert!(
            error.contains("cut-off") && !error.contains('\n'),
            "{error}"
        );
    }
}

#[test]
fn damaged_files_neither_panic_nor_hang() {
    let file = File::new("damaged-source");
    write_video(&file, 12);
    let whole = std::fs::read(&file.0).unwrap();
    let damaged = File::new("damaged");
    // A simple generator: the same damage in every run.
    let mut state = 1_u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    };
    // The tables at the end are small: most damage falls there.
    let tables = whole.len().saturating_sub(900);
    for round in 0..150 {
        let mut bytes = whole.clone();
        for _ in 0..1 + round % 4 {
            let place = if round % 3 == 0 {
                random() % bytes.len()
            } else {
                tables + random() % 900
            };
            bytes[place] = random() as u8;
        }
        std::fs::write(&damaged.0, &bytes).unwrap();
        let outcome = read_video(&damaged.0);
        assert!(outcome.is_err() || outcome.is_ok_and(|pictures| pictures.len() <= 12 * 2));
    }
}

#[test]
fn pictures_that_do_not_decode_are_counted() {
    let file = File::new("holed");
    write_video(&file, 60);
    let mut bytes = std::fs::read(&file.0).unwrap();
    let name = bytes.windows(4).position(|w| w == b"mdat").unwrap();
    let length = u32::from_be_bytes(bytes[name - 4..name].try_into().unwrap()) as usize;
    // Zeros in place of the middle of the pictures: lengths of units say nothing then.
    bytes[name + length / 2..name + length / 2 + length / 6].fill(0);
    std::fs::write(&file.0, &bytes).unwrap();
    let spec = SourceSpec::parse(&file.0.to_string_lossy()).unwrap();
    let mut source = spec.open(0).unwrap();
    let mut came = 0;
    while source.next_frame().unwrap().is_some() {
        came += 1;
    }
    let unreadable = source.unreadable().expect("some do not decode");
    assert!(
        unreadable.pictures >= 60 - came && came > 20,
        "{came} and {unreadable:?}"
    );
    assert!(!unreadable.why.is_empty());
}
