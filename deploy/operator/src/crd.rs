//! The custom resource `Pipeline`: what users write, and what the operator says of it. The definition that `kubectl` installs is
//! made from these types.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each type in a function of its own"
)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longest name of a `Pipeline`: with `-worker-` and the name of a module it names Deployments, and with what Kubernetes adds their
/// pods, of which a name has 63 characters.
pub const NAME_LENGTH_MAX: usize = 30;
/// Most workers of a module.
pub const WORKERS_MAX: u32 = 512;
/// Most gateways of a set.
pub const GATEWAYS_MAX: u32 = 64;

/// A pipeline that the cluster serves.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "spillgate.dev",
    version = "v1alpha1",
    kind = "Pipeline",
    namespaced,
    doc = "A DAG of DNN modules that is served under one end-to-end latency objective.",
    status = "PipelineStatus",
    derive = "PartialEq",
    category = "all",
    scale(
        spec_replicas_path = ".spec.gateways.replicas",
        status_replicas_path = ".status.gateways",
        label_selector_path = ".status.gatewaySelector"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.revision"),
    printcolumn(name = "Workers", type_ = "string", json_path = ".status.workers"),
    printcolumn(name = "Goodput", type_ = "string", json_path = ".status.goodput"),
    printcolumn(name = "Dropped", type_ = "string", json_path = ".status.dropped"),
    printcolumn(name = "SLO", type_ = "string", json_path = ".status.slo"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Says",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Degraded\")].message",
        priority = 1
    ),
    validation = Rule::new("!self.metadata.name.contains('.')").message(
        "metadata.name has a dot, and names of volumes are made of it; write - in its place"
    ),
    validation = Rule::new("self.metadata.name.size() <= 30").message(
        "metadata.name is longer than 30 characters, and names of pods are made of it; give a shorter one"
    )
)]
#[x_kube(validation = Rule::new("has(self.pipeline) != has(self.configMapRef)").message(
    "write either pipeline: with the definition, or configMapRef: with the ConfigMap that holds it"
))]
#[x_kube(validation = Rule::new("self.set == oldSelf.set").message(
    "the set of a pipeline cannot change: delete the pipeline, and create it in the other set"
))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineSpec {
    /// The pipeline, as in a pipeline file of Spillgate: name, slo, modules, outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub pipeline: Option<Map<String, Value>>,
    /// In place of `pipeline`: a key of a ConfigMap of this namespace that holds the pipeline file's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapRef>,
    /// Execution times that are known, as in a file of profiles. What is missing is measured by a Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub profiles: Option<Map<String, Value>>,
    /// Pipelines of one set share gateways and a controller.
    #[serde(default = "set_default")]
    #[schemars(
        length(min = 1, max = 20),
        regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
    )]
    pub set: String,
    /// The image of all processes of the set; the operator's own default unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Secrets by which images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<String>,
    /// Where model files come from. Relative paths of models in the pipeline begin at its root, as `models/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Models>,
    /// Who serves clients.
    #[serde(default)]
    pub gateways: Gateways,
    /// The workers of each module; `source` is the decoding of pictures.
    pub modules: BTreeMap<String, ModuleWorkers>,
    /// How another revision takes the place of the one that is served: `at-once`, `recreate` or a share of the streams like `5%`, and
    /// how long it is watched.
    #[serde(default = "rollout_default")]
    #[schemars(regex(pattern = "^(at-once|recreate|[0-9.]+%)(, ?watch=[0-9]+(ms|s|m|h))?$"))]
    pub rollout: String,
    /// Where traces go (OTLP over gRPC), like `http://jaeger:4317`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
}

/// A key of a ConfigMap.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapRef {
    /// Name of the ConfigMap.
    pub name: String,
    /// Its key; `pipeline.yaml` unless said.
    #[serde(default = "key_default")]
    pub key: String,
}

/// Where model files come from.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.persistentVolumeClaim) != has(self.initContainers)").message(
    "write either persistentVolumeClaim: with the volume that holds the models, or initContainers: that put them into the volume models"
))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Models {
    /// A volume that holds them. It is mounted read-only by all pods of the pipeline, so it must allow as many nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<Claim>,
    /// Containers that run before a process starts, and put them into the volume `models`, which they mount where they like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_objects")]
    pub init_containers: Option<Vec<Map<String, Value>>>,
}

/// A claim of a volume.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// Name of the PersistentVolumeClaim.
    pub claim_name: String,
}

/// The gateways of a set.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gateways {
    /// How many; of several pipelines of a set the largest number counts.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub replicas: u32,
    /// CPU and memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// A Secret with `tls.crt` and `tls.key`: clients then speak TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret: Option<String>,
    /// A Secret whose key `tokens.yaml` holds the tokens of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_secret: Option<String>,
    /// Nodes that they may run on, by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that they tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

impl Default for Gateways {
    fn default() -> Self {
        Gateways {
            replicas: 1,
            resources: None,
            tls_secret: None,
            tokens_secret: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
        }
    }
}

/// The workers of a module.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new(
    "!has(self.with) || !(has(self.resources) || has(self.nodeSelector) || has(self.tolerations))"
).message(
    "a module that runs `with` another one runs in its processes: write resources, nodeSelector and tolerations there"
))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModuleWorkers {
    /// How many; as `workers:` of the pipeline says, else 1. Modules that share processes have as many as each of them needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// The module in whose processes this one runs, so that no value travels between them; of another pipeline of the set as
    /// `PIPELINE/MODULE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// In place of the pipeline's: the device of the module, like `cuda` or `cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// CPU, memory and GPUs of each process. A process has as many workers as GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Who says how many there are within the bounds: the controllers of Spillgate, or whoever else sets the Deployment's replicas.
    #[serde(default)]
    pub autoscaler: Autoscaler,
    /// Nodes that they may run on, by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that they tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// Bounds of a number of workers.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("self.min <= self.max").message("min is larger than max; write min: 1, max: 4"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Replicas {
    /// Least workers.
    #[schemars(range(min = 1, max = 512))]
    pub min: u32,
    /// Most workers.
    #[schemars(range(min = 1, max = 512))]
    pub max: u32,
}

/// Who says how many workers there are.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Autoscaler {
    /// The controllers of Spillgate.
    #[default]
    Internal,
    /// KEDA, a HorizontalPodAutoscaler, or somebody by hand.
    External,
}

/// What the operator says of a pipeline.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStatus {
    /// The generation of the resource that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The revision that is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Worker processes that are ready, of those that there should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// Gateways that are ready.
    #[serde(default)]
    pub gateways: u32,
    /// The labels of the gateways' pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_selector: Option<String>,
    /// Requests that were completed in time, a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<String>,
    /// The part of the requests that was dropped or late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// The objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<String>,
    /// Where clients connect within the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The workers of each Deployment, by the module that it is named after.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, ModuleStatus>,
    /// `Ready`, `Progressing`, `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The workers of a Deployment.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModuleStatus {
    /// Processes that there should be.
    pub replicas: u32,
    /// Those that are ready.
    pub ready: u32,
    /// Why there should be so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn set_default() -> String {
    "default".to_owned()
}

fn key_default() -> String {
    "pipeline.yaml".to_owned()
}

fn rollout_default() -> String {
    "at-once,watch=1m".to_owned()
}

fn one() -> u32 {
    1
}

/// An object of any fields: it has a checker of its own.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true})
}

fn any_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
    })
}
