//! Values that flow between modules. Cloning one copies a pointer, never a payload.

use std::sync::Arc;

use bytes::Bytes;
use spillgate_pipeline::catalog::ValueType;

use crate::account::{Full, Holder};

/// Inputs of one request: one entry for each input of the type, in its order; `None` for an optional
/// one that is not wired or whose module was skipped.
pub type Inputs = Vec<Option<Value>>;

/// Outputs of one request: one value for each output of the type, in its order.
pub type Outputs = Vec<Value>;

/// A value on an edge.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A decoded picture.
    Image(Arc<Image>),
    /// Opaque bytes.
    Bytes(Bytes),
    /// Objects found in the source picture.
    Boxes(Arc<[Detection]>),
    /// Texts, one a box.
    Texts(Arc<[Text]>),
    /// Labels, one a box or one a frame.
    Labels(Arc<[Label]>),
    /// A dense array.
    Tensor(Arc<Tensor>),
    /// Outlines, one mask a box.
    Masks(Arc<[Mask]>),
    /// Key points, one set a box.
    Keypoints(Arc<[Keypoints]>),
    /// Embeddings, one a box or one a frame.
    Embeddings(Arc<[Embedding]>),
}

impl Value {
    /// Its type.
    pub fn ty(&self) -> ValueType {
        match self {
            Value::Image(_) => ValueType::Image,
            Value::Bytes(_) => ValueType::Bytes,
            Value::Boxes(_) => ValueType::Boxes,
            Value::Texts(_) => ValueType::Texts,
            Value::Labels(_) => ValueType::Labels,
            Value::Tensor(_) => ValueType::Tensor,
            Value::Masks(_) => ValueType::Masks,
            Value::Keypoints(_) => ValueType::Keypoints,
            Value::Embeddings(_) => ValueType::Embeddings,
        }
    }

    /// The bytes of a picture or an opaque payload, which several values may share.
    pub(crate) fn payload(&self) -> Option<&Bytes> {
        match self {
            Value::Image(image) => Some(&image.rgb),
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The same value with another payload.
    pub(crate) fn with_payload(&self, payload: Bytes) -> Value {
        match self {
            Value::Image(image) => Value::Image(Arc::new(Image {
                rgb: payload,
                ..**image
            })),
            Value::Bytes(_) => Value::Bytes(payload),
            other => other.clone(),
        }
    }

    /// The same value, whose payload is on the account of that holder for as long as it lives. What has no payload is unchanged.
    ///
    /// # Errors
    /// As of [`Holder::take`].
    pub fn leased(&self, holder: &Arc<Holder>) -> Result<Value, Full> {
        let Some(payload) = self.payload() else {
            return Ok(self.clone());
        };
        let lease = holder.take(payload.len() as u64)?;
        Ok(self.with_payload(lease.around(payload.clone())))
    }

    /// Approximate bytes that it takes, its payload included.
    pub fn size(&self) -> u64 {
        self.bytes() + self.payload().map_or(0, |payload| payload.len() as u64)
    }

    /// Approximate bytes that it takes, beside a payload.
    pub fn bytes(&self) -> u64 {
        fn of<T>(values: &[T]) -> usize {
            std::mem::size_of_val(values)
        }
        let texts = |texts: &[Text]| texts.iter().map(|t| t.text.len()).sum::<usize>();
        let outlines = |mask: &Mask| {
            let points = mask.polygons.iter().map(|points| of(points));
            of(&mask.polygons) + points.sum::<usize>()
        };
        let bytes = match self {
            Value::Image(_) | Value::Bytes(_) => 0,
            Value::Boxes(boxes) => of(boxes),
            Value::Texts(all) => of(all) + texts(all),
            Value::Labels(labels) => of(labels),
            Value::Tensor(tensor) => of(&tensor.data) + of(&tensor.shape) + of(&tensor.left_out),
            Value::Masks(masks) => of(masks) + masks.iter().map(outlines).sum::<usize>(),
            Value::Keypoints(all) => of(all) + all.iter().map(|k| of(&k.points)).sum::<usize>(),
            Value::Embeddings(all) => of(all) + all.iter().map(|e| of(&e.values)).sum::<usize>(),
        };
        bytes as u64
    }

    /// The empty value of a type: no boxes, no bytes, a picture of no pixels.
    pub fn empty(ty: ValueType) -> Value {
        match ty {
            ValueType::Image => Value::Image(Arc::new(Image {
                width: 0,
                height: 0,
                rgb: Bytes::new(),
            })),
            ValueType::Bytes => Value::Bytes(Bytes::new()),
            ValueType::Boxes => Value::Boxes(Arc::from([])),
            ValueType::Texts => Value::Texts(Arc::from([])),
            ValueType::Labels => Value::Labels(Arc::from([])),
            ValueType::Tensor => Value::Tensor(Arc::new(Tensor::new(vec![0], vec![]))),
            ValueType::Masks => Value::Masks(Arc::from([])),
            ValueType::Keypoints => Value::Keypoints(Arc::from([])),
            ValueType::Embeddings => Value::Embeddings(Arc::from([])),
        }
    }

    /// Whether a `when:` on this value is false.
    pub fn is_empty(&self) -> bool {
        match self {
            Value::Image(image) => image.width == 0 || image.height == 0,
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Boxes(boxes) => boxes.is_empty(),
            Value::Texts(texts) => texts.is_empty(),
            Value::Labels(labels) => labels.is_empty(),
            Value::Tensor(tensor) => tensor.data.is_empty(),
            Value::Masks(masks) => masks.is_empty(),
            Value::Keypoints(all) => all.is_empty(),
            Value::Embeddings(all) => all.is_empty(),
        }
    }
}

/// A decoded picture.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `height * width * 3` bytes: rows from the top, RGB interleaved.
    pub rgb: Bytes,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}x{})", self.width, self.height)
    }
}

/// An object found in a picture. Corners in pixels of the source picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    /// Left edge.
    pub x0: f32,
    /// Top edge.
    pub y0: f32,
    /// Right edge.
    pub x1: f32,
    /// Bottom edge.
    pub y1: f32,
    /// Ordinal of its class in the model.
    pub class: u32,
    /// Name of its class.
    pub label: Arc<str>,
    /// 0 to 1.
    pub score: f32,
}

/// Why a module has no answer for a box or a text that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeftOut {
    /// The box has no area, or a corner that is no finite number.
    NoArea,
    /// The frame brought more than the module may look at (`limits.objects`): of boxes those with the lowest scores are left
    /// out, of texts the last ones.
    OverLimit,
    /// What the model gave for it is no number.
    NoNumber,
}

impl LeftOut {
    /// All of them, in order.
    pub const ALL: [LeftOut; 3] = [LeftOut::NoArea, LeftOut::OverLimit, LeftOut::NoNumber];

    /// In metrics.
    pub fn label(self) -> &'static str {
        match self {
            LeftOut::NoArea => "no_area",
            LeftOut::OverLimit => "over_limit",
            LeftOut::NoNumber => "no_number",
        }
    }
}

/// A text that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// The text; empty where nothing was readable.
    pub text: String,
    /// 0 to 1.
    pub score: f32,
    /// Its box was not looked at; the text is empty then and the score 0.
    pub left_out: Option<LeftOut>,
}

/// A label with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// Name of the class or person.
    pub label: Arc<str>,
    /// 0 to 1.
    pub score: f32,
    /// Its box was not looked at; the label is `unknown` then and the score 0.
    pub left_out: Option<LeftOut>,
}

/// The area of an object. Points are column and row in pixels of the source picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mask {
    /// Closed outlines, the last point joined to the first: several where the object is in several pieces, none where nothing of it
    /// was found. Outlines of holes are left out.
    pub polygons: Vec<Vec<[f32; 2]>>,
}

/// The key points of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keypoints {
    /// In the model's order, which is the same for all objects.
    pub points: Vec<Keypoint>,
}

/// A key point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keypoint {
    /// Column in pixels of the source picture.
    pub x: f32,
    /// Row in pixels of the source picture.
    pub y: f32,
    /// 0 to 1; 1 where the model gives none.
    pub score: f32,
}

/// A vector that stands for an object or a frame: the more alike two of them are, the larger is their product.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// The root of the sum of their squares is 1. Empty where the box was not looked at.
    pub values: Vec<f32>,
    /// Its box was not looked at.
    pub left_out: Option<LeftOut>,
}

/// A dense array of 32-bit floats in host memory, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its dimensions.
    pub shape: Vec<i64>,
    /// Product of `shape` elements.
    pub data: Vec<f32>,
    /// Rows along the first dimension whose boxes were not looked at, ascending. They are zeros.
    pub left_out: Vec<u32>,
}

impl Tensor {
    /// An array with that shape, of which no row was left out.
    ///
    /// # Panics
    /// When the number of elements is not the product of the shape.
    pub fn new(shape: Vec<i64>, data: Vec<f32>) -> Self {
        let n: i64 = shape.iter().product();
        assert_eq!(
            n,
            data.len() as i64,
            "shape {shape:?} does not hold {} elements",
            data.len()
        );
        Tensor {
            shape,
            data,
            left_out: Vec::new(),
        }
    }

    /// The `idx`-th slice along the first dimension.
    pub fn row(&self, idx: usize) -> &[f32] {
        let n = self.data.len() / self.shape[0].max(1) as usize;
        &self.data[idx * n..(idx + 1) * n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_value_is_of_its_type_and_makes_a_condition_false() {
        for ty in ValueType::ALL {
            let empty = Value::empty(ty);
            assert_eq!((empty.ty(), empty.is_empty()), (ty, true), "{ty}");
        }
    }

    #[test]
    fn a_value_is_not_empty_for_an_entry_that_is() {
        let embedding = Embedding {
            values: Vec::new(),
            left_out: Some(LeftOut::NoArea),
        };
        for value in [
            Value::Masks(Arc::from([Mask::default()])),
            Value::Keypoints(Arc::from([Keypoints::default()])),
            Value::Embeddings(Arc::from([embedding])),
        ] {
            assert!(!value.is_empty(), "{value:?}");
        }
    }

    #[test]
    fn what_lists_hold_counts_as_bytes() {
        let bytes = |n: usize| {
            let mask = Mask {
                polygons: vec![vec![[0.0; 2]; n]; 3],
            };
            let point = Keypoint {
                x: 0.0,
                y: 0.0,
                score: 1.0,
            };
            let keypoints = Keypoints {
                points: vec![point; n],
            };
            let embedding = Embedding {
                values: vec![0.0; n],
                left_out: None,
            };
            let tensor = Tensor {
                left_out: vec![0; n],
                ..Tensor::new(vec![0], vec![])
            };
            [
                Value::Masks(Arc::from([mask])),
                Value::Keypoints(Arc::from([keypoints])),
                Value::Embeddings(Arc::from([embedding])),
                Value::Tensor(Arc::new(tensor)),
            ]
            .map(|value| value.bytes())
        };
        let (few, many) = (bytes(10), bytes(110));
        let more: Vec<u64> = many.iter().zip(few).map(|(many, few)| many - few).collect();
        assert_eq!(more, [3 * 100 * 8, 100 * 12, 100 * 4, 100 * 4]);
        let polygons = Mask {
            polygons: vec![Vec::new(); 100],
        };
        assert!(Value::Masks(Arc::from([polygons])).bytes() >= 2400);
    }
}
