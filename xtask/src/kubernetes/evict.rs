//! The scenario `evict`: the API by which a node is drained, on gateways.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::cluster::{Namespace, Pod, Seen, wait};
use super::killed::replaced;
use super::load::PodLoad;
use super::operator::{self, GATEWAYS, LIMIT};

/// One of two gateways is evicted; the other one is kept until there are two again, and may go then. Nothing fails.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let pipeline = operator::two_stage(namespace, "two-stage", 2, (1, 1))?;
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "two-stage")?;
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let args = [
        "--rate",
        "20",
        "--payload-bytes",
        "1000",
        "--connections",
        "2",
    ];
    let server = operator::address("default");
    let client = PodLoad::start(namespace, &gateways[0].image, &server, &args)?;
    client.more(GATEWAYS)?;
    let budget = || namespace.json(&["get", "poddisruptionbudget", "spillgate-default-gateway"]);
    wait("the budget to know both gateways", LIMIT, || {
        let status = budget()?["status"].clone();
        Ok(match status["disruptionsAllowed"] == 1 {
            true => Seen::Yes(()),
            false => Seen::NotYet(status.to_string()),
        })
    })?;

    evict(namespace, &gateways[0])?;
    let refusal = match evict(namespace, &gateways[1]) {
        Ok(()) => anyhow::bail!("both gateways were evicted at once"),
        Err(error) => format!("{error:#}"),
    };
    ensure!(
        refusal.contains("TooManyRequests") && refusal.contains("disruption budget"),
        "the second eviction says: {refusal}"
    );
    replaced(namespace, GATEWAYS, 2, &gateways[0])?;
    client.more(GATEWAYS)?;
    wait("the second gateway to be evicted", LIMIT, || {
        Ok(match evict(namespace, &gateways[1]) {
            Ok(()) => Seen::Yes(()),
            Err(error) => Seen::NotYet(format!("{error:#}")),
        })
    })?;
    replaced(namespace, GATEWAYS, 2, &gateways[1])?;
    client.more(GATEWAYS)?;
    let counts = client.stop()?;
    ensure!(
        counts.failed == 0 && counts.sent == counts.ended() + counts.refused,
        "the client counts {counts}"
    );
    Ok(format!("the second one: 429; {counts}"))
}

/// Evicts a pod, as `kubectl drain` does.
fn evict(namespace: &Namespace<'_>, pod: &Pod) -> Result<()> {
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": namespace.name },
    });
    let file = namespace.folder.join("eviction.json");
    std::fs::write(&file, eviction.to_string())?;
    let url = format!(
        "/api/v1/namespaces/{}/pods/{}/eviction",
        namespace.name, pod.name
    );
    let file = file.to_str().context("a path that is no text")?;
    namespace.kubectl(&["create", "--raw", &url, "-f", file])?;
    Ok(())
}
