//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Requests,
        "requests a second into a pipeline",
        words(
            "`policy: gate` times the bottleneck's capacity, over the part of requests that can be in time",
            crate::gate
        ),
        "refused, RESOURCE_EXHAUSTED",
        "policy.gate"
    ),
    bound!(
        Requests,
        "time after its deadline for which the answer of a request is waited for; the SLO, if that is longer",
        time(crate::gateway::ends::GRACE_MIN),
        "the request is answered as failed"
    ),
    bound!(
        Requests,
        "the same where workers do not serve by deadline",
        time(crate::gateway::ends::GRACE_LATE),
        "the request is answered as failed"
    ),
    bound!(
        Requests,
        "requests that a suspected worker may still answer",
        words("`limits.in_flight` by modules", crate::gateway::workers),
        "they end with their request"
    ),
    bound!(
        Requests,
        "ended requests that wait to give their place back",
        words("`limits.in_flight`", crate::ledger),
        "the place is not given back"
    ),
    bound!(
        Requests,
        "requests in a pool",
        words("`queue:` of the module by its workers", crate::stage::pool),
        "dropped, `queue_full`"
    ),
    bound!(
        Requests,
        "asks of workers that stand at a pool",
        words("one a worker", crate::stage::pool),
        "the newer takes its place"
    ),
    bound!(
        Requests,
        "waiting requests of a pool that are sorted to form a batch",
        count(crate::stage::pool::SORTED_MAX),
        "only the last deadline decides which end is served first"
    ),
    bound!(
        Requests,
        "time after which the name of an application is unused",
        time(crate::gateway::applications::UNUSED_AFTER),
        "it may give way to a new one"
    ),
    bound!(
        Requests,
        "batches by which a worker is called slow",
        count(crate::module::slow::REMEMBERED),
        "the oldest is forgotten"
    ),
    bound!(
        Clients,
        "clients that shares tell apart",
        count(crate::shares::CLIENTS_MAX),
        "one with full credit is forgotten, else the others share one place; their costs are those of their applications"
    ),
    bound!(
        Clients,
        "streams that shares tell apart",
        count(crate::shares::STREAMS_MAX),
        "one with full credit is forgotten, else the others share one place"
    ),
    bound!(
        Clients,
        "streams of one client that shares tell apart",
        count(crate::shares::STREAMS_OF_CLIENT_MAX),
        "its others share one place"
    ),
    bound!(
        Clients,
        "time of a `rate` whose requests may come at once",
        time(crate::limits::DEPTH),
        "refused, RESOURCE_EXHAUSTED"
    ),
    bound!(
        Clients,
        "streams of a client that wait for their turn to send a frame",
        count(crate::intake::LINE_MAX),
        "they take turns by chance"
    ),
    bound!(
        Clients,
        "time for which a stream keeps its turn",
        time(crate::intake::PLACE_KEPT),
        "others come first"
    ),
    bound!(
        Clients,
        "time that streams have once their connection retired",
        time(crate::connection_admission::AGE_GRACE),
        "they end; what they took is answered"
    ),
    bound!(
        Operation,
        "revisions of a pipeline that live in a worker or controller",
        count(crate::rollout::following::REVISIONS_MAX),
        "the next one waits until one has ended"
    ),
    bound!(
        Operation,
        "time for a revision to become ready",
        time(crate::rollout::READY_LIMIT),
        "it is taken back"
    ),
    bound!(
        Operation,
        "parts of ten seconds of a revision's outcomes that are kept, by pipeline",
        count(crate::rollout::history::SLOTS),
        "the oldest is forgotten"
    ),
    bound!(
        Operation,
        "age of the old revision's outcomes that a new one is compared with",
        time(crate::rollout::history::AGE_MAX),
        "failures alone are judged"
    ),
    bound!(
        Batches,
        "the largest batch that a plan chooses",
        count(crate::plan::BATCH_LIMIT),
        "the plan keeps to it; a batch scheduler may go up to `batch: max`"
    ),
    bound!(
        Variants,
        "streams whose variants are chosen one by one",
        count(crate::variant_selector::STREAMS_MAX),
        "the others share a place"
    ),
    bound!(
        Variants,
        "bits a second of a link that a client may report",
        range(crate::uplink::BANDWIDTH_BOUNDS),
        "cut to the bound"
    ),
    bound!(
        Variants,
        "round trip that a client may report",
        time(crate::uplink::ROUND_TRIP_MAX),
        "cut to the bound"
    ),
    bound!(
        Variants,
        "time between two reports of a client that are taken",
        time(crate::uplink::REPORT_EVERY),
        "the report is left out"
    ),
    bound!(
        Variants,
        "variants of an instance of adaptation",
        count(crate::adaptation::instance::VARIANTS_MAX),
        "refused"
    ),
    bound!(
        Variants,
        "workers of an instance of adaptation",
        count(crate::adaptation::instance::WORKERS_MAX),
        "served by the smallest variant"
    ),
    bound!(
        Variants,
        "clients of an instance of adaptation",
        count(crate::adaptation::instance::CLIENTS_MAX),
        "served by the smallest variant"
    ),
    bound!(
        Variants,
        "steps of a decision of adaptation",
        count(crate::adaptation::STEPS_DEFAULT),
        "the best answer so far holds"
    ),
];
