//! What the devices of a fleet did.

use spillgate_pipeline::predict::PredictionErrors;

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
    pub refused: u64,
    /// By how much actions took longer and ended later than expected, or less long and earlier.
    pub errors: PredictionErrors,
}
