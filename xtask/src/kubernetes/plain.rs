//! The scenario `plain`: `deploy/kubernetes/plain`, as a user applies it.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::cluster::{Namespace, Pod, Seen, wait};
use super::load::{self, Loads};

/// Limits are for a machine with other work: what they bound takes seconds.
const LIMIT: Duration = Duration::from_secs(180);
const GATEWAYS: &str = "app.kubernetes.io/component=gateway";
const WORKERS: &str = "app.kubernetes.io/component=worker-a";

/// All pods get ready; requests are answered while a worker is deleted, one is deleted by force, and one is killed; then
/// the gateways have ended as many requests as they accepted, and as their clients count.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    namespace.apply_folder("deploy/kubernetes/plain")?;
    namespace.ready("", 7, LIMIT)?;
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;

    // The name of the gateways' Service, as clients in the cluster know it.
    let args = [
        "--rate",
        "10",
        "--duration",
        "3s",
        "--payload-bytes",
        "1000",
    ];
    let server = "http://gateway:7700";
    let from_pod = load::from_pod(namespace, &gateways[0].image, server, &args, LIMIT)?;
    ensure!(
        from_pod.completed > 0,
        "a client in a pod counts {from_pod}"
    );

    let args = ["--rate", "15", "--poisson", "--payload-bytes", "1000"];
    let mut loads = Loads::start(namespace, &gateways, &args)?;
    loads.more()?;

    // SIGTERM: it serves what it has.
    let failed_before = loads.failed()?;
    let first = &namespace.ready(WORKERS, 2, LIMIT)?[0];
    namespace.delete(first)?;
    replaced(namespace, first)?;
    loads.more()?;
    let failed_by_deletion = loads.failed()? - failed_before;
    ensure!(
        failed_by_deletion == 0.0,
        "{failed_by_deletion} requests failed when the worker {} was deleted, which drains; another one served",
        first.name
    );

    // By force: it is gone from the API before it has ended.
    let second = &namespace.ready(WORKERS, 2, LIMIT)?[0];
    namespace.delete_by_force(second)?;
    loads.more()?;
    replaced(namespace, second)?;
    loads.more()?;

    // SIGKILL: what it had goes to the other one, and it is started again where it was.
    let third = &namespace.ready(WORKERS, 2, LIMIT)?[0];
    namespace.crash(third)?;
    loads.more()?;
    wait(
        &format!("{} to be started again", third.name),
        LIMIT,
        || {
            let pods = namespace.pods(WORKERS)?;
            let again = pods
                .iter()
                .any(|pod| pod.name == third.name && pod.restarts == 1);
            let seen: Vec<String> = pods.iter().map(Pod::to_string).collect();
            Ok(if again {
                Seen::Yes(())
            } else {
                Seen::NotYet(seen.join("; "))
            })
        },
    )?;
    namespace.ready(WORKERS, 2, LIMIT)?;
    loads.more()?;

    let all = loads.stop(from_pod)?;
    for pod in namespace.pods("")? {
        let expected = u64::from(pod.name == third.name);
        ensure!(pod.restarts == expected, "{pod}");
    }
    Ok(all.to_string())
}

/// Waits until a worker is gone, and there are two again.
fn replaced(namespace: &Namespace<'_>, gone: &Pod) -> Result<()> {
    wait(&format!("another worker than {}", gone.name), LIMIT, || {
        let pods = namespace.pods(WORKERS)?;
        let is_gone = pods.iter().all(|pod| pod.name != gone.name);
        Ok(if is_gone {
            Seen::Yes(())
        } else {
            Seen::NotYet("it is still there".to_owned())
        })
    })?;
    namespace.ready(WORKERS, 2, LIMIT)?;
    Ok(())
}
