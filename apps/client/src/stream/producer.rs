//! Reads a source ahead of its schedule, on a thread of its own, and encodes its frames.
//!
//! At most [`READY_FRAMES_MAX`] frames wait. Then the source waits or, when it is live, its frame is skipped. The
//! thread ends with its source, or when its frames are not needed any more. Nobody waits for the thread: a camera
//! that hangs would block the end of the program. A live source has no end: when it stops it is opened again, or that
//! is an error.

mod preloaded;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use image::RgbImage;
use spillgate_proto::pb::FrameFormat;
use spillgate_scenes::GroundTruth;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use self::preloaded::Preloaded;
use super::adapting::WantedSide;
use super::backoff::Backoff;
use crate::encode::{Encoded, Encoding, encode};
use crate::picture;
use crate::record::SentAs;
use crate::resize::{Scale, shrink, smaller};
use crate::source::{Content, Source, SourceFrame, Unreadable};

/// Enough frames to bridge one slow frame, few enough to hold large pictures.
const READY_FRAMES_MAX: usize = 4;
/// A live source's frame is stale when the next one has come, and one whose size adapts when another size is wanted.
const READY_FRAMES_MAX_LIVE: usize = 1;

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
}

/// Opens the source, and opens it again when it was lost.
pub(crate) type Open = Box<dyn Fn() -> Result<Box<dyn Source>> + Send>;

/// Messages about a source, for the user.
pub(crate) enum Notice {
    /// It stopped, for this reason.
    Lost(String),
    /// It is back.
    Back(String),
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
    /// A live source that stopped is opened again.
    pub(crate) reconnect: bool,
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
}

impl Producer {
    /// Opens the source and starts its thread. Blocks while the source is opened, and while frames are made in
    /// advance.
    pub(crate) fn start(config: ProducerConfig) -> Result<Self> {
        let mut source = (config.open)()?;
        let endless = config.repeat || config.preload.is_some();
        let available = source.frame_count().filter(|_| !endless);
        let frame_count = match (available, config.limit) {
            (Some(available), Some(limit)) => Some(available.min(limit)),
            (available, limit) => available.or(limit),
        };
        let frames_per_second = source.frames_per_second();
        let live = source.is_live();
        let capacity = if live || config.wanted.is_some() {
            READY_FRAMES_MAX_LIVE
        } else {
            READY_FRAMES_MAX
        };
        let (sender, frames) = mpsc::channel(capacity);
        let loaded = match config.preload {
            Some(n) => Some(Preloaded::read(source.as_mut(), n, &config)?),
            None => None,
        };
        let produce = move || {
            let mut left = config.limit.unwrap_or(u64::MAX);
            let mut emit = |frame: Prepared| -> Emitted {
                if left == 0 {
                    return Emitted::Last;
                }
                if live {
                    match sender.try_send(Ok(frame)) {
                        Ok(()) => {}
                        Err(TrySendError::Full(_)) => return Emitted::Skipped,
                        Err(TrySendError::Closed(_)) => return Emitted::Last,
                    }
                } else if sender.blocking_send(Ok(frame)).is_err() {
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
                None => run(source, &config, &mut emit, &|| !sender.is_closed()),
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
        })
    }
}

/// The decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emitted {
    /// It will be sent.
    Sent,
    /// An older one still waits, and this one is stale.
    Skipped,
    /// No more frames are needed.
    Last,
}

fn run(
    mut source: Box<dyn Source>,
    config: &ProducerConfig,
    emit: &mut impl FnMut(Prepared) -> Emitted,
    wanted: &dyn Fn() -> bool,
) -> Result<()> {
    let live = source.is_live();
    let mut frames: u64 = 0;
    let mut lost: Option<Absence> = None;
    let mut after_gap = false;
    loop {
        let before = frames;
        let broken = loop {
            match source.next_frame() {
                Ok(Some(frame)) => {
                    frames += 1;
                    if let Some(absence) = lost.take() {
                        let away = absence.since.elapsed().as_secs_f64();
                        (config.tell)(Notice::Back(format!("the source is back after {away:.1}s")));
                        after_gap = true;
                    }
                    let mut frame = prepare(frame, config)?;
                    frame.after_gap = after_gap;
                    match emit(frame) {
                        Emitted::Sent => after_gap = false,
                        Emitted::Skipped => {}
                        Emitted::Last => return Ok(()),
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if live {
            let cause =
                broken.unwrap_or_else(|| anyhow!("the live source ended after {frames} frames"));
            // A source that never gave a frame usually has a wrong address.
            if frames == 0 {
                return Err(cause);
            }
            if !config.reconnect {
                return Err(anyhow!("{cause:#} (--reconnect waits for it to come back)"));
            }
            let reason = format!("{cause:#}");
            if lost.is_none() {
                (config.tell)(Notice::Lost(format!("{reason}; trying to reach it again")));
            }
            let absence = lost.get_or_insert_with(|| Absence::new(reason));
            source = match reopen(config, absence, wanted) {
                Some(source) => source,
                None => return Ok(()),
            };
            continue;
        }
        if let Some(error) = broken {
            return Err(error);
        }
        if let Some(Unreadable { pictures, why }) = source.unreadable() {
            let all = frames - before + pictures;
            let text = format!(
                "{pictures} of {all} pictures of the source could not be read; the first: {why}"
            );
            if !config.repeat {
                return Err(anyhow!(text));
            }
            (config.tell)(Notice::Lost(text));
        }
        if !config.repeat || frames == before {
            return Ok(());
        }
        source = (config.open)()?;
    }
}

/// A live source that is lost.
struct Absence {
    since: Instant,
    /// Pauses between attempts.
    backoff: Backoff,
    /// The reason that was told last.
    reason: String,
}

impl Absence {
    fn new(reason: String) -> Self {
        Absence {
            since: Instant::now(),
            backoff: Backoff::default(),
            reason,
        }
    }
}

/// Opens the source again, after a pause; `None` when its frames are not needed any more.
/// A new reason why it cannot be opened is told, once.
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
            Err(error) => {
                let reason = format!("{error:#}");
                if reason != absence.reason {
                    (config.tell)(Notice::Lost(format!("{reason}; still trying")));
                    absence.reason = reason;
                }
            }
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
