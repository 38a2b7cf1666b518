//! Sources of pictures. A [`SourceSpec`] is what the user wrote; opened, it is a [`Source`] that yields frames until
//! it ends.
//!
//! Sources block, so they run on a thread of their own. They know nothing of time: the caller decides when to ask.

mod ffmpeg;
mod folder;
mod mp4_file;
pub mod scene;
mod stdin;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use image::RgbImage;
use spillgate_scenes::{GroundTruth, SceneConfig};

pub use self::folder::is_picture;
pub use self::stdin::RawVideo;

/// One picture of a source.
pub struct SourceFrame {
    /// The picture.
    pub content: Content,
    /// The ground truth, where it is known.
    pub truth: Option<GroundTruth>,
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

/// Pictures of a source that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// How many.
    pub pictures: u64,
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

    /// Its pictures that could not be read so far; `None` where all could.
    fn unreadable(&self) -> Option<&Unreadable> {
        None
    }

    /// Whether the frames come at their own pace, and old ones are worthless.
    fn is_live(&self) -> bool {
        false
    }
}

/// The source, as the user wrote it.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceSpec {
    /// `scene:` with options.
    Scene(SceneConfig),
    /// A folder of JPEG, PNG and WebP files, or one such file.
    Folder(PathBuf),
    /// An MP4 file.
    Mp4(PathBuf),
    /// Anything that `ffmpeg` reads: another file, an RTSP or HTTP address, a camera.
    Ffmpeg(String),
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
        if text.contains("://") || text.starts_with("/dev/video") {
            return Ok(SourceSpec::Ffmpeg(text.to_owned()));
        }
        let path = Path::new(text);
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
            "mp4" | "m4v" | "mov" => SourceSpec::Mp4(path.to_owned()),
            _ => SourceSpec::Ffmpeg(text.to_owned()),
        })
    }

    /// Opens it for the client with this number; only scenes differ by client.
    ///
    /// # Errors
    /// When it cannot be read. One line that names the file.
    pub fn open(&self, client: usize) -> Result<Box<dyn Source>> {
        Ok(match self {
            SourceSpec::Scene(config) => Box::new(scene::SceneSource::new(config, client)?),
            SourceSpec::Folder(path) => Box::new(folder::FolderSource::open(path)?),
            SourceSpec::Mp4(path) => match mp4_file::Mp4Source::open(path)? {
                mp4_file::Opened::H264(source) => source,
                mp4_file::Opened::Other(codec) => {
                    let input = path.to_string_lossy();
                    Box::new(ffmpeg::FfmpegSource::start(&input).with_context(|| {
                        format!("{input}: the video is {codec}, and without ffmpeg only H.264 in one piece is read")
                    })?)
                }
            },
            SourceSpec::Ffmpeg(input) => Box::new(ffmpeg::FfmpegSource::start(input)?),
            SourceSpec::Stdin(raw) => {
                Box::new(stdin::PipeSource::new(Box::new(std::io::stdin()), *raw))
            }
        })
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
