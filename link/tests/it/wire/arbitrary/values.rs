//! Parcels and values.

use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use spillgate_link::wire::{Carried, Parcel};
use spillgate_picture::{Frame, FrameFormat};
use spillgate_process::value::{
    Detection, Embedding, Image, Keypoint, Keypoints, Label, LeftOut, Mask, Tensor, Text, Value,
};

use super::{module, text};

pub(super) fn parcel() -> impl Strategy<Value = Parcel> {
    let outputs = vec((module(), outputs()), 0..3);
    let parts = (option::of(frame()), outputs, any::<(bool, bool)>());
    parts.prop_map(|(frame, outputs, (keep, is_traced))| Parcel {
        frame,
        outputs,
        keep,
        is_traced,
    })
}

pub(super) fn outputs() -> impl Strategy<Value = Vec<Carried>> {
    vec(carried(), 0..4)
}

fn carried() -> impl Strategy<Value = Carried> {
    prop_oneof![
        6 => value().prop_map(Carried::Value),
        1 => Just(Carried::Kept),
        1 => Just(Carried::Unused),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let formats = [
        FrameFormat::Auto,
        FrameFormat::Jpeg,
        FrameFormat::Png,
        FrameFormat::Webp,
        FrameFormat::Rgb8,
        FrameFormat::Bytes,
    ];
    let format = proptest::sample::select(formats.to_vec());
    (format, bytes(), any::<(u32, u32)>()).prop_map(|(format, data, (width, height))| Frame {
        format,
        data,
        width,
        height,
    })
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..100).prop_map(Bytes::from)
}

/// Any float that equals itself.
fn float() -> impl Strategy<Value = f32> {
    use proptest::num::f32;
    f32::NORMAL | f32::SUBNORMAL | f32::POSITIVE | f32::NEGATIVE | f32::ZERO | f32::INFINITE
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        image().prop_map(|image| Value::Image(Arc::new(image))),
        bytes().prop_map(Value::Bytes),
        vec(detection(), 0..4).prop_map(|boxes| Value::Boxes(boxes.into())),
        vec(read(), 0..4).prop_map(|texts| Value::Texts(texts.into())),
        vec(label(), 0..4).prop_map(|labels| Value::Labels(labels.into())),
        tensor().prop_map(|tensor| Value::Tensor(Arc::new(tensor))),
        vec(mask(), 0..4).prop_map(|masks| Value::Masks(masks.into())),
        vec(keypoints(), 0..4).prop_map(|all| Value::Keypoints(all.into())),
        vec(embedding(), 0..4).prop_map(|all| Value::Embeddings(all.into())),
    ]
}

fn image() -> impl Strategy<Value = Image> {
    let sides = (0u32..6, 0u32..6);
    let filled = |(width, height): (u32, u32)| {
        let rgb = vec(any::<u8>(), (width * height * 3) as usize);
        rgb.prop_map(move |rgb| Image {
            width,
            height,
            rgb: rgb.into(),
        })
    };
    sides.prop_flat_map(filled)
}

fn detection() -> impl Strategy<Value = Detection> {
    let corners = (float(), float(), float(), float());
    (corners, any::<u32>(), text(), float()).prop_map(|((x0, y0, x1, y1), class, label, score)| {
        Detection {
            x0,
            y0,
            x1,
            y1,
            class,
            label: label.into(),
            score,
        }
    })
}

fn read() -> impl Strategy<Value = Text> {
    (text(), float(), left_out()).prop_map(|(text, score, left_out)| Text {
        text,
        score,
        left_out,
    })
}

fn left_out() -> impl Strategy<Value = Option<LeftOut>> {
    let all = [None, Some(LeftOut::NoArea), Some(LeftOut::OverLimit)];
    proptest::sample::select(all.to_vec())
}

fn mask() -> impl Strategy<Value = Mask> {
    let point = (float(), float()).prop_map(|(x, y)| [x, y]);
    vec(vec(point, 0..5), 0..3).prop_map(|polygons| Mask { polygons })
}

fn keypoints() -> impl Strategy<Value = Keypoints> {
    let point = (float(), float(), float()).prop_map(|(x, y, score)| Keypoint { x, y, score });
    vec(point, 0..5).prop_map(|points| Keypoints { points })
}

fn embedding() -> impl Strategy<Value = Embedding> {
    let parts = (vec(float(), 0..6), left_out());
    parts.prop_map(|(values, left_out)| Embedding { values, left_out })
}

fn label() -> impl Strategy<Value = Label> {
    (text(), float(), left_out()).prop_map(|(label, score, left_out)| Label {
        label: label.into(),
        score,
        left_out,
    })
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let filled = |shape: Vec<i64>| {
        let n: i64 = shape.iter().product();
        let rows = shape.first().map_or(0, |rows| *rows as u32);
        let which = vec(any::<bool>(), rows as usize);
        (vec(float(), n as usize), which).prop_map(move |(data, which)| Tensor {
            left_out: (0..rows).filter(|row| which[*row as usize]).collect(),
            ..Tensor::new(shape.clone(), data)
        })
    };
    vec(0i64..4, 0..4).prop_flat_map(filled)
}
