//! Model files by their content: TorchScript archives, ONNX models, and files with weights beside one of these. And what may be loaded.

use std::path::Path;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::description::Description;
#[cfg(feature = "onnx")]
use crate::onnx;
use crate::torch::{Archive, FormId};

/// The content of a file that a model is made of.
pub enum ModelFile<'a> {
    /// A TorchScript archive, or whatever is no ONNX model.
    TorchScript(Archive<'a>),
    /// An ONNX model.
    Onnx(&'a [u8]),
    /// Weights of a model that lies beside it.
    Weights(&'a [u8]),
}

impl<'a> ModelFile<'a> {
    /// A model of these bytes.
    pub fn of(bytes: &'a [u8]) -> Self {
        match is_onnx(bytes) {
            true => ModelFile::Onnx(bytes),
            false => ModelFile::TorchScript(Archive::new(bytes)),
        }
    }

    /// Whether it holds weights of a model that lies beside it.
    pub fn is_weights(&self) -> bool {
        matches!(self, ModelFile::Weights(_))
    }

    /// All of it.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            ModelFile::TorchScript(archive) => archive.bytes(),
            ModelFile::Onnx(bytes) | ModelFile::Weights(bytes) => bytes,
        }
    }

    /// Its form: of an archive what is the same in models of one architecture. Other files have one of their own, which changes with each
    /// byte; that of an ONNX model does not know files beside it.
    ///
    /// # Errors
    /// When it is a damaged or unusual archive.
    pub fn form(&self) -> Result<FormId, String> {
        let kind = match self {
            ModelFile::TorchScript(archive) => return archive.form().map(|form| form.id),
            ModelFile::Onnx(_) => "ONNX",
            ModelFile::Weights(_) => "weights",
        };
        let hasher = Sha256::new_with_prefix(kind);
        Ok(hasher.chain_update(self.bytes()).finalize().into())
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn description(&self) -> Result<Description, String> {
        match self {
            ModelFile::TorchScript(archive) => Ok(archive.description()),
            #[cfg(feature = "onnx")]
            ModelFile::Onnx(bytes) => onnx::description(bytes),
            _ => Ok(Description::default()),
        }
    }

    /// Whether its content is what was written, where the form does not say so.
    ///
    /// # Errors
    /// The first part of an archive that is damaged.
    pub fn intact(&self) -> Result<(), String> {
        match self {
            ModelFile::TorchScript(archive) => archive.intact(),
            ModelFile::Onnx(_) | ModelFile::Weights(_) => Ok(()),
        }
    }
}

/// Whether a file begins as an ONNX model does.
pub fn is_onnx(bytes: &[u8]) -> bool {
    #[cfg(feature = "onnx")]
    return onnx::begins_as_onnx(bytes);
    #[cfg(not(feature = "onnx"))]
    {
        let _ = bytes;
        false
    }
}

/// Decides whether a file with this content may be loaded; an error gives the reason why not.
type Approve = Box<dyn Fn(&Path, &ModelFile) -> Result<(), String> + Send + Sync>;

/// See [`approve_with`].
static APPROVE: OnceLock<Approve> = OnceLock::new();

/// From now on each file of a model that this process loads is read once and shown to `approve`, and exactly these bytes
/// are loaded. Only the first call counts.
pub fn approve_with(
    approve: impl Fn(&Path, &ModelFile) -> Result<(), String> + Send + Sync + 'static,
) {
    let _ = APPROVE.set(Box::new(approve));
}

/// Whether a file may be loaded.
pub(crate) fn approved(path: &Path, file: &ModelFile) -> Result<(), String> {
    APPROVE.get().map_or(Ok(()), |approve| approve(path, file))
}
