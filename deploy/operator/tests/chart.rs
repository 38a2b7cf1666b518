//! What installs the operator fits the program: the chart, `deploy/kubernetes`, and the pipelines that the documents show.
//!
//! `deploy/kubernetes/operator.yaml` is the chart with its own values, as Helm renders it. Helm takes minutes to build, so these tests need
//! none: the file names the SHA-256 of the chart that it was rendered from, and its own. With a Helm the two are compared, or it is written anew:
//!
//! ```sh
//! HELM=helm cargo test -p spillgate-operator --test chart
//! HELM=helm UPDATE_EXPECT=1 cargo test -p spillgate-operator --test chart
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect_file;
use serde::Deserialize;
use serde_yaml::Value;
use sha2::{Digest, Sha256};
use spillgate_operator::crd::Pipeline;
use spillgate_operator::definition::define;
use spillgate_operator::names;
use spillgate_operator::render::Kind;

const PROGRAM: &str = env!("CARGO_BIN_EXE_spillgate-operator");
const CHART: &str = "deploy/helm/spillgate";
const RENDERED: &str = "deploy/kubernetes/operator.yaml";
/// Where `deploy/kubernetes` installs the operator.
const NAMESPACE: &str = "spillgate-system";

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(of)
}

fn text(of: &str) -> String {
    std::fs::read_to_string(path(of)).unwrap_or_else(|error| panic!("{of}: {error}"))
}

/// The files below a folder of the repository, by their paths there.
fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let entries =
        std::fs::read_dir(path(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    for entry in entries {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&name)),
            false => found.push(name),
        }
    }
    found.sort();
    found
}

/// The objects of a file.
fn objects(of: &str) -> Vec<Value> {
    let text = text(of);
    let all = serde_yaml::Deserializer::from_str(&text).map(|document| {
        Value::deserialize(document).unwrap_or_else(|error| panic!("{of}: {error}"))
    });
    all.filter(|object| !object.is_null()).collect()
}

fn string(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value:?} is no text"))
}

fn strings(value: &Value) -> Vec<&str> {
    let list = value.as_sequence();
    let list = list.unwrap_or_else(|| panic!("{value:?} is no list"));
    list.iter().map(string).collect()
}

/// The object of a kind and name in `operator.yaml`.
fn rendered(kind: &str, name: &str) -> Value {
    let mut all = objects(RENDERED).into_iter();
    let found = all.find(|of| of["kind"] == kind && of["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{RENDERED} has no {kind} {name}"))
}

fn sha256(text: &str) -> String {
    let hash = Sha256::digest(text);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The head of `operator.yaml`: what it was rendered from, and to what.
fn head(body: &str) -> String {
    let is_rendered = |of: &String| {
        let name = of.strip_prefix(CHART).unwrap_or_default();
        name.starts_with("/templates/") || ["/Chart.yaml", "/values.yaml"].contains(&name)
    };
    let chart = files(CHART).into_iter().filter(is_rendered);
    let chart: String = chart
        .map(|file| format!("{file}\n{}\n", text(&file)))
        .collect();
    format!(
        "# The chart {CHART} with its own values, as Helm renders it. deploy/operator/tests/chart.rs says how it is written anew.\n\
         # SHA-256 of the chart: {}\n\
         # SHA-256 of what follows: {}\n",
        sha256(&chart),
        sha256(body)
    )
}

#[test]
fn the_chart_has_the_definition_that_the_program_prints() {
    let printed = Command::new(PROGRAM).arg("crd").output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).unwrap();
    expect_file!["../../helm/spillgate/crds/pipelines.yaml"].assert_eq(&printed);
}

#[test]
fn the_rendered_chart_is_of_the_chart() {
    let Ok(helm) = std::env::var("HELM") else {
        let there = text(RENDERED);
        let body = there.find("---\n").map_or("", |at| &there[at..]);
        assert!(
            there == head(body) + body,
            "the chart or {RENDERED} has changed: write it anew, as the head of deploy/operator/tests/chart.rs says"
        );
        return;
    };
    let chart = path(CHART);
    let helm = |args: &[&str]| {
        let said = Command::new(&helm).args(args).arg(&chart).output();
        let said = said.unwrap_or_else(|error| panic!("{helm}: {error}"));
        let errors = String::from_utf8_lossy(&said.stderr).into_owned();
        let text = String::from_utf8(said.stdout).unwrap();
        assert!(said.status.success(), "helm {args:?}: {errors}{text}");
        text
    };
    helm(&["lint", "--strict"]);
    let template = |more: &[&str]| {
        // A Helm that Go installed knows no version of Kubernetes.
        let all = [
            "template",
            "spillgate",
            "--namespace",
            NAMESPACE,
            "--kube-version",
            "1.34.0",
        ];
        helm(&[&all, more].concat())
    };
    let body = template(&[]);
    expect_file!["../../kubernetes/operator.yaml"].assert_eq(&(head(&body) + &body));
    // With a namespace the operator has rights there alone.
    let of_one = template(&["--set", "namespace=cameras,aggregateRoles=false"]);
    assert!(!of_one.contains("kind: ClusterRole"), "{of_one}");
    assert_eq!(
        of_one.matches("  namespace: cameras\n").count(),
        2,
        "{of_one}"
    );
}

#[test]
fn versions_are_those_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = &objects(&format!("{CHART}/Chart.yaml"))[0];
    assert_eq!(
        (string(&chart["version"]), string(&chart["appVersion"])),
        (version, version)
    );
    let deployment = rendered("Deployment", names::OPERATOR);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        string(&container["image"]),
        format!("spillgate-operator:{version}")
    );
    let env = container["env"].as_sequence().unwrap();
    let image = env.iter().find(|of| of["name"] == "SPILLGATE_IMAGE");
    assert_eq!(
        string(&image.unwrap()["value"]),
        format!("spillgate:{version}")
    );
    let kustomization = &objects("deploy/kubernetes/kustomization.yaml")[0];
    for image in kustomization["images"].as_sequence().unwrap() {
        assert_eq!(string(&image["newTag"]), version);
    }
}

#[test]
fn each_value_has_a_schema_and_a_comment() {
    let file = format!("{CHART}/values.yaml");
    let values = &objects(&file)[0];
    let schema = &objects(&format!("{CHART}/values.schema.json"))[0];
    let keys = |of: &Value| -> BTreeSet<String> {
        let keys = of.as_mapping().unwrap().keys();
        keys.map(|key| string(key).to_owned()).collect()
    };
    let mut known = keys(&schema["properties"]);
    assert!(
        known.remove("global"),
        "Helm gives it to charts within charts"
    );
    assert_eq!(keys(values), known);
    for part in ["image", "processes"] {
        assert_eq!(
            keys(&values[part]),
            keys(&schema["properties"][part]["properties"]),
            "{part}"
        );
    }
    let text = text(&file);
    let lines: Vec<&str> = text.lines().collect();
    for key in keys(values) {
        let at = lines
            .iter()
            .position(|line| line.starts_with(&format!("{key}:")));
        let above = at.and_then(|at| lines.get(at.checked_sub(1)?));
        assert!(
            above.is_some_and(|line| line.starts_with("# ")),
            "{file}: {key} has no comment"
        );
    }
}

#[test]
fn the_deployment_says_what_the_program_reads() {
    let help = Command::new(PROGRAM)
        .args(["run", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    // Its lines are broken where a terminal's would be.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let deployment = rendered("Deployment", names::OPERATOR);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(strings(&container["args"]), ["run"]);
    let mut said = BTreeSet::new();
    for variable in container["env"].as_sequence().unwrap() {
        said.insert(string(&variable["name"]).to_owned());
    }
    // The log's own.
    assert!(said.remove("RUST_LOG"));
    let templates = text(&format!("{CHART}/templates/deployment.yaml"));
    assert!(
        templates.contains("- name: SPILLGATE_OPERATOR_NAMESPACE"),
        "--namespace"
    );
    said.insert("SPILLGATE_OPERATOR_NAMESPACE".to_owned());
    let reads = help
        .split("[env: ")
        .skip(1)
        .map(|of| of.split_once('=').unwrap().0);
    let reads: BTreeSet<String> = reads.map(str::to_owned).collect();
    assert_eq!(said, reads);
}

type Rights = BTreeMap<(String, String), BTreeSet<String>>;

fn right(rights: &mut Rights, group: &str, resource: &str, verbs: &[&str]) {
    let of = rights
        .entry((group.to_owned(), resource.to_owned()))
        .or_default();
    of.extend(verbs.iter().map(|verb| (*verb).to_owned()));
}

/// All kinds that the operator writes.
const KINDS: [Kind; 8] = [
    Kind::ConfigMap,
    Kind::Secret,
    Kind::Service,
    Kind::ServiceAccount,
    Kind::NetworkPolicy,
    Kind::PodDisruptionBudget,
    Kind::Deployment,
    Kind::Job,
];

/// Whether `decide` deletes objects of a kind; others go with their owners.
fn is_deleted(kind: Kind) -> bool {
    match kind {
        Kind::Deployment | Kind::PodDisruptionBudget | Kind::Job | Kind::ConfigMap => true,
        Kind::Secret | Kind::Service | Kind::ServiceAccount | Kind::NetworkPolicy => false,
    }
}

/// What the operator does in the namespaces of pipelines.
fn done() -> Rights {
    let mut rights = Rights::new();
    for kind in KINDS {
        let (api_version, _, plural) = kind.api();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        // Server-side apply, after a look at whose it is.
        right(&mut rights, group, plural, &["get", "create", "patch"]);
        if is_deleted(kind) {
            right(&mut rights, group, plural, &["delete"]);
        }
    }
    let watched = [
        ("spillgate.dev", "pipelines"),
        ("apps", "deployments"),
        ("batch", "jobs"),
        ("", "configmaps"),
        ("", "pods"),
    ];
    for (group, resource) in watched {
        right(&mut rights, group, resource, &["list", "watch"]);
    }
    right(&mut rights, "spillgate.dev", "pipelines/status", &["patch"]);
    right(&mut rights, "events.k8s.io", "events", &["create", "patch"]);
    right(&mut rights, "", "pods/log", &["get"]);
    rights
}

/// The rights of a role. Rules that name objects are given apart.
fn rights(role: &Value) -> (Rights, Vec<Value>) {
    let (mut all, mut named) = (Rights::new(), Vec::new());
    for rule in role["rules"].as_sequence().unwrap() {
        let keys = rule.as_mapping().unwrap().keys().map(string);
        let keys: BTreeSet<&str> = keys.collect();
        if keys != BTreeSet::from(["apiGroups", "resources", "verbs"]) {
            named.push(rule.clone());
            continue;
        }
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                right(&mut all, group, resource, &strings(&rule["verbs"]));
            }
        }
    }
    (all, named)
}

#[test]
fn the_operator_may_do_what_it_does_and_no_more() {
    assert_eq!(
        rights(&rendered("ClusterRole", "spillgate-operator")),
        (done(), Vec::new())
    );

    let mut creates = Rights::new();
    right(&mut creates, "coordination.k8s.io", "leases", &["create"]);
    let its_own: Value = serde_yaml::from_str(
        "{ apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [spillgate-operator], verbs: [get, update] }",
    )
    .unwrap();
    let role = rendered("Role", "spillgate-operator-lease");
    assert_eq!(role["metadata"]["namespace"], NAMESPACE);
    assert_eq!(rights(&role), (creates, vec![its_own]));
}

#[test]
fn nobody_else_gets_rights_but_users_to_pipelines() {
    let mut found = BTreeSet::new();
    for file in installed() {
        for object in objects(&file) {
            let (kind, name) = (string(&object["kind"]), &object["metadata"]["name"]);
            if !kind.contains("Role") {
                continue;
            }
            assert_eq!(file, RENDERED, "{kind} {name:?}");
            let name = string(name);
            found.insert(format!("{kind} {name}"));
            if kind.ends_with("Binding") {
                let subject = &object["subjects"];
                assert_eq!(subject.as_sequence().map(Vec::len), Some(1), "{name}");
                let of = |field: &str| string(&subject[0][field]).to_owned();
                let operator = ["ServiceAccount", names::OPERATOR, NAMESPACE].map(str::to_owned);
                assert_eq!(
                    [of("kind"), of("name"), of("namespace")],
                    operator,
                    "{name}"
                );
                assert_eq!(string(&object["roleRef"]["name"]), name);
                assert_eq!(
                    format!("{}Binding", string(&object["roleRef"]["kind"])),
                    kind
                );
            }
        }
    }
    let expected = [
        "ClusterRole spillgate-operator",
        "ClusterRole spillgate-pipelines-edit",
        "ClusterRole spillgate-pipelines-view",
        "ClusterRoleBinding spillgate-operator",
        "Role spillgate-operator-lease",
        "RoleBinding spillgate-operator-lease",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());

    for (name, verbs) in [
        (
            "spillgate-pipelines-view",
            ["get", "list", "watch"].as_slice(),
        ),
        (
            "spillgate-pipelines-edit",
            &["create", "update", "patch", "delete"],
        ),
    ] {
        let (all, named) = rights(&rendered("ClusterRole", name));
        assert_eq!(named, Vec::<Value>::new(), "{name}");
        let verbs: BTreeSet<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        for ((group, resource), of) in all {
            assert_eq!(group, "spillgate.dev", "{name}");
            assert!(resource.starts_with("pipelines"), "{name}: {resource}");
            assert!(
                of == verbs && (of.contains("get") || resource != "pipelines/status"),
                "{name}: {resource}"
            );
        }
    }
}

/// What `kubectl apply -k deploy/kubernetes` applies, and the pipelines beside it.
fn installed() -> Vec<String> {
    let kustomization = &objects("deploy/kubernetes/kustomization.yaml")[0];
    let resources = strings(&kustomization["resources"]);
    assert_eq!(
        resources,
        ["namespace.yaml", "../helm/spillgate/crds", "operator.yaml"]
    );
    let crds = &objects(&format!("{CHART}/crds/Kustomization"))[0];
    assert_eq!(strings(&crds["resources"]), ["pipelines.yaml"]);
    let mut files = files("deploy/kubernetes/pipelines");
    files.push(format!("{CHART}/crds/pipelines.yaml"));
    files.extend(
        ["namespace.yaml", "operator.yaml"].map(|name| format!("deploy/kubernetes/{name}")),
    );
    files
}

#[test]
fn the_operators_pods_keep_to_the_standard_restricted() {
    let namespace = &objects("deploy/kubernetes/namespace.yaml")[0];
    assert_eq!(namespace["metadata"]["name"], NAMESPACE);
    assert_eq!(
        namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
        "restricted"
    );

    let deployment = rendered("Deployment", names::OPERATOR);
    let template = &deployment["spec"]["template"];
    // NetworkPolicies of sets know it by this label.
    assert_eq!(
        template["metadata"]["labels"]["app.kubernetes.io/name"],
        names::OPERATOR
    );
    let pod = &template["spec"];
    let expected = "{ runAsNonRoot: true, seccompProfile: { type: RuntimeDefault } }";
    let expected: Value = serde_yaml::from_str(expected).unwrap();
    assert_eq!(
        pod["securityContext"], expected,
        "no user is named: a cluster may choose one"
    );
    let expected = "{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: [ALL] } }";
    let expected: Value = serde_yaml::from_str(expected).unwrap();
    let containers = pod["containers"].as_sequence().unwrap();
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0]["securityContext"], expected);
    for field in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
        assert!(pod.get(field).is_none(), "{field}");
    }
    for volume in pod["volumes"].as_sequence().unwrap() {
        assert!(volume.get("emptyDir").is_some(), "{volume:?}");
    }

    let budget = rendered("PodDisruptionBudget", names::OPERATOR);
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
}

/// The resource's name, and the kinds of devices of which execution times are missing.
fn checked(of: &str, text: &str) -> (String, Vec<String>) {
    let resource: Pipeline =
        serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{of}: {error}"));
    let name = resource.metadata.name.unwrap();
    let catalog = spillgate_modules::library().catalog();
    let definition = define(&name, &resource.spec, None, &catalog);
    let definition = definition.unwrap_or_else(|wrong| panic!("{of}: {wrong}"));
    let missing = definition.missing(&definition.given);
    (name, missing)
}

#[test]
fn the_pipelines_beside_the_operator_are_right() {
    let all = files("deploy/kubernetes/pipelines");
    let all: Vec<_> = all.iter().map(|file| checked(file, &text(file))).collect();
    let cpu = vec!["cpu".to_owned()];
    assert_eq!(
        all,
        [
            ("traffic".to_owned(), cpu),
            ("two-stage".to_owned(), Vec::new())
        ]
    );
}

#[test]
fn the_pipelines_in_the_documents_are_right() {
    const PAGE: &str = "docs/kubernetes.md";
    let page = text(PAGE);
    let blocks = page.split("```yaml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap_or_default());
    let pipelines: Vec<&str> = blocks
        .filter(|block| block.contains("kind: Pipeline"))
        .collect();
    assert!(!pipelines.is_empty(), "{PAGE} shows no pipeline");
    for pipeline in pipelines {
        checked(PAGE, pipeline);
    }
}
