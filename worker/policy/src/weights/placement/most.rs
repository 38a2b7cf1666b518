//! The most jobs in time on one machine (Moore 1968, the algorithm by Moore and Hodgson), for batches on a device and for LOADs
//! on a link.

use std::collections::BinaryHeap;

/// A job. Times are in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// The latest moment at which it may start.
    pub(super) latest: f64,
    /// Time that it takes.
    pub(super) takes: f64,
    /// What it is worth, above 0.
    pub(super) gains: f64,
}

/// Of a list of jobs those that start in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InTime {
    /// The kept job that starts first.
    pub(super) first: Option<usize>,
    /// The largest gain for a ns among the jobs that went; 0 if none went.
    pub(super) price: f64,
}

/// Non-negative numbers in the order of their bits.
fn bits(value: f64) -> u64 {
    value.max(0.0).to_bits()
}

/// Keeps the jobs that all start in time one after another from `start` on. `jobs` are in order of their latest start. When one would
/// start too late, the kept one with the most time for its gain goes (ties: the later). `crowding` is what the jobs to come will take, as a
/// factor on the time of those that are known: later ones come while these wait.
pub(super) fn most_in_time(start: f64, jobs: &[Job], crowding: f64) -> InTime {
    let mut worst: BinaryHeap<(u64, usize)> = BinaryHeap::with_capacity(jobs.len());
    let mut gone = vec![false; jobs.len()];
    let mut price: f64 = 0.0;
    let mut starts = start;
    for (i, job) in jobs.iter().enumerate() {
        let is_late = starts > job.latest;
        worst.push((bits(job.takes / job.gains), i));
        starts += job.takes * crowding;
        if is_late && let Some((_, goes)) = worst.pop() {
            gone[goes] = true;
            let Job { takes, gains, .. } = jobs[goes];
            starts -= takes * crowding;
            price = price.max(gains / takes);
        }
    }
    InTime {
        first: gone.iter().position(|gone| !gone),
        price,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same in quadratic time: a list, and a search for the worst.
    fn slow(start: f64, jobs: &[Job]) -> Option<usize> {
        let mut kept: Vec<usize> = Vec::new();
        for (i, job) in jobs.iter().enumerate() {
            let starts = start + kept.iter().map(|k| jobs[*k].takes).sum::<f64>();
            kept.push(i);
            if starts > job.latest {
                let ratio = |k: &usize| jobs[*k].takes / jobs[*k].gains;
                let worst = kept
                    .iter()
                    .copied()
                    .reduce(|a, b| if ratio(&b) >= ratio(&a) { b } else { a });
                kept.retain(|k| Some(*k) != worst);
            }
        }
        kept.first().copied()
    }

    /// The size of the largest set of jobs that all start in time, by trying all sets.
    fn largest(start: f64, jobs: &[Job]) -> usize {
        let sets = 0..1u32 << jobs.len();
        let sizes = sets.filter_map(|set| {
            let mut starts = start;
            for (i, job) in jobs.iter().enumerate() {
                if set >> i & 1 == 1 {
                    if starts > job.latest {
                        return None;
                    }
                    starts += job.takes;
                }
            }
            Some(set.count_ones() as usize)
        });
        sizes.max().unwrap_or(0)
    }

    fn jobs(unit: bool) -> impl Strategy<Value = Vec<Job>> {
        let job = (0u32..60, 1u32..20, 1u32..9).prop_map(move |(latest, takes, gains)| Job {
            latest: f64::from(latest),
            takes: f64::from(takes),
            gains: if unit { 1.0 } else { f64::from(gains) },
        });
        prop::collection::vec(job, 0..9).prop_map(|mut jobs| {
            jobs.sort_by(|a, b| a.latest.total_cmp(&b.latest));
            jobs
        })
    }

    proptest! {
        #[test]
        fn the_heap_keeps_what_a_search_keeps(jobs in jobs(false), start in 0u32..9) {
            let start = f64::from(start);
            let in_time = most_in_time(start, &jobs, 1.0);
            prop_assert_eq!(in_time.first, slow(start, &jobs));
        }

        #[test]
        fn something_is_kept_if_and_only_if_something_can_start_in_time(jobs in jobs(true), start in 0u32..9) {
            let start = f64::from(start);
            let in_time = most_in_time(start, &jobs, 1.0);
            prop_assert_eq!(in_time.first.is_some(), largest(start, &jobs) > 0);
        }
    }

    #[test]
    fn the_job_with_the_most_time_for_its_gain_goes() {
        let job = |latest, takes, gains| Job {
            latest,
            takes,
            gains,
        };
        let jobs = [job(1.0, 10.0, 2.0), job(2.0, 6.0, 4.0), job(7.0, 5.0, 1.0)];
        let in_time = most_in_time(0.0, &jobs, 1.0);
        assert_eq!(in_time.first, Some(1));
        assert!((in_time.price - 0.2).abs() < 1e-12);
    }
}
