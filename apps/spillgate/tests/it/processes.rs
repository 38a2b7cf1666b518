//! A pipeline served by separate processes, which are killed, stopped and started again. Real processes of the program, real
//! sockets; the devices are emulated.

mod folder;
mod ipv6;
mod pipelines;
mod reload;
mod restarts;
mod values;
mod wanted;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::machine::Machine;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two modules of 20 ms.
const PIPELINE: &str = "
name: pair
slo: 400ms
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
  b: { op: noop, inputs: { payload: $a.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $b.payload }
clients: { by: application, streams: application }
";
const PROFILE: &str = "
emulated:
  a: { \"-\": { alpha: 19ms, beta: 1ms, max: 1 } }
  b: { \"-\": { alpha: 19ms, beta: 1ms, max: 1 } }
";

/// `spillgate up` with its processes.
struct Up {
    _machine: Machine,
    folder: PathBuf,
    process: Child,
    lines: Receiver<String>,
    /// Addresses of the gateways.
    gateways: Vec<String>,
    /// What was said so far.
    said: Vec<String>,
}

impl Up {
    fn start(name: &str, flags: &[&str]) -> Self {
        Self::start_in(Machine::shared(), name, flags)
    }

    fn start_in(machine: Machine, name: &str, flags: &[&str]) -> Self {
        Self::serving(machine, name, (PIPELINE, PROFILE), flags, &[])
    }

    /// Serves this pipeline with this profile, in this environment.
    fn serving(
        machine: Machine,
        name: &str,
        (pipeline, profile): (&str, &str),
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let folder = format!("spillgate-up-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("pair.yaml");
        std::fs::write(&file, pipeline).unwrap();
        std::fs::write(folder.join("pair.profile.yaml"), profile).unwrap();
        let set = folder.join("set");
        std::fs::create_dir_all(&set).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .arg("up")
            .arg(&file)
            .envs(environment.iter().copied())
            .args(["--port", "0", "--folder", "."])
            .current_dir(&set)
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut up = Up {
            _machine: machine,
            folder,
            process,
            lines,
            gateways: Vec::new(),
            said: Vec::new(),
        };
        let ready = up.waits_for("all processes are ready; clients: ");
        let (_, gateways) = ready.split_once("clients: ").unwrap();
        up.gateways = gateways.split(", ").map(str::to_owned).collect();
        up
    }

    /// The next line that holds this.
    fn waits_for(&mut self, what: &str) -> String {
        let give_up = Instant::now() + PATIENCE;
        while let Ok(line) = self
            .lines
            .recv_timeout(give_up.saturating_duration_since(Instant::now()))
        {
            self.said.push(line.clone());
            if line.contains(what) {
                return line;
            }
        }
        panic!("{what:?} is not said: {:#?}", self.said);
    }

    /// The process of that name that was ready last.
    fn pid(&self, name: &str) -> Pid {
        let ready = format!("{name}: ready, process ");
        let pid = self
            .said
            .iter()
            .rev()
            .find_map(|line| line.split_once(&ready));
        Pid::from_raw(pid.unwrap().1.parse().unwrap())
    }

    /// Sends requests to a gateway, and `during` happens a third of the time later.
    fn bench(&self, gateway: usize, rate: u32, seconds: u32, during: impl FnOnce()) -> Report {
        let mut process = self.begin(gateway, rate, seconds);
        std::thread::sleep(Duration::from_secs(u64::from(seconds)) / 3);
        during();
        Report::of(&mut process)
    }

    fn begin(&self, gateway: usize, rate: u32, seconds: u32) -> Child {
        self.begin_as("nobody", gateway, rate, seconds)
    }

    /// The same for a client of this name.
    fn begin_as(&self, client: &str, gateway: usize, rate: u32, seconds: u32) -> Child {
        Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .args(["bench", "--json", "-"])
            .args(["--server", &format!("http://{}", self.gateways[gateway])])
            .args(["--rate", &rate.to_string()])
            .args(["--duration", &format!("{seconds}s")])
            .args(["--application", client])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id() as i32), Signal::SIGINT);
        let _ = self.process.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// What became of requests.
#[derive(Debug)]
struct Report {
    requests: u64,
    completed: u64,
    late: u64,
    dropped: u64,
    failed: u64,
    refused: u64,
    /// Completed ones, by second.
    series: Vec<u64>,
}

impl Report {
    fn of(process: &mut Child) -> Self {
        let json: Value = serde_json::from_reader(process.stdout.take().unwrap()).unwrap();
        process.wait().unwrap();
        let of = |name: &str| json["outcomes"][name].as_u64().unwrap();
        let series = json["series"].as_array().unwrap().iter();
        Report {
            requests: json["requests"].as_u64().unwrap(),
            completed: of("completed"),
            late: of("late"),
            dropped: of("dropped"),
            failed: of("failed"),
            refused: of("refused"),
            series: series.map(|s| s["completed"].as_u64().unwrap()).collect(),
        }
    }

    /// Each request has one end.
    fn accounts_for_all(&self) {
        let ends = self.completed + self.late + self.dropped + self.failed + self.refused;
        assert_eq!(ends, self.requests, "{self:?}");
    }

    /// At least so much of them is completed.
    fn completes(&self, part: f64) {
        self.accounts_for_all();
        let least = part * self.requests as f64;
        assert!(self.completed as f64 >= least, "{self:?}");
    }
}

fn send(pid: Pid, signal: Signal) {
    kill(pid, signal).unwrap();
}

// Over five seconds: it waits for other sets to end; overload for 9 s, of which six settled seconds count.
#[test]
fn overload_leaves_the_capacity_in_time() {
    let up = Up::start_in(Machine::alone(), "overload", &[]);
    // Two modules of 20 ms hold 50 requests a second.
    let report = up.bench(0, 100, 9, || {});
    report.accounts_for_all();
    let settled = &report.series[2..8];
    let good = settled.iter().sum::<u64>() as f64 / settled.len() as f64;
    assert!(good >= 40.0, "{good} a second: {report:?}");
}

// Over five seconds: load for 9 and 3 s; the worker is started again and dialled.
#[test]
fn what_a_killed_worker_had_is_served_by_another() {
    let mut up = Up::start("killed", &["--gateways", "2", "--workers", "a=2,b=2"]);
    let victim = up.pid("a-1");
    let mut other = up.begin(1, 20, 9);
    let report = up.bench(0, 20, 9, || send(victim, Signal::SIGKILL));
    report.completes(0.9);
    assert_eq!(report.failed, 0, "{report:?}");
    Report::of(&mut other).completes(0.9);
    up.waits_for("a-1: ended (signal: 9 (SIGKILL))");
    up.waits_for("a-1: ready");
    assert_ne!(up.pid("a-1"), victim);
    up.bench(0, 20, 3, || {}).completes(0.95);
}

#[test]
fn a_worker_that_is_silent_for_2_s_costs_little() {
    let up = Up::start("silent", &["--workers", "a=2,b=2"]);
    let victim = up.pid("b-0");
    let report = up.bench(0, 20, 9, || {
        send(victim, Signal::SIGSTOP);
        std::thread::sleep(Duration::from_secs(2));
        send(victim, Signal::SIGCONT);
    });
    // It is suspected after a second, later than the SLO: what it had fails, and is not more than what a worker holds.
    report.completes(0.9);
    assert!(report.failed <= 8, "{report:?}");
    let last = *report.series.last().unwrap();
    assert!(last >= 18, "{report:?}");
}

// Over five seconds: load for 9 s, in which the controller is started again.
#[test]
fn requests_go_on_while_the_controller_is_away() {
    let mut up = Up::start("controller", &["--workers", "a=2,b=2"]);
    let victim = up.pid("controller");
    let report = up.bench(0, 20, 9, || send(victim, Signal::SIGKILL));
    report.completes(0.97);
    up.waits_for("controller: ready");
}

// Over five seconds: load for 12 s, in which the controller sleeps for 4 s: all give it up.
#[test]
fn a_controller_that_wakes_up_late_takes_no_worker_away() {
    let up = Up::start("late", &["--workers", "a=2,b=2"]);
    let victim = up.pid("controller");
    // It is lost by all, and finds all of them lost.
    let report = up.bench(0, 20, 12, || {
        send(victim, Signal::SIGSTOP);
        std::thread::sleep(Duration::from_secs(4));
        send(victim, Signal::SIGCONT);
    });
    report.completes(0.97);
}

// Over five seconds: load for 9 and 3 s; a gateway that died is started again and dialled.
#[test]
fn a_gateway_that_dies_costs_its_own_requests_only() {
    let mut up = Up::start("gateway", &["--gateways", "2", "--workers", "a=2,b=2"]);
    let victim = up.pid("gateway-1");
    let report = up.bench(0, 20, 9, || send(victim, Signal::SIGKILL));
    report.completes(0.97);
    up.waits_for("gateway-1: ready");
    up.bench(1, 20, 3, || {}).completes(0.95);
}

// Over five seconds: it waits for other sets to end; load for 12 s, of which the shares are averages.
#[test]
fn shares_of_clients_hold_over_two_gateways() {
    let up = Up::start_in(Machine::alone(), "shares", &["--gateways", "2"]);
    // Of 50 a second the polite client asks for less than half; the greedy one asks each gateway for twice as much as there is.
    let mut greedy = [0, 1].map(|gateway| up.begin_as("greedy", gateway, 100, 12));
    let mut polite = up.begin_as("polite", 1, 15, 12);
    let polite = Report::of(&mut polite);
    let greedy = greedy.each_mut().map(Report::of);
    polite.completes(0.85);
    greedy.iter().for_each(Report::accounts_for_all);
    let completed = polite.completed + greedy[0].completed + greedy[1].completed;
    assert!(completed > 40 * 12, "{completed}: {greedy:?}");
}

// Over five seconds: load for 20 s, in which five processes are restarted one after the other.
#[test]
fn a_rolling_restart_loses_no_request() {
    let mut up = Up::start("rolling", &["--workers", "a=2,b=2"]);
    let mut bench = up.begin(0, 20, 20);
    for name in ["a-0", "a-1", "b-0", "b-1", "controller"] {
        send(up.pid(name), Signal::SIGTERM);
        up.waits_for(&format!("{name}: ended (exit status: 0)"));
        up.waits_for(&format!("{name}: ready"));
        // The gateway dials it within the first backoffs.
        std::thread::sleep(Duration::from_secs(1));
    }
    let report = Report::of(&mut bench);
    report.accounts_for_all();
    let lost = report.requests - report.completed;
    assert!(lost <= report.late + 1 && report.late <= 4, "{report:?}");
    assert_eq!(report.failed, 0, "{report:?}");
}

/// What a process says of itself and the others.
fn status(admin: &str) -> Value {
    let (code, said) = ran(&["status", "--json", "--admin", admin]);
    assert_eq!(code, 0, "{said}");
    serde_json::from_str(&said).unwrap()
}

/// The same without a program in between, which takes long to start on a busy machine.
fn asked(admin: &str) -> Value {
    let mut stream = TcpStream::connect(admin).unwrap();
    let request = "GET /status HTTP/1.0\r\nhost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

// Over five seconds: load for 6 s, a process that is suspected and then lost, and its backoff until it is met again.
#[test]
fn status_shows_what_each_process_does() {
    let mut up = Up::start("status", &["--workers", "a=2"]);
    let line = up.waits_for("spillgate status --admin ");
    let (_, admin) = line.split_once("--admin ").unwrap();
    // While they come: it is of the last seconds.
    let offers = || {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let offered = asked(admin)["pipelines"][0]["next"]["offered"].as_f64();
            if offered.is_some_and(|offered| (5.0..25.0).contains(&offered)) {
                return;
            }
            assert!(Instant::now() < give_up, "{offered:?} of 20 a second");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    up.bench(0, 20, 6, offers).completes(0.9);
    let seen = status(admin);
    assert_eq!(seen["process"], "gateway-0");
    let pipeline = &seen["pipelines"][0];
    assert_eq!(pipeline["in_flight"], 0, "{pipeline}");
    let worker = &pipeline["modules"][1]["workers"][1];
    assert_eq!(
        (&worker["process"], &worker["state"]),
        (&"a-1".into(), &"serves".into())
    );
    let state_of = |seen: &Value, name: &str| {
        let peers = seen["peers"].as_array().unwrap().iter();
        let mut named = peers.filter(|peer| peer["process"] == name);
        named.next().unwrap().clone()
    };
    let peer = state_of(&seen, "a-1");
    assert_eq!(peer["state"], "met", "{peer}");
    let role = peer["roles"][0].as_str().unwrap();
    assert!(role.starts_with("worker of a on emulated"), "{peer}");
    let error = peer["clock_error_ms"].as_f64().unwrap();
    assert!(0.0 < error && error < 50.0, "{peer}");
    let victim = up.pid("a-1");
    let until = |wanted: &str| {
        let give_up = Instant::now() + PATIENCE;
        while state_of(&asked(admin), "a-1")["state"] != wanted {
            assert!(Instant::now() < give_up, "a-1 is not {wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    send(victim, Signal::SIGSTOP);
    until("suspected");
    assert_eq!(asked(admin)["complaints"], Value::Array(Vec::new()));
    send(victim, Signal::SIGKILL);
    until("away");
    // It is dialled in vain until it is there again.
    let give_up = Instant::now() + PATIENCE;
    while asked(admin)["complaints"][0]["peer"] != "a-1" {
        assert!(Instant::now() < give_up, "{}", asked(admin)["complaints"]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (_, text) = ran(&["status", "--admin", admin]);
    assert!(text.contains("worker of a on emulated"), "{text}");
    let (code, said) = refused(&["status", "--admin", "127.0.0.1:1"]);
    assert_eq!(code, 1);
    assert!(said.contains("no process answers on 127.0.0.1:1"), "{said}");
}

// Over five seconds: four processes restart one after the other, each once the one before it is ready.
#[test]
fn a_hang_up_restarts_one_process_after_the_other() {
    let mut up = Up::start("hang-up", &[]);
    let all = ["a-0", "b-0", "controller", "gateway-0"];
    let before = all.map(|name| up.pid(name));
    send(Pid::from_raw(up.process.id() as i32), Signal::SIGHUP);
    for name in all {
        up.waits_for(&format!("{name}: restarting"));
        up.waits_for(&format!("{name}: ready"));
    }
    up.waits_for("rolling restart: done");
    assert!((0..4).all(|i| up.pid(all[i]) != before[i]));
    up.bench(0, 20, 3, || {}).completes(0.95);
    assert!(
        !up.said.iter().any(|line| line.contains("ended (")),
        "{:#?}",
        up.said
    );
}

fn is_gone(pid: Pid) -> bool {
    // A process that waits for its parent to look at it has ended, too.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

// Over five seconds: two sets of five processes start; the children of one that was killed find out by themselves.
#[test]
fn processes_end_with_the_one_that_started_them() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let mut up = Up::start(&format!("{signal}"), &[]);
        let children = ["a-0", "b-0", "controller", "gateway-0"].map(|name| up.pid(name));
        send(Pid::from_raw(up.process.id() as i32), signal);
        up.process.wait().unwrap();
        let give_up = Instant::now() + PATIENCE;
        while !children.iter().all(|pid| is_gone(*pid)) {
            assert!(Instant::now() < give_up, "{signal}: a child lives on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_process_needs_the_models_of_its_own_modules_only() {
    let folder = std::env::temp_dir().join(format!("spillgate-models-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| -> String {
        let path: &Path = &folder.join(name);
        std::fs::write(path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pipeline = file(
        "cars.yaml",
        "
name: cars
slo: 400ms
modules:
  detect: { op: detector, model: away.pt, inputs: { image: $source.frame }, device: cpu:0, batch: { max: 1 } }
outputs: { vehicles: $detect.vehicles }
",
    );
    let profiles = file(
        "profiles.yaml",
        "cpu: { detect: { away.pt: { alpha: 19ms, beta: 1ms, max: 1 } } }",
    );
    let topology = file(
        "topology.yaml",
        "processes:
  - { name: gateway-0, gateway: true }
  - { name: control, controllers: all, address: 127.0.0.1:7 }
  - { name: worker, workers: { source: 1, detect: 1 }, address: 127.0.0.1:8 }
",
    );
    let arguments = |role, name| {
        let files = ["--topology", &topology, "--profiles", &profiles];
        let rest = ["--no-admin", "--link-listen", "127.0.0.1:0", "--name", name];
        [&[role, &*pipeline][..], &files[..], &rest[..]].concat()
    };
    let (code, said) = refused(&arguments("worker", "worker"));
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("modules.detect: no model file"), "{said}");
    let mut controller = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args(arguments("controller", "control"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(controller.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("reached by other processes on")));
    let _ = controller.kill();
    let _ = controller.wait();
    std::fs::remove_dir_all(folder).unwrap();
}

/// Runs the program until it ends; its exit code and what it printed.
fn ran(arguments: &[&str]) -> (i32, String) {
    let program = env!("CARGO_BIN_EXE_spillgate");
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), said)
}

/// The same with what it complained of.
fn refused(arguments: &[&str]) -> (i32, String) {
    let program = env!("CARGO_BIN_EXE_spillgate");
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
}

#[test]
fn what_is_wrong_is_said() {
    let folder = std::env::temp_dir().join(format!("spillgate-roles-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| -> String {
        let path: &Path = &folder.join(name);
        std::fs::write(path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pipeline = file("pair.yaml", PIPELINE);
    file("pair.profile.yaml", PROFILE);
    let whole = "processes:
  - { name: gateway-0, gateway: true }
  - { name: control, controllers: all, address: 127.0.0.1:7 }
  - { name: worker, workers: { a: 1, b: 1 }, address: 127.0.0.1:8 }
";
    let topology = file("topology.yaml", whole);
    let (code, said) = refused(&["up", &pipeline, "--workers", "c=2"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("no module named \"c\"; the pipeline has a, b"),
        "{said}"
    );
    let as_worker = ["worker", &pipeline, "--no-admin", "--topology"];
    let (code, said) = refused(&[&as_worker[..], &[&topology, "--name", "worker-7"]].concat());
    assert_eq!(code, 1, "{said}");
    let expected = "has no process \"worker-7\"; it has gateway-0, control, worker";
    assert!(said.contains(expected), "{said}");
    let (code, said) = refused(&[&as_worker[..], &[&topology, "--name", "gateway-0"]].concat());
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("process \"gateway-0\" of the topology is a gateway: start it with"),
        "{said}"
    );
    let as_controller = ["controller", &pipeline, "--no-admin", "--topology"];
    let (code, said) = refused(&[&as_controller[..], &[&topology, "--name", "worker"]].concat());
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains(
            "\"worker\" of the topology has no controller: start it with `spillgate worker`"
        ),
        "{said}"
    );
    let (code, said) = refused(&["up", &pipeline, "--workers", "a=1,a=3"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("--workers: a is written twice"), "{said}");
    let wrong = file(
        "wrong.yaml",
        "processes:\n  - { name: worker, workers: { c: 1 } }\n",
    );
    let (code, said) = refused(&[&as_worker[..], &[&wrong, "--name", "worker"]].concat());
    assert_eq!(code, 78, "{said}");
    assert!(
        said.contains("wrong.yaml:2: processes[0].workers.c: no module named"),
        "{said}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}
