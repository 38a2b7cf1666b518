//! Trains the shipped models on synthetic scenes and measures them on held-out ones.
//! Measuring goes through the module library and the torch backend, exactly as serving does.

mod data;
mod dynamic;
mod eval;
mod face;
mod family;
mod fit;
mod layers;
mod light;
mod modules;
mod plate;
mod road;
mod say;
mod times;
mod training;
mod who;
mod worn;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Subcommand;

pub use training::ModelName;

/// What to do with the shipped models.
#[derive(Subcommand)]
pub enum Command {
    /// Train and write the models: about half an hour on two cores.
    Train {
        /// Folder for the models.
        #[arg(long, default_value = "apps/modules/models")]
        out: PathBuf,
        /// Train only these.
        #[arg(long, value_enum)]
        only: Vec<ModelName>,
        /// Scenes to train on, four frames each.
        #[arg(long, default_value_t = 500)]
        scenes: u64,
        /// Optimiser steps, instead of each model's own number.
        #[arg(long)]
        steps: Option<usize>,
        /// Threads of libtorch.
        #[arg(long, default_value_t = 2)]
        threads: i32,
    },
    /// Measure the models on held-out scenes and print tables.
    Eval {
        /// Folder of the models.
        #[arg(long, default_value = "apps/modules/models")]
        models: PathBuf,
        /// Scenes to measure on, four frames each.
        #[arg(long, default_value_t = 60)]
        scenes: u64,
        /// Send the frames through JPEG of this quality, 1 to 100, as clients do.
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=100))]
        jpeg: Option<u8>,
    },
    /// Measure how long modules take whose work differs from input to input, alone and in batches.
    Times {
        /// Folder of the models.
        #[arg(long, default_value = "apps/modules/models")]
        models: PathBuf,
        /// Requests to each module, at least 1; the text reader has one for each frame.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
        requests: u32,
        /// Scenes that the pictures are of, four frames each.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
        scenes: u64,
        /// Folder for histograms.
        #[arg(long)]
        svg: Option<PathBuf>,
    },
    /// Write a family of models with random weights, of three architectures, for experiments with many models.
    Family {
        /// Folder for `models/*.pt` and `classes.labels`.
        #[arg(long)]
        out: PathBuf,
        /// Models.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
    },
}

/// Does it.
///
/// # Errors
/// Files that cannot be read or written, and models that do not fit.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Train {
            out,
            only,
            scenes,
            steps,
            threads,
        } => {
            tch::set_num_threads(threads);
            std::fs::create_dir_all(&out)
                .with_context(|| format!("cannot make {}", out.display()))?;
            let start = Instant::now();
            let samples = data::training(scenes)?;
            println!(
                "{} frames rendered in {:.1} s",
                samples.len(),
                start.elapsed().as_secs_f64()
            );
            let all = [
                ModelName::Light,
                ModelName::Face,
                ModelName::Plate,
                ModelName::Road,
                ModelName::Who,
                ModelName::Say,
            ];
            for name in all
                .into_iter()
                .filter(|n| only.is_empty() || only.contains(n))
            {
                println!("{name:?}");
                training::train(name, steps, &samples, &out)?;
            }
            println!("trained in {:.0} s", start.elapsed().as_secs_f64());
            Ok(())
        }
        Command::Eval {
            models,
            scenes,
            jpeg,
        } => eval::report(&models, &data::held_out(scenes, jpeg)?),
        Command::Times {
            models,
            requests,
            scenes,
            svg,
        } => {
            let samples = data::held_out(scenes, None)?;
            times::report(&models, &samples, requests as usize, svg.as_ref())
        }
        Command::Family { out, count } => family::write(&out, usize::from(count)),
    }
}
