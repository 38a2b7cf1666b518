//! Compiles the .proto files with protox, so that no protoc is needed, and writes down how many entries each list and map of
//! their messages may have.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use tonic_prost_build::Config;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let public = protox::compile(["spillgate/v1/spillgate.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // The link is private: reflection does not tell of it.
    std::fs::write(out.join("spillgate_descriptor.bin"), {
        use prost::Message;
        public.encode_to_vec()
    })?;
    let link = protox::compile(["spillgate/link/v1/link.proto"], ["proto"])?;
    std::fs::write(out.join("shapes.rs"), shapes(&[&public, &link])?)?;
    // Payloads stay slices of the message they came in.
    let builder = tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::SizedCodec");
    builder.clone().compile_fds_with_config(public, named())?;
    // KEDA's interface has messages of a few entries, and the codec of tonic; its port bounds their bytes.
    let scaler = protox::compile(["externalscaler/externalscaler.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(scaler)?;
    // Lists have room for the largest kind of an entry: rare large ones are kept elsewhere.
    LARGE
        .iter()
        .fold(builder, |builder, path| builder.boxed(path))
        .compile_fds_with_config(link, named())?;
    Ok(())
}

/// Messages know their names, by which their bounds are found.
fn named() -> Config {
    let mut config = Config::new();
    config.enable_type_names();
    config
}

/// Large messages of the link that are rare, or stand in lists beside small ones.
const LARGE: [&str; 12] = [
    "spillgate.link.v1.Packet.content.greeting",
    "spillgate.link.v1.Packet.content.published",
    "spillgate.link.v1.Packet.content.operation",
    "spillgate.link.v1.Packet.content.operated",
    "spillgate.link.v1.Packet.content.envelope",
    "spillgate.link.v1.Packet.content.lacking",
    "spillgate.link.v1.ToGateway.message.plan",
    "spillgate.link.v1.ToGateway.message.state",
    "spillgate.link.v1.ToGateway.message.dropped",
    "spillgate.link.v1.ToController.message.demand",
    "spillgate.link.v1.ToController.message.peer",
    "spillgate.link.v1.ToDevice.message.answer",
];

/// The entries of a message in bytes, which take no more memory than the message itself.
const BY_BYTES: u32 = u32::MAX;
/// `MODULES_MAX` and `OUTPUTS_MAX` of spillgate-pipeline.
const MODULES: u32 = 1024;
/// `OBJECTS_MAX` of spillgate-pipeline.
const OBJECTS: u32 = 1 << 16;
/// `POLYGONS_MAX` of spillgate-link.
const POLYGONS: u32 = 1 << 16;
/// `DIMENSIONS_MAX` of spillgate-link.
const DIMENSIONS: u32 = 64;
/// `BATCH_MAX` of spillgate-pipeline.
const BATCH: u32 = 1024;
/// `REQUESTS_MAX` of spillgate-link.
const REQUESTS: u32 = 1 << 20;
/// `STATE_SAMPLES_MAX` of spillgate-pipeline.
const SAMPLES: u32 = 1024;
/// `PACKETS_MAX` of spillgate-link.
const PACKETS: u32 = 256;
/// `NAMED_MAX` of spillgate-pipeline.
const NAMED: u32 = 256;
/// `MEMBERS_MAX` of spillgate-pipeline.
const MEMBERS: u32 = 16_384;
/// `MEMBERS_MAX` of spillgate-protocol.
const SET: u32 = 1024;
/// `ROLES_KNOWN_MAX` of spillgate-protocol.
const ROLES: u32 = 1 << 15;
/// `PIPELINES_MAX` of spillgate-protocol.
const PIPELINES: u32 = 32;
/// `REPORTS_MAX` of spillgate-protocol.
const REPORTS: u32 = 8;

/// Most entries of each list and map, over all of one message. Each has a bound: it counts before memory is taken.
const BOUNDS: [(&str, u32); 63] = [
    ("spillgate.v1.Frame.models", MODULES),
    ("spillgate.v1.Result.outputs", MODULES),
    ("spillgate.v1.Result.timings", MODULES),
    ("spillgate.v1.BoxList.boxes", OBJECTS),
    ("spillgate.v1.TextList.texts", OBJECTS),
    ("spillgate.v1.LabelList.labels", OBJECTS),
    ("spillgate.v1.Tensor.shape", DIMENSIONS),
    ("spillgate.v1.Tensor.data", BY_BYTES),
    ("spillgate.v1.Tensor.left_out", OBJECTS),
    ("spillgate.v1.MaskList.masks", OBJECTS),
    ("spillgate.v1.Mask.polygons", POLYGONS),
    ("spillgate.v1.Polygon.points", BY_BYTES),
    ("spillgate.v1.KeypointList.keypoints", OBJECTS),
    ("spillgate.v1.Keypoints.points", BY_BYTES),
    ("spillgate.v1.Keypoints.scores", BY_BYTES),
    ("spillgate.v1.EmbeddingList.embeddings", OBJECTS),
    ("spillgate.v1.Embedding.values", BY_BYTES),
    ("spillgate.v1.DescribeResponse.pipelines", 4096),
    ("spillgate.v1.PipelineDescription.modules", MODULES),
    ("spillgate.v1.PipelineDescription.outputs", MODULES),
    ("spillgate.v1.ModuleDescription.devices", 10_000),
    ("spillgate.v1.ModuleDescription.after", MODULES),
    ("spillgate.link.v1.Packets.packets", PACKETS),
    ("spillgate.link.v1.Members.listed", SET),
    ("spillgate.link.v1.Member.controllers", ROLES),
    ("spillgate.link.v1.Member.devices", ROLES),
    ("spillgate.link.v1.MemberDevice.workers", ROLES),
    ("spillgate.link.v1.Ended.requests", REQUESTS),
    ("spillgate.link.v1.Revisions.revisions", REPORTS),
    ("spillgate.link.v1.Operated.rollouts", PIPELINES),
    ("spillgate.link.v1.Rollout.processes", PIPELINES * (SET + 1)),
    (
        "spillgate.link.v1.ProcessRevisions.revisions",
        PIPELINES * (SET + 1) * REPORTS,
    ),
    ("spillgate.link.v1.BatchEnded.members", BATCH),
    ("spillgate.link.v1.Returned.requests", REQUESTS),
    ("spillgate.link.v1.ModuleState.batch_waits", SAMPLES),
    ("spillgate.link.v1.ModuleState.executions", SAMPLES),
    ("spillgate.link.v1.ModuleState.asked", BY_BYTES),
    ("spillgate.link.v1.ModuleState.variants", 64),
    ("spillgate.link.v1.Holds.loaded", MEMBERS),
    ("spillgate.link.v1.Holds.unloaded", MEMBERS),
    ("spillgate.link.v1.Portion.parts", NAMED),
    ("spillgate.link.v1.Demand.asked", SAMPLES),
    ("spillgate.link.v1.ClientReport.named", NAMED),
    ("spillgate.link.v1.ClientReport.rest", 4096),
    ("spillgate.link.v1.BatchReport.members", BATCH),
    ("spillgate.link.v1.Requests.arrivals", REQUESTS),
    ("spillgate.link.v1.Answer.requests", REQUESTS),
    ("spillgate.link.v1.Parcel.modules", MODULES),
    ("spillgate.link.v1.Outputs.values", MODULES),
    ("spillgate.link.v1.Boxes.boxes", OBJECTS),
    ("spillgate.link.v1.Texts.texts", OBJECTS),
    ("spillgate.link.v1.Labels.labels", OBJECTS),
    ("spillgate.link.v1.Tensor.shape", DIMENSIONS),
    ("spillgate.link.v1.Tensor.data", BY_BYTES),
    ("spillgate.link.v1.Tensor.left_out", OBJECTS),
    ("spillgate.link.v1.Masks.masks", OBJECTS),
    ("spillgate.link.v1.Mask.polygons", POLYGONS),
    ("spillgate.link.v1.Polygon.points", BY_BYTES),
    ("spillgate.link.v1.Keypoints.objects", OBJECTS),
    ("spillgate.link.v1.ObjectKeypoints.points", BY_BYTES),
    ("spillgate.link.v1.ObjectKeypoints.scores", BY_BYTES),
    ("spillgate.link.v1.Embeddings.embeddings", OBJECTS),
    ("spillgate.link.v1.Embedding.values", BY_BYTES),
];

/// The shapes of all messages as a list of Rust: of each the fields that are lists, maps or messages.
///
/// # Errors
/// A list without a bound, or a bound of no list.
fn shapes(sets: &[&FileDescriptorSet]) -> Result<String, String> {
    let mut messages = BTreeMap::new();
    for file in sets.iter().flat_map(|set| &set.file) {
        collect(
            &format!(".{}", file.package()),
            &file.message_type,
            &mut messages,
        );
    }
    let mut bounds: BTreeMap<&str, u32> = BOUNDS.into();
    let names: Vec<&String> = messages.keys().collect();
    let mut text = String::from("[\n");
    for (name, message) in &messages {
        let mut fields = message.field.iter().collect::<Vec<_>>();
        fields.sort_by_key(|field| field.number());
        let mut shapes = String::new();
        for field in fields {
            let inner = names.binary_search(&&field.type_name().to_owned()).ok();
            let path = format!("{}.{}", &name[1..], field.name());
            let most = match field.label() {
                Label::Repeated => {
                    let bound = bounds.remove(path.as_str());
                    Some(bound.ok_or_else(|| format!("{path} has no bound in BOUNDS"))?)
                }
                _ if inner.is_some() => None,
                _ => continue,
            };
            let (number, name, entry) = (field.number(), field.name(), entry(field));
            let _ = writeln!(
                shapes,
                "Field {{ number: {number}, name: {name:?}, most: {most:?}, entry: Entry::{entry}, inner: {inner:?} }},"
            );
        }
        let _ = writeln!(
            text,
            "Shape {{ name: {:?}, fields: &[{shapes}] }},",
            &name[1..]
        );
    }
    if let Some(path) = bounds.keys().next() {
        return Err(format!("{path} in BOUNDS is no list and no map"));
    }
    Ok(text + "]\n")
}

/// All messages below a scope, by their full names.
fn collect<'a>(
    scope: &str,
    messages: &'a [DescriptorProto],
    into: &mut BTreeMap<String, &'a DescriptorProto>,
) {
    for message in messages {
        let name = format!("{scope}.{}", message.name());
        collect(&name, &message.nested_type, into);
        into.insert(name, message);
    }
}

/// How entries lie in bytes that hold several of them.
fn entry(field: &FieldDescriptorProto) -> &'static str {
    match field.r#type() {
        Type::String | Type::Bytes | Type::Message | Type::Group => "Apart",
        Type::Fixed64 | Type::Sfixed64 | Type::Double => "Eight",
        Type::Fixed32 | Type::Sfixed32 | Type::Float => "Four",
        _ => "Varint",
    }
}
