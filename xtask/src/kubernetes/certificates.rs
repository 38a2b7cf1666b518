//! The scenario `certificates`: all certificates of a set anew, under load.

use anyhow::{Result, ensure};

use super::cluster::{Namespace, Pod, Seen, wait};
use super::killed::replaced;
use super::load::{Counts, Loads};
use super::operator::{self, GATEWAYS, LIMIT, PODS, Standing};

/// The Secret of the authority is deleted, so that the operator makes a new one and new certificates: all processes read them from
/// their files, nothing is started again, nothing fails, and processes that come afterwards are met.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let pipeline = operator::two_stage(namespace, "two-stage", 2, (2, 2))?;
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "two-stage")?;
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let args = ["--rate", "10", "--payload-bytes", "1000"];
    let mut loads = Loads::start(namespace, &gateways, &args)?;
    loads.more()?;
    let pods = namespace.ready(PODS, 7, LIMIT)?;
    let before = Standing::of(namespace, PODS)?;
    let ends = expiries(namespace, &pods)?;

    namespace.kubectl(&["delete", "secret", "spillgate-default-link-authority"])?;
    // The kubelet looks at Secrets once a minute.
    wait("all processes to have read new certificates", LIMIT, || {
        let now = expiries(namespace, &pods)?;
        let old = pods.iter().zip(now.iter().zip(&ends));
        let old: Vec<&str> = old
            .filter(|(_, (now, before))| now == before)
            .map(|(pod, _)| pod.name.as_str())
            .collect();
        Ok(match old.is_empty() {
            true => Seen::Yes(()),
            false => Seen::NotYet(format!("{old:?} have the old ones")),
        })
    })?;
    loads.more()?;
    before.check(namespace, PODS)?;
    met(namespace, 6)?;

    // Links that begin now begin with new certificates.
    let worker = &namespace.ready(&operator::workers("a"), 2, LIMIT)?[0];
    namespace.delete(worker)?;
    replaced(namespace, &operator::workers("a"), 2, worker)?;
    met(namespace, 6)?;
    operator::settled(namespace, "two-stage")?;
    loads.more()?;
    let all = loads.stop(Counts::default())?;
    ensure!(all.failed == 0, "{all}");
    Ok(format!("7 processes read new certificates; {all}"))
}

/// When the certificates of each pod end, as a sum over its files.
fn expiries(namespace: &Namespace<'_>, pods: &[Pod]) -> Result<Vec<f64>> {
    let of = |pod: &Pod| {
        let ends = namespace.metric(pod, "spillgate_certificate_expiry_timestamp_seconds", &[])?;
        ensure!(ends > 0.0, "{} has no certificates", pod.name);
        Ok(ends)
    };
    pods.iter().map(of).collect()
}

/// Waits until the controller has met so many processes.
fn met(namespace: &Namespace<'_>, count: usize) -> Result<()> {
    wait("the controller to have met all processes", LIMIT, || {
        let status = operator::controller(namespace)?;
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        let states: Vec<&str> = peers.iter().filter_map(|of| of["state"].as_str()).collect();
        let met = states.iter().filter(|state| **state == "met").count();
        Ok(match met == count {
            true => Seen::Yes(()),
            false => Seen::NotYet(format!("{states:?}")),
        })
    })
}
