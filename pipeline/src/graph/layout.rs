//! The positions of the SVG's parts: a small layered layout. A box stands in the layer of the longest path to it. An
//! arrow that passes a layer gets a slot of its own there, so that it goes around boxes. Boxes are ordered in their
//! layer by the average position of their neighbours, which removes most crossings (Sugiyama's method without its
//! refinements).
//!
//! Text is measured by a fixed width for each letter, since no font is available.

use super::{Box, Drawing, Kind};

/// Widths of a letter in a line and in a name, and the height of a line.
const LETTER_WIDTH: f64 = 7.2;
const NAME_WIDTH: f64 = 8.6;
pub(super) const LINE_HEIGHT: f64 = 17.0;
/// Distance between a box and its text.
pub(super) const PADDING: f64 = 14.0;
const GAP_X: f64 = 36.0;
const GAP_Y: f64 = 72.0;
pub(super) const MARGIN: f64 = 24.0;
/// Margin at the sides, for labels of the outermost arrows.
const SIDE: f64 = 61.0;
const TITLE_HEIGHT: f64 = 34.0;
/// Sweeps down and up that settle the order; more changes nothing in pipelines of any size seen.
const SWEEPS: usize = 8;

/// A slot in a layer: a box, or a place where an arrow passes.
pub(super) struct Slot {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Its centre from the left, its top from above.
    pub(super) x: f64,
    pub(super) y: f64,
    /// The box drawn here; `None` where an arrow passes.
    pub(super) shown: Option<usize>,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// A point of the picture.
pub(super) type Point = (f64, f64);

/// All positions.
pub(super) struct Layout {
    pub(super) slots: Vec<Slot>,
    /// Slots of each layer from left to right.
    layers: Vec<Vec<usize>>,
    /// The slots along each arrow, both boxes included.
    ways: Vec<Vec<usize>>,
    /// The points of each arrow, in pairs: curves between the layers, straight through them.
    pub(super) lines: Vec<Vec<Point>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Layout {
    pub(super) fn new(drawing: &Drawing) -> Self {
        let mut layout = Layout::layered(drawing);
        for sweep in 0..SWEEPS {
            layout.order(sweep % 2 == 0);
        }
        layout.place();
        layout.lines = layout.lines(drawing);
        layout
    }

    /// Boxes in their layers, arrows cut at each layer that they pass.
    fn layered(drawing: &Drawing) -> Self {
        let n_boxes = drawing.boxes.len();
        let mut rank = vec![0usize; n_boxes];
        // Boxes come in topological order, and arrows by the box they lead to.
        for arrow in &drawing.arrows {
            rank[arrow.to] = rank[arrow.to].max(rank[arrow.from] + 1);
        }
        // The result stands below everything, also below modules without readers.
        let n_layers = rank.iter().max().map_or(1, |last| last + 1);
        if let Some(result) = drawing.boxes.iter().position(|b| b.kind == Kind::Result) {
            rank[result] = n_layers - 1;
        }
        let mut slots: Vec<Slot> = Vec::new();
        let mut layers = vec![Vec::new(); n_layers];
        for (i, b) in drawing.boxes.iter().enumerate() {
            let (width, height) = size(b);
            layers[rank[i]].push(slots.len());
            slots.push(Slot::new(width, height, Some(i)));
        }
        let mut ways = Vec::new();
        for arrow in &drawing.arrows {
            let mut way = vec![arrow.from];
            for members in &mut layers[rank[arrow.from] + 1..rank[arrow.to]] {
                members.push(slots.len());
                way.push(slots.len());
                slots.push(Slot::new(12.0, 0.0, None));
            }
            way.push(arrow.to);
            for pair in way.windows(2) {
                slots[pair[0]].below.push(pair[1]);
                slots[pair[1]].above.push(pair[0]);
            }
            ways.push(way);
        }
        Layout {
            slots,
            layers,
            ways,
            lines: Vec::new(),
            width: 0.0,
            height: 0.0,
        }
    }

    /// Orders each layer by the average position of the neighbours in the layer before.
    fn order(&mut self, down: bool) {
        let n_layers = self.layers.len();
        let mut position = vec![0.0; self.slots.len()];
        let note = |position: &mut Vec<f64>, layer: &[usize]| {
            for (i, slot) in layer.iter().enumerate() {
                // Relative to the layer's middle, so that wide layers do not pull narrow ones.
                position[*slot] = i as f64 - (layer.len() as f64 - 1.0) / 2.0;
            }
        };
        for layer in &self.layers {
            note(&mut position, layer);
        }
        for step in 0..n_layers {
            let at = if down { step } else { n_layers - 1 - step };
            let slots = &self.slots;
            let key = |slot: &usize| {
                let near = if down {
                    &slots[*slot].above
                } else {
                    &slots[*slot].below
                };
                match near.len() {
                    0 => position[*slot],
                    n => near.iter().map(|s| position[*s]).sum::<f64>() / n as f64,
                }
            };
            let mut keyed: Vec<(f64, usize)> =
                self.layers[at].iter().map(|s| (key(s), *s)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.layers[at] = keyed.into_iter().map(|(_, slot)| slot).collect();
            note(&mut position, &self.layers[at]);
        }
    }

    /// Gives coordinates: each layer packed and centred, then moved towards its neighbours.
    fn place(&mut self) {
        let mut top = MARGIN + TITLE_HEIGHT;
        for layer in self.layers.clone() {
            let height = layer
                .iter()
                .map(|s| self.slots[*s].height)
                .fold(0.0, f64::max);
            let mut x = 0.0;
            for &slot in &layer {
                let s = &mut self.slots[slot];
                s.x = x + s.width / 2.0;
                if s.shown.is_none() {
                    // An arrow goes straight through the layer.
                    s.height = height;
                }
                s.y = top + (height - s.height) / 2.0;
                x += s.width + GAP_X;
            }
            let shift = (x - GAP_X) / 2.0;
            layer.iter().for_each(|s| self.slots[*s].x -= shift);
            top += height + GAP_Y;
        }
        for _ in 0..SWEEPS {
            for layer in self.layers.clone() {
                self.attract(&layer);
            }
        }
        let left = |s: &Slot| s.x - s.width / 2.0;
        let right = |s: &Slot| s.x + s.width / 2.0;
        let min = self.slots.iter().map(left).fold(f64::MAX, f64::min);
        let max = self.slots.iter().map(right).fold(f64::MIN, f64::max);
        for slot in &mut self.slots {
            slot.x += SIDE - min;
        }
        self.width = max - min + 2.0 * SIDE;
        self.height = top - GAP_Y + MARGIN;
    }

    /// Moves the slots of a layer towards the average of all their neighbours, without overlap.
    fn attract(&mut self, layer: &[usize]) {
        let wanted: Vec<f64> = layer
            .iter()
            .map(|s| {
                let slot = &self.slots[*s];
                let near = slot.above.iter().chain(&slot.below);
                let (sum, n) =
                    near.fold((0.0, 0.0), |(sum, n), s| (sum + self.slots[*s].x, n + 1.0));
                if n == 0.0 { slot.x } else { sum / n }
            })
            .collect();
        let gap = |a: &Slot, b: &Slot| (a.width + b.width) / 2.0 + GAP_X;
        // Pushed right from the left, and left from the right; the middle of both is free of
        // overlap, too.
        let mut from_left = wanted.clone();
        for i in 1..layer.len() {
            let space = gap(&self.slots[layer[i - 1]], &self.slots[layer[i]]);
            from_left[i] = from_left[i].max(from_left[i - 1] + space);
        }
        let mut from_right = wanted;
        for i in (1..layer.len()).rev() {
            let space = gap(&self.slots[layer[i - 1]], &self.slots[layer[i]]);
            from_right[i - 1] = from_right[i - 1].min(from_right[i] - space);
        }
        for (i, slot) in layer.iter().enumerate() {
            self.slots[*slot].x = (from_left[i] + from_right[i]) / 2.0;
        }
    }

    /// The points of each arrow, from the bottom of one box to the top of another. Arrows at one box
    /// stand side by side, in the order of where they come from or go.
    fn lines(&self, drawing: &Drawing) -> Vec<Vec<Point>> {
        let mut starts = vec![Vec::new(); drawing.boxes.len()];
        let mut ends = vec![Vec::new(); drawing.boxes.len()];
        for (i, way) in self.ways.iter().enumerate() {
            starts[way[0]].push((self.slots[way[1]].x, i));
            ends[way[way.len() - 1]].push((self.slots[way[way.len() - 2]].x, i));
        }
        let mut spread = [vec![0.0; self.ways.len()], vec![0.0; self.ways.len()]];
        for (side, boxes) in [starts, ends].iter_mut().enumerate() {
            for (slot, arrows) in boxes.iter_mut().enumerate() {
                arrows.sort_by(|a, b| a.0.total_cmp(&b.0));
                let s = &self.slots[slot];
                let step = s.width / (arrows.len() as f64 + 1.0);
                for (place, (_, arrow)) in arrows.iter().enumerate() {
                    spread[side][*arrow] = s.x - s.width / 2.0 + step * (place as f64 + 1.0);
                }
            }
        }
        let line = |(i, way): (usize, &Vec<usize>)| {
            let (first, last) = (&self.slots[way[0]], &self.slots[way[way.len() - 1]]);
            let mut points = vec![(spread[0][i], first.bottom())];
            for slot in way[1..way.len() - 1].iter().map(|s| &self.slots[*s]) {
                points.extend([(slot.x, slot.y), (slot.x, slot.bottom())]);
            }
            points.push((spread[1][i], last.y));
            points
        };
        self.ways.iter().enumerate().map(line).collect()
    }
}

impl Slot {
    fn new(width: f64, height: f64, shown: Option<usize>) -> Self {
        let (above, below) = (Vec::new(), Vec::new());
        Slot {
            width,
            height,
            x: 0.0,
            y: 0.0,
            shown,
            above,
            below,
        }
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }
}

fn size(b: &Box) -> (f64, f64) {
    let lines = b
        .lines
        .iter()
        .map(|l| l.chars().count() as f64 * LETTER_WIDTH);
    let name = b.name.chars().count() as f64 * NAME_WIDTH;
    let width = lines.fold(name, f64::max) + 2.0 * PADDING;
    let height = (b.lines.len() as f64 + 1.0) * LINE_HEIGHT + 2.0 * PADDING - 6.0;
    (width.max(90.0), height)
}
