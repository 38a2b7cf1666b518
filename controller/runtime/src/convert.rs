//! Conversion from records to the wire: results, values, status codes.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use spillgate_controller_policy::refusal::Refusal;
use spillgate_picture::Damage;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::profile::device_kind;
use spillgate_pipeline::request::{DropReason, ModuleTimes, Outcome};
use spillgate_process::value::{Keypoints, LeftOut, Mask, Value};
use spillgate_proto::pb;
use tonic::{Code, Status};

use crate::objects::Objects;
use crate::record::RequestRecord;

/// Whether a device of the module is emulated.
pub fn is_emulated(module: &Module) -> bool {
    module.devices.iter().any(|d| device_kind(d) == "emulated")
}

/// Status code of a drop.
pub fn code_of(reason: DropReason) -> Code {
    match reason {
        DropReason::Expired | DropReason::Predicted => Code::DeadlineExceeded,
        DropReason::QueueFull
        | DropReason::Overload
        | DropReason::Decoding
        | DropReason::Memory => Code::ResourceExhausted,
        DropReason::Cancelled => Code::Cancelled,
        DropReason::Superseded => Code::Aborted,
        DropReason::Draining | DropReason::NoWorker => Code::Unavailable,
    }
}

fn ms(span: Duration) -> f64 {
    span.as_nanos() as f64 * 1e-6
}

/// The result of a request that was accepted.
pub fn result(record: &RequestRecord) -> pb::Result {
    let pipeline = &record.pipeline;
    let mut out = pb::Result {
        number: record.number,
        latency_ms: ms(record.latency()),
        emulated: pipeline.modules.iter().any(is_emulated),
        timings: record.times.iter().map(|t| timing(record, t)).collect(),
        width: record.sizes.source.0,
        height: record.sizes.source.1,
        damage: record.job.damage().map_or("", Damage::explain).to_owned(),
        ..Default::default()
    };
    out.trace_id = format!("{:032x}", record.trace.trace_id);
    out.trace_sampled = record.trace.sampled;
    match &record.outcome {
        Outcome::Completed | Outcome::Late => {
            out.set_outcome(if record.outcome == Outcome::Late {
                pb::Outcome::Late
            } else {
                pb::Outcome::Completed
            });
            out.outputs = outputs(record);
        }
        Outcome::Dropped(drop) => {
            out.set_outcome(pb::Outcome::Dropped);
            out.code = code_of(drop.reason) as i32;
            out.module = pipeline.modules[drop.module.idx()].name.clone();
            out.reason = drop.reason.label().to_owned();
            out.detail = format!("dropped at {}: {}", out.module, drop.explain());
            if let Some(error) = &record.error {
                out.detail.push_str("; ");
                out.detail.push_str(error);
            }
        }
        Outcome::Failed { module } => {
            out.set_outcome(pb::Outcome::Failed);
            // A failure at the source means an unreadable frame, which is the client's fault; elsewhere it is the
            // server's.
            let at_source = *module == spillgate_pipeline::id::ModuleId::SOURCE;
            out.code = if at_source {
                Code::InvalidArgument
            } else {
                Code::Internal
            } as i32;
            out.reason = if at_source {
                "invalid_frame"
            } else {
                "module_failed"
            }
            .to_owned();
            out.module = pipeline.modules[module.idx()].name.clone();
            out.detail = record.error.clone().unwrap_or_default();
        }
    }
    out
}

/// Status code of a refusal.
fn code_of_refusal(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Expired | Refusal::Hopeless => Code::DeadlineExceeded,
        Refusal::BackgroundFull { .. }
        | Refusal::Full { .. }
        | Refusal::StreamFull { .. }
        | Refusal::Overload(_)
        | Refusal::TokenFull { .. }
        | Refusal::TokenRate { .. }
        | Refusal::ClientFull { .. }
        | Refusal::ClientRate { .. }
        | Refusal::FrameTooLarge { .. }
        | Refusal::Memory(_)
        | Refusal::DecodingTooLong { .. } => Code::ResourceExhausted,
        Refusal::Draining | Refusal::Replaced => Code::Unavailable,
        Refusal::UnknownToken => Code::Unauthenticated,
        Refusal::UnknownPipeline { .. }
        | Refusal::NoFamily { .. }
        | Refusal::UnknownModel { .. } => Code::NotFound,
        Refusal::UnnamedPipeline { .. }
        | Refusal::UnnamedModel { .. }
        | Refusal::InvalidFrame(_) => Code::InvalidArgument,
    }
}

/// The result of a refused frame.
pub fn refused(number: u64, refusal: &Refusal) -> pb::Result {
    let mut out = pb::Result {
        number,
        code: code_of_refusal(refusal) as i32,
        module: "source".to_owned(),
        reason: refusal.label().to_owned(),
        detail: refusal.explain(),
        share: refusal.share().unwrap_or_default(),
        ..Default::default()
    };
    out.set_outcome(pb::Outcome::Refused);
    out
}

/// The status of a call that ends with a refusal.
pub fn call_refused(refusal: &Refusal) -> Status {
    Status::new(code_of_refusal(refusal), refusal.explain())
}

/// The status of a unary call whose frame was refused.
pub fn unary_refused(number: u64, refusal: &Refusal) -> Status {
    match refusal.ends_call() {
        true => call_refused(refusal),
        false => status(refused(number, refusal)),
    }
}

/// The status of a unary call whose request did not complete; carries the result in its details.
pub fn status(result: pb::Result) -> Status {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Any {
        #[prost(string, tag = "1")]
        type_url: String,
        #[prost(bytes = "vec", tag = "2")]
        value: Vec<u8>,
    }
    /// google.rpc.Status, as `grpc-status-details-bin` wants it.
    #[derive(Clone, PartialEq, prost::Message)]
    struct RpcStatus {
        #[prost(int32, tag = "1")]
        code: i32,
        #[prost(string, tag = "2")]
        message: String,
        #[prost(message, repeated, tag = "3")]
        details: Vec<Any>,
    }
    let detail = Any {
        type_url: "type.googleapis.com/spillgate.v1.Result".to_owned(),
        value: result.encode_to_vec(),
    };
    let rpc = RpcStatus {
        code: result.code,
        message: result.detail.clone(),
        details: vec![detail],
    };
    Status::with_details(
        Code::from(result.code),
        result.detail,
        rpc.encode_to_vec().into(),
    )
}

fn timing(record: &RequestRecord, times: &ModuleTimes) -> pb::ModuleTiming {
    pb::ModuleTiming {
        module: record.pipeline.modules[times.module.idx()].name.clone(),
        arrived_ms: ms(times.arrived_at.since(record.admitted_at)),
        queueing_ms: ms(times.queueing()),
        batch_wait_ms: ms(times.batch_wait()),
        execution_ms: ms(times.execution()),
        batch_size: times.batch_size,
    }
}

fn outputs(record: &RequestRecord) -> HashMap<String, pb::Value> {
    record
        .pipeline
        .outputs
        .iter()
        .filter_map(|output| {
            let value = record.job.output(output.from)?;
            let objects = match value {
                Value::Masks(masks) => Objects::found_with(record, output.from, masks.len()),
                Value::Keypoints(all) => Objects::found_with(record, output.from, all.len()),
                _ => Objects::of(record, output.from),
            };
            let value = wire_value(value, objects, record.sizes.scale());
            Some((output.name.clone(), value))
        })
        .collect()
}

/// The outputs of a module that ran by itself on a picture, by their names: of the pipeline there is nothing else.
pub fn of_module(module: &Module, outputs: &[Value]) -> HashMap<String, pb::Value> {
    let boxes = outputs.iter().find_map(|value| match value {
        Value::Boxes(boxes) => Some(boxes.len()),
        _ => None,
    });
    let named = module.outputs.iter().zip(outputs);
    let objects = |value: &Value| match value {
        Value::Masks(_) | Value::Keypoints(_) => Objects::of_own("boxes", boxes.unwrap_or(0)),
        _ => Objects::default(),
    };
    named
        .map(|((name, _), value)| (name.clone(), wire_value(value, objects(value), (1.0, 1.0))))
        .collect()
}

fn wire_left_out(why: Option<LeftOut>) -> i32 {
    match why {
        None => pb::LeftOut::None,
        Some(LeftOut::NoArea) => pb::LeftOut::NoArea,
        Some(LeftOut::OverLimit) => pb::LeftOut::OverLimit,
        Some(LeftOut::NoNumber) => pb::LeftOut::NoNumber,
    }
    .into()
}

fn wire_mask(mask: &Mask, object: Option<u32>, scale: (f32, f32)) -> pb::Mask {
    let polygon = |points: &Vec<[f32; 2]>| {
        let points = points.iter();
        pb::Polygon {
            points: points
                .flat_map(|[x, y]| [x * scale.0, y * scale.1])
                .collect(),
        }
    };
    pb::Mask {
        polygons: mask.polygons.iter().map(polygon).collect(),
        object,
    }
}

fn wire_keypoints(of: &Keypoints, object: Option<u32>, scale: (f32, f32)) -> pb::Keypoints {
    let points = of.points.iter();
    pb::Keypoints {
        points: points
            .flat_map(|p| [p.x * scale.0, p.y * scale.1])
            .collect(),
        scores: of.points.iter().map(|p| p.score).collect(),
        object,
    }
}

fn wire_value(value: &Value, objects: Objects<'_>, scale: (f32, f32)) -> pb::Value {
    use pb::value::Value as Wire;
    let wire = match value {
        Value::Image(image) => Wire::Picture(pb::Picture {
            width: image.width,
            height: image.height,
            rgb: image.rgb.clone(),
        }),
        Value::Bytes(bytes) => Wire::Data(bytes.clone()),
        Value::Boxes(boxes) => {
            let boxes = boxes
                .iter()
                .map(|b| pb::Box {
                    x0: b.x0 * scale.0,
                    y0: b.y0 * scale.1,
                    x1: b.x1 * scale.0,
                    y1: b.y1 * scale.1,
                    label: b.label.to_string(),
                    score: b.score,
                })
                .collect();
            Wire::Boxes(pb::BoxList { boxes })
        }
        Value::Texts(texts) => {
            let n = texts.len();
            let texts = texts.iter().enumerate().map(|(i, t)| pb::Text {
                text: t.text.clone(),
                score: t.score,
                object: objects.index(i, n),
                left_out: wire_left_out(t.left_out),
            });
            Wire::Texts(pb::TextList {
                texts: texts.collect(),
                objects: objects.name(n),
            })
        }
        Value::Labels(labels) => {
            let n = labels.len();
            let labels = labels.iter().enumerate().map(|(i, l)| pb::Label {
                label: l.label.to_string(),
                score: l.score,
                object: objects.index(i, n),
                left_out: wire_left_out(l.left_out),
            });
            Wire::Labels(pb::LabelList {
                labels: labels.collect(),
                objects: objects.name(n),
            })
        }
        Value::Tensor(tensor) => Wire::Tensor(pb::Tensor {
            shape: tensor.shape.clone(),
            data: tensor.data.clone(),
            objects: match tensor.shape.first() {
                Some(rows) if *rows == objects.n as i64 => objects.name(objects.n),
                _ => String::new(),
            },
            left_out: tensor.left_out.clone(),
        }),
        Value::Masks(masks) => {
            let n = masks.len();
            let all = masks.iter().enumerate();
            let masks = all.map(|(i, mask)| wire_mask(mask, objects.index(i, n), scale));
            Wire::Masks(pb::MaskList {
                masks: masks.collect(),
                objects: objects.name(n),
            })
        }
        Value::Keypoints(all) => {
            let n = all.len();
            let each = all.iter().enumerate();
            let keypoints = each.map(|(i, of)| wire_keypoints(of, objects.index(i, n), scale));
            Wire::Keypoints(pb::KeypointList {
                keypoints: keypoints.collect(),
                objects: objects.name(n),
            })
        }
        Value::Embeddings(all) => {
            let n = all.len();
            let embeddings = all.iter().enumerate().map(|(i, of)| pb::Embedding {
                values: of.values.clone(),
                object: objects.index(i, n),
                left_out: wire_left_out(of.left_out),
            });
            Wire::Embeddings(pb::EmbeddingList {
                embeddings: embeddings.collect(),
                objects: objects.name(n),
            })
        }
    };
    pb::Value { value: Some(wire) }
}

#[cfg(test)]
mod tests {
    use spillgate_controller_policy::shares::Shortfall;

    use super::*;

    #[test]
    fn a_request_is_refused_with_the_code_with_which_it_would_be_dropped_later() {
        let refusals = [
            Refusal::Full { limit: 1 },
            Refusal::StreamFull { limit: 1 },
            Refusal::Draining,
            Refusal::Expired,
            Refusal::Hopeless,
            Refusal::Overload(Shortfall::Pipeline),
            Refusal::DecodingTooLong {
                decoding: Duration::from_millis(2),
                limit: Duration::from_millis(1),
            },
        ];
        for refusal in refusals {
            let mut reasons = DropReason::ALL.into_iter();
            let reason = reasons.find(|reason| reason.label() == refusal.label());
            let code = reason.map(code_of);
            assert_eq!(code, Some(code_of_refusal(&refusal)), "{refusal:?}");
        }
    }
}
