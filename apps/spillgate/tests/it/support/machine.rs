//! What tests that start sets of processes have in common: the machine.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Most sets of processes share the machine with others. Those that make it busy, and count what is in time, do not.
static MACHINE: RwLock<()> = RwLock::new(());

/// The right to run a set.
#[expect(dead_code, reason = "it is held, not read")]
pub(crate) enum Machine {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Machine {
    pub(crate) fn shared() -> Self {
        Machine::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn alone() -> Self {
        Machine::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner))
    }
}
