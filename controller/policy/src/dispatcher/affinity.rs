//! Sends the requests for a model to the workers that have it in memory (dispatch `affinity`).
//!
//! A request goes to the worker with the fewest requests among those that hold its model. Where no worker holds it, it goes to the
//! worker that scores highest for the model (rendezvous hashing: Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit
//! Rates", 1998): all gateways choose alike, and a worker that goes moves no models but its own. Where the request would wait too long
//! there, it goes to the worker with the fewest requests, if that has far fewer, and the model is loaded there.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{MemberId, WorkerId};
use spillgate_pipeline::policy::DispatchPolicyName;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

use super::Dispatcher;

/// Part of the time that a request has for which it may wait at a worker that has its model, rather than for a load elsewhere.
const PATIENCE: f64 = 0.5;
/// A model is loaded elsewhere where a worker has less than one in so many of the requests.
const FEWER: usize = 4;

/// The workers that have each model in memory, as they say.
pub(super) type Holders = IndexMap<MemberId, Vec<WorkerId>, FxBuildHasher>;

/// How high a worker scores for a model.
fn score(member: MemberId, worker: WorkerId) -> u64 {
    // The mixing function of SplitMix64.
    let mut mixed = (u64::from(member.0) << 32 | u64::from(worker.0)) ^ 0x9e37_79b9_7f4a_7c15;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Dispatcher {
    /// A worker has these models in memory, or no longer. Other dispatch policies do not ask.
    pub fn holds(&mut self, worker: WorkerId, models: &[(MemberId, bool)]) {
        if self.policy != DispatchPolicyName::Affinity {
            return;
        }
        for &(member, is_there) in models {
            let holders = self.holders.entry(member).or_default();
            holders.retain(|w| *w != worker);
            if is_there {
                holders.push(worker);
            }
        }
    }

    /// Nothing is known of what a worker has in memory.
    pub(super) fn forget_models(&mut self, worker: WorkerId) {
        for holders in self.holders.values_mut() {
            holders.retain(|w| *w != worker);
        }
    }

    /// The worker for a request, by its model. `None` when no worker is up.
    pub(super) fn worker_of(&self, now: Timestamp, request: &Request) -> Option<usize> {
        let open = |i: &usize| self.room_of(&self.workers[*i]) > 0;
        let open = (0..self.workers.len()).filter(open);
        let has = |i: usize| self.workers[i].outstanding + self.workers[i].background;
        // Of workers with equally few requests the one that scores highest.
        let rank = |i: usize| {
            let score = score(request.member, self.workers[i].worker);
            (has(i), u64::MAX - score)
        };
        let patience = request.deadline.since(now).mul_f64(PATIENCE);
        let is_late = |i: usize| {
            // As many as this gateway sent, for its part, the others sent for theirs.
            let before = has(i) as f64 / self.part / f64::from(self.shape.size.max(1));
            self.shape.execution.mul_f64(before.floor() + 1.0) > patience
        };
        let holders = self.holders.get(&request.member);
        let holders = holders.map_or(&[][..], Vec::as_slice);
        let held = open.clone();
        let held = held.filter(|&i| holders.contains(&self.workers[i].worker));
        let held = held.min_by_key(|&i| rank(i));
        let own = held.or_else(|| open.clone().min_by_key(|&i| rank(i).1))?;
        let least = open.min_by_key(|&i| rank(i))?;
        let is_better = |i: usize| !is_late(i) && (held.is_none() || has(i) * FEWER < has(own));
        match is_late(own) && is_better(least) {
            true => Some(least),
            false => Some(own),
        }
    }
}

#[cfg(test)]
mod tests;
