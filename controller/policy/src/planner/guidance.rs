//! The guidance for the brokers of the module: which end of the queue is served first, and how much time is reserved
//! downstream.

use crate::estimate::{Stage, Waits};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::policy::recipe::{Order, Reserve};
use spillgate_pipeline::policy::{BudgetOrder, Guidance};
use spillgate_pipeline::time::Timestamp;

use super::order::next_order;
use super::{Computation, StatePlanner};

impl StatePlanner {
    /// Sets the guidance, or says which estimate is needed for it.
    pub(super) fn compute(&mut self, now: Timestamp) -> Option<Computation> {
        if self.recipe.adapts_batch {
            self.adapt_batch(now);
        }
        if self.recipe.overload.is_some() {
            self.admits = self.least_admitted();
        }
        let mine = self.state_of(self.module);
        let (capacity, smoothed) = mine.map_or((0.0, 0.0), |s| (s.capacity, s.offered));
        let input = self.measured.input.rate(now);
        let before = self.guidance.order;
        let order = match self.recipe.order {
            Order::Guided(transition) => next_order(transition, before, input, capacity, smoothed),
            _ => before,
        };
        self.guidance = match self.recipe.reserve {
            Reserve::Nothing => Guidance {
                order,
                ..Guidance::NONE
            },
            Reserve::Split => Guidance {
                share: self.cumulative_share(|p, m| p.planned.duration(m).as_secs_f64()),
                order,
                ..Guidance::NONE
            },
            Reserve::SplitByWorst => Guidance {
                share: self.cumulative_share(|p, m| {
                    let worst = p.state_of(m).map_or(0.0, |s| s.worst.as_secs_f64());
                    worst.max(p.planned.duration(m).as_secs_f64())
                }),
                order,
                ..Guidance::NONE
            },
            Reserve::Execution => return Some(self.estimated(Waits::Zero, false, order)),
            Reserve::Estimate => {
                let waits = Waits::Quantile(self.pipeline.policy.lambda());
                return Some(self.estimated(waits, true, order));
            }
            Reserve::LowerEstimate => return Some(self.estimated(Waits::Zero, true, order)),
            Reserve::UpperEstimate => return Some(self.estimated(Waits::Full, true, order)),
        };
        None
    }

    fn estimated(&mut self, waits: Waits, queueing: bool, order: BudgetOrder) -> Computation {
        let here = self.state_of(self.module).map_or(1.0, |s| s.probability);
        let stages: Vec<Stage> = (0..self.states.len())
            .map(|idx| {
                let id = ModuleId(idx as u16);
                let state = self.state_of(id);
                Stage {
                    queueing: match state {
                        Some(s) if queueing => s.queueing.as_secs_f64(),
                        _ => 0.0,
                    },
                    execution: state
                        .map_or(self.planned.duration(id), |s| s.execution)
                        .as_secs_f64(),
                    executions: state.map_or_else(|| [].into(), |s| s.executions.clone()),
                    waits: state.map_or_else(|| [].into(), |s| s.batch_waits.clone()),
                    // The probability of a module that needs this one counts under the condition that this one ran.
                    probability: state.map_or(1.0, |s| (s.probability / here.max(1e-9)).min(1.0)),
                }
            })
            .collect();
        Computation {
            pipeline: self.pipeline.clone(),
            successors: self.successors.clone(),
            module: self.module,
            stages,
            waits,
            order,
            batch: self.guided_batch(),
            rng: ChaCha8Rng::seed_from_u64(self.rng.next_u64()),
            scratch: std::mem::take(&mut self.scratch),
        }
    }

    /// The part of the SLO at which a request must have left this module, modules weighted by `weight`: the
    /// longest way up to and including this module over the longest way through it.
    fn cumulative_share(&self, weight: impl Fn(&Self, ModuleId) -> f64) -> f64 {
        let n = self.pipeline.modules.len();
        let weights: Vec<f64> = (0..n).map(|i| weight(self, ModuleId(i as u16))).collect();
        let (mut up, mut down) = (weights.clone(), weights.clone());
        for i in 0..n {
            for s in &self.successors[i] {
                up[s.idx()] = up[s.idx()].max(up[i] + weights[s.idx()]);
            }
        }
        for i in (0..n).rev() {
            let after = self.successors[i].iter().map(|s| down[s.idx()]);
            down[i] = weights[i] + after.fold(0.0, f64::max);
        }
        let k = self.module.idx();
        let through = up[k] + down[k] - weights[k];
        if through > 0.0 { up[k] / through } else { 1.0 }
    }

    /// The least share that this module or one after it asks for.
    fn least_admitted(&self) -> f64 {
        let states = self.states.iter().flatten().map(|(_, state)| state);
        states
            .filter(|s| self.reaches_from(self.module, s.module))
            .map(|s| s.admit)
            .fold(1.0, f64::min)
    }

    fn reaches_from(&self, from: ModuleId, other: ModuleId) -> bool {
        from == other
            || self.successors[from.idx()]
                .iter()
                .any(|s| *s <= other && self.reaches_from(*s, other))
    }
}
