//! The scenario `traffic`: real models on the CPU, from `kubectl apply` to a frame that is answered.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xtask::process;

use super::cluster::{Namespace, Seen, wait};
use super::operator::{self, GATEWAYS, LIMIT};

/// The columns of `kubectl get pipelines`.
const COLUMNS: [&str; 8] = [
    "NAME", "READY", "REVISION", "WORKERS", "GOODPUT", "DROPPED", "SLO", "AGE",
];
/// Frames of the street that are sent.
const FRAMES: usize = 20;

/// The times of the models are measured, pods get ready, and frames of a street are answered with what is on them.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let begun = Instant::now();
    let seconds = || begun.elapsed().as_secs_f64();
    namespace.kubectl(&["apply", "-f", "deploy/kubernetes/pipelines/traffic.yaml"])?;
    wait("a Job to measure the models", LIMIT, || {
        let jobs = namespace.json(&["get", "jobs"])?;
        let each = jobs["items"].as_array().context("a list has no items")?;
        Ok(
            match each.iter().any(|job| job["status"]["succeeded"] == 1) {
                true => Seen::Yes(()),
                false => Seen::NotYet(format!("{} jobs, none has succeeded", each.len())),
            },
        )
    })?;
    let measured = seconds();
    let timeout = format!("--timeout={}s", LIMIT.as_secs());
    let ready = "--for=condition=Ready";
    namespace.kubectl(&["wait", ready, "pipeline/traffic", &timeout])?;
    let ready = seconds();
    let profiles = namespace.json(&["get", "configmap", "traffic-profiles"])?;
    let profiles = profiles["data"]["profiles.yaml"].as_str();
    ensure!(
        profiles.is_some_and(|text| text.contains("road.pt@320") && text.contains("face.pt")),
        "traffic-profiles holds {profiles:?}"
    );

    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let server = format!("http://{}:7700", gateways[0].ip);
    frames(namespace, &server, 1)?;
    let first = seconds();
    let results = frames(namespace, &server, FRAMES)?;
    ensure!(
        results.len() == FRAMES,
        "{} of {FRAMES} frames were answered",
        results.len()
    );
    let completed = results
        .iter()
        .filter(|of| of["outcome"] == "completed")
        .count();
    let failed = results
        .iter()
        .filter(|of| of["outcome"] == "failed")
        .count();
    let boxes = |of: &Value| of["outputs"]["people"].as_array().map_or(0, Vec::len);
    let people: usize = results.iter().map(boxes).sum();
    ensure!(
        completed > 0 && failed == 0 && people > 0,
        "{completed} frames completed, {failed} failed, with {people} people in all"
    );

    operator::settled(namespace, "traffic")?;
    let table = namespace.kubectl(&["get", "pipelines"])?;
    let mut lines = table.lines().map(str::split_whitespace);
    let header: Vec<&str> = lines.next().into_iter().flatten().collect();
    let row: Vec<&str> = lines.next().into_iter().flatten().collect();
    ensure!(header == COLUMNS, "kubectl get pipelines prints {table}");
    ensure!(
        row[..2] == ["traffic", "True"] && row.contains(&"1/1") && row.contains(&"400ms"),
        "kubectl get pipelines prints {table}"
    );
    let fields = namespace.kubectl(&["explain", "pipeline.spec.modules"])?;
    ensure!(
        fields.contains("in whose processes this one runs"),
        "kubectl explain prints {fields}"
    );
    print!("{table}");
    Ok(format!(
        "measured after {measured:.0} s, ready after {ready:.0} s, first frame after {:.0} s; {completed} of {FRAMES} frames completed, \
         {people} people found",
        first
    ))
}

/// Sends frames of a street, and returns what came of each.
fn frames(namespace: &Namespace<'_>, server: &str, n: usize) -> Result<Vec<Value>> {
    let file = namespace.folder.join("results.json");
    let mut stream = namespace
        .cluster
        .workspace
        .program(&namespace.cluster.spillgate);
    stream
        .args([
            "stream", "scene:", "--quiet", "--fps", "5", "--server", server,
        ])
        .args(["--frames", &n.to_string(), "--results"])
        .arg(&file);
    process::capture(&mut stream)?;
    let text = std::fs::read_to_string(&file)?;
    let each = text.lines().map(serde_json::from_str);
    Ok(each.collect::<serde_json::Result<_>>()?)
}
