//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Requests,
        "waiting requests that are sorted to form a batch",
        count(crate::broker::late::SORTED_MAX),
        "only the last deadline decides which end is served first"
    ),
    bound!(
        Requests,
        "requests that a batch scheduler chooses from",
        count(crate::schedule::config::SCHEDULED_MAX),
        "the others wait in the queue"
    ),
    bound!(
        Requests,
        "requests in a row that are given up because of their model's load; the next one",
        count(crate::broker::cold::TRIED_ONE_IN),
        "is tried all the same"
    ),
    bound!(
        Clients,
        "clients that share a decoder's time",
        count(crate::broker::decoding::CLIENTS_MAX),
        "the client that used least is forgotten"
    ),
    bound!(
        Batches,
        "batch sizes that a scheduler chooses from",
        count(crate::schedule::config::SIZES_MAX),
        "refused when the pipeline is checked"
    ),
    bound!(
        Batches,
        "members of a family that a scheduler is asked about for one batch, while it wants to wait",
        count(crate::broker::scheduled::MEMBERS_TRIED_MAX),
        "the others wait"
    ),
    bound!(
        Batches,
        "finished requests of a worker that are kept to run again",
        count(crate::profiler::KEPT_MAX),
        "the oldest is forgotten"
    ),
    bound!(
        Batches,
        "part of the time without work that reruns take",
        fraction(crate::profiler::SHARE_MAX),
        "the rerun waits"
    ),
    bound!(
        Batches,
        "gateways' late answers to asks by which a device still learns the round trip",
        count(crate::device::asks::REMEMBERED),
        "the oldest ask is forgotten"
    ),
    bound!(
        Batches,
        "actions that a placement sends to a device",
        words(
            "what is expected to start within the time ahead of its recipe",
            crate::weights::placement
        ),
        "they wait"
    ),
    bound!(
        Models,
        "models weighed for a device's next batch",
        count(crate::weights::placement::choose::WEIGHED_MAX),
        "those with later deadlines are left out"
    ),
    bound!(
        Models,
        "weights weighed for a LOAD",
        count(crate::weights::placement::load::value::WEIGHED_MAX),
        "those with less demand are left out"
    ),
    bound!(
        Models,
        "models with requests without an SLO that are looked at for a LOAD",
        count(crate::weights::placement::load::value::BACKGROUND_LOOKED_AT_MAX),
        "those whose requests came later wait"
    ),
    bound!(
        Models,
        "weights whose fair shares are looked at before some give way",
        count(crate::weights::placement::load::VICTIMS_WEIGHED_MAX),
        "those with higher rates give way after them"
    ),
    bound!(
        Models,
        "weights of which those that no request waits for give way first",
        count(crate::weights::placement::load::VICTIMS_LOOKED_AT_MAX),
        "those with higher rates give way after all of them"
    ),
    bound!(
        Models,
        "requests that wait for weights at a worker",
        words(
            "`queue:` of the module, with the others that wait there",
            crate::broker::cold
        ),
        "dropped, `queue_full`",
        "modules.NAME.queue"
    ),
    bound!(
        Models,
        "time until a model that could not be loaded is tried again",
        time(crate::weights::fleet::RETRIED_AFTER),
        "its requests fail meanwhile"
    ),
];
