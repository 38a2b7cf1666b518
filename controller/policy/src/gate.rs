//! The gate at the entry: a token bucket at what the bottleneck can serve, so that what cannot be served is refused
//! before it costs anything.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::time::Timestamp;

use crate::plan;
use crate::planner::ModuleState;

/// The gate of one pipeline.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Requests a second that pass.
    rate: f64,
    /// Span whose requests may pass at once.
    depth: Duration,
    tokens: f64,
    updated_at: Timestamp,
}

impl Gate {
    /// A gate that lets `rate` requests a second pass, and at once as many as come in `depth`. Full at first.
    pub fn new(rate: f64, depth: Duration) -> Self {
        Gate {
            rate,
            depth,
            tokens: f64::INFINITY,
            updated_at: Timestamp::ZERO,
        }
    }

    /// The rate or the depth changed.
    pub fn set(&mut self, now: Timestamp, rate: f64, depth: Duration) {
        self.refill(now);
        self.rate = rate;
        self.depth = depth;
    }

    /// Requests a second that pass.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether one more request passes now.
    pub fn pass(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    fn refill(&mut self, now: Timestamp) {
        let passed = now.since(self.updated_at).as_secs_f64();
        self.updated_at = self.updated_at.max(now);
        let most = (self.rate * self.depth.as_secs_f64()).max(1.0);
        self.tokens = (self.tokens + passed * self.rate).min(most);
    }
}

/// The gate at the entry of a pipeline, set to the bottleneck that its modules report.
pub(crate) struct EntryGate {
    factor: f64,
    pipeline: Pipeline,
    /// Execution times that the modules report.
    execution: Vec<Duration>,
    /// Open until every module has reported once.
    gate: Option<Gate>,
    /// Requests a second that each module can bear; the source bears all.
    bears: Vec<Option<f64>>,
}

impl EntryGate {
    /// The gate that the pipeline's policy asks for, if any.
    pub(crate) fn new(pipeline: &Pipeline) -> Option<Self> {
        let factor = pipeline.policy.gate()?;
        let mut bears = vec![None; pipeline.modules.len()];
        bears[ModuleId::SOURCE.idx()] = Some(f64::INFINITY);
        Some(EntryGate {
            factor,
            execution: vec![Duration::ZERO; pipeline.modules.len()],
            pipeline: pipeline.clone(),
            gate: None,
            bears,
        })
    }

    pub(crate) fn learn(&mut self, now: Timestamp, state: &ModuleState) {
        self.execution[state.module.idx()] = state.execution;
        // A module that only some requests run bounds nothing here: those that skip it need not wait for it, and who
        // runs it is known only when its turn comes. Its own brokers drop.
        let is_for_all = state.probability >= 1.0;
        self.bears[state.module.idx()] = Some(if is_for_all {
            state.capacity
        } else {
            f64::INFINITY
        });
        let known: Option<Vec<f64>> = self.bears.iter().copied().collect();
        let Some(known) = known else { return };
        let rate = self.factor * known.into_iter().fold(f64::INFINITY, f64::min);
        let depth = self.depth();
        match &mut self.gate {
            _ if rate.is_infinite() => self.gate = None,
            Some(gate) => gate.set(now, rate, depth),
            None => self.gate = Some(Gate::new(rate, depth)),
        }
    }

    /// Span of requests that may pass at once: what the SLO leaves for waiting beside the executions.
    fn depth(&self) -> Duration {
        let path = plan::longest_path(&self.pipeline, |m| self.execution[m]);
        self.pipeline.slo.saturating_sub(path)
    }

    /// Requests a second that pass; `None` while it is open.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.gate.as_ref().map(Gate::rate)
    }

    pub(crate) fn pass(&mut self, now: Timestamp) -> bool {
        self.gate.as_mut().is_none_or(|gate| gate.pass(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_its_rate_and_its_depth() {
        let mut gate = Gate::new(100.0, Duration::from_millis(50));
        let mut passed = 0;
        for i in 0..10_000u64 {
            passed += u32::from(gate.pass(Timestamp::from_ns(i * 1_000_000)));
        }
        assert!((1000..=1006).contains(&passed), "{passed}");
        gate.set(
            Timestamp::from_ns(10_000_000_000),
            0.0,
            Duration::from_millis(50),
        );
        for i in 10_000..20_000u64 {
            passed -= u32::from(gate.pass(Timestamp::from_ns(i * 1_000_000)));
        }
        assert!(passed >= 999, "a closed gate passes what was left at most");
    }
}
