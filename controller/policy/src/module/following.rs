//! How the number of workers follows the load.

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::ToDevice;

use super::{ControllerCommand, ModuleController};
use crate::scaling::{Command, Event, Load, SCALING_PERIOD, WorkersWanted};

/// The workers of a module: how many there are, and should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkersView {
    /// How many there should be, since when, and why.
    pub wanted: WorkersWanted,
    /// How many take requests.
    pub serving: u32,
}

impl ModuleController {
    /// How many workers it has and wants; `None` for the source, whose workers are nobody's to choose.
    pub fn workers_view(&self) -> Option<WorkersView> {
        (self.module != ModuleId::SOURCE).then(|| WorkersView {
            wanted: self.scaler.wanted(),
            serving: self.n_up() as u32,
        })
    }

    /// Looks at the load, if it is time.
    pub(super) fn follow_load<L>(&mut self, now: Timestamp, out: &mut Vec<ControllerCommand<L>>) {
        if self.scales_at.is_none_or(|at| now < at) {
            return;
        }
        self.scales_at = Some(now + SCALING_PERIOD);
        if self.gateways.is_empty() {
            self.scaler.unheard();
        } else {
            let load = Load {
                offered: self.planner.demand(now),
                probability: self.planner.probability(now),
                pace: self.planner.pace(now),
            };
            self.scaler.heard(now, load, self.n_up() as u32);
        }
        let wanted = self.scaler.wanted().workers;
        self.scale(now, Event::Wanted(wanted), out);
    }

    /// Tells the workers of this process, where it has them.
    pub(super) fn scale<L>(
        &mut self,
        now: Timestamp,
        event: Event,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        let Some(local) = &mut self.local else {
            return;
        };
        let mut commands = Vec::new();
        local.on_event(now, event, &mut commands);
        for command in commands {
            match command {
                Command::Start(ordinal) => {
                    let place = self.workers[ordinal as usize].place;
                    self.tell_device(place.device, ToDevice::Load(place.worker), out);
                }
                Command::Serve(ordinal) => self.serves(ordinal, true, out),
                Command::Retire(ordinal) => {
                    self.serves(ordinal, false, out);
                    let place = self.workers[ordinal as usize].place;
                    self.tell_device(place.device, ToDevice::Unload(place.worker), out);
                }
            }
        }
    }
}
