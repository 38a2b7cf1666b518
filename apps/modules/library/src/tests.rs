//! The modules against a fake backend: what goes into a model, what comes out of a module, what fails.

mod described;
mod dynamic;
mod groups;
mod left_out;
mod model;
mod noop;
mod thresholds;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use spillgate_backend::operator::{BuildContext, Inputs, Operator, OperatorError, Outputs};
use spillgate_backend::{Backend, BackendError, Model};
use spillgate_pipeline::Pipeline;
use spillgate_process::value::{Detection, Image, Tensor, Value};

use crate::library;

type Answer = Arc<dyn Fn(&Tensor) -> Result<Tensor, BackendError> + Send + Sync>;

/// A backend whose models all give the same answer and note what they were given.
#[derive(Clone)]
struct Fake {
    answer: Answer,
    inputs: Arc<Mutex<Vec<Tensor>>>,
    loads: Arc<Mutex<Vec<PathBuf>>>,
    on_gpu: bool,
}

impl Fake {
    fn new(answer: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> Self {
        Fake {
            answer: Arc::new(move |input| Ok(answer(input))),
            inputs: Arc::default(),
            loads: Arc::default(),
            on_gpu: false,
        }
    }

    fn shapes(&self) -> Vec<Vec<i64>> {
        self.inputs
            .lock()
            .unwrap()
            .iter()
            .map(|t| t.shape.clone())
            .collect()
    }
}

impl Backend for Fake {
    fn device_kind(&self) -> &'static str {
        "emulated"
    }

    fn leaves_cores(&self) -> bool {
        self.on_gpu
    }

    fn load(&mut self, path: &Path) -> Result<Box<dyn Model>, BackendError> {
        self.loads.lock().unwrap().push(path.to_path_buf());
        Ok(Box::new(self.clone()))
    }
}

impl Model for Fake {
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.inputs.lock().unwrap().push(inputs[0].clone());
        Ok(vec![(self.answer)(&inputs[0])?])
    }
}

/// A folder with the labels of `net.pt`; goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(labels: &[&str]) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("spillgate-modules-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        if !labels.is_empty() {
            std::fs::write(path.join("net.labels"), labels.join("\n")).expect("labels");
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A pipeline whose module `m` has the given lines.
fn pipeline(lines: &str) -> Pipeline {
    let lines = lines.trim().replace('\n', "\n    ");
    let text = format!(
        "name: test
slo: 1s
modules:
  find:
    op: detector
    variants: [{{ model: net.pt, input: 32 }}]
    inputs: {{ image: $source.frame }}
  read:
    op: text_reader
    model: net.pt
    inputs: {{ image: $source.frame, boxes: $find.boxes }}
  m:
    {lines}
outputs: {{ boxes: $find.boxes, read: $read.text, m: $m.OUTPUT }}
limits: {{ objects: 4 }}
"
    );
    let catalog = library().catalog();
    let op = lines
        .lines()
        .next()
        .and_then(|l| l.strip_prefix("op: "))
        .expect("op comes first");
    let output = &catalog.get(op.trim()).expect("a known type").outputs[0].name;
    let text = text.replace("OUTPUT", output);
    compiled(&text)
}

fn compiled(text: &str) -> Pipeline {
    let catalog = library().catalog();
    match spillgate_pipeline::compile(text, "test.yaml", &catalog, None) {
        Ok(compiled) => compiled.pipeline,
        Err(problems) => panic!("{problems}"),
    }
}

fn build(
    fake: &(impl Backend + Clone),
    folder: &Folder,
    lines: &str,
) -> Result<Box<dyn Operator>, OperatorError> {
    build_in(fake, folder, &pipeline(lines))
}

/// Builds the module `m` of a pipeline.
fn build_in(
    fake: &(impl Backend + Clone),
    folder: &Folder,
    pipeline: &Pipeline,
) -> Result<Box<dyn Operator>, OperatorError> {
    let module = pipeline.module("m").expect("module m");
    let library = library();
    let kind = library.get(&module.op).expect("a known type");
    kind.build(BuildContext {
        module,
        base_dir: &folder.0,
        limits: &pipeline.limits,
        backend: &mut fake.clone(),
    })
}

fn picture(width: u32, height: u32) -> Value {
    let rgb = Bytes::from(vec![51; (width * height * 3) as usize]);
    Value::Image(Arc::new(Image { width, height, rgb }))
}

fn a_box(x0: f32, y0: f32, x1: f32, y1: f32, score: f32) -> Detection {
    Detection {
        x0,
        y0,
        x1,
        y1,
        class: 0,
        label: Arc::from("thing"),
        score,
    }
}

fn some_boxes(n: usize) -> Value {
    let boxes: Vec<Detection> = (0..n)
        .map(|i| a_box(i as f32, 0.0, i as f32 + 20.0, 30.0, i as f32 / 10.0))
        .collect();
    Value::Boxes(Arc::from(boxes))
}

fn one(mut results: Vec<Result<Outputs, OperatorError>>) -> Result<Outputs, OperatorError> {
    assert_eq!(results.len(), 1);
    results.remove(0)
}

fn found(value: &Value) -> Vec<(&str, [f32; 4])> {
    let Value::Boxes(boxes) = value else {
        panic!("no boxes: {value:?}")
    };
    boxes
        .iter()
        .map(|d| (&*d.label, [d.x0, d.y0, d.x1, d.y1]))
        .collect()
}

const DETECTOR: &str = "
op: detector
variants: [{ model: net.pt, input: 64 }, { model: net.pt, input: 128 }]
inputs: { image: $source.frame }
";

#[test]
fn variants_that_name_other_classes_are_refused() {
    let folder = Folder::new(&["car", "person"]);
    let big = folder.0.join("big.labels");
    let image = "image: $source.frame";
    let boxes = format!("{image}, boxes: $find.boxes");
    for (op, inputs) in [
        ("detector", image),
        ("classifier", image),
        ("face_recognizer", &boxes),
    ] {
        let lines = format!(
            "
op: {op}
variants: [{{ model: net.pt, input: 64 }}, {{ model: big.pt, input: 128 }}]
inputs: {{ {inputs} }}
"
        );
        let said = |labels: &str| {
            std::fs::write(&big, labels).expect("labels");
            let built = build(&Fake::new(in_the_middle), &folder, &lines);
            built.map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(said("car\nperson\n"), Ok(()), "{op}");
        let right = "variants of a module name the same classes, in one order";
        assert_eq!(
            said("car\nbus"),
            Err(format!(
                "modules.m: variants: class 1 is \"bus\" in big.pt and \"person\" in net.pt; {right}"
            ))
        );
        assert_eq!(
            said("car\nperson\nbus"),
            Err(format!(
                "modules.m: variants: big.pt has 3 classes and net.pt has 2; {right}"
            ))
        );
    }
}

/// One box in the middle of each picture, of the class that the picture's ordinal in the batch says.
fn in_the_middle(input: &Tensor) -> Tensor {
    let (n, side) = (input.shape[0], input.shape[3] as f32);
    let mut data = Vec::new();
    for i in 0..n {
        let (a, b) = if i % 2 == 0 { (0.9, 0.1) } else { (0.2, 0.8) };
        data.extend([side / 2.0, side / 2.0, side / 4.0, side / 8.0, a, b]);
    }
    Tensor::new(vec![n, 6, 1], data)
}

#[test]
fn a_detector_finds_in_one_forward_and_sorts_by_class() {
    let fake = Fake::new(in_the_middle);
    let folder = Folder::new(&["car", "person"]);
    let mut detector = build(&fake, &folder, DETECTOR).expect("builds");
    assert_eq!(
        fake.loads.lock().unwrap().len(),
        1,
        "both variants share the file"
    );
    let batch: Vec<Inputs> = [(640, 320), (128, 128)]
        .map(|(w, h)| vec![Some(picture(w, h))])
        .to_vec();
    let results: Vec<Outputs> = detector
        .run(1, &batch)
        .into_iter()
        .map(|r| r.expect("runs"))
        .collect();
    assert_eq!(fake.shapes(), [vec![2, 3, 128, 128]]);
    // 32x16 around the middle of the input is 160x80 of the first picture.
    let car = ("car", [240.0, 120.0, 400.0, 200.0]);
    assert_eq!(found(&results[0][0]), [car]);
    assert_eq!(found(&results[0][1]), [car]);
    assert_eq!(found(&results[0][2]), []);
    assert_eq!(found(&results[1][1]), []);
    assert_eq!(
        found(&results[1][2]),
        [("person", [48.0, 56.0, 80.0, 72.0])]
    );
}

#[test]
fn the_letterbox_is_grey_and_the_picture_scaled_to_one() {
    let fake = Fake::new(in_the_middle);
    let folder = Folder::new(&["car", "person"]);
    let mut detector = build(&fake, &folder, DETECTOR).expect("builds");
    one(detector.run(0, &[vec![Some(picture(640, 320))]])).expect("runs");
    let inputs = fake.inputs.lock().unwrap();
    let (top, middle) = (inputs[0].data[0], inputs[0].data[32 * 64 + 32]);
    assert!((top - 114.0 / 255.0).abs() < 1e-5, "{top}");
    assert!((middle - 0.2).abs() < 1e-5, "{middle}");
}

#[test]
fn a_broken_picture_fails_alone() {
    let fake = Fake::new(in_the_middle);
    let folder = Folder::new(&["car", "person"]);
    let mut detector = build(&fake, &folder, DETECTOR).expect("builds");
    let short = Image {
        width: 8,
        height: 8,
        rgb: Bytes::from_static(&[0; 7]),
    };
    let batch = [
        vec![Some(Value::Image(Arc::new(short)))],
        vec![Some(picture(64, 64))],
        vec![None],
        vec![Some(Value::Bytes(Bytes::new()))],
    ];
    let results = detector.run(0, &batch);
    assert_eq!(fake.shapes(), [vec![1, 3, 64, 64]]);
    let texts: Vec<String> = results
        .into_iter()
        .map(|r| r.err().map_or("fine".to_owned(), |e| e.to_string()))
        .collect();
    assert!(
        texts[0].contains("7 bytes") && texts[0].contains("8x8"),
        "{}",
        texts[0]
    );
    assert_eq!(texts[1], "fine");
    assert!(texts[2].contains("nothing"), "{}", texts[2]);
    assert!(texts[3].contains("bytes"), "{}", texts[3]);
}

#[test]
fn a_wrong_shape_names_model_expected_and_got() {
    let folder = Folder::new(&["car", "person"]);
    let fake = Fake::new(|_| Tensor::new(vec![1, 84, 10], vec![0.0; 840]));
    let mut detector = build(&fake, &folder, DETECTOR).expect("builds");
    let error = one(detector.run(0, &[vec![Some(picture(64, 64))]])).expect_err("84 is not 6");
    assert_eq!(
        error.to_string(),
        "net.pt: its outputs have the shapes [1, 84, 10], and 2 classes are named; needed: yolo [batch, 6, n] (4 of the box, 2 classes); or \
         yolov5 [batch, n, 7] (4 of the box, 1, 2 classes); or nms [batch, n, 6] (box, score, class); or detr [batch, n, 4] and [batch, n, 2] \
         or [batch, n, 3], or [batch, n, 6], or [batch, n, 6]. Name as many classes as it has, or another head in options: { head: ... }"
    );
    let mut reader = build(&fake, &folder, READER).expect("builds");
    let error = one(reader.run(0, &[vec![Some(picture(64, 64)), Some(some_boxes(1))]]));
    let error = error.expect_err("84 is not 37").to_string();
    assert_eq!(
        error,
        "net.pt: expected an output of shape [1, places, 37], got [1, 84, 10]"
    );
}

#[test]
fn a_failing_model_fails_those_that_needed_it() {
    let folder = Folder::new(&["ada", "bruno"]);
    let mut fake = Fake::new(in_the_middle);
    fake.answer = Arc::new(|_| {
        Err(BackendError::Forward {
            shapes: "[1]".to_owned(),
            detail: "out of memory".to_owned(),
        })
    });
    let mut faces = build(&fake, &folder, FACES).expect("builds");
    let batch = [
        vec![Some(picture(64, 64)), Some(some_boxes(1))],
        vec![Some(picture(64, 64)), Some(some_boxes(0))],
    ];
    let results = faces.run(0, &batch);
    let error = results[0]
        .as_ref()
        .expect_err("the model fails")
        .to_string();
    assert!(
        error.contains("net.pt") && error.contains("out of memory"),
        "{error}"
    );
    assert!(results[1].is_ok(), "a frame without objects needs no model");
}

#[test]
fn building_says_what_is_missing() {
    let fake = Fake::new(in_the_middle);
    let without_input = "op: detector\nmodel: net.pt\ninputs: { image: $source.frame }";
    let folder = Folder::new(&["car"]);
    let error = build(&fake, &folder, without_input)
        .err()
        .expect("no input")
        .to_string();
    assert!(
        error.contains("modules.m") && error.contains("`input`"),
        "{error}"
    );
    let empty = Folder::new(&[]);
    let error = build(&fake, &empty, DETECTOR)
        .err()
        .expect("no labels")
        .to_string();
    assert!(
        error.contains("net.labels") && error.contains("option `labels`"),
        "{error}"
    );
    let region = format!("{READER}options: {{ region: [0.5, 0.5, 0.2, 0.9] }}");
    let error = build(&fake, &folder, &region)
        .err()
        .expect("no area")
        .to_string();
    assert!(
        error.contains("modules.m: options.region") && error.contains("no area"),
        "{error}"
    );
    let size = format!("{READER}options: {{ size: [160.5, 48] }}");
    let error = build(&fake, &folder, &size)
        .err()
        .expect("no size")
        .to_string();
    assert!(error.contains("options.size"), "{error}");
}

#[test]
fn an_unknown_variant_is_an_error() {
    let fake = Fake::new(in_the_middle);
    let folder = Folder::new(&["car", "person"]);
    let mut detector = build(&fake, &folder, DETECTOR).expect("builds");
    let error = one(detector.run(2, &[vec![Some(picture(64, 64))]])).expect_err("there are two");
    assert_eq!(
        error.to_string(),
        "no variant 2: this module has 2, counted from 0"
    );
}

const READER: &str = "
op: text_reader
model: net.pt
inputs: { image: $source.frame, boxes: $find.boxes }
";

/// Each object's text is the letter of its ordinal in the batch.
fn ordinals(input: &Tensor) -> Tensor {
    let n = input.shape[0] as usize;
    let mut data = vec![0.0; n * 2 * 37];
    for i in 0..n {
        data[i * 2 * 37 + i] = 9.0;
        data[(i * 2 + 1) * 37 + 36] = 9.0;
    }
    Tensor::new(vec![n as i64, 2, 37], data)
}

#[test]
fn a_text_reader_takes_all_objects_of_all_frames_at_once() {
    objects_of_all_frames(false);
}

#[test]
fn on_a_gpu_an_input_may_have_more_rows_than_there_are_objects() {
    objects_of_all_frames(true);
}

fn objects_of_all_frames(on_gpu: bool) {
    let mut fake = Fake::new(ordinals);
    fake.on_gpu = on_gpu;
    let folder = Folder::new(&[]);
    let mut reader = build(&fake, &folder, READER).expect("builds");
    let frame = |n| vec![Some(picture(64, 64)), Some(some_boxes(n))];
    let results = reader.run(0, &[frame(2), frame(0), frame(6), frame(1)]);
    // Of six objects the four of highest score are read: `limits.objects`.
    assert_eq!(
        fake.shapes(),
        [vec![if on_gpu { 8 } else { 7 }, 3, 48, 160]]
    );
    let texts: Vec<Vec<String>> = results
        .into_iter()
        .map(|r| match &r.expect("runs")[..] {
            [Value::Texts(texts)] => texts.iter().map(|t| t.text.clone()).collect(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts[0], ["A", "B"]);
    assert!(texts[1].is_empty());
    assert_eq!(texts[2], ["", "", "C", "D", "E", "F"]);
    assert_eq!(texts[3], ["G"]);
}

#[test]
fn without_objects_no_model_runs_and_boxes_without_area_are_left_out() {
    let fake = Fake::new(ordinals);
    let folder = Folder::new(&[]);
    let mut reader = build(&fake, &folder, READER).expect("builds");
    let flat = [
        a_box(5.0, 5.0, 5.0, 9.0, 0.9),
        a_box(f32::NAN, 0.0, 9.0, 9.0, 0.9),
    ];
    let flat = Value::Boxes(Arc::from(flat));
    let outputs = one(reader.run(0, &[vec![Some(picture(64, 64)), Some(flat)]])).expect("runs");
    let [Value::Texts(texts)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!(texts.len(), 2, "one text a box");
    assert!(fake.shapes().is_empty());
}

const FACES: &str = "
op: face_recognizer
model: net.pt
inputs: { image: $source.frame, boxes: $find.people }
options: { confidence: 0.8 }
";

#[test]
fn a_face_below_the_confidence_is_unknown() {
    let fake = Fake::new(|input| {
        let n = input.shape[0];
        let data = [[5.0, 0.0], [0.5, 0.0]].concat();
        Tensor::new(vec![n, 2], data[..n as usize * 2].to_vec())
    });
    let folder = Folder::new(&["ada", "bruno"]);
    let mut faces = build(&fake, &folder, FACES).expect("builds");
    let inputs = vec![Some(picture(64, 64)), Some(some_boxes(2))];
    let outputs = one(faces.run(0, &[inputs])).expect("runs");
    let [Value::Labels(labels)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    let names: Vec<&str> = labels.iter().map(|l| &*l.label).collect();
    assert_eq!(names, ["ada", "unknown"]);
    assert!((labels[0].score - 0.9933).abs() < 1e-3);
}

/// Class scores 0.1, 0.7, 0.2 for each picture.
fn scores(input: &Tensor) -> Tensor {
    let n = input.shape[0];
    Tensor::new(vec![n, 3], [0.1, 0.7, 0.2].repeat(n as usize))
}

fn labels_of(outputs: &Value) -> Vec<(&str, f32)> {
    let Value::Labels(labels) = outputs else {
        panic!("no labels: {outputs:?}")
    };
    labels.iter().map(|l| (&*l.label, l.score)).collect()
}

#[test]
fn a_classifier_takes_the_whole_picture_or_each_box() {
    let fake = Fake::new(scores);
    let folder = Folder::new(&["day", "night", "fog"]);
    let whole = "op: classifier\nmodel: net.pt\ninputs: { image: $source.frame }\n\
                 options: { top: 2, activation: none }";
    let mut classifier = build(&fake, &folder, whole).expect("builds");
    let outputs = one(classifier.run(0, &[vec![Some(picture(64, 64)), None]])).expect("runs");
    assert_eq!(labels_of(&outputs[0]), [("night", 0.7), ("fog", 0.2)]);
    let boxed = "op: classifier\nmodel: net.pt\n\
                 inputs: { image: $source.frame, boxes: $find.boxes }\noptions: { activation: none }";
    let mut classifier = build(&fake, &folder, boxed).expect("builds");
    let inputs = vec![Some(picture(64, 64)), Some(some_boxes(2))];
    let outputs = one(classifier.run(0, &[inputs])).expect("runs");
    assert_eq!(labels_of(&outputs[0]), [("night", 0.7), ("night", 0.7)]);
    // The module that finds boxes was skipped.
    let outputs = one(classifier.run(0, &[vec![Some(picture(64, 64)), None]])).expect("runs");
    assert_eq!(labels_of(&outputs[0]), []);
    assert_eq!(fake.shapes(), [vec![1, 3, 224, 224], vec![2, 3, 224, 224]]);
}

#[test]
fn examples_run() {
    let folder = Folder::new(&["car", "person"]);
    let two = |input: &Tensor| {
        Tensor::new(
            vec![input.shape[0], 2],
            vec![0.0; input.shape[0] as usize * 2],
        )
    };
    let cases: [(&str, Fake, usize); 3] = [
        (DETECTOR, Fake::new(in_the_middle), 1),
        (READER, Fake::new(ordinals), 3),
        (FACES, Fake::new(two), 3),
    ];
    for (lines, fake, n) in cases {
        let mut operator = build(&fake, &folder, lines).expect("builds");
        let example = operator.example(3);
        one(operator.run(0, &[example])).expect("runs");
        assert_eq!(fake.shapes()[0][0], n as i64, "{lines}");
    }
}
