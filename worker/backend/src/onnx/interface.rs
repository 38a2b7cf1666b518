//! What an ONNX model takes and gives, and whether a module can use it: one input of pictures, of which the first axis is the batch, and
//! outputs of numbers.

use crate::description::{self, Description};

use super::graph::{Described, Dim, Kind, Port, PortType, shown};

/// The numbers that an input takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum InputKind {
    Float32,
    Float16,
    Uint8,
}

/// How many requests a run of the model takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Batch {
    /// As many as there are.
    Any,
    /// So many: fewer are filled up, and more are cut in pieces.
    Of(usize),
    /// One, and the outputs are lists of what was found in it, as long as there is to say.
    Lists,
}

/// What a model takes.
#[derive(Debug, PartialEq)]
pub(super) struct Interface {
    /// The input's name.
    pub(super) input: String,
    pub(super) kind: InputKind,
    pub(super) batch: Batch,
    /// The sizes of the axes after the first, where all are fixed.
    pub(super) rest: Option<Vec<i64>>,
    /// Names of the outputs.
    outputs: Vec<String>,
}

/// Names that exporters give to the axis of the batch.
const BATCH_NAMES: [&str; 6] = ["batch", "batch_size", "batchsize", "n", "bs", "b"];

impl Interface {
    /// That of a model.
    ///
    /// # Errors
    /// What no module can use, and how to export it otherwise.
    pub(super) fn of(described: &Described) -> Result<Self, String> {
        let input = match described.inputs.as_slice() {
            [input] => input,
            [] => return Err("it has no input; export it with the picture as its input".to_owned()),
            all => {
                let names: Vec<String> = all.iter().take(8).map(|p| shown(&p.name)).collect();
                return Err(format!(
                    "it has {} inputs ({}), and a module gives it one; export it with the picture alone as its input, and the others as \
                     constants of the model",
                    all.len(),
                    names.join(", ")
                ));
            }
        };
        let outputs: Vec<String> = described.outputs.iter().map(|p| p.name.clone()).collect();
        if outputs.is_empty() {
            return Err("it has no output; export it again".to_owned());
        }
        described.outputs.iter().try_for_each(is_usable)?;
        let mut interface = Interface {
            input: input.name.clone(),
            kind: InputKind::Float32,
            batch: Batch::Any,
            rest: None,
            outputs,
        };
        let (kind, dims) = match &input.ty {
            PortType::Tensor(kind, dims) => (*kind, dims.as_deref()),
            PortType::Other(what) => {
                return Err(format!(
                    "its input {:?} is {what}, and a module gives it a tensor; export it with a tensor as its input",
                    shown(&input.name)
                ));
            }
        };
        interface.kind = match kind {
            Kind::FLOAT => InputKind::Float32,
            Kind::FLOAT16 => InputKind::Float16,
            Kind::UINT8 => InputKind::Uint8,
            kind => {
                return Err(format!(
                    "its input {:?} takes {kind}, and a module gives float32, float16 or uint8; export it with one of these",
                    shown(&input.name)
                ));
            }
        };
        if let Some(dims) = dims {
            interface.axes(dims)?;
        }
        if interface.batch == Batch::Of(1) && described.outputs.iter().any(is_list) {
            interface.batch = Batch::Lists;
        }
        Ok(interface)
    }

    /// Which axis is the batch.
    fn axes(&mut self, dims: &[Dim]) -> Result<(), String> {
        let Some((first, rest)) = dims.split_first() else {
            return Err(format!(
                "its input {:?} has no axes, and the first is to be the batch; {}",
                shown(&self.input),
                self.export()
            ));
        };
        let is_named = |dim: &Dim| matches!(dim, Dim::Free(name) if BATCH_NAMES.contains(&&*name.to_ascii_lowercase()));
        match first {
            Dim::Free(_) => {}
            Dim::Fixed(n) => {
                // Height and width may be free, the channels of a picture never are.
                let channels = |at: &usize| {
                    rest.len() == 3 && *at == 0 && !is_free(&rest[1]) && !is_free(&rest[2])
                };
                let wrong = (0..rest.len())
                    .find(|at| is_named(&rest[*at]) || is_free(&rest[*at]) && channels(at));
                if let Some(at) = wrong {
                    return Err(format!(
                        "axis {} of its input {:?} is free and the first is fixed at {n}: the batch is to be the first axis; {}",
                        at + 1,
                        shown(&self.input),
                        self.export()
                    ));
                }
                self.batch = Batch::Of(usize::try_from(*n).map_err(|e| e.to_string())?);
            }
        }
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => Some(*size),
            Dim::Free(_) => None,
        };
        self.rest = rest.iter().map(size).collect();
        Ok(())
    }

    /// What the file says of its inputs and outputs, and beside them.
    pub(super) fn description(described: Described) -> Description {
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => Some(*size),
            Dim::Free(_) => None,
        };
        let port = |port: &Port| match &port.ty {
            PortType::Tensor(kind, dims) => Some(description::Port {
                name: shown(&port.name),
                kind: kind.name(),
                axes: dims.as_ref().map(|dims| dims.iter().map(size).collect()),
            }),
            PortType::Other(_) => None,
        };
        Description {
            inputs: described.inputs.iter().filter_map(port).collect(),
            outputs: described.outputs.iter().filter_map(port).collect(),
            metadata: described.metadata,
        }
    }

    /// The name of an output.
    pub(super) fn output(&self, at: usize) -> String {
        self.outputs
            .get(at)
            .map(|name| shown(name))
            .unwrap_or_default()
    }

    /// The line that exports a model with a free batch.
    pub(super) fn export(&self) -> String {
        let quoted = |name: &str| format!("\"{}\"", shown(name));
        let mut axes = vec![quoted(&self.input)];
        let outputs: Vec<String> = self
            .outputs
            .iter()
            .take(8)
            .map(|name| quoted(name))
            .collect();
        let input = axes[0].clone();
        axes.extend(outputs.iter().cloned());
        let axes: Vec<String> = axes
            .iter()
            .map(|name| format!("{name}: {{0: \"batch\"}}"))
            .collect();
        format!(
            "export it with torch.onnx.export(model.eval(), example, FILE, input_names=[{input}], output_names=[{}], dynamic_axes={{{}}})",
            outputs.join(", "),
            axes.join(", ")
        )
    }
}

/// Whether an output is a list of numbers of which nobody knows the length: no batch of one has such, and what finds objects has.
fn is_list(port: &Port) -> bool {
    matches!(&port.ty, PortType::Tensor(_, Some(dims)) if dims.len() == 1 && is_free(&dims[0]))
}

fn is_free(dim: &Dim) -> bool {
    matches!(dim, Dim::Free(_))
}

/// Whether a module can use an output.
fn is_usable(port: &Port) -> Result<(), String> {
    let zipmap = "export it without them (of scikit-learn: convert_sklearn(..., options={'zipmap': False}), and take the label's output away)";
    let name = shown(&port.name);
    match &port.ty {
        PortType::Tensor(kind, _) if kind.is_number() => Ok(()),
        PortType::Tensor(Kind::STRING, _) => Err(format!(
            "its output {name:?} gives strings, and modules take numbers; {zipmap}"
        )),
        PortType::Tensor(kind, _) => Err(format!(
            "its output {name:?} gives {kind}, and modules take float, integers and bool; cast it to float32 in the model"
        )),
        PortType::Other(what @ ("a sequence" | "a map")) => Err(format!(
            "its output {name:?} is {what}, and modules take tensors; {zipmap}"
        )),
        PortType::Other(what) => Err(format!(
            "its output {name:?} is {what}, and modules take tensors; export it with tensors as its outputs"
        )),
    }
}
