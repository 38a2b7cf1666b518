//! The end-to-end estimator (PARD §4.2): the time that a request is expected to need after it leaves a module
//! (L_sub).
//!
//! For each path from a module to a sink it sums queueing delays and execution times and adds the lambda-quantile of
//! the summed waits, drawn by Monte Carlo from the samples that each module published. The largest path counts. A
//! module behind a `when:` is weighted by how often it runs: its means are multiplied by its probability, and its
//! wait is drawn with that probability. This is an addition to PARD, whose pipelines have no conditions.

use rand::Rng;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::Pipeline;

/// Draws of the summed waits (PARD §4.2, footnote: M = 10,000).
pub(crate) const DRAWS: usize = 10_000;
/// Paths kept per module, heaviest first. A fork of n branches multiplies the paths; only the heaviest matter for the
/// maximum.
pub(crate) const PATHS_MAX: usize = 16;

/// The contribution of one module. Times in seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    /// q: mean queueing delay.
    pub(crate) queueing: f64,
    /// d: execution time at the planned batch.
    pub(crate) execution: f64,
    /// Recent execution times of batches, where they depend on the input. Then their mean replaces d, and their
    /// deviations from it are drawn together with the waits (an addition to PARD). Empty elsewhere.
    pub(crate) executions: std::sync::Arc<[f32]>,
    /// Recent batch waits (or sums of queueing and wait). Empty: no request waited.
    pub(crate) waits: std::sync::Arc<[f32]>,
    /// Probability that a request at the asking module runs this one, 0 to 1.
    pub(crate) probability: f64,
}

impl Stage {
    /// Mean execution time of a batch.
    fn mean_execution(&self) -> f64 {
        mean(&self.executions).unwrap_or(self.execution)
    }
}

fn mean(samples: &[f32]) -> Option<f64> {
    let sum: f64 = samples.iter().map(|s| f64::from(*s)).sum();
    (!samples.is_empty()).then(|| sum / samples.len() as f64)
}

/// How batch waits downstream are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Waits {
    /// As zero (`pard-lower`).
    Zero,
    /// As long as the executions (`pard-upper`).
    Full,
    /// The quantile of their sum.
    Quantile(f64),
}

/// The estimate over one path. Times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathEstimate {
    /// The modules, the asking one excluded.
    pub(crate) modules: Vec<ModuleId>,
    /// Sum of the queueing delays.
    pub(crate) queueing: f64,
    /// Sum of the execution times.
    pub(crate) execution: f64,
    /// w(lambda): the quantile of the summed waits.
    pub(crate) waits: f64,
}

impl PathEstimate {
    /// The whole path.
    pub(crate) fn total(&self) -> f64 {
        self.queueing + self.execution + self.waits
    }
}

/// Memory for the draws, kept between estimates so that no estimate allocates.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// One column of [`DRAWS`] waits for each module, valid if `filled` says so.
    columns: Vec<Vec<f32>>,
    filled: Vec<bool>,
    sums: Vec<f32>,
}

/// The estimate over each path from `from` to a sink, heaviest first; none when `from` is a sink. At most
/// [`PATHS_MAX`] paths: those with the largest mean.
pub(crate) fn downstream<R: Rng>(
    pipeline: &Pipeline,
    successors: &[Vec<ModuleId>],
    from: ModuleId,
    stages: &[Stage],
    waits: Waits,
    rng: &mut R,
    scratch: &mut Scratch,
) -> Vec<PathEstimate> {
    let paths = heaviest_paths(pipeline, successors, from, stages);
    scratch.filled.clear();
    scratch.filled.resize(stages.len(), false);
    scratch.columns.resize_with(stages.len(), Vec::new);
    let mut estimates: Vec<PathEstimate> = paths
        .into_iter()
        .map(|modules| {
            let mean = |value: fn(&Stage) -> f64| -> f64 {
                let of = |m: &ModuleId| value(&stages[m.idx()]) * stages[m.idx()].probability;
                modules.iter().map(of).sum()
            };
            let execution = mean(Stage::mean_execution);
            PathEstimate {
                queueing: mean(|s| s.queueing),
                execution,
                waits: match waits {
                    Waits::Zero => 0.0,
                    Waits::Full => execution,
                    Waits::Quantile(lambda) => {
                        quantile_of_sum(&modules, stages, lambda, rng, scratch)
                    }
                },
                modules,
            }
        })
        .collect();
    estimates.sort_by(|a, b| b.total().total_cmp(&a.total()));
    estimates
}

/// The paths from the successors of `from` to sinks, at most [`PATHS_MAX`] of the largest mean. Suffixes are built
/// from the sinks upwards, so that each fork is walked once.
fn heaviest_paths(
    pipeline: &Pipeline,
    successors: &[Vec<ModuleId>],
    from: ModuleId,
    stages: &[Stage],
) -> Vec<Vec<ModuleId>> {
    let mut suffixes: Vec<Vec<(f64, Vec<ModuleId>)>> = vec![Vec::new(); pipeline.modules.len()];
    let extended = |suffixes: &[Vec<(f64, Vec<ModuleId>)>], id: ModuleId| {
        let mut all: Vec<(f64, Vec<ModuleId>)> = successors[id.idx()]
            .iter()
            .flat_map(|s| suffixes[s.idx()].iter().cloned())
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.truncate(PATHS_MAX);
        all
    };
    // Modules are in topological order: those after `from` come later.
    for idx in (from.idx() + 1..pipeline.modules.len()).rev() {
        let stage = &stages[idx];
        let wait = mean(&stage.waits).unwrap_or(0.0);
        let weight = stage.probability * (stage.queueing + stage.mean_execution() + wait);
        let id = ModuleId(idx as u16);
        let mut mine = extended(&suffixes, id);
        if mine.is_empty() {
            mine.push((0.0, Vec::new()));
        }
        for (total, path) in &mut mine {
            *total += weight;
            path.insert(0, id);
        }
        suffixes[idx] = mine;
    }
    let mut all = extended(&suffixes, from);
    all.retain(|(_, path)| !path.is_empty());
    all.into_iter().map(|(_, path)| path).collect()
}

/// The lambda-quantile of the sum of one draw from each module of the path: one of its waits, plus one deviation of
/// its execution times from their mean.
fn quantile_of_sum<R: Rng>(
    path: &[ModuleId],
    stages: &[Stage],
    lambda: f64,
    rng: &mut R,
    scratch: &mut Scratch,
) -> f64 {
    let Scratch {
        columns,
        filled,
        sums,
    } = scratch;
    sums.clear();
    sums.resize(DRAWS, 0.0);
    let mut any = false;
    for id in path {
        let stage = &stages[id.idx()];
        let is_sure = stage.waits.is_empty() && stage.executions.is_empty();
        if is_sure || stage.probability <= 0.0 {
            continue;
        }
        any = true;
        let column = &mut columns[id.idx()];
        if !filled[id.idx()] {
            filled[id.idx()] = true;
            draw(stage, rng, column);
        }
        for (sum, wait) in sums.iter_mut().zip(column.iter()) {
            *sum += *wait;
        }
    }
    if !any {
        return 0.0;
    }
    let rank = ((DRAWS - 1) as f64 * lambda.clamp(0.0, 1.0)).round() as usize;
    let (_, value, _) = sums.select_nth_unstable_by(rank, f32::total_cmp);
    f64::from(*value)
}

/// Fills a column with draws. One random word serves two: 32 bits are plenty for a few thousand samples.
fn draw<R: Rng>(stage: &Stage, rng: &mut R, column: &mut Vec<f32>) {
    let runs = stage.probability < 1.0;
    // Scaled: a draw below it means that the module runs.
    let threshold = (stage.probability.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
    let mean = stage.mean_execution() as f32;
    column.clear();
    while column.len() < DRAWS {
        let word = rng.next_u64();
        for half in [word as u32, (word >> 32) as u32] {
            let mut wait = one_of(&stage.waits, half).unwrap_or(0.0);
            if !stage.executions.is_empty() {
                wait += one_of(&stage.executions, rng.next_u32()).map_or(0.0, |took| took - mean);
            }
            let counts = !runs || rng.next_u32() <= threshold;
            column.push(if counts { wait } else { 0.0 });
        }
    }
}

/// The sample that a random word selects.
fn one_of(samples: &[f32], word: u32) -> Option<f32> {
    let at = (u64::from(word) * samples.len() as u64) >> 32;
    samples.get(at as usize).copied()
}

#[cfg(test)]
mod tests;
