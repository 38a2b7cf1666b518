//! Deployments that cannot start, and why.

use spillgate_backend::operator::OperatorError;
use spillgate_picture::bytes_of_pixels;
use spillgate_pipeline::catalog::ValueType;
use spillgate_process::account::Account;

use super::Deployment;
use crate::device_assignment::PlacingError;

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

/// Whether one client could ever hold a picture as large as each pipeline takes.
pub(super) fn check_pixels(
    deployments: &[Deployment],
    account: &Account,
) -> Result<(), StartError> {
    // No client may hold more than is left to the others.
    let most = account.budget() / 2;
    for pipeline in deployments.iter().map(|d| &d.pipeline) {
        let pixels = pipeline.limits.pixels;
        if pipeline.source.ty == ValueType::Image && bytes_of_pixels(pixels) > most {
            return Err(StartError::Pixels {
                pipeline: pipeline.name.clone(),
                pixels,
                most,
            });
        }
    }
    Ok(())
}
