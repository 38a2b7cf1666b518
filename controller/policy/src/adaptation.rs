//! Jellyfish's mapping: which variant of a model each client uses, and which worker serves it.
//!
//! The question ([`Instance`], §4.1): a worker runs one variant in batches of up to one size. A client is mapped to one worker or to none.
//! Twice the execution time of the worker's batch is at most each of its clients' budget for that variant, and its clients' rates
//! together are at most its throughput. As many clients as possible are served; of those answers the most accurate one counts,
//! weighted by rate. A client that is not served counts 0, even where accuracies are negative: so accuracy alone would rather
//! drop clients, and the count comes first.
//!
//! [`Jellyfish`] answers it as the authors do. It reads no clock and takes as many steps as it is told.
//!
//! Invariants: every answer passes [`Assignment::check`]; equal questions, seeds and steps give equal answers.

mod align;
mod assignment;
pub(crate) mod instance;
mod jellyfish;
mod mapping;
mod reach;
mod table;
#[cfg(test)]
mod tests;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub use align::aligned;
pub use assignment::{Assignment, Broken, Setting, Worth};
pub use instance::{
    BATCH_MAX, BadInstance, CLIENTS_MAX, ClientDemand, Instance, Positive, VARIANTS_MAX, Variant,
    WORKERS_MAX, rate_unit,
};
pub use jellyfish::Jellyfish;
pub use mapping::{Mapped, Mapping, Ties};
pub use reach::Reach;
pub use table::{ACCURACY_SCALE, Table};

/// Steps of a decision: 6 to 15 ms with 160 clients on 16 workers.
pub const STEPS_DEFAULT: u32 = 600;

/// The best assignment after that many steps, with parts given to workers so that few switch. `present` is what is served now: it may be
/// of other budgets and rates.
pub(crate) fn assign(
    instance: &Instance,
    present: &Assignment,
    seed: u64,
    steps: u32,
) -> Assignment {
    let table = Table::new(instance);
    let mut jellyfish = Jellyfish::new(&table, instance, &table.ranks_of(present));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..steps {
        if jellyfish.is_done() {
            break;
        }
        jellyfish.step(&table, &mut rng);
    }
    let assignment = jellyfish.assignment(&table, instance);
    aligned(&assignment, present, &present.workers)
}
