//! Heads: what the outputs of detectors mean. A head is named by the option `head`, by what the file says of itself, or by the shapes of the
//! outputs where only one head has such.

pub(crate) mod further;
mod layout;
mod lists;
mod masks;
mod rows;
mod transformer;

use spillgate_process::value::Tensor;

use crate::boxes::Candidate;
use crate::facts::Facts;
use layout::Extra;
pub(crate) use layout::{Expected, Layout};

/// How the outputs of a detector are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// `[batch, 4 + classes, n]`: centre x, centre y, width, height in pixels of the input, then one score a class, then numbers of a mask or
    /// of key points. YOLOv8, YOLO11 and v5 of Ultralytics' package, and the shipped detector.
    Yolo,
    /// `[batch, n, 5 + classes]`: as before, with a score of being any object before those of the classes, which it multiplies. YOLOv5 of its
    /// own repository, YOLOv7.
    Yolov5,
    /// `[batch, n, 6]`: left, top, right, bottom in pixels of the input, score, class, then numbers of a mask or of key points. Models that
    /// suppress overlaps themselves: YOLOv10, YOLO26, exports with `nms=True`.
    Nms,
    /// Boxes `[batch, n, 4]`, which are left, top, right, bottom in 0 to 1 of the input, and probabilities `[batch, n, 1 + classes]` of
    /// which the first is the background; in any order. Where the first class is called `__background__`, that is it.
    Ssd,
    /// Boxes `[batch, n, 4]`, which are centre x, centre y, width, height in 0 to 1 of the input, and logits of classes, in any order: `[batch, n, 1 + classes]` with "no object" last
    /// (DETR, YOLOS: softmax), or `[batch, n, classes]` (RT-DETR, Deformable DETR: sigmoid). Or one output of Ultralytics' RT-DETR: `[batch, n, 4 + classes]` with
    /// probabilities, or `[batch, n, 6]` with score and class.
    Detr,
    /// Boxes `[batch, n, 4]`, left, top, right, bottom in pixels of the input, scores `[batch, n]` and classes `[batch, n]`: what
    /// torchvision's detectors give. Class 0 is the background, and has a name, too.
    Lists,
}

impl Head {
    /// Words of the option `head`, in the order of the heads.
    pub(crate) const WORDS: [&str; 6] = ["yolo", "yolov5", "nms", "ssd", "detr", "lists"];
    const ALL: [Head; 6] = [
        Head::Yolo,
        Head::Yolov5,
        Head::Nms,
        Head::Ssd,
        Head::Detr,
        Head::Lists,
    ];

    /// The head of a word.
    pub(crate) fn of(word: &str) -> Option<Self> {
        let at = Self::WORDS.iter().position(|w| *w == word)?;
        Some(Self::ALL[at])
    }

    pub(crate) fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// Heads that an exporter's words allow; all where they say nothing.
    ///
    /// # Errors
    /// When the model is no detector, with what it is.
    pub(crate) fn said(facts: &Facts) -> Result<Vec<Head>, String> {
        if let Some(task) = &facts.task {
            let other = match task.as_str() {
                "detect" | "segment" | "pose" => None,
                "classify" => Some("a classifier; write op: classifier"),
                "embed" => Some("an embedder; write op: embedder"),
                "obb" => Some(
                    "a model for oriented boxes, which no module decodes; train and export it for the task detect",
                ),
                "semantic" => Some(
                    "a model that names the class of each pixel, which no module decodes; op: model gives its numbers",
                ),
                // Others' words say nothing.
                _ => None,
            };
            if let Some(other) = other {
                return Err(format!("its metadata has task: {task}: it is {other}"));
            }
        }
        if facts.suppresses && facts.head.as_deref() != Some("RTDETRDecoder") {
            return Ok(vec![Head::Nms]);
        }
        let Some(word) = &facts.head else {
            return Ok(Self::ALL.to_vec());
        };
        if word.starts_with("classes") || word == "Classify" {
            return Err("it is a classifier; write op: classifier".to_owned());
        }
        if let Some(head) = Head::of(word) {
            return Ok(vec![head]);
        }
        Ok(match word.as_str() {
            "RTDETRDecoder" => vec![Head::Detr],
            // All others of Ultralytics; `nms=True` at the export changes the one into the other.
            _ => vec![Head::Yolo, Head::Nms],
        })
    }

    /// Whether the boxes of a head overlap, so that the worse ones are to be suppressed.
    pub(crate) fn overlaps(self) -> bool {
        matches!(self, Head::Yolo | Head::Yolov5 | Head::Ssd)
    }

    /// Whether pictures are stretched for models with this head, as far as nobody says otherwise.
    pub(crate) fn stretches(self) -> bool {
        matches!(self, Head::Ssd | Head::Detr | Head::Lists)
    }
}

/// The boxes of one picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decoded {
    /// In no order.
    pub(crate) candidates: Vec<Candidate>,
    /// Boxes that are none: numbers that are not finite, no area, no class of that number.
    pub(crate) left_out: usize,
}

impl Decoded {
    /// Takes a box whose score reaches the least one.
    pub(super) fn take(&mut self, candidate: Candidate, n_classes: usize) {
        let [x0, y0, x1, y1] = candidate.corners;
        let finite = candidate.corners.iter().all(|v| v.is_finite());
        let sound = finite && candidate.score.is_finite() && x1 > x0 && y1 > y0;
        match sound && candidate.class < n_classes {
            true => self.candidates.push(candidate),
            false => self.left_out += 1,
        }
    }
}

/// The best class of scores, the first of equal ones; no number counts for nothing. `None` where no score is a number.
pub(super) fn best_of(scores: impl Iterator<Item = f32>) -> Option<(usize, f32)> {
    let numbers = scores.enumerate().filter(|(_, score)| !score.is_nan());
    numbers.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// Corners of a box given by its centre and sides.
pub(super) fn around([cx, cy, w, h]: [f32; 4]) -> [f32; 4] {
    [cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0]
}

/// What decodes the outputs of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decoder {
    pub(crate) head: Head,
    pub(crate) layout: Layout,
    pub(crate) n_classes: usize,
    /// Width and height of the model's input.
    pub(crate) size: (usize, usize),
    /// Least score.
    pub(crate) confidence: f32,
}

impl Decoder {
    /// The boxes of picture `i`.
    pub(crate) fn decode(&self, outputs: &[Tensor], i: usize) -> Decoded {
        match self.layout {
            Layout::Columns { .. } => rows::columns(self, outputs[0].row(i)),
            Layout::Objectness { .. } => rows::objectness(self, outputs[0].row(i)),
            Layout::Classed { extra } => rows::classed(self, extra, outputs[0].row(i)),
            Layout::Probabilities => transformer::probabilities(self, outputs[0].row(i)),
            Layout::Centred => transformer::centred(self, outputs[0].row(i)),
            Layout::Queries {
                boxes,
                logits,
                softmax,
            } => transformer::queries(self, outputs[boxes].row(i), outputs[logits].row(i), softmax),
            Layout::Anchors {
                boxes,
                scores,
                named,
            } => lists::anchors(self, outputs[boxes].row(i), outputs[scores].row(i), named),
            Layout::Lists {
                boxes,
                scores,
                labels,
            } => {
                let [boxes, scores, labels] = [boxes, scores, labels].map(|at| outputs[at].row(i));
                lists::lists(self, boxes, scores, labels)
            }
        }
    }

    /// What each box has beside its place and class.
    fn further(&self) -> Extra {
        match self.layout {
            Layout::Columns { extra }
            | Layout::Objectness { extra }
            | Layout::Classed { extra } => extra,
            _ => Extra::None,
        }
    }

    /// The further numbers of a box, in the model's order.
    fn extra(&self, outputs: &[Tensor], i: usize, at: usize) -> Vec<f32> {
        rows::extra(self, outputs[0].row(i), at)
    }
}

#[cfg(test)]
mod tests;
