//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Clients,
        "time of HTTP/2's greeting",
        time(crate::listener::PREFACE_LIMIT),
        "the connection is closed"
    ),
    bound!(
        Clients,
        "headers of a call",
        bytes(crate::listener::HEADERS_MAX),
        "refused by HTTP/2"
    ),
    bound!(
        Clients,
        "time for the answer to a probe of a silent connection",
        time(crate::listener::KEEPALIVE_TIMEOUT),
        "the connection is closed"
    ),
    bound!(
        Clients,
        "most bytes that a connection may send ahead",
        bytes(crate::edge::WINDOW_MAX),
        "it waits for HTTP/2's window"
    ),
    bound!(
        Clients,
        "the same while memory is short",
        bytes(crate::edge::WINDOW_MIN),
        "it waits for HTTP/2's window"
    ),
    bound!(
        Clients,
        "bytes beside its frame's data that are kept of a message over the limit",
        bytes(crate::edge::messages::outline::KEPT_MAX),
        "its call ends; below it its frame is refused"
    ),
    bound!(
        Clients,
        "bytes of a packed message that are unpacked at a time",
        bytes(crate::edge::messages::packed::STEP),
        "other tasks have their turn"
    ),
    bound!(
        Clients,
        "answers that wait for a slow reader, beyond frames in flight",
        count(crate::api::stream::ANSWERS_WAITING),
        "the stream is read no further"
    ),
    bound!(
        Clients,
        "what a stream that adapts is told",
        words(
            "acknowledgements: its places for answers; else the newest",
            crate::api::adapting
        ),
        "the newer takes its place"
    ),
    bound!(
        Clients,
        "bytes that TLS holds for a connection",
        bytes(crate::edge::tls::TLS_BYTES),
        "it waits for the network"
    ),
    bound!(
        Clients,
        "clients without a token that metrics tell apart",
        count(crate::host::counts::COUNTED_MAX),
        "the one that sent least gives way"
    ),
    bound!(
        Clients,
        "streams by name that metrics tell apart",
        count(crate::host::counts::STREAMS_COUNTED_MAX),
        "the one that sent least gives way"
    ),
];
