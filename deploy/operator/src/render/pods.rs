//! Pods: one container, without rights, whose root is read-only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use serde_json::{Map, Value, json};

use super::{Rendered, merged};
use crate::crd::PipelineSpec;
use crate::names::{self, ADMIN_PORT};

/// The folder of a pipeline's files in pods: relative paths of models begin there.
const FOLDER: &str = "/srv/pipelines";
const LINK: &str = "/etc/spillgate/link";
/// The annotation with the versions that a pod began with: another one replaces the pod.
const BEGAN: &str = "spillgate.dev/began";

/// The pipeline file of a resource in pods.
pub(super) fn file(pipeline: &str) -> String {
    format!("{FOLDER}/{pipeline}/pipeline.yaml")
}

/// A pod under construction.
pub(super) struct Pod {
    container: Value,
    args: Vec<String>,
    ports: Vec<Value>,
    mounts: Vec<Value>,
    volumes: Vec<Value>,
    init: Vec<Value>,
    began: Vec<String>,
    spec: Value,
}

impl Pod {
    /// A pod of a role.
    pub(super) fn of(set: &Rendered<'_>, role: &str, image: &str) -> Self {
        let container = json!({
            "name": role,
            "image": image,
            "imagePullPolicy": set.settings.pull_policy,
            // The last lines of a process that died are the reason that people read.
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "readOnlyRootFilesystem": true,
            },
            "env": [
                { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                { "name": "SPILLGATE_SET", "value": set.set },
            ],
        });
        let secrets = set.stated(|spec| {
            (!spec.image_pull_secrets.is_empty()).then_some(&spec.image_pull_secrets)
        });
        let secrets = secrets.unwrap_or_default();
        let secrets: Vec<Value> = secrets.iter().map(|name| json!({ "name": name })).collect();
        let mut pod = Pod {
            container,
            args: Vec::new(),
            ports: Vec::new(),
            mounts: Vec::new(),
            volumes: Vec::new(),
            init: Vec::new(),
            began: Vec::new(),
            spec: json!({
                "serviceAccountName": names::network_policy(set.set),
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "securityContext": {
                    "runAsNonRoot": true,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
            }),
        };
        if !secrets.is_empty() {
            pod.spec["imagePullSecrets"] = json!(secrets);
        }
        pod.volume(
            "tmp",
            "/tmp",
            json!({ "emptyDir": { "sizeLimit": "64Mi" } }),
            false,
        );
        pod
    }

    pub(super) fn args(&mut self, args: impl IntoIterator<Item = impl Into<String>>) {
        self.args.extend(args.into_iter().map(Into::into));
    }

    pub(super) fn port(&mut self, name: &str, port: u16) {
        self.ports
            .push(json!({ "name": name, "containerPort": port, "protocol": "TCP" }));
    }

    fn volume(&mut self, name: &str, path: &str, source: Value, is_read_only: bool) {
        self.volumes.push(merged(json!({ "name": name }), source));
        self.mounts
            .push(json!({ "name": name, "mountPath": path, "readOnly": is_read_only }));
    }

    /// A Secret as a folder. The files change with the Secret.
    pub(super) fn secret(&mut self, name: &str, secret: &str, path: &str) {
        self.volume(
            name,
            path,
            json!({ "secret": { "secretName": secret } }),
            true,
        );
    }

    /// The certificates of links.
    pub(super) fn link_certificates(&mut self, secret: &str) {
        self.secret("link", secret, LINK);
        for (variable, file) in [
            ("SPILLGATE_LINK_CA", "ca.crt"),
            ("SPILLGATE_LINK_CERT", "tls.crt"),
            ("SPILLGATE_LINK_KEY", "tls.key"),
        ] {
            let value = json!({ "name": variable, "value": format!("{LINK}/{file}") });
            if let Value::Array(env) = &mut self.container["env"] {
                env.push(value);
            }
        }
        let name = json!({ "name": "SPILLGATE_NAME", "value": "$(POD_NAME)" });
        if let Value::Array(env) = &mut self.container["env"] {
            env.push(name);
        }
    }

    /// Keys of a ConfigMap as files of a pipeline's folder. They are those with which the pod began: processes hear of others from
    /// their controllers.
    pub(super) fn reads(&mut self, pipeline: &str, config_map: &str, keys: &[&str]) {
        let volume = format!("pipeline-{pipeline}");
        self.volumes
            .push(json!({ "name": volume, "configMap": { "name": config_map } }));
        for key in keys {
            let path = format!("{FOLDER}/{pipeline}/{key}");
            self.mounts.push(
                json!({ "name": volume, "mountPath": path, "subPath": key, "readOnly": true }),
            );
        }
    }

    /// The models of a pipeline.
    pub(super) fn models(&mut self, pipeline: &str, spec: &PipelineSpec) {
        let Some(models) = &spec.models else {
            return;
        };
        let volume = format!("models-{pipeline}");
        let path = format!("{FOLDER}/{pipeline}/models");
        let source = match &models.persistent_volume_claim {
            Some(claim) => {
                json!({ "persistentVolumeClaim": { "claimName": claim.claim_name, "readOnly": true } })
            }
            None => json!({ "emptyDir": {} }),
        };
        self.volume(&volume, &path, source, true);
        for container in models.init_containers.iter().flatten() {
            self.init.push(of_user(container, pipeline, &volume));
        }
    }

    pub(super) fn resources(&mut self, resources: Option<&ResourceRequirements>) {
        if let Some(resources) = resources {
            self.container["resources"] = json!(resources);
        }
    }

    pub(super) fn placed(
        &mut self,
        selector: &BTreeMap<String, String>,
        tolerations: &[Toleration],
    ) {
        if !selector.is_empty() {
            self.spec["nodeSelector"] = json!(selector);
        }
        if !tolerations.is_empty() {
            self.spec["tolerations"] = json!(tolerations);
        }
    }

    /// The version of a pipeline with which the pod begins.
    pub(super) fn began(&mut self, version: &str) {
        self.began.push(version.to_owned());
    }

    /// Time to end in order.
    pub(super) fn drains(&mut self, seconds: u32) {
        self.spec["terminationGracePeriodSeconds"] = json!(seconds);
    }

    /// Probes of the admin port. A process is live while it answers; it is ready when it serves.
    pub(super) fn probes(&mut self) {
        self.port("admin", ADMIN_PORT);
        let env = json!({ "name": "SPILLGATE_ADMIN", "value": format!("[::]:{ADMIN_PORT}") });
        if let Value::Array(all) = &mut self.container["env"] {
            all.push(env);
        }
        let get = |path: &str| json!({ "path": path, "port": "admin" });
        let probes = json!({
            // The port opens before models are loaded.
            "startupProbe": { "httpGet": get("/livez"), "periodSeconds": 1, "failureThreshold": 60 },
            "readinessProbe": { "httpGet": get("/readyz"), "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 2 },
            "livenessProbe": { "httpGet": get("/livez"), "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6 },
        });
        self.container = merged(std::mem::take(&mut self.container), probes);
    }

    /// The pod's template.
    pub(super) fn template(&self, labels: Value, more: Value) -> Value {
        let mut container = self.container.clone();
        container["args"] = json!(self.args);
        container["volumeMounts"] = json!(self.mounts);
        if !self.ports.is_empty() {
            container["ports"] = json!(self.ports);
        }
        let mut spec = merged(self.spec.clone(), more);
        spec["containers"] = json!([container]);
        spec["volumes"] = json!(self.volumes);
        if !self.init.is_empty() {
            spec["initContainers"] = json!(self.init);
        }
        let labels = merged(
            json!({
                names::MANAGED_BY: names::OPERATOR,
                "app.kubernetes.io/part-of": "spillgate",
            }),
            labels,
        );
        let mut metadata = json!({ "labels": labels });
        if !self.began.is_empty() {
            metadata["annotations"] = json!({ BEGAN: self.began.join(" ") });
        }
        json!({ "metadata": metadata, "spec": spec })
    }
}

/// A container of the user: what it calls the volume `models` is that of its pipeline.
fn of_user(container: &Map<String, Value>, pipeline: &str, volume: &str) -> Value {
    let mut container = container.clone();
    let name = container
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or("models");
    container.insert("name".to_owned(), json!(format!("{pipeline}-{name}")));
    if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
        for mount in mounts {
            if mount["name"] == "models" {
                mount["name"] = json!(volume);
            }
        }
    }
    Value::Object(container)
}
