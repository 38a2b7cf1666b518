//! Workers that come and go: what the scaling policy says, done.

use spillgate_controller_policy::module::Event as ModuleEvent;
use spillgate_controller_policy::scaling::{Command, Event, SCALING_PERIOD, Scaler, ScalingConfig};
use spillgate_pipeline::id::{ModuleId, WorkerId};
use spillgate_pipeline::time::Timestamp;

use super::effects::Effects;
use super::{Control, PipelineHost};

/// The scaler of a pipeline and when it looks next.
pub(super) struct Scaling {
    scaler: Scaler,
    looks_at: Timestamp,
}

impl PipelineHost {
    /// Lets workers follow the offered rate. Those beyond the least are off at first.
    pub fn scale_with(&self, config: ScalingConfig) {
        let now = (self.now)();
        let scaler = Scaler::new(config);
        let control = &mut *self.control.lock();
        for (module, ordinal) in scaler.off_at_first() {
            let retired = ModuleEvent::WorkerRetired(self.worker_of(module, ordinal));
            control.modules[module.idx()].on_event(now, retired, &mut control.commands);
        }
        control.scaling = Some(Scaling {
            scaler,
            looks_at: now + SCALING_PERIOD,
        });
    }

    /// A worker that was asked for is ready, or cannot be.
    pub fn worker_loaded(&self, worker: WorkerId, result: Result<(), String>) {
        let Some((module, ordinal)) = self.place_of(worker) else {
            return;
        };
        let pipeline = &self.pipeline.name;
        let name = &self.pipeline.modules[module.idx()].name;
        let event = match result {
            Ok(()) => {
                tracing::info!(pipeline, module = name, worker = ordinal, "worker started");
                Event::Started(module, ordinal)
            }
            Err(error) => {
                tracing::error!(
                    pipeline,
                    module = name,
                    worker = ordinal,
                    error,
                    "worker cannot start"
                );
                Event::NotStarted(module, ordinal)
            }
        };
        let mut effects = Effects::default();
        let now = (self.now)();
        self.drive_scaler(&mut self.control.lock(), now, event, &mut effects);
        self.perform(effects);
    }

    /// Looks at the offered rate if it is time.
    pub(super) fn scale(&self) {
        let now = (self.now)();
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            let Some(scaling) = &mut control.scaling else {
                return;
            };
            if scaling.looks_at > now {
                return;
            }
            scaling.looks_at = now + SCALING_PERIOD;
            let rate = control.ledger.offered_rate(now);
            let modules = control.modules.iter_mut();
            let probability: Vec<f64> = modules.map(|m| m.probability(now)).collect();
            let probability = &probability;
            let offered = Event::Offered { rate, probability };
            self.drive_scaler(&mut control, now, offered, &mut effects);
        }
        self.perform(effects);
    }

    /// A worker is gone for good.
    pub(super) fn worker_died(
        &self,
        control: &mut Control,
        now: Timestamp,
        worker: WorkerId,
        effects: &mut Effects,
    ) {
        if let Some((module, ordinal)) = self.place_of(worker) {
            self.drive_scaler(control, now, Event::Died(module, ordinal), effects);
        }
    }

    fn drive_scaler(
        &self,
        control: &mut Control,
        now: Timestamp,
        event: Event<'_>,
        effects: &mut Effects,
    ) {
        let Some(scaling) = &mut control.scaling else {
            return;
        };
        let mut commands = Vec::new();
        scaling.scaler.on_event(now, event, &mut commands);
        for command in commands {
            match command {
                Command::Start(module, ordinal) => {
                    effects.loads.push(self.worker_of(module, ordinal));
                }
                Command::Serve(module, ordinal) => {
                    let up = ModuleEvent::WorkerUp(self.worker_of(module, ordinal));
                    self.drive_module(control, now, module, up, effects);
                }
                Command::Retire(module, ordinal) => {
                    let worker = self.worker_of(module, ordinal);
                    let name = &self.pipeline.modules[module.idx()].name;
                    tracing::info!(
                        pipeline = self.pipeline.name,
                        module = name,
                        worker = ordinal,
                        "worker retired"
                    );
                    let retired = ModuleEvent::WorkerRetired(worker);
                    self.drive_module(control, now, module, retired, effects);
                    effects.unloads.push(worker);
                }
            }
        }
    }

    /// When [`PipelineHost::scale`] has something to do.
    pub(super) fn scales_at(control: &Control) -> Option<Timestamp> {
        control.scaling.as_ref().map(|s| s.looks_at)
    }

    /// Workers are numbered by module in order of id.
    fn worker_of(&self, module: ModuleId, ordinal: u32) -> WorkerId {
        let mut of_module = self.workers.values().filter(|w| w.module == module);
        let worker = of_module.nth(ordinal as usize);
        worker.expect("the scaler knows how many there are").id
    }

    fn place_of(&self, worker: WorkerId) -> Option<(ModuleId, u32)> {
        let module = self.workers.get(&worker)?.module;
        let mut of_module = self.workers.values().filter(|w| w.module == module);
        let ordinal = of_module.position(|w| w.id == worker)?;
        Some((module, ordinal as u32))
    }
}
