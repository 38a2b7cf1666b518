//! H.264 in MP4, decoded with OpenH264. Sound is ignored. Other codecs are reported to the caller, which has ffmpeg.
//!
//! Frames come in display order. A sample that does not decode is skipped and counted while others do; a file in which nothing
//! decodes is an error.

mod tables;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use image::RgbImage;
use openh264::OpenH264API;
use openh264::decoder::{DecodedYUV, Decoder, DecoderConfig, Flush};
use openh264::formats::YUVSource;

use self::tables::{BoxHeader, BoxSize, Sample, video_track};
use super::{Content, Source, SourceFrame, Unreadable};

const START_CODE: [u8; 4] = [0, 0, 0, 1];
/// Most bytes of the tables: those of a day of video fit.
const TABLES_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of an encoded picture.
const SAMPLE_BYTES_MAX: u32 = 64 << 20;
/// Most boxes on the top level of a file; usually there are four.
const TOP_BOXES_MAX: usize = 10_000;
/// After this many broken samples in a row the rest of the file is given up.
const BROKEN_SAMPLES_MAX: u32 = 300;

/// The content of a file.
pub(crate) enum Opened {
    H264(Box<Mp4Source>),
    /// Another codec, by name.
    Other(String),
}

pub(crate) struct Mp4Source {
    path: PathBuf,
    file: BufReader<File>,
    samples: Vec<Sample>,
    next_sample: usize,
    frames_per_second: Option<f64>,
    /// Parameter sets with start codes, until the decoder has them.
    headers: Vec<u8>,
    /// Bytes of the length field before each unit.
    length_size: usize,
    decoder: Decoder,
    ready: VecDeque<RgbImage>,
    decoded: u64,
    /// Broken samples in a row.
    broken: u32,
    unreadable: Option<Unreadable>,
    flushed: bool,
}

impl Mp4Source {
    pub(crate) fn open(path: &Path) -> Result<Opened> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let mut file = BufReader::new(file);
        let track = read_moov(&mut file)
            .and_then(|moov| video_track(&moov))
            .with_context(|| format!("{name} is no readable MP4 file"))?;
        if !matches!(track.codec.as_str(), "avc1" | "avc3") {
            return Ok(Opened::Other(track.codec));
        }
        if track.samples.is_empty() {
            return Ok(Opened::Other("in fragments".to_owned()));
        }
        let mut headers = Vec::new();
        for set in &track.parameter_sets {
            headers.extend_from_slice(&START_CODE);
            headers.extend_from_slice(set);
        }
        // Pictures that are shown later than they are stored leave the decoder in display order only if it does not
        // flush after each.
        let config = DecoderConfig::new().flush_after_decode(Flush::NoFlush);
        let decoder = Decoder::with_api_config(OpenH264API::from_source(), config)
            .context("OpenH264 does not start")?;
        Ok(Opened::H264(Box::new(Mp4Source {
            path: path.to_owned(),
            file,
            samples: track.samples,
            next_sample: 0,
            frames_per_second: track.frames_per_second,
            headers,
            length_size: track.length_size,
            decoder,
            ready: VecDeque::new(),
            decoded: 0,
            broken: 0,
            unreadable: None,
            flushed: false,
        })))
    }

    /// Reads one sample and decodes it.
    fn advance(&mut self) -> Result<()> {
        let sample = self.samples[self.next_sample];
        self.next_sample += 1;
        let packet = read_sample(&mut self.file, sample).and_then(|bytes| {
            let mut packet = std::mem::take(&mut self.headers);
            annex_b(&bytes, self.length_size, &mut packet)?;
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
            let unreadable = self.unreadable.get_or_insert_with(|| Unreadable {
                pictures: 0,
                why: format!("{error:#}"),
            });
            unreadable.pictures += 1;
            if self.broken == BROKEN_SAMPLES_MAX || self.decoded == 0 && self.ended() {
                bail!("{}: the video is damaged: {error:#}", self.path.display());
            }
        }
        Ok(())
    }

    fn ended(&self) -> bool {
        self.next_sample == self.samples.len()
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
                // The rest of a damaged stream may not come out; the pictures before it did.
                if let Ok(rest) = self.decoder.flush_remaining() {
                    self.ready.extend(rest.iter().map(to_rgb));
                }
                // Those that depend on a broken one did not come out either.
                let all = self.samples.len() as u64;
                let came = self.decoded + self.ready.len() as u64;
                if let Some(unreadable) = &mut self.unreadable {
                    unreadable.pictures = unreadable.pictures.max(all.saturating_sub(came));
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
        Some(self.samples.len() as u64)
    }

    fn frames_per_second(&self) -> Option<f64> {
        self.frames_per_second
    }

    fn unreadable(&self) -> Option<&Unreadable> {
        self.unreadable.as_ref()
    }
}

fn to_rgb(picture: &DecodedYUV<'_>) -> RgbImage {
    let (width, height) = picture.dimensions();
    let mut image = RgbImage::new(width as u32, height as u32);
    picture.write_rgb8(&mut image);
    image
}

/// Converts units with length fields to units with start codes.
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

/// The content of the box with the tables, wherever it is in the file.
fn read_moov(file: &mut (impl Read + Seek)) -> Result<Vec<u8>> {
    let end = file.seek(SeekFrom::End(0))?;
    let mut at = 0;
    for _ in 0..TOP_BOXES_MAX {
        if end.saturating_sub(at) < 8 {
            break;
        }
        file.seek(SeekFrom::Start(at))?;
        let mut head = [0; 8];
        file.read_exact(&mut head)?;
        let header = BoxHeader::parse(head);
        let (size, header_size) = match header.size {
            BoxSize::Known(size) => (size, 8),
            BoxSize::Long => {
                file.read_exact(&mut head)?;
                (u64::from_be_bytes(head), 16)
            }
            BoxSize::ToTheEnd => (end - at, 8),
        };
        if size < header_size || size > end - at {
            bail!("it is cut off or damaged");
        }
        if header.name == *b"moov" {
            if size > TABLES_BYTES_MAX {
                bail!("its tables have {size} bytes");
            }
            let mut moov = vec![0; (size - header_size) as usize];
            file.read_exact(&mut moov)?;
            return Ok(moov);
        }
        at += size;
    }
    bail!("it has no tables (`moov`)")
}

fn read_sample(file: &mut (impl Read + Seek), sample: Sample) -> Result<Vec<u8>> {
    if sample.size > SAMPLE_BYTES_MAX {
        bail!("a sample claims to have {} bytes", sample.size);
    }
    file.seek(SeekFrom::Start(sample.offset))?;
    let mut bytes = vec![0; sample.size as usize];
    file.read_exact(&mut bytes)
        .context("a sample lies outside of the file")?;
    Ok(bytes)
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
