//! Workers that come and go: what the scaling policy says, done.

use spillgate_controller_policy::gateway::Event;
use spillgate_controller_policy::scaling::{
    Command, Event as ScalingEvent, SCALING_PERIOD, Scaler, ScalingConfig,
};
use spillgate_pipeline::id::{ModuleId, WorkerId};
use spillgate_pipeline::message::ToDevice;
use spillgate_pipeline::time::Timestamp;

use super::drive::{Effect, Effects};
use super::{Control, PipelineHost};

/// The scaler of a pipeline and when it looks next.
pub(super) struct Scaling {
    scaler: Scaler,
    looks_at: Timestamp,
}

impl PipelineHost {
    /// Lets workers follow the offered rate. Those beyond the least are off at first.
    pub fn scale_with(&self, config: ScalingConfig) {
        let scaler = Scaler::new(config);
        self.act(|control, now, effects| {
            for (module, ordinal) in scaler.off_at_first() {
                let retired = Event::WorkerRetired(self.worker_of(module, ordinal));
                self.drive_gateway(control, now, retired, effects);
            }
            control.scaling = Some(Scaling {
                scaler,
                looks_at: now + SCALING_PERIOD,
            });
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
                ScalingEvent::Started(module, ordinal)
            }
            Err(error) => {
                tracing::error!(
                    pipeline,
                    module = name,
                    worker = ordinal,
                    error,
                    "worker cannot start"
                );
                ScalingEvent::NotStarted(module, ordinal)
            }
        };
        self.act(|control, now, effects| self.drive_scaler(control, now, event, effects));
    }

    /// Looks at the offered rate if it is time.
    pub(super) fn scale(&self) {
        self.act(|control, now, effects| {
            let Some(scaling) = &mut control.scaling else {
                return;
            };
            if scaling.looks_at > now {
                return;
            }
            scaling.looks_at = now + SCALING_PERIOD;
            let rate = control.gateway.offered_rate(now);
            let controllers = control.controllers.iter_mut();
            let probability: Vec<f64> = controllers.map(|m| m.probability(now)).collect();
            let probability = &probability;
            let offered = ScalingEvent::Offered { rate, probability };
            self.drive_scaler(control, now, offered, effects);
        });
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
            self.drive_scaler(control, now, ScalingEvent::Died(module, ordinal), effects);
        }
    }

    fn drive_scaler(
        &self,
        control: &mut Control,
        now: Timestamp,
        event: ScalingEvent<'_>,
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
                    let worker = self.worker_of(module, ordinal);
                    effects.push(Effect::Tell(
                        self.workers[&worker].device,
                        ToDevice::Load(worker),
                    ));
                }
                Command::Serve(module, ordinal) => {
                    let up = Event::WorkerUp(self.worker_of(module, ordinal));
                    self.drive_gateway(control, now, up, effects);
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
                    self.drive_gateway(control, now, Event::WorkerRetired(worker), effects);
                    effects.push(Effect::Tell(
                        self.workers[&worker].device,
                        ToDevice::Unload(worker),
                    ));
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
        worker.expect("the scaler knows how many there are").worker
    }

    fn place_of(&self, worker: WorkerId) -> Option<(ModuleId, u32)> {
        let module = self.workers.get(&worker)?.module;
        let mut of_module = self.workers.values().filter(|w| w.module == module);
        let ordinal = of_module.position(|w| w.worker == worker)?;
        Some((module, ordinal as u32))
    }
}
