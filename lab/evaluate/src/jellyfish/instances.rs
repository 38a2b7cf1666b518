//! Single questions of the adaptation as files, with what others found. The first also carries the profile for runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use spillgate_controller_policy::adaptation::{ClientDemand, Instance, Variant};
use spillgate_jellyfish::adaptation::AdaptiveVariant;
use spillgate_jellyfish::cameras::Zoo;

use crate::read_table;

/// Longest time that a file may state, in ms.
const MS_MAX: f64 = 60e3;

#[derive(Debug, Deserialize)]
struct Profile {
    input_size: Vec<u32>,
    accuracy: Vec<f64>,
    /// By variant, then by batch size from 1 on.
    latency_ms: Vec<Vec<f64>>,
    frame_kbit: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct Client {
    fps: f64,
}

#[derive(Debug, Deserialize)]
struct Reference {
    /// The best mean accuracy, if it was found.
    objective: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Fields {
    gpus: usize,
    /// Clients a worker.
    factor: usize,
    rate_unit: Option<f64>,
    profile: Profile,
    clients: Vec<Client>,
    /// By client, then by variant.
    budget_ms: Vec<Vec<f64>>,
    reference: Reference,
}

/// One question.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) name: String,
    fields: Fields,
}

/// Reads all of a folder, in order of their names.
pub(super) fn read_all(folder: &Path) -> anyhow::Result<Vec<Question>> {
    let listed = std::fs::read_dir(folder);
    let listed = listed.with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut paths = Vec::new();
    for entry in listed {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let question = Question::parse(&name, &read_table(path)?);
        question.with_context(|| path.display().to_string())
    };
    paths.iter().map(read).collect()
}

fn duration(ms: f64) -> anyhow::Result<Duration> {
    ensure!((0.0..=MS_MAX).contains(&ms), "a time of {ms} ms");
    Ok(Duration::from_secs_f64(ms * 1e-3))
}

impl Question {
    /// Reads one.
    pub(super) fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let fields: Fields = serde_json::from_str(text)?;
        let n = fields.profile.accuracy.len();
        ensure!(
            fields.profile.latency_ms.len() == n && fields.profile.frame_kbit.len() == n,
            "profile: give latency_ms and frame_kbit for each of {n} accuracies"
        );
        ensure!(
            fields.clients.len() == fields.budget_ms.len(),
            "budget_ms: give a list for each of {} clients",
            fields.clients.len()
        );
        Ok(Question {
            name: name.to_owned(),
            fields,
        })
    }

    /// Its kind: profile, workers, clients a worker.
    pub(super) fn kind(&self) -> (String, usize, usize) {
        let profile = self.name.split('_').next().unwrap_or_default();
        (profile.to_owned(), self.fields.gpus, self.fields.factor)
    }

    /// The best mean accuracy, if it is known.
    pub(super) fn best(&self) -> Option<f64> {
        self.fields.reference.objective.filter(|o| *o > 0.0)
    }

    fn variants(&self) -> anyhow::Result<Vec<Variant>> {
        let Profile {
            accuracy,
            latency_ms,
            ..
        } = &self.fields.profile;
        let variant = |(accuracy, times): (&f64, &Vec<f64>)| {
            let execution = times.iter().map(|ms| duration(*ms));
            Ok(Variant {
                accuracy: *accuracy,
                execution: execution.collect::<anyhow::Result<_>>()?,
            })
        };
        accuracy.iter().zip(latency_ms).map(variant).collect()
    }

    /// The question as the scheduler's.
    pub(super) fn instance(&self) -> anyhow::Result<Instance> {
        let demand = |(client, budgets): (&Client, &Vec<f64>)| {
            let budgets = budgets.iter().map(|ms| duration(ms.max(0.0)));
            Ok(ClientDemand {
                rate: client.fps,
                budgets: budgets.collect::<anyhow::Result<_>>()?,
            })
        };
        let Fields {
            clients, budget_ms, ..
        } = &self.fields;
        let clients = clients.iter().zip(budget_ms).map(demand);
        let clients = clients.collect::<anyhow::Result<_>>()?;
        let unit = self.fields.rate_unit.unwrap_or(1.0);
        Ok(Instance::new(
            self.variants()?,
            clients,
            self.fields.gpus,
            unit,
        )?)
    }

    /// Its variants, for runs.
    pub(super) fn zoo(&self) -> anyhow::Result<Zoo> {
        let Profile {
            input_size,
            frame_kbit,
            ..
        } = &self.fields.profile;
        let variants = self.variants()?.into_iter().zip(frame_kbit);
        let variants = variants.map(|(variant, kbit)| AdaptiveVariant {
            variant,
            frame_bits: kbit * 1e3,
        });
        Ok(Zoo::new(variants.collect(), input_size.clone())?)
    }
}
