//! Heads whose boxes, scores and classes are outputs of their own.

use super::{Decoded, Decoder, rows};
use crate::boxes::Candidate;

/// `[n, 4]` as corners in pixels of the input, `[n]` scores, `[n]` classes.
pub(super) fn lists(decoder: &Decoder, boxes: &[f32], scores: &[f32], labels: &[f32]) -> Decoded {
    let mut found = Decoded::default();
    let all = boxes
        .chunks_exact(4)
        .zip(scores.iter().zip(labels))
        .enumerate();
    for (at, (of, (score, label))) in all {
        let corners = [of[0], of[1], of[2], of[3]];
        rows::scored(&mut found, decoder, corners, (*score, *label), at);
    }
    found
}

/// `[n, 4]` as corners in 0 to 1 of the input, and a row of probabilities each, of which the first is the background's. That is the
/// first class where it is `named`. As in torchvision's SSD a box may be of several classes, and is cut at the input's edges.
pub(super) fn anchors(decoder: &Decoder, boxes: &[f32], scores: &[f32], named: bool) -> Decoded {
    let (width, height) = (decoder.size.0 as f32, decoder.size.1 as f32);
    let mut found = Decoded::default();
    let (columns, first) = match named {
        true => (decoder.n_classes, 0),
        false => (1 + decoder.n_classes, 1),
    };
    let all = boxes
        .chunks_exact(4)
        .zip(scores.chunks_exact(columns))
        .enumerate();
    for (at, (of, scores)) in all {
        if scores.iter().all(|score| score.is_nan()) {
            found.left_out += 1;
        }
        for (column, score) in scores.iter().enumerate().skip(1) {
            if *score >= decoder.confidence {
                let across = |v: f32| (v * width).clamp(0.0, width);
                let down = |v: f32| (v * height).clamp(0.0, height);
                let corners = [across(of[0]), down(of[1]), across(of[2]), down(of[3])];
                let class = column - first;
                let score = *score;
                found.take(
                    Candidate {
                        corners,
                        class,
                        score,
                        at,
                    },
                    decoder.n_classes,
                );
            }
        }
    }
    found
}
