//! Reads a source ahead of its schedule, on a thread of its own, and encodes its frames.
//!
//! At most [`READY_FRAMES_MAX`] frames wait; then the source waits, or, when it is live, its frame is skipped.
//! The thread ends with its source, or when nobody wants frames any more. It is not waited for: a camera that
//! hangs would hold up the end of the program.

use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use image::RgbImage;
use spillgate_proto::pb::FrameFormat;
use spillgate_scenes::GroundTruth;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::encode::{Encoded, Encoding, encode};
use crate::source::{Content, Source, SourceFrame, SourceSpec};

/// Enough to ride over one slow frame, few enough to hold large pictures.
const READY_FRAMES_MAX: usize = 4;
/// A live source's frame is stale when the next one is there.
const READY_FRAMES_MAX_LIVE: usize = 1;

/// A frame that is ready to leave.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) encoded: Encoded,
    /// Kept only when results are drawn into it.
    pub(crate) picture: Option<Arc<RgbImage>>,
    pub(crate) truth: Option<Arc<GroundTruth>>,
}

/// How frames are made.
#[derive(Clone, Debug)]
pub(crate) struct ProducerConfig {
    pub(crate) source: SourceSpec,
    pub(crate) client: usize,
    pub(crate) encoding: Encoding,
    /// Results are drawn into the pictures later.
    pub(crate) keep_pictures: bool,
    /// Begin again at the end.
    pub(crate) repeat: bool,
    /// Make so many frames beforehand and send them over and over.
    pub(crate) preload: Option<usize>,
    pub(crate) limit: Option<u64>,
}

/// The other end of a producer.
pub(crate) struct Producer {
    pub(crate) frames: mpsc::Receiver<Result<Prepared>>,
    pub(crate) frames_per_second: Option<f64>,
    /// How many frames will come, where that is known.
    pub(crate) frame_count: Option<u64>,
}

impl Producer {
    /// Opens the source and starts its thread. Blocks while the source is opened, and while frames are
    /// made beforehand.
    pub(crate) fn start(config: ProducerConfig) -> Result<Self> {
        let mut source = config.source.open(config.client)?;
        let endless = config.repeat || config.preload.is_some();
        let available = source.frame_count().filter(|_| !endless);
        let frame_count = match (available, config.limit) {
            (Some(available), Some(limit)) => Some(available.min(limit)),
            (available, limit) => available.or(limit),
        };
        let frames_per_second = source.frames_per_second();
        let live = source.is_live();
        let capacity = if live {
            READY_FRAMES_MAX_LIVE
        } else {
            READY_FRAMES_MAX
        };
        let (sender, frames) = mpsc::channel(capacity);
        let loaded = match config.preload {
            Some(n) => Some(preload(source.as_mut(), n, &config)?),
            None => None,
        };
        let produce = move || {
            let mut left = config.limit.unwrap_or(u64::MAX);
            let mut emit = |frame: Prepared| -> bool {
                if left == 0 {
                    return false;
                }
                let wanted = if live {
                    match sender.try_send(Ok(frame)) {
                        Ok(()) => true,
                        Err(TrySendError::Full(_)) => return true,
                        Err(TrySendError::Closed(_)) => false,
                    }
                } else {
                    sender.blocking_send(Ok(frame)).is_ok()
                };
                left -= 1;
                wanted
            };
            let outcome = match loaded {
                Some(frames) => {
                    while frames.iter().all(|frame| emit(frame.clone())) {}
                    Ok(())
                }
                None => run(source, &config, &mut emit),
            };
            if let Err(error) = outcome {
                // Nobody listens when the stream has ended before its source.
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

fn preload(source: &mut dyn Source, n: usize, config: &ProducerConfig) -> Result<Vec<Prepared>> {
    let mut frames = Vec::with_capacity(n);
    while frames.len() < n {
        let Some(frame) = source.next_frame()? else {
            break;
        };
        frames.push(prepare(frame, config)?);
    }
    if frames.is_empty() {
        bail!("the source has no frames");
    }
    Ok(frames)
}

fn run(
    mut source: Box<dyn Source>,
    config: &ProducerConfig,
    emit: &mut impl FnMut(Prepared) -> bool,
) -> Result<()> {
    loop {
        let mut empty = true;
        while let Some(frame) = source.next_frame()? {
            empty = false;
            if !emit(prepare(frame, config)?) {
                return Ok(());
            }
        }
        if !config.repeat || empty {
            return Ok(());
        }
        source = config.source.open(config.client)?;
    }
}

fn prepare(frame: SourceFrame, config: &ProducerConfig) -> Result<Prepared> {
    let truth = frame.truth.map(Arc::new);
    match frame.content {
        Content::Picture(picture) => {
            let encoded = encode(&picture, config.encoding)?;
            let picture = config.keep_pictures.then(|| Arc::new(picture));
            Ok(Prepared {
                encoded,
                picture,
                truth,
            })
        }
        Content::File { data, path } => {
            let raw = config.encoding == Encoding::Rgb;
            let picture = if raw || config.keep_pictures {
                let picture = image::load_from_memory(&data)
                    .with_context(|| format!("{} is no readable JPEG or PNG", path.display()))?;
                Some(picture.to_rgb8())
            } else {
                None
            };
            let encoded = match &picture {
                Some(picture) if raw => encode(picture, Encoding::Rgb)?,
                _ => as_it_is(data),
            };
            let picture = picture.filter(|_| config.keep_pictures).map(Arc::new);
            Ok(Prepared {
                encoded,
                picture,
                truth,
            })
        }
    }
}

fn as_it_is(data: Bytes) -> Encoded {
    Encoded {
        format: FrameFormat::Auto,
        data,
        width: 0,
        height: 0,
    }
}
