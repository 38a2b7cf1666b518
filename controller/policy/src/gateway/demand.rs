//! What is asked of the modules, counted and reported to their controllers.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::message::Demand;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

/// Reports are sent this often while there is anything to report.
const REPORT_PERIOD: Duration = Duration::from_millis(100);

/// The counts of one gateway.
pub(super) struct Demands {
    slo: Duration,
    born: Timestamp,
    modules: Vec<Demand>,
    offered: (u64, u64),
    /// When what was counted since the last reports is to be told.
    reports_at: Option<Timestamp>,
}

impl Demands {
    /// Nothing has been asked since the gateway began.
    pub(super) fn new(pipeline: &Pipeline, born: Timestamp) -> Self {
        Demands {
            slo: pipeline.slo,
            born,
            modules: vec![Demand::default(); pipeline.modules.len()],
            offered: (0, 0),
            reports_at: None,
        }
    }

    /// So many requests were offered to the pipeline so far, and so many of them gave their place back.
    pub(super) fn offered(&mut self, now: Timestamp, offered: (u64, u64)) {
        self.offered = offered;
        self.changed(now);
    }

    /// A request came to a module, and runs it (false: skips it).
    pub(super) fn came(&mut self, now: Timestamp, module: ModuleId, request: &Request, runs: bool) {
        self.modules[module.idx()].came(self.slo, request, runs);
        self.changed(now);
    }

    /// A request was dropped at a module, or at the entry to it.
    pub(super) fn dropped(&mut self, now: Timestamp, module: ModuleId) {
        self.modules[module.idx()].dropped += 1;
        self.changed(now);
    }

    /// A request that had come to a module ended by its client's doing before a device ran it.
    pub(super) fn unasked(&mut self, now: Timestamp, module: ModuleId) {
        self.modules[module.idx()].unasked += 1;
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
        let report = |(module, demand): (u16, &Demand)| {
            let demand = Demand {
                offered,
                returned,
                ..demand.clone()
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
