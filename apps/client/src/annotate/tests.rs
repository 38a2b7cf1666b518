//! Pixels of an annotated picture: boxes where they belong, letters inside their captions, nothing elsewhere.

use std::collections::HashMap;

use spillgate_proto::pb::value::Value;

use super::*;

fn result(area: pb::Box) -> pb::Result {
    let boxes = pb::Value {
        value: Some(Value::Boxes(pb::BoxList { boxes: vec![area] })),
    };
    let texts = vec![pb::Text {
        text: "AB12".into(),
        score: 0.9,
        object: Some(0),
    }];
    let texts = pb::Value {
        value: Some(Value::Texts(pb::TextList {
            texts,
            objects: "vehicles".into(),
        })),
    };
    pb::Result {
        number: 3,
        outcome: Outcome::Completed.into(),
        outputs: HashMap::from([("vehicles".to_owned(), boxes), ("plates".to_owned(), texts)]),
        ..Default::default()
    }
}

fn area(x0: f32, y0: f32, x1: f32, y1: f32) -> pb::Box {
    pb::Box {
        x0,
        y0,
        x1,
        y1,
        label: "vehicle".into(),
        score: 0.9,
    }
}

#[test]
fn a_box_has_its_lines_and_nothing_inside() {
    let grey = Rgb([90; 3]);
    let mut picture = RgbImage::from_pixel(320, 200, grey);
    annotate(
        &mut picture,
        &result(area(100.0, 80.0, 180.0, 140.0)),
        Duration::from_millis(25),
    );
    for corner in [(100, 80), (179, 80), (100, 139), (179, 139)] {
        assert_eq!(
            *picture.get_pixel(corner.0, corner.1),
            COLOURS[0],
            "{corner:?}"
        );
    }
    assert_eq!(
        *picture.get_pixel(140, 110),
        grey,
        "the middle is left alone"
    );
    assert_eq!(*picture.get_pixel(300, 180), grey);
}

#[test]
fn the_plate_is_written_above_its_box() {
    let mut picture = RgbImage::from_pixel(320, 200, Rgb([90; 3]));
    annotate(
        &mut picture,
        &result(area(100.0, 80.0, 180.0, 140.0)),
        Duration::from_millis(25),
    );
    let caption = |letters: &str| {
        let mut expected = RgbImage::from_pixel(320, 200, Rgb([90; 3]));
        let pen = Pen::for_picture(&expected);
        pen.text(&mut expected, 100, 64, letters, INK, COLOURS[0]);
        let crop = |p: &RgbImage| image::imageops::crop_imm(p, 100, 64, 36, 16).to_image();
        crop(&expected) == crop(&picture)
    };
    assert!(caption("AB12"));
    assert!(!caption("AB13"), "the comparison sees one letter");
}

#[test]
fn boxes_outside_and_broken_ones_are_cut() {
    let mut picture = RgbImage::new(64, 64);
    for (x0, y0, x1, y1) in [
        (-50.0, -50.0, 500.0, 500.0),
        (60.0, 60.0, 10.0, 10.0),
        (f32::NAN, 0.0, f32::INFINITY, 1e30),
    ] {
        annotate(&mut picture, &result(area(x0, y0, x1, y1)), Duration::ZERO);
    }
}

#[test]
fn a_drop_is_written_in_the_first_line() {
    let mut picture = RgbImage::new(320, 200);
    let dropped = pb::Result {
        outcome: Outcome::Dropped.into(),
        module: "detect".into(),
        reason: "estimate".into(),
        ..Default::default()
    };
    let (text, colour) = headline(&dropped, Duration::ZERO, &[]);
    assert_eq!(
        (text.as_str(), colour),
        ("#0 dropped at detect: estimate", BAD)
    );
    annotate(&mut picture, &dropped, Duration::ZERO);
    assert!(picture.pixels().any(|p| *p == BAD));
}
