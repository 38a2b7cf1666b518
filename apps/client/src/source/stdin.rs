//! Video from a pipe: JPEG pictures one after another (MJPEG), or pixels of a given size.
//!
//! The pipe may carry anything: bytes in which no picture begins are an error, and no claimed length is trusted beyond
//! [`PICTURE_BYTES_MAX`].

use std::fmt;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use image::RgbImage;

use super::{Content, Source, SourceFrame, Unreadable};

/// Most bytes of a picture: the server's default (`limits.frame_bytes`).
pub(crate) const PICTURE_BYTES_MAX: usize = 16 << 20;
/// Most bytes between two pictures: cameras send the part headers of `multipart/x-mixed-replace` there.
pub(crate) const BETWEEN_BYTES_MAX: usize = 4096;
/// Longest side; a longer one is a mistake. With [`RAW_BYTES_MAX`] a frame of pixels takes at most 64 MiB.
const SIDE_MAX: u32 = 16_384;
/// Bytes of one frame of pixels: more than 4K.
pub(crate) const RAW_BYTES_MAX: u64 = 64 << 20;
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

/// Reads pictures from a pipe. A picture that is broken or cut off is skipped and counted, up to where the next one begins.
pub(super) struct PipeSource {
    pipe: Pipe<BufReader<Box<dyn Read + Send>>>,
    raw: Option<RawVideo>,
    frames: u64,
    unreadable: Option<Unreadable>,
}

impl PipeSource {
    pub(super) fn new(pipe: Box<dyn Read + Send>, raw: Option<RawVideo>) -> Self {
        PipeSource {
            pipe: Pipe {
                reader: BufReader::with_capacity(1 << 16, pipe),
                again: Vec::new(),
            },
            raw,
            frames: 0,
            unreadable: None,
        }
    }

    /// The next JPEG; `None` when the pipe ends.
    fn next_jpeg(&mut self) -> Result<Option<Content>> {
        let mut has_begun = false;
        loop {
            let skips = match self.unreadable {
                None => BETWEEN_BYTES_MAX,
                Some(_) => PICTURE_BYTES_MAX,
            };
            if !has_begun && !find_picture(&mut self.pipe, skips)? {
                return Ok(None);
            }
            let mut picture = Picture {
                pipe: &mut self.pipe,
                data: vec![0xff, SOI],
            };
            let why;
            (why, has_begun) = match picture.read_rest()? {
                Rest::Whole => {
                    return Ok(Some(Content::File {
                        data: picture.data.into(),
                        path: PathBuf::from("standard input"),
                    }));
                }
                Rest::Another => ("another one begins inside of it".to_owned(), true),
                Rest::Broken(why) => (why, false),
            };
            let unreadable = self.unreadable.get_or_insert(Unreadable {
                pictures: 0,
                damaged: 0,
                why,
            });
            unreadable.pictures += 1;
        }
    }
}

impl Source for PipeSource {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        let content = match self.raw {
            Some(raw) => read_raw(&mut self.pipe.reader, raw),
            None => self.next_jpeg(),
        };
        let content =
            content.with_context(|| format!("standard input: after {} frames", self.frames))?;
        if content.is_none() && self.frames == 0 {
            match &self.unreadable {
                Some(unreadable) => bail!(
                    "standard input: a JPEG picture is broken: {}",
                    unreadable.why
                ),
                None => bail!("standard input: it ended before the first frame"),
            }
        }
        let unreadable = self.unreadable.as_ref().map_or(0, |u| u.pictures);
        let number = self.frames + unreadable;
        self.frames += 1;
        let media = self.raw.map(|raw| number as f64 / raw.frames_per_second);
        Ok(content.map(|content| SourceFrame {
            content,
            truth: None,
            media,
            number,
        }))
    }

    fn frames_per_second(&self) -> Option<f64> {
        self.raw.map(|raw| raw.frames_per_second)
    }

    fn unreadable(&self) -> Option<&Unreadable> {
        self.unreadable.as_ref()
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

/// Reads up to where a picture begins, which is within so many bytes; false when the pipe ends before.
fn find_picture(pipe: &mut Pipe<impl Read>, bytes_max: usize) -> Result<bool> {
    let mut between = 0;
    let mut last = 0;
    while let Some(byte) = pipe.byte()? {
        if (last, byte) == (0xff, SOI) {
            return Ok(true);
        }
        between += 1;
        if between > bytes_max {
            bail!(
                "no JPEG picture begins within {bytes_max} bytes; MJPEG is read here, and pixels (rgb24) \
                 with --raw-video WIDTHxHEIGHT@FPS"
            );
        }
        last = byte;
    }
    Ok(false)
}

// Markers of JPEG, each after a byte 0xff.
const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const TEM: u8 = 0x01;
const RESTARTS: std::ops::RangeInclusive<u8> = 0xd0..=0xd7;
/// Of segments in which programs keep what they like, such as a preview.
const APPLICATIONS: std::ops::RangeInclusive<u8> = 0xe0..=0xef;
const COMMENT: u8 = 0xfe;
/// Which markers may come right after the first one: of segments.
const SEGMENTS: std::ops::RangeInclusive<u8> = 0xc0..=0xfe;

struct Picture<'a, R> {
    pipe: &'a mut Pipe<R>,
    data: Vec<u8>,
}

/// How a picture went on.
enum Rest {
    /// To its last marker.
    Whole,
    /// Another picture begins before that.
    Another,
    /// It cannot be followed: why.
    Broken(String),
}

impl<R: Read> Picture<'_, R> {
    /// Reads from the first marker to the last one. Pictures within a segment, such as a preview, are skipped.
    fn read_rest(&mut self) -> Result<Rest> {
        match self.follow()? {
            Ok(rest) => Ok(rest),
            Err(Cut) if self.data.len() == PICTURE_BYTES_MAX => {
                let mib = PICTURE_BYTES_MAX >> 20;
                Ok(Rest::Broken(format!("it has more than {mib} MiB")))
            }
            Err(Cut) => {
                let n = self.data.len();
                Ok(Rest::Broken(format!("it is cut off after {n} bytes")))
            }
        }
    }

    fn follow(&mut self) -> Result<Result<Rest, Cut>> {
        let mut is_in_scan = false;
        loop {
            let Some(marker) = self.marker(is_in_scan)? else {
                return Ok(Err(Cut));
            };
            match marker {
                EOI => return Ok(Ok(Rest::Whole)),
                SOI => return Ok(Ok(Rest::Another)),
                TEM => {}
                _ if RESTARTS.contains(&marker) => {}
                _ => {
                    let from = self.data.len();
                    let is_whole = self.segment()?;
                    let holds_any = marker == COMMENT || APPLICATIONS.contains(&marker);
                    if !holds_any && self.another_since(from)? {
                        return Ok(Ok(Rest::Another));
                    }
                    if !is_whole {
                        return Ok(Err(Cut));
                    }
                    is_in_scan = marker == SOS;
                }
            }
        }
    }

    /// The next byte; `None` at the end of the pipe, or of what a picture may have.
    fn byte(&mut self) -> Result<Option<u8>> {
        if self.data.len() == PICTURE_BYTES_MAX {
            return Ok(None);
        }
        let byte = self.pipe.byte()?;
        self.data.extend(byte);
        Ok(byte)
    }

    /// Reads up to the next marker. What stands before it is skipped, as decoders do; so are restarts and stuffing in coded pixels.
    fn marker(&mut self, is_in_scan: bool) -> Result<Option<u8>> {
        let mut last = 0;
        while let Some(byte) = self.byte()? {
            let is_marker = last == 0xff && byte != 0xff && byte != 0;
            if is_marker && !(is_in_scan && RESTARTS.contains(&byte)) {
                return Ok(Some(byte));
            }
            last = byte;
        }
        Ok(None)
    }

    /// Reads a segment; false where it is cut.
    fn segment(&mut self) -> Result<bool> {
        let (Some(high), Some(low)) = (self.byte()?, self.byte()?) else {
            return Ok(false);
        };
        for _ in 2..u16::from_be_bytes([high, low]) {
            if self.byte()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether another picture begins in a segment of tables, or with its last bytes: it was cut then. What follows the first marker of
    /// that picture is to be read again.
    fn another_since(&mut self, from: usize) -> Result<bool> {
        let end = self.data.len();
        while self.data.len() < end + 3 && self.data[end..] != [0xff, EOI] {
            if self.byte()?.is_none() {
                break;
            }
        }
        let begins =
            |bytes: &[u8]| matches!(bytes, [0xff, SOI, 0xff, marker] if SEGMENTS.contains(marker));
        let at = self.data[from..].windows(4).position(begins);
        let again = self.data.drain(at.map_or(end, |at| from + at + 2)..);
        self.pipe.again.extend(again.rev());
        Ok(at.is_some())
    }
}

/// The pipe, or what a picture may have, ended.
struct Cut;

/// A pipe that takes bytes back.
struct Pipe<R> {
    reader: R,
    /// To be read before those of the pipe, the last one first.
    again: Vec<u8>,
}

impl<R: Read> Pipe<R> {
    /// The next byte; `None` when the pipe has ended.
    fn byte(&mut self) -> Result<Option<u8>> {
        if let Some(byte) = self.again.pop() {
            return Ok(Some(byte));
        }
        let mut byte = [0];
        loop {
            match self.reader.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(byte[0])),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
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
            ([picture(1), vec![7; 5000]].concat(), None, "after 1 frames"),
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
    fn pictures_go_on_after_a_broken_one_which_is_counted() {
        let whole = picture(20);
        // Within its coded pixels.
        let cut = &whole[..whole.len() - 200];
        let junk = [0; 9000];
        let bytes = [
            &picture(10),
            cut,
            &picture(30),
            cut,
            &junk,
            &picture(40),
            cut,
        ]
        .concat();
        let mut source = PipeSource::new(Box::new(std::io::Cursor::new(bytes)), None);
        let mut read = Vec::new();
        while let Some(frame) = source.next_frame().unwrap() {
            let Content::File { data, .. } = frame.content else {
                panic!("a file")
            };
            read.push(data.to_vec());
        }
        assert_eq!(read, [picture(10), picture(30), picture(40)]);
        let unreadable = source.unreadable().unwrap();
        assert_eq!(unreadable.pictures, 3);
        assert_eq!(unreadable.why, "another one begins inside of it");
    }

    /// Wherever a picture is cut, the next ones come out whole. Cut within what programs keep in it (APP0, 18 bytes here), it takes as
    /// much of the next one as was promised to be there: nothing tells that from a preview.
    #[test]
    fn a_picture_that_is_cut_anywhere_takes_no_other_one_with_it() {
        let (whole, next) = (picture(20), picture(30));
        let scan = whole.windows(2).position(|w| w == [0xff, SOS]).unwrap();
        for length in (22..scan + 40).chain(whole.len() - 9..whole.len() - 1) {
            let bytes = [&next, &whole[..length], &next, &next].concat();
            let mut source = PipeSource::new(Box::new(std::io::Cursor::new(bytes)), None);
            let mut read = 0;
            while let Some(frame) = source.next_frame().unwrap() {
                assert!(matches!(frame.content, Content::File { data, .. } if data[..] == next));
                read += 1;
            }
            let unreadable = source.unreadable().map_or(0, |u| u.pictures);
            assert_eq!((read, unreadable), (3, 1), "cut after {length} bytes");
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
