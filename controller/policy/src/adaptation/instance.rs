//! What an adaptation decides about: variants of a model, workers that are alike, and clients with their rates and budgets.
//!
//! Values are checked here, once, so that a solver needs no checks: accuracies are finite, every variant has a time for
//! batches of 1, every client a budget for each variant, and the sizes are bounded.

use std::fmt;
use std::time::Duration;

use spillgate_pipeline::id::VariantId;

/// Most variants of a model: the papers' have 16; a row of the solver's table holds this many.
pub const VARIANTS_MAX: usize = 64;
/// Most workers of one instance: solvers keep lists by worker, and a step is to stay short.
pub const WORKERS_MAX: usize = 1_024;
/// Most clients of one instance, for the same reason.
pub const CLIENTS_MAX: usize = 16_384;
/// Largest batch of a variant.
pub const BATCH_MAX: usize = 1_024;

/// Sets of bits over a worker's requests a second are no longer than this.
const UNITS_MAX: f64 = 2048.0;

/// The unit in which schedulers count rates: whole requests a second, or more coarsely where that would make sets of bits too long.
pub fn rate_unit(variants: &[Variant]) -> f64 {
    let throughput = |v: &Variant| {
        let by_batch = v.execution.iter().zip(1u32..);
        by_batch
            .map(|(time, batch)| f64::from(batch) / time.as_secs_f64())
            .fold(0.0, f64::max)
    };
    let highest = variants.iter().map(throughput).fold(0.0, f64::max);
    (highest / UNITS_MAX).max(1.0)
}

/// One variant of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Expected accuracy. Any finite number: what counts is the order and the differences.
    pub accuracy: f64,
    /// Profiled execution time of a batch of each size, from 1 on.
    pub execution: Vec<Duration>,
}

impl Variant {
    /// Execution time of a batch, if it was profiled.
    pub fn execution_of(&self, batch: u32) -> Option<Duration> {
        let idx = (batch as usize).checked_sub(1)?;
        self.execution.get(idx).copied()
    }
}

/// What an instance knows of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientDemand {
    /// Requests a second.
    pub rate: f64,
    /// Time that its requests may spend at this module, by variant. Zero: the client cannot use the variant.
    pub budgets: Vec<Duration>,
}

/// One question: which client is served by which worker, with which variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    variants: Vec<Variant>,
    clients: Vec<ClientDemand>,
    n_workers: usize,
    rate_unit: f64,
}

impl Instance {
    /// Checks and keeps the question. Solvers count rates in whole `rate_unit`s, in requests a second: rates are rounded up
    /// to it and throughputs down, so a plan never promises more than there is.
    pub fn new(
        variants: Vec<Variant>,
        clients: Vec<ClientDemand>,
        n_workers: usize,
        rate_unit: f64,
    ) -> Result<Self, BadInstance> {
        within("workers", n_workers, 1, WORKERS_MAX)?;
        within("variants", variants.len(), 1, VARIANTS_MAX)?;
        within("clients", clients.len(), 0, CLIENTS_MAX)?;
        Positive::RateUnit.check(rate_unit)?;
        for (idx, variant) in variants.iter().enumerate() {
            within(
                "batch sizes of a variant",
                variant.execution.len(),
                1,
                BATCH_MAX,
            )?;
            if !variant.accuracy.is_finite() {
                return Err(BadInstance::Accuracy {
                    variant: VariantId(idx as u16),
                    value: variant.accuracy,
                });
            }
            if variant.execution.iter().any(Duration::is_zero) {
                return Err(BadInstance::NoTime {
                    variant: VariantId(idx as u16),
                });
            }
        }
        for (idx, client) in clients.iter().enumerate() {
            Positive::Rate(idx).check(client.rate)?;
            if client.budgets.len() != variants.len() {
                let budgets = client.budgets.len();
                return Err(BadInstance::Budgets {
                    client: idx,
                    budgets,
                    variants: variants.len(),
                });
            }
        }
        Ok(Instance {
            variants,
            clients,
            n_workers,
            rate_unit,
        })
    }

    /// Variants, by id.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// Clients, by ordinal.
    pub fn clients(&self) -> &[ClientDemand] {
        &self.clients
    }

    /// Number of workers.
    pub fn n_workers(&self) -> usize {
        self.n_workers
    }

    /// Requests a second of one unit.
    pub fn rate_unit(&self) -> f64 {
        self.rate_unit
    }

    /// Units that a client needs.
    pub(super) fn units_of(&self, client: usize) -> u32 {
        // A whole number of units may come out of a division a little above it.
        (self.clients[client].rate / self.rate_unit - 1e-9)
            .ceil()
            .max(1.0) as u32
    }

    /// Units that a worker with this variant serves in batches of this size.
    pub fn throughput(&self, variant: usize, batch_idx: usize) -> u32 {
        let execution = self.variants[variant].execution[batch_idx].as_secs_f64();
        ((batch_idx + 1) as f64 / execution / self.rate_unit + 1e-9).floor() as u32
    }

    /// The least budget of a client whose requests are in time at a worker: one batch may run before theirs (§4.1, equation 6).
    pub(super) fn least_budget(&self, variant: usize, batch_idx: usize) -> Duration {
        self.variants[variant].execution[batch_idx].saturating_mul(2)
    }

    /// Whether a client's requests are in time at a worker.
    pub(super) fn is_in_time(&self, client: usize, variant: usize, batch_idx: usize) -> bool {
        self.least_budget(variant, batch_idx) <= self.clients[client].budgets[variant]
    }
}

fn within(what: &'static str, n: usize, least: usize, most: usize) -> Result<(), BadInstance> {
    if (least..=most).contains(&n) {
        return Ok(());
    }
    Err(BadInstance::Count {
        what,
        n,
        least,
        most,
    })
}

/// What must be above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positive {
    /// The unit of rates.
    RateUnit,
    /// The rate of a client.
    Rate(usize),
}

impl Positive {
    /// Refuses a number that is not finite and above 0.
    fn check(self, value: f64) -> Result<(), BadInstance> {
        if value.is_finite() && value > 0.0 {
            return Ok(());
        }
        Err(BadInstance::NotPositive { what: self, value })
    }
}

impl fmt::Display for Positive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Positive::RateUnit => write!(f, "the rate unit"),
            Positive::Rate(client) => write!(f, "rate of client {client}"),
        }
    }
}

/// Why an instance is none.
#[derive(Clone, Debug, PartialEq)]
pub enum BadInstance {
    /// Too few or too many of something.
    Count {
        /// Of what.
        what: &'static str,
        /// How many there are.
        n: usize,
        /// The least.
        least: usize,
        /// The most.
        most: usize,
    },
    /// A number that is not finite, or not above 0.
    NotPositive {
        /// What it says.
        what: Positive,
        /// The number.
        value: f64,
    },
    /// An accuracy that is not finite.
    Accuracy {
        /// Of which variant.
        variant: VariantId,
        /// The number.
        value: f64,
    },
    /// A batch that takes no time.
    NoTime {
        /// The variant.
        variant: VariantId,
    },
    /// A client whose budgets are not one for each variant.
    Budgets {
        /// The client.
        client: usize,
        /// How many it has.
        budgets: usize,
        /// How many variants there are.
        variants: usize,
    },
}

impl fmt::Display for BadInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadInstance::Count {
                what,
                n,
                least,
                most,
            } => {
                write!(f, "{n} {what}; there are {least} to {most}")
            }
            BadInstance::NotPositive { what, value } => {
                write!(f, "{what} is {value}; it is a finite number above 0")
            }
            BadInstance::Accuracy { variant, value } => {
                write!(
                    f,
                    "accuracy of variant {} is {value}; it is a finite number",
                    variant.0
                )
            }
            BadInstance::NoTime { variant } => {
                write!(f, "a batch of variant {} takes no time", variant.0)
            }
            BadInstance::Budgets {
                client,
                budgets,
                variants,
            } => write!(
                f,
                "client {client} has {budgets} budgets; it has one for each of {variants} variants"
            ),
        }
    }
}

impl std::error::Error for BadInstance {}
