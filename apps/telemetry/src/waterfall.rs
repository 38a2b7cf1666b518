//! `spillgate trace ID`: a trace fetched from Jaeger and drawn, in the terminal or as a picture.
//!
//! [`fetch`] asks Jaeger's query API and gives a [`Trace`]; [`Trace::from_json`] reads a stored answer.
//! [`Trace::to_text`] and [`Trace::to_svg`] draw it. Spans of other programs (a client's) are drawn as well; only
//! colours and hatching depend on Spillgate's names.
//!
//! Not here: search of traces, TLS, other back ends than Jaeger.

mod jaeger;
mod svg;
mod text;

use spillgate_pipeline::address;
use std::time::Duration;

/// How long Jaeger may take to answer.
pub(crate) const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read: thousands of times the size of one of our traces.
pub(crate) const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Where Jaeger's query API listens in the set-ups of `deploy/`.
pub const DEFAULT_JAEGER: &str = "http://127.0.0.1:26686";

/// A trace, its spans in the order in which they are drawn.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its id, 32 hexadecimal digits.
    pub id: String,
    /// The service of its first span.
    pub service: String,
    /// From the first start to the last end.
    pub length: Duration,
    /// Depth first, children by their start.
    pub spans: Vec<Span>,
}

/// A span as drawn.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Which part of the work it is.
    pub part: Part,
    /// For each level above it and its own: whether more siblings follow there.
    pub continues: Vec<bool>,
    /// After the start of the trace.
    pub start: Duration,
    /// Its length.
    pub length: Duration,
    /// Key and value, as sent.
    pub tags: Vec<(String, String)>,
    /// Its events.
    pub events: Vec<Event>,
    /// Spans of other traces that it belongs to, such as its batch.
    pub links: Vec<Link>,
    /// The error, when its status is an error.
    pub error: Option<String>,
}

/// The meaning of a Spillgate span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole request.
    Request,
    /// One module.
    Module,
    /// Q.
    Queueing,
    /// W.
    BatchWait,
    /// D.
    Execution,
    /// Anything else: a batch, or a span of another program.
    Other,
}

impl Part {
    fn of(name: &str) -> Self {
        match name {
            "request" => Part::Request,
            "queueing" => Part::Queueing,
            "batch wait" => Part::BatchWait,
            "execution" => Part::Execution,
            _ if name.starts_with("module ") => Part::Module,
            _ => Part::Other,
        }
    }
}

/// An event of a span.
#[derive(Clone, Debug)]
pub struct Event {
    /// After the start of the trace.
    pub at: Duration,
    /// Its name.
    pub name: String,
    /// Its message, or its attributes.
    pub text: String,
}

/// A link to a span of another trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// That trace.
    pub trace: String,
    /// The span in it.
    pub span: String,
}

/// Why there is no trace to draw.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The id is malformed.
    #[error("\"{0}\" is no trace id; it has up to 32 hexadecimal digits")]
    Id(String),
    /// Jaeger was not reached.
    #[error(
        "cannot ask Jaeger at {url}: {reason}; `cargo xtask jaeger` starts one in a clone, `docker compose -f \
         deploy/compose.yaml up` another (then --jaeger http://127.0.0.1:16686); `spillgate serve --otlp URL` sends \
         traces to it"
    )]
    Unreachable {
        /// The URL asked.
        url: String,
        /// The error.
        reason: String,
    },
    /// Jaeger does not have the trace.
    #[error(
        "Jaeger at {jaeger} has no trace {id}; it may not have been sampled, or not yet arrived"
    )]
    Unknown {
        /// Jaeger's address.
        jaeger: String,
        /// The trace asked for.
        id: String,
    },
    /// The answer is not one of Jaeger's.
    #[error("cannot read the answer: {0}")]
    Answer(String),
}

impl Span {
    /// Nesting; 0 for a root.
    pub fn depth(&self) -> usize {
        self.continues.len() - 1
    }

    /// The value of a tag.
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, value)| value.as_str())
    }
}

impl Trace {
    /// Reads an answer of Jaeger's `/api/traces/{id}`.
    ///
    /// # Errors
    /// When it is not such an answer or holds no span.
    pub fn from_json(json: &str) -> Result<Self, TraceError> {
        jaeger::read(json)
    }

    /// Draws it for a terminal of that many columns.
    pub fn to_text(&self, columns: usize) -> String {
        text::draw(self, columns)
    }

    /// Draws it as an SVG picture.
    pub fn to_svg(&self) -> String {
        svg::draw(self)
    }

    /// One line that describes the trace.
    fn title(&self) -> String {
        let mut title = self.service.clone();
        let tag = |key| self.spans.iter().find_map(|span| span.tag(key));
        let parts = [
            ("spillgate.pipeline", ""),
            ("spillgate.client", "client "),
            ("spillgate.frame", "frame "),
            ("spillgate.outcome", ""),
        ];
        for (key, prefix) in parts {
            if let Some(value) = tag(key) {
                title.push_str(&format!(" · {prefix}{value}"));
            }
        }
        title.push_str(&format!(" · {}", milliseconds(self.length)));
        if let Some(slo) = tag("spillgate.slo_ms") {
            title.push_str(&format!(" of {slo} ms"));
        }
        title
    }
}

/// Fetches a trace from Jaeger's query API at `jaeger` (`http://host:port`).
///
/// # Errors
/// When the id is malformed, Jaeger cannot be asked, or does not have the trace.
pub fn fetch(jaeger: &str, id: &str) -> Result<Trace, TraceError> {
    let jaeger = address::url(jaeger);
    if id.is_empty() || id.len() > 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(TraceError::Id(id.to_owned()));
    }
    let url = format!("{jaeger}/api/traces/{id}");
    let unreachable = |error: ureq::Error| TraceError::Unreachable {
        url: url.clone(),
        reason: error.to_string(),
    };
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(FETCH_TIMEOUT))
        .http_status_as_error(false)
        .build()
        .into();
    let mut answer = agent.get(&url).call().map_err(unreachable)?;
    if answer.status() == 404 {
        return Err(TraceError::Unknown {
            jaeger: jaeger.clone(),
            id: id.to_owned(),
        });
    }
    if !answer.status().is_success() {
        let reason = format!("it answers {}", answer.status());
        return Err(TraceError::Unreachable { url, reason });
    }
    let body = answer
        .body_mut()
        .with_config()
        .limit(ANSWER_BYTES_MAX)
        .read_to_string();
    Trace::from_json(&body.map_err(unreachable)?)
}

/// A length for people: `64.0 ms`, `320 µs`.
fn milliseconds(span: Duration) -> String {
    let us = span.as_micros();
    match us {
        0 => "0".to_owned(),
        1..1000 => format!("{us} µs"),
        1000..10_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// The tags that are shown beside a bar, in words.
fn notes(span: &Span) -> String {
    let mut notes = Vec::new();
    if let (Some(worker), Some(size)) = (
        span.tag("spillgate.worker"),
        span.tag("spillgate.batch_size"),
    ) {
        notes.push(format!("worker {worker}, batch of {size}"));
    }
    if let Some(process) = span.tag("spillgate.process") {
        notes.push(format!("in {process}"));
    }
    if let Some(from) = span.tag("spillgate.from") {
        notes.push(format!("from {from}"));
    }
    if let (Some(device), Some(size)) = (
        span.tag("spillgate.device"),
        span.tag("spillgate.batch_size"),
    ) {
        notes.push(format!("device {device}, {size} requests"));
    }
    if let Some(expected) = span.tag("spillgate.expected_ms") {
        notes.push(format!("expected {expected} ms"));
    }
    if let Some(error) = &span.error {
        notes.push(format!("error: {error}"));
    }
    notes.join(", ")
}
