//! What boxes have beside their places and classes: masks and key points, in pixels of the picture.

use spillgate_process::value::{Keypoint, Keypoints, Mask, Tensor};

use super::Decoder;
use super::layout::Extra;
use super::masks::Prototypes;
use crate::boxes::Candidate;
use crate::letterbox::Fit;

/// Masks and key points of the boxes of one picture, in the order in which these are added.
pub(crate) struct Further<'a> {
    decoder: &'a Decoder,
    outputs: &'a [Tensor],
    /// The picture's ordinal in the batch.
    i: usize,
    prototypes: Option<Prototypes<'a>>,
    pub(crate) masks: Vec<Mask>,
    pub(crate) keypoints: Vec<Keypoints>,
}

impl<'a> Further<'a> {
    /// Of no box yet of picture `i`.
    pub(crate) fn of(decoder: &'a Decoder, outputs: &'a [Tensor], i: usize) -> Self {
        let prototypes = match (decoder.further(), outputs.get(1)) {
            (Extra::Mask(_), Some(output)) => Prototypes::of(output, i, decoder.size),
            _ => None,
        };
        Further {
            decoder,
            outputs,
            i,
            prototypes,
            masks: Vec::new(),
            keypoints: Vec::new(),
        }
    }

    /// Adds what a box has. A mask that is nowhere above 0 has no outline; points that are no numbers lie at the origin, with a score of 0.
    pub(crate) fn add(&mut self, candidate: &Candidate, fit: &Fit) {
        let extra = self.decoder.further();
        if extra == Extra::None {
            return;
        }
        let numbers = self.decoder.extra(self.outputs, self.i, candidate.at);
        if let Extra::Keypoints(_, each) = extra {
            let points = numbers.chunks_exact(each).map(|point| {
                if point.iter().any(|v| !v.is_finite()) {
                    return Keypoint {
                        x: 0.0,
                        y: 0.0,
                        score: 0.0,
                    };
                }
                let [x, y] = fit.point_to_source([point[0], point[1]]);
                let score = point.get(2).map_or(1.0, |score| score.clamp(0.0, 1.0));
                Keypoint { x, y, score }
            });
            self.keypoints.push(Keypoints {
                points: points.collect(),
            });
            return;
        }
        let outlines = self
            .prototypes
            .as_ref()
            .map(|p| p.outlines(&numbers, candidate.corners));
        let source = |outline: Vec<[f32; 2]>| {
            outline
                .into_iter()
                .map(|point| fit.point_to_source(point))
                .collect()
        };
        let polygons = outlines.unwrap_or_default().into_iter().map(source);
        self.masks.push(Mask {
            polygons: polygons.collect(),
        });
    }
}
