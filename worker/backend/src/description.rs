//! What a model file says of itself: its input and outputs, and what its exporter wrote beside them.

use std::collections::BTreeMap;

/// Most bytes of what an exporter wrote: the longest lists of class names take some hundred thousand.
pub const METADATA_BYTES_MAX: usize = 4 << 20;

/// What a model file says of itself. All of it is empty where a format says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// What the exporter wrote: `metadata_props` of an ONNX model, the fields of the extra file `config.txt` of a TorchScript archive. Values
    /// that are no texts are as JSON writes them.
    pub metadata: BTreeMap<String, String>,
    /// Inputs without a default.
    pub inputs: Vec<Port>,
    /// Outputs, in their order.
    pub outputs: Vec<Port>,
}

/// A model about which nothing is said.
pub(crate) static NOTHING: Description = Description {
    metadata: BTreeMap::new(),
    inputs: Vec::new(),
    outputs: Vec::new(),
};

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The kind of its numbers: `float32`, `int64`.
    pub kind: &'static str,
    /// The size of each axis, `None` for one that is free; `None` where not even their number is said.
    pub axes: Option<Vec<Option<i64>>>,
}

impl Port {
    /// Whether its numbers are integers.
    pub fn is_integer(&self) -> bool {
        self.kind.starts_with("int") || self.kind.starts_with("uint")
    }
}

/// The fields of a `config.txt`: of a JSON object. Another text says nothing.
#[cfg(feature = "tch")]
pub(crate) fn of_config(text: &[u8]) -> BTreeMap<String, String> {
    let fields: Option<BTreeMap<String, serde_json::Value>> = serde_json::from_slice(text).ok();
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let fields = fields.unwrap_or_default().into_iter();
    fields.map(|(key, value)| (key, text(value))).collect()
}
