//! A server under load: its process, its metrics, and the processor time of the server and of the machine.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xtask::address::await_address;
use xtask::process::{self, Daemon};
use xtask::workspace::Workspace;

/// A server that drops nothing takes long to finish the requests that wait.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Device time that does not rise for this long has stopped rising.
const QUIET: Duration = Duration::from_millis(500);
/// When to give up on that.
const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// A server that runs; it ends when this goes out of scope.
pub(super) struct Server {
    daemon: Daemon,
    url: String,
    admin: String,
}

/// The results of one load on it.
pub(super) struct Driven {
    /// The report of `bench`.
    pub(super) said: Value,
    /// Device time by the outcome of the requests it was spent on, dead work included.
    pub(super) device_time: BTreeMap<String, f64>,
    /// Time that devices were busy, by device.
    pub(super) busy: BTreeMap<String, f64>,
    /// CPU time of the server, in cores, while the client ran.
    pub(super) server_cores: f64,
    /// Part of the machine that was busy, with any process.
    pub(super) machine: f64,
}

impl Server {
    /// Starts it on free ports and waits until it is ready.
    pub(super) fn start(
        workspace: &Workspace,
        program: &Path,
        pipeline: &Path,
        out: &Path,
    ) -> Result<Server> {
        Server::start_with(workspace, program, pipeline, out, &[])
    }

    /// The same, with these arguments besides.
    pub(super) fn start_with(
        workspace: &Workspace,
        program: &Path,
        pipeline: &Path,
        out: &Path,
        arguments: &[&str],
    ) -> Result<Server> {
        let port_file: PathBuf = out.join("address");
        let _ = std::fs::remove_file(&port_file);
        let log = out.join("server.log");
        let mut command = workspace.program(program);
        command.arg("serve").arg(pipeline);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.arg("--port-file").arg(&port_file).args(arguments);
        let mut daemon = Daemon::start("the server", &mut command, &log)?;
        let url = await_address(&mut daemon, &port_file)?;
        let text = std::fs::read_to_string(&log)?;
        let admin = admin_address(&text).context("the server names no admin port")?;
        Ok(Server { daemon, url, admin })
    }

    /// Its address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Loads it with `bench` and these arguments, and waits until its devices are done.
    pub(super) fn drive(
        &mut self,
        workspace: &Workspace,
        program: &Path,
        args: &[&str],
    ) -> Result<Driven> {
        let before = self.metrics()?;
        let cpu = process::cpu_time(self.daemon.id())?;
        let machine = machine_time()?;
        let begun = Instant::now();
        let mut bench = workspace.program(program);
        bench.args(["bench", "--server", &self.url, "--json", "-"]);
        // 1 without a word on why: nothing was served in time. That is a result too.
        let failed = |status: ExitStatus| !matches!(status.code(), Some(0 | 1));
        let said = process::capture_unless(bench.args(args), failed)?;
        let took = begun.elapsed().as_secs_f64();
        let cpu = process::cpu_time(self.daemon.id())? - cpu;
        let (busy, all) = machine_time()?;
        let after = self.quiet()?;
        if let Some(status) = self.daemon.ended()? {
            bail!(
                "the server ended ({status}) under load:\n{}",
                self.daemon.tail(10)
            );
        }
        let risen = |name, label| {
            let mut values = series(&after, name, label);
            for (key, value) in series(&before, name, label) {
                *values.entry(key).or_default() -= value;
            }
            values
        };
        Ok(Driven {
            said: serde_json::from_str(&said).context("bench gives no result")?,
            device_time: risen("spillgate_device_request_time_seconds_total", "outcome"),
            busy: risen("spillgate_device_busy_seconds_total", "device"),
            server_cores: cpu.as_secs_f64() / took,
            machine: (busy - machine.0) as f64 / (all - machine.1).max(1) as f64,
        })
    }

    /// Its metrics, once the devices have nothing left to do.
    fn quiet(&self) -> Result<String> {
        let begun = Instant::now();
        let mut before = self.metrics()?;
        loop {
            std::thread::sleep(QUIET);
            let now = self.metrics()?;
            let busy = |text: &str| series(text, "spillgate_device_busy_seconds_total", "device");
            if busy(&now) == busy(&before) {
                return Ok(now);
            }
            if process::interrupted() || begun.elapsed() > QUIET_LIMIT {
                bail!("the devices were still busy {QUIET_LIMIT:?} after the load");
            }
            before = now;
        }
    }

    fn metrics(&self) -> Result<String> {
        let mut connection = TcpStream::connect(&self.admin)?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        // 1.0: the answer is not cut into chunks.
        write!(
            connection,
            "GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.admin
        )?;
        let mut text = String::new();
        connection
            .read_to_string(&mut text)
            .context("the metrics cannot be read")?;
        match text.split_once("\r\n\r\n") {
            Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
            _ => bail!("no metrics: {}", text.lines().next().unwrap_or_default()),
        }
    }

    /// Ends it.
    pub(super) fn stop(self) -> Result<()> {
        self.daemon.stop(STOP_LIMIT).map(drop)
    }
}

fn admin_address(log: &str) -> Option<String> {
    let line = log
        .lines()
        .find_map(|line| line.split_once("admin on http://"))?;
    Some(line.1.split_whitespace().next()?.to_owned())
}

/// Values of a metric, summed by one of its labels.
fn series(text: &str, name: &str, label: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let label = format!("{label}=\"");
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name).and_then(|r| r.strip_prefix('{')) else {
            continue;
        };
        let Some((labels, value)) = rest.rsplit_once("} ") else {
            continue;
        };
        let key = labels
            .split_once(&label)
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(key, _)| key);
        if let (Some(key), Ok(value)) = (key, value.trim().parse::<f64>()) {
            *values.entry(key.to_owned()).or_default() += value;
        }
    }
    values
}

/// Busy and whole time of all cores since the start, in ticks.
fn machine_time() -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat")?;
    machine_ticks(&text).context("/proc/stat has an unknown shape")
}

fn machine_ticks(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        // What guests had is in the first two already.
        .take(8)
        .map(|tick| tick.parse().ok())
        .collect::<Option<_>>()?;
    let all: u64 = ticks.iter().sum();
    // Idle, and idle with a disk at work.
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_by_a_label() {
        let text = "# TYPE x counter\n\
                    x_total{pipeline=\"a\",outcome=\"completed\"} 1.5\n\
                    x_total{pipeline=\"b\",outcome=\"completed\"} 2\n\
                    x_total{pipeline=\"b\",outcome=\"late\"} 0.25\n\
                    x_totals{outcome=\"late\"} 7\n";
        let values = series(text, "x_total", "outcome");
        let expected = [("completed".to_owned(), 3.5), ("late".to_owned(), 0.25)];
        assert_eq!(values, BTreeMap::from(expected));
    }

    #[test]
    fn the_admin_port_is_found_in_the_log() {
        let log = "pipeline tm\nadmin on http://127.0.0.1:39 (/metrics, /livez)\nlistening\n";
        assert_eq!(admin_address(log).unwrap(), "127.0.0.1:39");
        assert!(admin_address("listening\n").is_none());
    }

    #[test]
    fn idle_time_of_the_machine_is_told_from_the_rest() {
        let text = "cpu  10 1 5 80 4 0 0 0 3 0\ncpu0 1 2 3 4\n";
        assert_eq!(machine_ticks(text), Some((16, 100)));
        assert!(machine_time().unwrap().1 > 0);
        assert!(machine_ticks("intr 5\n").is_none());
    }
}
