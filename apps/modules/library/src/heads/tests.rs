//! Heads against what the libraries' own decoders answer for the same numbers (`vectors/`, made by `tools/head_vectors.py`), and numbers that
//! are none.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value as Json;
use spillgate_backend::description::Port;

use super::masks::Prototypes;
use super::*;
use crate::boxes::{Suppress, suppress};
use crate::letterbox::Fit;

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    inputs: Vec<Given>,
    params: Json,
    expected: Json,
}

#[derive(Deserialize)]
struct Given {
    name: String,
    shape: Vec<i64>,
    data: Vec<f32>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// Rows of expected numbers.
fn rows(of: &Json) -> Vec<Vec<f32>> {
    serde_json::from_value(of.clone()).expect("rows of numbers")
}

impl Case {
    fn number(&self, name: &str) -> Option<f32> {
        self.params[name].as_f64().map(|number| number as f32)
    }

    /// Width and height; the file has the height first.
    fn size(&self, name: &str) -> Option<(usize, usize)> {
        let of = self.params.get(name)?;
        let side = |at: usize| of[at].as_u64().expect("a side") as usize;
        Some((side(1), side(0)))
    }

    /// The outputs, each with the axis of the batch.
    fn outputs(&self) -> Vec<Tensor> {
        let batch = |given: &Given| given.shape.first() == Some(&1) && given.shape.len() > 2;
        let tensor = |given: &Given| {
            let first = (!batch(given)).then_some(1);
            let shape = first.into_iter().chain(given.shape.iter().copied());
            Tensor::new(shape.collect(), given.data.clone())
        };
        self.inputs.iter().map(tensor).collect()
    }

    fn facts(&self) -> Facts {
        let count = |name: &str| self.params[name].as_u64().map(|n| n as usize);
        let port = |given: &Given| Port {
            name: given.name.clone(),
            kind: if given.kind.is_some() {
                "int64"
            } else {
                "float32"
            },
            axes: None,
        };
        Facts {
            outputs: self.inputs.iter().map(port).collect(),
            keypoints: count("points").zip(count("values")),
            // The newer ones of its two layouts.
            head: (self.params["box"] == "centre and size, 0 to 1")
                .then(|| "RTDETRDecoder".to_owned()),
            ..Facts::default()
        }
    }
}

/// What a case gives: boxes in pixels of the input, best first, with what decodes it.
struct Found {
    decoder: Decoder,
    outputs: Vec<Tensor>,
    all: Vec<Candidate>,
    fit: Fit,
}

fn decoded(case: &Case, heads: &[Head], n_classes: usize) -> Found {
    let facts = case.facts();
    let mut names: Vec<Arc<str>> = (0..n_classes).map(|i| Arc::from(format!("{i}"))).collect();
    if n_classes == 91 {
        names[0] = Arc::from("__background__");
    }
    let expected = Expected {
        heads,
        names: &names,
        facts: &facts,
    };
    let outputs = case.outputs();
    let (head, layout) = expected.layout(&outputs, 1).expect("it fits");
    let size = case
        .size("input")
        .or_else(|| case.size("source"))
        .expect("a size");
    let decoder = Decoder {
        head,
        layout,
        n_classes,
        size,
        confidence: case.number("confidence").expect("a confidence"),
    };
    let by = match (head.overlaps(), case.params["agnostic"].as_bool()) {
        (false, _) => Suppress::None,
        (true, Some(true)) => Suppress::All,
        (true, _) => Suppress::Class,
    };
    let max = case.number("max").map_or(usize::MAX, |max| max as usize);
    let Decoded {
        candidates,
        left_out,
    } = decoder.decode(&outputs, 0);
    assert_eq!(left_out, 0, "{}", case.name);
    let all = suppress(candidates, by, case.number("iou").unwrap_or(1.0), max);
    let (width, height) = case.size("source").expect("a picture");
    let source = (width as u32, height as u32);
    let fit = match case.params["fit"] == "letterbox" {
        true => Fit::letterbox(source, size.0, size.1),
        false => Fit::stretch(source, size.0, size.1),
    };
    Found {
        decoder,
        outputs,
        all,
        fit,
    }
}

fn close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(
        found.len(),
        expected.len(),
        "{what}: {found:?} {expected:?}"
    );
    for (a, b) in found.iter().zip(expected) {
        assert!(
            (a - b).abs() < 2e-3,
            "{what}: {found:?} is not {expected:?}"
        );
    }
}

fn cases(text: &str) -> Vec<Case> {
    let vectors: Vectors = serde_json::from_str(text).expect("vectors");
    assert!(!vectors.cases.is_empty());
    vectors.cases
}

/// Checks boxes, scores and classes in pixels of the input and of the picture. What the library does not cut at the picture's edges is cut.
fn check(case: &Case, heads: &[Head], n_classes: usize) -> Found {
    let found = decoded(case, heads, n_classes);
    let row = |corners: [f32; 4], candidate: &Candidate| {
        let rest = [candidate.score, candidate.class as f32];
        [corners.as_slice(), &rest].concat()
    };
    let in_input: Vec<Vec<f32>> = found.all.iter().map(|c| row(c.corners, c)).collect();
    let in_source = found
        .all
        .iter()
        .map(|c| row(found.fit.to_source(c.corners), c));
    let in_source: Vec<Vec<f32>> = in_source.collect();
    if let Some(expected) = case.expected.get("in_input") {
        let expected = rows(expected);
        assert_eq!(in_input.len(), expected.len(), "{}", case.name);
        for (found, expected) in in_input.iter().zip(&expected) {
            close(found, expected, &case.name);
        }
    }
    let expected = rows(&case.expected["in_source"]);
    assert_eq!(in_source.len(), expected.len(), "{}", case.name);
    let (width, height) = case.size("source").expect("a picture");
    let cut = |row: &[f32]| {
        let bounds = [width, height, width, height].map(|side| side as f32);
        let mut row = row.to_vec();
        row.iter_mut()
            .zip(bounds)
            .for_each(|(v, max)| *v = v.clamp(0.0, max));
        row
    };
    let mut expected: Vec<Vec<f32>> = expected.iter().map(|row| cut(row)).collect();
    // Some libraries keep the order of the file.
    expected.sort_by(|a, b| b[4].total_cmp(&a[4]));
    for (found, expected) in in_source.iter().zip(&expected) {
        close(found, expected, &case.name);
    }
    found
}

#[test]
fn yolo_is_decoded_as_ultralytics_does() {
    for case in cases(include_str!("vectors/yolo.json")) {
        let found = check(&case, &Head::ALL, 4);
        assert_eq!(found.decoder.head, Head::Yolo);
    }
}

#[test]
fn yolov5_is_decoded_as_its_repository_does() {
    for case in cases(include_str!("vectors/yolov5.json")) {
        let found = check(&case, &Head::ALL, 4);
        assert_eq!(found.decoder.head, Head::Yolov5);
    }
}

#[test]
fn boxes_that_are_suppressed_already_stay() {
    for case in cases(include_str!("vectors/nms.json")) {
        let head = match case.params["box"] == "corners in pixels" {
            true => Head::Nms,
            false => Head::Detr,
        };
        let n_classes = case.expected["in_source"].as_array().expect("rows").iter();
        let n_classes = n_classes
            .map(|row| row[5].as_f64().expect("a class") as usize + 1)
            .max();
        check(&case, &[head], n_classes.expect("boxes").max(4));
    }
}

#[test]
fn detr_is_decoded_as_transformers_does() {
    for case in cases(include_str!("vectors/detr.json")) {
        check(&case, &[Head::Detr], 4);
    }
}

#[test]
fn ssd_is_decoded_as_torchvision_does() {
    for case in cases(include_str!("vectors/ssd.json")) {
        let n_classes = 4;
        let mut case = case;
        // Classes of the file count from 1, ours from 0 where the background has no name.
        for key in ["in_input", "in_source"] {
            for row in case.expected[key].as_array_mut().expect("rows") {
                row[5] = Json::from(row[5].as_f64().expect("a class") - 1.0);
            }
        }
        check(&case, &[Head::Ssd], n_classes);
    }
}

#[test]
fn lists_are_decoded_in_any_order_as_torchvision_gives_them() {
    for case in cases(include_str!("vectors/lists.json")) {
        check(&case, &Head::ALL, 91);
    }
}

#[test]
fn key_points_are_those_of_their_boxes() {
    for case in cases(include_str!("vectors/yolo-pose.json")) {
        let found = check(&case, &Head::ALL, 1);
        let (n, each) = case.facts().keypoints.expect("key points");
        let expected: Vec<Vec<Vec<f32>>> =
            serde_json::from_value(case.expected["points_in_input"].clone()).expect("points");
        for (candidate, expected) in found.all.iter().zip(&expected) {
            let extra = found.decoder.extra(&found.outputs, 0, candidate.at);
            assert_eq!(extra.len(), n * each);
            for (point, expected) in extra.chunks_exact(each).zip(expected) {
                close(point, expected, &case.name);
            }
        }
    }
}

/// Whether a point is within some outline: an odd number of sides lies right of it.
fn within(outlines: &[Vec<[f32; 2]>], x: f32, y: f32) -> bool {
    outlines.iter().any(|outline| {
        let next = outline.iter().cycle().skip(1);
        let crossed = outline.iter().zip(next).filter(|(a, b)| {
            (a[1] > y) != (b[1] > y) && x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0]
        });
        crossed.count() % 2 == 1
    })
}

#[test]
fn outlines_hold_the_masks_that_ultralytics_finds() {
    for case in cases(include_str!("vectors/yolo-seg.json")) {
        let found = check(&case, &Head::ALL, 4);
        let (width, height) = case.size("input").expect("a size");
        let prototypes = Prototypes::of(&found.outputs[1], 0, (width, height)).expect("prototypes");
        let expected: Vec<Vec<usize>> =
            serde_json::from_value(case.expected["masks_in_input"].clone()).expect("run lengths");
        assert_eq!(expected.len(), found.all.len());
        let mut n_filled = 0;
        for (candidate, runs) in found.all.iter().zip(&expected) {
            let mut mask = Vec::new();
            for (i, run) in runs.iter().enumerate() {
                mask.extend(std::iter::repeat_n(i % 2 == 1, *run));
            }
            assert_eq!(mask.len(), width * height);
            let coefficients = found.decoder.extra(&found.outputs, 0, candidate.at);
            let outlines = prototypes.outlines(&coefficients, candidate.corners);
            let [x0, y0, x1, y1] = candidate.corners;
            // Ultralytics cuts at the numbers of pixels and not at their centres: the pixels along the box's sides are not compared.
            let inner =
                |x: f32, y: f32| x > x0 + 1.0 && x < x1 - 1.0 && y > y0 + 1.0 && y < y1 - 1.0;
            let beside =
                |x: f32, y: f32| x < x0 - 1.0 || x > x1 + 1.0 || y < y0 - 1.0 || y > y1 + 1.0;
            let differ = (0..mask.len()).filter(|at| {
                let (x, y) = ((at % width) as f32 + 0.5, (at / width) as f32 + 0.5);
                (inner(x, y) || beside(x, y)) && within(&outlines, x, y) != mask[*at]
            });
            let filled = mask.iter().filter(|is| **is).count();
            n_filled += filled;
            let differ = differ.count();
            // A line within a cell is straight, and the bilinear one is bent.
            assert!(
                differ <= 2 + filled / 20,
                "{differ} of {filled} pixels of {:?}",
                candidate.corners
            );
        }
        assert!(n_filled > 0);
    }
}

#[test]
fn letterboxes_lie_where_those_of_ultralytics_do() {
    for case in cases(include_str!("vectors/letterbox.json")) {
        for place in rows(&case.expected["places"]) {
            let [h, w, source_h, source_w, scaled_h, scaled_w, top, left] = place[..] else {
                panic!("{place:?}")
            };
            let fit = Fit::letterbox((source_w as u32, source_h as u32), w as usize, h as usize);
            let [x0, y0, x1, y1] = fit.to_input([0.0, 0.0, source_w, source_h]);
            close(
                &[x0, y0, x1 - x0, y1 - y0],
                &[left, top, scaled_w, scaled_h],
                &format!("{place:?}"),
            );
        }
    }
}

const NAN: f32 = f32::NAN;
const INFINITY: f32 = f32::INFINITY;

/// What a head finds in one row of four boxes: a sound one, one without area, and two whose numbers are none.
fn of_four(head: Head, outputs: &[Tensor], facts: &Facts) -> Decoded {
    let first = if head == Head::Lists {
        "__background__"
    } else {
        "a"
    };
    let names: Vec<Arc<str>> = [first, "b"].map(Arc::from).to_vec();
    let heads = [head];
    let expected = Expected {
        heads: &heads,
        names: &names,
        facts,
    };
    let (head, layout) = expected.layout(outputs, 1).expect("it fits");
    let decoder = Decoder {
        head,
        layout,
        n_classes: 2,
        size: (10, 10),
        confidence: 0.5,
    };
    decoder.decode(outputs, 0)
}

#[test]
fn boxes_that_are_none_are_left_out_and_counted_by_each_head() {
    let tensor = |shape: &[i64], data: &[f32]| Tensor::new(shape.to_vec(), data.to_vec());
    let facts = Facts::default();
    let columns = [
        [5.0, 5.0, 5.0, 5.0],
        [5.0, 5.0, 5.0, 5.0],
        [2.0, 0.0, NAN, 2.0],
        [2.0, 2.0, 2.0, 2.0],
        [0.9, 0.9, 0.9, NAN],
        [0.1, 0.1, 0.1, NAN],
    ];
    let yolo = [tensor(&[1, 6, 4], &columns.concat())];
    let v5 = [
        [5.0, 5.0, 2.0, 2.0, 1.0, 0.9, 0.1],
        [5.0, 5.0, 0.0, 2.0, 1.0, 0.9, 0.1],
        [5.0, INFINITY, 2.0, 2.0, 1.0, 0.9, 0.1],
        [5.0, 5.0, 2.0, 2.0, NAN, 0.9, 0.1],
    ];
    let v5 = [tensor(&[1, 4, 7], &v5.concat())];
    let nms = [
        [4.0, 4.0, 6.0, 6.0, 0.9, 0.0],
        [4.0, 4.0, 4.0, 6.0, 0.9, 0.0],
        [4.0, 4.0, 6.0, 6.0, INFINITY, 0.0],
        [4.0, 4.0, 6.0, 6.0, 0.9, 2.0],
    ];
    let nms = [tensor(&[1, 4, 6], &nms.concat())];
    let boxes = [
        [0.4, 0.4, 0.6, 0.6],
        [0.4, 0.4, 0.4, 0.6],
        [NAN, 0.4, 0.6, 0.6],
        [0.4, 0.4, 0.6, 0.6],
    ];
    let scores = [[0.1, 0.9, 0.0], [0.1, 0.9, 0.0], [0.1, 0.9, 0.0], [NAN; 3]];
    let ssd = [
        tensor(&[1, 4, 4], &boxes.concat()),
        tensor(&[1, 4, 3], &scores.concat()),
    ];
    let centred = [
        [0.5, 0.5, 0.2, 0.2],
        [0.5, 0.5, 0.2, 0.0],
        [0.5, 0.5, INFINITY, 0.2],
        [0.5, 0.5, 0.2, 0.2],
    ];
    let logits = [[9.0, 0.0, 0.0], [9.0, 0.0, 0.0], [9.0, 0.0, 0.0], [NAN; 3]];
    let softmax = [
        tensor(&[1, 4, 3], &logits.concat()),
        tensor(&[1, 4, 4], &centred.concat()),
    ];
    let logits = [[9.0, -9.0], [9.0, -9.0], [9.0, -9.0], [NAN; 2]];
    let sigmoid = [
        tensor(&[1, 4, 2], &logits.concat()),
        tensor(&[1, 4, 4], &centred.concat()),
    ];
    let pixels = boxes.map(|corners| corners.map(|v| v * 10.0));
    let lists = [
        tensor(&[1, 4, 4], &pixels.concat()),
        tensor(&[1, 4], &[0.9, 0.9, 0.9, 0.9]),
        tensor(&[1, 4], &[1.0, 1.0, 1.0, NAN]),
    ];
    for (head, outputs) in [
        (Head::Yolo, &yolo[..]),
        (Head::Yolov5, &v5),
        (Head::Nms, &nms),
        (Head::Ssd, &ssd),
        (Head::Detr, &softmax),
        (Head::Detr, &sigmoid),
        (Head::Lists, &lists),
    ] {
        let Decoded {
            candidates,
            left_out,
        } = of_four(head, outputs, &facts);
        assert_eq!(
            (candidates.len(), left_out),
            (1, 3),
            "{head:?} {candidates:?}"
        );
        close(&candidates[0].corners, &[4.0, 4.0, 6.0, 6.0], head.word());
    }
}

#[test]
fn rows_that_only_fill_up_are_not_counted() {
    let rows = [[4.0, 4.0, 6.0, 6.0, 0.9, 0.0], [0.0; 6], [-1.0; 6]];
    let outputs = [Tensor::new(vec![1, 3, 6], rows.concat())];
    let Decoded {
        candidates,
        left_out,
    } = of_four(Head::Nms, &outputs, &Facts::default());
    assert_eq!((candidates.len(), left_out), (1, 0));
    for head in [Head::Detr, Head::Ssd, Head::Lists] {
        let n = if head == Head::Ssd { 3 } else { 2 };
        let mut outputs = vec![
            Tensor::new(vec![1, 0, 4], vec![]),
            Tensor::new(vec![1, 0, n], vec![]),
        ];
        if head == Head::Lists {
            outputs.truncate(1);
            outputs.extend([
                Tensor::new(vec![1, 0], vec![]),
                Tensor::new(vec![1, 0], vec![]),
            ]);
        }
        assert_eq!(
            of_four(head, &outputs, &Facts::default()),
            Decoded::default()
        );
    }
}

#[test]
fn what_fits_no_head_or_several_is_refused_with_what_would_fit() {
    let names: Vec<Arc<str>> = ["a"].map(Arc::from).to_vec();
    let facts = Facts::default();
    let of = |heads: &[Head], shape: &[i64]| {
        let n = shape.iter().product::<i64>() as usize;
        let outputs = [Tensor::new(shape.to_vec(), vec![0.0; n])];
        let expected = Expected {
            heads,
            names: &names,
            facts: &facts,
        };
        expected.layout(&outputs, 2)
    };
    let error = of(&Head::ALL, &[2, 3, 6]).unwrap_err();
    assert_eq!(
        error,
        "its outputs [2, 3, 6] may be of the head yolov5 or nms or detr; say which: options: { head: ... }"
    );
    assert_eq!(of(&[Head::Nms], &[2, 3, 6]).map(|fit| fit.0), Ok(Head::Nms));
    let error = of(&[Head::Yolo], &[2, 84, 10]).unwrap_err();
    assert_eq!(
        error,
        "its outputs have the shapes [2, 84, 10], and 1 classes are named; needed: yolo [batch, 5, n] (4 of the box, 1 classes). Name as many \
         classes as it has, or another head in options: { head: ... }"
    );
    let error = of(&Head::ALL, &[1, 5, 10]).unwrap_err();
    assert!(
        error.contains("for 2 pictures its outputs have the shapes [1, 5, 10]"),
        "{error}"
    );
}

#[test]
fn lists_whose_names_do_not_begin_with_the_background_are_refused() {
    for case in cases(include_str!("vectors/lists.json")) {
        let facts = case.facts();
        let names: Vec<Arc<str>> = ["person", "bicycle"].map(Arc::from).to_vec();
        let expected = Expected {
            heads: &Head::ALL,
            names: &names,
            facts: &facts,
        };
        let error = expected.layout(&case.outputs(), 1).unwrap_err();
        assert!(
            error.contains(
                "the first of its names is \"person\"; let the names begin with __background__"
            ),
            "{error}"
        );
    }
}

#[test]
fn what_is_no_detector_is_told_by_its_task() {
    let said = |task: &str, head: Option<&str>| {
        let facts = Facts {
            task: Some(task.to_owned()),
            head: head.map(str::to_owned),
            ..Facts::default()
        };
        Head::said(&facts)
    };
    assert_eq!(said("detect", None), Ok(Head::ALL.to_vec()));
    assert_eq!(
        said("detect", Some("Detect")),
        Ok(vec![Head::Yolo, Head::Nms])
    );
    assert_eq!(said("detect", Some("RTDETRDecoder")), Ok(vec![Head::Detr]));
    assert_eq!(
        said("segment", Some("SomethingNew")),
        Ok(vec![Head::Yolo, Head::Nms])
    );
    assert_eq!(said("detect", Some("ssd")), Ok(vec![Head::Ssd]));
    assert_eq!(said("object-detection", None), Ok(Head::ALL.to_vec()));
    let ends = Facts {
        suppresses: true,
        ..Facts::default()
    };
    assert_eq!(Head::said(&ends), Ok(vec![Head::Nms]));
    for (task, head, right) in [
        ("classify", Some("Classify"), "op: classifier"),
        ("obb", Some("OBB"), "oriented boxes"),
        ("embed", None, "embedder"),
    ] {
        let error = said(task, head).unwrap_err();
        assert!(error.contains(right), "{error}");
    }
}
