//! `spillgate models inspect`: what is printed of a file, what is written, what is found in a picture.

use std::path::Path;
use std::process::{Command, Output};

use image::{Rgb, RgbImage};
use tempfile::TempDir;

use crate::onnx::fixture::Axis::Named;
use crate::onnx::fixture::{colours, saying};

const SAYS: [(&str, &str); 3] = [
    ("names", "{0: 'red', 1: 'green', 2: 'blue'}"),
    ("task", "classify"),
    ("head", "classes-softmax"),
];

fn folder(metadata: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = saying(colours(Named("batch"), 32).model(), metadata);
    std::fs::write(folder.path().join("colours.onnx"), model).unwrap();
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    command.current_dir(folder).args(arguments);
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_file_that_says_what_it_is_becomes_a_pipeline_that_is_served() {
    let folder = folder(&SAYS);
    let output = run(
        folder.path(),
        &["models", "inspect", "colours.onnx", "--write", "p.yaml"],
    );
    expect_test::expect![[r#"
        colours.onnx: ONNX, 0.0 MiB
        inputs:
          images: float32 [free, 3, 32, 32]
        outputs:
          scores: float32 [free, 3]
        metadata:
          head: classes-softmax
          names: {0: 'red', 1: 'green', 2: 'blue'}
          task: classify

        served by

        modules:
          mine: { op: classifier, model: "colours.onnx", inputs: { image: $source.frame } }
        outputs: { labels: $mine.labels }

        - its metadata has task: classify
        - it does not say mean and deviation: most models trained on ImageNet have mean: [0.485, 0.456, 0.406] and std: [0.229, 0.224, 0.225]

        it was loaded and run, confined
    "#]]
    .assert_eq(&printed(&output));
    let text = printed(&run(folder.path(), &["validate", "p.yaml"]));
    assert!(
        text.starts_with("p.yaml: ok: pipeline colours, 1 modules"),
        "{text}"
    );
}

#[test]
fn what_a_model_finds_in_a_picture_is_printed_and_drawn() {
    let folder = folder(&SAYS);
    let red = RgbImage::from_pixel(64, 48, Rgb([250, 20, 20]));
    red.save(folder.path().join("red.png")).unwrap();
    let look = |more: &[&str]| {
        let arguments = ["models", "inspect", "colours.onnx", "--image", "red.png"];
        let output = run(folder.path(), &[arguments.as_slice(), more].concat());
        printed(&output)
    };
    let text = look(&[]);
    assert!(text.contains("labels: 1\n  {\"label\":\"red\","), "{text}");
    let drawn = image::open(folder.path().join("found.png"))
        .unwrap()
        .into_rgb8();
    assert_eq!(drawn.dimensions(), (64, 48));
    assert_ne!(drawn, red, "the label is written into it");
    // A wrong order of colours is seen.
    let text = look(&["--options", "{ color: bgr }", "--out", "wrong.png"]);
    assert!(text.contains("labels: 1\n  {\"label\":\"blue\","), "{text}");
    let text = look(&["--op", "model"]);
    assert!(text.contains("tensor: shape [3], first ["), "{text}");
}

#[test]
fn what_cannot_be_served_is_refused_with_what_is_needed() {
    let refused = |folder: &TempDir, arguments: &[&str]| {
        let output = run(folder.path(), &[&["models", "inspect"], arguments].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{text}");
        assert!(!text.contains("panicked"), "{text}");
        text
    };
    let names_two = [("names", "{0: 'red', 1: 'green'}"), ("task", "classify")];
    let text = refused(&folder(&names_two), &["colours.onnx"]);
    let right = "colours.onnx: expected an output of shape [1, 2] (one score a class), got [1, 3]";
    assert!(text.contains(right), "{text}");
    let text = refused(&folder(&[("task", "obb")]), &["colours.onnx"]);
    assert!(text.contains("it is a model for oriented boxes"), "{text}");
    let good = folder(&SAYS);
    let text = refused(&good, &["colours.onnx", "--op", "detecter"]);
    assert!(
        text.contains("--op: no module type \"detecter\"; there are: detector, "),
        "{text}"
    );
    let text = refused(&good, &["colours.onnx", "--options", "{ fit"]);
    assert!(text.contains("--options: "), "{text}");
    let text = refused(
        &good,
        &[
            "colours.onnx",
            "--op",
            "detector",
            "--options",
            "{ head: nms }",
        ],
    );
    assert!(
        text.contains("its outputs have the shapes [1, 3], and 3 classes are named; needed: nms"),
        "{text}"
    );
    std::fs::write(
        good.path().join("w.pt"),
        b"\x80\x02ccollections\nOrderedDict\n",
    )
    .unwrap();
    let text = refused(&good, &["w.pt"]);
    assert!(
        text.contains("w.pt: it holds weights") && text.contains("torch.onnx.export"),
        "{text}"
    );
    let text = refused(&good, &["/dev/zero"]);
    assert!(text.contains("it begins with 00000000"), "{text}");
    let text = refused(&good, &["none.onnx"]);
    assert!(text.contains("none.onnx"), "{text}");
}
