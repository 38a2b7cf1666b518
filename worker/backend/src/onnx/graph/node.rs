//! Nodes that fill a tensor whose size the file says.

use std::collections::{HashMap, HashSet};

use super::tensor::{self, Kind, Numbers, Tensor};
use super::{TENSOR_BYTES_MAX, text, too_large};

/// Inputs, outputs and attributes of a node on which sizes may depend: the first ones.
const LOOKED_AT_MAX: usize = 4;
/// Attributes on which sizes may depend.
pub(super) const SIZES: [&[u8]; 3] = [b"value", b"value_ints", b"shape"];

/// What a graph knows of its values while its nodes are read in order.
#[derive(Default)]
pub(super) struct Scope {
    /// Names of values that the file brings.
    pub(super) names: HashSet<String>,
    /// Short lists of integers among them: sizes.
    sizes: HashMap<String, Numbers>,
}

impl Scope {
    pub(super) fn brought(&mut self, name: String, tensor: &Tensor) {
        if let Some(numbers) = &tensor.numbers {
            self.sizes.insert(name.clone(), numbers.clone());
        }
        self.names.insert(name);
    }
}

/// An attribute on which sizes may depend.
pub(super) struct Attribute<'a> {
    pub(super) name: &'a [u8],
    pub(super) tensor: Option<Tensor>,
    /// None where they are more than a tensor has axes.
    pub(super) numbers: Option<Numbers>,
}

#[derive(Default)]
pub(super) struct Node<'a> {
    pub(super) operator: String,
    pub(super) domain: String,
    pub(super) overload: String,
    pub(super) inputs: Vec<&'a [u8]>,
    pub(super) outputs: Vec<&'a [u8]>,
    pub(super) attributes: Vec<Attribute<'a>>,
}

impl Node<'_> {
    fn attribute(&self, name: &str) -> Option<&Attribute<'_>> {
        self.attributes.iter().find(|a| a.name == name.as_bytes())
    }

    /// Refuses a node that fills a tensor of a size that the file says and that is too large: ONNX Runtime may do so when it loads.
    pub(super) fn fill(&self, scope: &mut Scope) -> Result<(), String> {
        let size = |at: usize| {
            let name = std::str::from_utf8(self.inputs.get(at)?).ok()?;
            scope.sizes.get(name).cloned()
        };
        let (kind, dims) = match &*self.operator {
            "Constant" => {
                let name = self.outputs.first().copied().unwrap_or_default();
                let given = self.attribute("value").and_then(|a| a.tensor.as_ref());
                let numbers = self.attribute("value_ints").and_then(|a| a.numbers.clone());
                let numbers = given.and_then(|tensor| tensor.numbers.clone()).or(numbers);
                if let Some(numbers) = numbers {
                    scope.sizes.insert(text(name)?, numbers);
                }
                return Ok(());
            }
            "ConstantOfShape" => {
                let value = self.attribute("value").and_then(|a| a.tensor.as_ref());
                (value.map_or(Kind::FLOAT, |value| value.kind), size(0))
            }
            "Expand" | "Tile" => (Kind::FLOAT, size(1)),
            "RandomNormal" | "RandomUniform" => {
                let shape = self.attribute("shape").and_then(|a| a.numbers.clone());
                (Kind::FLOAT, shape)
            }
            _ => return Ok(()),
        };
        let Some(dims) = dims else {
            return Ok(());
        };
        let bytes = tensor::declared_bytes(kind, &dims);
        match bytes.is_none_or(|bytes| bytes > TENSOR_BYTES_MAX as u64) {
            true => {
                let name = self.outputs.first().copied().unwrap_or_default();
                Err(too_large(&String::from_utf8_lossy(name), kind, &dims))
            }
            false => Ok(()),
        }
    }
}

/// One more of what is looked at, if there is room.
pub(super) fn room<T>(all: &[T], one: T) -> Option<T> {
    (all.len() < LOOKED_AT_MAX).then_some(one)
}
