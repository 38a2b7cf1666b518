//! The downstream estimate as a separate unit of work.

use std::sync::Arc;
use std::time::Duration;

use crate::estimate::{self, PathEstimate, Scratch, Stage};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::policy::{BudgetOrder, Guidance};

/// An estimate to be made, with all its inputs. It takes thousands of draws, so a driver makes it without the module's
/// lock.
#[derive(Debug)]
pub struct Computation {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) successors: Arc<[Vec<ModuleId>]>,
    pub(super) module: ModuleId,
    pub(super) stages: Vec<Stage>,
    pub(super) waits: estimate::Waits,
    pub(super) order: BudgetOrder,
    pub(super) batch: Option<u32>,
    pub(super) rng: ChaCha8Rng,
    pub(super) scratch: Scratch,
}

/// A finished estimate.
#[derive(Debug)]
pub struct Computed {
    pub(super) guidance: Guidance,
    pub(super) paths: Vec<PathEstimate>,
    pub(super) scratch: Scratch,
}

impl Computation {
    /// Makes the estimate.
    pub fn run(mut self) -> Computed {
        let paths = estimate::downstream(
            &self.pipeline,
            &self.successors,
            self.module,
            &self.stages,
            self.waits,
            &mut self.rng,
            &mut self.scratch,
        );
        // L_sub from the executions alone.
        let planned = paths.iter().map(|p| p.execution).fold(0.0, f64::max);
        let total = paths.first().map_or(0.0, PathEstimate::total);
        Computed {
            guidance: Guidance {
                downstream: Duration::from_secs_f64(total.max(0.0)),
                planned: Duration::from_secs_f64(planned),
                share: 1.0,
                order: self.order,
                batch: self.batch,
            },
            paths,
            scratch: self.scratch,
        }
    }
}
