//! Boxes out of a detector's output, and non-maximum suppression.

/// How a detector's output is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoxLayout {
    /// `[batch, 4 + classes, n]`: centre x, centre y, width, height in pixels of the input, then one
    /// score a class. YOLOv8 and YOLO11 exports, and the shipped detector.
    Yolo,
    /// `[batch, n, 6]`: left, top, right, bottom in pixels of the input, score, class. Models that
    /// suppress overlaps themselves, such as YOLOv10 and YOLO26.
    Xyxy,
}

impl BoxLayout {
    /// Words of the option.
    pub(crate) const WORDS: [&str; 2] = ["yolo", "xyxy"];

    /// The layout of a word; the option's type has checked it.
    pub(crate) fn of(word: &str) -> Self {
        if word == "xyxy" {
            BoxLayout::Xyxy
        } else {
            BoxLayout::Yolo
        }
    }

    /// Its shape in words, for `n_classes` classes.
    pub(crate) fn describe(self, n_classes: usize) -> String {
        match self {
            BoxLayout::Yolo => {
                format!(
                    "[batch, {}, n] (4 of the box, {n_classes} classes)",
                    4 + n_classes
                )
            }
            BoxLayout::Xyxy => "[batch, n, 6] (box, score, class)".to_owned(),
        }
    }

    /// Whether an output of `shape` has this layout.
    pub(crate) fn fits(self, shape: &[i64], batch: usize, n_classes: usize) -> bool {
        shape.len() == 3
            && shape[0] == batch as i64
            && match self {
                BoxLayout::Yolo => shape[1] == (4 + n_classes) as i64,
                BoxLayout::Xyxy => shape[2] == 6,
            }
    }

    /// Boxes of one picture that reach `confidence`, in no order. `row` is the picture's slice of an
    /// output that [`fits`](Self::fits).
    pub(crate) fn decode(self, row: &[f32], n_classes: usize, confidence: f32) -> Vec<Candidate> {
        match self {
            BoxLayout::Yolo => decode_yolo(row, n_classes, confidence),
            BoxLayout::Xyxy => decode_xyxy(row, n_classes, confidence),
        }
    }
}

/// A box as a model gave it, in pixels of the network input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Left, top, right, bottom.
    pub(crate) corners: [f32; 4],
    pub(crate) class: usize,
    pub(crate) score: f32,
}

fn decode_yolo(row: &[f32], n_classes: usize, confidence: f32) -> Vec<Candidate> {
    let n = row.len() / (4 + n_classes);
    let mut best = vec![(0usize, f32::NEG_INFINITY); n];
    for class in 0..n_classes {
        for (best, score) in best.iter_mut().zip(&row[(4 + class) * n..]) {
            if *score > best.1 {
                *best = (class, *score);
            }
        }
    }
    let mut candidates = Vec::new();
    for (i, (class, score)) in best.into_iter().enumerate() {
        if score >= confidence {
            let [cx, cy, w, h] = [0, 1, 2, 3].map(|k| row[k * n + i]);
            let corners = [cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0];
            candidates.extend(checked(Candidate {
                corners,
                class,
                score,
            }));
        }
    }
    candidates
}

fn decode_xyxy(row: &[f32], n_classes: usize, confidence: f32) -> Vec<Candidate> {
    row.chunks_exact(6)
        .filter(|v| v[4] >= confidence && v[5] >= 0.0 && (v[5] as usize) < n_classes)
        .filter_map(|v| {
            let corners = [v[0], v[1], v[2], v[3]];
            checked(Candidate {
                corners,
                class: v[5] as usize,
                score: v[4],
            })
        })
        .collect()
}

/// Leaves out invalid boxes: those with numbers that are not finite or without area.
fn checked(candidate: Candidate) -> Option<Candidate> {
    let [x0, y0, x1, y1] = candidate.corners;
    let sound = candidate.corners.iter().all(|v| v.is_finite())
        && candidate.score.is_finite()
        && x1 > x0
        && y1 > y0;
    sound.then_some(candidate)
}

/// Most candidates that enter the suppression, best first: it compares pairs, and a model gone astray
/// may call every cell an object.
const MAX_CANDIDATES: usize = 2000;

/// Non-maximum suppression within each class: a box goes when a better one of its class overlaps it
/// by more than `iou`. The rest, best first, `max` at most.
pub(crate) fn suppress(mut candidates: Vec<Candidate>, iou: f32, max: usize) -> Vec<Candidate> {
    // Ties break by place, so that the result does not depend on the order of candidates.
    candidates.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then(a.class.cmp(&b.class))
            .then_with(|| a.corners[0].total_cmp(&b.corners[0]))
            .then_with(|| a.corners[1].total_cmp(&b.corners[1]))
            .then_with(|| a.corners[2].total_cmp(&b.corners[2]))
            .then_with(|| a.corners[3].total_cmp(&b.corners[3]))
    });
    candidates.truncate(MAX_CANDIDATES);
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        if kept.len() == max {
            break;
        }
        let covered = kept
            .iter()
            .any(|k| k.class == candidate.class && overlap(&k.corners, &candidate.corners) > iou);
        if !covered {
            kept.push(candidate);
        }
    }
    kept
}

/// Intersection over union of two boxes.
fn overlap(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let w = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let h = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let both = w * h;
    let either = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
    if either > 0.0 { both / either } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By definition: the best box stays, what it covers goes, and so on with the rest.
    fn suppressed_slowly(mut rest: Vec<Candidate>, iou: f32) -> Vec<Candidate> {
        let mut kept = Vec::new();
        while !rest.is_empty() {
            let best = (0..rest.len())
                .max_by(|a, b| rest[*a].score.total_cmp(&rest[*b].score))
                .expect("not empty");
            let best = rest.swap_remove(best);
            rest.retain(|c| c.class != best.class || overlap(&c.corners, &best.corners) <= iou);
            kept.push(best);
        }
        kept
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (
            0.0f32..50.0,
            0.0f32..50.0,
            1.0f32..30.0,
            1.0f32..30.0,
            0usize..3,
        );
        proptest::collection::vec(one, 0..60).prop_map(|all| {
            // Scores differ, so that both ways agree on the order.
            let n = all.len() as f32;
            all.into_iter()
                .enumerate()
                .map(|(i, (x, y, w, h, class))| Candidate {
                    corners: [x, y, x + w, y + h],
                    class,
                    score: ((i * 37) % 61) as f32 / 61.0 + i as f32 / n * 0.001,
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn suppression_agrees_with_the_definition(all in candidates(), iou in 0.1f32..0.9) {
            prop_assert_eq!(suppress(all.clone(), iou, usize::MAX), suppressed_slowly(all, iou));
        }

        #[test]
        fn the_order_of_candidates_does_not_matter(all in candidates()) {
            let mut reversed = all.clone();
            reversed.reverse();
            prop_assert_eq!(suppress(all, 0.5, 20), suppress(reversed, 0.5, 20));
        }
    }

    #[test]
    fn yolo_rows_decode() {
        // Two places, two classes: the second place holds class 1 with 0.9.
        let row = [
            10.0, 20.0, // cx
            10.0, 30.0, // cy
            4.0, 8.0, // w
            4.0, 6.0, // h
            0.1, 0.2, // class 0
            0.05, 0.9, // class 1
        ];
        let found = BoxLayout::Yolo.decode(&row, 2, 0.5);
        let corners = [16.0, 27.0, 24.0, 33.0];
        assert_eq!(
            found,
            [Candidate {
                corners,
                class: 1,
                score: 0.9
            }]
        );
    }

    #[test]
    fn what_is_no_box_is_left_out() {
        let row = [
            0.0,
            0.0,
            5.0,
            5.0,
            0.9,
            0.0, // sound
            0.0,
            0.0,
            f32::NAN,
            5.0,
            0.9,
            0.0, // not finite
            5.0,
            0.0,
            5.0,
            5.0,
            0.9,
            0.0, // no area
            0.0,
            0.0,
            5.0,
            5.0,
            0.9,
            7.0, // no such class
            0.0,
            0.0,
            5.0,
            5.0,
            f32::NAN,
            0.0, // no score
        ];
        assert_eq!(BoxLayout::Xyxy.decode(&row, 2, 0.5).len(), 1);
    }
}
