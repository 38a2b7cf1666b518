//! YOLO's layouts: one number after the other of each box, in pixels of the input.

use super::layout::{Extra, Layout};
use super::{Decoded, Decoder, around, best_of};
use crate::boxes::Candidate;

/// `[4 + classes + extra, n]`: centre and sides, then a score a class.
pub(super) fn columns(decoder: &Decoder, row: &[f32]) -> Decoded {
    let &Decoder { n_classes, .. } = decoder;
    let n = row.len() / width(decoder);
    let mut best = vec![(0usize, f32::NEG_INFINITY); n];
    let mut numbers = vec![false; n];
    for class in 0..n_classes {
        let scores = &row[(4 + class) * n..][..n];
        for ((best, is_number), score) in best.iter_mut().zip(&mut numbers).zip(scores) {
            *is_number |= !score.is_nan();
            if *score > best.1 {
                *best = (class, *score);
            }
        }
    }
    let mut found = Decoded::default();
    for (at, ((class, score), is_number)) in best.into_iter().zip(numbers).enumerate() {
        if score >= decoder.confidence {
            let corners = around([0, 1, 2, 3].map(|k| row[k * n + at]));
            found.take(
                Candidate {
                    corners,
                    class,
                    score,
                    at,
                },
                n_classes,
            );
        } else if !is_number {
            found.left_out += 1;
        }
    }
    found
}

/// `[n, 5 + classes + extra]`: centre and sides, the score of any object, then a score a class, which it multiplies.
pub(super) fn objectness(decoder: &Decoder, row: &[f32]) -> Decoded {
    let &Decoder { n_classes, .. } = decoder;
    let mut found = Decoded::default();
    for (at, of) in row.chunks_exact(width(decoder)).enumerate() {
        let object = of[4];
        let Some((class, score)) = best_of(of[5..5 + n_classes].iter().map(|s| s * object)) else {
            found.left_out += 1;
            continue;
        };
        if object >= decoder.confidence && score >= decoder.confidence {
            let corners = around([of[0], of[1], of[2], of[3]]);
            found.take(
                Candidate {
                    corners,
                    class,
                    score,
                    at,
                },
                n_classes,
            );
        }
    }
    found
}

/// `[n, 6 + extra]`: corners, score, class. What is not filled has a score of 0, or is [`spillgate_backend`]'s filler.
pub(super) fn classed(decoder: &Decoder, extra: Extra, row: &[f32]) -> Decoded {
    let mut found = Decoded::default();
    for (at, of) in row.chunks_exact(6 + extra.len()).enumerate() {
        let corners = [of[0], of[1], of[2], of[3]];
        scored(&mut found, decoder, corners, (of[4], of[5]), at);
    }
    found
}

/// A box with its score and the number of its class. Rows of zeros fill up.
pub(super) fn scored(
    found: &mut Decoded,
    decoder: &Decoder,
    corners: [f32; 4],
    (score, class): (f32, f32),
    at: usize,
) {
    let is_filler = score == 0.0 && corners == [0.0; 4];
    if score.is_nan() {
        found.left_out += 1;
    } else if score >= decoder.confidence && !is_filler {
        // What is no class becomes one that there is not.
        let class = if class >= 0.0 {
            class as usize
        } else {
            usize::MAX
        };
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

/// Numbers of a box.
fn width(decoder: &Decoder) -> usize {
    match decoder.layout {
        Layout::Columns { extra } => 4 + decoder.n_classes + extra.len(),
        Layout::Objectness { extra } => 5 + decoder.n_classes + extra.len(),
        Layout::Classed { extra } => 6 + extra.len(),
        _ => 4,
    }
}

/// The further numbers of the box at a place.
pub(super) fn extra(decoder: &Decoder, row: &[f32], at: usize) -> Vec<f32> {
    let width = width(decoder);
    match decoder.layout {
        Layout::Columns { extra } => {
            let n = row.len() / width;
            (width - extra.len()..width)
                .map(|k| row[k * n + at])
                .collect()
        }
        Layout::Objectness { extra } | Layout::Classed { extra } => {
            row[at * width..(at + 1) * width][width - extra.len()..].to_vec()
        }
        _ => Vec::new(),
    }
}
