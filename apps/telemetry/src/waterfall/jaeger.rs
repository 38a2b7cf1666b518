//! Jaeger's JSON (`/api/traces/{id}`, the form its own page reads) as a [`Trace`]. Times are in
//! microseconds there; spans come in any order, and a parent may be missing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use spillgate_pipeline::printable::printable_line;

use super::{Event, Link, Part, Span, Trace, TraceError};

#[derive(Deserialize)]
struct Answer {
    data: Option<Vec<JaegerTrace>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JaegerTrace {
    #[serde(rename = "traceID")]
    trace_id: String,
    spans: Vec<JaegerSpan>,
    #[serde(default)]
    processes: BTreeMap<String, Process>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    service_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JaegerSpan {
    #[serde(rename = "spanID")]
    span_id: String,
    operation_name: String,
    #[serde(default)]
    references: Vec<Reference>,
    start_time: u64,
    duration: u64,
    #[serde(default)]
    tags: Vec<Field>,
    #[serde(default)]
    logs: Vec<Log>,
    #[serde(rename = "processID", default)]
    process_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    ref_type: String,
    #[serde(rename = "traceID")]
    trace_id: String,
    #[serde(rename = "spanID")]
    span_id: String,
}

#[derive(Deserialize)]
struct Field {
    key: String,
    value: Value,
}

#[derive(Deserialize)]
struct Log {
    timestamp: u64,
    fields: Vec<Field>,
}

pub(super) fn read(json: &str) -> Result<Trace, TraceError> {
    let answer: Answer =
        serde_json::from_str(json).map_err(|error| TraceError::Answer(error.to_string()))?;
    let trace = answer.data.unwrap_or_default().into_iter().next();
    let trace = trace.ok_or_else(|| TraceError::Answer("it holds no trace".to_owned()))?;
    let starts = trace.spans.iter().map(|span| span.start_time);
    let ends = trace
        .spans
        .iter()
        .map(|span| span.start_time.saturating_add(span.duration));
    let (Some(start), Some(end)) = (starts.min(), ends.max()) else {
        return Err(TraceError::Answer("the trace holds no span".to_owned()));
    };
    let spans = in_order(&trace, start);
    let first = trace.spans.iter().min_by_key(|span| span.start_time);
    let process = first.and_then(|span| trace.processes.get(&span.process_id));
    Ok(Trace {
        service: process.map_or_else(String::new, |p| {
            printable_line(&p.service_name).into_owned()
        }),
        length: Duration::from_micros(end - start),
        spans,
        id: printable_line(&trace.trace_id).into_owned(),
    })
}

/// The parent that is in this trace, if any.
fn parent(trace: &JaegerTrace, span: &JaegerSpan) -> Option<usize> {
    let is_parent = |r: &&Reference| r.ref_type == "CHILD_OF" && r.trace_id == trace.trace_id;
    let parent = &span.references.iter().find(is_parent)?.span_id;
    trace
        .spans
        .iter()
        .position(|other| other.span_id == *parent && other.span_id != span.span_id)
}

/// All spans, depth first. It does not recurse, and takes each span once, whatever the answer claims of parents.
fn in_order(trace: &JaegerTrace, start: u64) -> Vec<Span> {
    let parents: Vec<Option<usize>> = trace.spans.iter().map(|s| parent(trace, s)).collect();
    let children_of = |parent: Option<usize>| {
        let mut children: Vec<usize> = (0..trace.spans.len())
            .filter(|idx| parents[*idx] == parent)
            .collect();
        // Of spans that start together the shorter one first: a part of length zero comes before the next part.
        children.sort_by_key(|idx| {
            let span = &trace.spans[*idx];
            (span.start_time, span.duration, &span.operation_name)
        });
        children
    };
    let mut spans = Vec::with_capacity(trace.spans.len());
    let mut open: Vec<(usize, Vec<bool>)> = Vec::new();
    let push = |open: &mut Vec<(usize, Vec<bool>)>, children: Vec<usize>, above: &[bool]| {
        for (n_after, idx) in children.into_iter().rev().enumerate() {
            let continues = above.iter().copied().chain([n_after > 0]).collect();
            open.push((idx, continues));
        }
    };
    push(&mut open, children_of(None), &[]);
    while let Some((idx, continues)) = open.pop() {
        push(&mut open, children_of(Some(idx)), &continues);
        spans.push(convert(
            &trace.spans[idx],
            &trace.trace_id,
            start,
            continues,
        ));
    }
    spans
}

fn convert(span: &JaegerSpan, trace_id: &str, start: u64, continues: Vec<bool>) -> Span {
    let after = |at: u64| Duration::from_micros(at.saturating_sub(start));
    let tags: Vec<(String, String)> = span
        .tags
        .iter()
        .map(|tag| (tag.key.clone(), text(&tag.value)))
        .collect();
    let tag = |key: &str| {
        tags.iter()
            .find(|(k, _)| k == key)
            .map(|(_, value)| value.clone())
    };
    let is_error = tag("otel.status_code").is_some_and(|code| code == "ERROR");
    let error =
        is_error.then(|| tag("otel.status_description").unwrap_or_else(|| "failed".to_owned()));
    let linked = span.references.iter().filter(|r| r.trace_id != trace_id);
    Span {
        name: printable_line(&span.operation_name).into_owned(),
        part: Part::of(&span.operation_name),
        continues,
        start: after(span.start_time),
        length: Duration::from_micros(span.duration),
        events: span
            .logs
            .iter()
            .map(|log| event(log, after(log.timestamp)))
            .collect(),
        links: linked
            .map(|r| Link {
                trace: printable_line(&r.trace_id).into_owned(),
                span: printable_line(&r.span_id).into_owned(),
            })
            .collect(),
        tags,
        error,
    }
}

fn event(log: &Log, at: Duration) -> Event {
    let field = |key: &str| {
        log.fields
            .iter()
            .find(|f| f.key == key)
            .map(|f| text(&f.value))
    };
    let all = || {
        let others = log.fields.iter().filter(|field| field.key != "event");
        others
            .map(|f| format!("{}={}", printable_line(&f.key).into_owned(), text(&f.value)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    Event {
        at,
        name: field("event").unwrap_or_else(|| "event".to_owned()),
        text: field("message").unwrap_or_else(all),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => printable_line(text).into_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(json_spans: &str) -> Vec<(String, usize)> {
        let json = format!(r#"{{"data":[{{"traceID":"a","spans":[{json_spans}]}}]}}"#);
        read(&json)
            .unwrap()
            .spans
            .iter()
            .map(|s| (s.name.clone(), s.depth()))
            .collect()
    }

    fn span(id: &str, parent: &str, start: u64) -> String {
        format!(
            r#"{{"spanID":"{id}","operationName":"{id}","startTime":{start},"duration":1,
               "references":[{{"refType":"CHILD_OF","traceID":"a","spanID":"{parent}"}}]}}"#
        )
    }

    #[test]
    fn a_missing_parent_makes_a_root() {
        let json = [span("x", "gone", 5), span("y", "x", 6)].join(",");
        assert_eq!(spans(&json), [("x".to_owned(), 0), ("y".to_owned(), 1)]);
    }

    #[test]
    fn spans_that_claim_each_other_as_parent_do_no_harm() {
        let json = [span("x", "y", 5), span("y", "x", 6), span("z", "z", 7)].join(",");
        assert_eq!(spans(&json), [("z".to_owned(), 0)]);
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        let json = r#"{"spanID":"x","operationName":"\u001b[2Jx","startTime":1,"duration":1}"#;
        assert_eq!(spans(json), [("\u{fffd}[2Jx".to_owned(), 0)]);
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"data":null}"#,
            r#"{"data":[{"traceID":"a","spans":[]}]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
