//! The scenario `chart`: the operator by Helm, for one namespace alone.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xtask::{process, tools};

use super::cluster::{API, Namespace, Seen, wait};
use super::operator::{self, GATEWAYS, LIMIT, NAME, PODS, SYSTEM, Standing};

const CHART: &str = "deploy/helm/spillgate";
/// The chart with its own values, which `kubectl apply -k` installs.
const RENDERED: &str = "deploy/kubernetes/operator.yaml";

/// The chart is what `kubectl apply -k` installs. Helm installs it with rights in one namespace, changes it and takes it away, and the pods of
/// a pipeline stay.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let helm = Helm::new(namespace)?;
    helm.run(&["lint", "--strict", CHART])?;
    let template = ["template", "spillgate", CHART, "--namespace", SYSTEM];
    let rendered = helm.run(&[&template[..], &["--kube-version", "1.34.0"]].concat())?;
    let there = std::fs::read_to_string(namespace.cluster.workspace.path(RENDERED))?;
    // A head of its own comes first.
    let body = there.find("---\n").map_or("", |at| &there[at..]);
    ensure!(
        rendered == body,
        "{RENDERED} is not what helm {template:?} prints"
    );

    // Two operators of one namespace would write the same objects, each with its own authority.
    let system = operator::system(namespace.cluster);
    let there = system.json(&["get", "deployment", NAME])?;
    scale(&system, 0)?;
    let outcome = installed(namespace, &helm, &there);
    scale(&system, 2)?;
    outcome
}

/// Has so many of the operators that all other scenarios use.
fn scale(system: &Namespace<'_>, n: usize) -> Result<()> {
    let replicas = format!("--replicas={n}");
    system.kubectl(&["scale", "deployment", NAME, &replicas])?;
    system.ready("", n, LIMIT)?;
    Ok(())
}

/// Installs the chart with the images of the operator that is there, and takes it away again.
fn installed(
    namespace: &Namespace<'_>,
    helm: &Helm<'_, '_>,
    operator: &serde_json::Value,
) -> Result<String> {
    let container = &operator["spec"]["template"]["spec"]["containers"][0];
    let image = container["image"].as_str().context("it has no image")?;
    let (repository, tag) = image.rsplit_once(':').context("it has no tag")?;
    let env = container["env"].as_array().context("it has no env")?;
    let product = env.iter().find(|of| of["name"] == "SPILLGATE_IMAGE");
    let product = product.and_then(|of| of["value"].as_str());
    let (processes, of) = product
        .and_then(|image| image.rsplit_once(':'))
        .context("it names no image of processes")?;
    let values = json!({
        "namespace": namespace.name,
        "aggregateRoles": false,
        "image": { "repository": repository, "tag": tag, "pullPolicy": "Never" },
        "processes": { "repository": processes, "tag": of, "pullPolicy": "Never" },
        "env": [
            { "name": "KUBERNETES_SERVICE_HOST", "value": API.0 },
            { "name": "KUBERNETES_SERVICE_PORT", "value": API.1.to_string() },
        ],
    });
    let file = namespace.folder.join("values.yaml");
    std::fs::write(&file, values.to_string())?;
    let file = file.to_string_lossy();
    let ours = ["--namespace", &namespace.name];
    let upgrade = ["upgrade", "--install", "cameras", CHART, "--values", &file];
    let waits = ["--wait", "--timeout", "3m"];
    helm.run(&[&upgrade[..], &ours, &waits].concat())?;

    let pipeline = operator::two_stage(namespace, "two-stage", 1, (1, 1))?;
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "two-stage")?;
    namespace.ready(GATEWAYS, 1, LIMIT)?;
    let account = format!("--as=system:serviceaccount:{}:{NAME}", namespace.name);
    for (of, may) in [(namespace.name.as_str(), "yes"), ("default", "no")] {
        let question = ["auth", "can-i", "get", "secrets", "-n", of, &account];
        // Its exit code says it, too.
        let answer = namespace.cluster.kubectl(question).unwrap_or_default();
        ensure!(
            (answer.trim() == "yes") == (may == "yes"),
            "may the operator read Secrets of {of}? {answer}"
        );
    }
    let before = Standing::of(namespace, PODS)?;
    helm.run(&[&upgrade[..], &["--set", "replicas=1"], &ours, &waits].concat())?;
    helm.run(&[&["uninstall", "cameras", "--wait"][..], &ours].concat())?;
    let operators = "app.kubernetes.io/name=spillgate-operator";
    wait("the operator to be gone", LIMIT, || {
        let left = namespace.pods(operators)?;
        Ok(match left.is_empty() {
            true => Seen::Yes(()),
            false => Seen::NotYet(format!("{} pods", left.len())),
        })
    })?;
    before.check(namespace, PODS)?;
    Ok("lint, template, install, upgrade, uninstall; rights in its namespace alone; no pod of the pipeline changed".to_owned())
}

/// Helm on the cluster.
struct Helm<'n, 'c> {
    namespace: &'n Namespace<'c>,
    program: std::path::PathBuf,
}

impl<'n, 'c> Helm<'n, 'c> {
    fn new(namespace: &'n Namespace<'c>) -> Result<Self> {
        Ok(Helm {
            namespace,
            program: tools::build_helm(namespace.cluster.workspace)?,
        })
    }

    /// What it prints.
    fn run(&self, args: &[&str]) -> Result<String> {
        let cluster = self.namespace.cluster;
        let mut helm = cluster.workspace.program(&self.program);
        // What it keeps on a machine, and the settings of whoever runs this, are not its matter here.
        for (variable, folder) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            helm.env(variable, self.namespace.folder.join(folder));
        }
        helm.env("KUBECONFIG", cluster.kubeconfig()).args(args);
        process::capture(&mut helm)
    }
}
