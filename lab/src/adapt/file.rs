//! Files with one question of the adaptation. Unknown fields are left aside: such files also hold what made them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use spillgate_controller_policy::adaptation::{
    ClientDemand, Instance, VARIANTS_MAX, Variant, WORKERS_MAX,
};
use spillgate_jellyfish::adaptation::SLO_BOUNDS;
use spillgate_process::file;

/// Largest file that is read: thousands of clients with budgets for 16 variants.
const BYTES_MAX: usize = 16 << 20;
/// Longest time that a file may state, in milliseconds.
const MS_MAX: f64 = SLO_BOUNDS[1].as_millis() as f64;

/// A file as it is written.
#[derive(Debug, Deserialize)]
pub(super) struct InstanceFile {
    gpus: usize,
    max_batch: Option<usize>,
    /// Requests a second of one unit; without it, one.
    rate_unit: Option<f64>,
    pub(super) profile: ProfileField,
    pub(super) clients: Vec<ClientField>,
    /// By client, then by variant; 0 where the client's link does not bear the variant.
    budget_ms: Vec<Vec<f64>>,
    pub(super) reference: Option<ReferenceField>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ProfileField {
    pub(super) input_size: Option<Vec<u32>>,
    accuracy: Vec<f64>,
    /// By variant, then by batch size from 1 on.
    latency_ms: Vec<Vec<f64>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ClientField {
    fps: f64,
    pub(super) slo_ms: Option<f64>,
}

/// What others found.
#[derive(Debug, Deserialize)]
pub(super) struct ReferenceField {
    pub(super) objective: Option<f64>,
    pub(super) served: Option<usize>,
    pub(super) upper_bound: Option<f64>,
    pub(super) status: Option<String>,
}

/// Reads and checks a file.
pub(super) fn read(path: &Path) -> anyhow::Result<(InstanceFile, Instance)> {
    let shown = path.display();
    let text = file::read_text(path, BYTES_MAX);
    let text = text.map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
    parse(&text).with_context(|| format!("{shown}"))
}

fn parse(text: &str) -> anyhow::Result<(InstanceFile, Instance)> {
    let file: InstanceFile = serde_json::from_str(text)?;
    let n_variants = file.profile.accuracy.len();
    ensure!(
        (1..=VARIANTS_MAX).contains(&n_variants),
        "profile.accuracy: {n_variants} variants; give 1 to {VARIANTS_MAX}"
    );
    ensure!(
        (1..=WORKERS_MAX).contains(&file.gpus),
        "gpus: {}; give 1 to {WORKERS_MAX}",
        file.gpus
    );
    let n_latencies = file.profile.latency_ms.len();
    ensure!(
        n_latencies == n_variants,
        "profile.latency_ms: {n_latencies} lists; give one for each of {n_variants} accuracies"
    );
    if let Some(sizes) = &file.profile.input_size {
        ensure!(
            sizes.len() == n_variants,
            "profile.input_size: {} sizes; give one for each of {n_variants} accuracies",
            sizes.len()
        );
    }
    let instance = Instance::new(
        variants(&file)?,
        clients(&file, n_variants)?,
        file.gpus,
        file.rate_unit.unwrap_or(1.0),
    )?;
    Ok((file, instance))
}

fn variants(file: &InstanceFile) -> anyhow::Result<Vec<Variant>> {
    let both = file.profile.accuracy.iter().zip(&file.profile.latency_ms);
    let variant = |(idx, (accuracy, latencies)): (usize, (&f64, &Vec<f64>))| {
        let most = file.max_batch.unwrap_or(latencies.len());
        ensure!(most > 0, "max_batch: 0; give 1 or more");
        let place = |batch: usize| format!("profile.latency_ms[{idx}][{batch}]");
        let times = latencies.iter().enumerate().take(most);
        let times = times.map(|(batch, ms)| {
            ensure!(*ms > 0.0, "{}: {ms}; give a time above 0", place(batch));
            duration(*ms, || place(batch))
        });
        let execution = times.collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(
            !execution.is_empty(),
            "profile.latency_ms[{idx}]: empty; give a time for batches of 1 at least"
        );
        Ok(Variant {
            accuracy: *accuracy,
            execution,
        })
    };
    both.enumerate().map(variant).collect()
}

fn clients(file: &InstanceFile, n_variants: usize) -> anyhow::Result<Vec<ClientDemand>> {
    ensure!(
        file.budget_ms.len() == file.clients.len(),
        "budget_ms: {} lists; give one for each of {} clients",
        file.budget_ms.len(),
        file.clients.len()
    );
    let client = |(idx, (client, budgets)): (usize, (&ClientField, &Vec<f64>))| {
        ensure!(
            budgets.len() == n_variants,
            "budget_ms[{idx}]: {} budgets; give one for each of {n_variants} variants",
            budgets.len()
        );
        ensure!(
            client.fps.is_finite() && client.fps > 0.0,
            "clients[{idx}].fps: {}; give a rate above 0",
            client.fps
        );
        let budgets = budgets.iter().enumerate();
        // A budget that is used up is none.
        let budget =
            |(j, ms): (usize, &f64)| duration(ms.max(0.0), || format!("budget_ms[{idx}][{j}]"));
        let budgets = budgets.map(budget).collect::<anyhow::Result<_>>()?;
        Ok(ClientDemand {
            rate: client.fps,
            budgets,
        })
    };
    file.clients
        .iter()
        .zip(&file.budget_ms)
        .enumerate()
        .map(client)
        .collect()
}

fn duration(ms: f64, place: impl Fn() -> String) -> anyhow::Result<Duration> {
    ensure!(
        (0.0..=MS_MAX).contains(&ms),
        "{}: {ms}; give milliseconds, up to {MS_MAX}",
        place()
    );
    // Times are whole nanoseconds everywhere.
    Ok(Duration::from_nanos((ms * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{ "gpus": 1, "max_batch": 2, "profile": { "accuracy": [0.4, 0.5], "latency_ms": [[10, 15, 99], [20, 30, 99]] },
        "clients": [{ "fps": 15, "slo_ms": 100 }], "budget_ms": [[80, 0]] }"#;

    #[test]
    fn a_file_becomes_a_question() {
        let (file, instance) = parse(GOOD).expect("it is good");
        assert_eq!((instance.n_workers(), instance.rate_unit()), (1, 1.0));
        assert_eq!(
            instance.variants()[1].execution.len(),
            2,
            "batches end at max_batch"
        );
        assert_eq!(
            instance.clients()[0].budgets,
            [Duration::from_millis(80), Duration::ZERO]
        );
        assert!(file.reference.is_none());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field() {
        for (from, to, error) in [
            ("\"gpus\": 1", "\"gpus\": 0", "gpus: 0; give 1 to 1024"),
            (
                "\"fps\": 15",
                "\"fps\": -1",
                "clients[0].fps: -1; give a rate above 0",
            ),
            (
                "[[80, 0]]",
                "[[80]]",
                "budget_ms[0]: 1 budgets; give one for each of 2 variants",
            ),
            (
                "[[80, 0]]",
                "[]",
                "budget_ms: 0 lists; give one for each of 1 clients",
            ),
            ("[[80, 0]]", "[[1e300, 0]]", "budget_ms[0][0]: 1"),
            (
                "[10, 15, 99]",
                "[0, 15]",
                "profile.latency_ms[0][0]: 0; give a time above 0",
            ),
            ("[10, 15, 99]", "[]", "profile.latency_ms[0]: empty"),
            (
                "[0.4, 0.5]",
                "[0.4]",
                "profile.latency_ms: 2 lists; give one for each of 1 accuracies",
            ),
            ("\"gpus\": 1,", "", "missing field `gpus`"),
        ] {
            let wrong = parse(&GOOD.replace(from, to)).expect_err(to).to_string();
            assert!(wrong.starts_with(error), "{wrong}");
        }
    }
}
