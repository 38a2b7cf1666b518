//! The names of all metrics.

/// Requests that ended: by pipeline, outcome, and for drops and failures module and reason.
pub const REQUESTS: &str = "spillgate_gateway_requests_total";
/// Requests completed within their deadline; their rate is the goodput.
pub const GOOD_REQUESTS: &str = "spillgate_gateway_good_requests_total";
/// Requests of clients without an SLO that ended, by outcome; the other metrics of requests do not count them.
pub const BACKGROUND_REQUESTS: &str = "spillgate_gateway_background_requests_total";
/// Requests that were refused, by reason.
pub const REFUSED_REQUESTS: &str = "spillgate_gateway_refused_requests_total";
/// Requests of a live revision that ended, by outcome, as a rollout judges them: those refused for want of capacity are dropped ones;
/// those that their client gave up, or without an SLO, do not count.
pub const REVISION_REQUESTS: &str = "spillgate_revision_requests_total";
/// The part of the streams that go to a live revision.
pub const REVISION_SHARE: &str = "spillgate_revision_share";
/// Frames that were served though their picture is damaged.
pub const DAMAGED_FRAMES: &str = "spillgate_gateway_damaged_frames_total";
/// Objects that modules did not look at, by module and reason.
pub const LEFT_OUT_OBJECTS: &str = "spillgate_gateway_left_out_objects_total";
/// From admission to the end, by outcome.
pub const LATENCY: &str = "spillgate_gateway_latency_seconds";
/// The latency objective of a pipeline.
pub const SLO: &str = "spillgate_pipeline_slo_seconds";
/// Q of PARD: arrival at a module's worker until the forming batch.
pub const QUEUEING: &str = "spillgate_module_queueing_seconds";
/// W of PARD: forming batch until execution.
pub const BATCH_WAIT: &str = "spillgate_module_batch_wait_seconds";
/// D of PARD: execution of the batch, once for each of its requests.
pub const EXECUTION: &str = "spillgate_module_execution_seconds";
/// Requests in a batch.
pub const BATCH_SIZE: &str = "spillgate_module_batch_size_requests";
/// Times of finished requests that ran again, alone, on an idle device; batch schedulers learn from them.
pub const ALONE: &str = "spillgate_module_alone_seconds";
/// Difference between a batch's measured and expected duration, by direction.
pub const PREDICTION_ERROR: &str = "spillgate_module_prediction_error_seconds";
/// Published by a module's State Planner: requests offered to the module, per second.
pub const PLANNER_OFFERED: &str = "spillgate_planner_offered_requests_per_second";
/// As published: requests executed, per second.
pub const PLANNER_EXECUTED: &str = "spillgate_planner_executed_requests_per_second";
/// As published: capacity of its workers in requests a second.
pub const PLANNER_CAPACITY: &str = "spillgate_planner_capacity_requests_per_second";
/// As published: workers that serve.
pub const PLANNER_WORKERS: &str = "spillgate_planner_workers";
/// As published: measured over profiled execution time of its batches.
pub const PLANNER_PACE: &str = "spillgate_planner_pace_ratio";
/// As published: q of PARD, the mean queueing delay.
pub const PLANNER_QUEUEING: &str = "spillgate_planner_queueing_seconds";
/// Workers that a module should have.
pub const WORKERS_WANTED: &str = "spillgate_workers_wanted";
/// Workers of a module that take requests, as its controller sees them, read at each scrape under any policy.
pub const WORKERS_SERVING: &str = "spillgate_workers_serving";
/// L_sub of PARD: the time that a request is expected to need after the module.
pub const PLANNER_DOWNSTREAM: &str = "spillgate_planner_downstream_seconds";
/// 1 when the module's brokers serve the highest remaining budget first.
pub const PLANNER_ORDER: &str = "spillgate_planner_highest_budget_first";
/// Streams by the variant that serves them, and what keeps them from a better one.
pub const STREAMS: &str = "spillgate_gateway_streams";
/// Rate of the entry gate in requests a second.
pub const GATE: &str = "spillgate_gateway_gate_requests_per_second";
/// Requests that a client sent; of the clients of most requests, and of each token.
pub const CLIENT_REQUESTS: &str = "spillgate_client_requests_total";
/// Of these, completed in time.
pub const CLIENT_GOOD: &str = "spillgate_client_good_requests_total";
/// Of these, refused.
pub const CLIENT_REFUSED: &str = "spillgate_client_refused_requests_total";
/// Requests on a stream with a name; of the streams of most requests.
pub const STREAM_REQUESTS: &str = "spillgate_stream_requests_total";
/// Of these, completed in time.
pub const STREAM_GOOD: &str = "spillgate_stream_good_requests_total";
/// Of these, refused.
pub const STREAM_REFUSED: &str = "spillgate_stream_refused_requests_total";
/// Open connections, read at each scrape.
pub const CONNECTIONS: &str = "spillgate_edge_connections";
/// Most connections (`--connections`).
pub const CONNECTIONS_MAX: &str = "spillgate_edge_connections_limit";
/// Connections that were turned away: there was no place or memory for them.
pub const CONNECTIONS_TURNED_AWAY: &str = "spillgate_edge_connections_turned_away_total";
/// Connections closed: idle, silent, with unread answers, or in favour of a new one.
pub const CONNECTIONS_CLOSED: &str = "spillgate_edge_connections_closed_total";
/// Bytes held for clients.
pub const MEMORY_HELD: &str = "spillgate_edge_memory_held_bytes";
/// Bytes that may be held for clients (`--memory`).
pub const MEMORY_BUDGET: &str = "spillgate_edge_memory_limit_bytes";
/// 1 while there is a session with a process of the topology.
pub const PEER_MET: &str = "spillgate_peer_met";
/// 1 while it is silent.
pub const PEER_SUSPECTED: &str = "spillgate_peer_suspected";
/// The difference of its clock and this one is known within this.
pub const PEER_CLOCK_ERROR: &str = "spillgate_peer_clock_error_seconds";
/// Bytes that wait to be written to it.
pub const PEER_WAITING: &str = "spillgate_peer_waiting_bytes";
/// Bytes that were written to it since it was met.
pub const PEER_SENT: &str = "spillgate_peer_sent_bytes_total";
/// Bytes that came from it since it was met.
pub const PEER_RECEIVED: &str = "spillgate_peer_received_bytes_total";
/// Bytes of values that are kept for gateways of other processes.
pub const VALUES_KEPT: &str = "spillgate_values_kept_bytes";
/// Requests of other processes for which values are kept.
pub const VALUES_KEPT_REQUESTS: &str = "spillgate_values_kept_requests";
/// Requests of this gateway for which other processes keep values.
pub const VALUES_KNOWN_REQUESTS: &str = "spillgate_values_known_requests";
/// Bytes on the account.
pub const VALUES_HELD: &str = "spillgate_values_held_bytes";
/// Bytes that may be on it (`--memory`).
pub const VALUES_LIMIT: &str = "spillgate_values_limit_bytes";
/// Values that were not sent, since the process had them.
pub const VALUES_REFERENCES: &str = "spillgate_values_references_total";
/// Messages given back to gateways, since a value was kept no more.
pub const VALUES_GIVEN_BACK: &str = "spillgate_values_given_back_total";
/// Requests of gateways for which there was no room.
pub const VALUES_REFUSED: &str = "spillgate_values_refused_requests_total";
/// Pages of a device that hold weights, or are to, read at each scrape.
pub const DEVICE_WEIGHT_PAGES: &str = "spillgate_device_weight_pages";
/// Pages that a device has for weights (`--device NAME,memory=SIZE`).
pub const DEVICE_WEIGHT_PAGES_LIMIT: &str = "spillgate_device_weight_pages_limit";
/// Bytes of a device's memory that a batch takes while it runs, of the model that needs most, as measured when it started.
pub const DEVICE_WORKSPACE: &str = "spillgate_device_workspace_bytes";
/// Requests that ran after they had waited for the weights of their model.
pub const DEVICE_COLD: &str = "spillgate_device_cold_requests_total";
/// Models whose weights were read.
pub const DEVICE_LOADS: &str = "spillgate_device_loads_total";
/// Models whose weights could not be read.
pub const DEVICE_FAILED_LOADS: &str = "spillgate_device_failed_loads_total";
/// Models that gave way to others.
pub const DEVICE_UNLOADS: &str = "spillgate_device_unloads_total";
/// Actions that a device refused.
pub const DEVICE_REFUSED: &str = "spillgate_device_refused_actions_total";
/// Signed errors of what was predicted of a device's actions, as quantiles since it began.
pub const DEVICE_PREDICTION_ERROR: &str = "spillgate_device_prediction_error_seconds";
/// Requests that wait at a worker, read at each scrape.
pub const QUEUE_LENGTH: &str = "spillgate_worker_queue_length_requests";
/// Time a device spent on batches.
pub const DEVICE_BUSY: &str = "spillgate_device_busy_seconds_total";
/// Device time by the outcome of the requests, decoding left out; a batch's time is shared equally by its members.
/// The part of outcomes other than `completed` is the invalid rate.
pub const DEVICE_REQUEST_TIME: &str = "spillgate_device_request_time_seconds_total";
/// When the first certificate of a file expires, in seconds since 1970.
pub const CERTIFICATE_EXPIRY: &str = "spillgate_certificate_expiry_timestamp_seconds";
/// Spans that were exported.
pub const EXPORTED_SPANS: &str = "spillgate_telemetry_exported_spans_total";
/// Times that an invariant did not hold.
pub const BREACHES: &str = "spillgate_invariant_breaches_total";
/// Spans that were built but not exported, by cause.
pub const LOST_SPANS: &str = "spillgate_telemetry_lost_spans_total";
/// Sampled requests and batches of which no span was built, by kind and cause.
pub const LOST_RECORDS: &str = "spillgate_telemetry_lost_records_total";

/// All names, as in queries.
pub const ALL: [&str; 71] = [
    REQUESTS,
    GOOD_REQUESTS,
    BACKGROUND_REQUESTS,
    REFUSED_REQUESTS,
    REVISION_REQUESTS,
    REVISION_SHARE,
    DAMAGED_FRAMES,
    LEFT_OUT_OBJECTS,
    LATENCY,
    SLO,
    QUEUEING,
    BATCH_WAIT,
    EXECUTION,
    BATCH_SIZE,
    ALONE,
    PREDICTION_ERROR,
    PLANNER_OFFERED,
    PLANNER_EXECUTED,
    PLANNER_CAPACITY,
    PLANNER_QUEUEING,
    PLANNER_DOWNSTREAM,
    PLANNER_ORDER,
    PLANNER_WORKERS,
    PLANNER_PACE,
    WORKERS_WANTED,
    WORKERS_SERVING,
    STREAMS,
    GATE,
    CLIENT_REQUESTS,
    CLIENT_GOOD,
    CLIENT_REFUSED,
    STREAM_REQUESTS,
    STREAM_GOOD,
    STREAM_REFUSED,
    CONNECTIONS,
    CONNECTIONS_MAX,
    CONNECTIONS_TURNED_AWAY,
    CONNECTIONS_CLOSED,
    MEMORY_HELD,
    MEMORY_BUDGET,
    PEER_MET,
    PEER_SUSPECTED,
    PEER_CLOCK_ERROR,
    PEER_WAITING,
    PEER_SENT,
    PEER_RECEIVED,
    VALUES_KEPT,
    VALUES_KEPT_REQUESTS,
    VALUES_KNOWN_REQUESTS,
    VALUES_HELD,
    VALUES_LIMIT,
    VALUES_REFERENCES,
    VALUES_GIVEN_BACK,
    VALUES_REFUSED,
    DEVICE_WEIGHT_PAGES,
    DEVICE_WEIGHT_PAGES_LIMIT,
    DEVICE_WORKSPACE,
    DEVICE_COLD,
    DEVICE_LOADS,
    DEVICE_FAILED_LOADS,
    DEVICE_UNLOADS,
    DEVICE_REFUSED,
    DEVICE_PREDICTION_ERROR,
    QUEUE_LENGTH,
    DEVICE_BUSY,
    DEVICE_REQUEST_TIME,
    CERTIFICATE_EXPIRY,
    EXPORTED_SPANS,
    BREACHES,
    LOST_SPANS,
    LOST_RECORDS,
];
