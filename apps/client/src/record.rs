//! Results as JSON lines: one object a frame, for other programs.
//!
//! Field names are a published format: they are added, never changed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value as Json, json};
use spillgate_proto::pb;
use spillgate_proto::pb::value::Value;
use spillgate_scenes::score::{Counts, MeanF1};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::tally::outcome_word;

/// How a frame was sent, as far as its client knows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SentAs {
    /// Its longer side in pixels.
    pub side: Option<u32>,
    /// Its bytes.
    pub bytes: Option<usize>,
    /// Bits a second that the link to the server carried then.
    pub bandwidth: Option<f64>,
}

/// Where a frame comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Origin {
    /// Its time by its source's own clock, in seconds, where there is one.
    pub media: Option<f64>,
    /// Its number in the source, from 0, those included that were not sent.
    pub number: u64,
}

/// A frame that ended, from the client's view. Times count from the start of the run.
#[derive(Clone, Debug)]
pub struct FrameEnd {
    /// The client that sent it, and its name.
    pub client: usize,
    /// Name of that client.
    pub name: Arc<str>,
    /// Where it comes from; `None` where no source gave it.
    pub origin: Option<Origin>,
    /// When it was due.
    pub due: Duration,
    /// When it was sent; `None` when it could not be.
    pub sent: Option<Duration>,
    /// How it was sent.
    pub sent_as: SentAs,
    /// When its end was known.
    pub ended: Duration,
    /// The server's answer, or the client's own account when there was none.
    pub result: pb::Result,
}

impl FrameEnd {
    /// From the moment it was due until its end was known.
    pub fn latency(&self) -> Duration {
        self.ended.saturating_sub(self.due)
    }

    /// One line of JSON, without a line feed; the run started at this wall time. `detection` compares what came in time with what the frame shows, where that is
    /// known.
    pub fn to_json_line(&self, started: SystemTime, detection: Option<&MeanF1>) -> String {
        let result = &self.result;
        let mut line = Map::new();
        let mut put = |name: &str, value: Json| line.insert(name.to_owned(), value);
        put("client", self.client.into());
        put("name", (*self.name).into());
        put("frame", result.number.into());
        put("wall_time", wall(started + self.due).into());
        if let Some(origin) = self.origin {
            put("source_frame", origin.number.into());
            if let Some(media) = origin.media {
                put("media_ms", rounded(media * 1e3));
            }
        }
        put("outcome", outcome_word(result.outcome()).into());
        put("due_ms", milliseconds(self.due));
        put("sent_ms", self.sent.map_or(Json::Null, milliseconds));
        if let Some(side) = self.sent_as.side {
            put("side", side.into());
        }
        if let Some(bytes) = self.sent_as.bytes {
            put("bytes", bytes.into());
        }
        if let Some(bandwidth) = self.sent_as.bandwidth {
            put("bandwidth_mbps", rounded(bandwidth / 1e6));
        }
        put("latency_ms", milliseconds(self.latency()));
        put("server_latency_ms", rounded(result.latency_ms));
        if !result.reason.is_empty() {
            put("module", result.module.as_str().into());
            put("reason", result.reason.as_str().into());
            put("detail", result.detail.as_str().into());
            put("code", result.code.into());
        }
        if !result.trace_id.is_empty() {
            put("trace_id", result.trace_id.as_str().into());
            put("trace_sampled", result.trace_sampled.into());
        }
        put("emulated", result.emulated.into());
        if result.width > 0 {
            put("width", result.width.into());
            put("height", result.height.into());
        }
        if !result.damage.is_empty() {
            put("damage", result.damage.as_str().into());
        }
        if let Some(detection) = detection {
            put("detection", detection_to_json(detection));
        }
        let mut names: Vec<&String> = result.outputs.keys().collect();
        names.sort();
        let outputs: Map<String, Json> = names
            .into_iter()
            .map(|n| (n.clone(), value_to_json(&result.outputs[n])))
            .collect();
        put("outputs", outputs.into());
        put(
            "timings",
            result.timings.iter().map(timing_to_json).collect(),
        );
        Json::Object(line).to_string()
    }
}

/// RFC 3339, in UTC, to the millisecond.
fn wall(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let to_ms = UNIX_EPOCH + Duration::from_millis(since.as_millis() as u64);
    OffsetDateTime::from(to_ms)
        .format(&Rfc3339)
        .unwrap_or_default()
}

fn milliseconds(span: Duration) -> Json {
    rounded(span.as_secs_f64() * 1e3)
}

fn rounded(ms: f64) -> Json {
    json!((ms * 1e3).round() / 1e3)
}

/// One number for each overlap, from lenient to strict.
fn detection_to_json(detection: &MeanF1) -> Json {
    let each =
        |count: fn(&Counts) -> u64| -> Json { detection.counts().iter().map(count).collect() };
    json!({
        "found": each(|c| c.found),
        "missed": each(|c| c.missed),
        "spurious": each(|c| c.spurious),
    })
}

fn timing_to_json(timing: &pb::ModuleTiming) -> Json {
    json!({
        "module": timing.module,
        "arrived_ms": rounded(timing.arrived_ms),
        "queueing_ms": rounded(timing.queueing_ms),
        "batch_wait_ms": rounded(timing.batch_wait_ms),
        "execution_ms": rounded(timing.execution_ms),
        "batch_size": timing.batch_size,
    })
}

/// Of pictures and bytes only the size is written.
fn value_to_json(value: &pb::Value) -> Json {
    match &value.value {
        None => Json::Null,
        Some(Value::Boxes(list)) => list
            .boxes
            .iter()
            .map(|b| {
                let corners = [b.x0, b.y0, b.x1, b.y1].map(short);
                json!({ "box": corners, "label": b.label, "score": short(b.score) })
            })
            .collect(),
        Some(Value::Texts(list)) => list
            .texts
            .iter()
            .map(|t| {
                let text = json!({ "text": t.text, "score": short(t.score) });
                of_object(text, t.object, &list.objects)
            })
            .collect(),
        Some(Value::Labels(list)) => list
            .labels
            .iter()
            .map(|l| {
                let label = json!({ "label": l.label, "score": short(l.score) });
                of_object(label, l.object, &list.objects)
            })
            .collect(),
        Some(Value::Tensor(tensor)) => json!({ "shape": tensor.shape, "data": tensor.data }),
        Some(Value::Data(data)) => json!({ "bytes": data.len() }),
        Some(Value::Picture(picture)) => json!({ "picture": [picture.width, picture.height] }),
    }
}

/// Adds the output and the box that it belongs to, where that is known.
fn of_object(mut item: Json, object: Option<u32>, objects: &str) -> Json {
    if let Some(object) = object {
        item["object"] = object.into();
        if !objects.is_empty() {
            item["of"] = objects.into();
        }
    }
    item
}

/// Four decimals: a hundredth of a pixel or of a percent is precise enough.
fn short(value: f32) -> Json {
    json!((f64::from(value) * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_line_has_everything_of_a_result() {
        let text = pb::Value {
            value: Some(Value::Texts(pb::TextList {
                texts: vec![pb::Text {
                    text: "AB12".into(),
                    score: 0.9,
                    object: Some(1),
                }],
                objects: "vehicles".into(),
            })),
        };
        let end = FrameEnd {
            client: 2,
            name: "gate".into(),
            origin: Some(Origin {
                media: Some(1.28),
                number: 9,
            }),
            due: Duration::from_millis(40),
            sent: Some(Duration::from_micros(40_250)),
            sent_as: SentAs {
                side: Some(640),
                bytes: Some(81_000),
                bandwidth: Some(15.2e6),
            },
            ended: Duration::from_millis(65),
            result: pb::Result {
                number: 7,
                outcome: pb::Outcome::Completed.into(),
                latency_ms: 20.5,
                outputs: HashMap::from([("plates".to_owned(), text)]),
                ..Default::default()
            },
        };
        let none = vec![0; 10];
        let line = end.to_json_line(
            UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            Some(&MeanF1::default()),
        );
        assert!(!line.contains('\n'));
        let back: Json = serde_json::from_str(&line).unwrap();
        assert_eq!(
            back,
            json!({
                "client": 2, "name": "gate", "frame": 7, "wall_time": "2027-01-15T08:00:00.04Z", "source_frame": 9, "media_ms": 1280.0, "outcome": "completed", "due_ms": 40.0, "sent_ms": 40.25, "side": 640, "bytes": 81_000,
                "bandwidth_mbps": 15.2, "detection": { "found": none, "missed": none, "spurious": none },
                "latency_ms": 25.0, "server_latency_ms": 20.5, "emulated": false,
                "outputs": { "plates": [{ "text": "AB12", "score": 0.9, "object": 1, "of": "vehicles" }] }, "timings": [],
            })
        );
    }

    #[test]
    fn a_drop_says_where_and_why() {
        let end = FrameEnd {
            client: 0,
            name: "gate".into(),
            origin: None,
            due: Duration::ZERO,
            sent: None,
            sent_as: SentAs::default(),
            ended: Duration::ZERO,
            result: pb::Result {
                outcome: pb::Outcome::Dropped.into(),
                code: 4,
                module: "detect".into(),
                reason: "estimate".into(),
                detail: "needs 50ms, has 20ms".into(),
                ..Default::default()
            },
        };
        let back: Json = serde_json::from_str(&end.to_json_line(UNIX_EPOCH, None)).unwrap();
        assert_eq!(back["outcome"], "dropped");
        assert_eq!(back.get("detection"), None);
        assert_eq!(back["module"], "detect");
        assert_eq!(back["reason"], "estimate");
        assert_eq!(back["sent_ms"], Json::Null);
    }
}
