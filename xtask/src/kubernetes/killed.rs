//! The scenario `killed`: pods of the operator's pipelines that end by force under load.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::cluster::{Namespace, Pod, Seen, wait};
use super::load::{Loads, PodLoad, from_cluster};
use super::operator::{self, CONTROLLER, GATEWAYS, LIMIT};

/// A worker, the controller and a gateway are deleted by force, one after the other. Gateways that live answer on, and have ended
/// in the end what they accepted; a client that connects by the Service's name is answered again by those that there are.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let pipeline = operator::two_stage(namespace, "two-stage", 2, (2, 2))?;
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "two-stage")?;
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let args = ["--rate", "10", "--poisson", "--payload-bytes", "1000"];
    let mut loads = Loads::start(namespace, &gateways, &args)?;
    let server = operator::address("default");
    let client = PodLoad::start(namespace, &gateways[0].image, &server, &args)?;
    loads.more()?;

    kill(namespace, &operator::workers("a"), 2, &mut loads)?;
    kill(namespace, CONTROLLER, 1, &mut loads)?;

    // The one that the client in the cluster is connected with. What clients wait for is lost with the gateway.
    let at = match from_cluster(namespace, &gateways[0])? > from_cluster(namespace, &gateways[1])? {
        true => 0,
        false => 1,
    };
    let (killed, lives) = (&gateways[at], &gateways[1 - at]);
    namespace.delete_by_force(killed)?;
    let of_killed = loads.leave(killed)?;
    loads.more()?;
    let new: Vec<Pod> = replaced(namespace, GATEWAYS, 2, killed)?
        .into_iter()
        .filter(|pod| pod.name != lives.name)
        .collect();
    let what = "the client in the cluster to be answered again";
    let before = from_cluster(namespace, lives)?;
    wait(what, LIMIT, || {
        let more = from_cluster(namespace, lives)? - before + from_cluster(namespace, &new[0])?;
        Ok(match more >= 15.0 {
            true => Seen::Yes(()),
            false => Seen::NotYet(format!("{more} requests")),
        })
    })?;
    let mut again = Loads::start(namespace, &new, &args)?;
    again.more()?;
    loads.more()?;
    operator::settled(namespace, "two-stage")?;

    let in_cluster = client.stop()?;
    ensure!(
        in_cluster.sent == in_cluster.ended() + in_cluster.refused && in_cluster.completed > 0,
        "the client in the cluster counts {in_cluster}"
    );
    let hosts = loads.stop_beside()? + again.stop_beside()?;
    Ok(format!(
        "gateways that lived: {hosts}; the killed one: {of_killed}; by name: {in_cluster}"
    ))
}

/// Deletes a pod by force, and waits until another one has taken its place, and gateways still answer.
fn kill(
    namespace: &Namespace<'_>,
    labels: &str,
    count: usize,
    loads: &mut Loads<'_>,
) -> Result<()> {
    let pod = &namespace.ready(labels, count, LIMIT)?[0];
    namespace.delete_by_force(pod)?;
    loads.more()?;
    replaced(namespace, labels, count, pod)?;
    loads.more()
}

/// Waits until a pod is gone, and there are as many as there should be.
pub(super) fn replaced(
    namespace: &Namespace<'_>,
    labels: &str,
    count: usize,
    gone: &Pod,
) -> Result<Vec<Pod>> {
    wait(&format!("another pod than {}", gone.name), LIMIT, || {
        let pods = namespace.ready(labels, count, Duration::ZERO)?;
        Ok(match pods.iter().all(|pod| pod.uid != gone.uid) {
            true => Seen::Yes(pods),
            false => Seen::NotYet("it is still there".to_owned()),
        })
    })
}
