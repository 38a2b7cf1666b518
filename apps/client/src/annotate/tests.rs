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
        ..Default::default()
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

/// A result with one mask of these outlines, or one set of these key points.
fn result_of(value: Value) -> pb::Result {
    let value = pb::Value { value: Some(value) };
    pb::Result {
        outcome: Outcome::Completed.into(),
        outputs: HashMap::from([("shapes".to_owned(), value)]),
        ..Default::default()
    }
}

fn mask(outlines: &[&[f32]]) -> pb::Result {
    let polygons = outlines.iter().map(|points| pb::Polygon {
        points: points.to_vec(),
    });
    let mask = pb::Mask {
        polygons: polygons.collect(),
        object: None,
    };
    result_of(Value::Masks(pb::MaskList {
        masks: vec![mask],
        objects: String::new(),
    }))
}

#[test]
fn a_mask_is_an_outline_with_a_tint_inside() {
    let grey = Rgb([90; 3]);
    let mut picture = RgbImage::from_pixel(320, 200, grey);
    // A triangle, and a square apart from it.
    let triangle: &[f32] = &[100.0, 50.0, 180.0, 130.0, 100.0, 130.0];
    let square: &[f32] = &[220.0, 100.0, 260.0, 100.0, 260.0, 140.0, 220.0, 140.0];
    annotate(&mut picture, &mask(&[triangle, square]), Duration::ZERO);
    let colour = COLOURS[COLOURS.len() - 1];
    let mut tinted = RgbImage::from_pixel(1, 1, grey);
    blend(&mut tinted, (0, 0), colour, 70);
    let tinted = *tinted.get_pixel(0, 0);
    assert!(tinted != grey && tinted != colour);
    for (x, y, expected) in [
        (100, 90, colour),
        (140, 90, colour),
        (140, 130, colour),
        (120, 110, tinted),
        (160, 80, grey),
        (90, 90, grey),
        (240, 120, tinted),
        (260, 120, colour),
        (200, 120, grey),
    ] {
        assert_eq!(*picture.get_pixel(x, y), expected, "{x}, {y}");
    }
}

#[test]
fn a_key_point_is_a_dot_that_is_fainter_the_lower_its_score() {
    let grey = Rgb([90; 3]);
    let mut picture = RgbImage::from_pixel(320, 200, grey);
    let keypoints = pb::Keypoints {
        points: vec![50.0, 100.0, 150.0, 100.0, 250.0, 100.0],
        scores: vec![1.0, 0.5, 0.0],
        object: None,
    };
    let result = result_of(Value::Keypoints(pb::KeypointList {
        keypoints: vec![keypoints],
        objects: String::new(),
    }));
    annotate(&mut picture, &result, Duration::ZERO);
    let colour = COLOURS[COLOURS.len() - 1];
    let at = |x, y| *picture.get_pixel(x, y);
    assert_eq!((at(50, 100), at(54, 100)), (colour, colour));
    assert_eq!(at(54, 104), grey, "it is round");
    assert!(at(150, 100) != grey && at(150, 100) != colour);
    assert_eq!(at(250, 100), grey);
}

#[test]
fn outlines_far_outside_and_broken_ones_end_at_once() {
    let mut picture = RgbImage::new(64, 64);
    let far = f32::MAX;
    let outlines: [&[f32]; 5] = [
        &[-far, -far, far, far, far, -far],
        &[f32::NAN, 1.0, 5.0, f32::INFINITY, 9.0, 9.0],
        &[1e9, 1e9, 2e9, 1e9],
        &[5.0],
        &[],
    ];
    annotate(&mut picture, &mask(&outlines), Duration::ZERO);
    // The diagonal of the first is in the picture.
    assert_eq!(*picture.get_pixel(40, 40), COLOURS[COLOURS.len() - 1]);
    let keypoints = pb::Keypoints {
        points: vec![f32::NAN, 0.0, far, -far, 1.0, 1.0],
        scores: vec![1.0, 1.0, f32::NAN],
        object: None,
    };
    let keypoints = pb::KeypointList {
        keypoints: vec![keypoints],
        objects: String::new(),
    };
    let result = result_of(Value::Keypoints(keypoints));
    annotate(&mut picture, &result, Duration::ZERO);
}
