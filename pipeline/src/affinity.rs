//! Which workers serve which model of a family, where requests go by model (dispatch `affinity`): each model to one worker, or to as
//! few as can serve what is asked of it, so that few devices hold its weights.
//!
//! Without a word from the controller a model goes to the worker that scores highest for it (rendezvous hashing: Thaler and
//! Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998). All gateways and the controller score alike, and a worker
//! that goes moves its own models only. The controller sends those models elsewhere that this would put on workers with too much
//! to do ([`Assigned`]).

use std::sync::Arc;

use crate::id::{MemberId, WorkerId};

/// Most workers to which a controller sends the requests for one model.
pub const COPIES_MAX: usize = 64;

/// The models that do not go to the worker that scores highest, in order, and their workers.
pub type Assigned = Arc<[(MemberId, Vec<WorkerId>)]>;

/// Requests for models of a family since a gateway began. In a report: only of those that were asked for since the report before.
pub type Asked = Vec<(MemberId, u64)>;

/// How high a worker scores for a model.
pub fn score(member: MemberId, worker: WorkerId) -> u64 {
    // The mixing function of SplitMix64.
    let mut mixed = (u64::from(member.0) << 32 | u64::from(worker.0)) ^ 0x9e37_79b9_7f4a_7c15;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(member: u16, workers: impl Iterator<Item = u32>) -> u32 {
        let best = workers.max_by_key(|w| score(MemberId(member), WorkerId(*w)));
        best.expect("there are workers")
    }

    /// The closed form: each of n workers gets a binomial share of the models, mean N/n and variance N/n (1 - 1/n).
    #[test]
    fn models_spread_over_workers_and_move_only_with_their_worker() {
        const MODELS: u16 = 16_000;
        let mut counts = [0u32; 8];
        for member in 0..MODELS {
            let of_all = best(member, 0..8);
            counts[of_all as usize] += 1;
            let without = best(member, (0..8).filter(|w| *w != 3));
            assert!(of_all == 3 || without == of_all, "model {member} moved");
        }
        let mean = f64::from(MODELS) / 8.0;
        let deviation = (mean * (1.0 - 1.0 / 8.0)).sqrt();
        for count in counts {
            let off = (f64::from(count) - mean).abs();
            assert!(off < 4.0 * deviation, "{counts:?}");
        }
    }
}
