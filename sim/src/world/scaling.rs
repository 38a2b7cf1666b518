//! Workers that come and go: the scaling policy, and the cold starts that it pays.

use std::time::Duration;

use spillgate_controller_policy::module::Event as ModuleEvent;
use spillgate_controller_policy::scaling::Scaler;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::invariants::Violation;

use super::World;
use super::agenda::Occurrence;
use super::config::SimScaling;

/// The scaler looks this often.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) struct Scaling {
    scaler: Scaler,
    cold_start: Duration,
    /// Workers that serve, by module.
    up: Vec<u32>,
}

impl Scaling {
    pub(super) fn new(config: &SimScaling) -> Self {
        Scaling {
            scaler: Scaler::new(config.config.clone()),
            cold_start: config.cold_start,
            up: config.config.least.clone(),
        }
    }
}

impl World {
    /// Switches off what is beyond the least.
    pub(super) fn start_scaling(&mut self) -> Result<(), Violation> {
        let Some(scaling) = &self.scaling else {
            return Ok(());
        };
        let least = scaling.up.clone();
        for (module, &least) in least.iter().enumerate().skip(1) {
            for worker in self.workers[module]
                .clone()
                .into_iter()
                .skip(least as usize)
            {
                let retired = ModuleEvent::WorkerRetired(worker);
                self.drive_module(ModuleId(module as u16), retired)?;
            }
        }
        self.agenda.at(self.now + PERIOD, Occurrence::Scale);
        Ok(())
    }

    pub(super) fn scale(&mut self) -> Result<(), Violation> {
        self.note(15, 0);
        let Some(scaling) = &mut self.scaling else {
            return Ok(());
        };
        let rate = self.ledger.offered_rate(self.now);
        let probability: Vec<f64> = self
            .modules
            .iter_mut()
            .map(|m| m.probability(self.now))
            .collect();
        let mut changes = Vec::new();
        scaling
            .scaler
            .offered(self.now, rate, &probability, &mut changes);
        let cold_start = scaling.cold_start;
        for change in changes {
            let module = change.module;
            let up = self.scaling.as_ref().map_or(0, |s| s.up[module.idx()]);
            for ordinal in up..change.workers {
                let started = Occurrence::ColdStarted {
                    module,
                    ordinal: ordinal as usize,
                };
                self.agenda.at(self.now + cold_start, started);
            }
            for ordinal in change.workers..up {
                let worker = self.workers[module.idx()][ordinal as usize];
                self.drive_module(module, ModuleEvent::WorkerRetired(worker))?;
            }
            if let Some(scaling) = &mut self.scaling {
                scaling.up[module.idx()] = up.min(change.workers);
            }
        }
        if !(self.agenda.all_offered() && self.ledger.in_flight() == 0) {
            self.agenda.at(self.now + PERIOD, Occurrence::Scale);
        }
        Ok(())
    }

    /// A worker is ready, unless it is not wanted any more.
    pub(super) fn cold_started(
        &mut self,
        module: ModuleId,
        ordinal: usize,
    ) -> Result<(), Violation> {
        self.note(16, u64::from(module.0) << 32 | ordinal as u64);
        let Some(scaling) = &mut self.scaling else {
            return Ok(());
        };
        let up = &mut scaling.up[module.idx()];
        if scaling.scaler.asked()[module.idx()] as usize <= ordinal || *up as usize > ordinal {
            return Ok(());
        }
        *up = ordinal as u32 + 1;
        let worker = self.workers[module.idx()][ordinal];
        self.drive_module(module, ModuleEvent::WorkerUp(worker))
    }
}
