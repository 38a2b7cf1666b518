//! What each type says of a box that it does not look at. The bound of the test's pipeline is four objects.

use spillgate_process::value::LeftOut::{self, NoArea, OverLimit};

use super::*;

/// A flat box, five with an area of which the first has the lowest score, and one that is nowhere.
fn seven() -> Option<Value> {
    let Value::Boxes(five) = some_boxes(5) else {
        unreachable!()
    };
    let mut all = vec![a_box(5.0, 5.0, 5.0, 9.0, 0.99)];
    all.extend(five.iter().cloned());
    all.push(a_box(0.0, f32::NAN, 9.0, 9.0, 0.99));
    Some(Value::Boxes(Arc::from(all)))
}

const WHY: [Option<LeftOut>; 7] = [
    Some(NoArea),
    Some(OverLimit),
    None,
    None,
    None,
    None,
    Some(NoArea),
];

/// What a type makes of the seven boxes.
fn outputs(lines: &str, labels: &[&str], answer: fn(&Tensor) -> Tensor) -> Outputs {
    let mut module = build(&Fake::new(answer), &Folder::new(labels), lines).expect("builds");
    one(module.run(0, &[vec![Some(picture(64, 64)), seven()]])).expect("runs")
}

fn of_labels(value: &Value) -> Vec<Option<LeftOut>> {
    let Value::Labels(labels) = value else {
        panic!("no labels: {value:?}")
    };
    for label in labels.iter().filter(|label| label.left_out.is_some()) {
        assert_eq!((&*label.label, label.score), ("unknown", 0.0));
    }
    labels.iter().map(|label| label.left_out).collect()
}

#[test]
fn a_text() {
    let outputs = outputs(READER, &[], ordinals);
    let Value::Texts(texts) = &outputs[0] else {
        panic!("{outputs:?}")
    };
    let told: Vec<_> = texts
        .iter()
        .map(|t| (t.text.as_str(), t.left_out))
        .collect();
    let letters = ["", "", "A", "B", "C", "D", ""];
    let expected: Vec<_> = letters.into_iter().zip(WHY).collect();
    assert_eq!(told, expected);
}

#[test]
fn each_label_of_a_class() {
    let lines = "op: classifier\nmodel: net.pt\n\
                 inputs: { image: $source.frame, boxes: $find.boxes }\noptions: { top: 2 }";
    let outputs = outputs(lines, &["day", "night", "fog"], scores);
    let twice: Vec<_> = WHY.into_iter().flat_map(|why| [why; 2]).collect();
    assert_eq!(of_labels(&outputs[0]), twice);
}

#[test]
fn a_face() {
    // All are below the confidence: unknown, and looked at.
    let outputs = outputs(FACES, &["day", "night", "fog"], scores);
    assert_eq!(of_labels(&outputs[0]), WHY);
}

#[test]
fn a_row_of_any_model() {
    let lines = "op: model\nmodel: net.pt\ninputs: { image: $source.frame, boxes: $find.boxes }";
    let rows = outputs(lines, &[], scores);
    let Value::Tensor(rows) = &rows[0] else {
        panic!("{rows:?}")
    };
    assert_eq!(rows.shape, [7, 3]);
    assert_eq!(rows.left_out, [0, 1, 6]);
    for (row, why) in WHY.iter().enumerate() {
        let is_zero = rows.row(row).iter().all(|v| *v == 0.0);
        assert_eq!(is_zero, why.is_some(), "{row}");
    }
}
