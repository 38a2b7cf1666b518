//! What an ONNX file asks for: inputs, outputs, sizes, operators and files beside it. It is read before ONNX Runtime sees the file, within
//! bounds, so that a small file that asks for much memory is refused first. Weights are passed over, not copied.

mod calls;
mod metadata;
mod node;
mod tensor;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::wire::{Broken, Fields, Value};
use calls::{Body, Operator, domain_of, expanded};
use metadata::Metadata;
use node::{Attribute, Node, SIZES, Scope, room};
use tensor::Tensor;
pub(super) use tensor::{External, Kind};

/// Most bytes of an ONNX file: Protocol Buffers know no longer message.
pub const ONNX_BYTES_MAX: usize = i32::MAX as usize;
/// Most nodes of a model, those of its functions and branches among them; large networks have some ten thousand.
pub(crate) const NODES_MAX: usize = 200_000;
/// Most tensors that a model brings: a node has a handful.
pub(crate) const TENSORS_MAX: usize = 4 * NODES_MAX;
/// Most inputs, outputs and shapes that it declares: as many as tensors.
pub(crate) const PORTS_MAX: usize = TENSORS_MAX;
/// How deep branches and loops may lie in one another; networks have one or two.
pub(crate) const DEPTH_MAX: usize = 16;
/// Most bytes of a tensor that a model declares or fills: a picture of 8K as 64 maps of f32 has as many.
pub(crate) const TENSOR_BYTES_MAX: usize = 8 << 30;
/// Most bytes of all weights together, as of any model file.
pub(crate) const WEIGHTS_BYTES_MAX: u64 = 16 << 30;
/// Bytes at the start of a file that tell whether it is an ONNX model.
pub const HEAD_BYTES: usize = 1 << 10;
/// Most operator sets that a model names, functions that it brings and operators of strange domains that are looked at: a model has a few.
const NAMED_MAX: usize = 1000;
/// Most characters of a name that messages show.
const SHOWN_MAX: usize = 80;

/// Domains of operators that ONNX Runtime itself has.
const DOMAINS: [&str; 8] = [
    "",
    "ai.onnx",
    "ai.onnx.ml",
    "ai.onnx.preview.training",
    "ai.onnx.training",
    "com.microsoft",
    "com.microsoft.experimental",
    "com.microsoft.nchwc",
];

/// An input or output.
#[derive(Debug, PartialEq)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) ty: PortType,
}

/// What an input takes or an output gives.
#[derive(Debug, PartialEq)]
pub(super) enum PortType {
    /// A tensor of numbers of a kind. Of an unknown number of axes where there are no dimensions.
    Tensor(Kind, Option<Vec<Dim>>),
    /// Something else, in a word; or nothing is said.
    Other(&'static str),
}

/// The size of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Dim {
    Fixed(i64),
    /// Any; the name may be empty.
    Free(String),
}

/// What a file asks for.
#[derive(Debug, Default)]
pub(super) struct Described {
    pub(super) ir_version: i64,
    /// By domain.
    pub(super) opsets: Vec<(String, i64)>,
    /// Those that have no default.
    pub(super) inputs: Vec<Port>,
    pub(super) outputs: Vec<Port>,
    /// Weights in files beside it.
    pub(super) externals: Vec<External>,
    /// What its exporter wrote.
    pub(super) metadata: BTreeMap<String, String>,
}

impl Described {
    /// Its version and those of its operators, for messages.
    pub(super) fn versions(&self) -> String {
        let opset = |(domain, version): &(String, i64)| match &**domain {
            "" | "ai.onnx" => format!("opset {version}"),
            domain => format!("{} {version}", shown(domain)),
        };
        let opsets: Vec<String> = self.opsets.iter().take(4).map(opset).collect();
        format!("IR version {}, {}", self.ir_version, opsets.join(", "))
    }
}

/// Whether a file begins as an ONNX model does: fields of a `ModelProto`, its version among the first.
pub fn begins_as_onnx(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    let (mut has_version, mut n) = (false, 0);
    for field in Fields::of(head) {
        match field {
            Ok((1, Value::Number(1..=0xffff))) => has_version = true,
            Ok((5, Value::Number(_)))
            | Ok((2..=4 | 6..=8 | 14 | 20 | 25 | 26, Value::Bytes(_))) => {}
            // The graph is longer than what was looked at.
            Err(Broken::Short) => return has_version && n > 0,
            _ => return false,
        }
        n += 1;
    }
    has_version && n > 1
}

/// Reads what a file asks for.
///
/// # Errors
/// What is wrong with it, beginning with "it", and what would be right.
pub(super) fn describe(bytes: &[u8]) -> Result<Described, String> {
    // ONNX Runtime would read another model in it, of a format of its own.
    if bytes.get(4..8) == Some(b"ORTM") {
        return Err(
            "it is of ONNX Runtime's own format; give the ONNX model that it was made of"
                .to_owned(),
        );
    }
    let cure = |why: String| match why.starts_with("it is cut short")
        || why.starts_with("it is damaged")
    {
        true => format!("{why}; fetch or export it again"),
        false => why,
    };
    Reader::default().model(bytes).map_err(cure)
}

/// A name from a file as part of a line.
pub(super) fn shown(name: &str) -> String {
    name.chars()
        .take(SHOWN_MAX)
        .flat_map(char::escape_debug)
        .collect()
}

/// A text of the file.
fn text(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is damaged: a name in it is no text")?;
    match text.contains('\0') {
        true => Err("it is damaged: a name in it has a zero byte".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// A message that may be there once. Readers of Protocol Buffers put two together, each in its own way.
fn once<'a>(found: &mut Option<&'a [u8]>, value: Value<'a>) -> Result<(), String> {
    let Value::Bytes(bytes) = value else {
        return Err(Broken::Strange.into());
    };
    match found.replace(bytes) {
        None => Ok(()),
        Some(_) => Err("it is damaged: a part of it is there twice".to_owned()),
    }
}

fn some<'a>(message: Option<&'a [u8]>, what: &str) -> Result<&'a [u8], String> {
    message.ok_or_else(|| format!("it is damaged: {what} is missing"))
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    found: Described,
    nodes: usize,
    tensors: usize,
    ports: usize,
    weights: u64,
    /// What is read now: the graph, or one of the functions that the model brings.
    body: Body,
    functions: HashMap<Operator, Body>,
    /// Operators of domains that ONNX Runtime does not have.
    strange: BTreeSet<Operator>,
}

impl Reader {
    fn model(mut self, bytes: &[u8]) -> Result<Described, String> {
        let mut graph = None;
        let mut functions = Vec::new();
        let mut metadata = Metadata::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, Value::Number(version)) => self.found.ir_version = version as i64,
                (7, value) => once(&mut graph, value)?,
                (8, Value::Bytes(opset)) => {
                    few(self.found.opsets.len(), "operator sets")?;
                    self.found.opsets.push(opset_of(opset)?);
                }
                (25, Value::Bytes(function)) => {
                    few(functions.len(), "functions")?;
                    functions.push(function);
                }
                (14, Value::Bytes(entry)) => metadata.add(entry)?,
                (20, Value::Bytes(_)) => {
                    return Err(
                        "it is an ONNX model for training; export the trained model with model.eval()"
                            .to_owned(),
                    );
                }
                _ => {}
            }
        }
        self.found.metadata = metadata.entries;
        let graph = graph.ok_or("it is an ONNX model without a graph; export it again")?;
        for function in &functions {
            self.function(function)?;
        }
        self.graph(graph, 0, true)?;
        let main = std::mem::take(&mut self.body);
        let n = expanded(&main, &mut self.functions, 0)?;
        if n > NODES_MAX as u64 {
            return Err(format!(
                "it has more than the {NODES_MAX} nodes that a model may have, once its functions are written out"
            ));
        }
        let mut strange = self.strange.iter();
        if let Some((domain, operator, _)) = strange.find(|of| !self.functions.contains_key(*of)) {
            return Err(format!(
                "its operator {} is of the domain {}, which is not of ONNX and which no library brings here; export it with operators of \
                 ONNX alone",
                shown(operator),
                shown(domain)
            ));
        }
        Ok(self.found)
    }

    fn function(&mut self, function: &[u8]) -> Result<(), String> {
        let mut scope = Scope::default();
        let mut key = Operator::default();
        for field in Fields::of(function) {
            match field? {
                (7, Value::Bytes(node)) => {
                    bounded(&mut self.nodes, NODES_MAX, "nodes")?;
                    self.node(node, 0, &mut scope)?;
                }
                (1, Value::Bytes(name)) => key.1 = text(name)?,
                (10, Value::Bytes(domain)) => key.0 = domain_of(domain)?,
                (13, Value::Bytes(overload)) => key.2 = text(overload)?,
                (11, Value::Bytes(default)) => {
                    self.attribute(default, 0)?;
                }
                (12, Value::Bytes(declared)) => {
                    self.port(declared)?;
                }
                _ => {}
            }
        }
        let body = std::mem::take(&mut self.body);
        match self.functions.insert(key, body) {
            None => Ok(()),
            Some(_) => Err("it is damaged: a function of it is there twice".to_owned()),
        }
    }

    /// A graph: the model's own, or one in a node.
    fn graph(&mut self, graph: &[u8], depth: usize, is_main: bool) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!(
                "its branches lie more than {DEPTH_MAX} deep in one another"
            ));
        }
        let mut scope = Scope::default();
        let mut nodes = Vec::new();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for field in Fields::of(graph) {
            match field? {
                (1, Value::Bytes(node)) => {
                    bounded(&mut self.nodes, NODES_MAX, "nodes")?;
                    nodes.push(node);
                }
                (5, Value::Bytes(tensor)) => {
                    let tensor = self.tensor(tensor)?;
                    scope.brought(tensor.name.clone(), &tensor);
                    if let Some(external) = tensor.external {
                        // ONNX Runtime takes those of a branch from wherever the program runs.
                        if !is_main {
                            return Err(format!(
                                "weights of a branch or loop lie in another file ({:?}); save it with all in one file: \
                                 onnx.save(model, FILE, save_as_external_data=False)",
                                shown(&external.location)
                            ));
                        }
                        self.found.externals.push(external);
                    }
                }
                (11, Value::Bytes(port)) => inputs.push(self.port(port)?),
                (12, Value::Bytes(port)) => outputs.push(self.port(port)?),
                (13, Value::Bytes(port)) => {
                    self.port(port)?;
                }
                (15, Value::Bytes(sparse)) => {
                    let name = self.sparse(sparse)?;
                    scope.names.insert(name);
                }
                _ => {}
            }
        }
        for node in nodes {
            self.node(node, depth, &mut scope)?;
        }
        if is_main {
            inputs.retain(|port| !scope.names.contains(&port.name));
            (self.found.inputs, self.found.outputs) = (inputs, outputs);
        }
        Ok(())
    }

    fn node(&mut self, node: &[u8], depth: usize, scope: &mut Scope) -> Result<(), String> {
        let mut node_of = Node::default();
        for field in Fields::of(node) {
            match field? {
                (1, Value::Bytes(input)) => node_of.inputs.extend(room(&node_of.inputs, input)),
                (2, Value::Bytes(output)) => {
                    node_of.outputs.extend(room(&node_of.outputs, output));
                }
                (4, Value::Bytes(operator)) => node_of.operator = text(operator)?,
                (5, Value::Bytes(attribute)) => {
                    let found = self.attribute(attribute, depth)?;
                    let found = found.and_then(|found| room(&node_of.attributes, found));
                    node_of.attributes.extend(found);
                }
                (7, Value::Bytes(domain)) => node_of.domain = domain_of(domain)?,
                (8, Value::Bytes(overload)) => node_of.overload = text(overload)?,
                _ => {}
            }
        }
        let Node {
            operator,
            domain,
            overload,
            ..
        } = &node_of;
        let key = (domain.clone(), operator.clone(), overload.clone());
        if operator == "EPContext" {
            return Err(
                "its operator EPContext holds code for one kind of device; export it without such code"
                    .to_owned(),
            );
        }
        if !DOMAINS.contains(&&**domain) {
            few(self.strange.len(), "operators that are not of ONNX")?;
            self.strange.insert(key.clone());
        }
        self.body.nodes += 1;
        *self.body.calls.entry(key).or_default() += 1;
        node_of.fill(scope)
    }

    /// What an attribute brings, where sizes depend on it.
    fn attribute<'a>(
        &mut self,
        attribute: &'a [u8],
        depth: usize,
    ) -> Result<Option<Attribute<'a>>, String> {
        let (mut tensor, mut graph, mut sparse) = (None, None, None);
        let mut name: &[u8] = &[];
        let mut numbers = Vec::new();
        for field in Fields::of(attribute) {
            match field? {
                (1, Value::Bytes(found)) => name = found,
                (5, value) => once(&mut tensor, value)?,
                (6, value) => once(&mut graph, value)?,
                (8, value) => tensor::bounded_integers(value, &mut numbers)?,
                (10, Value::Bytes(tensor)) => {
                    self.own_tensor(tensor)?;
                }
                (11, Value::Bytes(graph)) => self.graph(graph, depth + 1, false)?,
                (22, value) => once(&mut sparse, value)?,
                (23, Value::Bytes(sparse)) => {
                    self.sparse(sparse)?;
                }
                _ => {}
            }
        }
        if let Some(sparse) = sparse {
            self.sparse(sparse)?;
        }
        if let Some(graph) = graph {
            self.graph(graph, depth + 1, false)?;
        }
        let tensor = tensor.map(|tensor| self.own_tensor(tensor)).transpose()?;
        if name == b"shape" && numbers.len() > tensor::AXES_MAX {
            return Err(format!(
                "a tensor of it has more than {} axes",
                tensor::AXES_MAX
            ));
        }
        // No tensor has so many sizes.
        let numbers = Some(numbers).filter(|all| all.len() <= tensor::AXES_MAX);
        let is_size = SIZES.contains(&name);
        Ok(is_size.then_some(Attribute {
            name,
            tensor,
            numbers,
        }))
    }

    /// A tensor of an attribute, which lies in the file itself.
    fn own_tensor(&mut self, tensor: &[u8]) -> Result<Tensor, String> {
        let tensor = self.tensor(tensor)?;
        match tensor.external {
            None => Ok(tensor),
            Some(_) => {
                Err("an attribute of a node lies in another file; export it anew".to_owned())
            }
        }
    }

    fn tensor(&mut self, tensor: &[u8]) -> Result<Tensor, String> {
        bounded(&mut self.tensors, TENSORS_MAX, "tensors")?;
        let tensor = Tensor::read(tensor)?;
        self.weigh(tensor.bytes)?;
        Ok(tensor)
    }

    /// A tensor of which only some numbers are there. Gives its name.
    fn sparse(&mut self, sparse: &[u8]) -> Result<String, String> {
        let (mut values, mut indices, mut dims) = (None, None, Vec::new());
        for field in Fields::of(sparse) {
            match field? {
                (1, value) => once(&mut values, value)?,
                (2, value) => once(&mut indices, value)?,
                (3, value) => tensor::sizes(value, &mut dims)?,
                _ => {}
            }
        }
        let values = self.own_tensor(some(values, "a sparse tensor's values")?)?;
        self.own_tensor(some(indices, "a sparse tensor's indices")?)?;
        let bytes = tensor::declared_bytes(values.kind, &dims)
            .filter(|bytes| *bytes <= TENSOR_BYTES_MAX as u64)
            .ok_or_else(|| too_large(&values.name, values.kind, &dims))?;
        self.weigh(bytes)?;
        Ok(values.name)
    }

    fn weigh(&mut self, bytes: u64) -> Result<(), String> {
        self.weights = self.weights.saturating_add(bytes);
        match self.weights > WEIGHTS_BYTES_MAX {
            true => Err(format!(
                "its weights have more than the {WEIGHTS_BYTES_MAX} bytes that a model may have"
            )),
            false => Ok(()),
        }
    }

    /// A declared input, output or value between nodes.
    fn port(&mut self, port: &[u8]) -> Result<Port, String> {
        bounded(&mut self.ports, PORTS_MAX, "declared values")?;
        let (mut name, mut ty) = (String::new(), None);
        for field in Fields::of(port) {
            match field? {
                (1, Value::Bytes(bytes)) => name = text(bytes)?,
                (2, value) => once(&mut ty, value)?,
                _ => {}
            }
        }
        let ty = ty.map_or(Ok(PortType::Other("nothing known")), type_of)?;
        if let PortType::Tensor(kind, Some(dims)) = &ty {
            let sizes: Vec<i64> = dims
                .iter()
                .map(|dim| match dim {
                    Dim::Fixed(size) => *size,
                    Dim::Free(_) => 1,
                })
                .collect();
            let bytes = tensor::declared_bytes(*kind, &sizes);
            if bytes.is_none_or(|bytes| bytes > TENSOR_BYTES_MAX as u64) {
                return Err(too_large(&name, *kind, &sizes));
            }
        }
        Ok(Port { name, ty })
    }
}

fn bounded(n: &mut usize, most: usize, what: &str) -> Result<(), String> {
    *n += 1;
    match *n > most {
        true => Err(format!(
            "it has more than the {most} {what} that a model may have"
        )),
        false => Ok(()),
    }
}

fn few(n: usize, what: &str) -> Result<(), String> {
    bounded(&mut n.clone(), NAMED_MAX, what)
}

fn too_large(name: &str, kind: Kind, dims: &[i64]) -> String {
    let shape: Vec<String> = dims.iter().take(8).map(i64::to_string).collect();
    let more = match dims.len() {
        ..=8 => "",
        _ => ", ...",
    };
    format!(
        "its tensor {:?} of {kind} [{}{more}] has more than the {TENSOR_BYTES_MAX} bytes that one may have",
        shown(name),
        shape.join(", ")
    )
}

fn opset_of(opset: &[u8]) -> Result<(String, i64), String> {
    let (mut domain, mut version) = (String::new(), 0);
    for field in Fields::of(opset) {
        match field? {
            (1, Value::Bytes(bytes)) => domain = text(bytes)?,
            (2, Value::Number(number)) => version = number as i64,
            _ => {}
        }
    }
    Ok((domain, version))
}

/// The type of a port.
fn type_of(ty: &[u8]) -> Result<PortType, String> {
    let (mut tensor, mut other) = (None, None);
    for field in Fields::of(ty) {
        match field? {
            (1, value) => once(&mut tensor, value)?,
            (4, _) => other = Some("a sequence"),
            (5, _) => other = Some("a map"),
            (8, _) => other = Some("a sparse tensor"),
            (9, _) => other = Some("an optional value"),
            _ => {}
        }
    }
    let tensor = match (tensor, other) {
        (Some(tensor), None) => tensor,
        (_, other) => return Ok(PortType::Other(other.unwrap_or("nothing known"))),
    };
    let (mut kind, mut shape) = (Kind(0), None);
    for field in Fields::of(tensor) {
        match field? {
            (1, Value::Number(number)) => {
                kind = Kind(tensor::short(number, "the kind of a value")?);
            }
            (2, value) => once(&mut shape, value)?,
            _ => {}
        }
    }
    Ok(PortType::Tensor(kind, shape.map(dims_of).transpose()?))
}

fn dims_of(shape: &[u8]) -> Result<Vec<Dim>, String> {
    let mut dims = Vec::new();
    for field in Fields::of(shape) {
        if let (1, Value::Bytes(dim)) = field? {
            let mut size = Dim::Free(String::new());
            for field in Fields::of(dim) {
                match field? {
                    (1, Value::Number(n)) => size = Dim::Fixed(n as i64),
                    (2, Value::Bytes(name)) => size = Dim::Free(text(name)?),
                    _ => {}
                }
            }
            // Some exporters write a free axis as a negative or empty one.
            if let Dim::Fixed(..=0) = size {
                size = Dim::Free(String::new());
            }
            if dims.len() == tensor::AXES_MAX {
                return Err(format!(
                    "a tensor of it has more than {} axes",
                    tensor::AXES_MAX
                ));
            }
            dims.push(size);
        }
    }
    Ok(dims)
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
