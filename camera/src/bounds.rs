//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        ClientProgram,
        "frames that wait for acknowledgement, of a stream that adapts",
        count(crate::uplink::OUT_MAX),
        "further ones are not counted"
    ),
    bound!(
        ClientProgram,
        "time for which a frame waits for acknowledgement",
        time(crate::uplink::OUT_LONGEST),
        "it counts no more"
    ),
    bound!(
        ClientProgram,
        "reports of a link whose answers may still come",
        count(crate::uplink::REPORTS_OUT_MAX),
        "the oldest is forgotten"
    ),
    bound!(
        ClientProgram,
        "exchanges of clocks that count",
        count(crate::uplink::EXCHANGES),
        "the oldest is forgotten"
    ),
];
