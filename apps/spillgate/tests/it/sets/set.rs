//! The processes of a topology, each started by the test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::support::machine::Machine;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One module of 5 ms with two workers.
const PIPELINE: &str = "
name: one
slo: 1s
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $a.payload }
";
const PROFILE: &str = "
emulated:
  a: { \"-\": { alpha: 4ms, beta: 1ms, max: 1 } }
";

/// The processes, each with its role.
pub(crate) const PROCESSES: [(&str, &str); 4] = [
    ("a-0", "worker"),
    ("a-1", "worker"),
    ("controller", "controller"),
    ("gateway-0", "gateway"),
];

type Lines = Arc<Mutex<Vec<String>>>;

pub(crate) struct Set {
    _machine: Machine,
    folder: PathBuf,
    /// The ports of the processes, bound without listening: the system gives them to nobody else.
    ports: Vec<TcpSocket>,
    /// Where others find each process.
    addresses: BTreeMap<&'static str, String>,
    running: BTreeMap<String, (Child, Lines)>,
}

impl Set {
    /// Processes that are not started yet.
    pub(crate) fn new(name: &str) -> Self {
        Self::on(Machine::shared(), name)
    }

    /// The same where no other set runs.
    pub(crate) fn alone(name: &str) -> Self {
        Self::on(Machine::alone(), name)
    }

    fn on(machine: Machine, name: &str) -> Self {
        let folder = format!("spillgate-set-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut set = Set {
            _machine: machine,
            folder,
            ports: Vec::new(),
            addresses: BTreeMap::new(),
            running: BTreeMap::new(),
        };
        set.addresses = PROCESSES.map(|(name, _)| (name, set.port())).into();
        let listens = set.addresses.clone();
        set.topology(&listens);
        set
    }

    /// Writes the topology: others dial each process at its address there.
    pub(crate) fn topology(&mut self, dialled: &BTreeMap<&'static str, String>) {
        let at = |name: &str| &dialled[name];
        let text = format!(
            "processes:
  - {{ name: a-0, workers: {{ a: 1 }}, address: \"{}\" }}
  - {{ name: a-1, workers: {{ a: 1 }}, address: \"{}\" }}
  - {{ name: controller, controllers: all, address: \"{}\" }}
  - {{ name: gateway-0, gateway: true }}
",
            at("a-0"),
            at("a-1"),
            at("controller")
        );
        std::fs::write(self.folder.join("topology.yaml"), text).unwrap();
        std::fs::write(self.folder.join("one.yaml"), PIPELINE).unwrap();
        std::fs::write(self.folder.join("one.profile.yaml"), PROFILE).unwrap();
    }

    /// A free port of loopback.
    pub(crate) fn port(&mut self) -> String {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        self.ports.push(socket);
        address
    }

    /// Where a process listens for others, or for clients.
    pub(crate) fn address(&self, name: &str) -> String {
        self.addresses[name].clone()
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub(crate) fn arguments(&self, role: &str, name: &str, more: &[String]) -> Vec<String> {
        let path = |file: &str| self.path(file).to_str().unwrap().to_owned();
        let mut arguments = vec![
            role.to_owned(),
            path("one.yaml"),
            "--topology".to_owned(),
            path("topology.yaml"),
            "--name".to_owned(),
            name.to_owned(),
        ];
        if !more.iter().any(|flag| flag == "--admin") {
            arguments.push("--no-admin".to_owned());
        }
        arguments.extend_from_slice(more);
        arguments
    }

    /// Starts a process of the topology with these flags.
    pub(crate) fn start(&mut self, name: &str, flags: &[String]) {
        let at = self.address(name);
        self.start_as(name, name, &at, flags);
    }

    /// Starts a process, called `called` here, that says that it is `name` and listens there.
    pub(crate) fn start_as(&mut self, called: &str, name: &str, at: &str, flags: &[String]) {
        let (_, role) = PROCESSES.iter().find(|(of, _)| *of == name).unwrap();
        let listen = match *role {
            "gateway" => "--listen",
            _ => "--link-listen",
        };
        let mut arguments = self.arguments(role, name, flags);
        arguments.extend([listen.to_owned(), at.to_owned()]);
        self.run(called, &arguments, &[]);
    }

    /// Starts a process that registers with the controller, with these flags.
    pub(crate) fn registers(&mut self, name: &str, flags: &[String]) {
        let at = self.address(name);
        self.registers_as(name, name, &at, flags);
    }

    /// The same for a process, called `called` here, that says that it is `name` and listens there.
    pub(crate) fn registers_as(&mut self, called: &str, name: &str, at: &str, flags: &[String]) {
        self.registers_in(called, name, at, flags, &[]);
    }

    /// The same in this environment.
    pub(crate) fn registers_in(
        &mut self,
        called: &str,
        name: &str,
        at: &str,
        flags: &[String],
        environment: &[(&str, PathBuf)],
    ) {
        let (_, role) = PROCESSES.iter().find(|(of, _)| *of == name).unwrap();
        let pipeline = self.path("one.yaml").to_str().unwrap().to_owned();
        let mut arguments = [*role, &pipeline, "--name", name]
            .map(str::to_owned)
            .to_vec();
        let listen = match *role {
            "gateway" => "--listen",
            _ => "--link-listen",
        };
        arguments.extend([listen.to_owned(), at.to_owned()]);
        if *role != "controller" {
            arguments.extend(["--controllers".to_owned(), self.address("controller")]);
        }
        if !flags.iter().any(|flag| flag == "--admin") {
            arguments.push("--no-admin".to_owned());
        }
        arguments.extend_from_slice(flags);
        self.run(called, &arguments, environment);
    }

    /// Starts a set of its own with `spillgate up`, with this environment; its folder is `up`.
    pub(crate) fn start_up(&mut self, environment: &[(&str, PathBuf)]) {
        let path = |file: &str| self.path(file).to_str().unwrap().to_owned();
        let arguments = [
            "up",
            &path("one.yaml"),
            "--port",
            "0",
            "--folder",
            &path("up"),
        ];
        let arguments = arguments.map(str::to_owned);
        self.run("up", &arguments, environment);
    }

    /// Starts the program with these arguments, in this environment.
    pub(crate) fn run(
        &mut self,
        called: &str,
        arguments: &[String],
        environment: &[(&str, PathBuf)],
    ) {
        let mut process = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Lines::default();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let into = lines.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                into.lock().unwrap().push(line);
            }
        });
        self.running.insert(called.to_owned(), (process, lines));
    }

    /// Sends a signal. One that is killed is gone afterwards, and what it said is forgotten.
    pub(crate) fn signal(&mut self, called: &str, signal: Signal) {
        let (process, _) = self.running.get_mut(called).unwrap();
        kill(Pid::from_raw(process.id() as i32), signal).unwrap();
        if signal == Signal::SIGKILL {
            let (mut process, _) = self.running.remove(called).unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn lives(&mut self, called: &str) -> bool {
        let (process, _) = self.running.get_mut(called).unwrap();
        process.try_wait().unwrap().is_none()
    }

    fn said(&self, called: &str) -> Vec<String> {
        let lines = self
            .running
            .get(called)
            .map(|(_, lines)| lines.lock().unwrap());
        lines.map_or_else(Vec::new, |lines| lines.clone())
    }

    pub(crate) fn has_said(&self, called: &str, what: &str) -> bool {
        self.said(called).iter().any(|line| line.contains(what))
    }

    fn waits(&self, called: &str, what: &str, is_meant: impl Fn(&str) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !self.said(called).iter().any(|line| is_meant(line)) {
            let said = self.said(called);
            assert!(
                Instant::now() < give_up,
                "{called} does not say {what:?}: {said:#?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a process says this.
    pub(crate) fn waits_for(&self, called: &str, what: &str) {
        self.waits(called, what, |line| line.contains(what));
    }

    /// Waits until a process warns of a peer with these words.
    pub(crate) fn waits_for_about(&self, called: &str, peer: &str, what: &str) {
        let peer = format!("peer=\"{peer}\"");
        self.waits(called, what, |line| {
            line.contains(&peer) && line.contains(what)
        });
    }

    /// The answer of `/readyz` on this admin port.
    pub(crate) fn ready(&self, admin: &str) -> String {
        let mut stream = TcpStream::connect(admin).unwrap();
        let request = format!("GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until requests are served.
    pub(crate) fn is_ready(&mut self) {
        self.waits_for("gateway-0", "listening on http");
        let give_up = Instant::now() + PATIENCE;
        while self.bench(20, 1, |_| ()).completed < 20 {
            let said = self.said("gateway-0");
            assert!(Instant::now() < give_up, "no request is served: {said:#?}");
        }
    }

    /// Sends requests to the gateway for so long. `during` happens meanwhile, and may take longer.
    pub(crate) fn bench(
        &mut self,
        rate: u32,
        seconds: u32,
        during: impl FnOnce(&mut Self),
    ) -> Report {
        self.bench_with(rate, seconds, &[], during)
    }

    pub(crate) fn bench_with(
        &mut self,
        rate: u32,
        seconds: u32,
        flags: &[&str],
        during: impl FnOnce(&mut Self),
    ) -> Report {
        let process = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .args(["bench", "--json", "-"])
            .args(["--server", &format!("http://{}", self.address("gateway-0"))])
            .args(["--rate", &rate.to_string()])
            .args(["--duration", &format!("{seconds}s")])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        during(self);
        Report::of(&process.wait_with_output().unwrap())
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        for (process, _) in self.running.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What became of requests.
pub(crate) struct Report {
    requests: u64,
    pub(crate) completed: u64,
    by_outcome: Value,
}

impl Report {
    fn of(output: &Output) -> Self {
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let outcomes = &json["outcomes"];
        Report {
            requests: json["requests"].as_u64().unwrap_or_default(),
            completed: outcomes["completed"].as_u64().unwrap_or_default(),
            by_outcome: outcomes.clone(),
        }
    }

    /// At least so much of the requests is completed in time.
    pub(crate) fn completes(&self, part: f64) {
        let least = part * self.requests as f64;
        assert!(
            self.requests > 0 && self.completed as f64 >= least,
            "{} of {}: {}",
            self.completed,
            self.requests,
            self.by_outcome
        );
    }

    /// Requests sent.
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// Requests that have an outcome.
    pub(crate) fn ended(&self) -> u64 {
        let counts = self.by_outcome.as_object().into_iter().flatten();
        counts.filter_map(|(_, n)| n.as_u64()).sum()
    }

    pub(crate) fn completes_all(&self) {
        self.completes(1.0);
    }
}

/// Runs the program until it ends; its exit code and what it printed.
pub(crate) fn run(arguments: &[String]) -> (i32, String) {
    let output = output(arguments);
    let printed = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), printed)
}

/// The same with what it said.
pub(crate) fn refused(arguments: &[String]) -> (i32, String) {
    let output = output(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
}

fn output(arguments: &[String]) -> Output {
    let program = env!("CARGO_BIN_EXE_spillgate");
    Command::new(program).args(arguments).output().unwrap()
}
