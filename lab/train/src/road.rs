//! The detector `road.pt`: a small fully convolutional network without anchors. Each cell of 8x8 input
//! pixels predicts one box around its centre and a score for each class, so one set of weights runs at
//! any input size that is a multiple of 32. The shipped form gives `[batch, 4 + classes, cells]` as
//! YOLOv8 exports do.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use spillgate_modules::letterbox::Fit;
use spillgate_modules::resample::{PixelFormat, Resampler, Target};
use spillgate_scenes::{CLASSES, MIN_VISIBLE, Rect};
use tch::nn::{self, Module};
use tch::{Kind, Tensor};

use crate::data::{Sample, any};
use crate::layers::{ConvUnit, Network, Shape};

/// Pixels of the input for one cell.
const STRIDE: usize = 8;
/// Size in pixels of a box whose logarithmic size is 0.
const UNIT_SIZE: f64 = 24.0;
/// Input sizes trained on, each as often as it is listed: the smallest and the largest need most.
pub(crate) const SIZES: [usize; 10] = [128, 128, 160, 192, 224, 256, 288, 320, 320, 320];
const N_CLASSES: usize = CLASSES.len();

/// The network.
#[derive(Debug)]
pub(crate) struct Road {
    /// Down to cells of 8 pixels.
    fine: Vec<ConvUnit>,
    /// Further down to cells of 16 pixels.
    coarse: Vec<ConvUnit>,
    /// And to cells of 32 pixels: sees whole vehicles.
    deep: Vec<ConvUnit>,
    deep_up: nn::ConvTranspose2D,
    coarse_up: nn::ConvTranspose2D,
    joined: ConvUnit,
    head: nn::Conv2D,
}

impl Road {
    pub(crate) fn new(path: &nn::Path<'_>) -> Self {
        let unit = |name: &str, i, o, s| ConvUnit::new(path / name, Shape::square(i, o, s));
        let transposed = nn::ConvTransposeConfig {
            stride: 2,
            ..Default::default()
        };
        let head = nn::conv2d(
            path / "head",
            64,
            (4 + N_CLASSES) as i64,
            1,
            Default::default(),
        );
        // Objects are rare: start from a low score everywhere.
        tch::no_grad(|| {
            if let Some(bias) = &head.bs {
                let _ = bias.narrow(0, 0, 4).fill_(0.0);
                let _ = bias.narrow(0, 4, N_CLASSES as i64).fill_(-4.0);
            }
        });
        Road {
            fine: vec![
                unit("f1", 3, 16, 2),
                unit("f2", 16, 32, 2),
                unit("f3", 32, 32, 1),
                unit("f4", 32, 64, 2),
                unit("f5", 64, 64, 1),
            ],
            coarse: vec![unit("c1", 64, 96, 2), unit("c2", 96, 96, 1)],
            deep: vec![unit("d1", 96, 64, 2), unit("d2", 64, 64, 1)],
            deep_up: nn::conv_transpose2d(path / "deep_up", 64, 96, 2, transposed),
            coarse_up: nn::conv_transpose2d(path / "coarse_up", 96, 64, 2, transposed),
            joined: unit("joined", 64, 64, 1),
            head,
        }
    }
}

impl Network for Road {
    /// `[n, 4 + classes, rows, columns]`: offsets and logarithmic sizes, logits.
    fn forward(&self, x: &Tensor, train: bool) -> Tensor {
        let run = |units: &[ConvUnit], x: &Tensor| {
            units
                .iter()
                .fold(x.shallow_clone(), |x, unit| unit.forward(&x, train))
        };
        let fine = run(&self.fine, &(x - 0.45));
        let coarse = run(&self.coarse, &fine);
        let deep = self.deep_up.forward(&run(&self.deep, &coarse));
        let coarse = self.coarse_up.forward(&(coarse + deep).relu());
        let joined = self.joined.forward(&(fine + coarse).relu(), train);
        self.head.forward(&joined)
    }

    /// No size may be baked in by the trace: positions come from sums of ones.
    fn output(&self, x: &Tensor) -> Tensor {
        let raw = self.forward(x, false);
        let boxes = decoded(&raw);
        let scores = raw.narrow(1, 4, N_CLASSES as i64).sigmoid();
        Tensor::cat(&[boxes, scores], 1).flatten(2, -1)
    }

    fn fold(&mut self) {
        let units = self.fine.iter_mut().chain(&mut self.coarse);
        units.chain(&mut self.deep).for_each(ConvUnit::fold);
        self.joined.fold();
    }
}

/// Centre x, centre y, width, height in pixels of the input: `[n, 4, rows, columns]`.
fn decoded(raw: &Tensor) -> Tensor {
    let ones = raw.narrow(1, 0, 1).ones_like();
    let column = ones.cumsum(3, Kind::Float) - 0.5;
    let row = ones.cumsum(2, Kind::Float) - 0.5;
    let x = (raw.narrow(1, 0, 1) + column) * STRIDE as f64;
    let y = (raw.narrow(1, 1, 1) + row) * STRIDE as f64;
    let size = raw.narrow(1, 2, 2).clamp(-4.0, 4.0).exp() * UNIT_SIZE;
    Tensor::cat(&[x, y, size], 1)
}

/// Pictures at one input size with what the network should say about them.
pub(crate) struct Batch {
    images: Tensor,
    n: usize,
    cells: usize,
    /// By picture, class, cell: 0 where the score does not count.
    counts: Vec<f32>,
    /// For each cell that should find an object: its place in `[n, cells]`, its class, the box.
    positives: Vec<(i64, i64, [f32; 4])>,
}

impl Batch {
    /// Draws pictures at random and letterboxes them to `side`.
    pub(crate) fn draw(samples: &[Sample], n: usize, side: usize, rng: &mut ChaCha8Rng) -> Self {
        let per_side = side / STRIDE;
        let cells = per_side * per_side;
        let mut data = vec![0.0; n * 3 * side * side];
        let mut counts = vec![1.0; n * N_CLASSES * cells];
        let mut positives = Vec::new();
        let mut resampler = Resampler::default();
        let format = PixelFormat::UNIT;
        for (i, data) in data.chunks_exact_mut(3 * side * side).enumerate() {
            let sample = any(samples, rng);
            let (width, height) = (sample.image.width, sample.image.height);
            let fit = Fit::letterbox((width, height), side, side);
            let mut target = Target {
                data,
                width: side,
                height: side,
                format: &format,
            };
            fit.paint(&sample.image, &mut resampler, &mut target);
            let in_input = |r: &Rect| fit.to_input([r.x0, r.y0, r.x1, r.y1]);
            let vehicles = sample.truth.vehicles.iter().map(|v| (0, v.bbox, v.visible));
            let people = sample.truth.people.iter().map(|p| (1, p.bbox, p.visible));
            let mut taken = vec![f32::INFINITY; cells];
            let mut chosen: Vec<Option<(usize, [f32; 4])>> = vec![None; cells];
            for (class, bbox, visible) in vehicles.chain(people) {
                let b = in_input(&bbox);
                if visible < MIN_VISIBLE {
                    // Hardly visible: neither an object nor background.
                    for cell in cells_in(b, per_side) {
                        counts[(i * N_CLASSES + class) * cells + cell] = 0.0;
                    }
                    continue;
                }
                let area = (b[2] - b[0]) * (b[3] - b[1]);
                for cell in cells_near_centre(b, per_side) {
                    if area < taken[cell] {
                        taken[cell] = area;
                        chosen[cell] = Some((class, b));
                    }
                }
            }
            for (cell, choice) in chosen.into_iter().enumerate() {
                if let Some((class, b)) = choice {
                    counts[(i * N_CLASSES + class) * cells + cell] = 1.0;
                    positives.push(((i * cells + cell) as i64, class as i64, b));
                }
            }
        }
        let side = side as i64;
        let images = Tensor::from_slice(&data).reshape([n as i64, 3, side, side]);
        let images = if rng.random_bool(0.5) {
            images * rng.random_range(0.85..1.15)
        } else {
            images
        };
        Batch {
            images,
            n,
            cells,
            counts,
            positives,
        }
    }

    /// Quality focal loss for the scores, generalised IoU for the boxes. `own_statistics`: normalise
    /// by this batch's statistics, and gather them.
    pub(crate) fn loss(&self, network: &Road, own_statistics: bool) -> Tensor {
        let raw = network.forward(&self.images, own_statistics);
        let (n, cells, n_classes) = (self.n as i64, self.cells as i64, N_CLASSES as i64);
        let logits = raw.narrow(1, 4, n_classes).reshape([n, n_classes, cells]);
        let mut target = Tensor::zeros([n, n_classes, cells], (Kind::Float, logits.device()));
        let mut box_loss = Tensor::from(0.0f32);
        if !self.positives.is_empty() {
            let cell: Vec<i64> = self.positives.iter().map(|p| p.0).collect();
            let class: Vec<i64> = self.positives.iter().map(|p| p.1).collect();
            let corners: Vec<f32> = self.positives.iter().flat_map(|p| p.2).collect();
            let truth = Tensor::from_slice(&corners).reshape([-1, 4]);
            let boxes = decoded(&raw)
                .flatten(2, -1)
                .permute([0, 2, 1])
                .reshape([-1, 4]);
            let found = boxes.index_select(0, &Tensor::from_slice(&cell));
            let (iou, giou) = overlaps(&found, &truth);
            box_loss = (giou * -1.0 + 1.0).sum(Kind::Float);
            // A cell's score should say how good its box is.
            let quality = (iou.detach().clamp(0.0, 1.0)) * 0.5 + 0.5;
            let at: Vec<i64> = cell
                .iter()
                .zip(&class)
                .map(|(cell, class)| (cell / cells * n_classes + class) * cells + cell % cells)
                .collect();
            let _ = target
                .view([-1])
                .index_copy_(0, &Tensor::from_slice(&at), &quality);
            target = target.reshape([n, n_classes, cells]);
        }
        let counts = Tensor::from_slice(&self.counts).reshape([n, n_classes, cells]);
        let distance = (&target - logits.sigmoid()).abs();
        let entropy = logits.relu() - &logits * &target + (logits.abs() * -1.0).exp().log1p();
        let score_loss = (entropy * &distance * &distance * counts).sum(Kind::Float);
        (score_loss + box_loss) / self.positives.len().max(1) as f64
    }
}

/// Cells whose centre lies in a box.
fn cells_in(b: [f32; 4], per_side: usize) -> Vec<usize> {
    let range = |from: f32, to: f32| {
        let at = |v: f32| ((v / STRIDE as f32 + 0.5).floor().max(0.0) as usize).min(per_side);
        at(from)..at(to)
    };
    let columns = range(b[0], b[2]);
    range(b[1], b[3])
        .flat_map(|y| columns.clone().map(move |x| y * per_side + x))
        .collect()
}

/// Cells whose centre is near that of a box: one to four.
fn cells_near_centre(b: [f32; 4], per_side: usize) -> Vec<usize> {
    /// Farthest distance of the two centres in cells.
    const NEAR: f32 = 0.8;
    let (cx, cy) = ((b[0] + b[2]) / 2.0, (b[1] + b[3]) / 2.0);
    let reach = NEAR * STRIDE as f32;
    cells_in([cx - reach, cy - reach, cx + reach, cy + reach], per_side)
}

/// IoU and generalised IoU of boxes given by centre and size with boxes given by corners.
fn overlaps(found: &Tensor, truth: &Tensor) -> (Tensor, Tensor) {
    let column = |t: &Tensor, i: i64| t.narrow(1, i, 1).squeeze_dim(1);
    let (half_w, half_h) = (column(found, 2) / 2.0, column(found, 3) / 2.0);
    let (x0, x1) = (column(found, 0) - &half_w, column(found, 0) + &half_w);
    let (y0, y1) = (column(found, 1) - &half_h, column(found, 1) + &half_h);
    let t: Vec<Tensor> = (0..4).map(|i| column(truth, i)).collect();
    let w = (x1.minimum(&t[2]) - x0.maximum(&t[0])).clamp_min(0.0);
    let h = (y1.minimum(&t[3]) - y0.maximum(&t[1])).clamp_min(0.0);
    let both = w * h;
    let either = (&x1 - &x0) * (&y1 - &y0) + (&t[2] - &t[0]) * (&t[3] - &t[1]) - &both;
    let iou = &both / (&either + 1e-6);
    let hull = (x1.maximum(&t[2]) - x0.minimum(&t[0])) * (y1.maximum(&t[3]) - y0.minimum(&t[1]));
    let giou = &iou - (&hull - &either) / (&hull + 1e-6);
    (iou, giou)
}
