//! The scenario `scale`: workers follow the load, up and down.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cluster::{Namespace, Pod, Seen, sum, wait};
use super::load::Loads;
use super::operator::{self, GATEWAYS, LIMIT};

/// What one worker of a module serves in a second: batches of one request take 20 ms.
const CAPACITY: f64 = 50.0;
/// In which drops are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Most of them, as a part of all.
const DROPPED_MAX: f64 = 0.02;

/// From 0.6 to 1.8 of what one worker serves: more are wanted, they get ready, and hardly a request is dropped. Afterwards there
/// is one again. The seconds are printed, and nothing is asserted of them.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let pipeline = operator::two_stage(namespace, "two-stage", 2, (1, 4))?;
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "two-stage")?;
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let rate = |part: f64| (part * CAPACITY / gateways.len() as f64).to_string();
    let payload = ["--payload-bytes", "1000"];
    let mut base = Loads::start(
        namespace,
        &gateways,
        &["--rate", &rate(0.6), payload[0], payload[1]],
    )?;
    base.more()?;
    ensure!(
        numbers(namespace)?.iter().all(|of| of.replicas == 1),
        "at 0.6 of its capacity a module has more than one worker: {:?}",
        numbers(namespace)?
    );

    let begun = Instant::now();
    let seconds = || begun.elapsed().as_secs_f64();
    let more = Loads::start(
        namespace,
        &gateways,
        &["--rate", &rate(1.2), payload[0], payload[1]],
    )?;
    let reached = |what: &str, is: &dyn Fn(&Numbers) -> bool| {
        wait(what, LIMIT, || {
            let numbers = numbers(namespace)?;
            Ok(match numbers.iter().all(is) {
                true => Seen::Yes(seconds()),
                false => Seen::NotYet(format!("{numbers:?}")),
            })
        })
    };
    let wanted = reached("more workers to be wanted", &|of| of.wanted > 1)?;
    let replicas = reached("Deployments to have more replicas", &|of| of.replicas > 1)?;
    let ready = reached("the workers to be ready", &|of| {
        of.replicas > 1 && of.ready == of.replicas && of.wanted == of.replicas
    })?;
    let mut part = 0.0;
    let calm = wait("hardly a request to be dropped", LIMIT, || {
        let before = ended(namespace, &gateways)?;
        std::thread::sleep(WINDOW);
        let after = ended(namespace, &gateways)?;
        let (all, completed) = (after.0 - before.0, after.1 - before.1);
        ensure!(all > 0.0, "no request ended in {WINDOW:?}");
        part = (all - completed) / all;
        Ok(match part < DROPPED_MAX {
            true => Seen::Yes(seconds()),
            false => Seen::NotYet(format!("{} of {all} not in time", all - completed)),
        })
    })?;
    let most = numbers(namespace)?.map(|of| of.replicas);
    ensure!(
        most.iter().all(|n| *n <= 4),
        "{most:?} workers, at most 4 are allowed"
    );
    let of_more = more.end()?;
    let begun = Instant::now();
    wait("one worker of each module to be left", LIMIT, || {
        let numbers = numbers(namespace)?;
        Ok(
            match numbers.iter().all(|of| of.replicas == 1 && of.ready == 1) {
                true => Seen::Yes(()),
                false => Seen::NotYet(format!("{numbers:?}")),
            },
        )
    })?;
    let down = begun.elapsed().as_secs_f64();
    base.more()?;
    let all = base.stop(of_more)?;
    ensure!(all.failed == 0, "{all}");
    Ok(format!(
        "wanted after {wanted:.1} s, replicas after {replicas:.1} s, ready after {ready:.1} s ({} and {}), {:.1}% not in time until \
         {calm:.0} s; down after {down:.0} s; {all}",
        most[0],
        most[1],
        part * 100.0
    ))
}

/// Workers of a module.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    /// As the controller says.
    wanted: u64,
    /// As the Deployment says.
    replicas: u64,
    /// That are ready.
    ready: u64,
}

/// Those of the two modules.
fn numbers(namespace: &Namespace<'_>) -> Result<[Numbers; 2]> {
    let status = operator::controller(namespace)?;
    let of = |module: &str| -> Result<Numbers> {
        let modules = status["pipelines"][0]["modules"].as_array();
        let is_it = |of: &&serde_json::Value| of["name"] == module;
        let said = modules.and_then(|all| all.iter().find(is_it));
        let wanted = said.and_then(|of| of["scaling"]["wanted"].as_u64());
        let name = format!("two-stage-worker-{module}");
        let deployment = namespace.json(&["get", "deployment", &name])?;
        Ok(Numbers {
            wanted: wanted.with_context(|| format!("the controller wants nothing of {module}"))?,
            replicas: deployment["spec"]["replicas"]
                .as_u64()
                .context("no replicas")?,
            ready: deployment["status"]["readyReplicas"].as_u64().unwrap_or(0),
        })
    };
    Ok([of("a")?, of("b")?])
}

/// Requests that ended or were refused until now, and those of them that were completed in time.
fn ended(namespace: &Namespace<'_>, gateways: &[Pod]) -> Result<(f64, f64)> {
    let (mut all, mut completed) = (0.0, 0.0);
    for gateway in gateways {
        // All of one moment.
        let metrics = namespace.admin(gateway, "/metrics")?;
        all += sum(&metrics, "spillgate_gateway_requests_total", &[]);
        all += sum(&metrics, "spillgate_gateway_refused_requests_total", &[]);
        completed += sum(&metrics, "spillgate_gateway_good_requests_total", &[]);
    }
    Ok((all, completed))
}
