//! H.264 in MP4, decoded with OpenH264. Sound is ignored; other codecs are told to the caller, who has ffmpeg.
//!
//! Frames come in the order in which they are shown. A sample that does not decode is skipped while others
//! do, as a player would; a file of which nothing decodes is an error.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use image::RgbImage;
use mp4::{Mp4Reader, Mp4Track, TrackType};
use openh264::OpenH264API;
use openh264::decoder::{DecodedYUV, Decoder, DecoderConfig, Flush};
use openh264::formats::YUVSource;

use super::{Content, Source, SourceFrame};

const START_CODE: [u8; 4] = [0, 0, 0, 1];
/// After so many broken samples in a row the rest of the file is given up.
const BROKEN_SAMPLES_MAX: u32 = 300;

/// What a file turned out to hold.
pub(crate) enum Opened {
    H264(Box<Mp4Source>),
    /// The name of another codec.
    Other(String),
}

pub(crate) struct Mp4Source {
    path: PathBuf,
    reader: Mp4Reader<BufReader<File>>,
    track: u32,
    samples: u32,
    next_sample: u32,
    frames_per_second: f64,
    /// Parameter sets with start codes, until they have gone to the decoder.
    headers: Vec<u8>,
    /// Bytes of the length before each unit: 1, 2 or 4.
    length_size: usize,
    decoder: Decoder,
    ready: VecDeque<RgbImage>,
    decoded: u64,
    broken: u32,
    flushed: bool,
}

impl Mp4Source {
    pub(crate) fn open(path: &Path) -> Result<Opened> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let size = file
            .metadata()
            .with_context(|| format!("cannot read {name}"))?
            .len();
        let reader = guarded(|| Ok(Mp4Reader::read_header(BufReader::new(file), size)?))
            .map_err(|error| anyhow!("{name} is no readable MP4 file: {error}"))?;
        let mut videos: Vec<(&u32, &Mp4Track)> = reader
            .tracks()
            .iter()
            .filter(|(_, t)| t.track_type().is_ok_and(|t| t == TrackType::Video))
            .collect();
        videos.sort_by_key(|(id, _)| **id);
        let Some((&id, track)) = videos.first().copied() else {
            bail!("{name} has no video track");
        };
        let Some(avc1) = &track.trak.mdia.minf.stbl.stsd.avc1 else {
            let codec = track
                .media_type()
                .map_or("of an unknown codec".to_owned(), |m| m.to_string());
            return Ok(Opened::Other(codec));
        };
        let mut headers = Vec::new();
        let sets = &avc1.avcc.sequence_parameter_sets;
        for set in sets.iter().chain(&avc1.avcc.picture_parameter_sets) {
            headers.extend_from_slice(&START_CODE);
            headers.extend_from_slice(&set.bytes);
        }
        let length_size = usize::from(avc1.avcc.length_size_minus_one & 3) + 1;
        let samples = guarded(|| Ok(track.sample_count()))?;
        let seconds = guarded(|| Ok(track.duration().as_secs_f64())).unwrap_or(0.0);
        let frames_per_second = if seconds > 0.0 {
            f64::from(samples) / seconds
        } else {
            25.0
        };
        // Pictures that are shown later than they are stored leave the decoder in the order of showing
        // only when it is not made to flush after each.
        let config = DecoderConfig::new().flush_after_decode(Flush::NoFlush);
        let decoder = Decoder::with_api_config(OpenH264API::from_source(), config)
            .context("OpenH264 does not start")?;
        Ok(Opened::H264(Box::new(Mp4Source {
            path: path.to_owned(),
            reader,
            track: id,
            samples,
            next_sample: 1,
            frames_per_second,
            headers,
            length_size,
            decoder,
            ready: VecDeque::new(),
            decoded: 0,
            broken: 0,
            flushed: false,
        })))
    }

    /// Reads one sample and decodes it.
    fn advance(&mut self) -> Result<()> {
        let sample = guarded(|| Ok(self.reader.read_sample(self.track, self.next_sample)?));
        self.next_sample += 1;
        let packet = sample.and_then(|sample| {
            let sample = sample.context("a sample is missing")?;
            let mut packet = std::mem::take(&mut self.headers);
            annex_b(&sample.bytes, self.length_size, &mut packet)?;
            Ok(packet)
        });
        let outcome = match packet {
            Ok(packet) => match self.decoder.decode(&packet) {
                Ok(picture) => {
                    self.broken = 0;
                    self.ready.extend(picture.as_ref().map(to_rgb));
                    Ok(())
                }
                Err(error) => Err(anyhow!("{error}")),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.broken += 1;
            if self.broken == BROKEN_SAMPLES_MAX || self.decoded == 0 && self.ended() {
                bail!("{}: the video is damaged: {error:#}", self.path.display());
            }
        }
        Ok(())
    }

    fn ended(&self) -> bool {
        self.next_sample > self.samples
    }
}

impl Source for Mp4Source {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        loop {
            if let Some(picture) = self.ready.pop_front() {
                self.decoded += 1;
                return Ok(Some(SourceFrame {
                    content: Content::Picture(picture),
                    truth: None,
                }));
            }
            if !self.ended() {
                self.advance()?;
            } else if !self.flushed {
                self.flushed = true;
                // What is left in a damaged stream may not come out: the pictures before it did.
                if let Ok(rest) = self.decoder.flush_remaining() {
                    self.ready.extend(rest.iter().map(to_rgb));
                }
            } else if self.decoded == 0 {
                bail!(
                    "{}: the video has no picture that can be decoded",
                    self.path.display()
                );
            } else {
                return Ok(None);
            }
        }
    }

    fn frame_count(&self) -> Option<u64> {
        Some(u64::from(self.samples))
    }

    fn frames_per_second(&self) -> Option<f64> {
        Some(self.frames_per_second)
    }
}

fn to_rgb(picture: &DecodedYUV<'_>) -> RgbImage {
    let (width, height) = picture.dimensions();
    let mut image = RgbImage::new(width as u32, height as u32);
    picture.write_rgb8(&mut image);
    image
}

/// Units with their lengths before them to units with start codes before them.
fn annex_b(mut sample: &[u8], length_size: usize, packet: &mut Vec<u8>) -> Result<()> {
    while !sample.is_empty() {
        let Some((length, rest)) = sample.split_at_checked(length_size) else {
            bail!("a sample is cut off");
        };
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let Some((unit, rest)) = rest.split_at_checked(length) else {
            bail!("a sample is cut off");
        };
        packet.extend_from_slice(&START_CODE);
        packet.extend_from_slice(unit);
        sample = rest;
    }
    Ok(())
}

/// The `mp4` crate panics on some damaged files (sums that overflow): that is the file's fault, not ours.
fn guarded<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| bail!("its tables contradict themselves"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_become_start_codes() {
        let mut packet = Vec::new();
        annex_b(&[0, 2, 7, 8, 0, 1, 9], 2, &mut packet).unwrap();
        assert_eq!(packet, [0, 0, 0, 1, 7, 8, 0, 0, 0, 1, 9]);
        assert!(annex_b(&[0, 9, 1], 2, &mut packet).is_err());
    }
}
