//! Video from a pipe: JPEG pictures one after another (MJPEG), or pixels of a given size.
//!
//! The pipe may carry anything: bytes that are not a picture are an error, and no claimed length is trusted beyond
//! [`PICTURE_BYTES_MAX`].

use std::fmt;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use image::RgbImage;

use super::{Content, Source, SourceFrame};

/// Most bytes of a picture: the server's default (`limits.frame_bytes`).
const PICTURE_BYTES_MAX: usize = 16 << 20;
/// Most bytes between two pictures: cameras send the part headers of `multipart/x-mixed-replace` there.
const BETWEEN_BYTES_MAX: usize = 4096;
/// Longest side; a longer one is a mistake. With [`RAW_BYTES_MAX`] a frame of pixels takes at most 64 MiB.
const SIDE_MAX: u32 = 16_384;
/// Bytes of one frame of pixels: more than 4K.
const RAW_BYTES_MAX: u64 = 64 << 20;
const RATE_MAX: f64 = 1000.0;

/// Size and rate of pixels that come without headers: `640x480@25`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawVideo {
    width: u32,
    height: u32,
    frames_per_second: f64,
}

impl std::str::FromStr for RawVideo {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("\"{text}\" is not WIDTHxHEIGHT@FPS, like 640x480@25");
        let (size, rate) = text.split_once('@').ok_or_else(wrong)?;
        let (width, height) = size.split_once('x').ok_or_else(wrong)?;
        let side = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        let (width, height) = (side(width)?, side(height)?);
        let rate: f64 = rate.parse().map_err(|_| wrong())?;
        let sides = 1..=SIDE_MAX;
        let bytes = u64::from(width) * u64::from(height) * 3;
        if !sides.contains(&width) || !sides.contains(&height) || bytes > RAW_BYTES_MAX {
            let mib = RAW_BYTES_MAX >> 20;
            return Err(format!(
                "sides are 1 to {SIDE_MAX} pixels, and a frame {mib} MiB at most"
            ));
        }
        if !(0.01..=RATE_MAX).contains(&rate) {
            return Err(format!("the rate is 0.01 to {RATE_MAX} frames a second"));
        }
        Ok(RawVideo {
            width,
            height,
            frames_per_second: rate,
        })
    }
}

impl fmt::Display for RawVideo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}x{}@{}",
            self.width, self.height, self.frames_per_second
        )
    }
}

/// Reads pictures from a pipe.
pub(super) struct PipeSource {
    pipe: BufReader<Box<dyn Read + Send>>,
    raw: Option<RawVideo>,
    frames: u64,
}

impl PipeSource {
    pub(super) fn new(pipe: Box<dyn Read + Send>, raw: Option<RawVideo>) -> Self {
        PipeSource {
            pipe: BufReader::with_capacity(1 << 16, pipe),
            raw,
            frames: 0,
        }
    }
}

impl Source for PipeSource {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        let content = match self.raw {
            Some(raw) => read_raw(&mut self.pipe, raw),
            None => read_jpeg(&mut self.pipe),
        };
        let content =
            content.with_context(|| format!("standard input: after {} frames", self.frames))?;
        if content.is_none() && self.frames == 0 {
            bail!("standard input: it ended before the first frame");
        }
        self.frames += 1;
        Ok(content.map(|content| SourceFrame {
            content,
            truth: None,
        }))
    }

    fn frames_per_second(&self) -> Option<f64> {
        self.raw.map(|raw| raw.frames_per_second)
    }
}

fn read_raw(pipe: &mut impl Read, raw: RawVideo) -> Result<Option<Content>> {
    let bytes = raw.width as usize * raw.height as usize * 3;
    let mut rgb = Vec::new();
    pipe.by_ref().take(bytes as u64).read_to_end(&mut rgb)?;
    if rgb.is_empty() {
        return Ok(None);
    }
    if rgb.len() < bytes {
        let n = rgb.len();
        bail!("the last frame is cut off: {n} of the {bytes} bytes of {raw} in rgb24");
    }
    Ok(RgbImage::from_raw(raw.width, raw.height, rgb).map(Content::Picture))
}

/// The next JPEG file; `None` when the pipe ends before it begins.
fn read_jpeg(pipe: &mut impl Read) -> Result<Option<Content>> {
    let mut between = 0;
    let mut last = 0;
    loop {
        let Some(byte) = next_byte(pipe)? else {
            return Ok(None);
        };
        if (last, byte) == (0xff, SOI) {
            break;
        }
        between += 1;
        if between > BETWEEN_BYTES_MAX {
            bail!(
                "no JPEG picture begins within {BETWEEN_BYTES_MAX} bytes; MJPEG is read here, and pixels (rgb24) \
                 with --raw-video WIDTHxHEIGHT@FPS"
            );
        }
        last = byte;
    }
    let mut picture = Picture {
        pipe,
        data: vec![0xff, SOI],
    };
    picture.read_rest().context("a JPEG picture is broken")?;
    Ok(Some(Content::File {
        data: picture.data.into(),
        path: PathBuf::from("standard input"),
    }))
}

// Markers of JPEG, each after a byte 0xff.
const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const TEM: u8 = 0x01;
const RESTARTS: std::ops::RangeInclusive<u8> = 0xd0..=0xd7;

struct Picture<'a, R> {
    pipe: &'a mut R,
    data: Vec<u8>,
}

impl<R: Read> Picture<'_, R> {
    /// Reads from the first marker to the last one. Pictures within a segment, such as a preview, are skipped.
    fn read_rest(&mut self) -> Result<()> {
        let mut marker = self.marker()?;
        loop {
            match marker {
                EOI => return Ok(()),
                TEM => marker = self.marker()?,
                _ if RESTARTS.contains(&marker) => marker = self.marker()?,
                _ => {
                    self.segment()?;
                    marker = if marker == SOS {
                        self.scan()?
                    } else {
                        self.marker()?
                    };
                }
            }
        }
    }

    fn byte(&mut self) -> Result<u8> {
        let Some(byte) = next_byte(self.pipe)? else {
            bail!("it is cut off after {} bytes", self.data.len());
        };
        if self.data.len() == PICTURE_BYTES_MAX {
            bail!("it has more than {} MiB", PICTURE_BYTES_MAX >> 20);
        }
        self.data.push(byte);
        Ok(byte)
    }

    /// Reads 0xff, any number of times, and the byte that follows.
    fn marker(&mut self) -> Result<u8> {
        if self.byte()? != 0xff {
            bail!("no marker at byte {}", self.data.len() - 1);
        }
        loop {
            match self.byte()? {
                0xff => {}
                marker => return Ok(marker),
            }
        }
    }

    fn segment(&mut self) -> Result<()> {
        let length = u16::from_be_bytes([self.byte()?, self.byte()?]);
        for _ in 2..length {
            self.byte()?;
        }
        Ok(())
    }

    /// Reads coded pixels, up to the marker behind them.
    fn scan(&mut self) -> Result<u8> {
        loop {
            if self.byte()? != 0xff {
                continue;
            }
            let mut next = self.byte()?;
            while next == 0xff {
                next = self.byte()?;
            }
            if next != 0 && !RESTARTS.contains(&next) {
                return Ok(next);
            }
        }
    }
}

fn next_byte(pipe: &mut impl Read) -> Result<Option<u8>> {
    let mut byte = [0];
    loop {
        match pipe.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(byte[0])),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::jpeg;

    fn picture(shade: u8) -> Vec<u8> {
        // Noise, so that the coded pixels have bytes of 0xff.
        let noise = |x: u32, y: u32| (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)) as u8;
        let picture =
            RgbImage::from_fn(48, 32, |x, y| image::Rgb([noise(x, y), shade, noise(y, x)]));
        jpeg(&picture, 95).unwrap()
    }

    fn frames(bytes: Vec<u8>, raw: Option<RawVideo>) -> Result<Vec<Content>> {
        let mut source = PipeSource::new(Box::new(std::io::Cursor::new(bytes)), raw);
        let mut all = Vec::new();
        while let Some(frame) = source.next_frame()? {
            all.push(frame.content);
        }
        Ok(all)
    }

    /// The preview that cameras put into a segment: a whole JPEG, with an end of its own.
    fn with_preview(file: &[u8], preview: &[u8]) -> Vec<u8> {
        let length = u16::try_from(preview.len() + 2).unwrap().to_be_bytes();
        [&file[..2], &[0xff, 0xe1], &length, preview, &file[2..]].concat()
    }

    #[test]
    fn pictures_in_a_row_come_out_as_they_went_in() {
        let files = [
            picture(10),
            with_preview(&picture(20), &picture(30)),
            picture(40),
        ];
        let parts = b"\r\n--frame\r\nContent-Type: image/jpeg\r\n\r\n";
        let bytes = [
            &files[0],
            &files[1],
            &parts[..],
            &files[2],
            b"\r\n--frame--",
        ]
        .concat();
        let read = frames(bytes, None).unwrap();
        assert_eq!(read.len(), 3);
        for (content, file) in read.iter().zip(&files) {
            let Content::File { data, .. } = content else {
                panic!("a file")
            };
            assert_eq!(&data[..], &file[..]);
            image::load_from_memory(data).unwrap();
        }
    }

    #[test]
    fn pixels_are_cut_into_frames() {
        let raw: RawVideo = "3x2@30".parse().unwrap();
        let bytes: Vec<u8> = (0..36).collect();
        let read = frames(bytes.clone(), Some(raw)).unwrap();
        let pixels: Vec<u8> = read
            .iter()
            .flat_map(|content| match content {
                Content::Picture(picture) => picture.as_raw().clone(),
                Content::File { .. } => panic!("pixels"),
            })
            .collect();
        assert_eq!((read.len(), pixels), (2, bytes));
    }

    #[test]
    fn what_is_no_video_is_an_error_that_says_where() {
        let mut cut = picture(1);
        cut.truncate(200);
        let mut endless = picture(1);
        endless.truncate(endless.len() - 2);
        endless.resize(PICTURE_BYTES_MAX + 10, 7);
        let raw = Some("2x2@1".parse().unwrap());
        for (bytes, raw, says) in [
            (vec![], None, "it ended before the first frame"),
            (
                vec![7; 5000],
                None,
                "no JPEG picture begins within 4096 bytes",
            ),
            (cut, None, "it is cut off after 200 bytes"),
            (endless, None, "it has more than 16 MiB"),
            (
                [picture(1), vec![0xff, SOI, 1, 2]].concat(),
                None,
                "after 1 frames",
            ),
            (
                vec![0; 13],
                raw,
                "the last frame is cut off: 1 of the 12 bytes",
            ),
        ] {
            let error = format!("{:#}", frames(bytes, raw).err().unwrap());
            assert!(error.contains(says), "{error}");
            assert!(error.starts_with("standard input:"), "{error}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        for wrong in [
            "640x480",
            "0x1@1",
            "640x480@0",
            "16384x16384@1",
            "99999x1@1",
            "axb@c",
            "1x1@inf",
        ] {
            assert!(wrong.parse::<RawVideo>().is_err(), "{wrong}");
        }
        assert_eq!(
            "3840x2160@30".parse::<RawVideo>().unwrap().to_string(),
            "3840x2160@30"
        );
    }
}
