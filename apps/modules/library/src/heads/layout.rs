//! Which head the outputs of a model fit, by their shapes.

use std::sync::Arc;

use spillgate_process::value::Tensor;

use super::Head;
use crate::facts::Facts;

/// Further numbers of each box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Extra {
    #[default]
    None,
    /// So many coefficients of a mask, of prototypes in the second output, `[batch, n, height, width]`.
    Mask(usize),
    /// So many key points, of so many numbers each: x, y in pixels of the input, and a score where there are three.
    Keypoints(usize, usize),
}

impl Extra {
    /// How many numbers.
    pub(crate) fn len(self) -> usize {
        match self {
            Extra::None => 0,
            Extra::Mask(n) => n,
            Extra::Keypoints(n, each) => n * each,
        }
    }
}

/// Where the numbers of boxes are in the outputs. The parent's heads say what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `[batch, 4 + classes + extra, n]`
    Columns { extra: Extra },
    /// `[batch, n, 5 + classes + extra]`
    Objectness { extra: Extra },
    /// `[batch, n, 6 + extra]`
    Classed { extra: Extra },
    /// `[batch, n, 4 + classes]`
    Probabilities,
    /// `[batch, n, 6]`
    Centred,
    /// `[batch, n, 4]` and `[batch, n, classes]`, with softmax one more
    Queries {
        boxes: usize,
        logits: usize,
        softmax: bool,
    },
    /// `[batch, n, 4]` and `[batch, n, 1 + classes]`, or `[batch, n, classes]` where the background is the first of the classes
    Anchors {
        boxes: usize,
        scores: usize,
        named: bool,
    },
    /// `[batch, n, 4]`, `[batch, n]`, `[batch, n]`
    Lists {
        boxes: usize,
        scores: usize,
        labels: usize,
    },
}

/// What is known of a model before its outputs are seen.
#[derive(Clone, Debug)]
pub(crate) struct Expected<'a> {
    /// The heads that it may have.
    pub(crate) heads: &'a [Head],
    pub(crate) names: &'a [Arc<str>],
    pub(crate) facts: &'a Facts,
}

impl Expected<'_> {
    /// The head and the layout of these outputs for `batch` pictures.
    ///
    /// # Errors
    /// When none or several fit: the shapes that are there, those that are needed, and what to write.
    pub(crate) fn layout(
        &self,
        outputs: &[Tensor],
        batch: usize,
    ) -> Result<(Head, Layout), String> {
        let shapes: Vec<&[i64]> = outputs
            .iter()
            .map(|output| output.shape.as_slice())
            .collect();
        if shapes
            .iter()
            .any(|shape| shape.first() != Some(&(batch as i64)))
        {
            return Err(format!(
                "for {batch} pictures its outputs have the shapes {}; the first axis is to be the batch",
                shown(&shapes)
            ));
        }
        let fits = |head: &Head| self.fit(*head, &shapes).map(|layout| (*head, layout));
        let mut fitting = self.heads.iter().filter_map(fits);
        let Some(first) = fitting.next() else {
            return Err(self.misfit(&shapes));
        };
        // Of several that an exporter's words allow the first is the usual one.
        let others: Vec<&str> = match self.heads.len() == Head::WORDS.len() {
            true => fitting.map(|(head, _)| head.word()).collect(),
            false => Vec::new(),
        };
        match others.as_slice() {
            [] if first.0 == Head::Lists && !self.names_background() => Err(format!(
                "its outputs are lists, of which class 0 is the background, and the first of its names is {:?}; let the names begin with \
                 __background__",
                self.names.first().map_or("", |name| &**name)
            )),
            [] => Ok(first),
            others => Err(format!(
                "its outputs {} may be of the head {} or {}; say which: options: {{ head: ... }}",
                shown(&shapes),
                first.0.word(),
                others.join(" or "),
            )),
        }
    }

    fn misfit(&self, shapes: &[&[i64]]) -> String {
        // Of all heads those that take as many outputs.
        let takes = |head: &&Head| {
            let several = matches!(head, Head::Ssd | Head::Lists);
            self.heads.len() < Head::WORDS.len()
                || several == (shapes.len() > 1)
                || **head == Head::Detr
        };
        let heads = self.heads.iter().filter(takes);
        let needed: Vec<String> = heads.map(|head| self.needed(*head)).collect();
        let classes = self.names.len();
        format!(
            "its outputs have the shapes {}, and {classes} classes are named; needed: {}. Name as many classes as it has, or another head in \
             options: {{ head: ... }}",
            shown(shapes),
            needed.join("; or ")
        )
    }

    /// The shapes of a head in words.
    fn needed(&self, head: Head) -> String {
        let n = self.names.len();
        let extra = match self.extra(&[]).len() {
            0 => String::new(),
            n => format!(" + {n}"),
        };
        let word = head.word();
        match head {
            Head::Yolo => format!(
                "{word} [batch, {}{extra}, n] (4 of the box, {n} classes)",
                4 + n
            ),
            Head::Yolov5 => format!(
                "{word} [batch, n, {}{extra}] (4 of the box, 1, {n} classes)",
                5 + n
            ),
            Head::Nms => format!("{word} [batch, n, 6{extra}] (box, score, class)"),
            Head::Ssd => format!(
                "{word} [batch, n, 4] and [batch, n, {}] (background, {n} classes)",
                1 + n
            ),
            Head::Detr => format!(
                "{word} [batch, n, 4] and [batch, n, {n}] or [batch, n, {}], or [batch, n, {}], or [batch, n, 6]",
                1 + n,
                4 + n
            ),
            Head::Lists => {
                format!("{word} [batch, n, 4], [batch, n] and [batch, n] (boxes, scores, classes)")
            }
        }
    }

    /// What each box has beside its place and class.
    fn extra(&self, shapes: &[&[i64]]) -> Extra {
        match (self.facts.keypoints, shapes) {
            (Some((n, each)), _) => Extra::Keypoints(n, each),
            (None, [_, prototypes, ..]) if prototypes.len() == 4 => {
                Extra::Mask(usize::try_from(prototypes[1]).unwrap_or(0))
            }
            _ => Extra::None,
        }
    }

    fn fit(&self, head: Head, shapes: &[&[i64]]) -> Option<Layout> {
        let n = self.names.len();
        let extra = self.extra(shapes);
        let is = |axis: i64, size: usize| axis == size as i64;
        let first = shapes.first().filter(|shape| shape.len() == 3);
        match head {
            Head::Yolo => is(first?[1], 4 + n + extra.len()).then_some(Layout::Columns { extra }),
            Head::Yolov5 => {
                is(first?[2], 5 + n + extra.len()).then_some(Layout::Objectness { extra })
            }
            Head::Nms => is(first?[2], 6 + extra.len()).then_some(Layout::Classed { extra }),
            Head::Detr if shapes.len() == 1 => {
                let columns = first?[2];
                let is_newer = self.facts.head.as_deref() == Some("RTDETRDecoder");
                match (is(columns, 4 + n), is(columns, 6)) {
                    (true, _) if !(is_newer && columns == 6) => Some(Layout::Probabilities),
                    (_, true) => Some(Layout::Centred),
                    _ => None,
                }
            }
            Head::Detr => {
                let (boxes, logits) = self.pair(shapes, &[n, 1 + n])?;
                let softmax = is(shapes[logits][2], 1 + n);
                Some(Layout::Queries {
                    boxes,
                    logits,
                    softmax,
                })
            }
            Head::Ssd => {
                let columns = if self.names_background() { n } else { 1 + n };
                let (boxes, scores) = self.pair(shapes, &[columns])?;
                Some(Layout::Anchors {
                    boxes,
                    scores,
                    named: columns == n,
                })
            }
            Head::Lists => self.lists(shapes),
        }
    }

    /// Whether the first of the classes is the background, as torchvision names it.
    fn names_background(&self) -> bool {
        let names = self.names.first();
        names.is_some_and(|name| matches!(&**name, "__background__" | "background" | "BACKGROUND"))
    }

    /// The places of `[batch, n, 4]` and of `[batch, n, columns]` among the first two outputs. Where both have four columns, names decide, else
    /// the order of most exporters, in which the scores come first.
    fn pair(&self, shapes: &[&[i64]], columns: &[usize]) -> Option<(usize, usize)> {
        let [a, b, ..] = shapes else { return None };
        if a.len() != 3 || b.len() != 3 || a[1] != b[1] {
            return None;
        }
        let scores = |shape: &[i64]| columns.iter().any(|n| shape[2] == *n as i64);
        let fits = |boxes: &[i64], other: &[i64]| boxes[2] == 4 && scores(other);
        let is_boxes = |at: usize| {
            self.facts
                .outputs
                .get(at)
                .is_some_and(|port| port.name.contains("box"))
        };
        match (fits(b, a), fits(a, b)) {
            (true, true) => Some(if is_boxes(0) { (0, 1) } else { (1, 0) }),
            (true, false) => Some((1, 0)),
            (false, true) => Some((0, 1)),
            (false, false) => None,
        }
    }

    /// The places of boxes, scores and classes among the first outputs. Classes are integers where the file says so; else names tell.
    fn lists(&self, shapes: &[&[i64]]) -> Option<Layout> {
        let shapes = shapes.get(..3)?;
        let boxes = shapes
            .iter()
            .position(|shape| shape.len() == 3 && shape[2] == 4)?;
        let n = shapes[boxes][1];
        let mut rest = (0..3).filter(|at| *at != boxes);
        let (a, b) = (rest.next()?, rest.next()?);
        if [a, b]
            .iter()
            .any(|at| shapes[*at].len() != 2 || shapes[*at][1] != n)
        {
            return None;
        }
        let port = |at: usize| self.facts.outputs.get(at);
        let is_labels = |at: usize| {
            port(at).is_some_and(|port| {
                port.is_integer() || port.name.contains("label") || port.name.contains("class")
            })
        };
        let (scores, labels) = match (is_labels(a), is_labels(b)) {
            (true, false) => (b, a),
            // Of a TorchScript model, which says nothing, scores come first.
            _ => (a, b),
        };
        Some(Layout::Lists {
            boxes,
            scores,
            labels,
        })
    }
}

/// Shapes in a row.
fn shown(shapes: &[&[i64]]) -> String {
    let all: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
    all.join(" and ")
}
