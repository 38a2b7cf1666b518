//! What the devices of a fleet did.

use spillgate_pipeline::action::RefusalCause;
use spillgate_pipeline::predict::{ActionKind, PredictionErrors};

/// What a device did since it began.
#[derive(Clone, Debug, Default)]
pub struct DeviceAccount {
    /// Batches that ran.
    pub batches: u64,
    /// Requests in them that had to wait until the weights of their model were read.
    pub cold: u64,
    /// Weights that were read.
    pub loads: u64,
    /// Weights that could not be read.
    pub failed_loads: u64,
    /// Models that gave way to others.
    pub unloads: u64,
    /// Actions that did not run.
    pub refused: Refused,
    /// By how much actions took longer and ended later than expected, or less long and earlier.
    pub errors: PredictionErrors,
}

/// Actions that a device refused, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Batches whose window had passed.
    pub late_batches: u64,
    /// LOADs whose window had passed.
    pub late_loads: u64,
    /// Actions whose model gave way before they began.
    pub not_loaded: u64,
    /// LOADs for which there were too few free pages.
    pub no_pages: u64,
}

impl Refused {
    pub(super) fn count(&mut self, kind: ActionKind, cause: RefusalCause) {
        let of = match (cause, kind) {
            (RefusalCause::Late, ActionKind::Load) => &mut self.late_loads,
            (RefusalCause::Late, _) => &mut self.late_batches,
            (RefusalCause::NotLoaded, _) => &mut self.not_loaded,
            (RefusalCause::NoPages, _) => &mut self.no_pages,
        };
        *of += 1;
    }
}
