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

/// An output as JSON. Of pictures and bytes only the size is written.
pub fn value_to_json(value: &pb::Value) -> Json {
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
                let mut text = json!({ "text": t.text, "score": short(t.score) });
                say_left_out(&mut text, t.left_out());
                of_object(text, t.object, &list.objects)
            })
            .collect(),
        Some(Value::Labels(list)) => list
            .labels
            .iter()
            .map(|l| {
                let mut label = json!({ "label": l.label, "score": short(l.score) });
                say_left_out(&mut label, l.left_out());
                of_object(label, l.object, &list.objects)
            })
            .collect(),
        Some(Value::Tensor(tensor)) => {
            let mut json = json!({ "shape": tensor.shape, "data": tensor.data });
            if !tensor.left_out.is_empty() {
                json["left_out"] = json!(tensor.left_out);
            }
            json
        }
        Some(Value::Masks(list)) => {
            let one = |mask: &pb::Mask| {
                let polygons = mask.polygons.iter().map(|p| points_to_json(&p.points));
                let json = json!({ "polygons": polygons.collect::<Json>() });
                of_object(json, mask.object, &list.objects)
            };
            list.masks.iter().map(one).collect()
        }
        Some(Value::Keypoints(list)) => {
            let one = |of: &pb::Keypoints| {
                let scores = of.scores.iter().map(|score| short(*score));
                let json = json!({
                    "points": points_to_json(&of.points),
                    "scores": scores.collect::<Json>(),
                });
                of_object(json, of.object, &list.objects)
            };
            list.keypoints.iter().map(one).collect()
        }
        Some(Value::Embeddings(list)) => {
            let one = |of: &pb::Embedding| {
                let mut json = json!({ "embedding": of.values });
                say_left_out(&mut json, of.left_out());
                of_object(json, of.object, &list.objects)
            };
            list.embeddings.iter().map(one).collect()
        }
        Some(Value::Data(data)) => json!({ "bytes": data.len() }),
        Some(Value::Picture(picture)) => json!({ "picture": [picture.width, picture.height] }),
    }
}

/// Column and row of each point. A number without its row is left out: no server sends one.
fn points_to_json(points: &[f32]) -> Json {
    let pairs = points.as_chunks().0.iter();
    pairs.map(|[x, y]| json!([short(*x), short(*y)])).collect()
}

/// Adds why there is no answer for its box, if there is none.
fn say_left_out(item: &mut Json, why: pb::LeftOut) {
    match why {
        pb::LeftOut::None => {}
        pb::LeftOut::NoArea => item["left_out"] = "no_area".into(),
        pb::LeftOut::OverLimit => item["left_out"] = "over_limit".into(),
        pb::LeftOut::NoNumber => item["left_out"] = "no_number".into(),
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
                    ..Default::default()
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

    fn json_of(value: Value) -> Json {
        value_to_json(&pb::Value { value: Some(value) })
    }

    #[test]
    fn masks_key_points_and_embeddings_name_their_objects() {
        let polygon = |points: &[f32]| pb::Polygon {
            points: points.to_vec(),
        };
        let mask = pb::Mask {
            polygons: vec![polygon(&[1.0, 2.0, 3.0, 2.0, 3.0, 4.5]), polygon(&[])],
            object: Some(0),
        };
        let masks = Value::Masks(pb::MaskList {
            masks: vec![mask],
            objects: "people".into(),
        });
        assert_eq!(
            json_of(masks),
            json!([{ "polygons": [[[1.0, 2.0], [3.0, 2.0], [3.0, 4.5]], []], "object": 0, "of": "people" }])
        );
        let keypoints = pb::Keypoints {
            points: vec![10.0, 20.0, 30.0, 40.0],
            scores: vec![0.5, 1.0],
            object: Some(2),
        };
        let keypoints = Value::Keypoints(pb::KeypointList {
            keypoints: vec![keypoints],
            objects: String::new(),
        });
        assert_eq!(
            json_of(keypoints),
            json!([{ "points": [[10.0, 20.0], [30.0, 40.0]], "scores": [0.5, 1.0], "object": 2 }])
        );
        let embeddings = Value::Embeddings(pb::EmbeddingList {
            embeddings: vec![pb::Embedding {
                values: vec![0.5, -0.5],
                ..Default::default()
            }],
            objects: String::new(),
        });
        assert_eq!(json_of(embeddings), json!([{ "embedding": [0.5, -0.5] }]));
    }

    #[test]
    fn what_was_not_looked_at_says_why() {
        let over_limit = pb::LeftOut::OverLimit.into();
        let label = pb::Label {
            label: "unknown".into(),
            left_out: over_limit,
            ..Default::default()
        };
        let labels = Value::Labels(pb::LabelList {
            labels: vec![label],
            objects: String::new(),
        });
        assert_eq!(
            json_of(labels),
            json!([{ "label": "unknown", "score": 0.0, "left_out": "over_limit" }])
        );
        let text = pb::Text {
            left_out: pb::LeftOut::NoArea.into(),
            ..Default::default()
        };
        let texts = Value::Texts(pb::TextList {
            texts: vec![text],
            objects: String::new(),
        });
        assert_eq!(
            json_of(texts),
            json!([{ "text": "", "score": 0.0, "left_out": "no_area" }])
        );
        let embedding = pb::Embedding {
            left_out: over_limit,
            ..Default::default()
        };
        let embeddings = Value::Embeddings(pb::EmbeddingList {
            embeddings: vec![embedding],
            objects: String::new(),
        });
        assert_eq!(
            json_of(embeddings),
            json!([{ "embedding": [], "left_out": "over_limit" }])
        );
        let tensor = |left_out| {
            json_of(Value::Tensor(pb::Tensor {
                shape: vec![2, 1],
                data: vec![0.5, 0.0],
                left_out,
                ..Default::default()
            }))
        };
        assert_eq!(
            tensor(vec![1]),
            json!({ "shape": [2, 1], "data": [0.5, 0.0], "left_out": [1] })
        );
        assert_eq!(
            tensor(vec![]),
            json!({ "shape": [2, 1], "data": [0.5, 0.0] })
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
