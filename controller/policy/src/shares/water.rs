//! Max-min fair shares of known demands by progressive filling: all levels rise together, in proportion to the weights,
//! and a party whose demand is met stops.

use spillgate_pipeline::clients::Claim;

/// Divides `capacity` in requests a second. Returns what each party gets, in their order.
pub fn fill(capacity: f64, demands: &[Claim]) -> Vec<f64> {
    let mut by_level: Vec<usize> = (0..demands.len()).collect();
    let level = |i: &usize| demands[*i].rate / demands[*i].weight;
    by_level.sort_by(|a, b| level(a).total_cmp(&level(b)));
    let mut weight: f64 = demands.iter().map(|d| d.weight).sum();
    let mut left = capacity.max(0.0);
    let mut filled = vec![0.0; demands.len()];
    for i in by_level {
        let demand = demands[i];
        filled[i] = demand.rate.min(left * demand.weight / weight);
        left -= filled[i];
        weight -= demand.weight;
    }
    filled
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The water rises in small steps.
    fn slowly(capacity: f64, demands: &[Claim]) -> Vec<f64> {
        let mut filled = vec![0.0; demands.len()];
        let mut left = capacity;
        while left > 1e-3 {
            let open = |i: &usize| filled[*i] < demands[*i].rate;
            let open: Vec<usize> = (0..demands.len()).filter(open).collect();
            if open.is_empty() {
                break;
            }
            let weight: f64 = open.iter().map(|i| demands[*i].weight).sum();
            let step = (left / 2.0).max(1e-3) / weight;
            for i in open {
                let more = (step * demands[i].weight).min(demands[i].rate - filled[i]);
                let more = more.min(left);
                filled[i] += more;
                left -= more;
            }
        }
        filled
    }

    #[test]
    fn what_one_leaves_is_shared_by_the_others() {
        let of = |rate| Claim { weight: 1.0, rate };
        assert_eq!(fill(50.0, &[]), [0.0; 0]);
        assert_eq!(fill(50.0, &[of(10.0), of(100.0)]), [10.0, 40.0]);
        assert_eq!(fill(50.0, &[of(30.0), of(10.0)]), [30.0, 10.0]);
        let double = Claim {
            weight: 2.0,
            rate: 100.0,
        };
        assert_eq!(fill(60.0, &[of(100.0), double]), [20.0, 40.0]);
    }

    proptest! {
        #[test]
        fn equals_water_that_rises_in_small_steps(
            capacity in 1.0..100.0,
            demands in prop::collection::vec((0.5..4.0, 0.0..50.0), 1..12),
        ) {
            let of = |&(weight, rate): &(f64, f64)| Claim { weight, rate };
            let demands: Vec<Claim> = demands.iter().map(of).collect();
            let (quick, slow) = (fill(capacity, &demands), slowly(capacity, &demands));
            for i in 0..demands.len() {
                // A party's level is never lower than that of one that got more than it and wanted more.
                for j in 0..demands.len() {
                    let level = |k: usize| quick[k] / demands[k].weight;
                    let is_met = quick[i] >= demands[i].rate - 1e-9;
                    prop_assert!(is_met || level(i) >= level(j) - 1e-6);
                }
            }
            let sum = |of: &[f64]| of.iter().sum::<f64>();
            prop_assert!((sum(&quick) - sum(&slow)).abs() < 0.01, "{quick:?} {slow:?}");
        }
    }
}
