//! Faults drawn from the seed.

use std::time::Duration;

use crate::cluster::{Cluster, Draws, Fault, Scripted};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Kinds of faults.
const KINDS: u32 = 8;

/// Faults that begin and end within the draws' span. They may overlap.
pub(super) fn faults(cluster: &Cluster, draws: Draws, rng: &mut ChaCha8Rng) -> Vec<Scripted> {
    let span = draws.until.saturating_sub(draws.from);
    let one = |_| {
        let begins = rng.random_range(0.0..0.9);
        let ends = rng.random_range(begins..1.0);
        Scripted {
            at: draws.from + span.mul_f64(begins),
            lasts: span.mul_f64(ends - begins),
            fault: fault(cluster, rng),
        }
    };
    (0..draws.n).map(one).collect()
}

fn fault(cluster: &Cluster, rng: &mut ChaCha8Rng) -> Fault {
    let n = cluster.nodes.len();
    let node = rng.random_range(0..n);
    let other = (node + rng.random_range(0..n.max(2) - 1) + 1) % n;
    match rng.random_range(0..KINDS) {
        0 => Fault::Break {
            between: [node, other],
            late: rng.random(),
            // Without a drawn number, so that seeds that broke before stay what they are.
            twice: node < other,
        },
        1 => Fault::Partition {
            from: node,
            to: other,
            both: rng.random(),
        },
        2 | 3 => Fault::Crash {
            node,
            silent: rng.random(),
        },
        4 => Fault::Slow {
            node,
            factor: rng.random_range(1.5..4.0),
        },
        5 => Fault::Stall {
            node,
            pause: Duration::from_millis(rng.random_range(20..400)),
            every: Duration::from_millis(rng.random_range(500..2000)),
        },
        6 => Fault::Loss {
            part: rng.random_range(0.0..0.5),
        },
        _ => Fault::Rogue {
            node,
            rate: rng.random_range(5.0..500.0),
        },
    }
}
