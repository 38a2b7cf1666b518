//! Training: draws batches, steps the optimiser, folds, traces, saves.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_scenes::{CLASSES, Condition, IDENTITIES};
use tch::nn::{self, OptimizerConfig};
use tch::{CModule, Device, Kind, Tensor};

use crate::data::{Sample, any};
use crate::layers::Network;
use crate::{face, light, plate, road, say, who};

/// Seed of the initial weights and of what is drawn when.
const SEED: u64 = 20_260;

/// From this share of the detector's steps on, normalisation uses the statistics gathered so far instead of
/// each batch's own: they differ from size to size, and serving has one set for all sizes.
const SETTLED: f64 = 0.55;

/// The shipped models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModelName {
    /// The detector.
    Road,
    /// The text reader.
    Plate,
    /// The face recogniser.
    Face,
    /// The classifier of light and weather.
    Light,
    /// The classifier with early exits.
    Who,
    /// The sequence model.
    Say,
}

/// Trains one model on `samples` and writes it, with its class names, into `folder`.
pub(crate) fn train(
    name: ModelName,
    steps: Option<usize>,
    samples: &[Sample],
    folder: &Path,
) -> anyhow::Result<()> {
    tch::manual_seed(SEED as i64);
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut store = nn::VarStore::new(Device::Cpu);
    let root = store.root();
    match name {
        ModelName::Road => {
            let mut network = road::Road::new(&root);
            fit(&store, steps.unwrap_or(1800), 2e-3, |done| {
                let side = *any(&road::SIZES, &mut rng);
                // About as many pixels whatever the size.
                let n = (5 * 256 * 256 / (side * side)).clamp(4, 16);
                road::Batch::draw(samples, n, side, &mut rng).loss(&network, done < SETTLED)
            });
            ship(
                &mut store,
                &mut network,
                [2, 3, 192, 256],
                &CLASSES,
                &folder.join("road.pt"),
            )
        }
        ModelName::Plate => {
            let mut network = plate::Plate::new(&root);
            fit(&store, steps.unwrap_or(2400), 2e-3, |_| {
                plate::Batch::draw(samples, 32, &mut rng).loss(&network)
            });
            let shape = [2, 3, plate::HEIGHT as i64, plate::WIDTH as i64];
            ship(
                &mut store,
                &mut network,
                shape,
                &[],
                &folder.join("plate.pt"),
            )
        }
        ModelName::Face => {
            let mut network = face::Face::new(&root);
            fit(&store, steps.unwrap_or(600), 2e-3, |_| {
                face::Batch::draw(samples, 64, &mut rng).loss(&network)
            });
            let shape = [2, 3, face::SIDE as i64, face::SIDE as i64];
            ship(
                &mut store,
                &mut network,
                shape,
                &IDENTITIES,
                &folder.join("face.pt"),
            )
        }
        ModelName::Light => {
            let mut network = light::Light::new(&root);
            fit(&store, steps.unwrap_or(300), 3e-3, |_| {
                light::Batch::draw(samples, 32, &mut rng).loss(&network)
            });
            let shape = [2, 3, light::SIDE as i64, light::SIDE as i64];
            ship(
                &mut store,
                &mut network,
                shape,
                &Condition::ALL.map(Condition::name),
                &folder.join("light.pt"),
            )
        }
        ModelName::Who => {
            let mut network = who::Who::new(&root);
            fit(&store, steps.unwrap_or(650), 3e-3, |_| {
                who::Batch::draw(samples, 32, &mut rng).loss(&network)
            });
            ship_who(&mut store, &mut network, &folder.join("who.pt"))
        }
        ModelName::Say => {
            let network = say::Say::new(&root);
            fit(&store, steps.unwrap_or(4000), 4e-3, |_| {
                say::Batch::draw(64, &mut rng).loss(&network)
            });
            ship_say(&mut store, &network, &folder.join("say.pt"))
        }
    }
}

/// AdamW, a short rise and then a cosine fall of the learning rate.
/// `loss` is told which share of the steps is done.
fn fit(store: &nn::VarStore, steps: usize, top_rate: f64, mut loss: impl FnMut(f64) -> Tensor) {
    let mut optimizer = nn::adamw(0.9, 0.99, 1e-4)
        .build(store, top_rate)
        .expect("an optimiser over the network's own weights");
    let start = Instant::now();
    let mut mean = f64::NAN;
    for step in 0..steps {
        let done = step as f64 / steps as f64;
        let rise = ((step + 1) as f64 / 40.0).min(1.0);
        optimizer.set_lr(
            top_rate * rise * (0.02 + 0.98 * 0.5 * (1.0 + (done * std::f64::consts::PI).cos())),
        );
        let loss = loss(done);
        optimizer.backward_step_clip_norm(&loss, 5.0);
        let loss = loss.double_value(&[]);
        mean = if mean.is_nan() {
            loss
        } else {
            mean * 0.97 + loss * 0.03
        };
        if step % 50 == 49 {
            println!(
                "  step {}/{steps}: loss {mean:.4}, {:.0} s",
                step + 1,
                start.elapsed().as_secs_f64()
            );
        }
    }
}

/// Folds, traces and writes a network; checks that the written model says what the network says, at another
/// batch size than the traced one.
fn ship(
    store: &mut nn::VarStore,
    network: &mut impl Network,
    shape: [i64; 4],
    labels: &[&str],
    path: &Path,
) -> anyhow::Result<()> {
    // A trace takes in no weights that still want gradients.
    store.freeze();
    tch::no_grad(|| {
        let example = Tensor::rand(shape, (Kind::Float, Device::Cpu));
        let plain = network.output(&example);
        network.fold();
        let difference = (network.output(&example) - plain)
            .abs()
            .max()
            .double_value(&[]);
        anyhow::ensure!(
            difference < 0.05,
            "folding changed the output by {difference}"
        );
        let other = Tensor::rand(
            [5, shape[1], shape[2], shape[3]],
            (Kind::Float, Device::Cpu),
        );
        let mut forward = |x: &[Tensor]| network.output(&x[0]);
        write(path, &[&example], &[&other], &mut forward)?;
        write_labels(path, labels)
    })
}

/// Folds, traces and writes the segments of the network with early exits.
fn ship_who(store: &mut nn::VarStore, network: &mut who::Who, path: &Path) -> anyhow::Result<()> {
    store.freeze();
    tch::no_grad(|| {
        network.fold();
        let side = who::SIDE as i64;
        let picture = |n: i64| Tensor::rand([n, 3, side, side], (Kind::Float, Device::Cpu));
        let (mut example, mut other) = (picture(2), picture(5));
        for idx in 0..who::N_EXITS {
            let file = match idx {
                0 => path.to_path_buf(),
                _ => path.with_extension(format!("{}.pt", idx + 1)),
            };
            let mut forward = |x: &[Tensor]| network.shipped(idx, &x[0]);
            write(&file, &[&example], &[&other], &mut forward)?;
            let features = |x: &Tensor| {
                let output = network.shipped(idx, x);
                let n_classes = IDENTITIES.len() as i64;
                output.narrow(1, n_classes, output.size()[1] - n_classes)
            };
            (example, other) = (features(&example), features(&other));
        }
        write_labels(path, &IDENTITIES)
    })
}

/// Traces and writes the reader and the step of the sequence model.
fn ship_say(store: &mut nn::VarStore, network: &say::Say, path: &Path) -> anyhow::Result<()> {
    store.freeze();
    tch::no_grad(|| {
        let numbers = |n: i64| {
            let shape = [n, say::WIDTH as i64];
            Tensor::randint(11, shape, (Kind::Float, Device::Cpu))
        };
        let (example, other) = (numbers(2), numbers(5));
        let letters = |n: i64| Tensor::randint(28, [n], (Kind::Float, Device::Cpu));
        let mut read = |x: &[Tensor]| network.shipped_reader(&x[0]);
        write(path, &[&example], &[&other], &mut read)?;
        let rows = [&example, &other].map(|numbers| network.shipped_reader(numbers));
        let mut forward = |x: &[Tensor]| network.shipped_step(&x[0], &x[1]);
        write(
            &path.with_extension("step.pt"),
            &[&letters(2), &rows[0]],
            &[&letters(5), &rows[1]],
            &mut forward,
        )
    })
}

/// Traces and writes a model; checks that what was written says what was traced, at the inputs `other` of another
/// batch size than that of `example`.
fn write(
    path: &Path,
    example: &[&Tensor],
    other: &[&Tensor],
    forward: &mut dyn FnMut(&[Tensor]) -> Tensor,
) -> anyhow::Result<()> {
    let clones =
        |all: &[&Tensor]| -> Vec<Tensor> { all.iter().map(|t| t.shallow_clone()).collect() };
    let mut traced = |x: &[Tensor]| vec![forward(x)];
    let module = CModule::create_by_tracing("Model", "forward", &clones(example), &mut traced)?;
    save(&module, path)?;
    let loaded = CModule::load(path)?.forward_ts(other)?;
    let difference = (loaded - forward(&clones(other)))
        .abs()
        .max()
        .double_value(&[]);
    anyhow::ensure!(
        difference < 1e-3,
        "the trace differs from the network by {difference}"
    );
    println!(
        "  wrote {} ({} KiB)",
        path.display(),
        std::fs::metadata(path)?.len() / 1024
    );
    Ok(())
}

/// Writes a model.
///
/// # Errors
/// When libtorch or the system cannot write it. What was at the path before is still there.
pub(crate) fn save(module: &CModule, path: &Path) -> anyhow::Result<()> {
    let output = spillgate_output::Output::begin(path)?;
    module
        .save(output.beside())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(output.finish()?)
}

/// Writes the class names beside a model, where it has any.
fn write_labels(path: &Path, labels: &[&str]) -> anyhow::Result<()> {
    if labels.is_empty() {
        return Ok(());
    }
    let text = labels.join("\n") + "\n";
    Ok(spillgate_output::write(
        path.with_extension("labels"),
        text,
    )?)
}
