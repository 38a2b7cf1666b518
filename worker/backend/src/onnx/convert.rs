//! Between our numbers, which are float32, and those of ONNX Runtime. The parent says how they are rounded.

#![expect(unsafe_code, reason = "truths are read as bytes")]

use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{
    DynTensorValueType, PrimitiveTensorElementType, Tensor as Owned, TensorElementType, TensorRef,
    ValueRef,
};
use spillgate_process::value::Tensor;

use super::interface::InputKind;
use super::one_line;

/// The numbers of an input, in the kind that the model takes.
pub(super) fn input<'a>(
    kind: InputKind,
    shape: &[i64],
    data: &'a [f32],
) -> Result<SessionInputValue<'a>, String> {
    let shape = shape.to_vec();
    let made = match kind {
        InputKind::Float32 => {
            TensorRef::from_array_view((shape, data)).map(SessionInputValue::from)
        }
        InputKind::Float16 => {
            let numbers: Vec<f16> = data.iter().map(|v| f16::from_f32(*v)).collect();
            Owned::from_array((shape, numbers)).map(SessionInputValue::from)
        }
        InputKind::Uint8 => {
            let numbers: Vec<u8> = data.iter().map(|v| v.round() as u8).collect();
            Owned::from_array((shape, numbers)).map(SessionInputValue::from)
        }
    };
    made.map_err(|error| one_line(error.message()))
}

/// An output as float32.
pub(super) fn output(value: ValueRef<'_>) -> Result<Tensor, String> {
    use TensorElementType as T;
    match value.dtype().tensor_type() {
        Some(T::Float32) => taken(&value, |v: &f32| *v),
        Some(T::Float64) => taken(&value, |v: &f64| *v as f32),
        Some(T::Float16) => taken(&value, |v: &f16| v.to_f32()),
        Some(T::Bfloat16) => taken(&value, |v: &bf16| v.to_f32()),
        Some(T::Int8) => taken(&value, |v: &i8| f32::from(*v)),
        Some(T::Uint8) => taken(&value, |v: &u8| f32::from(*v)),
        Some(T::Int16) => taken(&value, |v: &i16| f32::from(*v)),
        Some(T::Uint16) => taken(&value, |v: &u16| f32::from(*v)),
        Some(T::Int32) => taken(&value, |v: &i32| *v as f32),
        Some(T::Uint32) => taken(&value, |v: &u32| *v as f32),
        Some(T::Int64) => taken(&value, |v: &i64| *v as f32),
        Some(T::Uint64) => taken(&value, |v: &u64| *v as f32),
        Some(T::Bool) => truths(value),
        _ => Err(format!(
            "an output of it is {}, and modules take tensors of numbers",
            value.dtype()
        )),
    }
}

fn taken<T: PrimitiveTensorElementType>(
    value: &ValueRef<'_>,
    number: impl Fn(&T) -> f32,
) -> Result<Tensor, String> {
    let (shape, numbers) = value
        .try_extract_tensor::<T>()
        .map_err(|error| one_line(error.message()))?;
    Ok(Tensor {
        shape: shape.to_vec(),
        data: numbers.iter().map(number).collect(),
        left_out: Vec::new(),
    })
}

/// Truths as 0 and 1. A model can make some of any byte, which Rust's could not be.
fn truths(value: ValueRef<'_>) -> Result<Tensor, String> {
    let tensor = value
        .downcast::<DynTensorValueType>()
        .map_err(|error| one_line(error.message()))?;
    let shape = tensor.shape().to_vec();
    let n = tensor.shape().num_elements();
    let bytes: &[u8] = match n {
        0 => &[],
        // SAFETY: a tensor of truths in the host's memory, as all are here, has a byte for each; it lives as long as `tensor`.
        _ => unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast(), n) },
    };
    let number = |byte: &u8| f32::from(u8::from(*byte != 0));
    Ok(Tensor {
        shape,
        data: bytes.iter().map(number).collect(),
        left_out: Vec::new(),
    })
}
