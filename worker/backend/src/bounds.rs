//! The bounds of models, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds of models on libtorch.
#[cfg(feature = "tch")]
pub const BOUNDS: &[Bound] = &[
    bound!(
        Models,
        "bytes of a model file",
        bytes(crate::torch::MODEL_BYTES_MAX),
        "an error with its path"
    ),
    bound!(
        Models,
        "bytes that count for the form of a model file",
        bytes(crate::torch::archive::CONTENT_BYTES_MAX),
        "the model is refused"
    ),
    bound!(
        Models,
        "forms that are kept compiled",
        count(crate::torch::network::FORMS_MAX),
        "the one compiled first gives way"
    ),
    bound!(
        Models,
        "unloaded models of a form that are kept on a device for the next one",
        count(crate::torch::network::SPARES_MAX),
        "the oldest is freed"
    ),
    bound!(
        Models,
        "unloaded models that are kept on a device",
        count(crate::torch::network::SPARES_ALL_MAX),
        "the oldest is freed"
    ),
    bound!(
        Models,
        "bytes of unloaded models that are kept on the CPU",
        bytes(crate::torch::network::SPARE_BYTES_MAX_CPU),
        "the oldest are freed"
    ),
    bound!(
        Models,
        "bytes of unloaded models that are kept on a GPU",
        bytes(crate::torch::network::SPARE_BYTES_MAX_GPU),
        "the oldest are freed"
    ),
    bound!(
        Models,
        "memory kept for the file that is loaded",
        bytes(crate::torch::BUFFER_BYTES_MAX),
        "a larger file gets memory of its own"
    ),
    bound!(
        Models,
        "input shapes of a model that a GPU records",
        count(crate::torch::recorded::SHAPES_MAX),
        "the others run kernel by kernel"
    ),
    bound!(
        Models,
        "models of a GPU that cannot be recorded",
        count(crate::torch::recorded::BROKEN_MAX),
        "no more are tried; models run kernel by kernel"
    ),
];

/// The bounds of ONNX models.
#[cfg(feature = "onnx")]
pub const ONNX_BOUNDS: &[Bound] = &[
    bound!(
        Models,
        "bytes of an ONNX file",
        bytes(crate::onnx::ONNX_BYTES_MAX),
        "the model is refused; weights can lie in files beside it"
    ),
    bound!(
        Models,
        "nodes of an ONNX model",
        count(crate::onnx::NODES_MAX),
        "the model is refused"
    ),
    bound!(
        Models,
        "tensors and declared values of an ONNX model, each",
        count(crate::onnx::TENSORS_MAX),
        "the model is refused"
    ),
    bound!(
        Models,
        "branches of an ONNX model in one another",
        count(crate::onnx::DEPTH_MAX),
        "the model is refused"
    ),
    bound!(
        Models,
        "bytes of a tensor that an ONNX model brings, declares or fills",
        bytes(crate::onnx::TENSOR_BYTES_MAX),
        "the model is refused"
    ),
];
