//! By how much batches end later than was expected when they were sent. A placement that is short of devices lets requests wait as long as
//! they can. Where execution times vary, half of them would then be late. So as much time is kept free as most batches need.

use std::time::Duration;

use spillgate_pipeline::predict::Last;

/// Batches that are remembered.
const WINDOW: usize = 100;
/// Of a hundred batches so many end within the time that is kept free.
const MOST: usize = 95;
/// The largest part of a request's time that is kept free.
const PART_MAX: u32 = 4;

/// The lateness of the last batches.
#[derive(Debug)]
pub(super) struct Lateness(Last);

impl Lateness {
    pub(super) fn new() -> Self {
        Lateness(Last::new(WINDOW))
    }

    /// A batch ended so much later than expected, or not later.
    pub(super) fn note(&mut self, late: Duration) {
        self.0.push(late);
    }

    /// What is kept free of a request that has `slo`, beside what is kept free of all: nothing before the first batch.
    pub(super) fn kept_free(&self, slo: Duration, of_all: Duration) -> Duration {
        let late = self.0.percentile(MOST).unwrap_or_default();
        late.saturating_sub(of_all).min(slo / PART_MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    proptest! {
        #[test]
        fn the_slack_is_a_quantile_of_the_last_batches(late in prop::collection::vec(0u64..5_000, 0..300), slo in 0u64..50_000) {
            let mut lateness = Lateness::new();
            late.iter().for_each(|l| lateness.note(us(*l)));
            let mut last = late[late.len().saturating_sub(WINDOW)..].to_vec();
            last.sort_unstable();
            // Nineteen of twenty are no later.
            let quantile = last.iter().find(|l| {
                let within = last.iter().filter(|other| other <= l).count();
                within * 20 >= last.len() * 19
            });
            let expected = quantile.map_or(0, |l| l.saturating_sub(200)).min(slo * 1_000 / 4 / 1_000);
            let kept_free = lateness.kept_free(us(slo), us(200));
            prop_assert_eq!(kept_free.as_micros() as u64, expected);
        }
    }

    #[test]
    fn few_batches_that_hang_keep_no_time_from_others() {
        let mut lateness = Lateness::new();
        for n in 0..100 {
            lateness.note(if n % 25 == 0 { us(10_000_000) } else { us(0) });
        }
        assert_eq!(lateness.kept_free(us(100_000), us(200)), us(0));
        // A device that hangs always keeps no more than a quarter.
        (0..100).for_each(|_| lateness.note(us(10_000_000)));
        assert_eq!(lateness.kept_free(us(100_000), us(200)), us(25_000));
    }
}
