//! The picture in SVG: boxes, arrows and labels at the places of the [`Layout`].

use std::fmt::Write;

use super::layout::{LINE_HEIGHT, Layout, MARGIN, PADDING, Point, Slot};
use super::{Arrow, Box, Drawing, Kind, label_of};

const LABEL_WIDTH: f64 = 6.2;
const LABEL_HEIGHT: f64 = 14.0;
/// Number of an arrow's last gaps in which its label may stand: it belongs near the reader.
const LABEL_GAPS: usize = 3;
/// Positions on a curve at which a label may stand, the best one first.
const LABEL_PLACES: [f64; 7] = [0.5, 0.38, 0.62, 0.28, 0.72, 0.2, 0.8];

/// Draws a pipeline.
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
    // Labels come last, so that nothing crosses them.
    draw_labels(&mut out, &layout, drawing);
    out.push_str("</svg>\n");
    out
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

/// Draws the labels, each where there is most room on its arrow.
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
        // The best place is the middle of the gap above the reading box; then the other places of the arrow.
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

/// Text inside an element or an attribute. Characters that XML cannot hold are left out.
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
