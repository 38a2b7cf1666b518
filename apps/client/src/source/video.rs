//! Videos: everything that ffmpeg reads, in a child process of it.
//!
//! Two threads listen to the child: one to its pictures (`nut.rs`), the other to its words (`words.rs`), which announce each picture with its
//! time and size. Of a file the next picture waits until it is asked for, so ffmpeg decodes no faster than needed. Of a live source the newest
//! one waits, and takes the place of an older one.

mod heard;
mod nut;
mod program;
mod words;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use image::RgbImage;
use spillgate_pipeline::printable::printable_line;

use self::heard::{Heard, Picture, SoFar};
use self::nut::Nut;
use self::program::Program;
use super::address::Address;
use super::{Content, Source, SourceFrame, Unreadable};

pub(super) use self::program::Input;

/// Most bytes of a picture: 8192x8192 pixels.
pub(crate) const PICTURE_BYTES_MAX: usize = 8192 * 8192 * 3;
/// Most bytes of a line that are looked at: those that say something are short, others carry data of the source.
const LINE_BYTES_MAX: u64 = 1024;
/// A picture is announced before it comes, on another pipe.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(10);
/// ffmpeg closes its pipe at its very end.
const END_WITHIN: Duration = Duration::from_secs(2);

/// A video while it is read. The child ends with it.
struct VideoSource {
    input: Input,
    /// Without a picture for so long it is given up.
    silent: Duration,
    child: Child,
    heard: Arc<Heard>,
    is_live: bool,
    rate: Option<f64>,
    unreadable: Option<Unreadable>,
    taken: u64,
}

/// Opens a video. A live one that is not there is opened, too: it ends at once, and says why.
///
/// # Errors
/// When ffmpeg is missing, or finds no video.
pub(super) fn open(input: &Input, silent: Duration) -> Result<Box<dyn Source>> {
    if let Input::Address(address) = input
        && address.is_live()
    {
        Program::find().with_context(|| input.shown())?;
        if let Err(why) = address.dial() {
            return Ok(Box::new(Absent(Some(why.context(input.shown())))));
        }
    }
    Ok(Box::new(VideoSource::start(input, silent)?))
}

/// A live source that is not there.
struct Absent(Option<anyhow::Error>);

impl Source for Absent {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        self.0.take().map_or(Ok(None), Err)
    }

    fn is_live(&self) -> bool {
        true
    }
}

impl VideoSource {
    /// Starts reading. Returns once it is known what is read, except for live sources: those come when they come.
    ///
    /// # Errors
    /// When ffmpeg is missing, or finds no video.
    fn start(input: &Input, silent: Duration) -> Result<Self> {
        let shown = input.shown();
        let program = Program::find().with_context(|| shown.clone())?;
        let heard = Arc::new(Heard::default());
        heard.change(|h| h.is_live = input.is_live());
        let (child, log) = listen_to(program, input, &heard).with_context(|| shown.clone())?;
        let mut source = VideoSource {
            input: input.clone(),
            silent,
            child,
            heard: heard.clone(),
            is_live: input.is_live(),
            rate: None,
            unreadable: None,
            taken: 0,
        };
        thread::Builder::new()
            .name("video words".to_owned())
            .spawn(move || listen_to_words(BufReader::new(log), &heard))
            .context("cannot start a thread")?;
        if !source.is_live {
            source.wait_ready()?;
        }
        Ok(source)
    }

    /// Waits until ffmpeg said what it reads. What has no end is live.
    fn wait_ready(&mut self) -> Result<()> {
        let ready =
            |h: &mut SoFar| (h.is_ready || h.words_end).then_some((h.lasts, h.rate, h.is_ready));
        let Some((lasts, rate, is_ready)) = self.heard.wait(Instant::now() + self.silent, ready)
        else {
            return Err(self.is_silent());
        };
        if !is_ready {
            return Err(self
                .ended()
                .err()
                .unwrap_or_else(|| self.because("it ended at once")));
        }
        self.rate = rate;
        let is_address = matches!(self.input, Input::Address(_));
        self.is_live = is_address && lasts.is_none();
        let is_live = self.is_live;
        self.heard.change(|h| h.is_live = is_live);
        Ok(())
    }

    fn because(&self, why: &str) -> anyhow::Error {
        let shown = self.input.shown();
        let shown = printable_line(&shown);
        let taken = self.taken;
        match taken {
            0 => anyhow!("{shown}: {why}"),
            _ => anyhow!("{shown}: after {taken} frames: {why}"),
        }
    }

    fn is_silent(&self) -> anyhow::Error {
        let silent = self.silent.as_secs_f64();
        self.because(&format!(
            "no frame came for {silent} s (--silent TIME waits longer)"
        ))
    }

    /// What ffmpeg's end means, once it has ended.
    fn ended(&mut self) -> Result<()> {
        let until = Instant::now() + END_WITHIN;
        self.heard.wait(until, |h| h.words_end.then_some(()));
        let status = loop {
            match self.child.try_wait().context("ffmpeg does not end")? {
                Some(status) => break Some(status),
                None if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                None => break None,
            }
        };
        let succeeded = status.is_some_and(|status| status.success());
        let so_far = self.heard.lock();
        let reason = match &so_far.pictures_end {
            Some(Err(ours)) => ours.clone(),
            _ if succeeded && so_far.came > 0 => return Ok(()),
            _ => match status.and_then(|status| status.signal()) {
                Some(signal) => words::crashed(signal),
                None => words::reason(&so_far.errors),
            },
        };
        drop(so_far);
        let reason = match &self.input {
            Input::Address(address) => address.scrubbed(&reason),
            _ => reason,
        };
        Err(self.because(&printable_line(&reason)))
    }

    /// Takes note of what was lost so far; of a cut file's pictures once it has ended.
    fn count_lost(&mut self, has_ended: bool) {
        let heard = self.heard.lock();
        let mut pictures = heard.undecoded;
        let mut why = "ffmpeg could not decode it";
        if has_ended && !self.is_live && heard.is_cut() {
            why = "the file is cut off";
            pictures = pictures.max(heard.missing()).max(1);
        }
        if pictures + heard.damaged > 0 {
            if pictures == 0 {
                why = "ffmpeg could not decode all of it";
            }
            self.unreadable = Some(Unreadable {
                pictures,
                damaged: heard.damaged,
                why: why.to_owned(),
            });
        }
    }
}

impl Source for VideoSource {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        enum Next {
            Picture(Box<Picture>),
            End,
        }
        let last = self.heard.lock().came_at.filter(|_| self.is_live);
        let until = last.unwrap_or_else(Instant::now) + self.silent;
        let next = self.heard.wait(until, |h| match h.waiting.take() {
            Some(picture) => Some(Next::Picture(Box::new(picture))),
            None => h.pictures_end.is_some().then_some(Next::End),
        });
        match next {
            None => Err(self.is_silent()),
            Some(Next::End) => {
                // Its last words come by the other pipe.
                let ended = self.ended();
                self.count_lost(true);
                ended.map(|()| None)
            }
            Some(Next::Picture(picture)) => {
                self.taken += 1;
                self.count_lost(false);
                Ok(Some(SourceFrame {
                    content: Content::Picture(picture.pixels),
                    truth: None,
                    media: picture.announced.time,
                    number: picture.number,
                }))
            }
        }
    }

    fn frames_per_second(&self) -> Option<f64> {
        self.rate
    }

    fn has_times(&self) -> bool {
        !self.is_live
    }

    fn unreadable(&self) -> Option<&Unreadable> {
        self.unreadable.as_ref()
    }

    fn remark(&self) -> Option<String> {
        let heard = self.heard.lock();
        let mut remarks = Vec::new();
        if heard.last.is_some_and(|last| last.interlaced) {
            remarks.push("its frames are interlaced: what moves has combs".to_owned());
        }
        if let Some(transfer @ ("smpte2084" | "arib-std-b67")) = heard.transfer.as_deref() {
            remarks.push(format!(
                "it is HDR ({transfer}) and not mapped to usual brightness: it looks pale"
            ));
        }
        if let Some((w, h)) = heard
            .last
            .map(|last| last.pixel)
            .filter(|(w, h)| w != h && *w > 0 && *h > 0)
        {
            remarks.push(format!(
                "its pixels are not square ({w}:{h}): boxes are in the pixels that are stored"
            ));
        }
        (!remarks.is_empty()).then(|| format!("{}: {}", self.input.shown(), remarks.join("; ")))
    }

    fn is_live(&self) -> bool {
        self.is_live
    }
}

impl Drop for VideoSource {
    fn drop(&mut self) {
        self.heard.change(|h| h.is_closed = true);
        // It may have ended already; then both calls fail, and nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts ffmpeg and the thread that listens to its pictures. The child ends with the thread that starts it (`program.rs`), so that is a
/// thread that lives as long as the source.
fn listen_to(
    program: &'static Program,
    input: &Input,
    heard: &Arc<Heard>,
) -> Result<(Child, ChildStderr)> {
    let (started, starts) = mpsc::sync_channel(1);
    let (heard, input) = (heard.clone(), input.clone());
    let listen = move || {
        let mut child = match program.start(&input) {
            Ok(child) => child,
            Err(error) => return drop(started.send(Err(error))),
        };
        let (Some(pictures), Some(log)) = (child.stdout.take(), child.stderr.take()) else {
            return drop(started.send(Err(anyhow!("ffmpeg has no output"))));
        };
        if started.send(Ok((child, log))).is_err() {
            return;
        }
        let pictures = BufReader::with_capacity(1 << 16, pictures);
        let ended = listen_to_pictures(pictures, &heard);
        heard.change(|h| h.pictures_end = Some(ended.map_err(|error| format!("{error:#}"))));
        // Until its end is known, and it is not wanted any more.
        while heard
            .wait(Instant::now() + ANNOUNCED_WITHIN, |h| {
                h.is_closed.then_some(())
            })
            .is_none()
        {}
    };
    thread::Builder::new()
        .name("video".to_owned())
        .spawn(listen)
        .context("cannot start a thread")?;
    starts.recv().context("the thread of ffmpeg ended")?
}

fn listen_to_pictures(pipe: impl Read, heard: &Heard) -> Result<()> {
    let Some(mut nut) = Nut::open(pipe)? else {
        return Ok(());
    };
    for number in 0.. {
        let Some(data) = nut
            .next_frame(PICTURE_BYTES_MAX)
            .context("ffmpeg's pictures break off")?
        else {
            return Ok(());
        };
        let until = Instant::now() + ANNOUNCED_WITHIN;
        let announced = heard.wait(until, |h| h.announced.pop_front());
        let announced = announced.context("ffmpeg gives pictures without their times")?;
        let (width, height) = announced.size;
        let n = data.len();
        let sized = u64::from(width) * u64::from(height) * 3 == n as u64;
        let pixels = RgbImage::from_raw(width, height, data).filter(|_| sized);
        let pixels = pixels.with_context(|| {
            format!("ffmpeg announced {width}x{height} pixels and gave {n} bytes")
        })?;
        let mut picture = Some(Picture {
            pixels,
            number,
            announced,
        });
        let mut put = |h: &mut SoFar| {
            let goes = h.is_live || h.waiting.is_none() || h.is_closed;
            if goes {
                h.waiting = picture.take();
                h.came += 1;
                h.came_at = Some(Instant::now());
            }
            goes.then_some(h.is_closed)
        };
        // A file's next picture waits for its reader, who may take as long as it likes.
        let is_closed = loop {
            if let Some(is_closed) = heard.wait(Instant::now() + ANNOUNCED_WITHIN, &mut put) {
                break is_closed;
            }
        };
        if is_closed {
            return Ok(());
        }
    }
    Ok(())
}

fn listen_to_words(mut log: impl BufRead, heard: &Heard) {
    let mut line = Vec::new();
    while next_line(&mut log, &mut line) {
        let word = words::read(&String::from_utf8_lossy(&line));
        if let Some(word) = word {
            heard.change(|h| h.hear(word));
        }
    }
    heard.change(|h| h.words_end = true);
}

/// Reads a line, of which only the beginning is kept; false at the end.
fn next_line(log: &mut impl BufRead, line: &mut Vec<u8>) -> bool {
    line.clear();
    let has = log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line);
    if !matches!(has, Ok(1..)) {
        return false;
    }
    if line.pop_if(|last| *last == b'\n').is_some() {
        return true;
    }
    // `skip_until` keeps nothing of what it skips.
    log.skip_until(b'\n').is_ok()
}

/// Whether a text names something that only ffmpeg reads on its own: an address, or a camera of this machine.
pub(super) fn input_of(text: &str) -> Result<Option<Input>> {
    if text.starts_with("/dev/video") {
        return Ok(Some(Input::Camera(text.to_owned())));
    }
    if text.contains("://") {
        return Ok(Some(Input::Address(Address::parse(text)?)));
    }
    Ok(None)
}

/// A video file.
pub(super) fn file(path: &Path) -> Input {
    Input::File(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_the_next_one_is_whole() {
        let long = "x".repeat(5000);
        let text = format!("first\n{long}\nlast");
        let mut log = text.as_bytes();
        let mut lines = Vec::new();
        let mut line = Vec::new();
        while next_line(&mut log, &mut line) {
            lines.push(line.len());
        }
        assert_eq!(lines, [5, 1024, 4]);
    }
}
