//! Reaches a device under a placement from other threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spillgate_pipeline::action::Done;
use spillgate_pipeline::id::DeviceId;

use super::DeviceAction;
use super::shared::Shared;

/// Reaches a device. Cheap to clone.
#[derive(Clone)]
pub struct PlacedHandle {
    pub(super) shared: Arc<Shared>,
}

impl PlacedHandle {
    /// Takes in an action. `refused` gets what is refused at once; all else is reported when it has ended.
    pub fn receive(&self, action: DeviceAction, refused: &mut Vec<Done>) {
        self.shared.receive(action, refused);
    }

    /// Whether its threads live.
    pub fn is_alive(&self) -> bool {
        self.shared.alive.load(Ordering::Acquire)
    }

    /// Its id in its fleet.
    pub fn id(&self) -> DeviceId {
        self.shared.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }
}
