//! The picture in SVG: a small layered layout. A box stands in the layer of the longest way to it;
//! arrows that pass layers get a place of their own in each, so that they go around boxes; boxes are
//! ordered in their layer by the average place of their neighbours, which removes most crossings.
//!
//! Text is measured by a fixed width for each letter: there is no font here to ask.

use std::fmt::Write;

use super::{Arrow, Box, Drawing, Kind, label_of};

const LETTER_WIDTH: f64 = 7.2;
const NAME_WIDTH: f64 = 8.6;
const LABEL_WIDTH: f64 = 6.2;
const LABEL_HEIGHT: f64 = 14.0;
/// In how many of an arrow's last gaps its label may stand: it belongs near the reader.
const LABEL_GAPS: usize = 3;
/// Where on a curve a label may stand, the best place first.
const LABEL_PLACES: [f64; 7] = [0.5, 0.38, 0.62, 0.28, 0.72, 0.2, 0.8];
const LINE_HEIGHT: f64 = 17.0;
const PADDING: f64 = 14.0;
const GAP_X: f64 = 36.0;
const GAP_Y: f64 = 72.0;
const MARGIN: f64 = 24.0;
const TITLE_HEIGHT: f64 = 34.0;
/// Sweeps down and up that settle the order; more changes nothing in pipelines of any size seen.
const SWEEPS: usize = 8;

/// A place in a layer: a box, or where an arrow passes.
struct Slot {
    width: f64,
    height: f64,
    /// Centre; `y` is the top of the layer.
    x: f64,
    y: f64,
    /// The box drawn here; `None` where an arrow passes.
    shown: Option<usize>,
    above: Vec<usize>,
    below: Vec<usize>,
}

type Point = (f64, f64);

struct Layout {
    slots: Vec<Slot>,
    /// Slots of each layer from left to right.
    layers: Vec<Vec<usize>>,
    /// The slots along each arrow, both boxes included.
    ways: Vec<Vec<usize>>,
    /// The points of each arrow, in pairs: curves between the layers, straight through them.
    lines: Vec<Vec<Point>>,
    width: f64,
    height: f64,
}

pub(super) fn render(drawing: &Drawing) -> String {
    let layout = Layout::new(drawing);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" \
         viewBox=\"0 0 {w:.0} {h:.0}\" font-family=\"Helvetica, Arial, sans-serif\" role=\"img\" \
         aria-label=\"{}\">",
        escape(&drawing.title),
        w = layout.width,
        h = layout.height
    );
    out.push_str(
        "  <defs><marker id=\"head\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 1 L9 5 L0 9 z\" fill=\"#57606a\"/></marker>\
         </defs>\n",
    );
    out.push_str("  <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    let _ = writeln!(
        out,
        "  <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"15\" \
         font-weight=\"bold\" fill=\"#1f2328\">{}</text>",
        layout.width / 2.0,
        MARGIN + 8.0,
        escape(&drawing.title)
    );
    for (arrow, points) in drawing.arrows.iter().zip(&layout.lines) {
        draw_line(&mut out, arrow, points);
    }
    for slot in &layout.slots {
        if let Some(b) = slot.shown {
            draw_box(&mut out, slot, &drawing.boxes[b]);
        }
    }
    // Labels last: nothing may cross them.
    draw_labels(&mut out, &layout, drawing);
    out.push_str("</svg>\n");
    out
}

impl Layout {
    fn new(drawing: &Drawing) -> Self {
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
        // The result stands below everything, also below modules that nobody reads.
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
            slot.x += MARGIN + LABEL_WIDTH * 6.0 - min;
        }
        self.width = max - min + 2.0 * (MARGIN + LABEL_WIDTH * 6.0);
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

    fn bottom(&self) -> f64 {
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

fn draw_box(out: &mut String, slot: &Slot, b: &Box) {
    let (fill, stroke, radius) = match b.kind {
        Kind::Module => ("#ddf4ff", "#0969da", 9.0),
        Kind::Source | Kind::Result => ("#f6f8fa", "#57606a", slot.height / 2.0),
    };
    let _ = writeln!(
        out,
        "  <rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{radius:.1}\" \
         fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.4\"/>",
        slot.x - slot.width / 2.0,
        slot.y,
        slot.width,
        slot.height
    );
    let mut y = slot.y + PADDING + 9.0;
    let mut line = |text: &str, style: &str| {
        let (x, text) = (slot.x, escape(text));
        let _ = writeln!(
            out,
            "  <text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" {style}>{text}</text>"
        );
        y += LINE_HEIGHT;
    };
    line(
        &b.name,
        "font-size=\"14\" font-weight=\"bold\" fill=\"#1f2328\"",
    );
    for text in &b.lines {
        line(text, "font-size=\"12\" fill=\"#424a53\"");
    }
}

fn draw_line(out: &mut String, arrow: &Arrow, points: &[Point]) {
    let mut path = format!("M{:.1} {:.1}", points[0].0, points[0].1);
    for (i, pair) in points.windows(2).enumerate() {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if i % 2 == 1 {
            let _ = write!(path, " L{x1:.1} {y1:.1}");
        } else {
            let middle = (y0 + y1) / 2.0;
            let _ = write!(
                path,
                " C{x0:.1} {middle:.1} {x1:.1} {middle:.1} {x1:.1} {y1:.1}"
            );
        }
    }
    let dash = if arrow.condition {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "  <path d=\"{path}\" fill=\"none\" stroke=\"#57606a\" stroke-width=\"1.3\"{dash} \
         marker-end=\"url(#head)\"/>"
    );
}

/// A rectangle by its centre.
#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Area {
    fn overlap(&self, other: &Area) -> f64 {
        let shared = |a: f64, a_len: f64, b: f64, b_len: f64| {
            let end = (a + a_len / 2.0).min(b + b_len / 2.0);
            (end - (a - a_len / 2.0).max(b - b_len / 2.0)).max(0.0)
        };
        shared(self.x, self.width, other.x, other.width)
            * shared(self.y, self.height, other.y, other.height)
    }
}

/// Draws the labels, each where its arrow leaves it the most room.
fn draw_labels(out: &mut String, layout: &Layout, drawing: &Drawing) {
    let mut taken: Vec<Area> = layout
        .slots
        .iter()
        .filter(|s| s.shown.is_some())
        .map(|s| Area {
            x: s.x,
            y: s.y + s.height / 2.0,
            width: s.width,
            height: s.height,
        })
        .collect();
    for (arrow, points) in drawing.arrows.iter().zip(&layout.lines) {
        let text = label_of(arrow);
        let width = text.chars().count() as f64 * LABEL_WIDTH + 6.0;
        // Best in the gap above the box that reads it, in the middle; then elsewhere on the way.
        let gaps = points.windows(2).rev().step_by(2).take(LABEL_GAPS);
        let places = gaps.flat_map(|gap| {
            LABEL_PLACES.map(|t| {
                let (x, y) = bezier(gap[0], gap[1], t);
                Area {
                    x,
                    y,
                    width,
                    height: LABEL_HEIGHT,
                }
            })
        });
        let mut best: Option<(f64, Area)> = None;
        for area in places {
            let covered: f64 = taken.iter().map(|other| area.overlap(other)).sum();
            if best.is_none_or(|(least, _)| covered < least) {
                best = Some((covered, area));
            }
        }
        if let Some((_, area)) = best {
            draw_label(out, area, &text);
            taken.push(area);
        }
    }
}

fn draw_label(out: &mut String, area: Area, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "  <rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#ffffff\" \
         fill-opacity=\"0.85\"/>",
        area.x - area.width / 2.0,
        area.y - area.height / 2.0,
        area.width,
        area.height
    );
    let _ = writeln!(
        out,
        "  <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\" \
         fill=\"#57606a\">{}</text>",
        area.x,
        area.y + 4.0,
        escape(text)
    );
}

/// The point at `t` of the curve that [`draw_line`] draws between two points.
fn bezier((x0, y0): Point, (x1, y1): Point, t: f64) -> Point {
    let middle = (y0 + y1) / 2.0;
    let u = 1.0 - t;
    let weigh = |a: f64, b: f64, c: f64, d: f64| {
        u * u * u * a + 3.0 * u * u * t * b + 3.0 * u * t * t * c + t * t * t * d
    };
    (weigh(x0, x0, x1, x1), weigh(y0, middle, middle, y1))
}

/// Text inside an element or an attribute. What XML cannot hold is left out.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}
