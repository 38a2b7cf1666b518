//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Operation,
        "devices that are planned for or simulated",
        count(crate::setup::DEVICES_MAX),
        "a usage error"
    ),
    bound!(
        Operation,
        "models, devices and clients of a scenario",
        count(crate::placement::scenario::COUNT_MAX),
        "refused"
    ),
    bound!(
        Operation,
        "a trace or table that is read",
        bytes(crate::trace::TABLE_BYTES_MAX),
        "an error with its path"
    ),
    bound!(
        Operation,
        "events of a simulated run",
        count(crate::world::EVENTS_MAX),
        "the run is stopped as one that does not come to rest"
    ),
];
