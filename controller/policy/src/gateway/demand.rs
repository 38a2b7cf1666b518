//! Counts the demand on the modules and reports it to their controllers.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{Incarnation, ModuleId};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Demand;

/// Reports are sent this often while there is anything to report.
const REPORT_PERIOD: Duration = Duration::from_millis(100);

/// The counts of one module.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// The life of the controller that they are for.
    life: Incarnation,
    /// Requests that had been offered when it greeted, and requests that had given their place back.
    before: (u64, u64),
    demand: Demand,
}

/// The counts of one gateway.
pub(super) struct Demands {
    slo: Duration,
    born: Timestamp,
    modules: Vec<Counts>,
    /// By module: requests enter the pipeline here.
    is_first: Vec<bool>,
    offered: (u64, u64),
    /// When the counts since the last reports are due.
    reports_at: Option<Timestamp>,
}

impl Demands {
    /// Nothing has been asked since the gateway began.
    pub(super) fn new(pipeline: &Pipeline, born: Timestamp) -> Self {
        let is_first = |m: &Module| pipeline.predecessors(m.id) == [ModuleId::SOURCE];
        Demands {
            slo: pipeline.slo,
            born,
            modules: vec![Counts::default(); pipeline.modules.len()],
            is_first: pipeline.modules.iter().map(is_first).collect(),
            offered: (0, 0),
            reports_at: None,
        }
    }

    /// The controller of a module greets. One that began anew is told what comes from now on: all that ever came would look
    /// like a burst to it.
    pub(super) fn greeted(&mut self, module: ModuleId, incarnation: Incarnation) {
        let counts = &mut self.modules[module.idx()];
        if counts.life != incarnation {
            *counts = Counts {
                life: incarnation,
                before: self.offered,
                demand: Demand::default(),
            };
        }
    }

    /// So many requests were offered to the pipeline so far, and so many of them gave their place back.
    pub(super) fn offered(&mut self, now: Timestamp, offered: (u64, u64)) {
        self.offered = offered;
        self.changed(now);
    }

    /// A request came to a module, and runs it (false: skips it). One without an SLO is no demand: workers and batch sizes are not for
    /// it.
    pub(super) fn came(&mut self, now: Timestamp, module: ModuleId, request: &Request, runs: bool) {
        if request.background {
            return;
        }
        let demand = &mut self.modules[module.idx()].demand;
        demand.came(runs);
        if self.is_first[module.idx()] {
            demand.entered(self.slo, request);
        }
        self.changed(now);
    }

    /// A request that had come to a module ended by its client's doing before a device ran it.
    pub(super) fn unasked(&mut self, now: Timestamp, module: ModuleId) {
        self.modules[module.idx()].demand.unasked += 1;
        self.changed(now);
    }

    /// When reports are due.
    pub(super) fn reports_at(&self) -> Option<Timestamp> {
        self.reports_at
    }

    /// The reports, by module.
    pub(super) fn reports(&mut self) -> Vec<(ModuleId, Demand)> {
        self.reports_at = None;
        let (offered, returned) = self.offered;
        let report = |(module, counts): (u16, &Counts)| {
            let demand = Demand {
                offered: offered - counts.before.0,
                returned: returned - counts.before.1,
                ..counts.demand.clone()
            };
            (ModuleId(module), demand)
        };
        (0..).zip(&self.modules).map(report).collect()
    }

    /// Reports fall on whole periods since the gateway began.
    fn changed(&mut self, now: Timestamp) {
        if self.reports_at.is_none() {
            let period = REPORT_PERIOD.as_nanos() as u64;
            let passed = now.since(self.born).as_nanos() as u64;
            let periods = passed / period + 1;
            self.reports_at = Some(self.born + Duration::from_nanos(periods * period));
        }
    }
}
