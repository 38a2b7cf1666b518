//! Conversion from records to the wire: results, values, status codes.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use spillgate_controller_policy::refusal::Refusal;
use spillgate_picture::Damage;
use spillgate_pipeline::pipeline::{Module, PortRef};
use spillgate_pipeline::profile::device_kind;
use spillgate_pipeline::request::{DropReason, ModuleTimes, Outcome};
use spillgate_process::value::Value;
use spillgate_proto::pb;
use tonic::{Code, Status};

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
            let objects = Objects::of(record, output.from);
            let value = wire_value(value, objects, record.sizes.scale());
            Some((output.name.clone(), value))
        })
        .collect()
}

/// The boxes that a module worked on, to which its texts, labels and tensors refer.
#[derive(Clone, Copy, Debug, Default)]
struct Objects<'a> {
    /// Their number; 0 when the module worked on whole frames.
    n: usize,
    /// The output of the pipeline that contains them; empty when there is none.
    output: &'a str,
}

impl<'a> Objects<'a> {
    /// The boxes of the module that this output belongs to.
    fn of(record: &'a RequestRecord, from: PortRef) -> Self {
        let pipeline = &record.pipeline;
        let wired = pipeline.modules[from.module.idx()].inputs.iter().flatten();
        let mut boxes = wired.filter_map(|port| match record.job.output(*port)? {
            Value::Boxes(boxes) => Some((*port, boxes.len())),
            _ => None,
        });
        // With two inputs of boxes it is not known to which of them the items refer.
        let (Some((port, n)), None) = (boxes.next(), boxes.next()) else {
            return Objects::default();
        };
        let output = pipeline.outputs.iter().find(|output| output.from == port);
        Objects {
            n,
            output: output.map_or("", |output| &output.name),
        }
    }

    /// The box of the item at this index of `n_items`; each box has equally many items.
    fn index(self, idx: usize, n_items: usize) -> Option<u32> {
        let each = n_items.checked_div(self.n).filter(|each| *each > 0)?;
        (each * self.n == n_items && idx < n_items).then(|| (idx / each) as u32)
    }

    /// The name of the output for a list of that many items.
    fn name(self, n_items: usize) -> String {
        match self.index(0, n_items) {
            Some(_) => self.output.to_owned(),
            None => String::new(),
        }
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
        }),
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

    #[test]
    fn items_are_shared_out_evenly_over_the_boxes_or_not_at_all() {
        let of = |n| Objects {
            n,
            output: "vehicles",
        };
        let indices = |n_boxes, n_items| -> Vec<Option<u32>> {
            (0..n_items)
                .map(|i| of(n_boxes).index(i, n_items))
                .collect()
        };
        assert_eq!(indices(2, 2), [Some(0), Some(1)]);
        assert_eq!(indices(2, 4), [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(indices(2, 3), [None; 3], "nobody knows whose");
        assert_eq!(indices(3, 1), [None]);
        assert_eq!(indices(0, 1), [None], "of the whole frame");
        assert_eq!(
            (of(2).name(4), of(2).name(3)),
            ("vehicles".to_owned(), String::new())
        );
        assert_eq!(
            (of(2).name(0), of(0).name(0)),
            (String::new(), String::new())
        );
    }
}
