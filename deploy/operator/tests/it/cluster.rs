//! A cluster without a Kubernetes: what is applied is there, and pods are ready when a test says so.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::{Value, json};
use spillgate_operator::authority::Lifetimes;
use spillgate_operator::crd::{Pipeline, PipelineSpec};
use spillgate_operator::decide::{Decision, Knows, Observed, decide};
use spillgate_operator::definition::Compiled;
use spillgate_operator::render::{Kind, Settings};

/// The image of the operator's settings.
pub(crate) const IMAGE: &str = "spillgate:1";

/// Two modules of 20 ms on emulated devices.
pub(crate) fn two_stage() -> Value {
    json!({
        "pipeline": {
            "name": "two_stage",
            "slo": "200ms",
            "source": { "payload": "bytes" },
            "modules": {
                "a": { "op": "noop", "inputs": { "payload": "$source.payload" }, "device": "emulated", "batch": { "max": 1 } },
                "b": { "op": "noop", "inputs": { "payload": "$a.payload" }, "device": "emulated", "batch": { "max": 1 } },
            },
            "outputs": { "payload": "$b.payload" },
        },
        "profiles": {
            "entries": 2,
            "emulated": {
                "a": { "-": { "alpha": "0ms", "beta": "20ms", "max": 1 } },
                "b": { "-": { "alpha": "0ms", "beta": "20ms", "max": 1 } },
            },
        },
        "gateways": { "replicas": 2 },
        "modules": { "a": { "replicas": { "min": 1, "max": 4 } }, "b": {} },
    })
}

/// A module with a model on the CPU.
pub(crate) fn with_model() -> Value {
    json!({
        "pipeline": {
            "name": "light",
            "slo": "200ms",
            "modules": { "light": {
                "op": "detector",
                "model": "models/road.pt",
                "inputs": { "image": "$source.frame" },
                "device": "cpu",
            }},
            "outputs": { "vehicles": "$light.vehicles" },
        },
        "modules": { "light": {} },
    })
}

/// A change of a resource: the value at the path, with dots between its keys.
pub(crate) fn with(mut spec: Value, path: &str, value: Value) -> Value {
    let mut at = &mut spec;
    for key in path.split('.') {
        at = &mut at[key];
    }
    *at = value;
    spec
}

/// The cluster.
pub(crate) struct Cluster {
    pub(crate) observed: Observed,
    pub(crate) knows: Knows,
    pub(crate) compiled: Compiled,
    pub(crate) now: u64,
    /// All objects that are there, as they were applied last.
    pub(crate) objects: BTreeMap<(Kind, String), Value>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Cluster {
            observed: Observed {
                namespace: "video".to_owned(),
                set: "default".to_owned(),
                ..Observed::default()
            },
            knows: Knows {
                settings: Settings {
                    image: IMAGE.to_owned(),
                    pull_policy: "IfNotPresent".to_owned(),
                    ready_within_s: 600,
                },
                catalog: spillgate_modules::library().catalog(),
                lifetimes: Lifetimes::default(),
            },
            compiled: Compiled::default(),
            now: 1_000_000,
            objects: BTreeMap::new(),
        }
    }

    /// A cluster with this resource, all of whose pods are ready.
    pub(crate) fn serving(name: &str, spec: Value) -> Self {
        let mut cluster = Cluster::new();
        cluster.apply(name, spec);
        for _ in 0..3 {
            cluster.pass();
            cluster.all_ready();
        }
        cluster.pass();
        assert_eq!(cluster.said(name, "Ready"), "True Serves");
        cluster
    }

    /// A user applies a resource.
    pub(crate) fn apply(&mut self, name: &str, spec: Value) {
        let spec: PipelineSpec =
            serde_json::from_value(spec).expect("the resource fits its schema");
        let resources = &mut self.observed.resources;
        let before = resources.get(name).cloned();
        let mut resource = Pipeline::new(name, spec);
        resource.metadata.namespace = Some("video".to_owned());
        resource.metadata.uid = Some(format!("uid-of-{name}"));
        let generation = before
            .as_ref()
            .and_then(|of| of.metadata.generation)
            .unwrap_or(0);
        resource.metadata.generation = Some(generation + 1);
        resource.status = before.and_then(|of| of.status);
        resources.insert(name.to_owned(), resource);
    }

    /// A pass of the operator: decides, and does it.
    pub(crate) fn pass(&mut self) -> Decision {
        let decide = |compiled| {
            let decision = decide(self.now, &self.observed, &self.knows, compiled);
            decision.expect("certificates can be made")
        };
        let decision = decide(&mut self.compiled);
        let anew = decide(&mut Compiled::default());
        assert_eq!(
            decision.statuses, anew.statuses,
            "what was compiled before decides nothing"
        );
        for object in &decision.objects {
            self.take(object.kind, &object.name, &object.value);
        }
        for (kind, name) in &decision.deletions {
            self.objects.remove(&(*kind, name.clone()));
            match kind {
                Kind::Deployment => drop(self.observed.deployments.remove(name)),
                Kind::ConfigMap => drop(self.observed.config_maps.remove(name)),
                Kind::Job => drop(self.observed.jobs.remove(name)),
                _ => {}
            }
        }
        for (name, status) in &decision.statuses {
            let resource = self.observed.resources.get_mut(name).expect("it is there");
            resource.status = Some(status.clone());
        }
        self.observed.certificates = Some(decision.certificates.text());
        self.observed.offered.clear();
        self.now += 1;
        decision
    }

    fn take(&mut self, kind: Kind, name: &str, value: &Value) {
        self.objects.insert((kind, name.to_owned()), value.clone());
        match kind {
            Kind::Deployment => {
                let mut deployment: Deployment =
                    serde_json::from_value(value.clone()).expect("a Deployment");
                let before = self.observed.deployments.get(name);
                if let (Some(spec), Some(before)) = (&mut deployment.spec, before) {
                    // Whoever applies no number leaves it.
                    let replicas = before.spec.as_ref().and_then(|of| of.replicas);
                    spec.replicas = spec.replicas.or(replicas);
                    deployment.status = before.status.clone();
                }
                self.observed
                    .deployments
                    .insert(name.to_owned(), deployment);
            }
            Kind::ConfigMap => {
                let data = serde_json::from_value(value["data"].clone()).expect("its data");
                self.observed.config_maps.insert(name.to_owned(), data);
            }
            Kind::Job => {
                let job: Job = serde_json::from_value(value.clone()).expect("a Job");
                self.observed.jobs.entry(name.to_owned()).or_insert(job);
            }
            _ => {}
        }
    }

    /// All pods of all Deployments are ready, with their last template.
    pub(crate) fn all_ready(&mut self) {
        let names: Vec<String> = self.observed.deployments.keys().cloned().collect();
        names.iter().for_each(|name| self.ready(name));
    }

    /// All pods of a Deployment are ready, with its last template.
    pub(crate) fn ready(&mut self, name: &str) {
        let deployment = self
            .observed
            .deployments
            .get_mut(name)
            .expect("it is there");
        let n = deployment
            .spec
            .as_ref()
            .and_then(|of| of.replicas)
            .unwrap_or(1);
        deployment.status = Some(DeploymentStatus {
            replicas: Some(n),
            updated_replicas: Some(n),
            ready_replicas: Some(n),
            available_replicas: Some(n),
            ..DeploymentStatus::default()
        });
    }

    /// The pods of a Deployment are of another template, and not ready yet.
    pub(crate) fn moves(&mut self, name: &str) {
        let deployment = self
            .observed
            .deployments
            .get_mut(name)
            .expect("it is there");
        let status = deployment.status.get_or_insert_default();
        status.updated_replicas = Some(0);
    }

    /// Kubernetes waits for the pods of a Deployment no more.
    pub(crate) fn is_late(&mut self, name: &str) {
        let deployment = self
            .observed
            .deployments
            .get_mut(name)
            .expect("it is there");
        let status = deployment.status.get_or_insert_default();
        let late = json!([{ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" }]);
        status.conditions = serde_json::from_value(late).expect("conditions");
    }

    /// Status and reason of a condition.
    pub(crate) fn said(&self, name: &str, type_: &str) -> String {
        let (status, reason, _) = self.condition(name, type_);
        format!("{status} {reason}")
    }

    /// The sentence of a condition.
    pub(crate) fn sentence(&self, name: &str, type_: &str) -> String {
        self.condition(name, type_).2
    }

    fn condition(&self, name: &str, type_: &str) -> (String, String, String) {
        let status = self.observed.resources[name]
            .status
            .as_ref()
            .expect("there was a pass");
        let mut conditions = status.conditions.iter();
        let of = conditions.find(|of| of.type_ == type_).expect("it is said");
        (of.status.clone(), of.reason.clone(), of.message.clone())
    }

    /// The replicas that were applied.
    pub(crate) fn replicas(&self, deployment: &str) -> Option<u64> {
        let key = (Kind::Deployment, deployment.to_owned());
        self.objects[&key]["spec"]["replicas"].as_u64()
    }

    /// The image of a Deployment.
    pub(crate) fn image(&self, deployment: &str) -> String {
        let deployment = &self.observed.deployments[deployment];
        let pod = deployment
            .spec
            .as_ref()
            .and_then(|of| of.template.spec.as_ref());
        pod.and_then(|of| of.containers[0].image.clone())
            .unwrap_or_default()
    }

    /// Kinds and names of all objects.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = self.objects.keys();
        all.map(|(kind, name)| format!("{kind:?} {name}")).collect()
    }

    /// The templates of all pods.
    pub(crate) fn templates(&self) -> BTreeMap<String, Value> {
        let deployments = self
            .objects
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::Deployment);
        let template = |((_, name), value): (&(Kind, String), &Value)| {
            (name.clone(), value["spec"]["template"].clone())
        };
        deployments.map(template).collect()
    }

    /// The pipeline that processes which start read.
    pub(crate) fn read(&self, pipeline: &str) -> String {
        self.observed.config_maps[&format!("{pipeline}-pipeline")]["pipeline.yaml"].clone()
    }

    /// The owners of an object.
    pub(crate) fn owners(&self, kind: Kind, name: &str) -> Vec<String> {
        let owners = &self.objects[&(kind, name.to_owned())]["metadata"]["ownerReferences"];
        let owners = owners.as_array().expect("each object has owners").iter();
        owners
            .map(|of| of["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Names of resources.
    pub(crate) fn resources(&self) -> Vec<String> {
        self.observed
            .resources
            .values()
            .map(ResourceExt::name_any)
            .collect()
    }
}
