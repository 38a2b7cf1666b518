//! What happens when, drawn from a seed.

use std::time::Duration;

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Time between two faults.
const EVERY: Duration = Duration::from_secs(20);

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// SIGKILL to a process.
    Dies,
    /// SIGTERM to a process.
    Ends,
    /// SIGSTOP to a process, and SIGCONT later.
    Stops,
    /// SIGHUP to `up`: all processes are restarted one after the other.
    Rolls,
}

impl What {
    pub(super) fn text(self) -> &'static str {
        match self {
            What::Dies => "SIGKILL",
            What::Ends => "SIGTERM",
            What::Stops => "SIGSTOP",
            What::Rolls => "rolling restart",
        }
    }
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: Duration,
    pub(super) what: What,
    /// The process; that of a rolling restart does not count.
    pub(super) name: String,
}

impl Fault {
    pub(super) fn text(&self) -> String {
        match self.what {
            What::Rolls => self.what.text().to_owned(),
            what => format!("{} {}", what.text(), self.name),
        }
    }
}

/// All that happens.
pub(super) struct Plan {
    pub(super) faults: Vec<Fault>,
}

impl Plan {
    /// In the first half anything may happen to each process. In the second half the first process of each name is
    /// stopped at most, so that some grow old.
    pub(super) fn draw(seed: u64, duration: Duration, names: &[String]) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut faults = Vec::new();
        let mut at = EVERY;
        // The last one has time to be over.
        while at + EVERY <= duration {
            let name = names.choose(&mut dice).expect("there are processes");
            let any = match dice.random_range(0..10) {
                0..=2 => What::Dies,
                3..=5 => What::Ends,
                6..=8 => What::Stops,
                _ => What::Rolls,
            };
            let is_late = at > duration / 2;
            let is_spared = is_late && (name == "controller" || name.ends_with("-0"));
            let what = match any {
                What::Rolls if is_late => What::Stops,
                What::Dies | What::Ends if is_spared => What::Stops,
                any => any,
            };
            faults.push(Fault {
                at,
                what,
                name: name.clone(),
            });
            at += EVERY;
        }
        Plan { faults }
    }
}
