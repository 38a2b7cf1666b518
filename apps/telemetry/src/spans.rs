//! Spans of a request and of a batch, made after they have ended.
//!
//! ```text
//! request                       root; under the client's span when it sent one
//! ├ module source               arrival at the worker until the batch ended
//! │ ├ queueing                  Q
//! │ │ └ load                    where it waited for the weights of its model
//! │ ├ batch wait                W
//! │ └ execution                 D; linked to the span of the batch
//! ├ transit                     in a topology: what came from another process, until the next module or the end
//! └ module detect
//!   └ (event) drop              where it was dropped: reason, budget, estimate
//! batch detect                  a trace of its own
//! ```
//!
//! A module at which a request was dropped or failed has no recorded arrival. Its span begins when its inputs were
//! ready (the last of the modules before it ended); if they were not, it has length zero.

mod drop_event;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Link, SpanId, SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ModuleId, WorkerId};
use spillgate_pipeline::request::{ModuleTimes, Outcome};
use spillgate_pipeline::time::Timestamp;

use crate::entry::{BatchEntry, RequestEntry};
use crate::ids::{BatchSpanId, IdGenerator, span_context};
use crate::processes::KnownProcesses;

/// Makes spans. Owned by the exporter's thread.
pub(crate) struct SpanBuilder {
    /// `Timestamp::ZERO` on the wall clock.
    epoch: SystemTime,
    ids: IdGenerator,
    processes: KnownProcesses,
    scope: InstrumentationScope,
}

/// The position of a span in its trace.
#[derive(Clone, Copy)]
struct Place {
    trace: u128,
    parent: u64,
    start: Timestamp,
    end: Timestamp,
}

impl SpanBuilder {
    /// Ids of spans follow from `seed`.
    pub(crate) fn new(seed: u64, processes: KnownProcesses) -> Self {
        SpanBuilder {
            epoch: SystemTime::UNIX_EPOCH,
            ids: IdGenerator::new(seed),
            processes,
            scope: InstrumentationScope::builder("spillgate")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }

    /// Times of spans are counted from here on.
    pub(crate) fn set_epoch(&mut self, epoch: SystemTime) {
        self.epoch = epoch;
    }

    /// Appends the spans of a request.
    pub(crate) fn request(&self, entry: &RequestEntry, out: &mut Vec<SpanData>) {
        let place = Place {
            trace: entry.trace.trace_id,
            parent: entry.trace.parent_span_id,
            start: entry.admitted_at,
            end: entry.ended_at,
        };
        let mut root = self.span("request", place);
        root.span_kind = SpanKind::Server;
        root.parent_span_is_remote = place.parent != 0;
        root.attributes = root_attributes(entry);
        if let Some(processes) = self.processes.get() {
            root.attributes.push(process(&processes.here));
        }
        root.status = failure(entry);
        let root_id = u64::from_be_bytes(root.span_context.span_id().to_bytes());
        out.push(root);

        let first = out.len();
        for times in &entry.times {
            let ready = last_before(entry, times.module);
            self.transit(entry, ready, times.arrived_at, root_id, out);
            self.module(entry, times, root_id, out);
        }
        if matches!(entry.outcome, Outcome::Completed | Outcome::Late) {
            let last = entry.times.iter().max_by_key(|times| times.ended_at);
            self.transit(entry, last, entry.ended_at, root_id, out);
        }
        let Some(module) = ended_at(entry) else {
            return;
        };
        let name = module_span_name(entry, module);
        let known = out[first..].iter().position(|span| span.name == name);
        let idx = known.map_or(out.len(), |idx| first + idx);
        if known.is_none() {
            out.push(self.unfinished_module(entry, module, name, root_id));
        }
        let span = &mut out[idx];
        match entry.outcome {
            Outcome::Dropped(drop) => {
                span.events
                    .events
                    .push(drop_event::event(&drop, self.at(drop.at)));
            }
            Outcome::Failed { .. } => span.status = failure(entry),
            Outcome::Completed | Outcome::Late => {}
        }
    }

    /// A worker as all processes of a set name it.
    fn position(&self, pipeline: &Arc<Pipeline>, worker: WorkerId) -> WorkerId {
        match self.processes.get() {
            Some(processes) => processes.position(pipeline, worker),
            None => worker,
        }
    }

    /// The span of a batch.
    pub(crate) fn batch(&self, entry: &BatchEntry) -> SpanData {
        let BatchEntry { pipeline, record } = entry;
        let worker = self.position(pipeline, record.worker);
        let id = BatchSpanId::of(record.incarnation, &pipeline.name, worker, record.batch);
        let place = Place {
            trace: id.trace,
            parent: 0,
            start: record.started_at,
            end: record.ended_at,
        };
        let mut span = self.span(
            format!("batch {}", module_name(pipeline, record.module)),
            place,
        );
        span.span_context = id.context();
        let expected = record.expected_end.since(record.started_at);
        let measured = record.ended_at.since(record.started_at);
        let error_ms = record.ended_at.budget_at(record.expected_end).as_ms_f64();
        let completion_ms = record.ended_at.budget_at(record.reported_end).as_ms_f64();
        span.attributes = vec![
            KeyValue::new("spillgate.pipeline", pipeline.name.clone()),
            KeyValue::new("spillgate.module", module_name(pipeline, record.module)),
            KeyValue::new("spillgate.device", i64::from(record.device.0)),
            KeyValue::new("spillgate.batch", record.batch.0 as i64),
            KeyValue::new("spillgate.batch_size", i64::from(record.size)),
            KeyValue::new("spillgate.expected_ms", milliseconds(expected)),
            KeyValue::new("spillgate.measured_ms", milliseconds(measured)),
            KeyValue::new("spillgate.prediction_error_ms", error_ms),
            KeyValue::new("spillgate.completion_error_ms", completion_ms),
        ];
        let module = pipeline.modules.get(record.module.idx());
        if module.is_some_and(|module| module.variants.len() > 1) {
            let variant = i64::from(record.variant.0);
            let variant = KeyValue::new("spillgate.variant", variant);
            span.attributes.push(variant);
        }
        if let Some(processes) = self.processes.get() {
            span.attributes.push(process(&processes.here));
        }
        span
    }

    /// The time in which what another process brought came here, and from here to where it was needed.
    fn transit(
        &self,
        entry: &RequestEntry,
        from: Option<&ModuleTimes>,
        until: Timestamp,
        root: u64,
        out: &mut Vec<SpanData>,
    ) {
        let (Some(processes), Some(from)) = (self.processes.get(), from) else {
            return;
        };
        let name = processes.of(&entry.pipeline, from.worker);
        if name == processes.here {
            return;
        }
        let place = Place {
            trace: entry.trace.trace_id,
            parent: root,
            start: from.ended_at,
            end: until,
        };
        let mut span = self.span("transit", place);
        span.attributes = vec![KeyValue::new("spillgate.from", name.to_string())];
        out.push(span);
    }

    fn module(
        &self,
        entry: &RequestEntry,
        times: &ModuleTimes,
        root: u64,
        out: &mut Vec<SpanData>,
    ) {
        let trace = entry.trace.trace_id;
        let place = Place {
            trace,
            parent: root,
            start: times.arrived_at,
            end: times.ended_at,
        };
        let mut span = self.span(module_span_name(entry, times.module), place);
        span.attributes = vec![
            KeyValue::new(
                "spillgate.module",
                module_name(&entry.pipeline, times.module),
            ),
            KeyValue::new("spillgate.worker", i64::from(times.worker.0)),
            KeyValue::new("spillgate.batch_size", i64::from(times.batch_size)),
        ];
        if let Some(processes) = self.processes.get() {
            let of = processes.of(&entry.pipeline, times.worker);
            span.attributes.push(process(&of));
        }
        let parent = u64::from_be_bytes(span.span_context.span_id().to_bytes());
        out.push(span);

        let part = |name, start, end| {
            self.span(
                name,
                Place {
                    trace,
                    parent,
                    start,
                    end,
                },
            )
        };
        let queueing = part("queueing", times.arrived_at, times.batched_at);
        let batch_wait = part("batch wait", times.batched_at, times.started_at);
        if let Some(load) = times.load {
            let within = match load.to <= times.batched_at {
                true => &queueing,
                false => &batch_wait,
            };
            let parent = u64::from_be_bytes(within.span_context.span_id().to_bytes());
            let place = Place {
                trace,
                parent,
                // What was read before it came, it did not wait for.
                start: load.from.max(times.arrived_at),
                end: load.to,
            };
            let mut span = self.span("load", place);
            let cause = load.cause.name();
            span.attributes = vec![KeyValue::new("spillgate.load.cause", cause)];
            out.push(span);
        }
        out.push(queueing);
        out.push(batch_wait);
        let mut execution = part("execution", times.started_at, times.ended_at);
        execution.attributes = vec![
            KeyValue::new("spillgate.batch", times.batch.0 as i64),
            KeyValue::new("spillgate.batch_size", i64::from(times.batch_size)),
        ];
        let worker = self.position(&entry.pipeline, times.worker);
        let pipeline = &entry.pipeline.name;
        let batch = BatchSpanId::of(times.incarnation, pipeline, worker, times.batch);
        let link = Link::with_context(batch.context());
        execution.links.links.push(link);
        out.push(execution);
    }

    /// The span of a module that a request reached but did not leave.
    fn unfinished_module(
        &self,
        entry: &RequestEntry,
        module: ModuleId,
        name: String,
        parent: u64,
    ) -> SpanData {
        let end = match entry.outcome {
            Outcome::Dropped(drop) => drop.at,
            _ => entry.ended_at,
        };
        let start = inputs_ready_at(entry, module).map_or(end, |start| start.min(end));
        let place = Place {
            trace: entry.trace.trace_id,
            parent,
            start,
            end,
        };
        let mut span = self.span(name, place);
        span.attributes = vec![KeyValue::new(
            "spillgate.module",
            module_name(&entry.pipeline, module),
        )];
        span
    }

    fn span(&self, name: impl Into<std::borrow::Cow<'static, str>>, place: Place) -> SpanData {
        SpanData {
            span_context: span_context(place.trace, self.ids.next_u64()),
            parent_span_id: SpanId::from_bytes(place.parent.to_be_bytes()),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: self.at(place.start),
            end_time: self.at(place.end.max(place.start)),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }

    fn at(&self, time: Timestamp) -> SystemTime {
        self.epoch + Duration::from_nanos(time.as_ns())
    }
}

fn process(name: &str) -> KeyValue {
    KeyValue::new("spillgate.process", name.to_owned())
}

/// Of the modules before this one, the one that ended last.
fn last_before(entry: &RequestEntry, module: ModuleId) -> Option<&ModuleTimes> {
    if module == ModuleId::SOURCE || module.idx() >= entry.pipeline.modules.len() {
        return None;
    }
    let before = entry.pipeline.predecessors(module);
    let times = entry.times.iter();
    let ended = times.filter(|times| before.contains(&times.module));
    ended.max_by_key(|times| times.ended_at)
}

fn root_attributes(entry: &RequestEntry) -> Vec<KeyValue> {
    let pipeline = &entry.pipeline;
    let budget = entry.request.deadline.budget_at(entry.admitted_at);
    let mut attributes = vec![
        KeyValue::new("spillgate.pipeline", pipeline.name.clone()),
        KeyValue::new("spillgate.frame", entry.number as i64),
        KeyValue::new("spillgate.request", entry.request.id.0 as i64),
        KeyValue::new("spillgate.outcome", entry.outcome.label()),
        match entry.request.background {
            true => KeyValue::new("spillgate.background", true),
            false => KeyValue::new("spillgate.slo_ms", milliseconds(pipeline.slo)),
        },
        KeyValue::new("spillgate.budget_ms", budget.as_ms_f64()),
    ];
    if !entry.client.is_empty() {
        attributes.push(KeyValue::new("spillgate.client", entry.client.clone()));
    }
    if let Some(module) = ended_at(entry) {
        attributes.push(KeyValue::new(
            "spillgate.ended_at",
            module_name(pipeline, module),
        ));
    }
    if let Outcome::Dropped(drop) = entry.outcome {
        attributes.push(KeyValue::new("spillgate.drop.reason", drop.reason.label()));
    }
    attributes
}

/// The module at which a request ended early.
fn ended_at(entry: &RequestEntry) -> Option<ModuleId> {
    match entry.outcome {
        Outcome::Dropped(drop) => Some(drop.module),
        Outcome::Failed { module } => Some(module),
        Outcome::Completed | Outcome::Late => None,
    }
}

fn failure(entry: &RequestEntry) -> Status {
    match entry.outcome {
        Outcome::Failed { .. } => Status::error(
            entry
                .error
                .as_deref()
                .unwrap_or("the module failed")
                .to_owned(),
        ),
        _ => Status::Unset,
    }
}

/// When the last of the modules before this one ended; for the source, when the request was admitted.
fn inputs_ready_at(entry: &RequestEntry, module: ModuleId) -> Option<Timestamp> {
    match module {
        ModuleId::SOURCE => Some(entry.admitted_at),
        module => last_before(entry, module).map(|times| times.ended_at),
    }
}

fn module_span_name(entry: &RequestEntry, module: ModuleId) -> String {
    format!("module {}", module_name(&entry.pipeline, module))
}

fn module_name(pipeline: &spillgate_pipeline::Pipeline, module: ModuleId) -> String {
    pipeline
        .modules
        .get(module.idx())
        .map_or_else(|| module.to_string(), |m| m.name.clone())
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests;
