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

/// Most cells of a mask: those of an input of 2048 pixels a side.
const CELLS_MAX: usize = 512 * 512;
/// Most outlines of an object, the largest: an object that other ones cover in part is in some pieces.
const OUTLINES_MAX: usize = 64;

/// The sign of the area of outer outlines, as the lines run.
const OUTER: f32 = -1.0;

/// A closed line in pixels of the input.
pub(super) type Outline = Vec<[f32; 2]>;

impl<'a> Prototypes<'a> {
    /// Those of picture `i` in an output `[batch, n, height, width]`, for an input of that width and height.
    pub(super) fn of(output: &'a Tensor, i: usize, size: (usize, usize)) -> Option<Self> {
        let &[_, n, height, width] = output.shape.as_slice() else {
            return None;
        };
        let [n, height, width] = [n, height, width].map(|v| usize::try_from(v).unwrap_or(0));
        let is_there =
            n > 0 && height > 0 && width > 0 && height.saturating_mul(width) <= CELLS_MAX;
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
        // All lines of 0; those around holes run the other way round. It fails for other numbers of values than cells alone.
        let lines = ContourBuilder::new(n_columns, n_rows, true).lines(&values, &[0.0]);
        let lines = lines.unwrap_or_default();
        let (first_x, first_y) = (columns.start as f32, rows.start as f32);
        let mut outlines: Vec<(f32, Outline)> = Vec::new();
        for line in lines.iter().flat_map(|line| line.geometry().iter()) {
            let at = |x: f64, y: f64| {
                let x = (x as f32 + first_x) * self.cell.0;
                [x, (y as f32 + first_y) * self.cell.1]
            };
            let outline: Outline = line
                .points()
                .map(|point| at(point.x(), point.y()))
                .collect();
            if signed_area(&outline) * OUTER <= 0.0 {
                continue;
            }
            let cut = cut(outline, corners);
            let area = signed_area(&cut).abs();
            if cut.len() >= 3 && area > 0.0 {
                outlines.push((area, cut));
            }
        }
        outlines.sort_by(|a, b| b.0.total_cmp(&a.0));
        outlines.truncate(OUTLINES_MAX);
        let mut outer: Vec<Outline> = Vec::new();
        for (_, outline) in outlines {
            // What lies in a hole of another one is within that one's outer outline.
            if !outer.iter().any(|around| is_within(outline[0], around)) {
                outer.push(outline);
            }
        }
        outer
    }
}

/// Whether a point is within an outline: an odd number of sides lies right of it.
fn is_within([x, y]: [f32; 2], outline: &[[f32; 2]]) -> bool {
    let next = outline.iter().cycle().skip(1);
    let crossed = outline.iter().zip(next).filter(|(a, b)| {
        (a[1] > y) != (b[1] > y) && x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0]
    });
    crossed.count() % 2 == 1
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

/// The area within an outline, above 0 where it runs clockwise in a picture, whose rows count downwards.
fn signed_area(outline: &[[f32; 2]]) -> f32 {
    let next = outline.iter().cycle().skip(1);
    let twice: f32 = outline
        .iter()
        .zip(next)
        .map(|(a, b)| a[0] * b[1] - b[0] * a[1])
        .sum();
    twice / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_hole_is_covered_by_the_outline_around_it() {
        // A frame with an island in its hole, and a piece beside it.
        let rows = [
            "############...",
            "#..........#...",
            "#..........#...",
            "#...####...#.##",
            "#...####...#.##",
            "#..........#...",
            "############...",
        ];
        let value = |c: char| if c == '#' { 1.0 } else { -1.0 };
        let data: Vec<f32> = rows.iter().flat_map(|row| row.chars().map(value)).collect();
        let output = Tensor::new(vec![1, 1, 7, 15], data);
        let prototypes = Prototypes::of(&output, 0, (15, 7)).expect("prototypes");
        let outlines = prototypes.outlines(&[1.0], [0.0, 0.0, 15.0, 7.0]);
        assert_eq!(outlines.len(), 2, "{outlines:?}");
        assert!(is_within([5.5, 3.5], &outlines[0]) && !is_within([13.5, 3.5], &outlines[0]));
        assert!(is_within([13.5, 3.9], &outlines[1]));
    }

    #[test]
    fn masks_that_are_too_large_or_too_many_pieces_end_at_a_bound() {
        let large = Tensor::new(vec![1, 1, 513, 512], vec![1.0; 513 * 512]);
        assert!(Prototypes::of(&large, 0, (512, 513)).is_none());
        // Each second cell of each second row.
        let cell = |i: usize| {
            if (i / 100).is_multiple_of(2) && i.is_multiple_of(2) {
                1.0
            } else {
                -1.0
            }
        };
        let spots = Tensor::new(vec![1, 1, 100, 100], (0..10_000).map(cell).collect());
        let prototypes = Prototypes::of(&spots, 0, (100, 100)).expect("prototypes");
        let outlines = prototypes.outlines(&[1.0], [0.0, 0.0, 100.0, 100.0]);
        assert_eq!(outlines.len(), OUTLINES_MAX);
        // All of it but holes.
        let outlines = prototypes.outlines(&[-1.0], [0.0, 0.0, 100.0, 100.0]);
        assert_eq!(outlines.len(), 1);
    }
}
