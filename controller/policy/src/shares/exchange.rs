//! Shares over several gateways. Each second every gateway tells the others what its clients asked for. Each then computes
//! the same water level on the sums, and from it its own part of the capacity and of each client's share.
//!
//! A gateway that says nothing for a while is left out by its receivers: its part goes to the others.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::clients::{CLASSES, Claim, ClientKey};
use spillgate_protocol::message::{ClientReport, Portion};

use super::water;

/// Least part of a client's share at a gateway to which it has not sent much yet.
const PART_MIN: f64 = 0.02;

/// Divides the pipeline's capacity (requests a second) among gateways by their reports. Returns the portion of each; they
/// sum up to the capacity. Equal reports in the same order give equal portions everywhere.
pub fn merge(capacity: f64, reports: &[ClientReport]) -> Vec<Portion> {
    let mut sums = Sums::default();
    for named in reports.iter().flat_map(|r| &r.named) {
        let none = Sum {
            claim: Claim {
                weight: named.weight,
                rate: 0.0,
            },
            asked: 0.0,
        };
        let sum = sums.entry((named.class, named.client)).or_insert(none);
        sum.claim.rate += named.rate;
        sum.asked += named.asked;
    }
    let shares = shares(capacity, &sums, reports);
    let spare =
        capacity - shares.named.iter().sum::<f64>() - shares.rest.iter().flatten().sum::<f64>();
    let portion = |(idx, report): (usize, &ClientReport)| {
        let mut portion = Portion {
            rate: spare.max(0.0) / reports.len() as f64 + shares.rest[idx].iter().sum::<f64>(),
            parts: IndexMap::default(),
        };
        for named in &report.named {
            let Some((at, _, sum)) = sums.get_full(&(named.class, named.client)) else {
                continue;
            };
            let part = named.asked / sum.asked;
            portion.rate += part * shares.named[at];
            portion.parts.insert(named.client, part.max(PART_MIN));
        }
        portion
    };
    reports.iter().enumerate().map(portion).collect()
}

/// A client over all gateways.
struct Sum {
    claim: Claim,
    asked: f64,
}

/// By class and client.
type Sums = IndexMap<(u8, ClientKey), Sum, FxBuildHasher>;

/// The fair shares of the named clients, in their order, and of the others, by gateway and class.
struct Fair {
    named: Vec<f64>,
    rest: Vec<[f64; CLASSES]>,
}

/// Class by class from the highest: each gets what the higher ones leave.
fn shares(capacity: f64, sums: &Sums, reports: &[ClientReport]) -> Fair {
    let mut fair = Fair {
        named: vec![0.0; sums.len()],
        rest: vec![[0.0; CLASSES]; reports.len()],
    };
    let mut left = capacity;
    for class in (0..CLASSES).rev() {
        let is_of_class = |at: &usize| {
            sums.get_index(*at)
                .is_some_and(|(key, _)| usize::from(key.0) == class)
        };
        let named: Vec<usize> = (0..sums.len()).filter(is_of_class).collect();
        let others: Vec<usize> = (0..reports.len())
            .filter(|at| reports[*at].rest[class].is_some())
            .collect();
        let of_rest = others.iter().filter_map(|at| reports[*at].rest[class]);
        let demands: Vec<Claim> = named
            .iter()
            .map(|at| sums[*at].claim)
            .chain(of_rest)
            .collect();
        let filled = water::fill(left, &demands);
        left -= filled.iter().sum::<f64>();
        let (of_named, of_others) = filled.split_at(named.len());
        for (at, share) in named.iter().zip(of_named) {
            fair.named[*at] = *share;
        }
        for (at, share) in others.iter().zip(of_others) {
            fair.rest[*at][class] = *share;
        }
    }
    fair
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use spillgate_protocol::message::{NAMED_MAX, Offered};

    use super::*;

    fn offered(client: u64, rate: f64) -> Offered {
        Offered {
            client: ClientKey(client),
            class: 0,
            weight: 1.0,
            rate,
            asked: rate,
        }
    }

    #[test]
    fn a_client_at_two_gateways_gets_one_share() {
        let a = ClientReport::new(50.0, vec![offered(1, 20.0), offered(2, 200.0)]);
        let b = ClientReport::new(50.0, vec![offered(1, 20.0)]);
        let portions = merge(50.0, &[a, b]);
        assert_eq!([portions[0].rate, portions[1].rate], [37.5, 12.5]);
        let part = |at: usize, client| portions[at].parts[&ClientKey(client)];
        assert_eq!([part(0, 1), part(0, 2), part(1, 1)], [0.5, 1.0, 0.5]);
    }

    #[test]
    fn a_higher_class_comes_first_and_many_small_clients_are_summed() {
        let many = (0..1000).map(|i| offered(i, 0.05));
        let high = Offered {
            class: 1,
            ..offered(5000, 30.0)
        };
        let report = ClientReport::new(50.0, many.chain([high]).collect());
        assert_eq!(report.named.len(), NAMED_MAX);
        assert_eq!(report.named[0].client, ClientKey(5000));
        let rest = report.rest[0].unwrap();
        assert!((rest.rate - 745.0 * 0.05).abs() < 1e-9 && rest.weight == 745.0);
        let portions = merge(50.0, &[report, ClientReport::default()]);
        assert!(
            (portions[0].rate - 50.0).abs() < 1e-6,
            "{}",
            portions[0].rate
        );
    }

    proptest! {
        #[test]
        fn portions_sum_up_to_the_capacity(
            reports in prop::collection::vec(prop::collection::vec((0u64..6, 0u8..3, 0.1..50.0), 0..6), 1..5),
        ) {
            let of = |&(client, class, rate): &(u64, u8, f64)| Offered { class, ..offered(client, rate) };
            let reports: Vec<ClientReport> = reports.iter().map(|r| ClientReport::new(50.0, r.iter().map(of).collect())).collect();
            let sum: f64 = merge(50.0, &reports).iter().map(|p| p.rate).sum();
            prop_assert!((sum - 50.0).abs() < 1e-6, "{sum}");
        }
    }
}
