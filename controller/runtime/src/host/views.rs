//! What the roles of a host know, for metrics and those who look after the server.

use spillgate_controller_policy::gateway::{Gateway, GatewayView};
use spillgate_controller_policy::module::{ModuleController, WorkersView};
use spillgate_pipeline::policy::Guidance;
use spillgate_protocol::message::ModuleState;

use super::PipelineHost;

/// What the controllers of a pipeline know.
#[derive(Clone, Debug)]
pub struct PlannerView {
    /// Requests a second that the entry gate lets pass; `None` while it is open.
    pub gate: Option<f64>,
    /// By module, where its controller is here.
    pub modules: Vec<Option<ControllerView>>,
}

/// What the controller of a module knows.
#[derive(Clone, Debug)]
pub struct ControllerView {
    /// What it last published, if its planner publishes.
    pub published: Option<ModuleState>,
    /// What its brokers go by.
    pub guidance: Guidance,
    /// How many workers it has and wants; `None` for the source.
    pub workers: Option<WorkersView>,
}

impl PipelineHost {
    /// What the gateway knows; `None` where it is in another process.
    pub fn gateway_view(&self) -> Option<GatewayView> {
        let control = self.control.lock();
        control.gateway.as_ref().map(Gateway::view)
    }

    /// What the controllers know.
    pub fn planner_view(&self) -> PlannerView {
        let control = self.control.lock();
        let known = |controller: &ModuleController| ControllerView {
            published: controller.published().cloned(),
            guidance: controller.guidance(),
            workers: controller.workers_view(),
        };
        let gateway = control.gateway.as_ref();
        PlannerView {
            gate: gateway.and_then(Gateway::gate_rate),
            modules: (control.controllers.iter())
                .map(|controller| controller.as_ref().map(known))
                .collect(),
        }
    }
}
