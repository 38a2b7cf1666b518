//! Scaling: how many workers each module should have, from the *offered* rate at the entry.
//!
//! A module sees only what the gate and the modules before it let through. A scaler that follows this rate spirals
//! down: fewer workers let through less. So the offered rate counts, times the part of the requests that run each
//! module. More workers are wanted at once, and fewer only after a whole cool-down in which fewer would have been
//! enough. A rate that nobody tells is not a rate of none: while no gateway is connected, the number stays.
//!
//! A worker counts for what it serves in planned batches at its measured pace. The pace is of each batch over the planned time
//! of its own variant and size: small batches, and smaller variants under load, do not make a worker look quicker, else fewer
//! workers would justify themselves. What was measured ages with the pace.
//!
//! [`Scaler`] only decides. Where the workers are in the controller's own process, [`LocalWorkers`] carries the number out.
//! In a set nobody in the process does: the number is told, and whoever starts processes follows it.

mod local;
mod reason;

use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::time::Timestamp;

pub use local::{Command, Event, LocalWorkers};
pub use reason::{Load, Reason, WorkersWanted};

/// How long fewer workers must have been enough before any is given back, unless said otherwise.
pub const COOL_DOWN_DEFAULT: Duration = Duration::from_secs(30);
/// How often a scaler is to look at the offered rate.
pub const SCALING_PERIOD: Duration = Duration::from_secs(1);

/// Spare capacity that is kept: the rate is followed at this multiple, so that batches need not be full.
const HEADROOM: f64 = 1.1;

/// Who starts and retires the workers that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedOut {
    /// The controllers: the workers are in their process.
    Here,
    /// Whoever starts processes. The workers that there are serve all the time.
    Elsewhere,
}

/// How the workers of a pipeline follow the load, by module.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingConfig {
    /// Least workers by module; the source's is not used.
    pub least: Vec<u32>,
    /// Most workers by module.
    pub most: Vec<u32>,
    /// Requests a second of one worker in planned batches, by module.
    pub throughput: Vec<f64>,
    /// How long fewer workers must have been enough before any is given back.
    pub cool_down: Duration,
    /// Who starts and retires workers.
    pub carried_out: CarriedOut,
}

impl ScalingConfig {
    /// What the scaler of a module is built from; `None` for the source, whose workers are fixed.
    pub fn of(&self, module: ModuleId) -> Option<ModuleScaling> {
        (module != ModuleId::SOURCE).then(|| ModuleScaling {
            least: self.least[module.idx()],
            most: self.most[module.idx()].max(self.least[module.idx()]),
            throughput: self.throughput[module.idx()],
            cool_down: self.cool_down,
            carried_out: self.carried_out,
        })
    }
}

/// What a scaler is built from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModuleScaling {
    /// Least workers.
    pub least: u32,
    /// Most workers.
    pub most: u32,
    /// Requests a second of one worker in planned batches.
    pub throughput: f64,
    /// How long fewer workers must have been enough before any is given back.
    pub cool_down: Duration,
    /// Who starts and retires workers.
    pub carried_out: CarriedOut,
}

impl ModuleScaling {
    /// So many workers, whatever the load.
    pub fn fixed(workers: u32) -> Self {
        ModuleScaling {
            least: workers,
            most: workers,
            throughput: f64::INFINITY,
            cool_down: COOL_DOWN_DEFAULT,
            carried_out: CarriedOut::Elsewhere,
        }
    }
}

/// Decides how many workers one module should have.
#[derive(Clone, Debug)]
pub struct Scaler {
    config: ModuleScaling,
    born: Timestamp,
    wanted: u32,
    since: Timestamp,
    /// Since when fewer workers would be enough, and the largest number needed since.
    spare: Option<(Timestamp, u32)>,
    reason: Reason,
}

impl Scaler {
    /// A scaler that has heard of no load: it wants the least.
    pub fn new(config: ModuleScaling, born: Timestamp) -> Self {
        Scaler {
            config,
            born,
            wanted: config.least,
            since: born,
            spare: None,
            reason: match config.least < config.most {
                true => Reason::Unheard,
                false => Reason::Fixed,
            },
        }
    }

    /// What it wants, and why.
    pub fn wanted(&self) -> WorkersWanted {
        WorkersWanted {
            workers: self.wanted,
            since: self.since,
            reason: self.reason,
        }
    }

    /// No gateway tells how much is offered. The number stays, and lower loads from before do not count for giving workers back.
    pub fn unheard(&mut self) {
        if self.follows_load() {
            self.spare = None;
            self.reason = Reason::Unheard;
        }
    }

    /// This load was measured while so many workers serve. Until a scaler has lived for a cool-down, it knows no load of before,
    /// and takes none of the workers that it found.
    pub fn heard(&mut self, now: Timestamp, load: Load, serving: u32) {
        if !self.follows_load() {
            return;
        }
        let ModuleScaling {
            least,
            most,
            throughput,
            cool_down,
            ..
        } = self.config;
        let needed = load.offered * load.probability * HEADROOM * load.pace / throughput;
        let needed = needed.max(0.0).ceil() as u32;
        let within = needed.clamp(least, most);
        if now.since(self.born) < cool_down {
            self.want(now, self.wanted.max(serving.min(most)));
        }
        if within >= self.wanted {
            self.spare = None;
            self.want(now, within);
        } else {
            let (since, peak) = self.spare.unwrap_or((now, 0));
            let peak = peak.max(within);
            let has_cooled = now.since(since) >= cool_down;
            self.spare = (!has_cooled).then_some((since, peak));
            if has_cooled {
                self.want(now, peak);
            }
        }
        self.reason = Reason::Load {
            load,
            throughput,
            needed,
            held_until: (self.wanted > within).then(|| {
                let since = self.spare.map_or(now, |(since, _)| since);
                since + cool_down
            }),
        };
    }

    fn follows_load(&self) -> bool {
        self.config.least < self.config.most
    }

    fn want(&mut self, now: Timestamp, workers: u32) {
        if workers != self.wanted {
            self.wanted = workers;
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests;
