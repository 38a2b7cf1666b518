//! Values that flow between modules. What floats in them mean is the modules' own affair: any are passed on.

use std::sync::Arc;

use spillgate_pipeline::catalog::OUTPUTS_MAX;
use spillgate_pipeline::spec::OBJECTS_MAX;
use spillgate_process::value::{Detection, Image, Label, Tensor, Text, Value};
use spillgate_proto::link as pb;

use super::Carried;
use super::bounds::DIMENSIONS_MAX;
use super::error::{WireError, field};
use pb::value::Value as Wire;

/// Most boxes, texts or labels of a value.
const OBJECTS: usize = OBJECTS_MAX as usize;

pub(super) fn encode(outputs: &[Carried]) -> pb::Outputs {
    let value = |carried: &Carried| pb::Value {
        value: Some(match carried {
            Carried::Value(value) => encode_value(value),
            Carried::Kept => Wire::Kept(pb::Kept {}),
            Carried::Unused => Wire::Unused(pb::Unused {}),
        }),
    };
    pb::Outputs {
        values: outputs.iter().map(value).collect(),
    }
}

pub(super) fn decode(outputs: pb::Outputs) -> Result<Vec<Carried>, WireError> {
    field("Outputs", "values").at_most(outputs.values.len(), OUTPUTS_MAX)?;
    outputs.values.into_iter().map(decode_value).collect()
}

fn encode_value(value: &Value) -> Wire {
    match value {
        Value::Image(image) => Wire::Image(pb::Image {
            width: image.width,
            height: image.height,
            rgb: image.rgb.clone(),
        }),
        Value::Bytes(data) => Wire::Data(data.clone()),
        Value::Boxes(boxes) => Wire::Boxes(pb::Boxes {
            boxes: boxes.iter().map(encode_box).collect(),
        }),
        Value::Texts(texts) => Wire::Texts(pb::Texts {
            texts: texts.iter().map(encode_text).collect(),
        }),
        Value::Labels(labels) => Wire::Labels(pb::Labels {
            labels: labels.iter().map(encode_label).collect(),
        }),
        Value::Tensor(tensor) => Wire::Tensor(pb::Tensor {
            shape: tensor.shape.clone(),
            data: tensor.data.clone(),
        }),
    }
}

fn decode_value(value: pb::Value) -> Result<Carried, WireError> {
    Ok(Carried::Value(
        match field("Value", "value").required(value.value)? {
            Wire::Kept(pb::Kept {}) => return Ok(Carried::Kept),
            Wire::Unused(pb::Unused {}) => return Ok(Carried::Unused),
            Wire::Image(image) => Value::Image(Arc::new(decode_image(image)?)),
            Wire::Data(data) => Value::Bytes(data),
            Wire::Boxes(pb::Boxes { boxes }) => {
                field("Boxes", "boxes").at_most(boxes.len(), OBJECTS)?;
                Value::Boxes(boxes.into_iter().map(decode_box).collect())
            }
            Wire::Texts(pb::Texts { texts }) => {
                field("Texts", "texts").at_most(texts.len(), OBJECTS)?;
                Value::Texts(texts.into_iter().map(decode_text).collect())
            }
            Wire::Labels(pb::Labels { labels }) => {
                field("Labels", "labels").at_most(labels.len(), OBJECTS)?;
                Value::Labels(labels.into_iter().map(decode_label).collect())
            }
            Wire::Tensor(tensor) => Value::Tensor(Arc::new(decode_tensor(tensor)?)),
        },
    ))
}

fn decode_image(image: pb::Image) -> Result<Image, WireError> {
    let pb::Image { width, height, rgb } = image;
    let bytes = u128::from(width) * u128::from(height) * 3;
    if rgb.len() as u128 != bytes {
        let was = format!("has {} bytes", rgb.len());
        let right = format!("{width} x {height} pixels have {bytes}");
        return Err(field("Image", "rgb").wrong(was, right));
    }
    Ok(Image { width, height, rgb })
}

fn encode_box(detection: &Detection) -> pb::Box {
    pb::Box {
        x0: detection.x0,
        y0: detection.y0,
        x1: detection.x1,
        y1: detection.y1,
        class: detection.class,
        label: detection.label.as_ref().to_owned(),
        score: detection.score,
    }
}

fn decode_box(of: pb::Box) -> Detection {
    Detection {
        x0: of.x0,
        y0: of.y0,
        x1: of.x1,
        y1: of.y1,
        class: of.class,
        label: of.label.into(),
        score: of.score,
    }
}

fn encode_text(text: &Text) -> pb::Text {
    pb::Text {
        text: text.text.clone(),
        score: text.score,
    }
}

fn decode_text(text: pb::Text) -> Text {
    Text {
        text: text.text,
        score: text.score,
    }
}

fn encode_label(label: &Label) -> pb::Label {
    pb::Label {
        label: label.label.as_ref().to_owned(),
        score: label.score,
    }
}

fn decode_label(label: pb::Label) -> Label {
    Label {
        label: label.label.into(),
        score: label.score,
    }
}

fn decode_tensor(tensor: pb::Tensor) -> Result<Tensor, WireError> {
    let pb::Tensor { shape, data } = tensor;
    let of = field("Tensor", "shape");
    of.at_most(shape.len(), DIMENSIONS_MAX)?;
    if let Some(side) = shape.iter().find(|side| **side < 0) {
        return Err(of.wrong(format!("has the side {side}"), "no side is below 0"));
    }
    let product = |n: i64, side: &i64| n.checked_mul(*side);
    if shape.iter().try_fold(1, product) != i64::try_from(data.len()).ok() {
        let was = format!("is {shape:?}");
        let right = format!("its product must be the {} elements", data.len());
        return Err(of.wrong(was, right));
    }
    Ok(Tensor { shape, data })
}
