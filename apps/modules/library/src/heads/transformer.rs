//! Heads of transformers: a box a query, as centre and sides in 0 to 1 of the input.

use super::{Decoded, Decoder, around, best_of, rows};
use crate::boxes::Candidate;
use crate::scores::Activation;

/// Corners in pixels of the input.
fn corners(decoder: &Decoder, of: &[f32]) -> [f32; 4] {
    let (width, height) = (decoder.size.0 as f32, decoder.size.1 as f32);
    let [x0, y0, x1, y1] = around([of[0], of[1], of[2], of[3]]);
    [x0 * width, y0 * height, x1 * width, y1 * height]
}

/// `[n, 4]` and `[n, classes]`, with softmax one more, which is "no object".
///
/// As DETR's and RT-DETR's own code: with softmax each query is its best class; with sigmoid the `n` best of all pairs of a query and
/// a class are found, so that a query may be several objects.
pub(super) fn queries(decoder: &Decoder, boxes: &[f32], logits: &[f32], softmax: bool) -> Decoded {
    let &Decoder {
        n_classes,
        confidence,
        ..
    } = decoder;
    let mut found = Decoded::default();
    let n = boxes.len() / 4;
    if n == 0 {
        return found;
    }
    for (at, (of, logits)) in boxes
        .chunks_exact(4)
        .zip(logits.chunks_exact(logits.len() / n))
        .enumerate()
    {
        let mut logits = logits.to_vec();
        if softmax {
            Activation::Softmax.apply(&mut logits);
            match best_of(logits[..n_classes].iter().copied()) {
                None => found.left_out += 1,
                Some((class, score)) if score >= confidence => {
                    let corners = corners(decoder, of);
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
                Some(_) => {}
            }
            continue;
        }
        if logits.iter().all(|logit| logit.is_nan()) {
            found.left_out += 1;
        }
        for (class, logit) in logits.into_iter().enumerate() {
            let score = 1.0 / (1.0 + (-logit).exp());
            if score >= confidence {
                let corners = corners(decoder, of);
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
    }
    if found.candidates.len() > n {
        found
            .candidates
            .sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
        found.candidates.truncate(n);
    }
    found
}

/// `[n, 4 + classes]`: the box, then a probability a class.
pub(super) fn probabilities(decoder: &Decoder, row: &[f32]) -> Decoded {
    let mut found = Decoded::default();
    for (at, of) in row.chunks_exact(4 + decoder.n_classes).enumerate() {
        match best_of(of[4..].iter().copied()) {
            None => found.left_out += 1,
            Some((class, score)) if score >= decoder.confidence => {
                let corners = corners(decoder, of);
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
            Some(_) => {}
        }
    }
    found
}

/// `[n, 6]`: the box, score, class.
pub(super) fn centred(decoder: &Decoder, row: &[f32]) -> Decoded {
    let mut found = Decoded::default();
    for (at, of) in row.chunks_exact(6).enumerate() {
        rows::scored(
            &mut found,
            decoder,
            corners(decoder, of),
            (of[4], of[5]),
            at,
        );
    }
    found
}
