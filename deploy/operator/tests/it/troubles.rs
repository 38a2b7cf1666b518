//! What is wrong with pods, as users read it.

use expect_test::expect;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::cluster::{Cluster, two_stage};

/// What is said of a pod of worker a in this state.
fn pod(status: Value) -> String {
    let mut cluster = Cluster::serving("traffic", two_stage());
    let mut labels = cluster.templates()["traffic-worker-a"]["metadata"]["labels"].clone();
    labels["pod-template-hash"] = json!("1");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "traffic-worker-a-1", "labels": labels },
        "status": status,
    }))
    .unwrap();
    cluster.observed.pods.push(pod);
    cluster.pass();
    let reason = cluster.said("traffic", "Degraded");
    format!("{reason}: {}", cluster.sentence("traffic", "Degraded"))
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({ "containerStatuses": [{
        "name": "worker", "image": "spillgate:9", "imageID": "", "ready": false, "restartCount": 1,
        "state": { "waiting": { "reason": reason, "message": message } },
        "lastState": { "terminated": { "exitCode": 78, "message": "loading\nerror: modules.a: model x.pt is not there; give another path\n" } },
    }]})
}

fn not_placed(message: &str) -> Value {
    json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }] })
}

#[test]
fn what_is_wrong_with_pods_is_named_with_the_cure() {
    let all = [
        pod(waiting("ImagePullBackOff", "Back-off pulling image")),
        pod(waiting("CrashLoopBackOff", "back-off 10s")),
        pod(waiting(
            "CreateContainerConfigError",
            "secret \"tokens\" not found",
        )),
        pod(not_placed(
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        )),
        pod(not_placed(
            "0/3 nodes are available: 3 Insufficient memory.",
        )),
        pod(json!({ "phase": "Running" })),
    ];
    expect![[r#"
        True ImageMissing: traffic-worker-a: the image spillgate:9 cannot be had: Back-off pulling image; write spec.image: with one that nodes can pull, or spec.imagePullSecrets:
        True ProcessFails: traffic-worker-a: the process of pod traffic-worker-a-1 ends with code 78: error: modules.a: model x.pt is not there; give another path; see kubectl logs traffic-worker-a-1 --previous
        True PodFails: traffic-worker-a: pod traffic-worker-a-1 cannot start: secret "tokens" not found; create what it names
        True NoNode: traffic-worker-a: no node takes pod traffic-worker-a-1: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.; no node has a free GPU: add one, install its device plugin, or write device: cpu without GPUs in resources
        True NoNode: traffic-worker-a: no node takes pod traffic-worker-a-1: 0/3 nodes are available: 3 Insufficient memory.; add a node with room, or ask for less in resources
        False AsExpected: nothing is wrong"#]].assert_eq(&all.join("\n"));
}

#[test]
fn what_a_quota_forbids_is_named() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    let worker = cluster
        .observed
        .deployments
        .get_mut("traffic-worker-a")
        .unwrap();
    let failure = json!([{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": "pods \"traffic-worker-a-1\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4",
    }]);
    worker.status.as_mut().unwrap().conditions = serde_json::from_value(failure).unwrap();
    cluster.pass();
    expect![[r#"traffic-worker-a cannot have all its pods: pods "traffic-worker-a-1" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4; ask for a larger quota, or give fewer replicas or resources"#]].assert_eq(&cluster.sentence("traffic", "Degraded"));
}

#[test]
fn what_the_api_refuses_is_said() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    cluster
        .observed
        .refusals
        .push("Deployment x: no".to_owned());
    cluster.pass();
    assert_eq!(cluster.said("traffic", "Degraded"), "True Refused");
    assert_eq!(cluster.said("traffic", "Ready"), "True Serves");
}
