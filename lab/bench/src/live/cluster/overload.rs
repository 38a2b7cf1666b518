//! More requests than two stages can serve, through separate processes.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use xtask::process;
use xtask::workspace::Workspace;

use crate::up::Up;

/// Two stages of 20 ms, one request at a time: they hold 50 requests a second.
pub(super) const PIPELINE: &str = "apps/pipelines/two_stage.yaml";
/// What is offered, in requests a second.
pub(super) const RATES: [u32; 2] = [60, 100];
/// The first seconds do not count: the controller learns the rate.
pub(super) const WARM_UP: usize = 2;

/// One rate.
pub(super) struct Row {
    pub(super) rate: u32,
    /// Completed in time, per second.
    pub(super) good: f64,
    pub(super) late: u64,
    pub(super) dropped: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
    pub(super) lag_p99_ms: f64,
}

/// Offers each rate to a fresh set.
pub(super) fn run(
    workspace: &Workspace,
    program: &Path,
    out: &Path,
    seconds: usize,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for rate in RATES {
        let folder = out.join(format!("overload-{rate}"));
        let pipeline = workspace.path(PIPELINE);
        let up = Up::start(workspace, program, &pipeline, &folder, &[], &[])?;
        let mut bench = workspace.program(program);
        bench.args(["bench", "--json", "-", "--payload-bytes", "64"]);
        bench.args(["--server", &format!("http://{}", up.gateways()[0])]);
        bench.args(["--rate", &rate.to_string()]);
        bench.args(["--warmup", &format!("{WARM_UP}s")]);
        bench.args(["--duration", &format!("{}s", WARM_UP + seconds)]);
        let said: Value = serde_json::from_str(&process::capture(&mut bench)?)?;
        up.check_alive()?;
        up.stop()?;
        let row = Row::read(rate, &said).context("what bench says")?;
        println!(
            "live-cluster: {rate} requests a second: {:.1} good",
            row.good
        );
        rows.push(row);
    }
    Ok(rows)
}

impl Row {
    fn read(rate: u32, said: &Value) -> Result<Row> {
        let count = |name: &str| super::whole(&said["outcomes"], name);
        let number = |value: &Value| value.as_f64().context("a number is missing");
        Ok(Row {
            rate,
            good: number(&said["goodput_per_s"])?,
            late: count("late")?,
            dropped: count("dropped")?,
            refused: count("refused")?,
            failed: count("failed")?,
            lag_p99_ms: number(&said["send_delay_ms"]["p99"])?,
        })
    }
}
