//! Sources that only `ffmpeg` reads. It runs as a child and writes PPM pictures, which carry their size, into a pipe.
//! An unread frame waits in the pipe, so `ffmpeg` decodes no faster than needed.

use std::io::{BufReader, ErrorKind, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use image::RgbImage;

use super::{Content, Source, SourceFrame};

/// Bytes kept from the end of ffmpeg's error output: enough for its reason.
const COMPLAINT_BYTES_MAX: usize = 2048;
/// Schemes of live addresses: a frame that was not read is gone. Files over http:// wait for their reader.
const LIVE: [&str; 8] = [
    "rtsp://",
    "rtsps://",
    "rtmp://",
    "rtmps://",
    "rtp://",
    "srt://",
    "udp://",
    "/dev/video",
];
/// Longest side of a picture; a longer one is a broken stream.
const SIDE_MAX: u32 = 16_384;

pub(crate) struct FfmpegSource {
    input: String,
    live: bool,
    child: Child,
    pictures: BufReader<ChildStdout>,
    complaint: Option<JoinHandle<String>>,
    frames: u64,
}

impl FfmpegSource {
    pub(crate) fn start(input: &str) -> Result<Self> {
        Self::start_program("ffmpeg", input)
    }

    fn start_program(program: &str, input: &str) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
        let rtsp = input.starts_with("rtsp://") || input.starts_with("rtsps://");
        let camera = input.starts_with("/dev/video");
        if rtsp {
            command.args(["-rtsp_transport", "tcp"]);
        }
        if camera {
            command.args(["-f", "v4l2"]);
        }
        command.args([
            "-i",
            input,
            "-an",
            "-f",
            "image2pipe",
            "-c:v",
            "ppm",
            "-pix_fmt",
            "rgb24",
            "-",
        ]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!(
                "{input}: needs the ffmpeg program, which is not installed (Debian, Ubuntu: apt install ffmpeg; \
                 macOS: brew install ffmpeg). H.264 in .mp4, folders of .jpg and .png, and scene: need nothing"
            ),
            _ => anyhow!("cannot start ffmpeg: {error}"),
        })?;
        let stdout = child.stdout.take().context("ffmpeg has no output")?;
        let mut stderr = child.stderr.take().context("ffmpeg has no error output")?;
        let complaint = std::thread::spawn(move || {
            let mut tail = Vec::new();
            let mut buffer = [0; 1024];
            while let Ok(n @ 1..) = stderr.read(&mut buffer) {
                tail.extend_from_slice(&buffer[..n]);
                let excess = tail.len().saturating_sub(COMPLAINT_BYTES_MAX);
                tail.drain(..excess);
            }
            String::from_utf8_lossy(&tail).into_owned()
        });
        Ok(FfmpegSource {
            input: input.to_owned(),
            live: LIVE.iter().any(|scheme| input.starts_with(scheme)),
            child,
            pictures: BufReader::with_capacity(1 << 20, stdout),
            complaint: Some(complaint),
            frames: 0,
        })
    }

    /// ffmpeg's last message, once it has ended.
    fn complaint(&mut self) -> String {
        let text = self
            .complaint
            .take()
            .and_then(|t| t.join().ok())
            .unwrap_or_default();
        text.lines()
            .rev()
            .find(|l| !l.trim().is_empty())
            .unwrap_or("it said nothing")
            .to_owned()
    }
}

impl Source for FfmpegSource {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        let picture = read_ppm(&mut self.pictures)
            .with_context(|| format!("{}: after {} frames", self.input, self.frames))?;
        if let Some(picture) = picture {
            self.frames += 1;
            return Ok(Some(SourceFrame {
                content: Content::Picture(picture),
                truth: None,
            }));
        }
        let status = self.child.wait().context("ffmpeg did not end")?;
        if self.frames == 0 || !status.success() {
            let complaint = self.complaint();
            bail!(
                "{}: ffmpeg gave up after {} frames: {complaint}",
                self.input,
                self.frames
            );
        }
        Ok(None)
    }

    fn is_live(&self) -> bool {
        self.live
    }
}

impl Drop for FfmpegSource {
    fn drop(&mut self) {
        // It may have ended already; then both calls fail, and nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next picture of a sequence of PPM pictures; `None` when the pipe ends before it begins.
fn read_ppm(reader: &mut impl Read) -> Result<Option<RgbImage>> {
    let mut first = [0];
    if reader.read(&mut first)? == 0 {
        return Ok(None);
    }
    if first[0] != b'P' || read_byte(reader)? != b'6' {
        bail!("ffmpeg wrote something that is no PPM picture");
    }
    read_byte(reader)?;
    let width = read_number(reader)?;
    let height = read_number(reader)?;
    let depth = read_number(reader)?;
    let sides = 1..=SIDE_MAX;
    if depth != 255 || !sides.contains(&width) || !sides.contains(&height) {
        bail!("ffmpeg wrote a picture of {width}x{height} with depth {depth}");
    }
    let mut rgb = vec![0; width as usize * height as usize * 3];
    reader
        .read_exact(&mut rgb)
        .context("the last picture is cut off")?;
    Ok(RgbImage::from_raw(width, height, rgb))
}

fn read_byte(reader: &mut impl Read) -> Result<u8> {
    let mut byte = [0];
    reader
        .read_exact(&mut byte)
        .context("a picture's header is cut off")?;
    Ok(byte[0])
}

/// Digits up to one byte of white space.
fn read_number(reader: &mut impl Read) -> Result<u32> {
    let mut value: u32 = 0;
    loop {
        match read_byte(reader)? {
            digit @ b'0'..=b'9' if value < 100_000 => value = value * 10 + u32::from(digit - b'0'),
            b' ' | b'\n' => return Ok(value),
            _ => bail!("a picture's header is broken"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_read_one_after_another() {
        let mut pipe: &[u8] = b"P6\n2 1\n255\nabcdefP6\n1 1\n255\nxyz";
        let first = read_ppm(&mut pipe).unwrap().unwrap();
        assert_eq!(
            (first.dimensions(), first.as_raw().as_slice()),
            ((2, 1), &b"abcdef"[..])
        );
        assert_eq!(read_ppm(&mut pipe).unwrap().unwrap().as_raw(), b"xyz");
        assert!(read_ppm(&mut pipe).unwrap().is_none());
    }

    #[test]
    fn broken_pictures_are_errors() {
        for wrong in [
            &b"P6\n2 1\n255\nabc"[..],
            b"GIF89a",
            b"P6\n999999999 1\n255\n",
            b"P6\n2",
        ] {
            assert!(
                read_ppm(&mut &wrong[..]).is_err(),
                "{}",
                String::from_utf8_lossy(wrong)
            );
        }
    }

    #[test]
    fn a_missing_program_says_what_to_install() {
        let error = FfmpegSource::start_program("no-such-ffmpeg", "street.avi")
            .err()
            .unwrap();
        assert!(error.to_string().contains("apt install ffmpeg"), "{error}");
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        // `cat` rejects ffmpeg's options and says so on its error output.
        let mut source = FfmpegSource::start_program("cat", "street.avi").unwrap();
        let error = source.next_frame().err().unwrap().to_string();
        assert!(
            error.contains("street.avi: ffmpeg gave up after 0 frames"),
            "{error}"
        );
        assert!(!error.contains("it said nothing"), "{error}");
    }
}
