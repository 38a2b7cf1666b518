//! Reads a source ahead of its schedule, on a thread of its own, and encodes its frames.
//!
//! At most [`READY_FRAMES_MAX`] frames wait. Then the source waits or, when it is live, goes on without: its newest frame is taken when the
//! next one is sent, and those between are skipped. The thread ends with its source, or when its frames are not needed any more. Nobody waits
//! for the thread: a camera that hangs would block the end of the program. A live source has no end: when it stops, or is not there, it is
//! opened again, or that is an error.

pub(crate) mod preloaded;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use image::RgbImage;
use spillgate_proto::pb::FrameFormat;
use spillgate_scenes::GroundTruth;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::preloaded::Preloaded;
use super::adapting::WantedSide;
use super::backoff::Backoff;
use super::timeline::Timeline;
use crate::encode::{Encoded, Encoding, encode};
use crate::picture;
use crate::record::{Origin, SentAs};
use crate::resize::{Scale, shrink, smaller};
use crate::source::{Content, Source, SourceFrame, Unreadable};

/// Enough frames to bridge one slow frame, few enough to hold large pictures.
pub(crate) const READY_FRAMES_MAX: usize = 4;
/// A live source's frame is stale when the next one has come, and one whose size adapts when another size is wanted.
pub(crate) const READY_FRAMES_MAX_LIVE: usize = 1;
/// A thread that waits for the time of its next frame looks so often whether frames are still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A picture in the form and size in which it is sent.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) encoded: Encoded,
    /// Size of the source's picture, and of this one; (0, 0) for a file that is not a picture.
    pub(crate) source: (u32, u32),
    pub(crate) size: (u32, u32),
    /// How long it took to make it smaller.
    pub(crate) resized_in: Duration,
}

impl Made {
    pub(crate) fn is_smaller(&self) -> bool {
        self.size != self.source
    }

    /// Scale from the sent picture to the source's.
    pub(crate) fn scale(&self) -> Scale {
        Scale::between(self.source, self.size)
    }

    pub(crate) fn sent_as(&self) -> SentAs {
        let side = self.size.0.max(self.size.1);
        SentAs {
            side: (side > 0).then_some(side),
            bytes: Some(self.encoded.data.len()),
            bandwidth: None,
        }
    }
}

/// A frame that is ready to be sent.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) made: Made,
    /// Kept only when results are drawn into it.
    pub(crate) picture: Option<Arc<RgbImage>>,
    pub(crate) truth: Option<Arc<GroundTruth>>,
    /// It is the first one after the source was away.
    pub(crate) after_gap: bool,
    pub(crate) origin: Origin,
    /// Its time by its source, from the source's first frame, without jumps.
    pub(crate) at: Duration,
}

/// Opens the source, and opens it again when it was lost.
pub(crate) type Open = Box<dyn Fn() -> Result<Box<dyn Source>> + Send>;

/// Messages about a source, for the user.
pub(crate) enum Notice {
    /// It stopped, for this reason.
    Lost(String),
    /// It is back.
    Back(String),
    /// What its user should know.
    Remark(String),
    /// Its clock jumped.
    Jumped(String),
    /// So many of its frames were not sent, since newer ones had come.
    Skipped(u64),
    /// So many of its pictures did not come, and came with wrong parts.
    Unreadable(u64, u64),
}

/// How frames are made.
pub(crate) struct ProducerConfig {
    pub(crate) open: Open,
    pub(crate) encoding: Encoding,
    /// Longest side of a sent picture, in pixels.
    pub(crate) max_side: u32,
    /// A shorter one that is wanted now, where the size adapts.
    pub(crate) wanted: Option<WantedSide>,
    /// Results will be drawn into the pictures.
    pub(crate) keep_pictures: bool,
    /// Begin again at the end.
    pub(crate) repeat: bool,
    /// A live source that stopped, or is not there, is opened again.
    pub(crate) reconnect: bool,
    /// It is somewhere else, and may not be there yet.
    pub(crate) is_remote: bool,
    /// Frames of a live source are wanted from now on.
    pub(crate) runs: Arc<AtomicBool>,
    /// The run is over.
    pub(crate) stop: CancellationToken,
    /// Least time between two frames of a live source.
    pub(crate) live_interval: Option<Duration>,
    pub(crate) tell: Box<dyn Fn(Notice) + Send>,
    /// Make this many frames in advance and send them repeatedly.
    pub(crate) preload: Option<usize>,
    pub(crate) limit: Option<u64>,
}

/// The other end of a producer.
pub(crate) struct Producer {
    pub(crate) frames: mpsc::Receiver<Result<Prepared>>,
    pub(crate) frames_per_second: Option<f64>,
    /// Number of frames to come, where it is known.
    pub(crate) frame_count: Option<u64>,
    pub(crate) is_live: bool,
    /// Its frames are to be sent at times of their own.
    pub(crate) has_times: bool,
    /// A live source has a first frame.
    pub(crate) is_there: oneshot::Receiver<()>,
}

impl Producer {
    /// Opens the source and starts its thread. Blocks while the source is opened, and while frames are made in
    /// advance.
    pub(crate) fn start(config: ProducerConfig) -> Result<Self> {
        let mut source = first(&config)?;
        let endless = config.repeat || config.preload.is_some();
        let available = source.frame_count().filter(|_| !endless);
        let frame_count = match (available, config.limit) {
            (Some(available), Some(limit)) => Some(available.min(limit)),
            (available, limit) => available.or(limit),
        };
        let frames_per_second = source.frames_per_second();
        let is_live = source.is_live() && config.preload.is_none();
        let has_times = source.has_times() && config.preload.is_none();
        let capacity = if is_live || config.wanted.is_some() {
            READY_FRAMES_MAX_LIVE
        } else {
            READY_FRAMES_MAX
        };
        let (sender, frames) = mpsc::channel(capacity);
        let (first, is_there) = oneshot::channel();
        let loaded = match config.preload {
            Some(n) => Some(Preloaded::read(source.as_mut(), n, &config)?),
            None => None,
        };
        let gate = Gate {
            first: Some(first),
            runs: config.runs.clone(),
        };
        let panics = Panics(sender.clone());
        let produce = move || {
            let _panics = panics;
            let mut left = config.limit.unwrap_or(u64::MAX);
            let mut emit = |frame: Prepared| -> Emitted {
                if left == 0 || sender.blocking_send(Ok(frame)).is_err() {
                    return Emitted::Last;
                }
                left -= 1;
                if left == 0 {
                    Emitted::Last
                } else {
                    Emitted::Sent
                }
            };
            let outcome = match loaded {
                Some(mut frames) => frames.repeat(&config, &mut emit),
                None => run(source, &config, &mut emit, gate, &|| !sender.is_closed()),
            };
            if let Err(error) = outcome {
                // The receiver is gone when the stream has ended before its source.
                let _ = sender.blocking_send(Err(error));
            }
        };
        thread::Builder::new()
            .name("source".to_owned())
            .spawn(produce)
            .context("cannot start a thread for the source")?;
        Ok(Producer {
            frames,
            frames_per_second,
            frame_count,
            is_live,
            has_times,
            is_there,
        })
    }
}

/// A thread that panics has not come to its source's end: its stream hears so.
struct Panics(mpsc::Sender<Result<Prepared>>);

impl Drop for Panics {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self
                .0
                .blocking_send(Err(anyhow!("the thread of the source panicked")));
        }
    }
}

/// Opens the source for the first time. One that is somewhere else may have to be waited for.
fn first(config: &ProducerConfig) -> Result<Box<dyn Source>> {
    let error = match (config.open)() {
        Err(error) if config.reconnect && config.is_remote => error,
        opened => return opened,
    };
    let reason = format!("{error:#}");
    (config.tell)(Notice::Lost(format!("{reason}; trying to reach it again")));
    let stopped = || !config.stop.is_cancelled();
    reopen(config, &mut Absence::new(reason), &stopped).context(error)
}

/// Frames of a live source that come before the stream runs are not sent: they would be old.
struct Gate {
    first: Option<oneshot::Sender<()>>,
    runs: Arc<AtomicBool>,
}

impl Gate {
    fn passes(&mut self) -> bool {
        if let Some(first) = self.first.take() {
            let _ = first.send(());
        }
        self.runs.load(Ordering::Relaxed)
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emitted {
    /// It will be sent.
    Sent,
    /// It, or no more, is needed.
    Last,
}

fn run(
    mut source: Box<dyn Source>,
    config: &ProducerConfig,
    emit: &mut impl FnMut(Prepared) -> Emitted,
    mut gate: Gate,
    wanted: &dyn Fn() -> bool,
) -> Result<()> {
    let live = source.is_live();
    let mut frames: u64 = 0;
    let mut lost: Option<Absence> = None;
    let mut after_gap = false;
    let mut remarked = false;
    let mut timeline = Timeline::new(source.frames_per_second());
    loop {
        let before = frames;
        let mut seen = Seen::default();
        let broken = loop {
            match source.next_frame() {
                Ok(Some(frame)) => {
                    frames += 1;
                    if let Some(absence) = lost.take() {
                        let away = absence.since.elapsed().as_secs_f64();
                        (config.tell)(Notice::Back(format!("the source is back after {away:.1}s")));
                        after_gap = true;
                    }
                    if !remarked && let Some(remark) = source.remark() {
                        remarked = true;
                        (config.tell)(Notice::Remark(remark));
                    }
                    let (at, jump) = timeline.next(frame.media);
                    if let Some(jump) = jump {
                        let (from, to) = (jump.from, jump.to);
                        let text =
                            format!("the source's clock jumps from {from:.3} s to {to:.3} s");
                        (config.tell)(Notice::Jumped(text));
                    }
                    let passes = !live || gate.passes();
                    seen.frame(&frame, source.as_ref(), live && passes, &config.tell);
                    if !passes {
                        if !wanted() {
                            return Ok(());
                        }
                        continue;
                    }
                    let ready_at = Instant::now();
                    let mut frame = prepare(frame, config)?;
                    frame.after_gap = std::mem::take(&mut after_gap);
                    frame.at = at;
                    if emit(frame) == Emitted::Last {
                        return Ok(());
                    }
                    if live && !waits_until(ready_at, config.live_interval, wanted) {
                        return Ok(());
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        seen.unreadable(source.as_ref(), &config.tell);
        if live {
            let ended = |frames| match frames {
                0 => anyhow!("the live source ended before its first frame"),
                _ => anyhow!("the live source ended after {frames} frames"),
            };
            let cause = broken.unwrap_or_else(|| ended(frames));
            if !config.reconnect {
                return Err(anyhow!("{cause:#} (--reconnect waits for it to come back)"));
            }
            let reason = format!("{cause:#}");
            match &mut lost {
                None => {
                    (config.tell)(Notice::Lost(format!("{reason}; trying to reach it again")));
                    lost = Some(Absence::new(reason));
                }
                Some(absence) => absence.tell(reason, config),
            }
            drop(source);
            let absence = lost.as_mut().expect("it was lost just now");
            source = match reopen(config, absence, wanted) {
                Some(source) => source,
                None => return Ok(()),
            };
            timeline.begins_again();
            continue;
        }
        if let Some(error) = broken {
            return Err(error);
        }
        if let Some(unreadable) = source.unreadable() {
            let text = lost_pictures(unreadable, frames - before);
            if !config.repeat {
                return Err(anyhow!(text));
            }
            (config.tell)(Notice::Lost(text));
        }
        if !config.repeat || frames == before {
            return Ok(());
        }
        source = (config.open)()?;
        timeline.begins_again();
    }
}

/// Waits for the time of the next frame of a live source; false when no more are wanted.
fn waits_until(last: Instant, interval: Option<Duration>, wanted: &dyn Fn() -> bool) -> bool {
    let next = last + interval.unwrap_or_default();
    loop {
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() || !wanted() {
            return left.is_zero();
        }
        thread::sleep(left.min(LOOK_EVERY));
    }
}

/// What was told of a source since it was opened.
#[derive(Default)]
struct Seen {
    next: u64,
    unreadable: (u64, u64),
}

impl Seen {
    fn frame(
        &mut self,
        frame: &SourceFrame,
        source: &dyn Source,
        counts: bool,
        tell: &dyn Fn(Notice),
    ) {
        let skipped = frame.number.saturating_sub(self.next);
        self.next = frame.number + 1;
        if counts && skipped > 0 {
            tell(Notice::Skipped(skipped));
        }
        self.unreadable(source, tell);
    }

    fn unreadable(&mut self, source: &dyn Source, tell: &dyn Fn(Notice)) {
        let Some(now) = source.unreadable().map(|u| (u.pictures, u.damaged)) else {
            return;
        };
        let (pictures, damaged) = std::mem::replace(&mut self.unreadable, now);
        if now != (pictures, damaged) {
            tell(Notice::Unreadable(now.0 - pictures, now.1 - damaged));
        }
    }
}

/// What a source that has ended lost.
fn lost_pictures(unreadable: &Unreadable, came: u64) -> String {
    let Unreadable {
        pictures,
        damaged,
        why,
    } = unreadable;
    let all = came + pictures;
    let lost = format!("{pictures} of {all} pictures of the source could not be decoded");
    match (pictures, damaged) {
        (_, 0) => format!("{lost}; the first: {why}"),
        (0, _) => format!("{damaged} of {all} pictures of the source are damaged: {why}"),
        _ => format!("{lost}, and {damaged} are damaged; the first: {why}"),
    }
}

/// A live source that is lost.
struct Absence {
    since: Instant,
    /// Pauses between attempts.
    backoff: Backoff,
    /// The reasons that were told: a camera that is away alternates between a few.
    reasons: Vec<String>,
}

/// Reasons of an absence that are told.
const REASONS_MAX: usize = 8;

impl Absence {
    fn new(reason: String) -> Self {
        Absence {
            since: Instant::now(),
            backoff: Backoff::default(),
            reasons: vec![reason],
        }
    }

    /// Tells a new reason, once.
    fn tell(&mut self, reason: String, config: &ProducerConfig) {
        if self.reasons.len() < REASONS_MAX && !self.reasons.contains(&reason) {
            (config.tell)(Notice::Lost(format!("{reason}; still trying")));
            self.reasons.push(reason);
        }
    }
}

/// Opens the source again, after a pause; `None` when its frames are not needed any more.
fn reopen(
    config: &ProducerConfig,
    absence: &mut Absence,
    wanted: &dyn Fn() -> bool,
) -> Option<Box<dyn Source>> {
    loop {
        thread::sleep(absence.backoff.pause());
        if !wanted() {
            return None;
        }
        match (config.open)() {
            Ok(source) => return Some(source),
            Err(error) => absence.tell(format!("{error:#}"), config),
        }
    }
}

impl ProducerConfig {
    /// The longest side of a picture that is sent now.
    fn side_max(&self) -> u32 {
        let wanted = self.wanted.as_ref().and_then(WantedSide::get);
        wanted.map_or(self.max_side, |side| side.min(self.max_side))
    }
}

fn prepare(frame: SourceFrame, config: &ProducerConfig) -> Result<Prepared> {
    let truth = frame.truth.map(Arc::new);
    let origin = Origin {
        media: frame.media,
        number: frame.number,
    };
    let side = config.side_max();
    let (made, picture) = match frame.content {
        Content::Picture(picture) => {
            let made = make(&picture, side, config.encoding)?;
            (made, Some(picture))
        }
        Content::File { data, path } => {
            let raw = config.encoding == Encoding::Rgb;
            // What cannot be read the server will report.
            let size = picture::size(&data).ok();
            let too_large = size.is_some_and(|size| smaller(size, side).is_some());
            let picture = if raw || too_large || config.keep_pictures {
                let picture = picture::read(&data);
                Some(picture.with_context(|| path.display().to_string())?)
            } else {
                None
            };
            match picture {
                Some(picture) if raw || too_large => {
                    let made = make(&picture, side, config.encoding)?;
                    (made, Some(picture))
                }
                picture => (as_it_is(data, size.unwrap_or_default()), picture),
            }
        }
    };
    Ok(Prepared {
        made,
        picture: picture.filter(|_| config.keep_pictures).map(Arc::new),
        truth,
        after_gap: false,
        origin,
        at: Duration::ZERO,
    })
}

/// A picture with no side longer than `side`, encoded.
fn make(picture: &RgbImage, side: u32, encoding: Encoding) -> Result<Made> {
    let began = Instant::now();
    let small = shrink(picture, side);
    let resized_in = match &small {
        Some(_) => began.elapsed(),
        None => Duration::ZERO,
    };
    let sent = small.as_ref().unwrap_or(picture);
    Ok(Made {
        encoded: encode(sent, encoding)?,
        source: picture.dimensions(),
        size: sent.dimensions(),
        resized_in,
    })
}

fn as_it_is(data: Bytes, size: (u32, u32)) -> Made {
    Made {
        encoded: Encoded {
            format: FrameFormat::Auto,
            data,
            width: 0,
            height: 0,
        },
        source: size,
        size,
        resized_in: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
