//! A set of processes that serve one pipeline: gateways, a controller and workers, each started by its own command, each reached
//! by the others through the network of the tests.

use std::collections::HashMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpSocket;
use tokio::runtime::Handle;

use crate::network::{Network, Pids};
use crate::pipelines::Pipeline;

/// How long anything may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How often something is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process may take to say whether it is ready.
const READY_LIMIT: Duration = Duration::from_secs(1);
/// How often memory is looked at.
const LOOK_AT_MEMORY: Duration = Duration::from_millis(100);
/// A process that is told to end does so within this time. A gateway serves on for
/// 5 s and drains for up to 10 s.
pub(super) const END_LIMIT: Duration = Duration::from_secs(20);

/// Where processes write their log.
#[derive(Clone, Debug, Default)]
pub(super) enum Log {
    /// To a file of the set's folder.
    #[default]
    Kept,
    /// To a file that may be on a full disk.
    Into(PathBuf),
    /// To a pipe that nobody reads.
    Unread,
}

/// What a set consists of.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) pipeline: Pipeline,
    pub(super) slo: &'static str,
    pub(super) gateways: usize,
    /// Each has a worker of every module.
    pub(super) workers: usize,
    /// Silence after which a peer is suspected, where it is not the default.
    pub(super) suspect: Option<&'static str>,
    pub(super) log: Log,
    /// Further flags of gateways.
    pub(super) flags: Vec<String>,
    /// Environment of all processes, and of the first worker alone.
    pub(super) environment: Vec<(String, String)>,
    pub(super) of_first_worker: Vec<(String, String)>,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            pipeline: Pipeline::default(),
            slo: "600ms",
            gateways: 2,
            workers: 2,
            suspect: None,
            log: Log::Kept,
            flags: Vec::new(),
            environment: Vec::new(),
            of_first_worker: Vec::new(),
        }
    }
}

struct Member {
    name: String,
    command: &'static str,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    admin: SocketAddr,
    log: Log,
    child: Option<Child>,
    /// Kept open, and not read.
    unread: Option<ChildStderr>,
}

/// The processes.
pub(super) struct Set {
    pub(super) network: Network,
    /// Where clients reach the gateways.
    pub(super) gateways: Vec<SocketAddr>,
    members: Vec<Member>,
    /// Where the others register: by the network of the tests, which is for processes of the set; and itself, for operators.
    controller: Option<(SocketAddr, SocketAddr)>,
    folder: PathBuf,
    pids: Pids,
    memory: Arc<Mutex<HashMap<String, Resident>>>,
    ended: Arc<AtomicBool>,
    /// They keep the ports of the processes from others.
    _ports: Vec<TcpSocket>,
}

/// Resident memory in MB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resident {
    first: f64,
    most: f64,
}

impl Set {
    /// Starts all processes, and waits until they have met.
    pub(super) fn start(runtime: &Handle, plan: &Plan) -> anyhow::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("spillgate-faults-{}-{n}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder)?;
        let pids = Pids::default();
        let mut set = Set {
            network: Network::new(runtime.clone(), pids.clone()),
            gateways: Vec::new(),
            members: Vec::new(),
            controller: None,
            folder,
            pids,
            memory: Arc::default(),
            ended: Arc::default(),
            _ports: Vec::new(),
        };
        set.lay_out(plan)?;
        for at in 0..set.members.len() {
            set.spawn(at)?;
        }
        set.watch_memory();
        let names: Vec<String> = set.members.iter().map(|m| m.name.clone()).collect();
        for name in &names {
            set.waits_ready(name)?;
        }
        if matches!(plan.log, Log::Kept) {
            for name in names.iter().filter(|n| !n.starts_with("gateway")) {
                set.waits_met(name, &HashMap::new())?;
            }
        } else {
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(set)
    }

    /// Writes the files, and says what each process is started with. The controller comes first: the others register with it.
    fn lay_out(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let pipeline_file = self.file("pipeline.yaml");
        std::fs::write(&pipeline_file, plan.pipeline.text(plan.slo))?;
        std::fs::write(self.file("pipeline.profile.yaml"), plan.pipeline.profiles())?;
        self.add("controller", "controller", plan)?;
        for i in 0..plan.workers {
            self.add("worker", &format!("worker-{i}"), plan)?;
        }
        for i in 0..plan.gateways {
            self.add("gateway", &format!("gateway-{i}"), plan)?;
        }
        Ok(())
    }

    /// A process more, which is not started yet.
    fn add(&mut self, command: &'static str, name: &str, plan: &Plan) -> anyhow::Result<()> {
        let (admin, listen) = (self.port()?, self.port()?);
        let mut arguments = vec![
            command.to_owned(),
            self.file("pipeline.yaml").display().to_string(),
            format!("--name={name}"),
            format!("--admin={admin}"),
            format!("--parent={}", std::process::id()),
        ];
        arguments.extend(plan.suspect.map(|suspect| format!("--suspect={suspect}")));
        if command == "gateway" {
            arguments.push(format!("--listen={listen}"));
            arguments.extend(plan.flags.iter().cloned());
            self.gateways.push(listen);
        } else {
            let proxy = self.network.proxy(name, listen)?;
            arguments.push(format!("--address={proxy}"));
            arguments.push(format!("--link-listen={listen}"));
            if command == "controller" {
                self.controller = Some((proxy, listen));
            }
        }
        if command != "controller" {
            let (controller, _) = self.controller.context("the controller comes first")?;
            arguments.push(format!("--controllers={controller}"));
        }
        let mut environment = plan.environment.clone();
        if name == "worker-0" {
            environment.extend(plan.of_first_worker.iter().cloned());
        }
        self.members.push(Member {
            name: name.to_owned(),
            command,
            arguments,
            environment,
            admin,
            log: plan.log.clone(),
            child: None,
            unread: None,
        });
        Ok(())
    }

    /// Adds a worker with every module, and waits until gateways and controller have met it.
    pub(super) fn join(&mut self, name: &str, plan: &Plan) -> anyhow::Result<()> {
        let marks = self.marks();
        self.add("worker", name, plan)?;
        self.spawn(self.at(name))?;
        self.waits_met(name, &marks)?;
        let pids = self.pids.lock().unwrap().clone();
        for (_, pid) in pids.iter().filter(|(of, _)| of == name) {
            self.begin_memory_of(name, *pid);
        }
        Ok(())
    }

    /// Has a worker leave, and waits until it has ended and the gateways have forgotten it.
    pub(super) fn leave(&mut self, name: &str) -> anyhow::Result<()> {
        let marks = self.marks();
        self.send(name, Signal::SIGTERM);
        let status = self.waits_end(name)?;
        if !status.success() {
            bail!("{name} ended with {status}");
        }
        let what = format!("peer left peer=\"{name}\"");
        let gateways = self.peers(name).into_iter();
        for gateway in gateways.filter(|peer| peer.starts_with("gateway")) {
            self.waits_said(&gateway, marks[&gateway], &what)?;
        }
        self.members.retain(|member| member.name != name);
        Ok(())
    }

    /// A free port of loopback, kept until the set ends.
    fn port(&mut self) -> anyhow::Result<SocketAddr> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        self._ports.push(socket);
        Ok(address)
    }

    fn spawn(&mut self, at: usize) -> anyhow::Result<()> {
        let kept = self.log_file(&self.members[at].name);
        let member = &mut self.members[at];
        let stderr = match &member.log {
            Log::Kept => File::options().create(true).append(true).open(kept)?.into(),
            Log::Into(path) => File::options().create(true).append(true).open(path)?.into(),
            Log::Unread => Stdio::piped(),
        };
        let mut child = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .args(&member.arguments)
            .envs(member.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .context("the program cannot be started")?;
        member.unread = child.stderr.take();
        let mut pids = self.pids.lock().unwrap();
        pids.retain(|(name, _)| *name != member.name);
        pids.push((member.name.clone(), child.id()));
        member.child = Some(child);
        Ok(())
    }

    fn watch_memory(&self) {
        let (pids, memory, ended) = (self.pids.clone(), self.memory.clone(), self.ended.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                for (name, pid) in pids.lock().unwrap().clone() {
                    let Some(now) = resident(pid) else { continue };
                    let mut memory = memory.lock().unwrap();
                    let of = memory.entry(name).or_default();
                    of.most = of.most.max(now);
                }
                std::thread::sleep(LOOK_AT_MEMORY);
            }
        });
    }

    /// From now on memory counts as growth.
    pub(super) fn begin_memory(&self) {
        for (name, pid) in self.pids.lock().unwrap().clone() {
            self.begin_memory_of(&name, pid);
        }
    }

    fn begin_memory_of(&self, name: &str, pid: u32) {
        let now = resident(pid).unwrap_or_default();
        let both = Resident {
            first: now,
            most: now,
        };
        self.memory.lock().unwrap().insert(name.to_owned(), both);
    }

    /// By how much the memory of a process has grown at most, in MB.
    pub(super) fn growth(&self) -> f64 {
        let memory = self.memory.lock().unwrap();
        let growth = memory.values().map(|r| r.most - r.first);
        growth.fold(0.0, f64::max)
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}.log"))
    }

    /// A file of the set's folder, which is removed with it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What a process wrote so far.
    pub(super) fn log(&self, name: &str) -> String {
        let bytes = std::fs::read(self.log_file(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How much each process has written so far.
    pub(super) fn marks(&self) -> HashMap<String, usize> {
        let names = self.members.iter().map(|m| m.name.clone());
        names.map(|n| (n.clone(), self.log(&n).len())).collect()
    }

    /// Waits until a process has written this after its mark.
    pub(super) fn waits_said(
        &self,
        name: &str,
        mark: usize,
        what: &str,
    ) -> anyhow::Result<Instant> {
        let give_up = Instant::now() + PATIENCE;
        while !self.log(name).get(mark..).is_some_and(|l| l.contains(what)) {
            if Instant::now() > give_up {
                bail!("{name} did not say {what:?}: {}", self.log(name));
            }
            std::thread::sleep(LOOK);
        }
        Ok(Instant::now())
    }

    /// Waits until a process has met all that dial it, after these marks.
    pub(super) fn waits_met(
        &self,
        name: &str,
        marks: &HashMap<String, usize>,
    ) -> anyhow::Result<Instant> {
        let mut at = Instant::now();
        for peer in self.peers(name) {
            let what = format!("peer met peer=\"{name}\"");
            at = self.waits_said(&peer, marks.get(&peer).copied().unwrap_or(0), &what)?;
        }
        Ok(at)
    }

    /// The processes that have sessions with one, but for workers: those that write down its fate.
    pub(super) fn peers(&self, name: &str) -> Vec<String> {
        let of = |m: &Member| {
            m.name != name
                && m.command != "worker"
                && (m.command != "gateway" || !name.starts_with("gateway"))
        };
        let peers = self.members.iter().filter(|m| of(m));
        peers.map(|m| m.name.clone()).collect()
    }

    fn waits_ready(&mut self, name: &str) -> anyhow::Result<()> {
        let give_up = Instant::now() + PATIENCE;
        let at = self.at(name);
        while !is_ready(self.members[at].admin) {
            let ended = self.members[at].child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                bail!("{name} ended ({status}): {}", self.log(name));
            }
            if Instant::now() > give_up {
                bail!("{name} is not ready: {}", self.log(name));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn at(&self, name: &str) -> usize {
        let at = self.members.iter().position(|m| m.name == name);
        at.expect("a process of the set")
    }

    /// Where operators reach the controller.
    pub(super) fn controller(&self) -> anyhow::Result<SocketAddr> {
        let (_, listens) = self.controller.context("a set has a controller")?;
        Ok(listens)
    }

    /// All processes.
    pub(super) fn names(&self) -> Vec<&str> {
        self.members.iter().map(|m| &*m.name).collect()
    }

    /// Sends a signal to a process.
    pub(super) fn send(&self, name: &str, signal: Signal) {
        if let Some(child) = &self.members[self.at(name)].child {
            let _ = kill(Pid::from_raw(child.id() as i32), signal);
        }
    }

    /// Waits until a process has ended.
    pub(super) fn waits_end(&mut self, name: &str) -> anyhow::Result<ExitStatus> {
        let at = self.at(name);
        let mut child = self.members[at].child.take().context("it does not run")?;
        let give_up = Instant::now() + END_LIMIT;
        loop {
            if let Some(status) = child.try_wait()? {
                self.pids.lock().unwrap().retain(|(n, _)| n != name);
                return Ok(status);
            }
            if Instant::now() > give_up {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{name} did not end within {END_LIMIT:?}");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Starts a process again. Returns when it could be reached, by its own word.
    pub(super) fn restart(&mut self, name: &str) -> anyhow::Result<Instant> {
        let mark = self.log(name).len();
        let at = self.at(name);
        self.spawn(at)?;
        match self.members[at].command {
            "gateway" => {
                self.waits_ready(name)?;
                Ok(Instant::now())
            }
            _ => self.waits_said(name, mark, "reached by other processes on"),
        }
    }

    /// The pipes of logs that nobody reads.
    pub(super) fn take_unread(&mut self) -> Vec<(String, ChildStderr)> {
        let take = |m: &mut Member| Some((m.name.clone(), m.unread.take()?));
        self.members.iter_mut().filter_map(take).collect()
    }

    /// Processes that ended and were not told to.
    pub(super) fn dead(&mut self) -> Vec<String> {
        let ended = |m: &mut Member| {
            let status = m.child.as_mut()?.try_wait().ok()??;
            Some(format!("{} ended ({status})", m.name))
        };
        self.members.iter_mut().filter_map(ended).collect()
    }

    /// Ends all in order: gateways first. Says what was not in order, and the longest time that a process took.
    pub(super) fn stop(mut self) -> (Vec<String>, Duration) {
        let mut wrong = Vec::new();
        let mut longest = Duration::ZERO;
        for command in ["gateway", "worker", "controller"] {
            let names = self
                .members
                .iter()
                .filter(|m| m.command == command && m.child.is_some());
            let names: Vec<String> = names.map(|m| m.name.clone()).collect();
            let begun = Instant::now();
            names
                .iter()
                .for_each(|name| self.send(name, Signal::SIGTERM));
            for name in &names {
                match self.waits_end(name) {
                    Ok(status) if status.success() => {}
                    Ok(status) => wrong.push(format!("{name} ended with {status}")),
                    Err(error) => wrong.push(format!("{error:#}")),
                }
                longest = longest.max(begun.elapsed());
            }
        }
        (wrong, longest)
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for member in &mut self.members {
            if let Some(child) = &mut member.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::env::var_os("SPILLGATE_FAULTS_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Resident memory of a process in MB.
pub(super) fn resident(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kb: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kb / 1024.0)
}

fn is_ready(admin: SocketAddr) -> bool {
    let ask = ureq::get(format!("http://{admin}/readyz")).config();
    let answer = ask.timeout_global(Some(READY_LIMIT)).build().call();
    answer.is_ok_and(|answer| answer.status() == 200)
}
