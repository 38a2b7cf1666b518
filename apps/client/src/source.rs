//! Sources of pictures. A [`SourceSpec`] is what the user wrote; opened, it is a [`Source`] that yields frames until
//! it ends.
//!
//! Sources block, so they run on a thread of their own. They know nothing of time: the caller decides when to ask.

mod address;
mod folder;
pub mod scene;
pub(crate) mod stdin;
pub(crate) mod video;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use image::RgbImage;
use spillgate_scenes::{GroundTruth, SceneConfig};

pub use self::folder::is_picture;
pub use self::stdin::RawVideo;
use self::video::Input;

/// A source without a frame for so long is silent, where its user does not say otherwise: cameras give several a second.
pub const SILENT: Duration = Duration::from_secs(10);

/// One picture of a source.
pub struct SourceFrame {
    /// The picture.
    pub content: Content,
    /// The ground truth, where it is known.
    pub truth: Option<GroundTruth>,
    /// Its time by the source's own clock, in seconds, where the source has one.
    pub media: Option<f64>,
    /// Its number in the source, from 0. Of a live source numbers are missing: frames that were not taken.
    pub number: u64,
}

/// A picture, decoded or not.
pub enum Content {
    /// Pixels.
    Picture(RgbImage),
    /// A JPEG, PNG or WebP file, sent unchanged.
    File {
        /// Its bytes.
        data: Bytes,
        /// Its path, for messages.
        path: PathBuf,
    },
}

/// Pictures of a source that could not be read, or not wholly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// How many did not come.
    pub pictures: u64,
    /// How many came with wrong parts.
    pub damaged: u64,
    /// Why the first of them could not.
    pub why: String,
}

/// Yields pictures.
pub trait Source: Send {
    /// The next picture; `None` at the end.
    ///
    /// # Errors
    /// When the rest cannot be read. One line that names the file.
    fn next_frame(&mut self) -> Result<Option<SourceFrame>>;

    /// Number of frames in all, where it is known and finite.
    fn frame_count(&self) -> Option<u64> {
        None
    }

    /// Frames a second of the recording.
    fn frames_per_second(&self) -> Option<f64> {
        None
    }

    /// Whether its frames have times of their own, at which they are to be sent.
    fn has_times(&self) -> bool {
        false
    }

    /// What its user should know of its pictures, once some came.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Its pictures that could not be read so far; `None` where all could.
    fn unreadable(&self) -> Option<&Unreadable> {
        None
    }

    /// Whether the frames come at their own pace, and old ones are worthless.
    fn is_live(&self) -> bool {
        false
    }
}

/// What `ffmpeg` reads. It is shown without secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct Video(Input);

/// The source, as the user wrote it.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceSpec {
    /// `scene:` with options.
    Scene(SceneConfig),
    /// A folder of JPEG, PNG and WebP files, or one such file.
    Folder(PathBuf),
    /// What `ffmpeg` reads: a video file, an address, a camera.
    Video(Video),
    /// Standard input: pictures (MJPEG), or pixels.
    Stdin(Option<RawVideo>),
}

impl SourceSpec {
    /// Parses the user's text.
    ///
    /// # Errors
    /// When it names nothing that exists, or a scene option is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(options) = text.strip_prefix("scene:") {
            return Ok(SourceSpec::Scene(scene::parse(options)?));
        }
        if text == "-" {
            return Ok(SourceSpec::Stdin(None));
        }
        if text == "scene" {
            return Ok(SourceSpec::Scene(SceneConfig::default()));
        }
        if let Some(input) = video::input_of(text)? {
            return Ok(SourceSpec::Video(Video(input)));
        }
        let path = Path::new(text);
        // It may hold a password: it is not repeated.
        let is_path = path.exists() || !text.contains('@');
        anyhow::ensure!(
            is_path,
            "a source is no file, and no address: those are scheme://host/path, like rtsp://10.0.0.7/stream"
        );
        let metadata = std::fs::metadata(path).with_context(|| {
            format!(
                "{text} (a source is a file, a folder, an rtsp:// address, /dev/videoN, scene: or - for standard input)"
            )
        })?;
        let extension = path
            .extension()
            .map(|e| e.to_string_lossy().to_lowercase())
            .unwrap_or_default();
        Ok(match extension.as_str() {
            _ if metadata.is_dir() => SourceSpec::Folder(path.to_owned()),
            "jpg" | "jpeg" | "png" | "webp" => SourceSpec::Folder(path.to_owned()),
            _ => SourceSpec::Video(Video(video::file(path))),
        })
    }

    /// Opens it for the client with this number; only scenes differ by client. A video is given up when no frame comes for `silent`.
    ///
    /// # Errors
    /// When it cannot be read. One line that names the file.
    pub fn open(&self, client: usize, silent: Duration) -> Result<Box<dyn Source>> {
        Ok(match self {
            SourceSpec::Scene(config) => Box::new(scene::SceneSource::new(config, client)?),
            SourceSpec::Folder(path) => Box::new(folder::FolderSource::open(path)?),
            SourceSpec::Video(Video(input)) => video::open(input, silent)?,
            SourceSpec::Stdin(raw) => {
                Box::new(stdin::PipeSource::new(Box::new(std::io::stdin()), *raw))
            }
        })
    }

    /// Whether it is at an address, and so may not be there yet.
    pub fn is_remote(&self) -> bool {
        matches!(self, SourceSpec::Video(Video(Input::Address(_))))
    }

    /// It for people: addresses without their passwords.
    pub fn shown(&self) -> Option<String> {
        match self {
            SourceSpec::Video(Video(input)) => Some(input.shown()),
            _ => None,
        }
    }
}

impl std::str::FromStr for SourceSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            bail!("no source given");
        }
        SourceSpec::parse(text)
    }
}
