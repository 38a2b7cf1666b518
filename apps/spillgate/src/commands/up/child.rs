//! One process of the set.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child as Process, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spillgate_protocol::session::rights::Kind;
use spillgate_telemetry::logging::say;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::folder::Folder;
use super::scaling::Scaled;
use super::{Plan, Planned, Served};

/// A process that dies is started again after this time.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// The time doubles with each death up to this.
pub(crate) const BACKOFF_LONGEST: Duration = Duration::from_secs(10);
/// A process that lived for so long begins anew with the first backoff.
const LIVED: Duration = Duration::from_secs(10);
/// Longest line of a log that is shown.
const LAST_LINE_MAX: u64 = 1000;
/// How often a process that is ready is asked whether it still is.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a child may take to say that it is ready.
const PROBE_LIMIT: Duration = Duration::from_millis(500);

/// What a child does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It was told to end, to be started again.
    Restarting,
    /// It waits to be started until then.
    Down(Instant),
    Starting,
    Ready,
    /// It was told to end, since it is not wanted now.
    Retiring,
    /// It has ended so.
    Retired,
}

/// Variables that say what one process is, or who is in its set: `up` says that itself.
const NOT_INHERITED: [&str; 11] = [
    "SPILLGATE_TOPOLOGY",
    "SPILLGATE_CONTROLLERS",
    "SPILLGATE_ADDRESS",
    "SPILLGATE_MODULES",
    "SPILLGATE_LINK_LISTEN",
    "SPILLGATE_NO_ADMIN",
    "SPILLGATE_SCALER_LISTEN",
    "SPILLGATE_CORES",
    // These are flags of each process.
    "SPILLGATE_PLACEMENT",
    "SPILLGATE_DEVICES",
    "SPILLGATE_FAIRNESS",
];

/// A child that is started again when it dies.
pub(super) struct Child {
    kind: Kind,
    name: String,
    /// The position of the pipeline of its worker, and the module.
    module: Option<(usize, String)>,
    clients: Option<SocketAddr>,
    admin: SocketAddr,
    arguments: Vec<std::ffi::OsString>,
    log: PathBuf,
    folder: Rc<Folder>,
    process: Option<Process>,
    started_at: Instant,
    backoff: Duration,
    state: State,
    probed_at: Instant,
    has_died: bool,
}

impl Child {
    /// A child that is not started yet, of a set that serves these pipelines.
    pub(super) fn new(
        process: Planned,
        plan: &Plan,
        served: &[Served],
        folder: &Rc<Folder>,
    ) -> Self {
        let Planned {
            kind,
            name,
            module,
            memory,
            link,
            clients,
            admin,
        } = process;
        let served = match &module {
            Some((of, _)) => &served[*of..=*of],
            None => served,
        };
        let mut arguments: Vec<std::ffi::OsString> = vec![kind.to_string().into()];
        arguments.extend(served.iter().map(|of| (&of.pipeline).into()));
        for Served { profiles, .. } in served {
            arguments.extend(["--profiles".into(), profiles.into()]);
        }
        let mut flag = |flag: &str, value: String| {
            arguments.extend([flag.into(), value.into()]);
        };
        flag("--name", name.clone());
        flag("--parent", std::process::id().to_string());
        flag("--admin", admin.to_string());
        if kind != Kind::Controller {
            flag("--controllers", plan.controller.to_string());
        }
        for (name, address) in [("--link-listen", link), ("--listen", clients)] {
            if let Some(address) = address {
                flag(name, address.to_string());
            }
        }
        if let Some((_, module)) = &module {
            flag("--modules", module.clone());
        }
        let sharing = plan.sharing.iter().chain(&memory);
        arguments.extend(sharing.map(Into::into));
        let log = folder.path().join(format!("{name}.log"));
        let now = Instant::now();
        Child {
            kind,
            name,
            module,
            clients,
            admin,
            arguments,
            log,
            folder: folder.clone(),
            process: None,
            started_at: now,
            backoff: BACKOFF_FIRST,
            state: State::Down(now),
            probed_at: now,
            has_died: false,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready || self.is_away()
    }

    /// Whether it has workers of the module.
    pub(super) fn serves(&self, of: &Scaled) -> bool {
        let module = self.module.as_ref();
        module.is_some_and(|(pipeline, module)| (*pipeline, module) == (of.pipeline.0, &of.module))
    }

    /// Whether it is not wanted now.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.state, State::Retiring | State::Retired)
    }

    /// Whether it has ended since it was not wanted.
    pub(super) fn is_retired(&self) -> bool {
        self.state == State::Retired
    }

    /// Has it end, until it is wanted again.
    pub(super) fn retire(&mut self) {
        self.ask_to_end(Signal::SIGTERM);
        self.state = match self.process {
            Some(_) => State::Retiring,
            None => State::Retired,
        };
    }

    /// Whether it ended before it was told to.
    pub(super) fn has_died(&self) -> bool {
        self.has_died
    }

    /// Where its admin port is.
    pub(super) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Where clients reach it.
    pub(super) fn clients(&self) -> Option<String> {
        self.clients.map(|address| address.to_string())
    }

    /// Looks at it, starts it when its time has come, and says when something has changed.
    pub(super) async fn look(&mut self) {
        if let State::Down(at) = self.state {
            if at <= Instant::now() {
                self.start();
            }
            return;
        }
        let exit = self
            .process
            .as_mut()
            .and_then(|p| p.try_wait().ok().flatten());
        if let (Some(_), State::Retiring) = (exit, &self.state) {
            say(&format!("{}: ended, and is not wanted now", self.name));
            self.process = None;
            self.state = State::Retired;
            return;
        }
        if let Some(status) = exit {
            if self.started_at.elapsed() >= LIVED {
                self.backoff = BACKOFF_FIRST;
            }
            if self.state == State::Restarting {
                self.process = None;
                self.backoff = BACKOFF_FIRST;
                self.start();
                return;
            }
            say(&format!(
                "{}: ended ({status}); started again in {} ms; the end of its log, {}: {}",
                self.name,
                self.backoff.as_millis(),
                self.log.display(),
                self.last_line().unwrap_or_default()
            ));
            self.has_died = true;
            self.fall();
            return;
        }
        if self.state == State::Restarting || self.is_away() {
            return;
        }
        if self.state == State::Ready && self.probed_at.elapsed() < PROBE_INTERVAL {
            return;
        }
        let is_ready = probe(self.admin).await;
        self.probed_at = Instant::now();
        match (&self.state, is_ready) {
            (State::Starting, true) => {
                let pid = self.process.as_ref().map_or(0, Process::id);
                say(&format!("{}: ready, process {pid}", self.name));
                self.state = State::Ready;
            }
            (State::Ready, false) => {
                say(&format!("{}: not ready", self.name));
                self.state = State::Starting;
            }
            _ => {}
        }
    }

    fn last_line(&self) -> Option<String> {
        let mut file = File::open(&self.log).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_LINE_MAX)))
            .ok()?;
        let mut end = Vec::new();
        file.take(LAST_LINE_MAX).read_to_end(&mut end).ok()?;
        let text = String::from_utf8_lossy(&end);
        Some(text.lines().last()?.to_owned())
    }

    fn fall(&mut self) {
        self.process = None;
        self.state = State::Down(Instant::now() + self.backoff);
        self.backoff = (2 * self.backoff).min(BACKOFF_LONGEST);
    }

    fn start(&mut self) {
        match self.spawn() {
            Ok(process) => {
                self.process = Some(process);
                self.started_at = Instant::now();
                self.state = State::Starting;
            }
            Err(error) => {
                say(&format!("{}: cannot be started: {error:#}", self.name));
                self.fall();
            }
        }
    }

    fn spawn(&self) -> anyhow::Result<Process> {
        let log = self.folder.log(&self.log)?;
        let program = std::env::current_exe().context("this program's own path is not known")?;
        let mut command = Command::new(program);
        // Libraries of libtorch end a process whose working folder is gone.
        if std::env::current_dir().is_err() {
            command.current_dir(self.folder.path());
        }
        NOT_INHERITED.iter().for_each(|name| {
            command.env_remove(name);
        });
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Signals of the terminal are for the supervisor.
            .process_group(0)
            .spawn()
            .context("the program cannot be run")
    }

    /// Has it end and start again.
    pub(super) fn restart(&mut self) {
        say(&format!("{}: restarting", self.name));
        self.ask_to_end(Signal::SIGTERM);
        self.state = State::Restarting;
    }

    /// Has it start again, once it has ended.
    pub(super) fn start_again(&mut self) {
        self.backoff = BACKOFF_FIRST;
        self.state = State::Down(Instant::now());
    }

    pub(super) fn ask_to_end(&mut self, signal: Signal) {
        if let Some(process) = &self.process {
            let _ = kill(Pid::from_raw(process.id() as i32), signal);
        }
    }

    /// Waits until it has ended, and ends it by force when that takes too long.
    pub(super) async fn end(&mut self, limit: Duration) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let give_up = Instant::now() + limit;
        while let Ok(None) = process.try_wait() {
            if Instant::now() >= give_up {
                say(&format!(
                    "{}: did not end in time and was killed",
                    self.name
                ));
                let _ = process.kill();
                let _ = process.wait();
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Whether the process says that it is ready.
async fn probe(admin: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(admin).await?;
        let request = format!("GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        std::io::Result::Ok(answer.ends_with(b" 200"))
    };
    let answered = tokio::time::timeout(PROBE_LIMIT, ask).await;
    matches!(answered, Ok(Ok(true)))
}
