//! Why what a process holds cannot start.

use spillgate_backend::operator::OperatorError;
use spillgate_picture::bytes_of_pixels;
use spillgate_pipeline::profile::NoProfile;
use spillgate_worker_policy::schedule::NoSchedule;

/// Why a deployment could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A device, model or file is missing or does not fit.
    #[error("{device}: {cause}")]
    Device {
        /// The device.
        device: String,
        /// Why.
        cause: OperatorError,
    },
    /// Workers cannot be placed.
    #[error(transparent)]
    Placing(#[from] PlacingError),
    /// Pictures as large as a pipeline takes could never be held.
    #[error("{}", too_many_pixels(.pipeline, .pixels, .most))]
    Pixels {
        /// The pipeline.
        pipeline: String,
        /// `limits.pixels`.
        pixels: u64,
        /// Bytes that one client may hold.
        most: u64,
    },
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

fn too_many_pixels(pipeline: &str, pixels: &u64, most: &u64) -> String {
    const MIB: u64 = 1 << 20;
    let bytes = bytes_of_pixels(*pixels);
    format!(
        "limits.pixels of {pipeline} is {pixels}: such a picture takes {} MiB decoded, and one client may hold {} MiB of --memory; set \
         limits.pixels to {} at most, or --memory to {}MiB",
        bytes.div_ceil(MIB),
        most / MIB,
        most / bytes_of_pixels(1),
        (2 * bytes).div_ceil(MIB)
    )
}

/// Why workers cannot be placed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlacingError {
    /// A module that would run for an unknown time.
    #[error(
        "{0}; an emulated device needs one in the profile file beside the pipeline; for real devices \
         `spillgate profile` measures it"
    )]
    NoProfile(#[from] NoProfile),
    /// A module's scheduler cannot be built.
    #[error(transparent)]
    NoSchedule(#[from] NoSchedule),
}
