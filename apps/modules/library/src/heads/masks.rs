//! Masks of objects, out of coefficients and prototypes (YOLACT's way, which Ultralytics' segmentation models took over), as outlines.
//!
//! Ultralytics' own code enlarges each mask to the input bilinearly, takes what is above 0, and cuts it at the box. An outline of the same
//! surface needs no enlargement: it is the line of 0 between the values of the prototypes' cells (marching squares), cut at the box.

use contour::ContourBuilder;
use spillgate_process::value::Tensor;

/// The masks of one picture.
pub(super) struct Prototypes<'a> {
    /// `[n, height, width]`, row-major.
    data: &'a [f32],
    n: usize,
    width: usize,
    height: usize,
    /// Pixels of the input in a cell, across and down.
    cell: (f32, f32),
}

/// A closed line in pixels of the input.
pub(super) type Outline = Vec<[f32; 2]>;

impl<'a> Prototypes<'a> {
    /// Those of picture `i` in an output `[batch, n, height, width]`, for an input of that width and height.
    pub(super) fn of(output: &'a Tensor, i: usize, size: (usize, usize)) -> Option<Self> {
        let &[_, n, height, width] = output.shape.as_slice() else {
            return None;
        };
        let [n, height, width] = [n, height, width].map(|v| usize::try_from(v).unwrap_or(0));
        let is_there = n > 0 && height > 0 && width > 0;
        is_there.then(|| Prototypes {
            data: output.row(i),
            n,
            width,
            height,
            cell: (size.0 as f32 / width as f32, size.1 as f32 / height as f32),
        })
    }

    /// The outer outlines of an object with these coefficients in its box, largest first. None where nothing of the mask is above 0, or the
    /// coefficients are no numbers.
    pub(super) fn outlines(&self, coefficients: &[f32], corners: [f32; 4]) -> Vec<Outline> {
        let [x0, y0, x1, y1] = corners;
        // The cells of the box, and those around it, between which the line may run.
        let cells = |low: f32, high: f32, cell: f32, all: usize| {
            let first = ((low / cell - 0.5).floor().max(0.0) as usize).min(all - 1);
            let last = ((high / cell + 0.5).ceil().max(0.0) as usize).min(all);
            first..last.max(first + 1)
        };
        let columns = cells(x0, x1, self.cell.0, self.width);
        let rows = cells(y0, y1, self.cell.1, self.height);
        let (n_columns, n_rows) = (columns.len(), rows.len());
        let mut values = vec![0.0f64; n_columns * n_rows];
        for (k, coefficient) in coefficients.iter().enumerate().take(self.n) {
            let plane = &self.data[k * self.width * self.height..][..self.width * self.height];
            for (to, y) in values.chunks_exact_mut(n_columns).zip(rows.clone()) {
                let from = &plane[y * self.width..][columns.clone()];
                for (to, from) in to.iter_mut().zip(from) {
                    *to += f64::from(coefficient * from);
                }
            }
        }
        if values.iter().any(|value| !value.is_finite()) {
            return Vec::new();
        }
        let found = ContourBuilder::new(n_columns, n_rows, true).contours(&values, &[0.0]);
        // It fails for other numbers of values than cells alone.
        let found = found.unwrap_or_default();
        let (first_x, first_y) = (columns.start as f32, rows.start as f32);
        let mut outlines: Vec<Outline> = Vec::new();
        for polygon in found.iter().flat_map(|contour| contour.geometry().iter()) {
            let points = polygon.exterior().points();
            let at = |x: f64, y: f64| {
                let x = (x as f32 + first_x) * self.cell.0;
                [x, (y as f32 + first_y) * self.cell.1]
            };
            let outline: Outline = points.map(|point| at(point.x(), point.y())).collect();
            let cut = cut(outline, corners);
            if cut.len() >= 3 && area(&cut) > 0.0 {
                outlines.push(cut);
            }
        }
        outlines.sort_by(|a, b| area(b).total_cmp(&area(a)));
        outlines
    }
}

/// An outline within a box, by one side after the other (Sutherland and Hodgman, 1974). Pieces that the box cuts apart stay connected along its
/// side.
fn cut(mut outline: Outline, [x0, y0, x1, y1]: [f32; 4]) -> Outline {
    // The last point is the first.
    if outline.len() > 1 && outline.first() == outline.last() {
        outline.pop();
    }
    for (axis, bound, sign) in [(0, x0, 1.0), (0, x1, -1.0), (1, y0, 1.0), (1, y1, -1.0)] {
        let inside = |point: &[f32; 2]| (point[axis] - bound) * sign >= 0.0;
        let mut kept: Outline = Vec::with_capacity(outline.len() + 4);
        for (i, to) in outline.iter().enumerate() {
            let from = &outline[(i + outline.len() - 1) % outline.len()];
            if inside(from) != inside(to) {
                let part = (bound - from[axis]) / (to[axis] - from[axis]);
                let mut crossing = [0, 1].map(|k| from[k] + part * (to[k] - from[k]));
                crossing[axis] = bound;
                kept.push(crossing);
            }
            if inside(to) {
                kept.push(*to);
            }
        }
        outline = kept;
    }
    outline
}

/// The area within an outline.
fn area(outline: &[[f32; 2]]) -> f32 {
    let next = outline.iter().cycle().skip(1);
    let twice: f32 = outline
        .iter()
        .zip(next)
        .map(|(a, b)| a[0] * b[1] - b[0] * a[1])
        .sum();
    (twice / 2.0).abs()
}
