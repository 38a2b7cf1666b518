//! Video files that are written: their pictures and times read back.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use image::{Rgb, RgbImage};
use mp4::Mp4Reader;
use openh264::decoder::Decoder;
use openh264::formats::YUVSource;
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
        writer
            .write(&picture(n), Duration::from_millis(40) * n)
            .unwrap();
    }
    assert_eq!(writer.finish().unwrap(), u64::from(frames));
}

/// The pictures of a video with their times in ticks, by the libraries of container and codec.
fn read_video(path: &Path) -> Vec<(u64, RgbImage)> {
    let file = std::fs::File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut mp4 = Mp4Reader::read_header(BufReader::new(file), bytes).unwrap();
    let track = mp4.tracks().values().next().unwrap();
    let (id, samples) = (track.track_id(), track.sample_count());
    let mut decoder = Decoder::new().unwrap();
    let start = |unit: &[u8]| [&[0, 0, 0, 1], unit].concat();
    for unit in [
        track.sequence_parameter_set(),
        track.picture_parameter_set(),
    ] {
        decoder.decode(&start(unit.unwrap())).unwrap();
    }
    let pictures = (1..=samples).map(|sample| {
        let sample = mp4.read_sample(id, sample).unwrap().unwrap();
        let mut units = Vec::new();
        let mut left = &sample.bytes[..];
        while let Some((length, rest)) = left.split_first_chunk::<4>() {
            let (unit, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
            units.extend(start(unit));
            left = rest;
        }
        let yuv = decoder.decode(&units).unwrap().expect("a picture");
        let (width, height) = yuv.dimensions();
        let mut rgb = vec![0; width * height * 3];
        yuv.write_rgb8(&mut rgb);
        let picture = RgbImage::from_raw(width as u32, height as u32, rgb);
        (sample.start_time, picture.unwrap())
    });
    pictures.collect()
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
    let pictures = read_video(&file.0);
    assert_eq!(pictures.len(), 60);
    for (n, (at, back)) in pictures.iter().enumerate() {
        let original = picture(n as u32);
        assert_eq!((*at, back.dimensions()), (3600 * n as u64, SIZE));
        let difference = mean_difference(&original, back);
        assert!(difference < 6.0, "frame {n} differs by {difference}");
        // The square has moved: the neighbours in time are further away.
        let other = mean_difference(&picture(n as u32 + 3), back);
        assert!(other > difference, "frame {n} is in the wrong place");
    }
}

#[test]
fn pictures_are_shown_at_their_own_times() {
    let file = File::new("times");
    let mut writer = VideoWriter::create(&file.0, SIZE.0, SIZE.1, 25.0).unwrap();
    // The last two have one moment.
    for at in [1000, 1040, 2500, 2500] {
        writer
            .write(&picture(at as u32), Duration::from_millis(at))
            .unwrap();
    }
    writer.finish().unwrap();
    let times: Vec<u64> = read_video(&file.0).iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 3600, 135_000, 135_001]);
}

#[test]
fn other_sizes_are_fitted() {
    let file = File::new("sizes");
    let mut writer = VideoWriter::create(&file.0, 161, 97, 30.0).unwrap();
    writer
        .write(&RgbImage::new(161, 97), Duration::ZERO)
        .unwrap();
    writer
        .write(&RgbImage::new(320, 200), Duration::from_secs(1))
        .unwrap();
    writer.finish().unwrap();
    let pictures = read_video(&file.0);
    assert!(pictures.len() == 2 && pictures.iter().all(|(_, p)| p.dimensions() == (160, 96)));
}
