//! Measures how accurate each variant of a module is, on pictures whose content is known.
//!
//! Pictures are decoded as a server decodes them, and go through the module's own operator on its device, built
//! as a server builds it. Nothing else of the pipeline runs, so only modules whose input is the frame can be measured.
//!
//! - Boxes: the mean F1 over overlaps ([`MeanF1`](spillgate_scenes::score::MeanF1)), as MODELS.md has it. Boxes of classes
//!   that the labels do not know are not counted: nobody said whether they are right.
//! - Labels: the part of the pictures whose first label is right.

pub mod labelled;
mod report;
mod tally;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use spillgate_backend::operator::Library;
use spillgate_backend::torch::TorchBackend;
use spillgate_picture::{Frame, NotDecoded, Picture, decode};
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::id::{MemberId, ModuleId, WorkerId};
use spillgate_pipeline::pipeline::{Module, Pipeline};
use spillgate_pipeline::profile::device_kind;
use spillgate_process::job::Job;
use spillgate_process::value::{Image, Value};
use spillgate_worker::confinement;
use spillgate_worker::operators::{WorkerSpec, serving_operator};

use crate::deployment::Deployment;
use crate::device_name::resolve_device;
use labelled::{Kind, Labelled};
use tally::Tally;

pub use report::Accuracies;

/// The worker whose executor runs the module. There is one.
const WORKER: WorkerId = WorkerId(0);

/// A module whose accuracy can be measured on pictures with labels of a kind.
#[derive(Clone, Debug)]
pub struct Measurable {
    /// Its ordinal.
    pub module: ModuleId,
    /// The device on which it is measured: the first real one of its own.
    pub device: String,
    /// Ordinal of the output that is compared.
    port: usize,
}

/// The module to measure: the one of that name, else the one whose variants are chosen while serving, the first with several.
///
/// # Errors
/// When there is none, or it cannot be measured on pictures with labels of that kind: why, and what would be right.
pub fn choose(pipeline: &Pipeline, name: Option<&str>, kind: Kind) -> Result<Measurable> {
    let modules = &pipeline.modules[1..];
    let module = match name {
        Some(name) => modules.iter().find(|m| m.name == name).with_context(|| {
            let all: Vec<&str> = modules.iter().map(|m| m.name.as_str()).collect();
            let all = all.join(", ");
            format!("no module named \"{name}\"; the modules of the pipeline are {all}")
        })?,
        None => modules.iter().find(|m| m.variants.len() > 1).context(
            "no module has several variants to compare; --module NAME measures the model of one that has a single one",
        )?,
    };
    let name = &module.name;
    if module.variants.is_empty() {
        bail!(
            "module {name} ({}) runs no model, so there is nothing to measure",
            module.op
        );
    }
    if module.family.is_some() {
        bail!(
            "module {name} has a family of models, each with an accuracy of its own; write a pipeline with one of them as `model:`"
        );
    }
    if !takes_only_frames(pipeline, module) {
        let others = modules.iter().filter(|m| {
            !m.variants.is_empty() && m.family.is_none() && takes_only_frames(pipeline, m)
        });
        let others: Vec<&str> = others.map(|m| m.name.as_str()).collect();
        let others = match others.is_empty() {
            true => "none of this pipeline".to_owned(),
            false => others.join(", "),
        };
        bail!(
            "module {name} takes more than the frame, and labelled pictures bring nothing else; modules that can be measured: {others}"
        );
    }
    let mut devices = module.devices.iter().map(|device| resolve_device(device));
    let device = devices.find(|device| device_kind(device) != "emulated");
    let device = device.with_context(|| {
        format!("module {name} has only emulated devices, which run no model; let it have `device: auto`")
    })?;
    let (ty, other) = match kind {
        Kind::Boxes => (
            ValueType::Boxes,
            "boxes; measure it on a folder with a subfolder of pictures for each class",
        ),
        Kind::Class => (
            ValueType::Labels,
            "labels; measure it on scene, or on a folder of pictures with YOLO labels",
        ),
    };
    let port = module.outputs.iter().position(|(_, of)| *of == ty);
    let port = port.with_context(|| format!("module {name} ({}) finds no {other}", module.op))?;
    Ok(Measurable {
        module: module.id,
        device,
        port,
    })
}

/// Whether the picture is the only input of a module.
fn takes_only_frames(pipeline: &Pipeline, module: &Module) -> bool {
    let mut wired = module.inputs.iter().flatten();
    pipeline.source.ty == ValueType::Image && wired.all(|port| port.module == ModuleId::SOURCE)
}

/// Measures all variants of a module on all pictures of a source. `progress` hears how many are done.
///
/// # Errors
/// When the device or a model is missing, or a picture cannot be read or computed.
pub fn measure(
    deployment: &Deployment,
    library: &Arc<Library>,
    what: &Measurable,
    source: &Labelled,
    mut progress: impl FnMut(usize) + Send,
) -> Result<Accuracies> {
    confinement::run(|| measure_here(deployment, library, what, source, &mut progress))
}

fn measure_here(
    deployment: &Deployment,
    library: &Arc<Library>,
    what: &Measurable,
    source: &Labelled,
    progress: &mut dyn FnMut(usize),
) -> Result<Accuracies> {
    let pipeline = &deployment.pipeline;
    let module = &pipeline.modules[what.module.idx()];
    let mut backend = TorchBackend::new(&what.device)?;
    let spec = spec(pipeline, deployment.base_dir.clone(), what.module);
    let member = MemberId::default();
    let mut operator = serving_operator(&spec, member, library, &mut backend)?;
    let tally = Tally::over(source.classes(), source.kind());
    let mut tallies = vec![tally; module.variants.len()];
    for (done, sample) in source.samples().enumerate() {
        let sample = sample?;
        let job = job(pipeline, &sample.name, sample.picture.clone())?;
        for (variant, tally) in tallies.iter_mut().enumerate() {
            let mut ran = operator.run(variant, &[job.inputs(module)]);
            let ran = ran.pop().context("a module answers each request")?;
            let outputs = ran.map_err(|error| anyhow!("{}: {error}", sample.name))?;
            let value = outputs.get(what.port).with_context(|| {
                let n = outputs.len();
                format!(
                    "module {} gave {n} outputs, fewer than its type says",
                    module.name
                )
            })?;
            tally
                .add(&sample.truth, value)
                .with_context(|| format!("module {}: {}", module.name, sample.name))?;
        }
        progress(done + 1);
    }
    Ok(Accuracies::new(module, source, tallies))
}

/// The only worker of a module.
pub(crate) fn spec(pipeline: &Arc<Pipeline>, base_dir: PathBuf, module: ModuleId) -> WorkerSpec {
    WorkerSpec {
        worker: WORKER,
        pipeline: pipeline.clone(),
        base_dir,
        module,
        execution: ModuleExecution::default(),
        from_start: false,
        members: None,
        load: None,
    }
}

/// A request with its picture decoded. Nothing stops the decoder: a server's limit of time would make a measurement
/// fail on a busy machine.
pub(crate) fn job(pipeline: &Pipeline, name: &str, picture: Bytes) -> Result<Job> {
    let frame = Frame::file(picture);
    let picture =
        Picture::of(&frame, pipeline.limits.pixels).map_err(|e| anyhow!("{name}: {e}"))?;
    let decoded = decode(&frame, &picture, &mut || false).map_err(|error| match error {
        NotDecoded::Unreadable(text) => anyhow!("{name}: {text}"),
        NotDecoded::Stopped => unreachable!("nothing stops it"),
    })?;
    let image = Value::Image(Arc::new(Image {
        width: picture.width,
        height: picture.height,
        rgb: decoded.rgb,
    }));
    let job = Job::unaccounted(frame, pipeline.modules.len());
    job.set_outputs(ModuleId::SOURCE, vec![image])
        .map_err(|full| anyhow!("{name}: {full}"))?;
    Ok(job)
}

#[cfg(test)]
mod tests;
