//! What a device does, as far as its duration is predicted.

use std::time::Duration;

use crate::id::ModuleId;
use crate::time::Timestamp;

/// Kinds of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// A batch runs.
    Execute,
    /// A finished request runs again, alone.
    Rerun,
    /// A model is made ready.
    Load,
    /// A model gives back what it holds.
    Unload,
}

impl ActionKind {
    /// All of them, in the order of their ordinals.
    pub const ALL: [ActionKind; 4] = [
        ActionKind::Execute,
        ActionKind::Rerun,
        ActionKind::Load,
        ActionKind::Unload,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ActionKind::Execute => "execute",
            ActionKind::Rerun => "rerun",
            ActionKind::Load => "load",
            ActionKind::Unload => "unload",
        }
    }
}

/// An action whose durations are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    /// What is done.
    pub kind: ActionKind,
    /// With which model: a number of the caller's own.
    pub model: u32,
    /// For so many requests.
    pub size: u32,
}

impl Action {
    /// A batch of that size, where a module has one model.
    pub fn execute(module: ModuleId, size: usize) -> Self {
        Action {
            kind: ActionKind::Execute,
            model: u32::from(module.0),
            size: size as u32,
        }
    }
}

/// An action that ended: what was expected of it, and what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionRecord {
    /// Which.
    pub action: Action,
    /// How long it was expected to take.
    pub expected: Duration,
    /// How long it took.
    pub took: Duration,
    /// When it was expected to end, as told when it was decided.
    pub expected_end: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}
