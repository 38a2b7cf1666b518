//! Parcels and values that contradict themselves.

use bytes::Bytes;
use expect_test::{Expect, expect};

use super::*;
use pb::value::Value;

/// A parcel with this one output of module 1 is refused.
fn check_value(value: Value, sentence: Expect) {
    let values = vec![pb::Value { value: Some(value) }];
    check(carrying(outputs(values)), sentence);
}

fn outputs(values: Vec<pb::Value>) -> pb::Parcel {
    let module = pb::ModuleOutputs {
        module: 1,
        outputs: Some(pb::Outputs { values }),
    };
    pb::Parcel {
        modules: vec![module],
        ..Default::default()
    }
}

#[test]
fn more_modules_or_outputs_than_there_can_be() {
    let parcel = pb::Parcel {
        modules: vec![pb::ModuleOutputs::default(); 1026],
        ..Default::default()
    };
    check(
        carrying(parcel),
        expect!["Parcel.modules has 1026 entries; it may have at most 1025"],
    );
    check(
        carrying(outputs(vec![pb::Value::default(); 65])),
        expect!["Outputs.values has 65 entries; it may have at most 64"],
    );
}

#[test]
fn outputs_or_a_value_that_is_missing() {
    let parcel = pb::Parcel {
        modules: vec![pb::ModuleOutputs::default()],
        ..Default::default()
    };
    check(
        carrying(parcel),
        expect!["ModuleOutputs.outputs is missing; each ModuleOutputs has it"],
    );
    check(
        carrying(outputs(vec![pb::Value::default()])),
        expect!["Value.value is missing; each Value has it"],
    );
}

#[test]
fn a_picture_of_another_size_than_its_bytes() {
    let image = |width, height, bytes| {
        Value::Image(pb::Image {
            width,
            height,
            rgb: Bytes::from(vec![0; bytes]),
        })
    };
    check_value(
        image(2, 2, 11),
        expect!["Image.rgb has 11 bytes; 2 x 2 pixels have 12"],
    );
    check_value(
        image(u32::MAX, u32::MAX, 0),
        expect!["Image.rgb has 0 bytes; 4294967295 x 4294967295 pixels have 55340232195358851075"],
    );
}

#[test]
fn a_tensor_of_another_shape_than_its_elements() {
    let tensor = |shape: &[i64], n| {
        Value::Tensor(pb::Tensor {
            shape: shape.to_vec(),
            data: vec![0.0; n],
            left_out: Vec::new(),
        })
    };
    check_value(
        tensor(&[2, 3], 5),
        expect!["Tensor.shape is [2, 3]; its product must be the 5 elements"],
    );
    check_value(
        tensor(&[-2, -3], 6),
        expect!["Tensor.shape has the side -2; no side is below 0"],
    );
    check_value(
        tensor(&[i64::MAX, 4], 1),
        expect!["Tensor.shape is [9223372036854775807, 4]; its product must be the 1 elements"],
    );
    check_value(
        tensor(&[1; 65], 1),
        expect!["Tensor.shape has 65 entries; it may have at most 64"],
    );
}

#[test]
fn more_objects_than_a_frame_brings() {
    let boxes = vec![pb::Box::default(); 65_537];
    check_value(
        Value::Boxes(pb::Boxes { boxes }),
        expect!["Boxes.boxes has 65537 entries; it may have at most 65536"],
    );
    let texts = vec![pb::Text::default(); 65_537];
    check_value(
        Value::Texts(pb::Texts { texts }),
        expect!["Texts.texts has 65537 entries; it may have at most 65536"],
    );
    let labels = vec![pb::Label::default(); 65_537];
    check_value(
        Value::Labels(pb::Labels { labels }),
        expect!["Labels.labels has 65537 entries; it may have at most 65536"],
    );
    let masks = vec![pb::Mask::default(); 65_537];
    check_value(
        Value::Masks(pb::Masks { masks }),
        expect!["Masks.masks has 65537 entries; it may have at most 65536"],
    );
    let objects = vec![pb::ObjectKeypoints::default(); 65_537];
    check_value(
        Value::Keypoints(pb::Keypoints { objects }),
        expect!["Keypoints.objects has 65537 entries; it may have at most 65536"],
    );
    let embeddings = vec![pb::Embedding::default(); 65_537];
    check_value(
        Value::Embeddings(pb::Embeddings { embeddings }),
        expect!["Embeddings.embeddings has 65537 entries; it may have at most 65536"],
    );
}

#[test]
fn more_polygons_than_a_mask_may_have() {
    let mask = pb::Mask {
        polygons: vec![pb::Polygon::default(); 65_537],
    };
    check_value(
        Value::Masks(pb::Masks { masks: vec![mask] }),
        expect!["Mask.polygons has 65537 entries; it may have at most 65536"],
    );
}

#[test]
fn points_without_a_row_or_a_score() {
    let polygon = pb::Polygon {
        points: vec![1.0; 7],
    };
    let mask = pb::Mask {
        polygons: vec![polygon],
    };
    check_value(
        Value::Masks(pb::Masks { masks: vec![mask] }),
        expect!["Polygon.points has 7 entries; it must have two a point"],
    );
    let keypoints = |points, scores| {
        let of = pb::ObjectKeypoints {
            points: vec![1.0; points],
            scores: vec![1.0; scores],
        };
        Value::Keypoints(pb::Keypoints { objects: vec![of] })
    };
    check_value(
        keypoints(3, 1),
        expect!["ObjectKeypoints.points has 3 entries; it must have two a point"],
    );
    check_value(
        keypoints(4, 1),
        expect!["ObjectKeypoints.scores has 1 entries; it must have one for each of the 2 points"],
    );
}

#[test]
fn reasons_and_rows_that_there_are_not() {
    let embedding = pb::Embedding {
        left_out: 4,
        ..Default::default()
    };
    check_value(
        Value::Embeddings(pb::Embeddings {
            embeddings: vec![embedding],
        }),
        expect!["Embedding.left_out is 4; it must be a reason from 0 to 3"],
    );
    let text = pb::Text {
        left_out: -1,
        ..Default::default()
    };
    check_value(
        Value::Texts(pb::Texts { texts: vec![text] }),
        expect!["Text.left_out is -1; it must be a reason from 0 to 3"],
    );
    let label = pb::Label {
        left_out: 9,
        ..Default::default()
    };
    let labels = vec![label];
    check_value(
        Value::Labels(pb::Labels { labels }),
        expect!["Label.left_out is 9; it must be a reason from 0 to 3"],
    );
    let tensor = |left_out: &[u32]| {
        Value::Tensor(pb::Tensor {
            shape: vec![2, 1],
            data: vec![0.0; 2],
            left_out: left_out.to_vec(),
        })
    };
    check_value(
        tensor(&[0, 2]),
        expect!["Tensor.left_out has the row 2; the tensor has 2 rows"],
    );
    check_value(
        tensor(&[1, 0]),
        expect!["Tensor.left_out is [1, 0]; rows must ascend"],
    );
    check_value(
        tensor(&[0; 65_537]),
        expect!["Tensor.left_out has 65537 entries; it may have at most 65536"],
    );
}
