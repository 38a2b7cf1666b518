//! Questions by the rule of the paper's experiments (§7): cameras of 10 to 25 frames a second, SLOs of 75 to 150 ms, links of 8 to 50
//! Mbit/s, and 16 variants from 128 to 608 pixels.

use std::time::Duration;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::adaptation::{ClientDemand, Instance, Variant};

use crate::adaptation::{AdaptiveVariant, ClientReport};

/// What is special.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Usual,
    /// Accuracies from below 0.
    Negative,
    /// Rates that are no multiples of anything, and links from hopeless to fast.
    Odd,
}

pub(super) fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Usual), Just(Kind::Negative), Just(Kind::Odd)]
}

pub(super) fn variants(kind: Kind) -> Vec<AdaptiveVariant> {
    let variant = |i: u32| {
        let size = f64::from(128 + 32 * i);
        let each = 3.0 + 4.75e-5 * (size * size - 128.0 * 128.0);
        let time = |batch: u32| Duration::from_secs_f64((20.0 + f64::from(batch) * each) * 1e-3);
        let lower = if kind == Kind::Negative { 1.2 } else { 0.0 };
        AdaptiveVariant {
            variant: Variant {
                accuracy: 0.495 - lower / f64::from(i + 1) - 0.827 * (-size / 124.2).exp(),
                execution: (1..=8).map(time).collect(),
            },
            frame_bits: size * size * 3.0 * 8.0 / 4.78,
        }
    };
    (0..16).map(variant).collect()
}

pub(super) fn report(rng: &mut ChaCha8Rng, kind: Kind) -> ClientReport {
    let slo = [75, 100, 150][rng.random_range(0..3)];
    let (rate, bandwidth) = match kind {
        Kind::Odd => (
            f64::from(rng.random_range(30..7_000)) / 100.0,
            rng.random_range(1e5..50e6),
        ),
        _ => (
            [10.0, 15.0, 25.0][rng.random_range(0..3)],
            rng.random_range(8e6..50e6),
        ),
    };
    let round_trip = Duration::from_millis(rng.random_range(0..5));
    ClientReport {
        rate,
        slo: Duration::from_millis(slo),
        bandwidth,
        round_trip,
    }
}

pub(super) fn instance(seed: u64, n_workers: usize, n_clients: usize, kind: Kind) -> Instance {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let variants = variants(kind);
    let client = |_| {
        let report = report(&mut rng, kind);
        let budget = |v: &AdaptiveVariant| report.budget(v.frame_bits, Duration::ZERO);
        ClientDemand {
            rate: report.rate,
            budgets: variants.iter().map(budget).collect(),
        }
    };
    let clients = (0..n_clients).map(client).collect();
    let unit = if kind == Kind::Odd { 0.01 } else { 5.0 };
    let variants = variants.iter().map(|v| v.variant.clone()).collect();
    Instance::new(variants, clients, n_workers, unit).expect("drawn questions are good")
}
