//! libtorch through tch: TorchScript files on `cpu:0` or `cuda:N`; and on `cpu:0` ONNX files, which it hands to ONNX Runtime.
//!
//! On a GPU each thread has a stream of its own (`cuda.rs`), and executions that come again are recorded (`torch/recorded.rs`).
//!
//! Set `OMP_WAIT_POLICY=PASSIVE` in the environment before the process starts (the `spillgate` binary does). OpenMP
//! reads it once, and threads that spin between batches take the cores from all other work. This backend runs each
//! model on one thread, so that a batch takes the same time whatever else the machine does: more cores serve more
//! devices, they do not speed up one batch.
//!
//! Durations must be predictable. So libtorch's run-time fusion is off: it compiles again for each batch shape. So is its
//! profiling of the first runs, which serves fusion: without it the second run of a model is as fast as all later ones, and a
//! model is soon ready once it is loaded. The first call of each shape still pays for memory and cuDNN's choice of algorithm: warm up
//! with the batch sizes that will be served.

pub mod archive;
mod gpu;
mod memory;
pub(crate) mod network;
pub(crate) mod recorded;

use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use tch::{CModule, Device, IValue, Kind};

use crate::cuda::{Urgency, enter};
use crate::description::Description;
use crate::forward::{check, failed};
use crate::model_file::{self, ModelFile};
use crate::{Backend, BackendError, Copier, Model};
pub use archive::{Archive, FormId};
use gpu::{GpuCopier, GpuModel};
use network::Lent;
use spillgate_process::file;
use spillgate_process::value::Tensor;

/// The name of the best device here: `cuda:0` where libtorch finds a usable GPU, else `cpu:0`. This is
/// what `auto` in a pipeline means.
pub fn auto() -> String {
    if tch::Cuda::is_available() {
        "cuda:0"
    } else {
        "cpu:0"
    }
    .to_owned()
}

/// Names of all devices that [`TorchBackend::new`] accepts here: the GPUs, then `cpu:0`.
pub fn devices() -> Vec<String> {
    let n_gpus = if tch::Cuda::is_available() {
        tch::Cuda::device_count()
    } else {
        0
    };
    (0..n_gpus)
        .map(|i| format!("cuda:{i}"))
        .chain(["cpu:0".to_owned()])
        .collect()
}

/// Largest model file that is loaded, in bytes: the whole file is in memory then.
pub(crate) const MODEL_BYTES_MAX: usize = 16 << 30;
/// Memory for files that a backend keeps from one to the next, in bytes.
pub(crate) const BUFFER_BYTES_MAX: usize = 64 << 20;

/// Runs TorchScript models on one device; on the CPU those of ONNX, too.
pub struct TorchBackend {
    device: Device,
    /// Holds the file that is loaded.
    buffer: Vec<u8>,
    /// Whether a model was loaded whose first runs take longer.
    has_cold: bool,
}

impl TorchBackend {
    /// For `cpu:0` (or `cpu`), `cuda:N`, or `auto` (see [`auto`]).
    ///
    /// The first call in a process sets libtorch to one thread an operation, and one between operations.
    ///
    /// # Errors
    /// When there is no such device here.
    pub fn new(device: &str) -> Result<Self, BackendError> {
        configure();
        Ok(TorchBackend {
            device: parse(device)?,
            buffer: Vec::new(),
            has_cold: false,
        })
    }

    /// Bytes of memory that the device has, or of the host's memory that this process may have, where that is known.
    pub fn memory(&self) -> Option<u64> {
        match self.device {
            Device::Cuda(index) => memory::of_gpu(index),
            _ => memory::of_host(),
        }
    }
}

/// Settings of the whole process, made once.
fn configure() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tch::set_num_threads(1);
        tch::set_num_interop_threads(1);
        tch::jit::set_tensor_expr_fuser_enabled(false);
        tch::jit::set_profiling_mode(false);
    });
}

fn parse(name: &str) -> Result<Device, BackendError> {
    let no_device = |detail: String| BackendError::Device {
        device: name.to_owned(),
        detail,
    };
    if name == "auto" {
        return parse(&auto());
    }
    if name == "cpu" || name == "cpu:0" {
        return Ok(Device::Cpu);
    }
    if name.starts_with("cpu:") {
        return Err(no_device("all cores are one device, cpu:0".to_owned()));
    }
    let Some(index) = name
        .strip_prefix("cuda:")
        .and_then(|n| n.parse::<usize>().ok())
    else {
        return Err(no_device("expected cpu:0, cuda:N or auto".to_owned()));
    };
    if !tch::Cuda::is_available() {
        let why = if tch::utils::has_cuda() {
            "libtorch sees no usable GPU (driver?)"
        } else {
            "this libtorch is built without CUDA (docs/devices.md says how to run with another)"
        };
        return Err(no_device(format!("{why}; cpu:0 is there")));
    }
    let n_gpus = tch::Cuda::device_count() as usize;
    if index >= n_gpus {
        return Err(no_device(format!(
            "there are {n_gpus} GPUs, cuda:0 to cuda:{}",
            n_gpus - 1
        )));
    }
    Ok(Device::Cuda(index))
}

impl TorchBackend {
    fn load_content(&mut self, path: &Path, file: &ModelFile) -> Result<Box<dyn Model>, String> {
        model_file::approved(path, file)?;
        let archive = match file {
            ModelFile::TorchScript(archive) => archive,
            #[cfg(feature = "onnx")]
            ModelFile::Onnx(bytes) => {
                if let Device::Cuda(index) = self.device {
                    return Err(format!(
                        "ONNX models run on cpu:0, and this module on cuda:{index}; write device: cpu:0, or export the model as TorchScript"
                    ));
                }
                let beside = |path: &Path, bytes: &[u8]| {
                    model_file::approved(path, &ModelFile::Weights(bytes))
                };
                let model = crate::onnx::load(path, bytes, &beside)?;
                // Its arena grows with the first run of each size.
                self.has_cold = true;
                return Ok(Box::new(model));
            }
            _ => {
                return Err(
                    "no TorchScript model, and this program was built without ONNX".to_owned(),
                );
            }
        };
        let lent = network::load(archive, self.device).map_err(|e| match archive.is_zip() {
            true if e.contains("Unknown builtin op: torchvision::") => {
                "it calls operators of torchvision, which libtorch lacks; export it without the suppression of overlaps (of Ultralytics: \
                 nms=False), or to ONNX"
                    .to_owned()
            }
            true => format!("no TorchScript model: {}", one_line(&e)),
            false => "no TorchScript model, which is a zip archive, and no ONNX model".to_owned(),
        })?;
        self.has_cold |= lent.is_cold;
        let description = archive.description();
        Ok(match self.device {
            Device::Cuda(index) => Box::new(GpuModel::new(path, lent, description, index)),
            _ => Box::new(TorchModel {
                path: path.to_path_buf(),
                lent,
                description,
            }),
        })
    }
}

impl Backend for TorchBackend {
    fn device_kind(&self) -> &'static str {
        if self.device.is_cuda() { "cuda" } else { "cpu" }
    }

    fn load(&mut self, path: &Path) -> Result<Box<dyn Model>, BackendError> {
        let error = |detail: String| BackendError::Load {
            path: path.to_path_buf(),
            detail,
        };
        if let Device::Cuda(index) = self.device {
            enter(index, Urgency::Loading).map_err(|e| error(one_line(&e)))?;
        }
        let mut bytes = take(&mut self.buffer);
        let read = file::read_into(path, MODEL_BYTES_MAX, &mut bytes).map_err(|e| e.to_string());
        let loaded = read.and_then(|()| self.load_content(path, &ModelFile::of(&bytes)));
        if bytes.capacity() <= BUFFER_BYTES_MAX {
            self.buffer = bytes;
        }
        loaded.map_err(error)
    }

    fn first_runs(&self) -> usize {
        match self.device {
            Device::Cuda(_) => recorded::RECORDED_AT as usize,
            _ => 1,
        }
    }

    fn take_cold(&mut self) -> bool {
        take(&mut self.has_cold)
    }

    fn leaves_cores(&self) -> bool {
        self.device.is_cuda()
    }

    fn workspace(&mut self, run: &mut dyn FnMut()) -> Option<u64> {
        #[cfg(feature = "onnx")]
        crate::onnx::ran();
        let taken = memory::taken_by(self.device, run);
        // libtorch knows nothing of what ONNX Runtime takes.
        #[cfg(feature = "onnx")]
        let taken = taken.filter(|_| !crate::onnx::ran());
        taken
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        match self.device {
            Device::Cuda(index) => Some(Arc::new(GpuCopier::new(index))),
            _ => None,
        }
    }
}

/// A model on the CPU.
struct TorchModel {
    path: PathBuf,
    lent: Lent,
    description: Description,
}

impl Model for TorchModel {
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        tch::no_grad(|| self.run(inputs)).map_err(|why| failed(&self.path, inputs, &why))
    }

    fn description(&self) -> &Description {
        &self.description
    }
}

impl TorchModel {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        let given = |input| {
            check(input)?;
            let tensor = tch::Tensor::f_from_slice(&input.data);
            tensor.and_then(|t| t.f_reshape(&input.shape)).map_err(say)
        };
        let arguments = inputs.iter().map(given).collect::<Result<_, _>>()?;
        let outputs = call(self.lent.network.module(), arguments)?;
        outputs.iter().map(|t| to_host(t).map_err(say)).collect()
    }
}

/// Calls a model.
fn call(module: &CModule, inputs: Vec<tch::Tensor>) -> Result<Vec<tch::Tensor>, String> {
    let arguments: Vec<IValue> = inputs.into_iter().map(IValue::Tensor).collect();
    let output = module.forward_is(&arguments).map_err(say)?;
    let mut outputs = Vec::new();
    flatten(output, &mut outputs)?;
    Ok(outputs)
}

fn say(error: tch::TchError) -> String {
    one_line(&error.to_string())
}

/// The tensors of an output, in order: one tensor, or tuples and lists of them.
fn flatten(output: IValue, tensors: &mut Vec<tch::Tensor>) -> Result<(), String> {
    match output {
        IValue::Tensor(tensor) => tensors.push(tensor),
        IValue::TensorList(list) => tensors.extend(list),
        IValue::Tuple(list) | IValue::GenericList(list) => {
            for value in list {
                flatten(value, tensors)?;
            }
        }
        IValue::None => {}
        IValue::GenericDict(_) => {
            return Err(
                "the model returns a dictionary; wrap it so that it returns a tensor or a \
                        tuple of tensors"
                    .to_owned(),
            );
        }
        _ => {
            return Err(
                "the model returns something that is no tensor; wrap it so that it returns a \
                        tensor or a tuple of tensors"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

fn to_host(tensor: &tch::Tensor) -> Result<Tensor, tch::TchError> {
    let tensor = tensor
        .f_to_device(Device::Cpu)?
        .f_to_kind(Kind::Float)?
        .f_contiguous()?;
    let shape = tensor.size();
    let mut data = vec![0.0; tensor.numel()];
    let n = data.len();
    tensor.f_copy_data(&mut data, n)?;
    Ok(Tensor::new(shape, data))
}

/// libtorch's message, without its C++ and TorchScript backtraces.
fn one_line(text: &str) -> String {
    let text = text.trim_start_matches("Internal torch error: ");
    // The failing operation comes last, after the traceback of the TorchScript code.
    let told = text
        .lines()
        .rev()
        .find_map(|l| l.trim().strip_prefix("RuntimeError: "));
    let line = told
        .or_else(|| text.lines().map(str::trim).find(|l| !l.is_empty()))
        .unwrap_or("");
    // "[enforce fail at file.cc:152] . message", "message (at file.cpp:12)", "Exception raised from ...".
    let line = line.split("Exception raised from").next().unwrap_or(line);
    let line = match line.strip_prefix("[enforce fail at ") {
        Some(rest) => rest.split_once("] . ").map_or(rest, |(_, message)| message),
        None => line,
    };
    let line = line
        .split(" This is an internal miniz error")
        .next()
        .unwrap_or(line);
    line.trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model file that goes with its test.
    struct File(PathBuf);

    impl File {
        fn new(name: &str) -> Self {
            File(std::env::temp_dir().join(format!("spillgate-{}-{name}", std::process::id())))
        }

        fn traced(name: &str, f: fn(&tch::Tensor) -> Vec<tch::Tensor>, example: &[i64]) -> Self {
            let file = File::new(name);
            let example = tch::Tensor::zeros(example, (Kind::Float, Device::Cpu));
            CModule::create_by_tracing(
                "test",
                "forward",
                &[example],
                &mut |x: &[tch::Tensor]| f(&x[0]),
            )
            .and_then(|module| module.save(&file.0))
            .expect("tracing");
            file
        }

        fn load(&self) -> Result<Box<dyn Model>, BackendError> {
            TorchBackend::new("cpu:0").expect("a CPU").load(&self.0)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_traced_model_runs_at_any_batch_size() {
        let file = File::traced("double.pt", |x| vec![x * 2.0 + 1.0], &[1, 3]);
        let mut model = file.load().expect("a model");
        for n in [1usize, 2, 5] {
            let data: Vec<f32> = (0..n * 3).map(|v| v as f32).collect();
            let outputs = model
                .forward(&[Tensor::new(vec![n as i64, 3], data.clone())])
                .expect("runs");
            assert_eq!(outputs.len(), 1);
            assert_eq!(outputs[0].shape, [n as i64, 3]);
            let expected: Vec<f32> = data.iter().map(|v| v * 2.0 + 1.0).collect();
            assert_eq!(outputs[0].data, expected);
        }
    }

    #[test]
    fn outputs_of_other_kinds_and_strides_arrive_as_floats() {
        let file = File::traced(
            "t.pt",
            |x| vec![x.transpose(0, 1).to_kind(Kind::Int64)],
            &[2, 2],
        );
        let mut model = file.load().expect("a model");
        let input = Tensor::new(vec![2, 2], vec![1.0, 2.0, 3.0, 4.5]);
        let outputs = model.forward(&[input]).expect("runs");
        assert_eq!(outputs[0].data, [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn tuples_and_lists_of_tensors_are_several_outputs() {
        let tensor = |v: i64| tch::Tensor::from_slice(&[v]);
        let nested = IValue::Tuple(vec![
            IValue::Tensor(tensor(1)),
            IValue::TensorList(vec![tensor(2), tensor(3)]),
            IValue::None,
        ]);
        let mut tensors = Vec::new();
        flatten(nested, &mut tensors).expect("only tensors");
        let values: Vec<i64> = tensors.iter().map(|t| t.int64_value(&[0])).collect();
        assert_eq!(values, [1, 2, 3]);
        let error =
            flatten(IValue::GenericDict(Vec::new()), &mut tensors).expect_err("a dictionary");
        assert!(error.contains("dictionary"), "{error}");
    }

    fn is_clean(text: &str) {
        assert!(!text.contains('\n'), "{text}");
        assert!(!text.contains("Exception raised"), "{text}");
        assert!(!text.contains("frame #"), "{text}");
        assert!(text.len() < 400, "{text}");
    }

    #[test]
    fn junk_and_missing_files_are_errors_of_one_line() {
        let file = File::new("junk.pt");
        std::fs::write(&file.0, b"this is no model").expect("writes");
        let error = file.load().err().expect("junk is no model").to_string();
        is_clean(&error);
        assert!(
            error.contains("junk.pt") && error.contains("no TorchScript model"),
            "{error}"
        );
        let error = File::new("missing.pt")
            .load()
            .err()
            .expect("no file")
            .to_string();
        is_clean(&error);
        assert!(
            error.contains("missing.pt") && error.contains("No such file"),
            "{error}"
        );
    }

    #[test]
    fn wrong_shapes_are_errors_of_one_line_and_the_model_lives_on() {
        fn times_matrix(x: &tch::Tensor) -> Vec<tch::Tensor> {
            vec![x.matmul(&tch::Tensor::ones([3, 2], (Kind::Float, Device::Cpu)))]
        }
        let file = File::traced("matmul.pt", times_matrix, &[1, 3]);
        let mut model = file.load().expect("a model");
        let error = model
            .forward(&[Tensor::new(vec![1, 4], vec![0.0; 4])])
            .expect_err("4 is not 3");
        let error = error.to_string();
        is_clean(&error);
        assert!(
            error.contains("[1, 4]") && error.contains("cannot be multiplied"),
            "{error}"
        );
        let short = Tensor {
            shape: vec![1, 3],
            data: vec![0.0; 2],
            left_out: Vec::new(),
        };
        is_clean(&model.forward(&[short]).expect_err("too short").to_string());
        is_clean(&model.forward(&[]).expect_err("no input").to_string());
        let outputs = model
            .forward(&[Tensor::new(vec![1, 3], vec![1.0; 3])])
            .expect("still runs");
        assert_eq!(outputs[0].data, [3.0, 3.0]);
    }

    #[test]
    fn devices_that_are_not_here_are_errors() {
        for name in ["cpu:1", "cuda:99", "tpu:0", "cuda:x", ""] {
            let error = TorchBackend::new(name).err().expect(name).to_string();
            assert!(error.contains(name), "{error}");
            is_clean(&error);
        }
        assert!(devices().contains(&auto()));
        TorchBackend::new("auto").expect("the best device is there");
    }
}
