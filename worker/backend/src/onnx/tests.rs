use std::sync::atomic::{AtomicUsize, Ordering};

use super::fixture::Axis::{Is, Named};
use super::fixture::*;
use super::*;

/// Loads a model that lies in a folder of its own.
fn load_in(folder: &Folder, model: &[u8]) -> Result<OnnxModel, String> {
    load(&folder.0.join("m.onnx"), model, &|_, _| Ok(()))
}

fn loaded_of(graph: &Graph) -> OnnxModel {
    load_in(&Folder::new("plain"), &graph.model()).expect("a model")
}

fn refused(graph: &Graph) -> String {
    let result = load_in(&Folder::new("refused"), &graph.model());
    let why = result.map(|_| ()).expect_err("it is refused");
    assert!(!why.contains('\n') && why.len() < 1000, "{why}");
    assert!(!why.contains(".cc:") && !why.contains(".h:"), "{why}");
    why
}

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!(
            "spillgate-onnx-{}-{number}-{name}",
            std::process::id()
        ));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A model of these nodes from `x` to `y`.
fn simple(nodes: Vec<Message>, from: (i64, &[Axis]), to: (i64, &[Axis])) -> Graph {
    Graph {
        nodes,
        weights: Vec::new(),
        inputs: vec![tensor_port("x", from.0, from.1)],
        outputs: vec![tensor_port("y", to.0, to.1)],
    }
}

fn cast(from: &str, to: &str, kind: i64) -> Message {
    node("Cast", &[from], &[to]).message(5, &int("to", kind))
}

fn run(model: &mut OnnxModel, shape: &[i64], data: &[f32]) -> Tensor {
    let outputs = model.forward(&[Tensor::new(shape.to_vec(), data.to_vec())]);
    outputs.expect("it runs").remove(0)
}

/// Pictures of one colour each, and the scores that they get.
fn pictures(n: usize, side: i64) -> (Tensor, Vec<f32>) {
    let pixels = (side * side) as usize;
    let value = |i: usize, c: usize| (3 * i + c) as f32;
    let data = (0..n).flat_map(|i| (0..3).flat_map(move |c| vec![value(i, c); pixels]));
    let scores = (0..n).flat_map(|i| (0..3).map(move |c| 10.0 * value(i, c)));
    let shape = vec![n as i64, 3, side, side];
    (Tensor::new(shape, data.collect()), scores.collect())
}

fn classifies(model: &mut OnnxModel, side: i64) {
    for n in [1, 2, 3, 4, 5, 9, 0] {
        let (input, scores) = pictures(n, side);
        let outputs = model.forward(&[input]).expect("it runs");
        assert_eq!(outputs.len(), 1);
        assert_eq!(outputs[0].shape, [n as i64, 3], "{n}");
        let close = outputs[0]
            .data
            .iter()
            .zip(&scores)
            .all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(
            close && outputs[0].data.len() == scores.len(),
            "{n}: {:?}",
            outputs[0]
        );
    }
}

#[test]
fn a_batch_that_is_free_or_fixed_gives_the_same_answers_at_any_size() {
    for axis in [Named("batch"), Named(""), Is(1), Is(2), Is(4)] {
        classifies(&mut loaded_of(&colours(axis, 4)), 4);
    }
}

#[test]
fn height_and_width_may_be_free() {
    for axis in [Named("batch"), Is(1), Is(4)] {
        let mut graph = colours(axis, 4);
        let axes = [axis, Is(3), Named("height"), Named("width")];
        graph.inputs = vec![tensor_port("images", FLOAT, &axes)];
        let mut model = loaded_of(&graph);
        classifies(&mut model, 4);
        classifies(&mut model, 6);
    }
}

#[test]
fn a_batch_in_the_wrong_place_is_refused_with_the_line_that_cures_it() {
    let export = "dynamic_axes={\"images\": {0: \"batch\"}, \"scores\": {0: \"batch\"}}";
    for axes in [
        [Is(3), Named("batch"), Is(4), Is(4)],
        [Is(3), Named(""), Is(4), Is(4)],
        [Is(4), Is(4), Is(3), Named("N")],
    ] {
        let mut graph = colours(Is(3), 4);
        graph.inputs = vec![tensor_port("images", FLOAT, &axes)];
        let why = refused(&graph);
        assert!(why.contains("the batch is to be the first axis"), "{why}");
        assert!(why.contains(export), "{why}");
    }
}

#[test]
fn outputs_that_do_not_follow_the_batch_are_refused_with_the_line_that_cures_it() {
    // The sum over the whole batch, and a constant of it.
    let sum = node("ReduceSum", &["x"], &["y"]).message(5, &int("keepdims", 0));
    let axes = [Named("batch"), Is(2)];
    let why = refused(&simple(vec![sum], (FLOAT, &axes), (FLOAT, &[])));
    assert!(
        why.contains("output \"y\" has the shape [] for a batch of 1"),
        "{why}"
    );
    assert!(
        why.contains("torch.onnx.export(") && why.contains("{0: \"batch\"}"),
        "{why}"
    );
    // All rows in one.
    let flat = node("Flatten", &["x"], &["y"]).message(5, &int("axis", 0));
    let why = refused(&simple(
        vec![flat],
        (FLOAT, &axes),
        (FLOAT, &[Is(1), Named("n")]),
    ));
    assert!(why.contains("runs with a batch of 1 and not of 2"), "{why}");
    // A batch of 1 that is fixed within.
    let mut graph = simple(
        vec![node("Reshape", &["x", "shape"], &["y"])],
        (FLOAT, &axes),
        (FLOAT, &[Named("batch"), Is(2)]),
    );
    graph.weights = vec![integers("shape", &[1, 2])];
    let why = refused(&graph);
    assert!(
        why.contains("runs with a batch of 1 and not of 2") && why.contains("torch.onnx.export("),
        "{why}"
    );
    // Where sizes are not known the first run says so.
    let sum = node("ReduceSum", &["x"], &["y"]).message(5, &int("keepdims", 0));
    let axes = [Named("batch"), Named("n")];
    let mut model = loaded_of(&simple(vec![sum], (FLOAT, &axes), (FLOAT, &[])));
    let error = model.forward(&[Tensor::new(vec![1, 2], vec![1.0, 2.0])]);
    assert!(
        error
            .expect_err("no batch")
            .to_string()
            .contains("the first axis is to be the batch")
    );
}

#[test]
fn inputs_are_rounded_and_end_where_their_kind_ends() {
    let axes = [Named("batch"), Is(6)];
    let given = [-3.0, 0.4, 0.5, 254.6, 300.0, f32::NAN];
    let mut bytes = loaded_of(&simple(
        vec![cast("x", "y", FLOAT)],
        (UINT8, &axes),
        (FLOAT, &axes),
    ));
    assert_eq!(
        run(&mut bytes, &[1, 6], &given).data,
        [0.0, 0.0, 1.0, 255.0, 255.0, 0.0]
    );
    let mut halves = loaded_of(&simple(
        vec![cast("x", "y", FLOAT)],
        (FLOAT16, &axes),
        (FLOAT, &axes),
    ));
    let given = [1.0, 2049.0, -0.1, 65504.0, 70000.0, -70000.0];
    let infinite = [f32::INFINITY, f32::NEG_INFINITY];
    let got = run(&mut halves, &[1, 6], &given).data;
    assert_eq!(got[..2], [1.0, 2048.0]);
    assert!((got[2] + 0.1).abs() < 1e-4);
    assert_eq!(got[3], 65504.0);
    assert_eq!(got[4..], infinite);
}

#[test]
fn outputs_of_any_kind_of_numbers_become_floats() {
    let axes = [Named("batch"), Is(4)];
    for (kind, expected) in [
        (UINT8, [0.0, 1.0, 2.0, 100.0]),
        (3, [0.0, 1.0, 2.0, 100.0]),
        (4, [0.0, 1.0, 2.0, 100.0]),
        (5, [0.0, 1.0, 2.0, 100.0]),
        (6, [0.0, 1.0, 2.0, 100.0]),
        (INT64, [0.0, 1.0, 2.0, 100.0]),
        (12, [0.0, 1.0, 2.0, 100.0]),
        (13, [0.0, 1.0, 2.0, 100.0]),
        (BOOL, [0.0, 1.0, 1.0, 1.0]),
        (FLOAT16, [0.0, 1.5, 2.5, 100.0]),
        (16, [0.0, 1.5, 2.5, 100.0]),
        (DOUBLE, [0.0, 1.5, 2.5, 100.0]),
    ] {
        let graph = simple(vec![cast("x", "y", kind)], (FLOAT, &axes), (kind, &axes));
        let got = run(&mut loaded_of(&graph), &[1, 4], &[0.0, 1.5, 2.5, 100.0]);
        assert_eq!(
            (got.shape, got.data),
            (vec![1, 4], expected.to_vec()),
            "{kind}"
        );
    }
}

#[test]
fn several_outputs_come_in_their_order() {
    let axes = [Is(2), Is(2)];
    let mut graph = simple(
        vec![cast("x", "y", INT64), node("Neg", &["x"], &["z"])],
        (FLOAT, &axes),
        (INT64, &axes),
    );
    graph.outputs.push(tensor_port("z", FLOAT, &axes));
    let mut model = loaded_of(&graph);
    let input = Tensor::new(vec![3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let outputs = model.forward(&[input]).expect("it runs");
    assert_eq!(outputs.len(), 2);
    assert_eq!(outputs[0].data, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(outputs[1].data, [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
}

#[test]
fn what_a_module_cannot_give_or_take_is_refused_with_the_cure() {
    let axes = [Named("batch"), Is(2)];
    let same = || vec![node("Identity", &["x"], &["y"])];
    let plain = || simple(same(), (FLOAT, &axes), (FLOAT, &axes));
    let mut two = plain();
    two.inputs.push(tensor_port("mask", FLOAT, &axes));
    let mut none = plain();
    none.inputs.clear();
    let mut texts = plain();
    texts
        .outputs
        .push(tensor_port("label", STRING, &[Named("batch")]));
    let mut maps = plain();
    let map = Message::new().message(5, &Message::new());
    maps.outputs.push(port(
        "probabilities",
        &Message::new().message(4, &Message::new().message(1, &map)),
    ));
    let mut list = plain();
    list.inputs = vec![port("x", &Message::new().message(4, &Message::new()))];
    let mut scalar = plain();
    scalar.inputs = vec![tensor_port("x", FLOAT, &[])];
    let cases = [
        (two, "it has 2 inputs (x, mask)"),
        (none, "it has no input"),
        (texts, "output \"label\" gives strings"),
        (maps, "output \"probabilities\" is a sequence"),
        (list, "input \"x\" is a sequence"),
        (scalar, "has no axes"),
        (
            simple(same(), (INT64, &axes), (INT64, &axes)),
            "takes int64, and a module gives float32, float16 or uint8",
        ),
        (
            simple(same(), (FLOAT, &axes), (14, &axes)),
            "gives complex64",
        ),
    ];
    for (graph, part) in &cases {
        let why = refused(graph);
        assert!(why.contains(part), "{part}: {why}");
    }
    for (graph, _) in &cases[2..4] {
        assert!(refused(graph).contains("options={'zipmap': False}"));
    }
}

#[test]
fn versions_that_the_library_does_not_know_are_named_with_its_own() {
    for (ir, opset) in [(99, 17), (8, 99)] {
        let model = colours(Named("batch"), 4).versioned(ir, opset);
        let why = load_in(&Folder::new("new"), &model)
            .map(|_| ())
            .expect_err("too new");
        assert!(
            why.contains(&format!("IR version {ir}, opset {opset}")),
            "{why}"
        );
        assert!(
            why.contains("pip install") && !why.contains(".cc:"),
            "{why}"
        );
    }
}

#[test]
fn messages_lose_the_place_in_code_that_nobody_here_has() {
    for (text, said) in [
        ("plain text (with more)", "plain text (with more)"),
        (
            "/src/core/graph/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, const std::function<void(int)>&) Unsupported version: 99",
            "Unsupported version: 99",
        ),
        (
            "/src/x.h:12 void onnxruntime::f(T*) const [with T = float] It is (too) long.",
            "It is (too) long",
        ),
        (
            "Non-zero status code returned while running Reshape node. Name:'' Status Message: /src/reshape_helper.h:41 ReshapeHelper size != 0",
            "size != 0",
        ),
        (
            "[ShapeInferenceError] at 3: x\nmore",
            "[ShapeInferenceError] at 3: x",
        ),
        ("", ""),
    ] {
        assert_eq!(one_line(text), said, "{text}");
    }
}

#[test]
fn graphs_that_make_no_sense_are_errors_of_one_line() {
    let axes = [Named("batch"), Is(2)];
    let why = refused(&simple(
        vec![node("NoSuchOperator", &["x"], &["y"])],
        (FLOAT, &axes),
        (FLOAT, &axes),
    ));
    assert!(why.contains("NoSuchOperator"), "{why}");
    let why = refused(&simple(
        vec![node("Add", &["x", "gone"], &["y"])],
        (FLOAT, &axes),
        (FLOAT, &axes),
    ));
    assert!(why.contains("gone"), "{why}");
}

#[test]
fn inputs_of_a_wrong_shape_are_errors_and_the_model_lives_on() {
    let mut model = loaded_of(&colours(Named("batch"), 4));
    let (input, _) = pictures(1, 5);
    let error = model.forward(&[input]).expect_err("5 is not 4").to_string();
    assert!(
        error.contains("[1, 3, 5, 5]") && error.contains("m.onnx") && !error.contains('\n'),
        "{error}"
    );
    let short = Tensor {
        shape: vec![1, 3, 4, 4],
        data: vec![0.0; 2],
        left_out: Vec::new(),
    };
    assert!(model.forward(&[short]).is_err());
    assert!(model.forward(&[]).is_err());
    let (input, _) = pictures(1, 4);
    assert!(model.forward(&[input.clone(), input]).is_err());
    let scalar = Tensor::new(vec![], vec![1.0]);
    assert!(model.forward(&[scalar]).is_err());
    classifies(&mut model, 4);
}

#[test]
fn weights_beside_a_model_are_read_from_its_folder_and_nowhere_else() {
    let bytes: Vec<u8> = [10.0f32; 3].iter().flat_map(|v| v.to_le_bytes()).collect();
    let content = [&[0; 8], bytes.as_slice()].concat();
    let folder = Folder::new("beside");
    std::fs::create_dir(folder.0.join("sub")).expect("a folder");
    let of = |location: &str| {
        let mut graph = colours(Named("batch"), 4);
        graph.weights = vec![external("factor", &[3], location, 8, 12)];
        graph.model()
    };
    for location in ["w.bin", "sub/w.bin"] {
        std::fs::write(folder.0.join(location), &content).expect("written");
        let mut model = load_in(&folder, &of(location)).expect(location);
        classifies(&mut model, 4);
        let beside = weights_beside(&folder.0.join("m.onnx"), &of(location));
        assert_eq!(beside, Ok(vec![folder.0.join(location)]));
    }
    let outside = Folder::new("outside");
    std::fs::write(outside.0.join("w.bin"), &content).expect("written");
    std::os::unix::fs::symlink(outside.0.join("w.bin"), folder.0.join("link.bin")).expect("a link");
    std::os::unix::fs::symlink(&outside.0, folder.0.join("linked")).expect("a link");
    let name = outside
        .0
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    let absolute = outside.0.join("w.bin").display().to_string();
    for location in [
        &*absolute,
        &format!("../{name}/w.bin"),
        "sub/../w.bin",
        "link.bin",
        "linked/w.bin",
        "",
    ] {
        let why = load_in(&folder, &of(location))
            .map(|_| ())
            .expect_err(location);
        assert!(
            why.contains("outside of the model's folder"),
            "{location}: {why}"
        );
    }
    // Many names of one file would be read as often.
    for location in ["./w.bin", "sub/./w.bin", "sub//w.bin"] {
        let why = load_in(&folder, &of(location))
            .map(|_| ())
            .expect_err(location);
        assert!(why.contains("without . and empty"), "{location}: {why}");
    }
    // To ONNX Runtime this is an address in its own memory.
    let why = load_in(&folder, &of("*/_ORT_MEM_ADDR_/*"))
        .map(|_| ())
        .expect_err("an address");
    assert!(why.contains("outside of the model's folder"), "{why}");
    let why = load_in(&folder, &of("gone.bin"))
        .map(|_| ())
        .expect_err("gone");
    assert!(
        why.contains("gone.bin") && why.contains("No such file"),
        "{why}"
    );
    std::fs::write(folder.0.join("w.bin"), &content[..10]).expect("written");
    let why = load_in(&folder, &of("w.bin"))
        .map(|_| ())
        .expect_err("short");
    assert!(
        why.contains("has 10 bytes, and the model's weights end at 20"),
        "{why}"
    );
    // What was not approved is not loaded.
    let refusing = |_: &Path, _: &[u8]| Err("not this one".to_owned());
    let path = folder.0.join("m.onnx");
    let why = load(&path, &of("sub/w.bin"), &refusing)
        .map(|_| ())
        .expect_err("refused");
    assert!(why.contains("not this one"), "{why}");
}

#[test]
fn a_model_that_is_quantised_runs() {
    let axes = [Named("batch"), Is(2)];
    let mut graph = simple(
        vec![
            node("QuantizeLinear", &["x", "scale", "zero"], &["q"]),
            node("DequantizeLinear", &["q", "scale", "zero"], &["y"]),
        ],
        (FLOAT, &axes),
        (FLOAT, &axes),
    );
    graph.weights = vec![
        floats("scale", &[], &[0.5]),
        raw("zero", UINT8, &[], &[128]),
    ];
    assert_eq!(
        run(&mut loaded_of(&graph), &[1, 2], &[1.1, -100.0]).data,
        [1.0, -64.0]
    );
}

#[test]
fn truths_that_are_neither_0_nor_1_are_read() {
    let mut graph = simple(
        vec![node("Expand", &["truths", "shape"], &["y"])],
        (FLOAT, &[Is(1), Is(2)]),
        (BOOL, &[Is(1), Is(4)]),
    );
    graph.nodes.push(node("Identity", &["x"], &["unused"]));
    graph.weights = vec![
        raw("truths", BOOL, &[1, 4], &[0, 1, 2, 255]),
        integers("shape", &[1, 4]),
    ];
    assert_eq!(
        run(&mut loaded_of(&graph), &[1, 2], &[0.0; 2]).data,
        [0.0, 1.0, 1.0, 1.0]
    );
}

#[test]
fn models_run_on_several_threads_at_once_and_are_freed() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    classifies(&mut loaded_of(&colours(Named("batch"), 4)), 4);
                }
            });
        }
    });
}

/// Of each picture a list of its channels that are not black: their means and their numbers.
fn channels() -> Graph {
    let axes = [Is(1), Is(3), Is(2), Is(2)];
    Graph {
        nodes: vec![
            node("GlobalAveragePool", &["x"], &["pooled"]),
            node("Reshape", &["pooled", "flat"], &["means"]),
            node("NonZero", &["means"], &["found"]),
            node("Reshape", &["found", "flat"], &["labels"]),
            node("Gather", &["means", "labels"], &["scores"]),
        ],
        weights: vec![integers("flat", &[-1])],
        inputs: vec![tensor_port("x", FLOAT, &axes)],
        outputs: vec![
            tensor_port("scores", FLOAT, &[Named("n")]),
            tensor_port("labels", INT64, &[Named("n")]),
        ],
    }
}

#[test]
fn lists_of_pictures_become_as_long_as_the_longest() {
    let mut model = loaded_of(&channels());
    let picture = |means: [f32; 3]| means.into_iter().flat_map(|mean| [mean; 4]);
    let all = [[0.5, 0.0, 0.25], [0.0; 3], [0.0, 1.0, 0.0]];
    let data: Vec<f32> = all.into_iter().flat_map(picture).collect();
    let outputs = model.forward(&[Tensor::new(vec![3, 3, 2, 2], data)]);
    let none = FILLER;
    let scores = vec![0.5, 0.25, none, none, 1.0, none];
    let labels = vec![0.0, 2.0, none, none, 1.0, none];
    let expected = [scores, labels].map(|data| Tensor::new(vec![3, 2], data));
    assert_eq!(outputs.expect("it runs"), expected);
    // Nothing is in any of them.
    let outputs = model.forward(&[Tensor::new(vec![2, 3, 2, 2], vec![0.0; 24])]);
    let empty = [[0; 2]; 2].map(|_| Tensor::new(vec![2, 0], vec![]));
    assert_eq!(outputs.expect("it runs"), empty);
    assert!(
        model
            .forward(&[Tensor::new(vec![0, 3, 2, 2], vec![])])
            .is_ok()
    );
}

#[test]
fn a_file_is_described_with_what_its_exporter_wrote() {
    let says = [("names", "{0: 'a'}"), ("task", "detect")];
    let model = saying(channels().model(), &says);
    let described = description(&model).expect("a description");
    let metadata: Vec<(&str, &str)> = described
        .metadata
        .iter()
        .map(|(k, v)| (&**k, &**v))
        .collect();
    assert_eq!(metadata, says);
    let port = &described.inputs[0];
    assert_eq!((&*port.name, port.kind), ("x", "float32"));
    assert_eq!(port.axes, Some([1, 3, 2, 2].map(Some).to_vec()));
    let outputs: Vec<_> = described
        .outputs
        .iter()
        .map(|p| (&*p.name, p.is_integer()))
        .collect();
    assert_eq!(outputs, [("scores", false), ("labels", true)]);
    let twice = saying(channels().model(), &[("names", "a"), ("names", "b")]);
    let error = description(&twice).unwrap_err();
    assert!(
        error.contains("a key of its metadata is there twice"),
        "{error}"
    );
    let long = "x".repeat(crate::description::METADATA_BYTES_MAX);
    let error = description(&saying(channels().model(), &[("names", &long)])).unwrap_err();
    assert!(error.contains("its metadata has more than"), "{error}");
}
