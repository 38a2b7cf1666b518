//! Line plots as SVG.

use std::fmt::Write;

use crate::axis::{COLOURS, GRID, number, scale};

/// One curve.
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Its points by rising x.
    pub points: Vec<(f64, f64)>,
}

const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
/// Right end of the axes. The legend stands beside them.
const RIGHT: f64 = 570.0;
/// Distance of the legend's names from the axes.
const LEGEND: f64 = 40.0;
/// Of a letter; few are wider, and readers have other fonts.
const LETTER_WIDTH: f64 = 7.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// A plot of curves; x and y axes start at the least x and at 0.
pub fn svg(title: &str, (x_label, y_label): (&str, &str), series: &[Series]) -> String {
    let points = || series.iter().flat_map(|s| s.points.iter());
    let (mut x_min, mut x_max, mut y_max) = (f64::MAX, f64::MIN, 0.0f64);
    for (x, y) in points() {
        (x_min, x_max, y_max) = (x_min.min(*x), x_max.max(*x), y_max.max(*y));
    }
    if x_min >= x_max {
        (x_min, x_max) = (x_min.min(0.0), x_min.max(0.0) + 1.0);
    }
    let (step, y_top) = scale(y_max, 5.0);
    let longest = series.iter().map(|s| s.label.chars().count()).max();
    let width = RIGHT + LEGEND + LETTER_WIDTH * longest.unwrap_or_default() as f64 + LEFT / 2.0;
    let to_x = |x: f64| LEFT + (x - x_min) / (x_max - x_min) * (RIGHT - LEFT);
    let to_y = |y: f64| HEIGHT - BOTTOM - y / y_top * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    let mut y = 0.0;
    while y <= y_top + step / 2.0 {
        let at = to_y(y);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{GRID}\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            RIGHT,
            LEFT - 6.0,
            at + 4.0,
            number(y)
        );
        y += step;
    }
    let mut marks: Vec<f64> = points().map(|p| p.0).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    for x in &marks {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            to_x(*x),
            HEIGHT - BOTTOM + 18.0,
            number(*x)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{x_label}</text>\n<text x=\"{LEFT}\" y=\"{}\">{y_label}</text>",
        (LEFT + RIGHT) / 2.0,
        HEIGHT - 12.0,
        TOP - 4.0
    );
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let dash = if i >= COLOURS.len() {
            " stroke-dasharray=\"5 3\""
        } else {
            ""
        };
        let path: Vec<String> = s
            .points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", to_x(*x), to_y(*y)))
            .collect();
        let at = TOP + 10.0 + 18.0 * i as f64;
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n\
             <line x1=\"{}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            path.join(" "),
            RIGHT + 12.0,
            RIGHT + 34.0,
            RIGHT + LEGEND,
            at + 4.0,
            s.label
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_curves_marks_and_names() {
        let series = [Series {
            label: "pard".to_owned(),
            points: vec![(0.5, 0.0), (1.0, 20.0)],
        }];
        let text = svg("Drops", ("load", "%"), &series);
        for part in [
            "Drops",
            ">pard<",
            ">0.5<",
            ">20<",
            "polyline",
            "60.0,370.0 570.0,40.0",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // The legend's names end inside the picture.
        assert!(text.contains("width=\"668\""), "{text}");
        assert!(svg("Nothing", ("x", "y"), &[]).ends_with("</svg>\n"));
    }
}
