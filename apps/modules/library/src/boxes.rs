//! Boxes of detectors, and non-maximum suppression.

/// A box as a model gave it, in pixels of the network input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Left, top, right, bottom.
    pub(crate) corners: [f32; 4],
    pub(crate) class: usize,
    pub(crate) score: f32,
    /// Its place in the model's outputs.
    pub(crate) at: usize,
}

/// Which boxes a better one suppresses when it overlaps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suppress {
    /// Those of its class.
    Class,
    /// Those of any class.
    All,
    /// None: the model did so itself, or gives no box twice.
    None,
}

impl Suppress {
    /// Words of the option `suppress`.
    pub(crate) const WORDS: [&str; 3] = ["class", "all", "none"];

    /// Of a word; the option's type has checked it.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "all" => Suppress::All,
            "none" => Suppress::None,
            _ => Suppress::Class,
        }
    }
}

/// Most candidates that enter the suppression, best first: it compares pairs, and a model gone astray
/// may call every cell an object.
const MAX_CANDIDATES: usize = 2000;

/// Non-maximum suppression: a box goes when a better one overlaps it by more than `iou`. The rest, best first, `max` at most.
pub(crate) fn suppress(
    mut candidates: Vec<Candidate>,
    by: Suppress,
    iou: f32,
    max: usize,
) -> Vec<Candidate> {
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
    if by == Suppress::None {
        candidates.truncate(max);
        return candidates;
    }
    candidates.truncate(MAX_CANDIDATES);
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        if kept.len() == max {
            break;
        }
        let covered = kept.iter().any(|k| {
            (by == Suppress::All || k.class == candidate.class)
                && overlap(&k.corners, &candidate.corners) > iou
        });
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
    fn suppressed_slowly(mut rest: Vec<Candidate>, by: Suppress, iou: f32) -> Vec<Candidate> {
        let mut kept = Vec::new();
        while !rest.is_empty() {
            let best = (0..rest.len())
                .max_by(|a, b| rest[*a].score.total_cmp(&rest[*b].score))
                .expect("not empty");
            let best = rest.swap_remove(best);
            rest.retain(|c| {
                (by == Suppress::Class && c.class != best.class)
                    || overlap(&c.corners, &best.corners) <= iou
            });
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
                    at: i,
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn suppression_agrees_with_the_definition(all in candidates(), iou in 0.1f32..0.9) {
            for by in [Suppress::Class, Suppress::All] {
                let found = suppress(all.clone(), by, iou, usize::MAX);
                prop_assert_eq!(found, suppressed_slowly(all.clone(), by, iou));
            }
            let sorted = suppress(all.clone(), Suppress::None, iou, usize::MAX);
            prop_assert_eq!(sorted.len(), all.len());
        }

        #[test]
        fn the_order_of_candidates_does_not_matter(all in candidates()) {
            let mut reversed = all.clone();
            reversed.reverse();
            prop_assert_eq!(suppress(all, Suppress::Class, 0.5, 20), suppress(reversed, Suppress::Class, 0.5, 20));
        }
    }
}
