//! Dynamic work from files: modules whose time depends on the content of a request.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use spillgate_pipeline::distribution::{BatchTime, WINDOW_DEFAULT};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::profile::{ModuleProfile, ProfileSet, batch_sizes};
use spillgate_pipeline::schedule::{Application, SCHEDULED_BATCH_MAX, SchedulePolicy};
use spillgate_sim::dynamic::{Job, csv};
use spillgate_sim::placement::ARRIVAL_COLUMNS;
use spillgate_sim::world::{DynamicModule, DynamicWork};
use spillgate_worker_policy::schedule::{SCHEDULED_MAX, SIZES_MAX, SchedulerConfig, Scoring};

use super::{SimulateArgs, load};

/// The content of `--arrivals` besides times.
pub(super) struct Work {
    pub(super) jobs: Vec<Job>,
    history: Vec<(Application, f64)>,
    names: csv::Names,
}

/// The work of `--arrivals`, if it has any, and of `--history`.
pub(super) fn read(args: &SimulateArgs) -> anyhow::Result<Option<Work>> {
    let needs_lengths = || {
        anyhow::ensure!(
            args.history.is_none() && args.schedule.is_empty(),
            "--history and --schedule need requests with lengths; give --arrivals with the columns {}",
            csv::ARRIVALS
        );
        Ok(None)
    };
    let Some(file) = &args.arrivals else {
        return needs_lengths();
    };
    let text = load::read(file)?;
    let header = text.lines().next().unwrap_or_default().trim();
    // One time a line has no columns, and requests that name models have no lengths.
    if !header.contains(',') || header == ARRIVAL_COLUMNS {
        return needs_lengths();
    }
    let mut names = csv::Names::default();
    let located = |file: &Path, e: csv::TableError| anyhow::anyhow!("{}: {e}", file.display());
    // Earlier requests first: their applications are known first.
    let history = match &args.history {
        Some(file) => csv::history(&load::read(file)?, &mut names).map_err(|e| located(file, e))?,
        None => Vec::new(),
    };
    let jobs = csv::arrivals(&text, &mut names).map_err(|e| located(file, e))?;
    anyhow::ensure!(
        !jobs.is_empty(),
        "{}: there are no arrivals",
        file.display()
    );
    Ok(Some(Work {
        jobs,
        history,
        names,
    }))
}

impl Work {
    /// Mean length of the history, else of the requests.
    pub(super) fn mean_ms(&self) -> f64 {
        if self.history.is_empty() {
            let lengths = self.jobs.iter().map(|job| job.length_ms);
            return lengths.sum::<f64>() / self.jobs.len() as f64;
        }
        self.history.iter().map(|r| r.1).sum::<f64>() / self.history.len() as f64
    }

    /// For a run with these schedulers by module.
    pub(super) fn dynamic(&self, modules: Vec<Option<DynamicModule>>) -> DynamicWork {
        DynamicWork {
            requests: self
                .jobs
                .iter()
                .map(|job| (job.application, job.length_ms))
                .collect(),
            names: self.names.as_slice().to_vec(),
            reruns: true,
            history: self.history.clone().into(),
            modules,
        }
    }
}

/// A module whose profile is read as `c0 + c1 * batch * length`, the length in milliseconds.
pub(super) struct Law {
    pub(super) time: BatchTime,
    sizes: Vec<u32>,
}

/// The law of a module: c0 and c1 are its profile's alpha and beta. The file need not name a scheduler for the module,
/// so its largest batch is checked here.
pub(super) fn law(module: &Module, device: &str, profiles: &ProfileSet) -> anyhow::Result<Law> {
    let (max, limit) = (module.batch.max, SCHEDULED_BATCH_MAX);
    anyhow::ensure!(
        max <= limit,
        "module {}: batch.max {max} is more than the {limit} that schedulers form",
        module.name
    );
    let profile = profiles.of(module, module.served(), device)?;
    let profile = profile.with_context(|| format!("module {} takes no time", module.name))?;
    let fit = BatchTime::from_profile(profile, 1.0)
        .with_context(|| format!("module {}: its profile is no c0 + c1 * batch", module.name))?;
    Ok(Law {
        time: fit.time,
        sizes: sizes(profile, max),
    })
}

/// Sizes that batches are formed at: those of the profile, or powers of two where it has every size.
fn sizes(profile: &ModuleProfile, max: u32) -> Vec<u32> {
    let points = || profile.points.iter().map(|p| p.batch).filter(|b| *b <= max);
    let is_every = (1..).zip(points()).all(|(i, batch)| i == batch);
    if is_every || points().count() > SIZES_MAX {
        batch_sizes(max)
    } else {
        points().collect()
    }
}

impl Law {
    /// Execution times by batch size from 1, at that mean length.
    pub(super) fn execution(&self, max: u32, mean_ms: f64) -> Vec<Duration> {
        let time = |size: u32| {
            let ms = self.time.ms(size, mean_ms, mean_ms * f64::from(size));
            Duration::from_nanos((ms * 1e6).round() as u64)
        };
        (1..=max).map(time).collect()
    }

    /// The module under a scheduler.
    pub(super) fn scheduled(
        &self,
        name: SchedulePolicy,
        planned: u32,
        mean_ms: f64,
    ) -> DynamicModule {
        let largest = *self.sizes.last().unwrap_or(&1);
        DynamicModule {
            time: self.time,
            schedule: SchedulerConfig {
                policy: name,
                sizes: self.sizes.clone(),
                planned: planned.clamp(1, largest),
                time: self.time,
                prior_ms: mean_ms.max(f64::MIN_POSITIVE),
                window: WINDOW_DEFAULT,
                capacity: SCHEDULED_MAX,
                scoring: Scoring::default(),
            },
        }
    }
}
