//! What an answer must keep, on drawn questions; sums of rates against all subsets.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Variants of which each is more accurate than the one before, and slower.
fn variants(n: u16) -> Vec<Variant> {
    let variant = |i: u16| {
        let time = |batch: u32| {
            Duration::from_micros(20_000 + u64::from(batch) * (3 + u64::from(i)) * 1_000)
        };
        Variant {
            accuracy: 1.0 - 1.0 / f64::from(i + 2),
            execution: (1..=8).map(time).collect(),
        }
    };
    (0..n).map(variant).collect()
}

/// A client whose link leaves the less time the more accurate the variant is.
fn client(rate: f64, ms: u32, n: u32) -> ClientDemand {
    let budget = |i: u32| Duration::from_millis(u64::from(ms - ms * i / (2 * n)));
    ClientDemand {
        rate,
        budgets: (0..n).map(budget).collect(),
    }
}

proptest! {
    #[test]
    fn reached_sums_are_those_of_subsets(
        mut clients in proptest::collection::vec((1u32..90, 1u32..260), 0..9),
        least in 0u32..200,
        over in 0u32..200,
        coins in proptest::collection::vec(any::<bool>(), 1..9),
    ) {
        clients.sort_by_key(|c| std::cmp::Reverse(c.1));
        let most = least + over;
        let top = clients.first().map_or(most, |c| c.1).max(most);
        let mut reach = Reach::default();
        reach.begin(top, clients.len());
        clients.iter().for_each(|(weight, cap)| reach.add(*weight, *cap));
        // A set counts if each of its members bears its sum.
        let sums = (0..1u32 << clients.len()).filter_map(|set| {
            let members = clients.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
            let sum: u32 = members.clone().map(|(_, c)| c.0).sum();
            let cap = members.map(|(_, c)| c.1).min().unwrap_or(u32::MAX);
            (sum <= cap && (least..=most).contains(&sum)).then_some(sum)
        });
        let largest = reach.largest(least, most);
        prop_assert_eq!(largest, sums.max());
        if let Some(sum) = largest {
            let mut found = 0;
            reach.members(sum, |at| {
                found += clients[at].0;
                assert!(clients[at].1 >= sum);
            });
            prop_assert_eq!(found, sum);
            // A random set has the same sum, whatever the coin shows.
            let mut coins = coins.iter().cycle();
            let mut found = 0;
            let mut coin = || *coins.next().unwrap();
            reach.some_members(sum, |at| clients[at].1, &mut coin, |at| {
                found += clients[at].0;
                assert!(clients[at].1 >= sum);
            });
            prop_assert_eq!(found, sum);
        }
    }

    #[test]
    fn every_answer_keeps_its_promises(
        n_workers in 1usize..7,
        clients in proptest::collection::vec((0.3f64..70.0, 20u32..160), 0..60),
        seed in any::<u64>(),
    ) {
        let clients: Vec<ClientDemand> = clients.iter().map(|(rate, ms)| client(*rate, *ms, 5)).collect();
        let instance = Instance::new(variants(5), clients, n_workers, 1.0).unwrap();
        let found = assign(&instance, &Assignment::empty(&instance), seed, 60);
        prop_assert_eq!(found.check(&instance), Ok(()));
        prop_assert_eq!(&found, &assign(&instance, &Assignment::empty(&instance), seed, 60));
        // A present answer is no obstacle, of whatever question.
        let again = assign(&instance, &found, seed, 30);
        prop_assert_eq!(again.check(&instance), Ok(()));
        let served = |worth: Worth| worth.served;
        prop_assert!(served(again.worth(&instance)) > 0 || served(found.worth(&instance)) == 0);
    }
}

#[test]
fn bad_questions_are_refused_with_what_is_wrong() {
    let (variants, clients) = (variants(16), vec![client(10.0, 100, 16); 2]);
    let refused = |variants: &[Variant], clients: &[ClientDemand], n_workers, unit| {
        let bad = Instance::new(variants.to_vec(), clients.to_vec(), n_workers, unit);
        bad.expect_err("something is wrong").to_string()
    };
    assert_eq!(
        refused(&variants, &clients, 0, 1.0),
        "0 workers; there are 1 to 1024"
    );
    let rate = refused(&variants, &clients, 1, f64::NAN);
    assert_eq!(rate, "the rate unit is NaN; it is a finite number above 0");
    let mut bad = clients.clone();
    bad[1].rate = -5.0;
    let rate = refused(&variants, &bad, 1, 1.0);
    assert_eq!(
        rate,
        "rate of client 1 is -5; it is a finite number above 0"
    );
    bad[1] = ClientDemand {
        rate: 5.0,
        budgets: Vec::new(),
    };
    let budgets = refused(&variants, &bad, 1, 1.0);
    assert_eq!(
        budgets,
        "client 1 has 0 budgets; it has one for each of 16 variants"
    );
    let mut bad = variants.clone();
    bad[2].accuracy = f64::INFINITY;
    let accuracy = refused(&bad, &clients, 1, 1.0);
    assert_eq!(
        accuracy,
        "accuracy of variant 2 is inf; it is a finite number"
    );
    bad[2] = Variant {
        accuracy: 0.5,
        execution: vec![Duration::ZERO],
    };
    assert_eq!(
        refused(&bad, &clients, 1, 1.0),
        "a batch of variant 2 takes no time"
    );
}
