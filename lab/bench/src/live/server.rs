//! A server under load: its process, its metrics, and the processor time of the server and of the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xtask::address::await_address;
use xtask::process::{self, Daemon};
use xtask::workspace::Workspace;

use crate::observe::{self, admin_address, machine_time, series};

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
        let cpu = self.cpu_time()?;
        let machine = machine_time()?;
        let begun = Instant::now();
        let mut bench = workspace.program(program);
        bench.args(["bench", "--server", &self.url, "--json", "-"]);
        // 1 without a word on why: nothing was served in time. That is a result too.
        let failed = |status: ExitStatus| !matches!(status.code(), Some(0 | 1));
        let said = process::capture_unless(bench.args(args), failed)?;
        let took = begun.elapsed().as_secs_f64();
        let cpu = self.cpu_time()? - cpu;
        let (busy, all) = machine_time()?;
        let after = self.quiet()?;
        self.alive()?;
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

    /// Processor time that it has used.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.daemon.id())
    }

    /// # Errors
    /// When it has ended under load.
    pub(super) fn alive(&mut self) -> Result<()> {
        if let Some(status) = self.daemon.ended()? {
            bail!(
                "the server ended ({status}) under load:\n{}",
                self.daemon.tail(10)
            );
        }
        Ok(())
    }

    /// The value of a metric with these labels; 0 where there is none.
    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let text = self.metrics()?;
        let has = |line: &&str| {
            let of = line
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('{'));
            let label = |(key, value): &(&str, &str)| line.contains(&format!("{key}=\"{value}\""));
            of && labels.iter().all(label)
        };
        let value = text
            .lines()
            .find(has)
            .and_then(|line| line.rsplit(' ').next());
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0.0))
    }

    /// What `spillgate status` says of it.
    pub(super) fn status(&self, workspace: &Workspace, program: &Path) -> Result<Value> {
        let mut status = workspace.program(program);
        status.args(["status", "--json", "--admin", &self.admin]);
        Ok(serde_json::from_str(&process::capture(&mut status)?)?)
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
        observe::metrics(&self.admin)
    }

    /// Ends it.
    pub(super) fn stop(self) -> Result<()> {
        self.daemon.stop(STOP_LIMIT).map(drop)
    }
}
