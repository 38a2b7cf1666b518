//! The scenario `wrong`: what users get wrong, and what clusters lack. Each time the reason and the cure are said.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::cluster::{Namespace, Seen, wait};
use super::operator::{self, LIMIT, NAME};

/// What the API server refuses, what does not compile, and what does not get ready; the cause mended, it does.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let said = [
        refused(namespace)?,
        compiled(namespace)?,
        quota(namespace)?,
        right(namespace)?,
        binding(namespace)?,
        image(namespace)?,
        gpu(namespace)?,
    ]
    .concat();
    for line in &said {
        println!("kubernetes: {line}");
    }
    Ok(format!("{} sentences, each with its cure", said.len()))
}

/// A pipeline with one gateway, and one worker of each module.
fn small(namespace: &Namespace<'_>, name: &str) -> Result<Value> {
    let mut pipeline = operator::two_stage(namespace, name, 1, (1, 1))?;
    // What is left of one that was deleted is not in the way of the next one.
    pipeline["spec"]["set"] = name.into();
    Ok(pipeline)
}

/// Deletes a pipeline, and waits until no pod is left.
fn gone(namespace: &Namespace<'_>, name: &str) -> Result<()> {
    namespace.kubectl(&["delete", "pipeline", name])?;
    wait("the pods to go", LIMIT, || {
        let pods = namespace.pods("")?;
        Ok(match pods.is_empty() {
            true => Seen::Yes(()),
            false => Seen::NotYet(format!("{} pods", pods.len())),
        })
    })
}

/// Waits for a condition with this reason and these words, and for an event that says the same.
fn says(namespace: &Namespace<'_>, name: &str, reason: &str, words: &[&str]) -> Result<String> {
    let what = format!("{name} to be degraded: {reason}, with {words:?}, and an event");
    wait(&what, LIMIT, || {
        let of = operator::Condition::of(&operator::resource(namespace, name)?, "Degraded")?;
        let events = operator::events(namespace, name, reason)?;
        let has = |text: &String| words.iter().all(|word| text.contains(word));
        let is_right = of.holds && of.reason == reason && has(&of.message);
        Ok(match is_right && events.iter().any(has) {
            true => Seen::Yes(format!("{reason}: {}", of.message)),
            false => Seen::NotYet(format!("{of}; events: {events:?}")),
        })
    })
}

/// Shapes: `kubectl apply` fails.
fn refused(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let good = small(namespace, "refused")?;
    let mut bounds = good.clone();
    bounds["spec"]["modules"]["a"]["replicas"] = json!({ "min": 3, "max": 2 });
    let mut with = good.clone();
    with["spec"]["modules"]["b"]["with"] = "a".into();
    let mut long = good;
    long["metadata"]["name"] = "a-name-that-has-thirty-one-char".into();
    let cases = [
        (bounds, "min is larger than max; write min: 1, max: 4"),
        (
            with,
            "runs in its processes: write resources, nodeSelector and tolerations there",
        ),
        (
            long,
            "longer than 30 characters, and names of pods are made of it; give a shorter one",
        ),
    ];
    let mut said = Vec::new();
    for (pipeline, words) in cases {
        let error = namespace.apply_json(&pipeline).err();
        let error = error.with_context(|| format!("it is taken: {pipeline}"))?;
        let error = format!("{error:#}");
        ensure!(error.contains(words), "kubectl apply says: {error}");
        said.push(format!("kubectl apply: {words}"));
    }
    Ok(said)
}

/// What does not compile: nothing runs.
fn compiled(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let mut pipeline = small(namespace, "compiled")?;
    let modules = pipeline["spec"]["modules"].as_object_mut();
    modules.context("modules")?.remove("b");
    namespace.apply_json(&pipeline)?;
    let without = says(namespace, "compiled", "SpecInvalid", &["spec.modules", "b"])?;
    ensure!(
        namespace.pods("")?.is_empty(),
        "a pipeline without workers has pods"
    );
    gone(namespace, "compiled")?;
    Ok(vec![without])
}

/// A quota that is used up, and enlarged.
fn quota(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let quota = |pods: u32| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" },
            "spec": { "hard": { "pods": pods.to_string() } },
        })
    };
    namespace.apply_json(&quota(2))?;
    namespace.apply_json(&small(namespace, "quota")?)?;
    let said = says(
        namespace,
        "quota",
        "QuotaExceeded",
        &["exceeded quota: few", "ask for a larger quota"],
    )?;
    namespace.apply_json(&quota(20))?;
    operator::settled(namespace, "quota")?;
    gone(namespace, "quota")?;
    namespace.kubectl(&["delete", "resourcequota", "few"])?;
    Ok(vec![said])
}

/// A right that the operator lacks.
fn right(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let cluster = namespace.cluster;
    let mut role = cluster.json(&["get", "clusterrole", NAME])?;
    let metadata = &role["metadata"];
    role["metadata"] = json!({ "name": NAME, "labels": metadata["labels"] });
    let mut less = role.clone();
    for rule in less["rules"]
        .as_array_mut()
        .context("a role without rules")?
    {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources.retain(|of| of != "services");
        }
    }
    let write = |role: &Value| -> Result<()> {
        let file = namespace.folder.join("role.json");
        std::fs::write(&file, role.to_string())?;
        let file = file.to_string_lossy().into_owned();
        cluster.kubectl(["replace", "-f", &file]).map(drop)
    };
    write(&less)?;
    let words = [
        "no right to write services",
        "kubectl apply -k deploy/kubernetes",
    ];
    let pipeline = small(namespace, "right")?;
    let applied = namespace.apply_json(&pipeline);
    let said = applied.and_then(|()| says(namespace, "right", "Refused", &words));
    // Whatever came of it: others need the right.
    write(&role)?;
    let said = said?;
    operator::settled(namespace, "right")?;
    gone(namespace, "right")?;
    Ok(vec![said])
}

/// No right at all for a while: what runs runs on, and what was asked for meanwhile is done afterwards.
fn binding(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let cluster = namespace.cluster;
    let mut pipeline = small(namespace, "binding")?;
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "binding")?;
    let before = operator::Standing::of(namespace, "")?;
    let mut binding = cluster.json(&["get", "clusterrolebinding", NAME])?;
    binding["metadata"] = json!({ "name": NAME, "labels": binding["metadata"]["labels"] });
    let file = namespace.folder.join("binding.json");
    std::fs::write(&file, binding.to_string())?;
    cluster.kubectl(["delete", "clusterrolebinding", NAME])?;
    pipeline["spec"]["pipeline"]["slo"] = "250ms".into();
    let applied = namespace.apply_json(&pipeline);
    let system = operator::system(cluster);
    let warned = wait("an operator to say that it has no rights", LIMIT, || {
        let mut logs = String::new();
        for pod in system.pods("")? {
            logs += &system.logs(&pod)?;
        }
        Ok(
            match logs.lines().rev().find(|line| line.contains("orbidden")) {
                Some(line) => Seen::Yes(line.to_owned()),
                None => Seen::NotYet("nothing of the kind".to_owned()),
            },
        )
    });
    cluster.kubectl(["apply", "-f", &file.to_string_lossy()])?;
    applied?;
    let warned = warned?;
    let resource = operator::settled(namespace, "binding")?;
    ensure!(
        resource["status"]["slo"] == "250ms",
        "with its rights again the operator says {}",
        resource["status"]
    );
    before.check(namespace, "")?;
    gone(namespace, "binding")?;
    let warned = super::shortened(&warned);
    Ok(vec![format!("in the operator's log: {warned}")])
}

/// An image that nodes do not have.
fn image(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let mut pipeline = small(namespace, "image")?;
    pipeline["spec"]["image"] = "spillgate:no-such-version".into();
    namespace.apply_json(&pipeline)?;
    let words = [
        "spillgate:no-such-version cannot be had",
        "write spec.image:",
    ];
    let said = says(namespace, "image", "ImageMissing", &words)?;
    let spec = pipeline["spec"].as_object_mut();
    spec.context("spec")?.remove("image");
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "image")?;
    gone(namespace, "image")?;
    Ok(vec![said])
}

/// A GPU that no node has.
fn gpu(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let mut pipeline = small(namespace, "gpu")?;
    let limits = &mut pipeline["spec"]["modules"]["a"]["resources"]["limits"];
    limits["nvidia.com/gpu"] = 1.into();
    namespace.apply_json(&pipeline)?;
    let words = [
        "Insufficient nvidia.com/gpu",
        "no node has a free GPU: add one",
    ];
    let said = says(namespace, "gpu", "NoNode", &words)?;
    gone(namespace, "gpu")?;
    Ok(vec![said])
}
