//! The scenario `pair`: two pipelines of a set, of which one is deleted under load.

use anyhow::{Context, Result, ensure};

use super::cluster::{Namespace, Seen, wait};
use super::load::PodLoad;
use super::operator::{self, GATEWAYS, LIMIT};

/// Kinds of all that the operator makes.
const KINDS: &str = "deployments,replicasets,pods,services,jobs,configmaps,secrets,poddisruptionbudgets,networkpolicies,serviceaccounts";

/// Of the deleted one nothing is left, and the other one answers on without a failure. With the last one the set goes.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    for name in ["stays", "goes"] {
        let pipeline = operator::two_stage(namespace, name, 2, (2, 2))?;
        namespace.apply_json(&pipeline)?;
    }
    for name in ["stays", "goes"] {
        operator::settled(namespace, name)?;
    }
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let all = left(namespace)?;
    let of_it = |name: &&String| {
        name.split_once('/')
            .is_some_and(|(_, name)| name.starts_with("goes-"))
    };
    let had = all.iter().filter(of_it).count();
    ensure!(had >= 6, "of two pipelines there are only {all:?}");
    // By the Service's name: gateways of a set are replaced when a pipeline leaves it.
    let args = [
        "--rate",
        "20",
        "--payload-bytes",
        "1000",
        "--connections",
        "2",
        "--pipeline",
        "stays",
    ];
    let server = operator::address("default");
    let client = PodLoad::start(namespace, &gateways[0].image, &server, &args)?;
    client.more(GATEWAYS)?;

    namespace.kubectl(&["delete", "pipeline", "goes", "--wait=false"])?;
    wait("nothing of the deleted pipeline to be left", LIMIT, || {
        let left = left(namespace)?;
        let left: Vec<&String> = left.iter().filter(of_it).collect();
        Ok(match left.is_empty() {
            true => Seen::Yes(()),
            false => Seen::NotYet(format!("{left:?}")),
        })
    })?;
    operator::settled(namespace, "stays")?;
    let mentions = namespace.kubectl(&[
        "get",
        KINDS,
        "-l",
        "spillgate.dev/pipeline=goes",
        "-o",
        "name",
    ])?;
    ensure!(mentions.is_empty(), "there are still {mentions}");
    client.more(GATEWAYS)?;
    let counts = client.stop()?;
    ensure!(
        counts.failed == 0
            && counts.sent == counts.ended() + counts.refused
            && counts.completed > 0,
        "the client counts {counts}"
    );

    namespace.kubectl(&["delete", "pipeline", "stays", "--wait=false"])?;
    wait("nothing of the set to be left", LIMIT, || {
        let left = left(namespace)?;
        Ok(match left.is_empty() {
            true => Seen::Yes(()),
            false => Seen::NotYet(format!("{left:?}")),
        })
    })?;
    Ok(format!("{had} objects of it gone; {counts}"))
}

/// All that the operator made in a namespace, as KIND/NAME.
fn left(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let list = namespace.json(&["get", KINDS])?;
    let each = list["items"].as_array().context("a list has no items")?;
    let names = each.iter().filter_map(|of| {
        let name = of["metadata"]["name"].as_str()?;
        // What Kubernetes itself puts into each namespace, and the client.
        let is_other = ["kube-root-ca.crt", "default", "client"].contains(&name);
        (!is_other).then(|| format!("{}/{name}", of["kind"].as_str().unwrap_or_default()))
    });
    Ok(names.collect())
}
