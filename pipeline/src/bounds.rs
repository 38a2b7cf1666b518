//! Bounds of queues, caches, tables, retries and times. Each crate of the product lists its own in a `bounds` module; `docs/bounds.md` is
//! made from these lists.

use std::time::Duration;

/// A bound, as the page of bounds has it.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The part of the page.
    pub subject: Subject,
    /// What is bounded.
    pub what: &'static str,
    /// The bound.
    pub value: Value,
    /// The constant's path in its crate, or that of the module which computes the bound.
    pub path: &'static str,
    /// What happens to one more.
    pub when_full: &'static str,
    /// The field of pipeline files, or the command and its flag, that sets it; empty where nothing does.
    pub set_by: &'static str,
}

/// The parts of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Requests on their way.
    Requests,
    /// Clients, their connections and messages.
    Clients,
    /// Batches, and how long they are expected to take.
    Batches,
    /// Models and what memory holds of them.
    Models,
    /// Variants and the streams that they serve.
    Variants,
    /// Processes of a topology.
    Processes,
    /// Files, commands, logs and metrics.
    Operation,
    /// `stream` and `bench`.
    ClientProgram,
}

impl Subject {
    /// All, in the order of the page, with their headings.
    pub const ALL: [(Subject, &'static str); 8] = [
        (Subject::Requests, "Requests"),
        (Subject::Clients, "Clients, connections, messages"),
        (Subject::Batches, "Batches and predictions"),
        (Subject::Models, "Models and memory"),
        (Subject::Variants, "Variants and streams that adapt"),
        (Subject::Processes, "Processes"),
        (Subject::Operation, "Files, commands, logs and metrics"),
        (Subject::ClientProgram, "`stream` and `bench`"),
    ];
}

/// The value of a bound.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A number of things.
    Count(f64),
    /// The least and the most.
    Range(f64, f64),
    /// Bytes.
    Bytes(u64),
    /// A time.
    Time(Duration),
    /// The shortest and the longest time.
    Times(Duration, Duration),
    /// A part of a whole.
    Fraction(f64),
    /// It follows from something else.
    Words(&'static str),
}

/// `bound!(Subject, "what", kind(crate::module::CONSTANT), "when full", "set by")`. The kind is `count`, `bytes`, `time` or `fraction`,
/// `range` and `times` of an array of two; or `words("value", crate::module)` for what is computed. Without the last argument nothing
/// sets it.
#[macro_export]
macro_rules! bound {
    ($subject:ident, $what:literal, $kind:ident($($of:tt)*), $when_full:literal $(,)?) => {
        $crate::bound!($subject, $what, $kind($($of)*), $when_full, "")
    };
    ($subject:ident, $what:literal, $kind:ident($($of:tt)*), $when_full:literal, $set_by:literal $(,)?) => {
        $crate::bounds::Bound {
            subject: $crate::bounds::Subject::$subject,
            what: $what,
            value: $crate::bound!(@value $kind $($of)*),
            path: $crate::bound!(@path $kind $($of)*),
            when_full: $when_full,
            set_by: $set_by,
        }
    };
    (@value count $of:expr) => { $crate::bounds::Value::Count($of as f64) };
    (@value range $of:expr) => { $crate::bounds::Value::Range($of[0] as f64, $of[1] as f64) };
    (@value bytes $of:expr) => { $crate::bounds::Value::Bytes($of as u64) };
    (@value time $of:expr) => { $crate::bounds::Value::Time($of) };
    (@value times $of:expr) => { $crate::bounds::Value::Times($of[0], $of[1]) };
    (@value fraction $of:expr) => { $crate::bounds::Value::Fraction($of) };
    (@value words $value:literal, $of:path) => { $crate::bounds::Value::Words($value) };
    (@path words $value:literal, $of:path) => { stringify!($of) };
    (@path $kind:ident $of:expr) => { stringify!($of) };
}

/// The bounds of this crate.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Requests,
        "requests in flight of a pipeline",
        count(crate::spec::LIMITS_DEFAULT.in_flight),
        "refused, RESOURCE_EXHAUSTED",
        "limits.in_flight"
    ),
    bound!(
        Requests,
        "requests in flight of clients without an SLO; also those that wait at a worker",
        words("a quarter of `limits.in_flight`", crate::pipeline),
        "refused, RESOURCE_EXHAUSTED; dropped, `queue_full`"
    ),
    bound!(
        Requests,
        "time of a request without an SLO",
        time(crate::request::BACKGROUND_LONGEST),
        "dropped, `expired`"
    ),
    bound!(
        Requests,
        "part of the SLO that batches of requests without an SLO may take from others, over the whole pipeline",
        fraction(crate::pipeline::BACKGROUND_PART),
        "such batches are smaller, of one request at least"
    ),
    bound!(
        Requests,
        "waiting requests of a worker; under a placement, and in a pool, those of the module by its workers",
        count(crate::spec::QUEUE_DEFAULT),
        "dropped, `queue_full`",
        "modules.NAME.queue"
    ),
    bound!(
        Requests,
        "removed requests in a worker's queue, beyond as many as wait",
        count(crate::queue::TOMBSTONES_MIN),
        "they are swept out"
    ),
    bound!(
        Requests,
        "applications told apart",
        count(crate::schedule::APPLICATIONS_MAX),
        "one that is unused gives way; if there is none, new names share the last place"
    ),
    bound!(
        Requests,
        "ended requests whose ids a checker of invariants keeps",
        count(crate::invariants::ENDED_REMEMBERED_DEFAULT),
        "the oldest is forgotten"
    ),
    bound!(
        Clients,
        "frames in flight of a stream",
        count(crate::spec::LIMITS_DEFAULT.in_flight_per_stream),
        "refused in its result",
        "limits.in_flight_per_stream"
    ),
    bound!(
        Clients,
        "bytes of a frame",
        bytes(crate::spec::LIMITS_DEFAULT.frame_bytes),
        "refused in its result",
        "limits.frame_bytes"
    ),
    bound!(
        Clients,
        "pixels of a frame",
        count(crate::spec::LIMITS_DEFAULT.pixels),
        "refused by its header",
        "limits.pixels"
    ),
    bound!(
        Clients,
        "time to decode a frame",
        words("half of the SLO", crate::pipeline),
        "refused by its header",
        "limits.decoding"
    ),
    bound!(
        Clients,
        "objects that a frame brings",
        count(crate::spec::LIMITS_DEFAULT.objects),
        "those with the lowest scores are left out",
        "limits.objects"
    ),
    bound!(
        Clients,
        "tokens of a file",
        count(crate::grant::TOKENS_MAX),
        "an error with its line"
    ),
    bound!(
        Clients,
        "clients that a pipeline file names",
        count(crate::spec::clients::NAMED_MAX),
        "an error with its line"
    ),
    bound!(
        Batches,
        "size of a batch",
        count(crate::spec::BATCH_DEFAULT),
        "the others wait for the next batch",
        "modules.NAME.batch.max"
    ),
    bound!(
        Batches,
        "the largest `batch: max`",
        count(crate::spec::BATCH_MAX),
        "an error with its line"
    ),
    bound!(
        Batches,
        "the largest `batch: max` of a module with a batch scheduler",
        count(crate::schedule::SCHEDULED_BATCH_MAX),
        "an error with its line"
    ),
    bound!(
        Batches,
        "slots of a State Planner's window",
        count(crate::window::SLOTS),
        "the oldest is left out",
        "policy.window"
    ),
    bound!(
        Batches,
        "durations that a predictor keeps of each action",
        count(crate::predict::WINDOW),
        "the oldest is forgotten"
    ),
    bound!(
        Batches,
        "buckets of prediction errors of one sign",
        count(crate::predict::errors::histogram::BUCKETS),
        "errors beyond 18 minutes count in the last one"
    ),
    bound!(
        Batches,
        "execution times kept of an application",
        count(crate::distribution::learner::SAMPLES_MAX),
        "the oldest is forgotten"
    ),
    bound!(
        Batches,
        "bins of a distribution",
        count(crate::distribution::BINS_MAX),
        "refused"
    ),
    bound!(
        Models,
        "models of a family",
        count(crate::family::MEMBERS_MAX),
        "an error with its line"
    ),
    bound!(
        Models,
        "groups of classes that the options of a module name",
        count(crate::catalog::GROUPS_MAX),
        "an error with its line",
        "modules.NAME.options"
    ),
    bound!(
        Models,
        "classes of such a group",
        count(crate::catalog::GROUP_TEXTS_MAX),
        "an error with its line",
        "modules.NAME.options"
    ),
    bound!(
        Variants,
        "variants of a module",
        count(crate::spec::VARIANTS_MAX),
        "an error with its line"
    ),
    bound!(
        Processes,
        "objects in a value of a peer",
        count(crate::spec::OBJECTS_MAX),
        "the packet is refused"
    ),
    bound!(
        Operation,
        "a pipeline file, a topology, or another document",
        bytes(crate::document::DOCUMENT_BYTES_MAX),
        "an error"
    ),
    bound!(
        Operation,
        "nodes of a document",
        count(crate::document::DOCUMENT_NODES_MAX),
        "an error with its line"
    ),
    bound!(
        Operation,
        "depth of a document",
        count(crate::document::DOCUMENT_DEPTH_MAX),
        "an error with its line"
    ),
    bound!(
        Operation,
        "a value of an environment variable in a document",
        bytes(crate::variables::VALUE_BYTES_MAX),
        "an error with its line"
    ),
    bound!(
        Operation,
        "errors of a document",
        count(crate::diagnostic::PROBLEMS_MAX),
        "no more are looked for"
    ),
];
