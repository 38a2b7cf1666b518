//! Pictures whose content is known, to measure models on: the built-in scene, or a folder of pictures with labels.
//!
//! | folder | truth |
//! |---|---|
//! | pictures, `NAME.txt` beside `NAME.jpg`, and `classes.txt`; or `images/`, `labels/` and `classes.txt` | boxes, as YOLO has them (docs/adaptation.md) |
//! | a subfolder of pictures for each class | classes of whole pictures |
//!
//! All labels are read before the first picture, so that an error in the last one costs no measurement. Nothing is
//! measured here.

pub(crate) mod boxes;
mod classes;
mod folder;
mod scene;

use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use spillgate_scenes::Rect;

/// Frames of the built-in scene without another number, on 75 streets: other streets change the accuracy of the shipped detector by
/// about a hundredth.
pub const FRAMES_DEFAULT: usize = 300;

/// What a source may be, for errors.
const RIGHT: &str = "give scene, scene:density=0.7, or a folder with labels: either pictures with YOLO labels (NAME.txt \
    beside NAME.jpg, and classes.txt), or a subfolder of pictures for each class";

/// A picture and its truth.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its name, for messages.
    pub name: String,
    /// JPEG, PNG or WebP.
    pub picture: Bytes,
    /// What it shows.
    pub truth: Truth,
}

/// What a picture shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Truth {
    /// By class: the boxes of its objects in pixels, each with whether it counts. One that does not may be found or missed.
    Boxes(Vec<Vec<(Rect, bool)>>),
    /// The ordinal of its class.
    Class(usize),
}

/// What the truth of all pictures of a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Truth::Boxes`].
    Boxes,
    /// [`Truth::Class`].
    Class,
}

/// A source of pictures whose content is known. Opened: its labels are read.
#[derive(Debug)]
pub struct Labelled {
    classes: Vec<String>,
    from: Origin,
}

#[derive(Debug)]
enum Origin {
    Scene(scene::Streets, usize),
    Boxes(Vec<boxes::Picture>),
    Classes(Vec<classes::Picture>),
}

impl Labelled {
    /// Opens what the user wrote. `frames` is the number of frames of a scene.
    ///
    /// # Errors
    /// When there is no such source, or its labels have errors: a line each, with file and line.
    pub fn open(text: &str, frames: Option<usize>) -> Result<Self> {
        let options = match text {
            "scene" => Some(""),
            _ => text.strip_prefix("scene:"),
        };
        if let Some(options) = options {
            return Ok(Labelled {
                classes: spillgate_scenes::CLASSES.map(str::to_owned).to_vec(),
                from: Origin::Scene(
                    scene::Streets::parse(options)?,
                    frames.unwrap_or(FRAMES_DEFAULT),
                ),
            });
        }
        let folder = Path::new(text);
        let metadata = std::fs::metadata(folder)
            .with_context(|| format!("no folder \"{text}\" can be read; {RIGHT}"))?;
        if !metadata.is_dir() {
            bail!("{text} has no truth to compare with; {RIGHT}");
        }
        if frames.is_some() {
            bail!("--frames is for scenes; a folder is measured as a whole");
        }
        if folder::has_yolo(folder)? {
            let (classes, pictures) = boxes::open(folder)?;
            let from = Origin::Boxes(pictures);
            return Ok(Labelled { classes, from });
        }
        let (classes, pictures) = classes::open(folder)?;
        if pictures.is_empty() {
            bail!(
                "{text} has no .jpg, .jpeg, .png or .webp files, and no folder in it has; {RIGHT}"
            );
        }
        let from = Origin::Classes(pictures);
        Ok(Labelled { classes, from })
    }

    /// The names of the classes that the labels may name.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// What is known of its pictures.
    pub fn kind(&self) -> Kind {
        match self.from {
            Origin::Scene(..) | Origin::Boxes(_) => Kind::Boxes,
            Origin::Classes(_) => Kind::Class,
        }
    }

    /// Number of its pictures.
    pub fn count(&self) -> usize {
        match &self.from {
            Origin::Scene(_, frames) => *frames,
            Origin::Boxes(pictures) => pictures.len(),
            Origin::Classes(pictures) => pictures.len(),
        }
    }

    /// Its pictures, read one after the other.
    pub fn samples(&self) -> Box<dyn Iterator<Item = Result<Sample>> + '_> {
        match &self.from {
            Origin::Scene(streets, frames) => Box::new(streets.samples().take(*frames)),
            Origin::Boxes(pictures) => Box::new(pictures.iter().map(boxes::Picture::read)),
            Origin::Classes(pictures) => Box::new(pictures.iter().map(classes::Picture::read)),
        }
    }
}

#[cfg(test)]
mod tests;
