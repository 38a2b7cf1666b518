//! Outputs that are put together.

use super::*;

fn boxes(label: &str, n: usize) -> pb::Value {
    let area = pb::Box {
        x1: 9.0,
        y1: 9.0,
        label: label.into(),
        ..Default::default()
    };
    pb::Value {
        value: Some(Value::Boxes(pb::BoxList {
            boxes: vec![area; n],
        })),
    }
}

fn texts(texts: &[&str]) -> pb::Value {
    let texts = texts
        .iter()
        .map(|t| pb::Text {
            text: (*t).into(),
            score: 1.0,
            ..Default::default()
        })
        .collect();
    pb::Value {
        value: Some(Value::Texts(pb::TextList {
            texts,
            objects: String::new(),
        })),
    }
}

fn labels(labels: &[&str]) -> pb::Value {
    let labels = labels
        .iter()
        .map(|l| pb::Label {
            label: (*l).into(),
            score: 1.0,
            ..Default::default()
        })
        .collect();
    pb::Value {
        value: Some(Value::Labels(pb::LabelList {
            labels,
            objects: String::new(),
        })),
    }
}

#[test]
fn texts_go_to_vehicles_and_labels_to_people_when_lengths_are_equal() {
    let outputs = HashMap::from([
        ("people".to_owned(), boxes("person", 2)),
        ("vehicles".to_owned(), boxes("vehicle", 2)),
        ("plates".to_owned(), texts(&["AB12", ""])),
        ("names".to_owned(), labels(&["ada", "bob"])),
    ]);
    let findings = Shown::from_outputs(&outputs).findings();
    assert_eq!(findings.plates, ["AB12", ""]);
    assert_eq!(findings.faces, ["ada", "bob"]);
    assert_eq!((findings.vehicles.len(), findings.people.len()), (2, 2));
}

#[test]
fn what_says_which_box_it_belongs_to_is_shown_there() {
    // Three boxes each, so that lengths say nothing; two labels for one box, none for another.
    let label = |label: &str, object| pb::Label {
        label: label.into(),
        score: 1.0,
        object: Some(object),
        ..Default::default()
    };
    let list = pb::LabelList {
        labels: vec![label("van", 2), label("lorry", 2), label("bus", 0)],
        objects: "right".into(),
    };
    let kinds = pb::Value {
        value: Some(Value::Labels(list)),
    };
    let mut outputs = HashMap::from([
        ("left".to_owned(), boxes("person", 3)),
        ("right".to_owned(), boxes("vehicle", 3)),
        ("kinds".to_owned(), kinds),
    ]);
    let captions = |shown: &Shown, name: &str| -> Vec<String> {
        let group = shown.groups.iter().find(|g| g.name == name).unwrap();
        group.found.iter().map(|f| f.captions.join("/")).collect()
    };
    let shown = Shown::from_outputs(&outputs);
    assert_eq!(captions(&shown, "right"), ["bus", "", "van/lorry"]);
    assert_eq!(captions(&shown, "left"), ["", "", ""]);
    // An index that no box has: no panic, and the lengths decide.
    outputs.insert("right".to_owned(), boxes("vehicle", 1));
    let shown = Shown::from_outputs(&outputs);
    assert_eq!(captions(&shown, "left"), ["van", "lorry", "bus"]);
}

#[test]
fn one_output_of_both_classes_is_parted() {
    let Some(Value::Boxes(mut both)) = boxes("vehicle", 3).value else {
        unreachable!()
    };
    both.boxes[1].label = "person".into();
    let value = pb::Value {
        value: Some(Value::Boxes(both)),
    };
    let findings = Shown::from_outputs(&HashMap::from([("all".to_owned(), value)])).findings();
    assert_eq!((findings.vehicles.len(), findings.people.len()), (2, 1));
}

#[test]
fn what_fits_no_boxes_is_a_note() {
    let outputs = HashMap::from([("class".to_owned(), labels(&["cat"]))]);
    let shown = Shown::from_outputs(&outputs);
    assert_eq!(shown.notes, ["class: cat"]);
    assert_eq!(shown.findings(), Findings::default());
}

/// A value with the objects that it belongs to.
fn value(value: Value) -> pb::Value {
    pb::Value { value: Some(value) }
}

fn captions<'a>(shown: &'a Shown, name: &str) -> Vec<Vec<&'a str>> {
    let group = shown.groups.iter().find(|g| g.name == name).unwrap();
    let found = group.found.iter();
    found
        .map(|f| f.captions.iter().map(String::as_str).collect())
        .collect()
}

#[test]
fn boxes_that_were_not_looked_at_say_so_once_an_output() {
    let label = |label: &str, object, left_out: pb::LeftOut| pb::Label {
        label: label.into(),
        object: Some(object),
        left_out: left_out.into(),
        ..Default::default()
    };
    use pb::LeftOut::{NoArea, None as Seen, OverLimit};
    // Two labels a box.
    let labels = vec![
        label("ada", 0, Seen),
        label("bob", 0, Seen),
        label("unknown", 1, OverLimit),
        label("unknown", 1, OverLimit),
        label("unknown", 2, NoArea),
        label("unknown", 2, NoArea),
    ];
    let names = Value::Labels(pb::LabelList {
        labels,
        objects: "people".into(),
    });
    let embedding = |object, left_out: pb::LeftOut| pb::Embedding {
        object: Some(object),
        left_out: left_out.into(),
        ..Default::default()
    };
    let looks = |objects: &str| {
        Value::Embeddings(pb::EmbeddingList {
            embeddings: vec![embedding(0, Seen), embedding(1, OverLimit)],
            objects: objects.into(),
        })
    };
    let rows = Value::Tensor(pb::Tensor {
        left_out: vec![2],
        objects: "people".into(),
        ..Default::default()
    });
    let mut outputs = HashMap::from([
        ("people".to_owned(), boxes("person", 3)),
        ("names".to_owned(), value(names)),
        ("looks".to_owned(), value(looks("people"))),
        ("rows".to_owned(), value(rows)),
    ]);
    let shown = Shown::from_outputs(&outputs);
    assert_eq!(
        captions(&shown, "people"),
        [
            vec!["ada", "bob"],
            vec![
                "looks: not looked at: over the bound of objects",
                "names: not looked at: over the bound of objects"
            ],
            vec!["names: not looked at: no area", "rows: not looked at"],
        ]
    );
    // What is compared with the truth are the server's labels.
    assert_eq!(shown.findings().faces, ["ada", "unknown", "unknown"]);
    assert!(shown.notes.is_empty());

    outputs.insert("looks".to_owned(), value(looks("")));
    let shown = Shown::from_outputs(&outputs);
    assert_eq!(shown.notes, ["looks: 1 objects not looked at"]);
}

#[test]
fn texts_that_name_no_box_say_what_was_not_looked_at_by_their_order() {
    let text = |text: &str, left_out: pb::LeftOut| pb::Text {
        text: text.into(),
        left_out: left_out.into(),
        ..Default::default()
    };
    let texts = vec![
        text("AB12", pb::LeftOut::None),
        text("", pb::LeftOut::OverLimit),
    ];
    let plates = Value::Texts(pb::TextList {
        texts,
        objects: String::new(),
    });
    let mut outputs = HashMap::from([
        ("cars".to_owned(), boxes("vehicle", 2)),
        ("plates".to_owned(), value(plates)),
    ]);
    let told = "plates: not looked at: over the bound of objects";
    let shown = Shown::from_outputs(&outputs);
    assert_eq!(captions(&shown, "cars"), [vec!["AB12"], vec![told]]);
    assert_eq!(shown.findings().plates, ["AB12", ""]);
    outputs.remove("cars");
    let notes = Shown::from_outputs(&outputs).notes;
    assert_eq!(notes, [format!("plates: AB12, {told}")]);
}

#[test]
fn masks_and_key_points_are_of_the_group_that_they_name() {
    let masks = |objects: &str| {
        let polygon = pb::Polygon {
            points: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
        };
        let mask = pb::Mask {
            polygons: vec![polygon],
            object: Some(0),
        };
        value(Value::Masks(pb::MaskList {
            masks: vec![mask],
            objects: objects.into(),
        }))
    };
    let keypoints = pb::Keypoints {
        points: vec![1.0, 2.0, 3.0, 4.0],
        scores: vec![0.25],
        object: Some(0),
    };
    let keypoints = value(Value::Keypoints(pb::KeypointList {
        keypoints: vec![keypoints],
        objects: "gone".into(),
    }));
    let outputs = HashMap::from([
        ("a".to_owned(), boxes("vehicle", 1)),
        ("b".to_owned(), boxes("person", 1)),
        ("m0".to_owned(), masks("b")),
        ("m1".to_owned(), masks("")),
        ("points".to_owned(), keypoints),
    ]);
    let shapes = Shown::from_outputs(&outputs).shapes;
    // A number without its row, and a point without a score, are left out.
    let outline = |group| Shape {
        group,
        outlines: vec![vec![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]],
        points: Vec::new(),
    };
    let points = Shape {
        group: None,
        outlines: Vec::new(),
        points: vec![[1.0, 2.0, 0.25]],
    };
    assert_eq!(shapes, [outline(Some(1)), outline(Some(0)), points]);
}
