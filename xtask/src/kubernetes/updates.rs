//! The scenario `updates`: another revision and another image, under load.

use anyhow::{Context, Result, ensure};

use super::cluster::Namespace;
use super::load::{Counts, Loads, PodLoad};
use super::operator::{self, GATEWAYS, LIMIT, PODS, Standing};

/// Nothing fails and no request is lost. All pods stay for another revision, and all are replaced for another image.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    const NAME: &str = "two-stage";
    let mut pipeline = operator::two_stage(namespace, NAME, 2, (2, 2))?;
    namespace.apply_json(&pipeline)?;
    let revision = operator::settled(namespace, NAME)?["status"]["revision"].clone();
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let args = ["--rate", "10", "--poisson", "--payload-bytes", "1000"];
    let mut loads = Loads::start(namespace, &gateways, &args)?;
    let server = operator::address("default");
    let client = PodLoad::start(namespace, &gateways[0].image, &server, &args)?;
    loads.more()?;
    let before = Standing::of(namespace, PODS)?;

    // Another objective.
    pipeline["spec"]["pipeline"]["slo"] = "250ms".into();
    namespace.apply_json(&pipeline)?;
    let resource = operator::settled(namespace, NAME)?;
    let status = &resource["status"];
    ensure!(
        status["revision"] != revision && status["slo"] == "250ms",
        "after another objective its status is {status}"
    );
    loads.more()?;
    before.check(namespace, PODS)?;

    // The clients of these gateways alone end before them.
    let of_gateways = loads.end()?;

    // Another image: the same one under another name.
    let image = &gateways[0].image;
    let name = image.split(':').next().context("an image without a name")?;
    let other = format!("{name}:another");
    namespace.cluster.tag(image, &other)?;
    pipeline["spec"]["image"] = other.as_str().into();
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, NAME)?;
    let pods = namespace.ready(PODS, 7, LIMIT)?;
    for pod in &pods {
        ensure!(
            pod.image == other && pod.restarts == 0,
            "{pod} runs {}",
            pod.image
        );
    }
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let mut loads = Loads::start(namespace, &gateways, &args)?;
    loads.more()?;
    let of_new = loads.end()?;

    let by_name = client.stop()?;
    let clients = [of_gateways, of_new, by_name];
    for counts in clients {
        counts.check()?;
        ensure!(counts.failed == 0, "a client counts {counts}");
    }
    let all = clients
        .into_iter()
        .fold(Counts::default(), |sum, of| sum + of);
    Ok(format!("{all}; of these by name {by_name}"))
}
