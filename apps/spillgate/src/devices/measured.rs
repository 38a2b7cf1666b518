//! What models take, as measured when their device started.

use serde::{Deserialize, Serialize};

/// What models of one architecture take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredStatus {
    /// Its module.
    pub module: String,
    /// The model that was measured.
    pub model: String,
    /// To read its weights and run once, in milliseconds.
    pub load_ms: f64,
    /// A batch of each size from 1 on, in milliseconds.
    pub execution_ms: Vec<f64>,
    /// Bytes of the device's memory that its largest batch takes while it runs, beside the weights; `null` where that is not known.
    #[serde(default)]
    pub workspace_bytes: Option<u64>,
}
