//! An answer: what each worker runs and whom it serves. [`Assignment::check`] says whether it keeps every promise, from
//! the instance's own times and rates and without the solvers' tables.

use std::fmt;

use spillgate_pipeline::id::VariantId;

use super::instance::Instance;

/// What a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its variant.
    pub variant: VariantId,
    /// Largest batch that it forms.
    pub batch: u32,
}

/// Who is served where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// What each worker runs. `None`: nobody is mapped to it, so it keeps what it holds.
    pub workers: Vec<Option<Setting>>,
    /// The worker of each client. `None`: it is not served.
    pub clients: Vec<Option<usize>>,
}

/// How good an assignment is. More clients come first, then accuracy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// Clients that have a worker.
    pub served: usize,
    /// Mean accuracy of all clients, weighted by rate; a client that is not served counts as 0.
    pub value: f64,
}

impl Assignment {
    /// Nobody is served.
    pub fn empty(instance: &Instance) -> Self {
        Assignment {
            workers: vec![None; instance.n_workers()],
            clients: vec![None; instance.clients().len()],
        }
    }

    /// The setting that serves a client.
    pub fn setting_of(&self, client: usize) -> Option<Setting> {
        self.workers[self.clients[client]?]
    }

    /// How good it is.
    pub fn worth(&self, instance: &Instance) -> Worth {
        let mut worth = Worth::default();
        let mut rates = 0.0;
        for (client, demand) in instance.clients().iter().enumerate() {
            rates += demand.rate;
            if let Some(setting) = self.setting_of(client) {
                worth.served += 1;
                worth.value +=
                    demand.rate * instance.variants()[setting.variant.0 as usize].accuracy;
            }
        }
        if rates > 0.0 {
            worth.value /= rates;
        }
        worth
    }

    /// Whether every client is in time and no worker gets more than it can serve.
    pub fn check(&self, instance: &Instance) -> Result<(), Broken> {
        if self.workers.len() != instance.n_workers()
            || self.clients.len() != instance.clients().len()
        {
            return Err(Broken::Shape);
        }
        let mut rates = vec![0.0; self.workers.len()];
        for (client, worker) in self.clients.iter().enumerate() {
            let Some(worker) = *worker else { continue };
            let setting = self.workers.get(worker).copied().flatten();
            let setting = setting.ok_or(Broken::NoSetting { client })?;
            let variant = instance.variants().get(setting.variant.0 as usize);
            let execution = variant.and_then(|v| v.execution_of(setting.batch));
            let execution = execution.ok_or(Broken::NoBatch { worker })?;
            let demand = &instance.clients()[client];
            if execution.saturating_mul(2) > demand.budgets[setting.variant.0 as usize] {
                return Err(Broken::Late { client, worker });
            }
            rates[worker] += demand.rate;
            // Sums of rates that fill a worker exactly differ from its throughput in the last digits.
            let most = f64::from(setting.batch) / execution.as_secs_f64();
            if rates[worker] > most * (1.0 + 1e-9) {
                return Err(Broken::Full { worker });
            }
        }
        Ok(())
    }
}

/// What is wrong with an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It is of another instance.
    Shape,
    /// The client's worker runs nothing.
    NoSetting {
        /// The client.
        client: usize,
    },
    /// The worker's variant has no such batch.
    NoBatch {
        /// The worker.
        worker: usize,
    },
    /// The client's requests may be late.
    Late {
        /// The client.
        client: usize,
        /// Its worker.
        worker: usize,
    },
    /// The worker gets more than it can serve.
    Full {
        /// The worker.
        worker: usize,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Shape => write!(f, "the assignment is of another instance"),
            Broken::NoSetting { client } => {
                write!(f, "client {client} has a worker that runs nothing")
            }
            Broken::NoBatch { worker } => {
                write!(f, "worker {worker} has a batch that its variant lacks")
            }
            Broken::Late { client, worker } => {
                write!(f, "client {client} may be late at worker {worker}")
            }
            Broken::Full { worker } => write!(f, "worker {worker} gets more than it can serve"),
        }
    }
}

impl std::error::Error for Broken {}
