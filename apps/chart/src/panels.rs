//! Panels one above another over one axis of time: what happened at the same moment stands below each other.

use std::fmt::Write;

use crate::axis::{COLOURS, GRID, escaped, number, scale};

/// How a curve's points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line; each value holds until the next point.
    Steps,
    /// The same, dashed.
    Dashes,
    /// A dot each.
    Dots,
    /// A cross each.
    Crosses,
}

/// A curve's colour. All differ in grey, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// For what is usual.
    Blue,
    /// For what is wrong.
    Vermilion,
    /// For a second usual thing.
    Green,
    /// For a bound.
    Black,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Blue => COLOURS[0],
            Colour::Vermilion => COLOURS[1],
            Colour::Green => COLOURS[2],
            Colour::Black => COLOURS[6],
        }
    }
}

/// One quantity.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// How it is drawn.
    pub shape: Shape,
    /// Its colour.
    pub colour: Colour,
    /// Time and value, by rising time.
    pub points: Vec<(f64, f64)>,
}

/// One panel. Its axis of values begins at 0.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What its axis shows, with the unit.
    pub label: String,
    /// The axis ends about there, and what is above it stands at its end; `None`: at the largest value.
    pub top: Option<f64>,
    /// Its curves.
    pub curves: Vec<Curve>,
}

const LEFT: f64 = 60.0;
/// Right end of the axes. Legends stand beside them.
const RIGHT: f64 = 780.0;
const WIDTH: f64 = 960.0;
const TOP: f64 = 62.0;
const PANEL: f64 = 130.0;
/// From a panel's end to the next one's begin: a label stands there.
const GAP: f64 = 34.0;
const BOTTOM: f64 = 50.0;
/// Half of a cross.
const CROSS: f64 = 3.5;
/// Marks on the axes, about.
const MARKS: (f64, f64) = (10.0, 4.0);

/// Panels over the time from 0 to `until`.
pub fn svg(title: &str, x_label: &str, until: f64, panels: &[Panel]) -> String {
    let until = until.max(1e-3);
    let (x_step, _) = scale(until, MARKS.0);
    let height = TOP + (PANEL + GAP) * panels.len() as f64 - GAP + BOTTOM;
    let title = escaped(title);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\" aria-label=\"{title}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
    for (idx, panel) in panels.iter().enumerate() {
        let area = Area::new(panel, until, TOP + (PANEL + GAP) * idx as f64);
        area.axes(&mut out, panel, x_step, idx + 1 == panels.len());
        for (n, curve) in panel.curves.iter().enumerate() {
            area.curve(&mut out, curve);
            area.legend(&mut out, curve, n);
        }
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n</svg>",
        f64::midpoint(LEFT, RIGHT),
        height - 12.0,
        escaped(x_label)
    );
    out
}

/// Where a panel is drawn.
struct Area {
    until: f64,
    /// Upper edge.
    from: f64,
    y_step: f64,
    y_top: f64,
}

impl Area {
    fn new(panel: &Panel, until: f64, from: f64) -> Self {
        let values = panel.curves.iter().flat_map(|c| c.points.iter());
        let most = values.map(|(_, value)| *value).fold(0.0, f64::max);
        let (y_step, y_top) = scale(panel.top.unwrap_or(most), MARKS.1);
        Area {
            until,
            from,
            y_step,
            y_top,
        }
    }

    fn x(&self, time: f64) -> f64 {
        LEFT + (time / self.until).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        self.from + PANEL - (value / self.y_top).clamp(0.0, 1.0) * PANEL
    }

    fn axes(&self, out: &mut String, panel: &Panel, x_step: f64, is_last: bool) {
        let bottom = self.from + PANEL;
        let mut value = 0.0;
        while value <= self.y_top + self.y_step / 2.0 {
            let at = self.y(value);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT},{at:.1}H{RIGHT}\" stroke=\"{GRID}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                number(value)
            );
            value += self.y_step;
        }
        let mut time = 0.0;
        while time <= self.until + x_step * 1e-6 {
            let at = self.x(time);
            let _ = writeln!(
                out,
                "<path d=\"M{at:.1},{}V{bottom}\" stroke=\"{GRID}\"/>",
                self.from
            );
            if is_last {
                let _ = writeln!(
                    out,
                    "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    bottom + 18.0,
                    number(time)
                );
            }
            time += x_step;
        }
        let label = escaped(&panel.label);
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{}\">{label}</text>",
            self.from - 8.0
        );
    }

    fn curve(&self, out: &mut String, curve: &Curve) {
        let mut path = String::new();
        let mut last = None;
        for (time, value) in &curve.points {
            let (x, y) = (self.x(*time), (self.y(*value) * 10.0).round() / 10.0);
            let _ = match (curve.shape, last) {
                (Shape::Dots, _) => write!(path, "M{x:.1},{y:.1}h0"),
                (Shape::Crosses, _) => {
                    let (left, up, whole) = (x - CROSS, y - CROSS, 2.0 * CROSS);
                    write!(
                        path,
                        "M{left:.1},{up:.1}l{whole},{whole}m0,-{whole}l-{whole},{whole}"
                    )
                }
                (_, None) => write!(path, "M{x:.1},{y:.1}"),
                // A value that stays needs no point.
                (_, Some(before)) if before == y => Ok(()),
                (_, Some(_)) => write!(path, "H{x:.1}V{y:.1}"),
            };
            last = Some(y);
        }
        if path.is_empty() {
            return;
        }
        if let (Shape::Steps | Shape::Dashes, Some((time, _))) = (curve.shape, curve.points.last())
        {
            let _ = write!(path, "H{:.1}", self.x(*time));
        }
        stroke(out, &path, curve);
    }

    /// A name beside the panel, behind an example of the curve.
    fn legend(&self, out: &mut String, curve: &Curve, n: usize) {
        let at = self.from + 10.0 + 18.0 * n as f64;
        let (from, to) = (RIGHT + 14.0, RIGHT + 34.0);
        let middle = f64::midpoint(from, to);
        let path = match curve.shape {
            Shape::Steps | Shape::Dashes => format!("M{from},{at}H{to}"),
            Shape::Dots => format!("M{middle},{at}h0"),
            Shape::Crosses => {
                let (left, up, whole) = (middle - CROSS, at - CROSS, 2.0 * CROSS);
                format!("M{left},{up}l{whole},{whole}m0,-{whole}l-{whole},{whole}")
            }
        };
        stroke(out, &path, curve);
        let label = escaped(&curve.label);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\">{label}</text>",
            to + 6.0,
            at + 4.0
        );
    }
}

fn stroke(out: &mut String, path: &str, curve: &Curve) {
    let style = match curve.shape {
        Shape::Steps => "stroke-width=\"1.5\"",
        Shape::Dashes => "stroke-width=\"1.5\" stroke-dasharray=\"6 4\"",
        Shape::Dots => "stroke-width=\"3\" stroke-linecap=\"round\"",
        Shape::Crosses => "stroke-width=\"1.5\"",
    };
    let colour = curve.colour.code();
    let _ = writeln!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" {style}/>"
    );
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn curve(label: &str, shape: Shape, points: &[(f64, f64)]) -> Curve {
        Curve {
            label: label.to_owned(),
            shape,
            colour: Colour::Blue,
            points: points.to_vec(),
        }
    }

    #[test]
    fn every_shape_is_drawn_where_its_values_are() {
        let panels = [
            Panel {
                label: "bandwidth, Mbit/s".to_owned(),
                top: None,
                curves: vec![curve(
                    "link",
                    Shape::Steps,
                    &[(0.0, 2.0), (2.0, 2.0), (5.0, 4.0), (10.0, 1.0)],
                )],
            },
            Panel {
                label: "latency, ms".to_owned(),
                top: Some(200.0),
                curves: vec![
                    curve("in time", Shape::Dots, &[(1.0, 50.0), (2.0, 100.0)]),
                    curve("missed", Shape::Crosses, &[(10.0, 1e9)]),
                    curve("SLO", Shape::Dashes, &[(0.0, 100.0), (10.0, 100.0)]),
                ],
            },
        ];
        let text = svg("A & B", "time, s", 10.0, &panels);
        // Grids have a colour of their own.
        let drawn: Vec<&str> = text
            .lines()
            .filter(|line| !line.contains("#ddd") && line.contains("<path"))
            .collect();
        expect![[r##"
            <path d="M60.0,127.0H420.0V62.0H780.0V159.5H780.0" fill="none" stroke="#0072b2" stroke-width="1.5"/>
            <path d="M794,72H814" fill="none" stroke="#0072b2" stroke-width="1.5"/>
            <path d="M132.0,323.5h0M204.0,291.0h0" fill="none" stroke="#0072b2" stroke-width="3" stroke-linecap="round"/>
            <path d="M804,236h0" fill="none" stroke="#0072b2" stroke-width="3" stroke-linecap="round"/>
            <path d="M776.5,222.5l7,7m0,-7l-7,7" fill="none" stroke="#0072b2" stroke-width="1.5"/>
            <path d="M800.5,250.5l7,7m0,-7l-7,7" fill="none" stroke="#0072b2" stroke-width="1.5"/>
            <path d="M60.0,291.0H780.0" fill="none" stroke="#0072b2" stroke-width="1.5" stroke-dasharray="6 4"/>
            <path d="M794,272H814" fill="none" stroke="#0072b2" stroke-width="1.5" stroke-dasharray="6 4"/>"##]].assert_eq(&drawn.join("\n"));
        for part in [
            ">A &amp; B<",
            ">bandwidth, Mbit/s<",
            ">latency, ms<",
            ">time, s<",
            ">in time<",
            ">missed<",
            ">SLO<",
            // The ends of the three axes.
            ">4<",
            ">200<",
            ">10<",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // All elements are closed.
        assert_eq!(text.matches('<').count(), text.matches('>').count());
        assert_eq!(
            text.matches("<text").count(),
            text.matches("</text>").count()
        );
    }

    #[test]
    fn nothing_is_a_picture_as_well() {
        let empty = Panel {
            label: "x".to_owned(),
            top: None,
            curves: vec![curve("none", Shape::Steps, &[])],
        };
        let text = svg("Nothing", "time, s", 0.0, &[empty]);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(text.ends_with("</svg>\n"));
    }
}
