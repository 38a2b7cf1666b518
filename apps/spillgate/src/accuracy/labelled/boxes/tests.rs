use expect_test::{Expect, expect};

use super::*;

fn classes() -> Vec<String> {
    vec!["vehicle".to_owned(), "person".to_owned()]
}

/// The errors of a text as they are shown.
fn errors(text: &str, expected: &Expect) {
    let errors = parse(text, &classes()).expect_err("an error");
    let lines: Vec<String> = errors
        .iter()
        .map(|(line, error)| format!("{line}: {error}"))
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn labels_are_boxes_around_centers() {
    let text = "0 0.5 0.5 0.5 0.25\n\n  1\t0.1 0.2 0.2 0.4  \r\n";
    let objects = parse(text, &classes()).unwrap();
    let areas: Vec<(usize, Rect)> = objects.iter().map(|o| (o.class, o.area)).collect();
    assert_eq!(
        areas,
        [
            (0, Rect::new(0.25, 0.375, 0.75, 0.625)),
            (1, Rect::new(0.0, 0.0, 0.2, 0.4)),
        ]
    );
    assert!(parse("", &classes()).unwrap().is_empty());
}

#[test]
fn every_wrong_line_is_told() {
    errors(
        "0 0.5 0.5 0.5\n0 0.5 0.5 0.5 0.5\n0 0.1 0.1 0.2 0.1 0.2 0.2\n2 0.5 0.5 0.5 0.5\nvehicle 0.5 0.5 0.5 0.5\n-1 0.5 0.5 0.5 0.5\n",
        &expect![[r#"
            1: 4 fields; use five: class x_center y_center width height (outlines and key points are no boxes)
            3: 7 fields; use five: class x_center y_center width height (outlines and key points are no boxes)
            4: class "2" is none of the 2 of classes.txt; use its number there, 0 to 1
            5: class "vehicle" is none of the 2 of classes.txt; use its number there, 0 to 1
            6: class "-1" is none of the 2 of classes.txt; use its number there, 0 to 1"#]],
    );
    errors(
        "0 320 0.5 0.5 0.5\n0 0.5 -0.1 0.5 0.5\n0 0.5 0.5 NaN 0.5\n0 0.5 0.5 0.5 x\n0 0.5 0.5 0 0.5\n",
        &expect![[r#"
            1: x_center "320" is not from 0 to 1; use parts of the picture's sides, not pixels
            2: y_center "-0.1" is not from 0 to 1; use parts of the picture's sides, not pixels
            3: width "NaN" is not from 0 to 1; use parts of the picture's sides, not pixels
            4: height "x" is not from 0 to 1; use parts of the picture's sides, not pixels
            5: a box without area; width and height are above 0"#]],
    );
}

#[test]
fn classes_have_a_line_each() {
    let of = |text: &str| parse_classes(Path::new("d/classes.txt"), text);
    assert_eq!(of("vehicle\r\nperson\n\n").unwrap(), classes());
    let wrong = ["", "vehicle\n\nperson\n", "car\nbus\ncar\n"];
    let errors = wrong.map(|text| of(text).unwrap_err().to_string());
    expect![[r#"
        d/classes.txt: no class names in it; write one a line, in the order of their numbers
        d/classes.txt:2: an empty line; name a class on each, since its number is that of the line
        d/classes.txt:3: "car" is already on line 1"#]]
    .assert_eq(&errors.join("\n"));
}
