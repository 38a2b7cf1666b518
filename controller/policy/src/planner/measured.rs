//! The measurements of a State Planner on its own module: bounded windows over the reports of gateways and workers.

use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::predict::{Action, Pace, PaceRule, Predictor, Rule};
use spillgate_pipeline::time::Timestamp;
use spillgate_pipeline::window::Window;
use spillgate_protocol::message::{BatchReport, Demand};

use super::reservoir::Reservoir;
use super::sizes::Asked;

/// The input rate of the load factor is taken over this last span.
const INPUT_SPAN: Duration = Duration::from_secs(1);
/// Span of the rate offered to the pipeline: long enough for a rate, short enough to follow a burst.
const DEMAND_SPAN: Duration = Duration::from_secs(2);

/// A module of which no batch ended within this time has nothing to do, or within twice the time that its last one took.
const REST: Duration = Duration::from_millis(900);

/// The windows of one module.
pub(super) struct Measured {
    module: ModuleId,
    /// Requests enter the pipeline at this module, so the planner counts the shares of the SLO that they ask for.
    is_first: bool,
    /// Execution times are exchanged as a distribution.
    is_dynamic: bool,
    pub(super) queueing: Window,
    pub(super) last_second: Window,
    /// Requests that reach the module and run it.
    pub(super) offered: Window,
    /// Requests offered to the pipeline, refused ones included.
    pub(super) demand: Window,
    pub(super) input: Window,
    pub(super) batches: Window,
    pub(super) latency: Window,
    pub(super) batch_waits: Reservoir,
    pub(super) executions: Reservoir,
    /// Of the batches of all workers, by the times of the variants that ran.
    pub(super) predictor: Predictor,
    /// Requests by the variant that ran; empty where the module has no others.
    variants: Vec<Window>,
    pub(super) asked: Asked,
    /// Requests that ran the module (1) or skipped it (0).
    ran: Window,
    /// When the last batch ended, and how long it took.
    last: Option<(Timestamp, Duration)>,
}

impl Measured {
    /// Windows of that length, for a planner that begins at `born`. `n_variants`: those that are chosen from, 0 where none is chosen.
    pub(super) fn new(
        module: ModuleId,
        length: Duration,
        born: Timestamp,
        is_first: bool,
        is_dynamic: bool,
        n_variants: usize,
    ) -> Self {
        let rule = Rule::ByPace(PaceRule::Window { spread: length });
        Measured {
            module,
            is_first,
            is_dynamic,
            queueing: Window::new(length, born),
            last_second: Window::new(INPUT_SPAN, born),
            offered: Window::new(length, born),
            demand: Window::new(DEMAND_SPAN, born),
            input: Window::new(INPUT_SPAN, born),
            batches: Window::new(length, born),
            latency: Window::new(length, born),
            batch_waits: Reservoir::new(length),
            executions: Reservoir::new(length),
            predictor: Predictor::new(rule),
            variants: (0..n_variants).map(|_| Window::new(length, born)).collect(),
            asked: Asked::new(length, born),
            ran: Window::new(length, born),
            last: None,
        }
    }

    /// Adds the demand since the last report.
    pub(super) fn demanded(&mut self, now: Timestamp, more: &Demand) {
        self.demand.add(now, 0.0, more.offered, 0.0);
        self.demand.take_back(more.returned);
        let (ran, skipped) = (more.reached, more.skipped);
        self.ran.add(now, ran as f64, ran + skipped, 1.0);
        for window in [&mut self.offered, &mut self.input] {
            window.add(now, 0.0, ran, 0.0);
            window.take_back(more.unasked);
        }
        if self.is_first {
            self.asked.add(now, &more.asked);
        }
    }

    /// Adds a batch that ended, with the planned time of its variant.
    pub(super) fn batch(
        &mut self,
        now: Timestamp,
        report: &BatchReport,
        planned: Option<Duration>,
    ) {
        let n = report.members.len();
        self.batches.add(now, n as f64, 1, n as f64);
        self.last = Some((report.ended_at, report.ended_at.since(report.started_at)));
        let (mut queueing, mut worst) = (0.0, 0.0f64);
        let took = report.ended_at.since(report.started_at);
        for (arrived_at, batched_at) in &report.members {
            queueing += batched_at.since(*arrived_at).as_secs_f64();
            worst = worst.max(report.ended_at.since(*arrived_at).as_secs_f64());
            let wait = report.started_at.since(*batched_at).as_secs_f64();
            self.batch_waits.add(now, wait as f32);
            if self.is_dynamic {
                self.executions.add(now, took.as_secs_f32());
            }
        }
        if let Some(planned) = planned {
            let action = Action::execute(self.module, report.size as usize);
            self.predictor.observe(now, action, planned, took);
        }
        if let Some(variant) = self.variants.get_mut(report.variant.idx()) {
            variant.add(now, 0.0, n as u64, 0.0);
        }
        self.queueing.add(now, queueing, n as u64, queueing);
        self.last_second.add(now, queueing, n as u64, queueing);
        self.latency.add(now, worst, 1, worst);
    }

    /// Forgets how long requests waited once nothing waits any more: no batch ended for longer than one takes. Else modules before this one
    /// would drop all requests for the waits of a few long past, and no new one would show that they are over.
    pub(super) fn forget_waits_at_rest(&mut self, now: Timestamp) {
        let rests =
            |(ended_at, took): (Timestamp, Duration)| now.since(ended_at) > REST.max(took * 2);
        if self.last.is_some_and(rests) {
            self.queueing.clear();
            self.batch_waits.clear();
        }
    }

    /// Part of the requests by the variant that ran; empty where the module has no others, and while none ran.
    pub(super) fn variants(&mut self, now: Timestamp) -> Vec<f32> {
        let counts: Vec<u64> = self.variants.iter_mut().map(|w| w.count(now)).collect();
        let all: u64 = counts.iter().sum();
        match all {
            0 => Vec::new(),
            all => counts.iter().map(|n| *n as f32 / all as f32).collect(),
        }
    }

    /// Measured over planned time of a batch of any size, 1 before any ended.
    pub(super) fn pace(&mut self, now: Timestamp) -> f64 {
        self.predictor.age(now);
        let pace = self.predictor.pace(Action::execute(self.module, 1));
        pace.map_or(1.0, Pace::factor)
    }

    /// Part of the requests of the pipeline that run the module, 1 before any came.
    pub(super) fn probability(&mut self, now: Timestamp) -> f64 {
        self.ran.weighted_mean(now).unwrap_or(1.0)
    }
}
