//! What metrics read of what is served.

use std::sync::Arc;

use spillgate_controller::host::{ClientCount, PipelineHost};
use spillgate_pipeline::policy::BudgetOrder;
use spillgate_protocol::message::Place;
use spillgate_telemetry::metrics::{
    ClientReading, PlannerReading, PlannerReadings, WorkersReading,
};

use crate::served::Served;
use crate::status::streams_of;

impl Served {
    /// The queue length of each worker: pipeline, module, worker, requests.
    pub(crate) fn queue_lengths(&self) -> Vec<(String, String, u32, usize)> {
        let worker = |host: &Arc<PipelineHost>, w: &Place| {
            let pipeline = host.pipeline();
            let module = pipeline.modules[w.module.idx()].name.clone();
            let waiting = self.embedded.devices.get(&w.device)?.waiting(w.worker);
            Some((pipeline.name.clone(), module, w.worker.0, waiting))
        };
        let hosts = self.hosts();
        let all = hosts.iter();
        all.flat_map(|h| h.workers().iter().filter_map(|w| worker(h, w)))
            .collect()
    }

    /// Adds what the State Planners know.
    pub(crate) fn planners(&self, all: &mut PlannerReadings) {
        for host in self.hosts() {
            let pipeline = host.pipeline();
            let view = host.planner_view();
            all.gates
                .extend(view.gate.map(|rate| (pipeline.name.clone(), rate)));
            let reading = |(name, count): (Arc<str>, ClientCount)| {
                let reading = ClientReading {
                    name: name.to_string(),
                    requests: count.requests,
                    good: count.good,
                    refused: count.refused,
                };
                (pipeline.name.clone(), reading)
            };
            all.clients
                .extend(host.client_counts().into_iter().map(reading));
            all.named
                .extend(host.stream_counts().into_iter().map(reading));
            let adaptation = host.gateway_view().and_then(|view| view.adaptation);
            if let Some(view) = &adaptation {
                all.streams.extend(streams_of(pipeline, view));
            }
            let modules = pipeline.modules.iter().zip(view.modules);
            for (module, of) in modules.filter_map(|(m, v)| Some((m, v?))) {
                let guidance = of.guidance;
                all.workers.extend(of.workers.map(|workers| WorkersReading {
                    pipeline: pipeline.name.clone(),
                    module: module.name.clone(),
                    wanted: workers.wanted.workers,
                    serving: workers.serving,
                }));
                all.modules.extend(of.published.map(|state| PlannerReading {
                    pipeline: pipeline.name.clone(),
                    module: module.name.clone(),
                    offered: state.offered,
                    executed: state.executed,
                    capacity: state.capacity,
                    workers: state.workers,
                    pace: state.pace,
                    queueing: state.queueing.as_secs_f64(),
                    downstream: guidance.downstream.as_secs_f64(),
                    highest_first: guidance.order == BudgetOrder::HighestFirst,
                }));
            }
        }
    }
}
