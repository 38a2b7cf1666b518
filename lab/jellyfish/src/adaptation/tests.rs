//! Solvers on drawn questions, against slow and obvious ones.

mod draw;
mod exact;
mod live;

use std::time::Duration;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::adaptation::{Assignment, ClientDemand, Instance, Variant};

use super::anneal::Annealing;
use super::pair::{Pair, Question};
use super::partition::Partition;
use super::small;
use super::stretch::{self, Cutter};
use super::table::SplitTable;
use super::{Method, Search};

fn solved(method: Method, instance: &Instance, steps: u32, seed: u64) -> Assignment {
    let mut search = Search::new(method, instance.clone(), None, seed);
    for step in 0..steps {
        search.advance(1, f64::from(step) / f64::from(steps));
    }
    search.best()
}

fn relaxed(partition: &Partition) -> i64 {
    partition.bins.iter().map(|bin| bin.value.relaxed).sum()
}

proptest! {
    #[test]
    fn a_split_of_two_workers_is_the_best_one(seed in any::<u64>(), n_clients in 1usize..9) {
        let instance = draw::instance(seed, 2, n_clients, draw::Kind::Usual);
        let table = SplitTable::new(&instance);
        let all: Vec<u16> = (0..n_clients as u16).collect();
        let mut pair = Pair::new();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let question = Question { workers: [0, 1], comes: &all, leaves: None, floor: i64::MIN, heat: 0.0 };
        let mut partition = Partition::empty(&table);
        let is_found = pair.solve(&table, &partition, question, &mut rng);
        let (served, value) = exact::best(&instance);
        prop_assert_eq!(is_found, served == n_clients);
        if is_found {
            partition.replace(&table, [0, 1], [&pair.first, &pair.second]);
            let found = partition.assignment(&table, &instance);
            prop_assert_eq!(found.check(&instance), Ok(()));
            prop_assert!((found.worth(&instance).value - value).abs() < 1e-9);
        }
    }

    #[test]
    fn a_row_is_cut_as_well_as_can_be(
        seed in any::<u64>(),
        n_workers in 1usize..4,
        n_clients in 0usize..9,
        kind in draw::kinds(),
    ) {
        let instance = draw::instance(seed, n_workers, n_clients, kind);
        let table = SplitTable::new(&instance);
        let row: Vec<u16> = (0..n_clients as u16).collect();
        // All cuts: ends of the workers' stretches, none before the one of the worker before.
        let mut best: Option<i64> = None;
        for code in 0..(n_clients + 1).pow(n_workers as u32 - 1) {
            let end = |worker| code / (n_clients + 1).pow(worker) % (n_clients + 1);
            let mut ends: Vec<usize> = (0..n_workers as u32 - 1).map(end).collect();
            if !ends.is_sorted() {
                continue;
            }
            ends.push(n_clients);
            let of_client = |client| ends.iter().position(|end| client < *end);
            let workers: Vec<Option<usize>> = (0..n_clients).map(of_client).collect();
            let split = Partition::of(&table, &workers);
            if split.score.served == n_clients as i64 {
                best = best.max(Some(relaxed(&split)));
            }
        }
        let mut cutter = Cutter::default();
        let found = cutter.cut(&table, &row, n_workers);
        prop_assert_eq!(found, best);
        if let Some(value) = found {
            let mut partition = Partition::empty(&table);
            partition.score.served = n_clients as i64;
            partition.bins[n_workers].members.clear();
            let workers: Vec<usize> = (0..n_workers).collect();
            partition.deal(&table, &workers, &row, &cutter.parts);
            prop_assert_eq!(relaxed(&partition), value);
            let exact = partition.bins.iter().map(|bin| bin.value.exact);
            prop_assert_eq!(partition.score.value, exact.sum::<i64>());
            prop_assert!(partition.score.value <= value);
            prop_assert_eq!(partition.assignment(&table, &instance).check(&instance), Ok(()));
            // The order of the clients is one of many, and by caps another one.
            if let Some(by_caps) = stretch::by_caps(&table) {
                prop_assert_eq!(by_caps.score.served, n_clients as i64);
                prop_assert_eq!(by_caps.assignment(&table, &instance).check(&instance), Ok(()));
            }
        }
    }

    #[test]
    fn small_questions_are_answered_exactly(
        seed in any::<u64>(),
        n_workers in 1usize..4,
        n_clients in 0usize..6,
        kind in draw::kinds(),
    ) {
        let instance = draw::instance(seed, n_workers, n_clients, kind);
        let found = solved(Method::Spillgate, &instance, 600, seed);
        prop_assert_eq!(found.check(&instance), Ok(()));
        let (served, value) = exact::best(&instance);
        let worth = found.worth(&instance);
        prop_assert_eq!(worth.served, served);
        prop_assert!((worth.value - value).abs() < 1e-9, "{} instead of {value}", worth.value);
    }

    #[test]
    fn every_answer_keeps_its_promises(
        seed in any::<u64>(),
        n_workers in 1usize..7,
        n_clients in 0usize..60,
        kind in draw::kinds(),
    ) {
        let instance = draw::instance(seed, n_workers, n_clients, kind);
        for method in Method::ALL {
            let found = solved(method, &instance, 60, seed);
            prop_assert_eq!(found.check(&instance), Ok(()), "{}", method.name());
            prop_assert_eq!(&found, &solved(method, &instance, 60, seed), "{}", method.name());
            // A present answer, of whatever question, is no obstacle.
            let mut search = Search::new(method, instance.clone(), Some(&found), seed);
            search.advance(30, 0.5);
            prop_assert_eq!(search.best().check(&instance), Ok(()), "{}", method.name());
        }
    }
}

#[test]
fn annealing_finds_the_best_of_most_small_questions() {
    let mut n_exact = 0;
    let n_questions = 150;
    for seed in 0..n_questions {
        let kind = [draw::Kind::Usual, draw::Kind::Negative, draw::Kind::Odd][seed as usize % 3];
        let instance = draw::instance(seed, 2 + seed as usize % 3, 5, kind);
        let table = SplitTable::new(&instance);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut annealing = Annealing::new(&table, Partition::empty(&table));
        for step in 0..600 {
            annealing.step(&table, &mut rng, f64::from(step) / 600.0);
        }
        let found = annealing.best.score;
        let best = small::best(&table).score;
        assert_eq!(found.served, best.served, "seed {seed}");
        n_exact += u64::from(found.value == best.value);
        let lost = (best.value - found.value) as f64 / best.value.abs().max(1) as f64;
        assert!(lost < 0.05, "seed {seed}: {lost} is lost");
    }
    assert!(
        n_exact * 20 >= n_questions * 19,
        "{n_exact} of {n_questions}"
    );
}

#[test]
fn of_equal_splits_workers_have_time_left() {
    let variant = Variant {
        accuracy: 0.5,
        execution: vec![Duration::from_millis(10)],
    };
    let client = ClientDemand {
        rate: 20.0,
        budgets: vec![Duration::from_millis(100)],
    };
    let instance = Instance::new(vec![variant], vec![client; 4], 2, 5.0).unwrap();
    let found = solved(Method::Spillgate, &instance, 1, 1);
    let of_first = found.clients.iter().filter(|c| **c == Some(0)).count();
    assert_eq!(of_first, 2, "one worker could serve all four");
}

#[test]
fn of_equal_answers_to_a_small_question_the_present_one_stays() {
    let instance = draw::instance(5, 3, 6, draw::Kind::Usual);
    let found = solved(Method::Spillgate, &instance, 1, 1);
    // Workers are alike, so another order of them is worth as much.
    let mut present = found.clone();
    present.workers.rotate_left(1);
    let before = |worker: &mut usize| *worker = (*worker + 2) % 3;
    present.clients.iter_mut().flatten().for_each(before);
    assert_eq!(present.check(&instance), Ok(()));
    assert_ne!(present.clients, found.clients);
    let search = Search::new(Method::Spillgate, instance, Some(&present), 1);
    assert_eq!(search.best().clients, present.clients);
}

#[test]
fn a_variant_of_negative_accuracy_is_better_than_nobody() {
    let instance = draw::instance(3, 1, 1, draw::Kind::Negative);
    let lowest = solved(Method::Lowest, &instance, 1, 1).worth(&instance);
    assert_eq!(lowest.served, 1);
    assert!(lowest.value < 0.0);
    // The best variant of all is the one that greedy takes where nobody competes.
    let ours = solved(Method::Spillgate, &instance, 50, 1);
    assert_eq!(ours, solved(Method::Greedy, &instance, 1, 1));
}
