//! Values that flow between modules. What floats in them mean is the modules' own affair: any are passed on.

use std::sync::Arc;

use spillgate_pipeline::catalog::OUTPUTS_MAX;
use spillgate_pipeline::spec::OBJECTS_MAX;
use spillgate_process::value::{
    Detection, Embedding, Image, Keypoint, Keypoints, Label, LeftOut, Mask, Tensor, Text, Value,
};
use spillgate_proto::link as pb;

use super::Carried;
use super::bounds::{DIMENSIONS_MAX, POLYGONS_MAX};
use super::error::{Field, WireError, field};
use pb::value::Value as Wire;

/// Most entries of a list of objects, and rows of a tensor that were left out.
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
            left_out: tensor.left_out.clone(),
        }),
        Value::Masks(masks) => Wire::Masks(pb::Masks {
            masks: masks.iter().map(encode_mask).collect(),
        }),
        Value::Keypoints(all) => Wire::Keypoints(pb::Keypoints {
            objects: all.iter().map(encode_keypoints).collect(),
        }),
        Value::Embeddings(all) => Wire::Embeddings(pb::Embeddings {
            embeddings: all.iter().map(encode_embedding).collect(),
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
                let texts = texts.into_iter().map(decode_text);
                Value::Texts(texts.collect::<Result<_, _>>()?)
            }
            Wire::Labels(pb::Labels { labels }) => {
                field("Labels", "labels").at_most(labels.len(), OBJECTS)?;
                let labels = labels.into_iter().map(decode_label);
                Value::Labels(labels.collect::<Result<_, _>>()?)
            }
            Wire::Tensor(tensor) => Value::Tensor(Arc::new(decode_tensor(tensor)?)),
            Wire::Masks(pb::Masks { masks }) => {
                field("Masks", "masks").at_most(masks.len(), OBJECTS)?;
                let masks = masks.into_iter().map(decode_mask);
                Value::Masks(masks.collect::<Result<_, _>>()?)
            }
            Wire::Keypoints(pb::Keypoints { objects }) => {
                field("Keypoints", "objects").at_most(objects.len(), OBJECTS)?;
                let all = objects.into_iter().map(decode_keypoints);
                Value::Keypoints(all.collect::<Result<_, _>>()?)
            }
            Wire::Embeddings(pb::Embeddings { embeddings }) => {
                field("Embeddings", "embeddings").at_most(embeddings.len(), OBJECTS)?;
                let all = embeddings.into_iter().map(decode_embedding);
                Value::Embeddings(all.collect::<Result<_, _>>()?)
            }
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
        left_out: encode_left_out(text.left_out),
    }
}

fn decode_text(text: pb::Text) -> Result<Text, WireError> {
    Ok(Text {
        text: text.text,
        score: text.score,
        left_out: decode_left_out(field("Text", "left_out"), text.left_out)?,
    })
}

fn encode_label(label: &Label) -> pb::Label {
    pb::Label {
        label: label.label.as_ref().to_owned(),
        score: label.score,
        left_out: encode_left_out(label.left_out),
    }
}

fn decode_label(label: pb::Label) -> Result<Label, WireError> {
    Ok(Label {
        label: label.label.into(),
        score: label.score,
        left_out: decode_left_out(field("Label", "left_out"), label.left_out)?,
    })
}

fn encode_left_out(why: Option<LeftOut>) -> i32 {
    match why {
        None => pb::LeftOut::None,
        Some(LeftOut::NoArea) => pb::LeftOut::NoArea,
        Some(LeftOut::OverLimit) => pb::LeftOut::OverLimit,
        Some(LeftOut::NoNumber) => pb::LeftOut::NoNumber,
    }
    .into()
}

fn decode_left_out(of: Field, why: i32) -> Result<Option<LeftOut>, WireError> {
    Ok(match pb::LeftOut::try_from(why) {
        Ok(pb::LeftOut::None) => None,
        Ok(pb::LeftOut::NoArea) => Some(LeftOut::NoArea),
        Ok(pb::LeftOut::OverLimit) => Some(LeftOut::OverLimit),
        Ok(pb::LeftOut::NoNumber) => Some(LeftOut::NoNumber),
        Err(_) => return Err(of.is(why, "it must be a reason from 0 to 3")),
    })
}

fn encode_mask(mask: &Mask) -> pb::Mask {
    let polygon = |points: &Vec<[f32; 2]>| pb::Polygon {
        points: points.as_flattened().to_vec(),
    };
    pb::Mask {
        polygons: mask.polygons.iter().map(polygon).collect(),
    }
}

fn decode_mask(mask: pb::Mask) -> Result<Mask, WireError> {
    let pb::Mask { polygons } = mask;
    field("Mask", "polygons").at_most(polygons.len(), POLYGONS_MAX)?;
    let polygons = polygons.into_iter();
    let polygons = polygons.map(|of| Ok(pairs(field("Polygon", "points"), &of.points)?.to_vec()));
    Ok(Mask {
        polygons: polygons.collect::<Result<_, WireError>>()?,
    })
}

/// Column and row of each point.
fn pairs(of: Field, points: &[f32]) -> Result<&[[f32; 2]], WireError> {
    match points.as_chunks() {
        (pairs, []) => Ok(pairs),
        _ => Err(of.has(points.len(), "it must have two a point")),
    }
}

fn encode_keypoints(of: &Keypoints) -> pb::ObjectKeypoints {
    pb::ObjectKeypoints {
        points: of.points.iter().flat_map(|p| [p.x, p.y]).collect(),
        scores: of.points.iter().map(|p| p.score).collect(),
    }
}

fn decode_keypoints(of: pb::ObjectKeypoints) -> Result<Keypoints, WireError> {
    let pb::ObjectKeypoints { points, scores } = of;
    let places = pairs(field("ObjectKeypoints", "points"), &points)?;
    if places.len() != scores.len() {
        let of = field("ObjectKeypoints", "scores");
        let right = format!("it must have one for each of the {} points", places.len());
        return Err(of.has(scores.len(), right));
    }
    let points = places.iter().zip(scores);
    let points = points.map(|(&[x, y], score)| Keypoint { x, y, score });
    Ok(Keypoints {
        points: points.collect(),
    })
}

fn encode_embedding(of: &Embedding) -> pb::Embedding {
    pb::Embedding {
        values: of.values.clone(),
        left_out: encode_left_out(of.left_out),
    }
}

fn decode_embedding(of: pb::Embedding) -> Result<Embedding, WireError> {
    Ok(Embedding {
        values: of.values,
        left_out: decode_left_out(field("Embedding", "left_out"), of.left_out)?,
    })
}

fn decode_tensor(tensor: pb::Tensor) -> Result<Tensor, WireError> {
    let pb::Tensor {
        shape,
        data,
        left_out,
    } = tensor;
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
    let rows = shape.first().copied().unwrap_or_default();
    check_left_out(&left_out, rows)?;
    Ok(Tensor {
        shape,
        data,
        left_out,
    })
}

/// Rows of a tensor of so many: each once, ascending.
fn check_left_out(left_out: &[u32], rows: i64) -> Result<(), WireError> {
    let of = field("Tensor", "left_out");
    of.at_most(left_out.len(), OBJECTS)?;
    if let Some(row) = left_out.iter().find(|row| i64::from(**row) >= rows) {
        let right = format!("the tensor has {rows} rows");
        return Err(of.wrong(format!("has the row {row}"), right));
    }
    if !left_out.is_sorted_by(|a, b| a < b) {
        return Err(of.wrong(format!("is {left_out:?}"), "rows must ascend"));
    }
    Ok(())
}
