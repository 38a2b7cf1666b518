//! Flags that commands share: the folder of models, and the bounds of the check of models.

use std::path::PathBuf;
use std::time::Duration;

use crate::model_check::{CheckConfig, MEMORY_DEFAULT, TIME_DEFAULT};
use clap::Args;

use super::ranges::number;

/// Most memory of a check, in MiB: a terabyte.
const MEMORY_MAX: u64 = 1 << 20;
/// Longest check, in seconds.
const TIME_MAX: u64 = 3600;

/// Bounds of model files.
#[derive(Args)]
pub(crate) struct ModelArgs {
    /// Refuse models that lie outside of this folder.
    #[arg(long, env = "SPILLGATE_MODEL_DIR")]
    model_dir: Option<PathBuf>,
    /// MiB of memory that the check of a module's models may use beside four times their size.
    #[arg(long, env = "SPILLGATE_MODEL_MEMORY", default_value_t = MEMORY_DEFAULT >> 20,
        value_parser = number(64, MEMORY_MAX, "MiB; libtorch itself takes some, and a terabyte is no bound"))]
    model_memory: u64,
    /// Seconds of processor time that the check of a module's models may take.
    #[arg(long, env = "SPILLGATE_MODEL_TIME", default_value_t = TIME_DEFAULT.as_secs(),
        value_parser = number(1, TIME_MAX, "seconds; an hour is no bound"))]
    model_time: u64,
}

impl ModelArgs {
    pub(crate) fn config(&self) -> CheckConfig {
        CheckConfig {
            memory: self.model_memory << 20,
            time: Duration::from_secs(self.model_time),
            model_dir: self.model_dir.clone(),
        }
    }
}
