//! What gateways, devices and other controllers tell the controller of a module.

use std::sync::Arc;
use std::time::Duration;

use super::ClientReport;
use spillgate_pipeline::id::{ModuleId, VariantId, WorkerId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

/// Shares of the SLO are told apart in this many steps.
pub const SHARE_STEPS: usize = 20;

/// Samples of a kind that a state holds at most.
pub const STATE_SAMPLES_MAX: usize = 1024;

/// Part of the requests that ask for each share of the SLO; entry i is for shares up to (i + 1) / 20.
pub type Shares = [f32; SHARE_STEPS];

/// What a controller is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ToController {
    /// By a gateway: what was asked of the module.
    Demand(Box<Demand>),
    /// By a gateway, to the controller of the source: what its clients asked for.
    Clients(Box<ClientReport>),
    /// By a device: a batch ended.
    Report(BatchReport),
    /// By a device: a worker that was asked for is ready, or cannot be (false).
    Loaded(WorkerId, bool),
    /// By the controller of another module: its state.
    Peer(Arc<ModuleState>),
}

/// What was asked of a module at one gateway, counted since that gateway began, or since the module's controller greeted it
/// for the first time in its life. A report that is lost or comes twice changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Requests offered to the pipeline, refused ones included.
    pub offered: u64,
    /// Of those, requests that gave their place back: they count as never offered.
    pub returned: u64,
    /// Requests that reached the module and run it.
    pub reached: u64,
    /// Requests that skipped it.
    pub skipped: u64,
    /// Of those that reached it, requests that ended by their client's doing before a device ran them.
    pub unasked: u64,
    /// Where requests enter the pipeline: those that came by the share of the SLO that they ask for, as in [`Shares`].
    pub asked: [u64; SHARE_STEPS],
}

impl Demand {
    /// A request came to the module, and runs it (false: skips it).
    pub fn came(&mut self, runs: bool) {
        if runs {
            self.reached += 1;
        } else {
            self.skipped += 1;
        }
    }

    /// A request entered the pipeline here.
    pub fn entered(&mut self, slo: Duration, request: &Request) {
        let asked = request.deadline.since(request.sent_at).as_secs_f64() / slo.as_secs_f64();
        // A hair less, so that exactly a step is that step.
        let step = (asked * SHARE_STEPS as f64 - 1e-6).ceil();
        let step = step.clamp(1.0, SHARE_STEPS as f64) as usize;
        self.asked[step - 1] += 1;
    }

    /// What was counted since an earlier report, and takes the place of that one. Reports may come twice or out of order.
    pub fn since(&self, last: &mut Demand) -> Demand {
        let more = |now: u64, last: &mut u64| {
            let more = now.saturating_sub(*last);
            *last += more;
            more
        };
        let mut asked = [0; SHARE_STEPS];
        for ((more_asked, &now), last) in asked.iter_mut().zip(&self.asked).zip(&mut last.asked) {
            *more_asked = more(now, last);
        }
        Demand {
            offered: more(self.offered, &mut last.offered),
            returned: more(self.returned, &mut last.returned),
            reached: more(self.reached, &mut last.reached),
            skipped: more(self.skipped, &mut last.skipped),
            unasked: more(self.unasked, &mut last.unasked),
            asked,
        }
    }
}

/// One batch that ended, as its device reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchReport {
    /// The worker.
    pub worker: WorkerId,
    /// The variant that ran; the first one where the module has no others.
    pub variant: VariantId,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Requests that ran together: under a placement those of other workers too, and those without an SLO.
    pub size: u32,
    /// t_r and t_b of each member of this worker that has an SLO.
    pub members: Vec<(Timestamp, Timestamp)>,
}

/// What a module tells the others.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleState {
    /// The module.
    pub module: ModuleId,
    /// Rises with each publication of one incarnation.
    pub version: u64,
    /// q: mean queueing delay over the window.
    pub queueing: Duration,
    /// d: execution at the planned batch; for our own policy at the pace that its workers show.
    pub execution: Duration,
    /// Recent batch waits in seconds, at most [`STATE_SAMPLES_MAX`].
    pub batch_waits: Arc<[f32]>,
    /// Recent execution times of batches in seconds, one a request, where a batch scheduler forms them: they depend on
    /// what requests bring, and so does what to leave for them. Empty elsewhere and under published policies. At most
    /// [`STATE_SAMPLES_MAX`].
    pub executions: Arc<[f32]>,
    /// The largest latency (Q + W + D) in the window.
    pub worst: Duration,
    /// Requests offered to it, per second.
    pub offered: f64,
    /// Requests that it executed, per second.
    pub executed: f64,
    /// Mean batch size in the window.
    pub batch_size: f64,
    /// T_m: requests a second that its workers can serve in planned batches.
    pub capacity: f64,
    /// Part of the requests of the pipeline that run it (1 without conditions).
    pub probability: f64,
    /// Workers that serve it.
    pub workers: u32,
    /// Measured over planned execution time. Planned is that of the variant that serves where none is chosen.
    pub pace: f64,
    /// The same with the planned time of the variant that ran: how fast its workers are, whichever variants they run.
    pub pace_by_variant: f64,
    /// Part of its requests by the variant that ran, in the window; empty where none is chosen, and before any ran.
    pub variants: Arc<[f32]>,
    /// Standard deviation of `pace_by_variant` from batch to batch.
    pub spread: f64,
    /// What part of the SLO its requests ask for.
    pub asked: Shares,
    /// Share of arrivals that it and its predecessors are to admit (`pard-oc`); 1 without overload.
    pub admit: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_is_lost_or_comes_twice_or_late_changes_nothing() {
        let report = |offered| Demand {
            offered,
            reached: offered / 2,
            ..Demand::default()
        };
        let mut last = Demand::default();
        let mut count = |offered| report(offered).since(&mut last).offered;
        assert_eq!([10, 10, 40, 20, 50].map(&mut count), [10, 0, 30, 0, 10]);
    }
}
