//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Processes,
        "bytes of requests that wait for a peer",
        bytes(crate::outlet::WAITING_BYTES_MAX),
        "the request is dropped"
    ),
    bound!(
        Processes,
        "bytes of all that waits for a peer",
        bytes(crate::outlet::CUT_OFF_BYTES),
        "its connection is closed"
    ),
    bound!(
        Processes,
        "packets that wait for a peer",
        count(crate::outlet::WAITING_MAX),
        "its connection is closed"
    ),
    bound!(
        Processes,
        "time for which a packet that nobody waits for is held, so that it goes with others",
        time(crate::outlet::HOLD),
        "it is written alone"
    ),
    bound!(
        Processes,
        "bytes that a peer may send ahead",
        bytes(crate::session::WINDOW),
        "it waits for HTTP/2's window"
    ),
    bound!(
        Processes,
        "one write of a peer",
        bytes(crate::session::MESSAGE_MAX),
        "its connection is closed"
    ),
    bound!(
        Processes,
        "bytes of a peer before its greeting",
        bytes(crate::visit::STRANGER_BYTES_MAX),
        "its connection is closed"
    ),
    bound!(
        Processes,
        "requests in a list of a packet",
        count(crate::wire::bounds::REQUESTS_MAX),
        "the packet is refused"
    ),
    bound!(
        Processes,
        "polygons of a mask in a packet",
        count(crate::wire::bounds::POLYGONS_MAX),
        "the packet is refused"
    ),
    bound!(
        Processes,
        "dimensions of a tensor in a packet",
        count(crate::wire::bounds::DIMENSIONS_MAX),
        "the packet is refused"
    ),
    bound!(
        Processes,
        "a span of time in a packet",
        time(crate::wire::bounds::SPAN_MAX),
        "the packet is refused"
    ),
    bound!(
        Processes,
        "a ratio in a packet",
        count(crate::wire::bounds::RATIO_MAX),
        "the packet is refused"
    ),
    bound!(
        Processes,
        "complaints about peers that are remembered",
        count(crate::complaints::COMPLAINTS_MAX),
        "the oldest may be made again"
    ),
];
