//! The messages to and from a check: JSON, one object a line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which module is to be loaded and run, within which bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// Name of the pipeline file, for messages.
    pub(super) file: String,
    /// Its text, with the variables that it names.
    pub(super) text: String,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) base_dir: PathBuf,
    /// Name of the module.
    pub(super) module: String,
    /// A model file in place of those that the pipeline file names.
    pub(super) model: Option<String>,
    /// Bytes of memory beyond what the process starts with.
    pub(super) memory: u64,
    /// Seconds of processor time.
    pub(super) seconds: u64,
    /// Folders and files that may be read.
    pub(super) folders: Vec<PathBuf>,
    /// Whether ONNX Runtime is loaded first: within the limits it cannot be found.
    pub(super) onnx: bool,
}

/// The messages of the process, in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The limits that hold, and those that this system does not offer.
    Held {
        by: Vec<String>,
        lacking: Vec<String>,
    },
    /// It is about to load a file with this content.
    Loads {
        path: PathBuf,
        hash: Hash,
        /// Whether it holds weights of the model that was loaded before it.
        is_weights: bool,
    },
    /// The module was loaded and ran; or ran into an error of its own on its example. `load`: how long it took to load once more, of a
    /// member of a family.
    Ran {
        error: Option<String>,
        load: Option<Duration>,
    },
    /// The module could not be loaded.
    Refused { error: String },
}

/// SHA-256 of a file's content.
pub(super) type Hash = [u8; 32];
