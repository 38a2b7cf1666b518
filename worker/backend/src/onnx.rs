//! ONNX Runtime through ort: ONNX files on `cpu:0`. The library is loaded with the first of them ([`ready`]).
//!
//! A model has a session of its own, with one thread that executes: the caller's. What it needs while it runs comes from an arena of the
//! session, which goes with it; weights lie beside the arena, so that they take what the file says.
//!
//! Numbers: an input of float16 is rounded to the nearest, ties to even, and what is too large for it becomes infinite. One of uint8 is
//! rounded to the nearest, ties away from zero, and ends at 0 and 255; what is no number becomes 0. Outputs become float32: integers above
//! 2^24 are rounded, and true is 1.
//!
//! A file is read by itself first (`graph.rs`, bounds there), since ONNX Runtime allocates what a file asks for.

mod convert;
mod external;
mod graph;
mod interface;
mod library;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort::ErrorCode;
use ort::ep::CPU;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use spillgate_process::file;
use spillgate_process::value::Tensor;

use crate::description::Description;
use crate::forward::{check, failed};
use crate::{BackendError, Model};
use external::ExternalFile;
use graph::Described;
pub(crate) use graph::{DEPTH_MAX, NODES_MAX, TENSOR_BYTES_MAX, TENSORS_MAX};
pub use graph::{HEAD_BYTES, ONNX_BYTES_MAX, begins_as_onnx};
use interface::{Batch, Interface};
pub use library::{VARIABLE, loaded, ready};

/// Sizes of a batch with which a model whose batch is free is tried when it is loaded.
const TRIED: [i64; 2] = [1, 2];

/// Whether a file with this content may be loaded; an error gives the reason why not.
pub type Approve<'a> = &'a dyn Fn(&Path, &[u8]) -> Result<(), String>;

/// Whether a module can use a file with this content, as far as its text tells.
///
/// # Errors
/// What is wrong with it, and how to export it otherwise.
pub fn look(bytes: &[u8]) -> Result<(), String> {
    Interface::of(&graph::describe(bytes)?).map(|_| ())
}

/// What a file with this content says of itself.
///
/// # Errors
/// What is wrong with it.
pub fn description(bytes: &[u8]) -> Result<Description, String> {
    Ok(Interface::description(graph::describe(bytes)?))
}

/// The files beside a model with this content that hold weights of it, by its folder.
///
/// # Errors
/// When the file is no model, or one of these is not there or lies elsewhere.
pub fn weights_beside(path: &Path, bytes: &[u8]) -> Result<Vec<PathBuf>, String> {
    let files = external::files(path, &graph::describe(bytes)?)?;
    Ok(files.into_iter().map(|file| file.named).collect())
}

/// Loads a model of this content. `approve` is asked about files beside it.
///
/// # Errors
/// What is wrong with it or with ONNX Runtime, on one line, and what would be right.
pub fn load(path: &Path, bytes: &[u8], approve: Approve<'_>) -> Result<OnnxModel, String> {
    let described = graph::describe(bytes)?;
    let interface = Interface::of(&described)?;
    let files = external::files(path, &described)?;
    let environment = library::environment()?;
    let refused = |error: ort::Error| refusal(&error, &described);
    let builder = SessionBuilder::new(&environment).map_err(refused)?;
    let mut builder = settings(builder).map_err(refused)?;
    for file in files {
        let content = read(&file, approve)?;
        builder = builder
            .with_external_initializer_file_in_memory(&file.location, content)
            .map_err(|error| refused(error.into()))?;
    }
    let session = builder.commit_from_memory(bytes).map_err(refused)?;
    let mut model = OnnxModel {
        path: path.to_owned(),
        session,
        interface,
        description: Interface::description(described),
    };
    model.try_out()?;
    Ok(model)
}

/// A file with weights, read once and approved.
fn read(of: &ExternalFile, approve: Approve<'_>) -> Result<Arc<[u8]>, String> {
    let most = usize::try_from(graph::WEIGHTS_BYTES_MAX).map_err(|e| e.to_string())?;
    let shown = of.path.display();
    let content = file::read(&of.path, most).map_err(|e| format!("{shown}: {e}"))?;
    if (content.len() as u64) < of.least {
        return Err(format!(
            "{shown} has {} bytes, and the model's weights end at {}; copy that file again",
            content.len(),
            of.least
        ));
    }
    approve(&of.path, &content).map_err(|why| format!("{shown}: {why}"))?;
    Ok(content.into())
}

/// One thread that does not wait busily; all optimisations; weights beside the arena.
fn settings(builder: SessionBuilder) -> ort::Result<SessionBuilder> {
    let builder = builder
        .with_execution_providers([CPU::default().with_arena_allocator(true).build()])?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .with_parallel_execution(false)?
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        // It would guess the format by some bytes, and run what was not looked at.
        .with_config_entry("session.load_model_format", "ONNX")?
        // It keeps a plan for each size of a batch, and would allocate by it.
        .with_memory_pattern(false)?
        .with_device_allocated_initializers()?;
    Ok(builder)
}

/// ONNX Runtime's message on one line, with the versions of the file where they may be the cause.
fn refusal(error: &ort::Error, described: &Described) -> String {
    let line = one_line(error.message());
    let cure = match error.code() {
        ErrorCode::NotImplemented | ErrorCode::InvalidGraph | ErrorCode::GenericFailure => {
            "; if the file is newer than the library: pip install --upgrade onnxruntime, or export it with a lower opset_version"
        }
        _ => "",
    };
    let library = loaded().unwrap_or_default();
    format!(
        "the ONNX Runtime here ({}) cannot load it ({}): {line}{cure}",
        library.display(),
        described.versions()
    )
}

/// What a message says, on one line, without the place in ONNX Runtime's code.
fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or("");
    let line = line.rsplit("Status Message: ").next().unwrap_or(line);
    without_place(line).trim().trim_end_matches('.').to_owned()
}

/// The text after "/folder/file.cc:256 type name(types) const [with T = type] ".
fn without_place(line: &str) -> &str {
    let after = || {
        let (place, rest) = line.split_once(' ')?;
        let (_, number) = place.rsplit_once(':')?;
        number.parse::<u32>().ok()?;
        // A name alone, or with its types.
        let Some(open) = rest.find('(') else {
            return rest.split_once(' ').map(|(_, text)| text);
        };
        if let Some((name, text)) = rest.split_once(' ')
            && !rest[..open].contains("::")
            && !name.contains('(')
        {
            return Some(text);
        }
        let mut depth = 0;
        let close = rest[open..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        })?;
        let text = rest[open + close + 1..].trim_start();
        let text = text.strip_prefix("const ").unwrap_or(text);
        match text.strip_prefix("[with ") {
            Some(with) => with.split_once("] ").map(|(_, text)| text),
            None => Some(text),
        }
    };
    after().unwrap_or(line)
}

/// A model on the CPU.
pub struct OnnxModel {
    path: PathBuf,
    session: Session,
    interface: Interface,
    description: Description,
}

impl Model for OnnxModel {
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        RAN.set(true);
        self.forward_on(inputs)
            .map_err(|why| failed(&self.path, inputs, &why))
    }

    fn description(&self) -> &Description {
        &self.description
    }
}

thread_local! {
    /// Whether a model ran on this thread since [`ran`] was asked.
    static RAN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether a model ran on this thread since this was asked.
#[cfg(feature = "tch")]
pub(crate) fn ran() -> bool {
    RAN.take()
}

impl OnnxModel {
    fn forward_on(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        let [input] = inputs else {
            return Err(format!(
                "it takes one input, and {} were given",
                inputs.len()
            ));
        };
        check(input)?;
        let Some((&n, rest)) = input.shape.split_first() else {
            return Err("its input has no axis of the batch".to_owned());
        };
        match self.interface.batch {
            Batch::Any => self.run(&input.shape, &input.data),
            Batch::Of(size) => self.in_pieces(size, n, rest, &input.data),
            Batch::Lists => self.lists(n, rest, &input.data),
        }
    }

    /// Runs a batch one by one. The lists of each get an axis for the batch and become as long as the longest, by [`FILLER`].
    fn lists(&mut self, n: i64, rest: &[i64], data: &[f32]) -> Result<Vec<Tensor>, String> {
        let shape: Vec<i64> = [1].into_iter().chain(rest.iter().copied()).collect();
        let row = rest.iter().product::<i64>() as usize;
        let n = usize::try_from(n).map_err(|e| e.to_string())?;
        let each = (0..n).map(|i| self.outputs(&shape, &data[i * row..(i + 1) * row]));
        let each = each.collect::<Result<Vec<_>, String>>()?;
        // An empty batch has no outputs.
        let n_outputs = each.first().map_or(0, Vec::len);
        (0..n_outputs)
            .map(|at| filled(each.iter().map(|outputs| &outputs[at])))
            .collect()
    }

    /// Runs a batch in pieces of the one size that the model takes. What fills up the last is cut off again.
    fn in_pieces(
        &mut self,
        size: usize,
        n: i64,
        rest: &[i64],
        data: &[f32],
    ) -> Result<Vec<Tensor>, String> {
        let shape: Vec<i64> = [size as i64]
            .into_iter()
            .chain(rest.iter().copied())
            .collect();
        let row = rest.iter().product::<i64>() as usize;
        let n = usize::try_from(n).map_err(|e| e.to_string())?;
        let mut all: Vec<Tensor> = Vec::new();
        // An empty batch has outputs, too: of no rows.
        for first in (0..n.max(1)).step_by(size) {
            let there = size.min(n - first.min(n));
            let given = &data[first * row..(first + there) * row];
            let outputs = if there == size {
                self.run(&shape, given)?
            } else {
                let mut filled = given.to_vec();
                filled.resize(size * row, 0.0);
                self.run(&shape, &filled)?
            };
            let outputs = outputs.into_iter().map(|output| rows(output, size, there));
            if all.is_empty() {
                all = outputs.collect();
                continue;
            }
            for (at, (known, more)) in all.iter_mut().zip(outputs).enumerate() {
                if known.shape[1..] != more.shape[1..] {
                    return Err(format!(
                        "its output {:?} has another shape for another picture ({:?}, {:?}), so that a batch of more than {size} cannot be put \
                         together",
                        self.interface.output(at),
                        &known.shape[1..],
                        &more.shape[1..]
                    ));
                }
                known.shape[0] += more.shape[0];
                known.data.extend(more.data);
            }
        }
        Ok(all)
    }

    /// One run.
    fn outputs(&mut self, shape: &[i64], data: &[f32]) -> Result<Vec<Tensor>, String> {
        let input = convert::input(self.interface.kind, shape, data)?;
        let outputs = self.session.run([input]);
        let outputs = outputs.map_err(|error| one_line(error.message()))?;
        let outputs = outputs.values().map(|value| convert::output(value));
        outputs.collect()
    }

    /// One run. Each output has a row for each of the batch.
    fn run(&mut self, shape: &[i64], data: &[f32]) -> Result<Vec<Tensor>, String> {
        let outputs = self.outputs(shape, data)?;
        let n = shape[0];
        let off = outputs
            .iter()
            .position(|output| output.shape.first() != Some(&n));
        match off {
            None => Ok(outputs),
            Some(at) => Err(format!(
                "its output {:?} has the shape {:?} for a batch of {n}: the first axis is to be the batch; {}",
                self.interface.output(at),
                outputs[at].shape,
                self.interface.export()
            )),
        }
    }

    /// Runs it on zeros where its sizes are known, so that a batch that it does not follow is told when it is loaded.
    fn try_out(&mut self) -> Result<(), String> {
        let Some(rest) = self.interface.rest.clone() else {
            return Ok(());
        };
        let row = rest.iter().product::<i64>() as usize;
        let sizes = match self.interface.batch {
            Batch::Any => TRIED.to_vec(),
            Batch::Of(size) => vec![size as i64],
            Batch::Lists => return self.lists(1, &rest, &vec![0.0; row]).map(|_| ()),
        };
        for n in sizes {
            let shape: Vec<i64> = [n].into_iter().chain(rest.iter().copied()).collect();
            let tried = self.run(&shape, &vec![0.0; n as usize * row]);
            tried.map_err(|why| match n {
                2 if why.contains(&self.interface.export()) => format!("{ONE_ALONE}: {why}"),
                2 => format!("{ONE_ALONE}: {why}; {}", self.interface.export()),
                _ => why,
            })?;
        }
        Ok(())
    }
}

/// What is said of a model whose batch is free in its text and fixed within.
const ONE_ALONE: &str = "it runs with a batch of 1 and not of 2";

/// What fills up lists: no score, no class and no place in a picture is below 0.
pub const FILLER: f32 = -1.0;

/// Lists of one output as a tensor with a row for each.
fn filled<'a>(lists: impl Iterator<Item = &'a Tensor> + Clone) -> Result<Tensor, String> {
    let longest = lists.clone().filter_map(|list| list.shape.first()).max();
    let Some((longest, rest)) = longest.zip(lists.clone().next().map(|l| &l.shape[1..])) else {
        return Err("an output of it is a single number, and lists have an axis".to_owned());
    };
    let row = (longest * rest.iter().product::<i64>()) as usize;
    let (mut n, mut data) = (0, Vec::new());
    for list in lists {
        if list.shape.get(1..) != Some(rest) {
            return Err(format!(
                "the lists of one output have rows of different shapes ({:?}, {rest:?})",
                list.shape.get(1..)
            ));
        }
        n += 1;
        data.extend_from_slice(&list.data);
        data.resize(n * row, FILLER);
    }
    let shape = [n as i64, *longest].into_iter().chain(rest.iter().copied());
    Ok(Tensor::new(shape.collect(), data))
}

/// The first rows of an output of `size` rows.
fn rows(mut output: Tensor, size: usize, there: usize) -> Tensor {
    let row = output.data.len() / size;
    output.data.truncate(there * row);
    output.shape[0] = there as i64;
    output
}

#[cfg(test)]
#[path = "../fixtures/onnx.rs"]
#[expect(unreachable_pub, reason = "shared with tests of other packages")]
mod fixture;
#[cfg(test)]
mod tests;
