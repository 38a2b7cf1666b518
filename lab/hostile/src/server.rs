//! A real server in a process of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::report::{Memory, SLACK_MB};

/// A server has this long to start: it may have to measure models.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How often its memory is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// What an attack took of memory is to be given back within this time.
const AFTER: Duration = Duration::from_secs(10);

/// A server and its folder.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Server {
    /// Serves a pipeline file.
    pub(crate) async fn start(
        spillgate: &Path,
        pipeline: &Path,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        Server::launch(Command::new(spillgate), pipeline, flags).await
    }

    /// The same with so many descriptors.
    pub(crate) async fn start_with(
        descriptors: u64,
        spillgate: &Path,
        pipeline: &Path,
    ) -> anyhow::Result<Self> {
        let mut shell = Command::new("sh");
        let script = "ulimit -n \"$0\" && exec \"$@\"";
        shell.args(["-c", script, &descriptors.to_string()]);
        shell.arg(spillgate);
        Server::launch(shell, pipeline, &[]).await
    }

    async fn launch(mut program: Command, pipeline: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let folder = fresh_folder()?;
        let port_file = folder.join("port");
        let log = std::fs::File::create(folder.join("log"))?;
        let child = program
            .arg("serve")
            .arg(pipeline)
            .args([
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--port-file",
            ])
            .arg(&port_file)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.get_program().display()))?;
        let mut server = Server {
            child,
            folder,
            address: "127.0.0.1:1".parse()?,
            admin: "127.0.0.1:1".parse()?,
        };
        let give_up = Instant::now() + START_LIMIT;
        while !port_file.exists() {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended with {status}: {}", server.log());
            }
            if Instant::now() > give_up {
                bail!("the server did not start: {}", server.log());
            }
            tokio::time::sleep(LOOK).await;
        }
        server.address = std::fs::read_to_string(&port_file)?.trim().parse()?;
        let log = server.log();
        let admin = log
            .split_once("admin on http://")
            .context("no admin port")?
            .1;
        let end = admin.find([' ', '"', '\n']).unwrap_or(admin.len());
        server.admin = admin[..end].parse()?;
        Ok(server)
    }

    /// What it wrote to stderr.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Whether it still runs.
    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    /// Resident memory in MB.
    pub(crate) fn memory(&self) -> f64 {
        resident(self.child.id())
    }

    /// Runs an attack, and says what memory was before, at most, and after it: once it is given back, or ten seconds later.
    pub(crate) async fn memory_during<T>(
        &self,
        budget_mb: f64,
        attack: impl Future<Output = T>,
    ) -> (T, Memory) {
        let idle = self.memory();
        let most = Arc::new(AtomicU64::new(0));
        let pid = self.child.id();
        let watch = tokio::spawn({
            let most = most.clone();
            async move {
                loop {
                    most.fetch_max((resident(pid) * 1024.0) as u64, Ordering::Relaxed);
                    tokio::time::sleep(LOOK).await;
                }
            }
        });
        let result = attack.await;
        let give_up = Instant::now() + AFTER;
        while self.memory() > idle + SLACK_MB && Instant::now() < give_up {
            tokio::time::sleep(LOOK).await;
        }
        watch.abort();
        let memory = Memory {
            idle,
            most: most.load(Ordering::Relaxed) as f64 / 1024.0,
            after: self.memory(),
            budget: budget_mb,
        };
        (result, memory)
    }

    /// Ends it; whether it ended in order.
    pub(crate) async fn stop(mut self) -> anyhow::Result<bool> {
        kill(self.pid(), Signal::SIGTERM)?;
        let give_up = Instant::now() + Duration::from_secs(20);
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kb = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}

/// An empty folder.
pub(crate) fn fresh_folder() -> anyhow::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("spillgate-hostile-{}-{n}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
