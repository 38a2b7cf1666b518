//! Families of models in a simulated pipeline: which model each request names, and how long reading one takes.

use std::sync::Arc;
use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::families::Members;
use spillgate_pipeline::id::{MemberId, ModuleId};

/// The families of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct SimFamilies {
    /// By module; empty where it has none: how long reading each member takes.
    pub loads: Vec<Vec<Duration>>,
    /// Which members requests name.
    pub named: Named,
}

/// Which members requests name.
#[derive(Clone, Debug, PartialEq)]
pub enum Named {
    /// By module; `None` where it has no family. Draws of different modules do not depend on each other.
    Drawn(Vec<Option<Zipf>>),
    /// By request, the same in each family. Requests beyond name the first.
    Listed(Arc<[MemberId]>),
}

impl SimFamilies {
    /// The members that the request of that ordinal names.
    pub(crate) fn members(&self, request: u64) -> Members {
        let mut members = vec![MemberId::default(); self.loads.len()];
        match &self.named {
            Named::Drawn(modules) => {
                for (member, zipf) in members.iter_mut().zip(modules) {
                    if let Some(zipf) = zipf {
                        *member = zipf.member(request);
                    }
                }
            }
            Named::Listed(listed) => {
                let named = listed.get(request as usize).copied();
                members.fill(named.unwrap_or_default());
            }
        }
        Some(members.into())
    }
}

/// Popularity of the members of a family: the one of rank k is named in proportion to `1 / k^skew`. Which member has which rank is
/// random.
#[derive(Clone, Debug, PartialEq)]
pub struct Zipf {
    /// Sums of the weights, by rank.
    sums: Vec<f64>,
    by_rank: Vec<MemberId>,
    rng: ChaCha8Rng,
}

impl Zipf {
    /// A family of that many members, at least one. Equal seeds and modules give equal draws.
    ///
    /// # Panics
    /// When there are no members.
    pub fn new(members: u16, skew: f64, seed: u64, module: ModuleId) -> Self {
        assert!(members > 0, "a family has members");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Streams of their own: what else a run draws is the same without families.
        rng.set_stream(1 + u64::from(module.0));
        let mut by_rank: Vec<MemberId> = (0..members).map(MemberId).collect();
        by_rank.shuffle(&mut rng);
        let weights = (1..=members).map(|rank| f64::from(rank).powf(-skew));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Zipf {
            sums: sums.collect(),
            by_rank,
            rng,
        }
    }

    /// The member that the request of that ordinal names, whatever other requests do.
    pub fn member(&self, request: u64) -> MemberId {
        let mut rng = self.rng.clone();
        // Two words a draw, behind those of the ranks.
        let behind = rng.get_word_pos();
        rng.set_word_pos(behind + 2 * u128::from(request));
        let all = self.sums.last().copied().unwrap_or_default();
        let drawn = rng.random::<f64>() * all;
        let rank = self.sums.partition_point(|sum| *sum <= drawn);
        self.by_rank[rank.min(self.by_rank.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each member is named, the most popular first.
    fn counts(zipf: &Zipf, members: usize, requests: u64) -> Vec<u64> {
        let mut counts = vec![0; members];
        for request in 0..requests {
            counts[zipf.member(request).idx()] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn members_are_named_in_proportion_to_a_power_of_their_rank() {
        const REQUESTS: u64 = 100_000;
        for skew in [0.0, 0.9, 1.5] {
            let zipf = Zipf::new(20, skew, 3, ModuleId(1));
            let counts = counts(&zipf, 20, REQUESTS);
            let all: f64 = (1..=20).map(|rank| f64::from(rank).powf(-skew)).sum();
            for (rank, count) in (1..=20).zip(counts) {
                let expected = REQUESTS as f64 * f64::from(rank).powf(-skew) / all;
                // Four standard deviations, and one more: equal weights are sorted by chance.
                let off = 5.0 * expected.sqrt();
                assert!(
                    (count as f64 - expected).abs() < off,
                    "{skew} {rank}: {count}, {expected}"
                );
            }
        }
    }

    #[test]
    fn draws_follow_seed_module_and_request_alone() {
        let zipf = |seed, module| Zipf::new(1000, 0.5, seed, ModuleId(module));
        let named = |zipf: Zipf| (0..100).map(move |i| zipf.member(i)).collect::<Vec<_>>();
        assert_eq!(named(zipf(1, 1)), named(zipf(1, 1)));
        assert_ne!(named(zipf(1, 1)), named(zipf(2, 1)));
        assert_ne!(named(zipf(1, 1)), named(zipf(1, 2)));
        let one = Zipf::new(1, 0.9, 1, ModuleId(1));
        assert_eq!(one.member(u64::MAX), MemberId(0));
    }

    #[test]
    fn listed_requests_name_what_the_list_says() {
        let families = SimFamilies {
            loads: vec![vec![], vec![], vec![Duration::from_millis(3); 4]],
            named: Named::Listed([MemberId(3), MemberId(1)].into()),
        };
        let named = |i| families.members(i).expect("there are families")[2];
        assert_eq!([named(0), named(1), named(2)], [3, 1, 0].map(MemberId));
    }
}
