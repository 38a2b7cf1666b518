//! The objects of a set, as Kubernetes is to have them. Only fields that are meant are stated; each object says who owns it.

mod network;
mod pods;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use crate::crd::{Gateways, PipelineSpec};
use crate::names::{self, ADMIN_PORT, CLIENT_PORT, LINK_PORT, SCALER_PORT};
use crate::record::Record;
use crate::set::{Group, Member};

use pods::Pod;

/// What the operator was started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The image of processes, unless a resource says another one.
    pub image: String,
    /// Whether nodes pull images: `IfNotPresent`, `Always`, `Never`.
    pub pull_policy: String,
    /// How long the pods of a Deployment may take to be ready, in seconds. What takes longer is taken back.
    pub ready_within_s: u32,
}

/// The kinds of objects that the operator writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Text that pods read.
    ConfigMap,
    /// Certificates.
    Secret,
    /// Names of pods.
    Service,
    /// The right of pods to nothing.
    ServiceAccount,
    /// Who may reach pods.
    NetworkPolicy,
    /// How many pods may be evicted.
    PodDisruptionBudget,
    /// Pods that are kept.
    Deployment,
    /// Pods that end.
    Job,
}

impl Kind {
    /// API version, kind and the plural by which the API is asked.
    pub fn api(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Kind::ConfigMap => ("v1", "ConfigMap", "configmaps"),
            Kind::Secret => ("v1", "Secret", "secrets"),
            Kind::Service => ("v1", "Service", "services"),
            Kind::ServiceAccount => ("v1", "ServiceAccount", "serviceaccounts"),
            Kind::NetworkPolicy => ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
            Kind::PodDisruptionBudget => {
                ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
            }
            Kind::Deployment => ("apps/v1", "Deployment", "deployments"),
            Kind::Job => ("batch/v1", "Job", "jobs"),
        }
    }
}

/// An object that there should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// All of it that is meant.
    pub value: Value,
}

/// A set, as it is rendered.
pub struct Rendered<'a> {
    /// Its name.
    pub set: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// What the operator was started with.
    pub settings: &'a Settings,
    /// The image of processes.
    pub image: String,
    /// The pipelines that processes serve.
    pub members: &'a [Member],
    /// All resources of the set that own its common objects: names and unique ids.
    pub owners: &'a [(String, String)],
}

impl Rendered<'_> {
    /// An object of the whole set.
    fn common(&self, kind: Kind, name: String, rest: Value) -> Object {
        self.object(kind, name, self.owners, json!({}), rest)
    }

    /// An object of one pipeline.
    fn of_pipeline(&self, kind: Kind, name: String, member: &Member, rest: Value) -> Object {
        let owner = (member.name.clone(), member.uid.clone());
        let label = json!({ names::PIPELINE: member.name });
        self.object(kind, name, &[owner], label, rest)
    }

    fn object(
        &self,
        kind: Kind,
        name: String,
        owners: &[(String, String)],
        labels: Value,
        rest: Value,
    ) -> Object {
        let (api_version, kind_name, _) = kind.api();
        let owner = |(name, uid): &(String, String)| json!({ "apiVersion": "spillgate.dev/v1alpha1", "kind": "Pipeline", "name": name, "uid": uid });
        let mut value = json!({
            "apiVersion": api_version,
            "kind": kind_name,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": merged(names::set_labels(self.set), labels),
                "ownerReferences": owners.iter().map(owner).collect::<Vec<_>>(),
            },
        });
        value = merged(value, rest);
        Object { kind, name, value }
    }

    /// What the first pipeline that states it says of the gateways; the largest number of replicas counts.
    fn gateways(&self) -> Gateways {
        let each = || self.members.iter().map(|member| &member.spec.gateways);
        let first = |states: fn(&Gateways) -> bool| each().find(|of| states(of)).cloned();
        let with = |states: fn(&Gateways) -> bool| first(states).unwrap_or_default();
        Gateways {
            replicas: each().map(|of| of.replicas).max().unwrap_or(1),
            resources: with(|of| of.resources.is_some()).resources,
            tls_secret: with(|of| of.tls_secret.is_some()).tls_secret,
            tokens_secret: with(|of| of.tokens_secret.is_some()).tokens_secret,
            node_selector: with(|of| !of.node_selector.is_empty()).node_selector,
            tolerations: with(|of| !of.tolerations.is_empty()).tolerations,
        }
    }

    fn stated<T: Clone>(&self, of: fn(&PipelineSpec) -> Option<&T>) -> Option<T> {
        self.members
            .iter()
            .find_map(|member| of(&member.spec))
            .cloned()
    }

    /// The ConfigMap of what a pipeline's processes read.
    pub fn definition(&self, member: &Member, record: &Record) -> Object {
        let data = json!({ "data": record.data() });
        self.of_pipeline(
            Kind::ConfigMap,
            names::definition(&member.name),
            member,
            data,
        )
    }

    /// The ConfigMap of execution times that were measured.
    pub fn measured(&self, member: &Member, text: &str) -> Object {
        let data = json!({ "data": { "profiles.yaml": text } });
        self.of_pipeline(Kind::ConfigMap, names::profiles(&member.name), member, data)
    }

    /// The Job that measures a pipeline on a kind of device, and the ConfigMap that it reads.
    pub fn profile_job(&self, member: &Member, kind: &str) -> Vec<Object> {
        let definition = &member.definition;
        let name = names::profile_job(&member.name, kind, &definition.models);
        let data = json!({ "data": { "pipeline.yaml": definition.text } });
        let mut pod = Pod::of(self, "profile", &self.image);
        pod.reads(&member.name, &name, &["pipeline.yaml"]);
        pod.models(&member.name, &member.spec);
        let stated = definition
            .workers
            .iter()
            .find_map(|(module, workers)| match workers {
                crate::definition::Workers::Own { stated, .. }
                    if definition.kinds.get(module).is_some_and(|of| of == kind) =>
                {
                    Some(stated)
                }
                _ => None,
            });
        if let Some(stated) = stated {
            pod.resources(stated.resources.as_ref());
            pod.placed(&stated.node_selector, &stated.tolerations);
        }
        let file = pods::file(&member.name);
        pod.args(["profile", &file, "--out", "-"]);
        let template = pod.template(
            json!({ names::SET: self.set, names::ROLE: "profile", names::PIPELINE: member.name }),
            json!({}),
        );
        let template = merged(template, json!({ "spec": { "restartPolicy": "Never" } }));
        let job = json!({ "spec": {
            // What fails for want of a GPU or of a model may be there a little later.
            "backoffLimit": 3,
            "template": template,
        }});
        vec![
            self.of_pipeline(Kind::ConfigMap, name.clone(), member, data),
            self.of_pipeline(Kind::Job, name, member, job),
        ]
    }

    /// The controller: it plans for all modules of the set. While it is replaced, gateways and workers go on with what it said last.
    pub fn controller(&self) -> Vec<Object> {
        let name = names::controller(self.set);
        let role = json!({ names::ROLE: "controller" });
        let mut pod = self.process("controller", &self.image);
        pod.args(["controller"]);
        self.all_files(&mut pod);
        pod.args(["--link-listen", "[::]:7720", "--scaler-listen", "[::]:7730"]);
        pod.port("link", LINK_PORT);
        pod.port("scaler", SCALER_PORT);
        pod.drains(CONTROLLER_DRAIN_S);
        let deployment =
            self.deployment(&pod, Some(1), role.clone(), json!({ "type": "Recreate" }));
        let ports = [
            ("link", LINK_PORT),
            ("admin", ADMIN_PORT),
            ("scaler", SCALER_PORT),
        ];
        vec![
            self.common(Kind::Deployment, name.clone(), deployment),
            // Processes register while it is not ready yet.
            self.service(&name, &role, &ports, true),
        ]
    }

    /// The gateways.
    pub fn gateway(&self) -> Vec<Object> {
        let name = names::gateway(self.set);
        let role = json!({ names::ROLE: "gateway" });
        let stated = self.gateways();
        let mut pod = self.process("gateway", &self.image);
        pod.args(["gateway"]);
        self.all_files(&mut pod);
        self.joins(&mut pod);
        pod.args(["--listen", "[::]:7700"]);
        pod.port("grpc", CLIENT_PORT);
        if let Some(secret) = &stated.tls_secret {
            pod.secret("tls", secret, "/etc/spillgate/tls");
            pod.args(["--tls-cert", "/etc/spillgate/tls/tls.crt"]);
            pod.args(["--tls-key", "/etc/spillgate/tls/tls.key"]);
        }
        if let Some(secret) = &stated.tokens_secret {
            pod.secret("tokens", secret, "/etc/spillgate/tokens");
            pod.args(["--tokens", "/etc/spillgate/tokens/tokens.yaml"]);
        }
        if let Some(otlp) = self.stated(|spec| spec.otlp.as_ref()) {
            pod.args(["--otlp", &otlp]);
        }
        pod.resources(stated.resources.as_ref());
        pod.placed(&stated.node_selector, &stated.tolerations);
        pod.drains(GATEWAY_DRAIN_S);
        let one_more_first = json!({
            "type": "RollingUpdate",
            "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
        });
        let replicas = Some(stated.replicas);
        let deployment = self.deployment(&pod, replicas, role.clone(), one_more_first);
        let ports = [("grpc", CLIENT_PORT), ("admin", ADMIN_PORT)];
        vec![
            self.common(Kind::Deployment, name.clone(), deployment),
            self.service(&name, &role, &ports, false),
            self.budget(&name, &role),
        ]
    }

    /// A Deployment of workers; `replicas` is `None` where somebody else says how many there are.
    pub fn workers(&self, group: &Group, replicas: Option<u32>) -> Vec<Object> {
        let member = &self.members[group.pipeline];
        let name = &group.deployment;
        let role = json!({
            names::ROLE: "worker",
            names::PIPELINE: member.name,
            names::MODULE: names::label(&group.module),
        });
        let mut pod = self.process("worker", &self.image);
        pod.args(["worker"]);
        let mut pipelines: Vec<usize> = group.runs.iter().map(|(at, _)| *at).collect();
        pipelines.dedup();
        for at in &pipelines {
            self.one_file(&mut pod, &self.members[*at]);
        }
        pod.args(["--modules", &group.modules(self.members)]);
        pod.args(["--link-listen", "[::]:7720"]);
        pod.port("link", LINK_PORT);
        self.joins(&mut pod);
        if let Some(otlp) = self.stated(|spec| spec.otlp.as_ref()) {
            pod.args(["--otlp", &otlp]);
        }
        pod.resources(group.stated.resources.as_ref());
        pod.placed(&group.stated.node_selector, &group.stated.tolerations);
        pod.drains(WORKER_DRAIN_S);
        let has_gpus = crate::definition::gpus(&group.stated) > 0;
        let strategy = match has_gpus && group.replicas.0 > 1 {
            // A cluster seldom has a GPU to spare.
            true => json!({ "maxSurge": 0, "maxUnavailable": 1 }),
            false => json!({ "maxSurge": 1, "maxUnavailable": 0 }),
        };
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": strategy });
        let deployment = self.deployment(&pod, replicas, role.clone(), strategy);
        vec![
            self.of_pipeline(Kind::Deployment, name.clone(), member, deployment),
            self.budget_of(member, name, &role),
        ]
    }

    /// What the whole set has besides: an account without rights, and who may reach its pods.
    pub fn surroundings(&self) -> Vec<Object> {
        let account = self.common(
            Kind::ServiceAccount,
            names::network_policy(self.set),
            json!({ "automountServiceAccountToken": false }),
        );
        vec![account, self.network_policy()]
    }

    /// A Secret with a certificate of the set's links.
    pub fn link_secret(&self, role: &str, data: &BTreeMap<String, String>) -> Object {
        let bytes =
            |(key, text): (&String, &String)| (key.clone(), ByteString(text.clone().into_bytes()));
        let data: BTreeMap<String, ByteString> = data.iter().map(bytes).collect();
        let value = json!({ "type": "Opaque", "data": data });
        self.common(Kind::Secret, names::link_secret(self.set, role), value)
    }

    fn process(&self, role: &str, image: &str) -> Pod {
        let mut pod = Pod::of(self, role, image);
        pod.probes();
        pod.link_certificates(&names::link_secret(self.set, role));
        pod
    }

    fn one_file(&self, pod: &mut Pod, member: &Member) {
        pod.args([pods::file(&member.name)]);
        let keys = [crate::record::PIPELINE, crate::record::PROFILES];
        pod.reads(&member.name, &names::definition(&member.name), &keys);
        pod.models(&member.name, &member.spec);
        pod.began(&member.began);
    }

    fn all_files(&self, pod: &mut Pod) {
        for member in self.members {
            self.one_file(pod, member);
        }
    }

    fn joins(&self, pod: &mut Pod) {
        let controller = names::controller(self.set);
        pod.args([
            "--controllers",
            &format!("{controller}.{}:7720", self.namespace),
        ]);
    }

    fn deployment(
        &self,
        pod: &Pod,
        replicas: Option<u32>,
        labels: Value,
        strategy: Value,
    ) -> Value {
        let selector = merged(json!({ names::SET: self.set }), labels);
        let spread = json!({ "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": selector },
            "matchLabelKeys": ["pod-template-hash"],
        }]});
        let mut spec = json!({
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": self.settings.ready_within_s,
            "strategy": strategy,
            "selector": { "matchLabels": selector },
            "template": pod.template(selector.clone(), spread),
        });
        if let Some(replicas) = replicas {
            spec["replicas"] = json!(replicas);
        }
        json!({ "spec": spec })
    }

    fn service(
        &self,
        name: &str,
        role: &Value,
        ports: &[(&str, u16)],
        before_ready: bool,
    ) -> Object {
        let selector = merged(json!({ names::SET: self.set }), role.clone());
        let port = |(name, port): &(&str, u16)| json!({ "name": name, "port": port, "targetPort": name, "protocol": "TCP" });
        let ports: Vec<Value> = ports.iter().map(port).collect();
        self.common(
            Kind::Service,
            name.to_owned(),
            json!({ "spec": {
                // Without an address of its own: clients see each pod, and keep a connection to it.
                "clusterIP": "None",
                "ipFamilyPolicy": "PreferDualStack",
                "publishNotReadyAddresses": before_ready,
                "selector": selector,
                "ports": ports,
            }}),
        )
    }

    fn budget(&self, name: &str, role: &Value) -> Object {
        self.common(
            Kind::PodDisruptionBudget,
            name.to_owned(),
            self.budget_spec(role),
        )
    }

    fn budget_of(&self, member: &Member, name: &str, role: &Value) -> Object {
        self.of_pipeline(
            Kind::PodDisruptionBudget,
            name.to_owned(),
            member,
            self.budget_spec(role),
        )
    }

    /// One pod may go at a time, so that a node can be drained; a pod that is not ready may always go.
    fn budget_spec(&self, role: &Value) -> Value {
        let selector = merged(json!({ names::SET: self.set }), role.clone());
        json!({ "spec": {
            "maxUnavailable": 1,
            "selector": { "matchLabels": selector },
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        }})
    }
}

/// `--drain-delay` and `--drain` of a gateway, and what it needs besides to end (docs/operating.md).
const GATEWAY_DRAIN_S: u32 = 5 + 10 + 6;
/// `--drain` of a worker, and what it needs besides.
const WORKER_DRAIN_S: u32 = 10 + 6;
/// A controller has no requests.
const CONTROLLER_DRAIN_S: u32 = 10 + 6;

/// One object with the fields of another one.
pub(crate) fn merged(mut base: Value, more: Value) -> Value {
    merge(&mut base, more);
    base
}

fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(Value::Object(Map::new())), value);
            }
        }
        (base, more) => *base = more,
    }
}
