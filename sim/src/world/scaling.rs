//! Workers that come and go: the scaling policy, and the cold starts that it pays.

use std::time::Duration;

use spillgate_controller_policy::gateway::Event as GatewayEvent;
use spillgate_controller_policy::scaling::{Command, Event, SCALING_PERIOD, Scaler};
use spillgate_pipeline::id::{ModuleId, WorkerId};
use spillgate_pipeline::invariants::Violation;

use super::World;
use super::agenda::Occurrence;
use super::config::SimScaling;

pub(super) struct Scaling {
    scaler: Scaler,
    cold_start: Duration,
}

impl Scaling {
    pub(super) fn new(config: &SimScaling) -> Self {
        Scaling {
            scaler: Scaler::new(config.config.clone()),
            cold_start: config.cold_start,
        }
    }
}

impl World {
    /// Switches off what does not serve at first.
    pub(super) fn start_scaling(&mut self) -> Result<(), Violation> {
        let Some(scaling) = &self.scaling else {
            return Ok(());
        };
        let off: Vec<(ModuleId, u32)> = scaling.scaler.off_at_first().collect();
        for (module, ordinal) in off {
            let worker = self.worker(module, ordinal);
            self.drive_gateway(GatewayEvent::WorkerRetired(worker))?;
        }
        self.agenda.at(self.now + SCALING_PERIOD, Occurrence::Scale);
        Ok(())
    }

    pub(super) fn scale(&mut self) -> Result<(), Violation> {
        self.note(15, 0);
        let rate = self.gateway.offered_rate(self.now);
        let probability: Vec<f64> = self
            .controllers
            .iter_mut()
            .map(|m| m.probability(self.now))
            .collect();
        self.drive_scaler(Event::Offered {
            rate,
            probability: &probability,
        })?;
        if !(self.agenda.all_offered() && self.gateway.in_flight() == 0) {
            self.agenda.at(self.now + SCALING_PERIOD, Occurrence::Scale);
        }
        Ok(())
    }

    /// A worker is ready.
    pub(super) fn cold_started(&mut self, module: ModuleId, ordinal: u32) -> Result<(), Violation> {
        self.note(16, u64::from(module.0) << 32 | u64::from(ordinal));
        self.drive_scaler(Event::Started(module, ordinal))
    }

    fn drive_scaler(&mut self, event: Event<'_>) -> Result<(), Violation> {
        let Some(scaling) = &mut self.scaling else {
            return Ok(());
        };
        let mut commands = Vec::new();
        scaling.scaler.on_event(self.now, event, &mut commands);
        let cold_start = scaling.cold_start;
        for command in commands {
            match command {
                Command::Start(module, ordinal) => {
                    let started = Occurrence::ColdStarted { module, ordinal };
                    self.agenda.at(self.now + cold_start, started);
                }
                Command::Serve(module, ordinal) => {
                    let worker = self.worker(module, ordinal);
                    self.drive_gateway(GatewayEvent::WorkerUp(worker))?;
                }
                Command::Retire(module, ordinal) => {
                    let worker = self.worker(module, ordinal);
                    self.drive_gateway(GatewayEvent::WorkerRetired(worker))?;
                }
            }
        }
        Ok(())
    }

    fn worker(&self, module: ModuleId, ordinal: u32) -> WorkerId {
        self.workers[module.idx()][ordinal as usize]
    }
}
