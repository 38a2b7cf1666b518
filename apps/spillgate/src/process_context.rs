//! What all that runs in a process is given.

use std::sync::Arc;
use std::time::Duration;

use spillgate_backend::operator::Library;
use spillgate_controller::record::Observer;
use spillgate_controller_policy::rollout::RolloutConfig;
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;

use crate::cores::Cores;
use crate::deployment::Revision;
use crate::device_sharing::DeviceSharing;
use crate::process_role::ProcessRole;
use crate::publishing::{Definitions, Publishing};
use crate::set_links::SetLinks;

/// Bytes that a process may hold for its clients, or for gateways, unless it is said otherwise.
pub const MEMORY_DEFAULT: u64 = 256 << 20;
/// How long what is in flight may take to end after a stop, unless it is said otherwise.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(10);

/// What all that runs in a process is given, from its start to its end. It is built once, and handed on whole.
#[derive(Clone)]
pub struct ProcessContext {
    /// The clock.
    pub clock: Clock,
    /// The module types.
    pub library: Arc<Library>,
    /// Told of all that ends.
    pub observer: Arc<dyn Observer>,
    /// Bytes that are held for clients, and for what other processes send.
    pub account: Arc<Account>,
    /// Threads that decode frames.
    pub decoders: usize,
    /// Cores on which devices execute their batches.
    pub cores: Cores,
    /// What decides about the models of its devices; `None`: they keep all that they have read.
    pub sharing: Option<DeviceSharing>,
    /// What it is in a set; `None`: it holds all roles.
    pub role: Option<ProcessRole>,
    /// Its links there.
    pub set: Option<Arc<SetLinks>>,
    /// How long what is in flight may take to end after a stop.
    pub drain: Duration,
    /// How another revision of its pipelines takes their place.
    pub rollout: RolloutConfig,
    /// Hears what the start is doing.
    pub progress: Arc<dyn Fn(&str) + Send + Sync>,
}

impl ProcessContext {
    /// That of a process of its own: one decoder, no core reserved, no placement.
    pub fn new(clock: Clock, library: Arc<Library>, observer: Arc<dyn Observer>) -> Self {
        ProcessContext {
            clock,
            library,
            observer,
            account: Account::new(MEMORY_DEFAULT),
            decoders: 1,
            cores: Cores::default(),
            sharing: None,
            role: None,
            set: None,
            drain: DRAIN_DEFAULT,
            rollout: RolloutConfig::default(),
            progress: Arc::new(|_| {}),
        }
    }

    /// The same for a process of a set, which serves what is published, too, where the definitions are given.
    #[must_use]
    pub(crate) fn of_set(mut self, role: ProcessRole, definitions: Option<Definitions>) -> Self {
        self.sharing.clone_from(&role.sharing);
        let publishing = definitions.map(|of| Publishing::new(&role, self.clock.clone(), of));
        self.set = Some(SetLinks::new(&role, publishing));
        self.role = Some(role);
        self
    }

    /// The same for another revision of pipelines, for which the process is this.
    #[must_use]
    pub(crate) fn of_revision(&self, revision: &Revision) -> Self {
        let mut context = self.clone();
        if let Some(role) = &mut context.role {
            for of in &revision.roles {
                role.pipelines.retain(|known| known.pipeline != of.pipeline);
                role.pipelines.push(of.clone());
            }
        }
        context
    }
}
