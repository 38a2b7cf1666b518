//! What all plots share: colours, and the numbers beside an axis.

/// Distinguishable in grey and by most colour-blind readers (Okabe and Ito).
pub(crate) const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];
/// Lines behind the curves.
pub(crate) const GRID: &str = "#ddd";

/// The next of 1, 2, 5 times a power of ten.
pub(crate) fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|f| f * power >= step);
    factor.unwrap_or(10.0) * power
}

/// The step between marks from 0 to at least `most`, about that many of them, and the last mark.
pub(crate) fn scale(most: f64, marks: f64) -> (f64, f64) {
    let most = most.max(1e-9);
    let step = nice(most / marks);
    (step, (most / step).ceil() * step)
}

/// As few digits as say it.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text as XML may have it.
pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_hold_all() {
        assert_eq!((nice(0.03), nice(3.0), nice(20.0)), (0.05, 5.0, 20.0));
        assert_eq!(scale(20.0, 5.0), (5.0, 20.0));
        assert_eq!(scale(21.0, 5.0), (5.0, 25.0));
        assert!(scale(0.0, 5.0).1 > 0.0);
        assert_eq!(
            (number(2.50), number(40.0)),
            ("2.5".to_owned(), "40".to_owned())
        );
        assert_eq!(escaped("a < b & c"), "a &lt; b &amp; c");
    }
}
