//! `model` where boxes are wired: what is cut out, one result a box, what is refused.

use super::*;

const BASE: &str =
    "op: model\nmodel: net.pt\ninputs: { image: $source.frame, boxes: $find.boxes }\noptions: ";

/// Each row says the mean of its picture and twice that.
fn means(input: &Tensor) -> Tensor {
    let n = input.shape[0] as usize;
    let rows = (0..n).flat_map(|i| {
        let row = input.row(i);
        let mean = row.iter().sum::<f32>() / row.len() as f32;
        [mean, 2.0 * mean]
    });
    Tensor::new(vec![n as i64, 2, 1], rows.collect())
}

fn ops(fake: &Fake, labels: &[&str], options: &str) -> Result<Box<dyn Operator>, OperatorError> {
    build(fake, &Folder::new(labels), &format!("{BASE}{options}"))
}

/// A picture that is white from column 32 on.
fn half_white() -> Value {
    let row = [[0u8; 96], [255; 96]].concat();
    let rgb = Bytes::from(row.repeat(64));
    Value::Image(Arc::new(Image {
        width: 64,
        height: 64,
        rgb,
    }))
}

fn boxes(boxes: Vec<Detection>) -> Option<Value> {
    Some(Value::Boxes(Arc::from(boxes)))
}

#[test]
fn each_box_is_cut_out_and_has_its_row() {
    let fake = Fake::new(means);
    let mut module = ops(&fake, &[], "{ size: [8, 16], layout: nhwc, scale: 1 }").expect("builds");
    let batch = [
        vec![
            Some(half_white()),
            boxes(vec![
                a_box(0.0, 0.0, 24.0, 64.0, 0.9),
                // Without an area: not looked at.
                a_box(5.0, 5.0, 5.0, 9.0, 0.9),
                a_box(40.0, 0.0, 64.0, 64.0, 0.9),
            ]),
        ],
        vec![Some(half_white()), boxes(vec![])],
        vec![None, boxes(vec![])],
        // The module that finds boxes was skipped.
        vec![Some(half_white()), None],
    ];
    let results = module.run(0, &batch);
    assert_eq!(fake.shapes(), [vec![2, 16, 8, 3]], "one forward for all");
    let tensors: Vec<Option<Tensor>> = results
        .into_iter()
        .map(|result| match &result.ok()?[0] {
            Value::Tensor(tensor) => Some(Tensor::clone(tensor)),
            other => panic!("{other:?}"),
        })
        .collect();
    let rows = Tensor {
        left_out: vec![1],
        ..Tensor::new(vec![3, 2, 1], vec![0.0, 0.0, 0.0, 0.0, 255.0, 510.0])
    };
    let empty = Tensor::new(vec![0, 2, 1], vec![]);
    assert_eq!(
        tensors,
        [Some(rows), Some(empty.clone()), None, Some(empty)]
    );
}

#[test]
fn a_region_of_the_box_is_looked_at() {
    let fake = Fake::new(means);
    let options = "{ size: [8, 8], scale: 1, region: [0.75, 0, 1, 1] }";
    let mut module = ops(&fake, &[], options).expect("builds");
    let all = boxes(vec![a_box(0.0, 0.0, 64.0, 64.0, 0.9)]);
    one(module.run(0, &[vec![Some(half_white()), all]])).expect("runs");
    let inputs = fake.inputs.lock().unwrap();
    assert!(inputs[0].data.iter().all(|v| (v - 255.0).abs() < 0.1));
}

#[test]
fn rows_are_one_a_box_up_to_the_bound() {
    let fake = Fake::new(scores);
    let options = "{ mean: [1, 1, 1], std: [2, 2, 2] }";
    let mut module = ops(&fake, &[], options).expect("builds");
    // The pipeline's bound is 4 objects, the best of them.
    let inputs = vec![Some(picture(64, 64)), Some(some_boxes(5))];
    let outputs = one(module.run(0, &[inputs])).expect("runs");
    let row = [0.1, 0.7, 0.2];
    let rows = [[0.0; 3], row, row, row, row].concat();
    let expected = Tensor {
        left_out: vec![0],
        ..Tensor::new(vec![5, 3], rows)
    };
    assert_eq!(outputs[0], Value::Tensor(Arc::new(expected)));
    assert_eq!(fake.shapes(), [vec![4, 3, 224, 224]]);
    // 0.2 of white, less the mean, by the deviation.
    assert!((fake.inputs.lock().unwrap()[0].data[0] + 0.4).abs() < 1e-5);
    let example = module.example(3);
    one(module.run(0, &[example])).expect("runs");
    assert_eq!(fake.shapes()[1][0], 3);
}

#[test]
fn what_has_no_meaning_for_boxes_is_refused_with_what_would_have() {
    let fake = Fake::new(means);
    for (options, says) in [
        (
            "{ fit: letterbox }",
            "options.fit: what is cut out of boxes is stretched",
        ),
        ("{ region: [1, 0, 0, 1] }", "has no area"),
    ] {
        let error = ops(&fake, &["a", "b"], options)
            .err()
            .expect(options)
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    let plain = "op: model\nmodel: net.pt\ninputs: { image: $source.frame }\noptions: { region: [0, 0, 1, 0.5] }";
    let error = build(&fake, &Folder::new(&[]), plain)
        .err()
        .expect("no boxes")
        .to_string();
    assert!(
        error.contains("options.region: it is of boxes; wire them"),
        "{error}"
    );
    let one_row = Fake::new(|_| Tensor::new(vec![1, 2], vec![0.0; 2]));
    let mut module = ops(&one_row, &[], "{}").expect("builds");
    let inputs = vec![Some(picture(64, 64)), Some(some_boxes(2))];
    let error = one(module.run(0, &[inputs]))
        .expect_err("one row for two boxes")
        .to_string();
    assert_eq!(
        error,
        "net.pt: expected an output of shape [2, ...] (one row a box), got [1, 2]"
    );
}

#[test]
fn a_picture_is_prepared_as_the_options_say() {
    let folder = Folder::new(&[]);
    let base = "op: model\nmodel: net.pt\ninputs: { image: $source.frame }\noptions: ";
    let fake = Fake::new(scores);
    let options =
        "{ size: [16, 8], layout: nhwc, color: bgr, scale: 1, mean: [50, 50, 50], std: [2, 4, 1] }";
    let mut module = build(&fake, &folder, &format!("{base}{options}")).expect("builds");
    let outputs = one(module.run(0, &[vec![Some(picture(64, 64))]])).expect("runs");
    assert_eq!(fake.shapes(), [vec![1, 8, 16, 3]]);
    for (got, right) in fake.inputs.lock().unwrap()[0]
        .data
        .iter()
        .zip([0.5, 0.25, 1.0])
    {
        assert!((got - right).abs() < 1e-4, "{got} is not {right}");
    }
    let expected = Tensor::new(vec![3], vec![0.1, 0.7, 0.2]);
    assert_eq!(outputs, [Value::Tensor(Arc::new(expected))]);
}
