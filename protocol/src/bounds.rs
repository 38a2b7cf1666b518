//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Clients,
        "clients that a report of shares names",
        count(crate::message::clients::NAMED_MAX),
        "the others are summed by class"
    ),
    bound!(
        Batches,
        "batches bound on a device: the one that runs and one behind it",
        count(crate::message::to_gateway::BOUND_MAX),
        "other requests wait unbound; at a gateway the oldest is taken to have ended"
    ),
    bound!(
        Batches,
        "samples of a kind in a planner's state",
        count(crate::message::to_controller::STATE_SAMPLES_MAX),
        "the oldest is forgotten; of a peer, the packet is refused"
    ),
    bound!(
        Processes,
        "pipelines of a process of a set",
        count(crate::membership::PIPELINES_MAX),
        "it does not start"
    ),
    bound!(
        Processes,
        "bytes of a definition that is published, with its profiles",
        bytes(crate::publication::DEFINITION_BYTES_MAX),
        "the operator is refused; of a peer, the packet is"
    ),
    bound!(
        Processes,
        "time for which a worker serves what is published and no controller knows",
        time(crate::publication::UNKNOWN_AFTER),
        "it serves what its file says"
    ),
    bound!(
        Processes,
        "revisions of a pipeline of which a process speaks",
        count(crate::publication::REPORTS_MAX),
        "the packet is refused"
    ),
    bound!(
        Processes,
        "processes of a topology",
        count(crate::topology::PROCESSES_MAX),
        "an error with its line"
    ),
    bound!(
        Processes,
        "workers of a module in one process",
        count(crate::topology::read::WORKERS_MAX),
        "an error with its line"
    ),
    bound!(
        Processes,
        "roles and workers in a peer's greeting",
        count(crate::session::greeting::ROLES_MAX),
        "the peer is refused"
    ),
    bound!(
        Processes,
        "processes that one knows",
        count(crate::membership::MEMBERS_MAX),
        "a further one is refused, and both sides say so"
    ),
    bound!(
        Processes,
        "roles and workers of all processes that one knows",
        count(crate::membership::ROLES_KNOWN_MAX),
        "a process with more is refused, and both sides say so"
    ),
    bound!(
        Processes,
        "time until a process that is gone without a word is forgotten",
        time(crate::membership::FORGET_AFTER),
        "its workers are no longer waited for"
    ),
    bound!(
        Processes,
        "lives of processes of which another one has taken the name",
        count(crate::membership::REPLACED_MAX),
        "the oldest is forgotten, and may greet again"
    ),
    bound!(
        Processes,
        "names in a peer's greeting",
        bytes(crate::session::greeting::NAME_BYTES_MAX),
        "the peer is refused"
    ),
    bound!(
        Processes,
        "version text in a peer's greeting",
        bytes(crate::session::greeting::VERSION_BYTES_MAX),
        "the peer is refused"
    ),
    bound!(
        Processes,
        "connections that peers began",
        count(crate::session::entrance::CONNECTIONS_MAX),
        "one without a greeting gives way, else the new one is refused"
    ),
    bound!(
        Processes,
        "connections of a host without a greeting",
        count(crate::session::entrance::STRANGERS_MAX),
        "one of them gives way"
    ),
    bound!(
        Processes,
        "connections of a session that did not greet",
        words("one, the newest", crate::session),
        "the older one is closed"
    ),
    bound!(
        Processes,
        "time of a dial, and of a greeting; `silence: lose` of the topology sets it",
        time(crate::session::timing::DEATH_DEFAULT),
        "the connection is closed"
    ),
    bound!(
        Processes,
        "time between dials of a lost peer",
        time(crate::session::timing::BACKOFF_LONGEST_DEFAULT),
        "it is dialled on"
    ),
    bound!(
        Processes,
        "heartbeats whose answers are waited for",
        count(crate::session::clock::UNANSWERED_MAX),
        "the oldest is forgotten"
    ),
    bound!(
        Processes,
        "samples of a peer's clock",
        count(crate::session::clock::SAMPLES),
        "the oldest is forgotten"
    ),
];
