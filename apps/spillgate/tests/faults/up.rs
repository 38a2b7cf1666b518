//! `spillgate up` as a child, and what it says about its processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::pipelines::Pipeline;
use crate::set::{END_LIMIT, PATIENCE};

const LOOK: Duration = Duration::from_millis(100);
/// How long a process may take to tell its metrics.
const METRICS_LIMIT: Duration = Duration::from_secs(5);
/// Counted by processes, and written to their log.
const BREACHES: &str = "spillgate_invariant_breaches_total";
/// Published by the controller.
const PACE: &str = "spillgate_planner_pace_ratio";

pub(super) struct Up {
    child: Child,
    folder: PathBuf,
    gateways: Vec<SocketAddr>,
    /// What runs, as it said last.
    pids: BTreeMap<String, u32>,
    /// All processes were ready when it said so last.
    is_ready: bool,
    n_deaths: usize,
    /// How much of its words was read.
    read: usize,
}

impl Up {
    /// Starts it for a pipeline with this SLO, with these flags and this environment, and waits until all processes are ready.
    pub(super) fn start(
        pipeline: Pipeline,
        slo: &str,
        flags: &[String],
        environment: &[(&str, &Path)],
    ) -> anyhow::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("spillgate-up-{}-{n}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("pipeline.yaml");
        std::fs::write(&file, pipeline.text(slo))?;
        let profiles = pipeline.profiles();
        std::fs::write(folder.join("pipeline.profile.yaml"), profiles)?;
        let child = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .arg("up")
            .arg(&file)
            .args(["--port", "0", "--folder"])
            .arg(&folder)
            .args(flags)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("up.log"))?)
            .spawn()
            .context("the program cannot be started")?;
        let mut up = Up {
            child,
            folder,
            gateways: Vec::new(),
            pids: BTreeMap::new(),
            is_ready: false,
            n_deaths: 0,
            read: 0,
        };
        up.waits_ready()?;
        Ok(up)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where clients reach the gateways.
    pub(super) fn gateways(&self) -> &[SocketAddr] {
        &self.gateways
    }

    /// The processes that run.
    pub(super) fn pids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.pids.iter().map(|(name, pid)| (&**name, *pid))
    }

    /// Reads what it has said since.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        let log = std::fs::read_to_string(self.folder.join("up.log"))?;
        if let Some(status) = self.child.try_wait()? {
            bail!("spillgate up ended ({status}): {log}");
        }
        let whole = log.rfind('\n').map_or(0, |end| end + 1);
        for line in log[self.read..whole].lines() {
            // Each begins with the time.
            let (_, said) = line.split_once(' ').unwrap_or_default();
            self.hear(said)?;
        }
        self.read = whole;
        Ok(())
    }

    fn hear(&mut self, line: &str) -> anyhow::Result<()> {
        if let Some((_, clients)) = line.split_once("all processes are ready; clients: ") {
            let addresses = clients.split(", ").map(str::parse);
            self.gateways = addresses.collect::<Result<_, _>>()?;
            self.is_ready = true;
        } else if let Some((name, pid)) = line.split_once(": ready, process ") {
            self.pids.insert(name.to_owned(), pid.trim().parse()?);
        } else if let Some((name, how)) = line.split_once(": ended (") {
            self.pids.remove(name);
            self.is_ready = false;
            self.n_deaths += usize::from(!how.starts_with("exit status: 0)"));
        } else if let Some((name, _)) = line.split_once(": restarting") {
            self.pids.remove(name);
            self.is_ready = false;
        } else if line.ends_with(": not ready") {
            self.is_ready = false;
        }
        Ok(())
    }

    /// Waits until all processes are ready.
    pub(super) fn waits_ready(&mut self) -> anyhow::Result<()> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            self.look()?;
            if self.is_ready {
                return Ok(());
            }
            if Instant::now() > give_up {
                bail!("not all processes are ready after {PATIENCE:?}");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether it has said this.
    pub(super) fn has_said(&self, what: &str) -> anyhow::Result<bool> {
        let log = std::fs::read_to_string(self.folder.join("up.log"))?;
        Ok(log.contains(what))
    }

    /// Sends a signal to a process. False where it does not run.
    pub(super) fn send(&self, name: &str, signal: Signal) -> bool {
        let pid = self.pids.get(name);
        pid.is_some_and(|pid| kill(Pid::from_raw(*pid as i32), signal).is_ok())
    }

    /// Has it restart its processes one after the other.
    pub(super) fn hang_up(&self) -> bool {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGHUP).is_ok()
    }

    /// How often a process ended with an error.
    pub(super) fn n_deaths(&self) -> usize {
        self.n_deaths
    }

    /// Processes that ended with an error more often than they were killed.
    pub(super) fn deaths_beyond(&self, killed: usize) -> Option<String> {
        let n = self.n_deaths.checked_sub(killed).filter(|n| *n > 0)?;
        Some(format!(
            "{n} processes ended with an error that nobody killed"
        ))
    }

    /// Measured over planned time of batches, of the module where it is largest; 0 where nothing was measured.
    pub(super) fn pace(&self) -> f64 {
        let log = self
            .logs()
            .into_iter()
            .find(|(name, _)| name == "controller");
        let text = log.and_then(|(_, log)| metrics(admin(&log)?).ok());
        let text = text.unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with(PACE));
        let paces = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok());
        paces.fold(0.0, f64::max)
    }

    /// Broken invariants: by the metrics of those that live, and the logs of all.
    pub(super) fn breaches(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, log) in self.logs() {
            match admin(&log).map(metrics) {
                Some(Ok(text)) => {
                    let breach = |l: &&str| l.starts_with(BREACHES) && !l.ends_with(" 0");
                    found.extend(text.lines().filter(breach).map(|l| format!("{name}: {l}")));
                }
                Some(Err(error)) => found.push(format!("{name} has no metrics: {error:#}")),
                None => found.push(format!("{name} names no admin port")),
            }
        }
        found.extend(self.lines_with("this is a bug"));
        found
    }

    /// Lines of logs that tell of a panic.
    pub(super) fn panics(&self) -> Vec<String> {
        self.lines_with("panicked at")
    }

    fn lines_with(&self, what: &str) -> Vec<String> {
        let logs = self.logs().into_iter();
        logs.flat_map(|(name, log)| {
            let lines = log.lines().filter(|line| line.contains(what));
            lines
                .map(|line| format!("{name}: {line}"))
                .collect::<Vec<_>>()
        })
        .collect()
    }

    /// What each process wrote, in all its lives.
    fn logs(&self) -> Vec<(String, String)> {
        let log = |name: &String| {
            let bytes = std::fs::read(self.folder.join(format!("{name}.log")));
            let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
            (name.clone(), text)
        };
        self.pids.keys().map(log).collect()
    }

    /// Ends it, and waits until it has.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM)?;
        // Gateways end first, then workers, then the controller.
        let give_up = Instant::now() + 3 * END_LIMIT;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(status.success(), "spillgate up ended with {status}");
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        bail!("spillgate up did not end within {:?}", 3 * END_LIMIT)
    }

    pub(super) fn remove_folder(&self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Its processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the process of a log has its metrics in its last life.
fn admin(log: &str) -> Option<&str> {
    let mut lines = log.lines().rev();
    let rest = lines
        .find_map(|line| line.split_once("admin on "))
        .map(|(_, rest)| rest)?;
    rest.split_whitespace().next()
}

fn metrics(admin: &str) -> anyhow::Result<String> {
    let ask = ureq::get(format!("{admin}/metrics")).config();
    let answer = ask.timeout_global(Some(METRICS_LIMIT)).build().call();
    Ok(answer?.body_mut().read_to_string()?)
}
