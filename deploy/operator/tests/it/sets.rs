//! Pipelines that share gateways, a controller and processes.

use serde_json::{Value, json};
use spillgate_operator::render::Kind;

use crate::cluster::{Cluster, two_stage, with};

fn shop() -> Value {
    with(two_stage(), "pipeline.name", json!("shop"))
}

fn args(cluster: &Cluster, deployment: &str) -> String {
    let template = &cluster.templates()[deployment];
    let args = template["spec"]["containers"][0]["args"]
        .as_array()
        .unwrap();
    let args: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    args.join(" ")
}

#[test]
fn two_pipelines_share_gateways_and_one_leaves_nothing_behind() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    let alone = cluster.objects.clone();
    cluster.apply("shop", with(shop(), "gateways.replicas", json!(3)));
    for _ in 0..3 {
        cluster.pass();
        cluster.all_ready();
    }
    cluster.pass();
    let gateway = "spillgate-default-gateway";
    assert_eq!(cluster.replicas(gateway), Some(3));
    let both = "gateway /srv/pipelines/shop/pipeline.yaml /srv/pipelines/traffic/pipeline.yaml";
    assert!(
        args(&cluster, gateway).starts_with(both),
        "{}",
        args(&cluster, gateway)
    );
    assert_eq!(
        cluster.owners(Kind::Deployment, gateway),
        ["shop", "traffic"]
    );
    assert_eq!(cluster.owners(Kind::Deployment, "shop-worker-a"), ["shop"]);
    assert_eq!(
        (cluster.said("shop", "Ready"), cluster.resources().len()),
        ("True Serves".to_owned(), 2)
    );

    // Kubernetes deletes what has no owner any more; the rest is as it was.
    cluster.observed.resources.remove("shop");
    cluster.objects.retain(|_, object| {
        let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
        owners.iter().any(|of| of["name"] != "shop")
    });
    cluster.pass();
    assert_eq!(cluster.objects, alone);
}

#[test]
fn two_pipelines_of_one_name_are_told_apart() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster.apply("twin", two_stage());
    cluster.pass();
    // The first by name serves.
    let said = "spec.pipeline.name: traffic of this set serves a pipeline of the name two_stage already; give another name, or another set";
    assert_eq!(cluster.sentence("twin", "Degraded"), said);
    assert_eq!(cluster.said("traffic", "Ready"), "True Serves");
}

#[test]
fn modules_of_several_pipelines_run_in_one_process() {
    let mut cluster = Cluster::serving(
        "traffic",
        with(two_stage(), "modules.b", json!({ "with": "a" })),
    );
    assert!(args(&cluster, "traffic-worker-a").contains("--modules a?,b? "));
    let shop = with(
        shop(),
        "modules",
        json!({ "a": { "with": "traffic/a" }, "b": {} }),
    );
    cluster.apply("shop", shop);
    cluster.pass();
    let args = args(&cluster, "traffic-worker-a");
    assert!(
        args.contains("--modules shop/a?,two_stage/a?,two_stage/b? "),
        "{args}"
    );
    assert!(!cluster.observed.deployments.contains_key("shop-worker-a"));
}

#[test]
fn a_process_has_as_many_workers_as_gpus() {
    let spec = with(
        two_stage(),
        "modules.a",
        json!({ "resources": { "limits": { "nvidia.com/gpu": 2, "cpu": "4" } } }),
    );
    let cluster = Cluster::serving("traffic", spec);
    assert!(args(&cluster, "traffic-worker-a").contains("--modules a?=2 "));
}

#[test]
fn modules_that_share_processes_have_as_many_as_each_needs() {
    let b = json!({ "with": "a", "replicas": { "min": 2, "max": 6 } });
    let spec = with(two_stage(), "modules.b", b);
    let mut cluster = Cluster::serving("traffic", spec);
    cluster.pass();
    assert_eq!(cluster.replicas("traffic-worker-a"), Some(2));
}
