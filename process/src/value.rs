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
        let bytes = match self {
            Value::Image(_) | Value::Bytes(_) => 0,
            Value::Boxes(boxes) => of(boxes),
            Value::Texts(all) => of(all) + texts(all),
            Value::Labels(labels) => of(labels),
            Value::Tensor(tensor) => of(&tensor.data) + of(&tensor.shape),
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
            ValueType::Tensor => Value::Tensor(Arc::new(Tensor {
                shape: vec![0],
                data: vec![],
            })),
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

/// A text that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// The text; empty where nothing was readable.
    pub text: String,
    /// 0 to 1.
    pub score: f32,
}

/// A label with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// Name of the class or person.
    pub label: Arc<str>,
    /// 0 to 1.
    pub score: f32,
}

/// A dense array of 32-bit floats in host memory, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its dimensions.
    pub shape: Vec<i64>,
    /// Product of `shape` elements.
    pub data: Vec<f32>,
}

impl Tensor {
    /// An array with that shape.
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
        Tensor { shape, data }
    }

    /// The `idx`-th slice along the first dimension.
    pub fn row(&self, idx: usize) -> &[f32] {
        let n = self.data.len() / self.shape[0].max(1) as usize;
        &self.data[idx * n..(idx + 1) * n]
    }
}
