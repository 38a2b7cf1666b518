//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Clients,
        "part of `--memory` that answers beyond their clients' shares may not take, one in",
        count(crate::account::KEPT_PART),
        "the call ends, RESOURCE_EXHAUSTED"
    ),
    bound!(
        Operation,
        "time for a pipe that is read as a file",
        time(crate::file::PIPE_LIMIT),
        "an error with its path"
    ),
];
