//! The operator, installed once a run as a user installs it, and the pipelines that it runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::cluster::{Cluster, Namespace, Pod, Seen, wait};

/// Limits are for a machine with other work: what they bound takes seconds, but for what measures models.
pub(super) const LIMIT: Duration = Duration::from_secs(300);
/// The namespace of the operator.
pub(super) const SYSTEM: &str = "spillgate-system";
/// The operator's Deployment, its Lease and its role.
pub(super) const NAME: &str = "spillgate-operator";
/// The gateways of a set.
pub(super) const GATEWAYS: &str = "spillgate.dev/role=gateway";
/// All pods of the set that scenarios use.
pub(super) const PODS: &str = "spillgate.dev/set=default";
/// The controller of a set.
pub(super) const CONTROLLER: &str = "spillgate.dev/role=controller";

/// The workers of a module.
pub(super) fn workers(module: &str) -> String {
    format!("spillgate.dev/module={module}")
}

/// Applies `deploy/kubernetes` with the images that were built, and waits for the operator.
pub(super) fn install(cluster: &Cluster<'_>, operator: &str, product: &str) -> Result<()> {
    let folder = cluster.scratch("operator")?;
    let base = relative(
        &folder.canonicalize()?,
        &cluster.workspace.path("deploy/kubernetes").canonicalize()?,
    )?;
    let (image, tag) = operator.split_once(':').context("an image without a tag")?;
    // Without kube-proxy the address of the API's Service leads nowhere, so pods get that of the server.
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [\"{base}\"]
images:
  - {{ name: {image}, newName: {image}, newTag: \"{tag}\" }}
patches:
  - patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {{ name: {NAME}, namespace: {SYSTEM} }}
      spec:
        template:
          spec:
            containers:
              - name: operator
                imagePullPolicy: Never
                env:
                  - {{ name: SPILLGATE_IMAGE, value: \"{product}\" }}
                  - {{ name: SPILLGATE_IMAGE_PULL_POLICY, value: Never }}
                  - {{ name: KUBERNETES_SERVICE_HOST, value: \"{host}\" }}
                  - {{ name: KUBERNETES_SERVICE_PORT, value: \"{port}\" }}
",
        host = super::cluster::API.0,
        port = super::cluster::API.1,
    );
    std::fs::write(folder.join("kustomization.yaml"), text)?;
    cluster.kubectl(["apply", "-k", &folder.to_string_lossy()])?;
    system(cluster).ready("", 2, LIMIT)?;
    Ok(())
}

/// The way from one folder to another one. Kustomize takes no other.
fn relative(from: &Path, to: &Path) -> Result<String> {
    let up = "../".repeat(from.components().count() - 1);
    let to = to.to_str().context("a path that is no text")?;
    Ok(format!("{up}{}", to.trim_start_matches('/')))
}

/// The operator's own namespace.
pub(super) fn system<'c>(cluster: &'c Cluster<'_>) -> Namespace<'c> {
    Namespace {
        cluster,
        name: SYSTEM.to_owned(),
        folder: cluster.folder().join("scenarios/operator"),
    }
}

/// Writes what explains a failure: the pipelines, and what operators said.
pub(super) fn diagnose(namespace: &Namespace<'_>) -> Result<()> {
    let write = |file: &str, text: String| std::fs::write(namespace.folder.join(file), text);
    let resources = namespace.kubectl(&["get", "pipelines", "-o", "yaml"])?;
    write("pipelines.yaml", resources)?;
    let system = system(namespace.cluster);
    for pod in system.pods("")? {
        write(&format!("{}.log", pod.name), system.logs(&pod)?)?;
    }
    Ok(())
}

/// A pipeline of `deploy/kubernetes/pipelines`, to be changed and applied.
pub(super) fn example(namespace: &Namespace<'_>, name: &str) -> Result<Value> {
    let file = format!("deploy/kubernetes/pipelines/{name}.yaml");
    namespace.json(&["apply", "--dry-run=client", "-f", &file])
}

/// The example of two modules on emulated devices, under a name and with this many gateways and workers of each module.
pub(super) fn two_stage(
    namespace: &Namespace<'_>,
    name: &str,
    gateways: u32,
    (min, max): (u32, u32),
) -> Result<Value> {
    let mut pipeline = example(namespace, "two_stage")?;
    pipeline["metadata"]["name"] = name.into();
    let spec = &mut pipeline["spec"];
    spec["gateways"]["replicas"] = gateways.into();
    for module in ["a", "b"] {
        spec["modules"][module]["replicas"] = serde_json::json!({ "min": min, "max": max });
    }
    // Long enough to judge by some requests.
    spec["rollout"] = "at-once,watch=3s".into();
    Ok(pipeline)
}

/// The resource of a pipeline, as it is now.
pub(super) fn resource(namespace: &Namespace<'_>, name: &str) -> Result<Value> {
    namespace.json(&["get", "pipeline", name])
}

/// What the operator says of one kind: `Ready`, `Progressing`, `Degraded`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) holds: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Condition {
    /// The condition of a resource.
    ///
    /// # Errors
    /// It is not there, or about an earlier state of the resource.
    pub(super) fn of(resource: &Value, type_: &str) -> Result<Condition> {
        let generation = &resource["metadata"]["generation"];
        let observed = &resource["status"]["observedGeneration"];
        ensure!(
            generation == observed,
            "the operator has seen generation {observed} of {generation}"
        );
        let conditions = resource["status"]["conditions"].as_array();
        let of_type = |of: &&Value| of["type"] == type_;
        let of = conditions.and_then(|all| all.iter().find(of_type));
        let of = of.with_context(|| format!("there is no condition {type_}"))?;
        let text = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
        Ok(Condition {
            holds: of["status"] == "True",
            reason: text("reason"),
            message: text("message"),
        })
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.holds, self.reason, self.message)
    }
}

/// Waits until all that a resource says has come about: it is ready, nothing is on its way, and nothing is wrong.
///
/// # Errors
/// Also at once when the operator has taken back what the resource says.
pub(super) fn settled(namespace: &Namespace<'_>, name: &str) -> Result<Value> {
    let found = wait(&format!("{name} to settle"), LIMIT, || {
        let resource = resource(namespace, name)?;
        let types = ["Ready", "Progressing", "Degraded"];
        let said = types.map(|type_| Condition::of(&resource, type_));
        let said: Vec<Condition> = said.into_iter().collect::<Result<_>>()?;
        let holds: Vec<bool> = said.iter().map(|of| of.holds).collect();
        Ok(if holds == [true, false, false] {
            Seen::Yes(Ok(resource))
        } else if said[2].reason == "TakenBack" {
            Seen::Yes(Err(anyhow::anyhow!("{name}: {}", said[2].message)))
        } else {
            let each = types.iter().zip(&said);
            let each: Vec<String> = each.map(|(of, said)| format!("{of} {said}")).collect();
            Seen::NotYet(each.join("; "))
        })
    });
    found?
}

/// The revision of a resource that is served once all that it says has come about.
pub(super) fn revision(namespace: &Namespace<'_>, name: &str) -> Result<Value> {
    Ok(settled(namespace, name)?["status"]["revision"].clone())
}

/// Waits until the operator says of a resource that something is wrong, for this reason.
pub(super) fn degraded(namespace: &Namespace<'_>, name: &str, reason: &str) -> Result<Condition> {
    let what = format!("{name} to be degraded: {reason}");
    wait(&what, LIMIT, || {
        let of = Condition::of(&resource(namespace, name)?, "Degraded")?;
        Ok(if of.holds && of.reason == reason {
            Seen::Yes(of)
        } else {
            Seen::NotYet(of.to_string())
        })
    })
}

/// The sentences of events about a pipeline that have this reason, without those that say the same.
pub(super) fn events(namespace: &Namespace<'_>, name: &str, reason: &str) -> Result<Vec<String>> {
    let fields = format!("--field-selector=reason={reason},involvedObject.name={name}");
    let list = namespace.json(&["get", "events", &fields])?;
    let each = list["items"].as_array().context("a list has no items")?;
    let messages = each.iter().filter_map(|of| of["message"].as_str());
    let mut messages: Vec<String> = messages.map(str::to_owned).collect();
    messages.sort();
    messages.dedup();
    Ok(messages)
}

/// The pods of a namespace, each with all that changes when something is done to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standing(Vec<String>);

impl Standing {
    pub(super) fn of(namespace: &Namespace<'_>, labels: &str) -> Result<Standing> {
        let pods = namespace.pods(labels)?;
        let line = |pod: &Pod| format!("{pod} {} {} {}", pod.uid, pod.template, pod.container);
        Ok(Standing(pods.iter().map(line).collect()))
    }

    /// The pods are the same as before, and none has been started again.
    pub(super) fn check(&self, namespace: &Namespace<'_>, labels: &str) -> Result<()> {
        let now = Standing::of(namespace, labels)?;
        if *self != now {
            bail!(
                "pods changed. Before: {}. Now: {}",
                self.0.join("; "),
                now.0.join("; ")
            );
        }
        Ok(())
    }
}

/// What the controller of a set says of itself: `/status`.
pub(super) fn controller(namespace: &Namespace<'_>) -> Result<Value> {
    let pods = namespace.pods(CONTROLLER)?;
    let pod = pods.iter().find(|pod| pod.is_ready && !pod.is_ending);
    let pod = pod.context("no controller is ready")?;
    Ok(serde_json::from_str(&namespace.admin(pod, "/status")?)?)
}

/// The name of a gateway's Service in its namespace, as clients write it.
pub(super) fn address(set: &str) -> String {
    format!("http://spillgate-{set}-gateway:7700")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_way_leads_up_and_down_again() {
        let way = relative(Path::new("/a/b/c"), Path::new("/a/d")).unwrap();
        assert_eq!(way, "../../../a/d");
    }

    #[test]
    fn a_condition_of_an_earlier_generation_does_not_count() {
        let resource = |observed: u32| {
            json!({
                "metadata": { "generation": 2 },
                "status": {
                    "observedGeneration": observed,
                    "conditions": [{ "type": "Ready", "status": "True", "reason": "Serves", "message": "all" }],
                },
            })
        };
        let ready = Condition::of(&resource(2), "Ready").unwrap();
        assert_eq!(ready.to_string(), "true (Serves): all");
        assert!(Condition::of(&resource(1), "Ready").is_err());
        assert!(Condition::of(&resource(2), "Degraded").is_err());
    }
}
