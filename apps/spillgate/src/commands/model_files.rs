//! `spillgate models`: what a model file is, and the module that serves it.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use image::RgbImage;
use serde_json::Value as Json;
use spillgate_backend::description::{Description, Port};
use spillgate_backend::model_file::ModelFile;
use spillgate_backend::torch::TorchBackend;
use spillgate_client::annotate::annotate;
use spillgate_client::record::value_to_json;
use spillgate_controller::convert::of_module;
use spillgate_modules::suggest::{Suggestion, suggest};
use spillgate_pipeline::id::MemberId;
use spillgate_process::file;
use spillgate_process::value::Value;
use spillgate_proto::pb;
use spillgate_telemetry::logging::say;
use spillgate_worker::confinement;
use spillgate_worker::operators::serving_operator;

use super::models::ModelArgs;
use super::serve::start::not_confined;
use crate::accuracy;
use crate::commands;
use crate::files::{self, LoadedPipeline};
use crate::model_check::{Checks, look_at};

/// What is done with a model file.
#[derive(Subcommand)]
pub(crate) enum ModelsCommand {
    /// Print what a model file is and says of itself, how its outputs are decoded, and the YAML that serves it.
    Inspect(InspectArgs),
}

/// Which file.
#[derive(Args)]
pub(crate) struct InspectArgs {
    /// The model file.
    file: PathBuf,
    /// Run the model on this picture, print what it finds, and draw it.
    #[arg(long)]
    image: Option<PathBuf>,
    /// Where the picture with what was found is written.
    #[arg(long, default_value = "found.png", requires = "image")]
    out: PathBuf,
    /// Write a pipeline file with this module alone.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// The module type to try, in place of the one that is suggested.
    #[arg(long)]
    op: Option<String>,
    /// Options of the module to try, as YAML writes them: "{ mean: [0.5, 0.5, 0.5], color: bgr }". They go before those suggested.
    #[arg(long)]
    options: Option<String>,
    #[command(flatten)]
    models: ModelArgs,
}

/// Name of the module in the suggested pipeline.
const MODULE: &str = "mine";
/// Most characters of a value of the metadata that are printed.
const VALUE_MAX: usize = 100;
/// Largest model file that is looked at, in bytes: as large as those that are served.
const MODEL_BYTES_MAX: usize = 16 << 30;
/// Most items of an output that are printed, and characters of each.
const ITEMS_MAX: usize = 20;
const ITEM_MAX: usize = 200;
/// Most bytes of a picture: no camera's file has more.
const PICTURE_BYTES_MAX: usize = 256 << 20;

pub(crate) fn run(command: &ModelsCommand) -> anyhow::Result<ExitCode> {
    match command {
        ModelsCommand::Inspect(args) => inspect(args),
    }
}

fn inspect(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let path = args.file.as_path();
    not_over(args)?;
    let shown = path.display();
    // What is no model is not read to its end, which it may not have.
    let mut opened = file::open(path).with_context(|| format!("{shown}"))?;
    look_at(&mut opened).map_err(|why| anyhow!("{shown}: {why}"))?;
    let bytes = file::read(path, MODEL_BYTES_MAX).with_context(|| format!("{shown}"))?;
    let model = ModelFile::of(&bytes);
    let format = match &model {
        ModelFile::Onnx(_) => "ONNX",
        _ => "TorchScript",
    };
    let description = model
        .description()
        .map_err(|why| anyhow!("{shown}: {why}"))?;
    commands::print(&described(path, format, bytes.len(), &description))?;
    let named =
        path.with_extension("labels").exists() || path.with_file_name("labels.txt").exists();
    let suggestion = match suggest(&description, named) {
        Err(why) if args.op.is_none() => bail!("{shown}: {why}"),
        Err(why) => Suggestion::of_none(why),
        Ok(suggestion) => suggestion,
    };
    let chosen = Chosen::of(args, &suggestion)?;
    let name = path.file_name().context("name a file")?.to_string_lossy();
    let yaml = chosen.yaml(&name);
    commands::print(&format!("\nserved by\n\n{yaml}\n"))?;
    for sentence in &suggestion.because {
        commands::print(&format!("- {sentence}\n"))?;
    }
    let library = commands::library();
    let text = format!("name: inspect\nslo: 1h\n{yaml}");
    let loaded = files::of_text(
        text,
        &path.with_file_name("the YAML above"),
        &library.catalog(),
    )?;
    let also: Vec<PathBuf> = args.image.iter().cloned().collect();
    checked(&loaded, &args.models, &also)?;
    commands::print("\nit was loaded and run, confined\n")?;
    if let Some(file) = &args.write {
        let model = from_beside(file, path)?;
        let name = pipeline_name(path);
        let text = format!("name: {name}\nslo: 1s\n{}", chosen.yaml(&model));
        spillgate_output::write(file, text)?;
        say(&format!("wrote {}", file.display()));
    }
    match &args.image {
        Some(image) => found(&loaded, &chosen.outputs, image, &args.out),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Checks the model as a server does, and has this process load no other. What is a warning there is an error here: the model failed on a picture.
fn checked(loaded: &LoadedPipeline, models: &ModelArgs, also: &[PathBuf]) -> anyhow::Result<()> {
    let mut checks = Checks::new(models.config(), commands::library())?;
    checks.allow(std::slice::from_ref(loaded));
    let (_, warnings) = checks.pipeline(loaded, &|_| true, &|_| {})?;
    if let Some(first) = warnings.first() {
        bail!("{}", first.trim_start_matches("warning: "));
    }
    if let Err(why) = checks.guard_loading(also) {
        say(&not_confined(&why));
    }
    Ok(())
}

/// The way to a model from a pipeline file: its name where both lie in one folder.
fn from_beside(pipeline: &Path, model: &Path) -> anyhow::Result<String> {
    let folder = |path: &Path| {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        parent
            .canonicalize()
            .with_context(|| format!("{}", parent.display()))
    };
    let name = model.file_name().context("name a file")?;
    let model = match folder(pipeline)? == folder(model)? {
        true => PathBuf::from(name),
        false => folder(model)?.join(name),
    };
    Ok(model.to_string_lossy().into_owned())
}

/// A name for the pipeline of a model: what its file's name has of the characters that names have.
fn pipeline_name(model: &Path) -> String {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    let kept = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '_',
    };
    let kept: String = stem.chars().take(40).map(kept).collect();
    match kept.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => kept,
        false => format!("m_{kept}"),
    }
}

/// Checks that nothing is written over what is read, and that it can be written.
fn not_over(args: &InspectArgs) -> anyhow::Result<()> {
    let out = args.image.as_ref().map(|_| &args.out);
    let same = |a: &Path, b: &Path| match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    };
    for (flag, written) in [("--out", out), ("--write", args.write.as_ref())] {
        let Some(written) = written else { continue };
        let read = std::iter::once(&args.file).chain(&args.image);
        if let Some(read) = read.into_iter().find(|read| same(read, written)) {
            bail!(
                "{flag} {}: it would be written over {}; name another file",
                written.display(),
                read.display()
            );
        }
        spillgate_output::check(written)?;
    }
    Ok(())
}

/// What is known of a file, as lines.
fn described(path: &Path, format: &str, bytes: usize, description: &Description) -> String {
    let mut text = format!(
        "{}: {format}, {:.1} MiB\n",
        path.display(),
        bytes as f64 / f64::from(1 << 20)
    );
    for (what, ports) in [
        ("inputs", &description.inputs),
        ("outputs", &description.outputs),
    ] {
        match ports.as_slice() {
            [] => text += &format!("{what}: not said in this format\n"),
            ports => {
                text += &format!("{what}:\n");
                for port in ports {
                    text += &format!("  {}\n", port_line(port));
                }
            }
        }
    }
    if description.metadata.is_empty() {
        text += "metadata: none\n";
        return text;
    }
    text += "metadata:\n";
    for (key, value) in &description.metadata {
        let value: String = value
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let cut: String = value.chars().take(VALUE_MAX).collect();
        let more = if cut.len() < value.len() { "..." } else { "" };
        let key: String = key
            .chars()
            .take(VALUE_MAX)
            .flat_map(char::escape_debug)
            .collect();
        text += &format!("  {key}: {cut}{more}\n");
    }
    text
}

fn port_line(port: &Port) -> String {
    let axis = |size: &Option<i64>| size.map_or("free".to_owned(), |size| size.to_string());
    let axes = match &port.axes {
        Some(axes) => axes.iter().map(axis).collect::<Vec<_>>().join(", "),
        None => "any number of axes".to_owned(),
    };
    format!("{}: {} [{axes}]", port.name, port.kind)
}

/// The module that is tried.
struct Chosen {
    op: String,
    outputs: Vec<String>,
    batch_max: Option<u32>,
    options: Vec<(String, String)>,
}

impl Chosen {
    /// What is suggested, but for what the user says.
    fn of(args: &InspectArgs, suggestion: &Suggestion) -> anyhow::Result<Self> {
        let given = args.options.as_deref().unwrap_or("{}");
        let given: serde_yaml::Mapping = serde_yaml::from_str(given)
            .map_err(|error| anyhow!("--options: {error}; write {{ name: value }}"))?;
        let mut options = Vec::new();
        for (name, value) in given {
            let name = name
                .as_str()
                .context("--options: a name of an option is a text")?;
            // JSON is YAML on one line.
            options.push((name.to_owned(), serde_json::to_string(&value)?));
        }
        let (op, outputs) = match args.op.as_deref().filter(|op| *op != suggestion.op) {
            None => (
                suggestion.op,
                suggestion
                    .outputs
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect(),
            ),
            Some(op) => {
                let catalog = commands::library().catalog();
                let ty = catalog.get(op).ok_or_else(|| {
                    let names: Vec<&str> = catalog.types().map(|ty| ty.name.as_str()).collect();
                    anyhow!(
                        "--op: no module type \"{op}\"; there are: {}",
                        names.join(", ")
                    )
                })?;
                (
                    op,
                    ty.outputs
                        .iter()
                        .take(1)
                        .map(|output| output.name.clone())
                        .collect(),
                )
            }
        };
        let has = |name: &str| options.iter().any(|(known, _)| known == name);
        let suggested = suggestion.options.iter().filter(|(name, _)| !has(name));
        let suggested: Vec<_> = suggested
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        options.extend(suggested);
        Ok(Chosen {
            op: op.to_owned(),
            outputs,
            batch_max: suggestion.batch_max,
            options,
        })
    }

    /// The part of a pipeline file beside the model.
    fn yaml(&self, file: &str) -> String {
        // A variable would be looked up.
        let file = serde_json::Value::String(file.replace('$', "$$"));
        let mut fields = vec![
            format!("op: {}", self.op),
            format!("model: {file}"),
            "inputs: { image: $source.frame }".to_owned(),
        ];
        if let Some(max) = self.batch_max {
            fields.push(format!("batch: {{ max: {max} }}"));
        }
        if !self.options.is_empty() {
            let options = self
                .options
                .iter()
                .map(|(name, value)| format!("{name}: {value}"));
            fields.push(format!(
                "options: {{ {} }}",
                options.collect::<Vec<_>>().join(", ")
            ));
        }
        let outputs = self
            .outputs
            .iter()
            .map(|output| format!("{output}: ${MODULE}.{output}"));
        format!(
            "modules:\n  {MODULE}: {{ {} }}\noutputs: {{ {} }}\n",
            fields.join(", "),
            outputs.collect::<Vec<_>>().join(", ")
        )
    }
}

/// Runs the model on a picture, prints these of its outputs and draws what it finds.
fn found(
    loaded: &LoadedPipeline,
    named: &[String],
    image: &Path,
    out: &Path,
) -> anyhow::Result<ExitCode> {
    let name = image.display().to_string();
    let picture = file::read(image, PICTURE_BYTES_MAX).with_context(|| name.clone())?;
    spillgate_output::check(out)?;
    let module = &loaded.pipeline.modules[1];
    let library = commands::library();
    let job = accuracy::job(&loaded.pipeline, &name, picture.into())?;
    let inputs = job.inputs(module);
    let (outputs, took) = confinement::run(|| {
        let mut backend = TorchBackend::new("cpu:0")?;
        let spec = accuracy::spec(&loaded.pipeline, loaded.base_dir(), module.id);
        let mut operator = serving_operator(&spec, MemberId::default(), &library, &mut backend)?;
        let begun = Instant::now();
        let ran = operator
            .run(module.served(), std::slice::from_ref(&inputs))
            .pop();
        let ran = ran.context("a module answers each request")?;
        let outputs = ran.map_err(|error| anyhow!("{name}: {error}"))?;
        anyhow::Ok((outputs, begun.elapsed()))
    })?;
    let result = pb::Result {
        number: 1,
        outcome: pb::Outcome::Completed.into(),
        outputs: of_module(module, &outputs),
        ..pb::Result::default()
    };
    commands::print(&format!(
        "\nfound in {name}, after {:.0} ms:\n",
        took.as_secs_f64() * 1e3
    ))?;
    for name in named {
        if let Some(value) = result.outputs.get(name) {
            commands::print(&listed(name, value_to_json(value)))?;
        }
    }
    let Some(Value::Image(picture)) = inputs.into_iter().flatten().next() else {
        bail!("{name}: the module takes no picture");
    };
    let pixels = RgbImage::from_raw(picture.width, picture.height, picture.rgb.to_vec());
    let mut pixels = pixels.with_context(|| format!("{name}: no picture"))?;
    annotate(&mut pixels, &result, took);
    let mut png = Cursor::new(Vec::new());
    pixels.write_to(&mut png, image::ImageFormat::Png)?;
    spillgate_output::write(out, png.into_inner())?;
    say(&format!("wrote {}", out.display()));
    Ok(ExitCode::SUCCESS)
}

/// An output, an item a line.
fn listed(name: &str, value: Json) -> String {
    let items = match value {
        Json::Array(items) => items,
        // A tensor.
        other => {
            let first = other["data"]
                .as_array()
                .map(|all| all.iter().take(ITEMS_MAX).cloned().collect());
            return format!(
                "{name}: shape {}, first {}\n",
                other["shape"],
                Json::Array(first.unwrap_or_default())
            );
        }
    };
    let mut text = format!("{name}: {}\n", items.len());
    for item in items.iter().take(ITEMS_MAX) {
        let line: String = item.to_string().chars().take(ITEM_MAX).collect();
        text += &format!("  {line}\n");
    }
    text
}
