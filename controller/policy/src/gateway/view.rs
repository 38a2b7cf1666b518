//! What a gateway knows of its pipeline, for people.

use spillgate_pipeline::id::ModuleId;
use spillgate_protocol::message::ModuleState;

use super::Gateway;
use super::adapting::Adapting;
use crate::stage::{ModuleView, Stage};
use crate::variant_selector::StreamView;

/// A pipeline as one of its gateways sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayView {
    /// Its requests that have not ended.
    pub in_flight: usize,
    /// Requests a second that the entry gate lets pass; `None` when there is none or it is open.
    pub gate: Option<f64>,
    /// The modules, in order of id.
    pub modules: Vec<ModuleView>,
    /// What serves its streams, where a module's variants are chosen.
    pub adaptation: Option<AdaptationView>,
}

/// What serves the streams of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptationView {
    /// The module whose variants are chosen.
    pub module: ModuleId,
    /// The part of its devices' time that may be planned.
    pub part: f64,
    /// The streams.
    pub streams: Vec<StreamView>,
}

/// What comes of the requests of the next seconds if as many are offered as lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Requests offered to the pipeline, per second.
    pub offered: f64,
    /// Requests that its bottleneck can serve, per second.
    pub capacity: f64,
    /// The module that is the bottleneck.
    pub bottleneck: ModuleId,
}

impl Forecast {
    /// Load factor of the bottleneck: offered over capacity. Not finite where it has no workers.
    pub fn load(&self) -> f64 {
        self.offered / self.capacity
    }

    /// Part of the requests that will be dropped, at the least.
    pub fn dropped(&self) -> f64 {
        (1.0 - 1.0 / self.load()).max(0.0)
    }
}

impl GatewayView {
    /// The forecast by what the controllers published last. `None` where nothing was.
    pub fn forecast(&self) -> Option<Forecast> {
        let states = self.modules.iter().filter_map(|m| m.state.as_deref());
        // Per request of the pipeline: some of them do not run a module.
        let per = |state: &ModuleState, of: f64| of / state.probability.max(f64::MIN_POSITIVE);
        let measured = states.filter(|s| s.capacity.is_finite() && s.probability > 0.0);
        let bottleneck = measured.clone().min_by(|a, b| {
            let (a, b) = (per(a, a.capacity), per(b, b.capacity));
            a.total_cmp(&b)
        })?;
        let offered = measured.map(|s| per(s, s.offered)).fold(0.0, f64::max);
        Some(Forecast {
            offered,
            capacity: per(bottleneck, bottleneck.capacity),
            bottleneck: bottleneck.module,
        })
    }
}

impl<P, L: Clone> Gateway<P, L> {
    /// What it knows of its pipeline.
    pub fn view(&self) -> GatewayView {
        GatewayView {
            in_flight: self.in_flight(),
            gate: self.gate_rate(),
            modules: self.stages.iter().map(Stage::view).collect(),
            adaptation: self.adapting.as_ref().map(Adapting::view),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use spillgate_protocol::message::ModulePlan;

    use super::*;

    fn state(module: u16, offered: f64, capacity: f64, probability: f64) -> Arc<ModuleState> {
        Arc::new(ModuleState {
            module: ModuleId(module),
            version: 1,
            queueing: Duration::ZERO,
            execution: Duration::ZERO,
            batch_waits: Arc::new([]),
            executions: Arc::new([]),
            worst: Duration::ZERO,
            offered,
            executed: offered,
            batch_size: 1.0,
            capacity,
            probability,
            workers: 1,
            pace: 1.0,
            pace_by_variant: 1.0,
            variants: Arc::new([]),
            spread: 0.0,
            asked: Default::default(),
            admit: 1.0,
        })
    }

    fn view(states: Vec<Arc<ModuleState>>) -> GatewayView {
        let modules = states.into_iter().map(|state| ModuleView {
            module: state.module,
            waiting: 0,
            plan: ModulePlan {
                shape: spillgate_protocol::message::BatchShape {
                    size: 1,
                    execution: Duration::ZERO,
                },
                admits: 1.0,
                backlog_check: None,
                part: 1.0,
                knows_gateways: true,
                guidance: spillgate_pipeline::policy::Guidance::NONE,
            },
            state: Some(state),
            workers: Vec::new(),
        });
        GatewayView {
            in_flight: 0,
            gate: None,
            modules: modules.collect(),
            adaptation: None,
        }
    }

    #[test]
    fn the_bottleneck_is_where_fewest_requests_of_the_pipeline_pass() {
        // Half of the requests run module 2: it serves 120 of the pipeline's requests a second.
        let view = view(vec![
            state(0, 0.0, f64::INFINITY, 1.0),
            state(1, 150.0, 200.0, 1.0),
            state(2, 60.0, 60.0, 0.5),
        ]);
        let forecast = view.forecast().unwrap();
        assert_eq!(forecast.bottleneck, ModuleId(2));
        assert_eq!((forecast.offered, forecast.capacity), (150.0, 120.0));
        assert!((forecast.load() - 1.25).abs() < 1e-9);
        assert!((forecast.dropped() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_forecast_where_nothing_is_known() {
        assert_eq!(view(Vec::new()).forecast(), None);
        let unknown = view(vec![state(0, 0.0, f64::INFINITY, 1.0)]);
        assert_eq!(unknown.forecast(), None);
    }

    #[test]
    fn below_its_capacity_nothing_is_dropped() {
        let forecast = view(vec![state(1, 50.0, 200.0, 1.0)]).forecast().unwrap();
        assert_eq!(forecast.dropped(), 0.0);
    }
}
