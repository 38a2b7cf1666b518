//! Models whose files say what they are: their module is a line of YAML.

use spillgate_backend::description::{Description, Port};
use spillgate_process::value::LeftOut;

use super::*;

/// A backend whose models say of themselves what the first of these is, and give the others for any input.
#[derive(Clone)]
struct Speaking {
    description: Description,
    outputs: Arc<dyn Fn(usize) -> Vec<Tensor> + Send + Sync>,
    inputs: Arc<Mutex<Vec<Tensor>>>,
}

impl Speaking {
    fn new(
        metadata: &[(&str, &str)],
        outputs: impl Fn(usize) -> Vec<Tensor> + Send + Sync + 'static,
    ) -> Self {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let input = Port {
            name: "images".to_owned(),
            kind: "float32",
            axes: Some(vec![None, Some(3), None, None]),
        };
        Speaking {
            description: Description {
                metadata: metadata.iter().map(text).collect(),
                inputs: vec![input],
                outputs: Vec::new(),
            },
            outputs: Arc::new(outputs),
            inputs: Arc::default(),
        }
    }
}

impl Backend for Speaking {
    fn device_kind(&self) -> &'static str {
        "emulated"
    }

    fn load(&mut self, _: &Path) -> Result<Box<dyn Model>, BackendError> {
        Ok(Box::new(self.clone()))
    }
}

impl Model for Speaking {
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.inputs.lock().unwrap().push(inputs[0].clone());
        Ok((self.outputs)(inputs[0].shape[0] as usize))
    }

    fn description(&self) -> &Description {
        &self.description
    }
}

const LINE: &str = "op: detector\nmodel: net.pt\ninputs: { image: $source.frame }";
const NAMES: (&str, &str) = ("names", "{0: 'boat', 1: 'ferry'}");

fn rows(shape: &[i64], rows: &[&[f32]]) -> Tensor {
    Tensor::new(shape.to_vec(), rows.concat())
}

fn refused(speaking: &Speaking, folder: &Folder, lines: &str) -> String {
    let built = build(speaking, folder, lines);
    built.err().expect("it is refused").to_string()
}

#[test]
fn an_export_of_ultralytics_needs_no_option() {
    let said = [
        NAMES,
        ("task", "detect"),
        ("head", "Detect"),
        ("imgsz", "[64, 128]"),
    ];
    let columns: [&[f32]; 6] = [&[64.0], &[32.0], &[32.0], &[16.0], &[0.1], &[0.9]];
    let speaking = Speaking::new(&said, move |_| vec![rows(&[1, 6, 1], &columns)]);
    let mut module = build(&speaking, &Folder::new(&[]), LINE).expect("builds");
    let outputs = one(module.run(0, &[vec![Some(picture(256, 128))]])).expect("runs");
    assert_eq!(speaking.inputs.lock().unwrap()[0].shape, [1, 3, 64, 128]);
    assert_eq!(found(&outputs[0]), [("ferry", [96.0, 48.0, 160.0, 80.0])]);
}

#[test]
fn masks_and_key_points_are_those_of_the_boxes_in_the_picture() {
    let said = [
        NAMES,
        ("task", "segment"),
        ("head", "Segment"),
        ("imgsz", "[32, 32]"),
    ];
    let segment = Speaking::new(&said, |_| {
        // A box in the middle whose one prototype is above 0 in the left half of the picture.
        let columns: [&[f32]; 7] = [&[16.0], &[16.0], &[16.0], &[8.0], &[0.9], &[0.1], &[1.0]];
        let half = [1.0f32, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0].repeat(8);
        vec![
            rows(&[1, 7, 1], &columns),
            Tensor::new(vec![1, 1, 8, 8], half),
        ]
    });
    let mut module = build(&segment, &Folder::new(&[]), LINE).expect("builds");
    let outputs = one(module.run(0, &[vec![Some(picture(64, 64))]])).expect("runs");
    assert_eq!(found(&outputs[0]), [("boat", [16.0, 24.0, 48.0, 40.0])]);
    let Value::Masks(masks) = &outputs[3] else {
        panic!("{outputs:?}")
    };
    let [mask] = &masks[..] else {
        panic!("{masks:?}")
    };
    let points = mask.polygons.concat();
    let side = |axis: usize, best: fn(f32, f32) -> f32| points.iter().map(|p| p[axis]).reduce(best);
    let sides = [
        side(0, f32::min),
        side(1, f32::min),
        side(0, f32::max),
        side(1, f32::max),
    ];
    assert_eq!(sides, [16.0, 24.0, 32.0, 40.0].map(Some));
    assert!(outputs[4].is_empty());

    let said = [
        ("names", "{0: 'person'}"),
        ("task", "pose"),
        ("kpt_shape", "[2, 3]"),
        ("imgsz", "[32, 32]"),
    ];
    let pose = Speaking::new(&said, |_| {
        let nan = f32::NAN;
        let columns: [&[f32]; 11] = [
            &[16.0],
            &[16.0],
            &[16.0],
            &[8.0],
            &[0.9],
            &[10.0],
            &[12.0],
            &[0.8],
            &[nan],
            &[1.0],
            &[0.5],
        ];
        vec![rows(&[1, 11, 1], &columns)]
    });
    let mut module = build(&pose, &Folder::new(&[]), LINE).expect("builds");
    let outputs = one(module.run(0, &[vec![Some(picture(64, 64))]])).expect("runs");
    let Value::Keypoints(all) = &outputs[4] else {
        panic!("{outputs:?}")
    };
    let points: Vec<_> = all[0].points.iter().map(|p| (p.x, p.y, p.score)).collect();
    assert_eq!(points, [(20.0, 24.0, 0.8), (0.0, 0.0, 0.0)]);
    assert!(outputs[3].is_empty());
}

#[test]
fn names_of_classes_are_looked_for_in_order() {
    let folder = Folder::new(&[]);
    let columns: [&[f32]; 6] = [&[16.0], &[16.0], &[8.0], &[8.0], &[0.1], &[0.9]];
    let speaking = |said: &[(&str, &str)]| {
        let columns = columns.map(<[f32]>::to_vec);
        let answer = move |_| {
            let all: Vec<&[f32]> = columns.iter().map(Vec::as_slice).collect();
            vec![rows(&[1, 6, 1], &all)]
        };
        Speaking::new(said, answer)
    };
    let size = ("imgsz", "[32, 32]");
    let label = |said: &[(&str, &str)], options: &str| {
        let lines = format!("{LINE}\noptions: {{ {options} }}");
        let mut module = build(&speaking(said), &folder, &lines).expect("builds");
        let outputs = one(module.run(0, &[vec![Some(picture(32, 32))]])).expect("runs");
        found(&outputs[0])[0].0.to_owned()
    };
    let error = refused(&speaking(&[size]), &folder, LINE);
    assert!(
        error.contains("net.labels") && error.contains("labels.txt"),
        "{error}"
    );
    std::fs::write(folder.0.join("labels.txt"), "a\nof the folder\n").unwrap();
    assert_eq!(label(&[size], ""), "of the folder");
    assert_eq!(label(&[size, NAMES], ""), "ferry");
    std::fs::write(folder.0.join("net.labels"), "a\nbeside\n").unwrap();
    assert_eq!(label(&[size, NAMES], ""), "beside");
    std::fs::write(folder.0.join("mine.txt"), "a\nmine\n").unwrap();
    assert_eq!(label(&[size, NAMES], "labels: mine.txt"), "mine");
}

#[test]
fn what_contradicts_the_file_or_is_missing_is_refused_by_name() {
    let folder = Folder::new(&[]);
    let none = |_| Vec::new();
    let sized = ("imgsz", "[32, 32]");
    for (said, options, right) in [
        (
            &[NAMES][..],
            "",
            "modules.m: net.pt does not say how large its input is; write it: options: { size: [640, 640] }",
        ),
        (
            &[sized, ("names", "{1: 'a'}")],
            "",
            "net.pt: its metadata has names: {1: 'a'}, which is not names of classes",
        ),
        (
            &[sized, NAMES, ("task", "classify")],
            "",
            "net.pt: its metadata has task: classify: it is a classifier; write op: classifier",
        ),
        (
            &[sized, NAMES, ("fit", "squeeze")],
            "",
            "its model's metadata has fit: \"squeeze\"",
        ),
        (
            &[sized, NAMES, ("color", "cmyk")],
            "",
            "its model's metadata has color: \"cmyk\"",
        ),
        (
            &[sized, NAMES, ("args", "{'nms': True}"), ("batch", "1")],
            "",
            "net.pt was exported with nms=True for a batch of 1",
        ),
        (
            &[sized, NAMES],
            "std: [1, 0, 1]",
            "options.std: [1.0, 0.0, 1.0] must be above 0",
        ),
        (&[sized, NAMES], "std: [1, 1e-44, 1]", "must be above 0"),
    ] {
        let lines = format!("{LINE}\nbatch: {{ max: 4 }}\noptions: {{ {options} }}");
        let error = refused(&Speaking::new(said, none), &folder, &lines);
        assert!(error.contains(right), "{error} lacks {right}");
    }
    let mut fixed = Speaking::new(&[NAMES], none);
    fixed.description.inputs[0].axes = Some([1, 3, 32, 32].map(Some).to_vec());
    let error = refused(
        &fixed,
        &folder,
        &format!("{LINE}\noptions: {{ size: [64, 64] }}"),
    );
    assert!(
        error.contains("options.size is 64x64, and net.pt takes 32x32 alone"),
        "{error}"
    );
}

#[test]
fn a_row_of_nan_is_no_class_and_an_infinite_score_the_best() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    let names = ("names", "['a', 'b', 'c']");
    let answer = move |n| {
        let all = [[nan; 3], [0.0, 1.0, infinity], [1.0, nan, 0.0]].concat();
        vec![Tensor::new(vec![n as i64, 3], all[..n * 3].to_vec())]
    };
    let speaking = Speaking::new(&[names], answer);
    let folder = Folder::new(&[]);
    let whole = "op: classifier\nmodel: net.pt\ninputs: { image: $source.frame }";
    let mut module = build(&speaking, &folder, whole).expect("builds");
    let batch = vec![vec![Some(picture(64, 64)), None]; 3];
    let outputs = module
        .run(0, &batch)
        .into_iter()
        .map(|r| r.expect("runs").remove(0));
    let outputs: Vec<Value> = outputs.collect();
    assert_eq!(labels_of(&outputs[0]), []);
    assert_eq!(labels_of(&outputs[1]), [("c", 1.0)]);
    assert_eq!(labels_of(&outputs[2])[0].0, "a");

    let boxed =
        "op: classifier\nmodel: net.pt\ninputs: { image: $source.frame, boxes: $find.boxes }";
    let mut module = build(&speaking, &folder, boxed).expect("builds");
    let outputs = one(module.run(0, &[vec![Some(picture(64, 64)), Some(some_boxes(2))]]));
    let outputs = outputs.expect("runs");
    let Value::Labels(labels) = &outputs[0] else {
        panic!("{outputs:?}")
    };
    assert_eq!(
        (&*labels[0].label, labels[0].left_out),
        ("unknown", Some(LeftOut::NoNumber))
    );
    assert_eq!((&*labels[1].label, labels[1].left_out), ("c", None));
}

#[test]
fn a_classifier_is_prepared_and_read_as_its_file_says() {
    let said = [
        ("names", "['a', 'b']"),
        ("task", "classify"),
        ("imgsz", "[8, 8]"),
        ("mean", "[0.2, 0.2, 0.2]"),
        ("std", "[0.5, 0.5, 0.5]"),
        ("fit", "crop"),
        ("head", "classes-sigmoid"),
    ];
    let speaking = Speaking::new(&said, |n| {
        vec![Tensor::new(vec![n as i64, 2], vec![0.0, 3.0])]
    });
    let lines = "op: classifier\nmodel: net.pt\ninputs: { image: $source.frame }\noptions: { top: 2, confidence: 0.6 }";
    let mut module = build(&speaking, &Folder::new(&[]), lines).expect("builds");
    let outputs = one(module.run(0, &[vec![Some(picture(64, 32)), None]])).expect("runs");
    // A half is below the least score.
    assert_eq!(
        labels_of(&outputs[0]),
        [("b", 1.0 / (1.0 + (-3.0f32).exp()))]
    );
    let inputs = speaking.inputs.lock().unwrap();
    assert_eq!(inputs[0].shape, [1, 3, 8, 8]);
    assert!(
        inputs[0].data.iter().all(|v| v.abs() < 1e-5),
        "the picture is all 0.2"
    );
}

#[test]
fn an_embedder_takes_the_output_that_is_a_vector() {
    let mut speaking = Speaking::new(&[("imgsz", "[8, 8]")], |n| {
        let hidden = Tensor::new(vec![n as i64, 2, 2], vec![9.0; n * 4]);
        let pooled = Tensor::new(vec![n as i64, 2], [3.0, 4.0].repeat(n));
        vec![hidden, pooled]
    });
    let port = |name: &str| Port {
        name: name.to_owned(),
        kind: "float32",
        axes: None,
    };
    speaking.description.outputs = vec![port("last_hidden_state"), port("pooler_output")];
    let folder = Folder::new(&[]);
    let base = "op: embedder\nmodel: net.pt\ninputs: { image: $source.frame, boxes: $find.boxes }\noptions: ";
    let mut module = build(&speaking, &folder, &format!("{base}{{}}")).expect("builds");
    let inputs = vec![Some(picture(64, 64)), Some(some_boxes(5))];
    let outputs = one(module.run(0, &[inputs])).expect("runs");
    let Value::Embeddings(all) = &outputs[0] else {
        panic!("{outputs:?}")
    };
    // The pipeline's bound is 4 objects, the best of them.
    assert_eq!(
        (all[0].values.len(), all[0].left_out),
        (0, Some(LeftOut::OverLimit))
    );
    assert!(
        all[1..]
            .iter()
            .all(|one| one.values == [0.6, 0.8] && one.left_out.is_none())
    );
    let mut module = build(
        &speaking,
        &folder,
        &format!("{base}{{ output: last_hidden_state }}"),
    )
    .expect("builds");
    let example = module.example(1);
    let outputs = one(module.run(0, &[example])).expect("runs");
    assert!(matches!(&outputs[0], Value::Embeddings(all) if all[0].values == [0.5; 4]));
    let error = refused(&speaking, &folder, &format!("{base}{{ output: logits }}"));
    assert!(
        error.contains("it has last_hidden_state, pooler_output"),
        "{error}"
    );
}
