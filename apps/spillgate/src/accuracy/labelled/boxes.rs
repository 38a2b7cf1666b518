//! Pictures with YOLO labels, as labelImg, CVAT, Label Studio and Ultralytics write them.
//!
//! `NAME.txt` beside `NAME.jpg` has a line an object: `class x_center y_center width height`. The class is a number, from 0;
//! the rest are parts of the picture's sides. An empty file says that there is nothing in the picture. `classes.txt` in the
//! same folder has the names of the classes, one a line. Where there are folders `images` and `labels`, pictures and labels
//! are in those.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use spillgate_picture::Frame;
use spillgate_pipeline::spec::PIXELS_MAX;
use spillgate_scenes::Rect;

use super::folder::{self, CLASSES};
use super::{Sample, Truth};

/// Errors that are shown; the number of the others is told.
pub(crate) const ERRORS_SHOWN: usize = 10;

/// A picture and its labels.
#[derive(Debug)]
pub(super) struct Picture {
    path: PathBuf,
    n_classes: usize,
    objects: Vec<Object>,
}

/// A line of a label file.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Object {
    class: usize,
    /// In parts of the picture's sides.
    area: Rect,
}

impl Picture {
    pub(super) fn read(&self) -> Result<Sample> {
        let picture = folder::picture(&self.path)?;
        let name = self.path.display().to_string();
        // Labels are in parts of the picture as it is seen.
        let frame = Frame::file(picture.clone());
        let header = spillgate_picture::Picture::of(&frame, u64::from(PIXELS_MAX));
        let header = header.map_err(|text| anyhow!("{name}: {text}"))?;
        let (width, height) = (header.width, header.height);
        let mut boxes = vec![Vec::new(); self.n_classes];
        let (w, h) = (width as f32, height as f32);
        for Object { class, area } in &self.objects {
            let area = Rect::new(area.x0 * w, area.y0 * h, area.x1 * w, area.y1 * h);
            boxes[*class].push((area.clipped(width, height), true));
        }
        let truth = Truth::Boxes(boxes);
        Ok(Sample {
            name,
            picture,
            truth,
        })
    }
}

/// The names of the classes, and the pictures with their labels.
pub(super) fn open(folder: &Path) -> Result<(Vec<String>, Vec<Picture>)> {
    let (images, labels) = (folder.join("images"), folder.join("labels"));
    let (images, labels) = match images.is_dir() && labels.is_dir() {
        true => (images, labels),
        false => (folder.to_owned(), folder.to_owned()),
    };
    let file = folder.join(CLASSES);
    let text = folder::text(&file).with_context(|| {
        format!(
            "{}: cannot be read; it names the classes of the labels, one a line, in the order of their numbers",
            file.display()
        )
    })?;
    let classes = parse_classes(&file, &text)?;
    let (mut pictures, mut errors) = (Vec::new(), Vec::new());
    for path in folder::pictures(&images)? {
        let stem = path.file_stem().unwrap_or_default();
        let mut label = labels.join(stem).into_os_string();
        label.push(".txt");
        match read(Path::new(&label), &classes) {
            Ok(objects) => pictures.push(Picture {
                path,
                n_classes: classes.len(),
                objects,
            }),
            Err(of_file) => errors.extend(of_file),
        }
    }
    if !errors.is_empty() {
        let n_more = errors.len().saturating_sub(ERRORS_SHOWN);
        errors.truncate(ERRORS_SHOWN);
        if n_more > 0 {
            errors.push(format!("and {n_more} more"));
        }
        return Err(anyhow!(errors.join("\n")));
    }
    if pictures.is_empty() {
        bail!(
            "{} has no .jpg, .jpeg, .png or .webp files",
            images.display()
        );
    }
    if pictures.iter().all(|picture| picture.objects.is_empty()) {
        bail!(
            "the labels in {} name no object at all, so there is nothing to find",
            labels.display()
        );
    }
    Ok((classes, pictures))
}

/// Reads one file of labels; all its errors, with file and line.
fn read(file: &Path, classes: &[String]) -> Result<Vec<Object>, Vec<String>> {
    let place = file.display();
    let text = folder::text(file).map_err(|error| {
        vec![format!(
            "{place}: {error}; each picture needs its labels: a line an object, \"class x_center y_center width height\", \
             or an empty file where there is none"
        )]
    })?;
    parse(&text, classes).map_err(|errors| {
        let of_line = |(line, error)| format!("{place}:{line}: {error}");
        errors.into_iter().map(of_line).collect()
    })
}

/// The objects of a text, or its errors by line.
fn parse(text: &str, classes: &[String]) -> Result<Vec<Object>, Vec<(usize, String)>> {
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for (idx, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match parse_line(line, classes) {
            Ok(object) => objects.push(object),
            Err(error) => errors.push((idx + 1, error)),
        }
    }
    match errors.is_empty() {
        true => Ok(objects),
        false => Err(errors),
    }
}

fn parse_line(line: &str, classes: &[String]) -> Result<Object, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [class, numbers @ ..] = &fields[..] else {
        unreachable!("the line is not blank")
    };
    let Ok([x, y, width, height]) = <[&str; 4]>::try_from(numbers) else {
        return Err(format!(
            "{} fields; use five: class x_center y_center width height (outlines and key points are no boxes)",
            fields.len()
        ));
    };
    let n = classes.len();
    let class = class.parse::<usize>().ok().filter(|class| *class < n);
    let class = class.ok_or_else(|| {
        let (wrong, last) = (fields[0], n - 1);
        format!(
            "class \"{wrong}\" is none of the {n} of {CLASSES}; use its number there, 0 to {last}"
        )
    })?;
    let part = |name: &str, text: &str| {
        let number = text.parse::<f32>().ok();
        let number = number.filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| {
            format!(
                "{name} \"{text}\" is not from 0 to 1; use parts of the picture's sides, not pixels"
            )
        })
    };
    let (x, y) = (part("x_center", x)?, part("y_center", y)?);
    let (width, height) = (part("width", width)?, part("height", height)?);
    if width == 0.0 || height == 0.0 {
        return Err("a box without area; width and height are above 0".to_owned());
    }
    let (right, down) = (width / 2.0, height / 2.0);
    Ok(Object {
        class,
        area: Rect::new(x - right, y - down, x + right, y + down),
    })
}

/// The names of the classes. An empty line would shift the numbers of those after it.
fn parse_classes(file: &Path, text: &str) -> Result<Vec<String>> {
    let place = file.display();
    let mut classes: Vec<String> = Vec::new();
    for (idx, line) in text.trim_end().lines().enumerate() {
        let (number, name) = (idx + 1, line.trim());
        if name.is_empty() {
            bail!(
                "{place}:{number}: an empty line; name a class on each, since its number is that of the line"
            );
        }
        if let Some(first) = classes.iter().position(|class| class == name) {
            bail!(
                "{place}:{number}: \"{name}\" is already on line {}",
                first + 1
            );
        }
        classes.push(name.to_owned());
    }
    if classes.is_empty() {
        bail!("{place}: no class names in it; write one a line, in the order of their numbers");
    }
    Ok(classes)
}

#[cfg(test)]
mod tests;
