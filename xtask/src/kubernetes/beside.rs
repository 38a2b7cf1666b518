//! The scenario `beside`: the same pipeline in pods and by `spillgate up` on this machine. Nothing is asserted of speed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xtask::process::{self, Daemon};

use super::cluster::{Namespace, Seen, wait};
use super::operator::{self, GATEWAYS, LIMIT};

/// The ports of `up`: not those that a server of somebody has by default.
const PORT: u16 = 17700;
/// How long a process may take to end in order.
const END: Duration = Duration::from_secs(60);

/// Requests as fast as they are answered, to each in turn: none fails. Batches take next to no time, so that what is left is what
/// processes and the network between them take.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let mut pipeline = operator::two_stage(namespace, "two-stage", 1, (1, 1))?;
    for module in ["a", "b"] {
        let batch = &mut pipeline["spec"]["profiles"]["emulated"][module]["-"][0];
        for time in ["mean", "p50", "p99"] {
            batch[time] = "100us".into();
        }
    }
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "two-stage")?;
    let gateway = &namespace.ready(GATEWAYS, 1, LIMIT)?[0];
    let in_pods = asked(namespace, &format!("{}:7700", gateway.ip))?;
    let read = namespace.json(&["get", "configmap", "two-stage-pipeline"])?;
    // The CPUs are those of one at a time.
    namespace.kubectl(&["delete", "pipeline", "two-stage"])?;
    wait("the pods to go", LIMIT, || {
        let pods = namespace.pods("")?;
        Ok(match pods.is_empty() {
            true => Seen::Yes(()),
            false => Seen::NotYet(format!("{} pods", pods.len())),
        })
    })?;

    for file in ["pipeline.yaml", "pipeline.profile.yaml"] {
        let text = read["data"][file].as_str();
        let text = text.with_context(|| format!("the ConfigMap has no {file}"))?;
        std::fs::write(namespace.folder.join(file), text)?;
    }
    let mut up = namespace
        .cluster
        .workspace
        .program(&namespace.cluster.spillgate);
    up.arg("up")
        .arg(namespace.folder.join("pipeline.yaml"))
        .args([
            "--port",
            &PORT.to_string(),
            "--control",
            &(PORT + 20).to_string(),
        ])
        .arg("--folder")
        .arg(namespace.folder.join("up"));
    let mut up = Daemon::start("up", &mut up, &namespace.folder.join("up.log"))?;
    let address = format!("127.0.0.1:{PORT}");
    wait("up to serve", LIMIT, || {
        ensure!(up.ended()?.is_none(), "it ended: {}", up.tail(5));
        match bench(namespace, &address, "1s") {
            Ok(report) if report["outcomes"]["completed"] != 0 => Ok(Seen::Yes(())),
            Ok(report) => Ok(Seen::NotYet(report["outcomes"].to_string())),
            Err(error) => Ok(Seen::NotYet(format!("{error:#}"))),
        }
    })?;
    let by_up = asked(namespace, &address)?;
    up.stop(END)?;
    Ok(format!("in pods {in_pods}; by up {by_up}"))
}

/// What came of a minute's sixth of requests.
fn asked(namespace: &Namespace<'_>, address: &str) -> Result<String> {
    let report = bench(namespace, address, "10s")?;
    let count = |outcome: &str| report["outcomes"][outcome].as_u64();
    let completed = count("completed").context("a report without counts")?;
    ensure!(
        completed > 0 && count("failed") == Some(0),
        "of requests to {address} came {}",
        report["outcomes"]
    );
    let seconds = report["seconds"]
        .as_f64()
        .context("a report without seconds")?;
    let p50 = report["latency_ms"]["p50"]
        .as_f64()
        .context("a report without p50")?;
    Ok(format!(
        "{:.0}/s, p50 {p50:.1} ms",
        completed as f64 / seconds
    ))
}

/// Sixteen requests in flight for a while.
fn bench(namespace: &Namespace<'_>, address: &str, duration: &str) -> Result<Value> {
    let mut bench = namespace
        .cluster
        .workspace
        .program(&namespace.cluster.spillgate);
    bench
        .args([
            "bench",
            "--json=-",
            "--server",
            &format!("http://{address}"),
        ])
        .args([
            "--concurrency",
            "16",
            "--payload-bytes",
            "1000",
            "--duration",
            duration,
        ]);
    Ok(serde_json::from_str(&process::capture(&mut bench)?)?)
}
