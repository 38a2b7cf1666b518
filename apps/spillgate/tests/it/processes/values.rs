//! What travels between a gateway and a process that runs two modules over the same frame: bytes are counted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::net::TcpSocket;

use super::{PATIENCE, Report};
use crate::support::machine::Machine;

/// Both modules take the frame. The answer contains what `a` passes on; nothing uses what `b` does.
const PIPELINE: &str = "
name: fan
slo: 4s
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
  b: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $a.payload }
";

/// A gateway, a controller, and a process with both workers.
struct Trio {
    _machine: Machine,
    folder: PathBuf,
    /// The ports of the processes, bound without listening: the system gives them to nobody else.
    ports: Vec<TcpSocket>,
    children: Vec<Child>,
    clients: String,
    /// Admin ports of the gateway and of the process with the workers.
    admin: [String; 2],
}

impl Trio {
    /// `times`: how long each module takes, in milliseconds. `memory`: of the process with the workers.
    fn start(name: &str, dispatch: &str, times: [u32; 2], memory: &str) -> Self {
        let folder = format!("spillgate-values-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut trio = Trio {
            _machine: Machine::shared(),
            folder,
            ports: Vec::new(),
            children: Vec::new(),
            clients: String::new(),
            admin: Default::default(),
        };
        let [clients, at_gateway, at_stages, control, stages] = [(); 5].map(|()| trio.port());
        let [a, b] = times.map(|ms| format!("{{ \"-\": {{ alpha: {ms}ms, beta: 0ms, max: 1 }} }}"));
        let file = |name: &str, text: &str| std::fs::write(trio.folder.join(name), text).unwrap();
        let policy = format!("policy: {{ dispatch: {dispatch}, gate: 0 }}\n");
        file("fan.yaml", &format!("{PIPELINE}{policy}"));
        file("profiles.yaml", &format!("emulated: {{ a: {a}, b: {b} }}"));
        file(
            "topology.yaml",
            &format!(
                "processes:
  - {{ name: gateway-0, gateway: true }}
  - {{ name: control, controllers: all, address: \"{control}\" }}
  - {{ name: stages, workers: {{ a: 1, b: 1 }}, address: \"{stages}\" }}
"
            ),
        );
        let own = ["--listen", &clients, "--admin", &at_gateway];
        trio.spawn("gateway", "gateway-0", &own);
        trio.spawn("controller", "control", &["--no-admin"]);
        let own = ["--memory", memory, "--admin", &at_stages];
        trio.spawn("worker", "stages", &own);
        trio.clients = clients;
        trio.admin = [at_gateway, at_stages];
        let give_up = Instant::now() + PATIENCE;
        while get(&trio.admin[0], "/readyz").is_none_or(|said| !said.contains("200 OK")) {
            assert!(Instant::now() < give_up, "the gateway is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        trio
    }

    fn port(&mut self) -> String {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        self.ports.push(socket);
        address
    }

    fn spawn(&mut self, role: &str, name: &str, flags: &[&str]) {
        let path = |file: &str| self.folder.join(file);
        let child = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .arg(role)
            .arg(path("fan.yaml"))
            .arg("--topology")
            .arg(path("topology.yaml"))
            .arg("--profiles")
            .arg(path("profiles.yaml"))
            .args(["--name", name])
            .args(flags)
            .stderr(Stdio::null())
            .spawn();
        self.children.push(child.unwrap());
    }

    /// A closed loop of so many requests in flight, of so many bytes each.
    fn bench(&self, in_flight: u32, bytes: u32, seconds: u32) -> Report {
        let mut process = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .args(["bench", "--json", "-"])
            .args(["--server", &format!("http://{}", self.clients)])
            .args(["--concurrency", &in_flight.to_string()])
            .args(["--payload-bytes", &bytes.to_string()])
            .args(["--duration", &format!("{seconds}s")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Report::of(&mut process)
    }

    /// A metric of the gateway, or of the process with the workers.
    fn metric(&self, of: Of, name: &str) -> u64 {
        let text = get(&self.admin[of as usize], "/metrics").unwrap();
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value: f64 = value
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .parse()
            .unwrap();
        value as u64
    }

    /// Waits until nothing is kept for any request.
    fn keeps_nothing(&self) {
        let names = [
            (Of::Gateway, "spillgate_values_known_requests"),
            (Of::Stages, "spillgate_values_kept_requests"),
            (Of::Stages, "spillgate_values_kept_bytes"),
            (Of::Stages, "spillgate_values_held_bytes"),
        ];
        let give_up = Instant::now() + PATIENCE;
        loop {
            let left = names.map(|(of, name)| (name, self.metric(of, name)));
            if left.iter().all(|(_, n)| *n == 0) {
                return;
            }
            assert!(Instant::now() < give_up, "{left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[derive(Clone, Copy)]
enum Of {
    Gateway,
    Stages,
}

impl Drop for Trio {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What an admin port answers.
fn get(admin: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(admin).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

const SENT: &str = "spillgate_peer_sent_bytes_total{peer=\"stages\"}";
const RECEIVED: &str = "spillgate_peer_received_bytes_total{peer=\"stages\"}";
const REFERENCES: &str = "spillgate_values_references_total";

#[test]
fn a_frame_goes_once_to_a_process_with_two_modules_and_is_not_kept_when_its_request_has_ended() {
    const BYTES: u32 = 100_000;
    let trio = Trio::start("once", "earliest-start", [2, 2], "256MiB");
    let report = trio.bench(4, BYTES, 3);
    report.completes(1.0);
    let frames = report.requests * u64::from(BYTES);
    // What is said beside the values is small.
    let most = frames + frames / 5;
    let sent = trio.metric(Of::Gateway, SENT);
    assert!((frames..most).contains(&sent), "{sent} of {frames}");
    let received = trio.metric(Of::Gateway, RECEIVED);
    assert!((frames..most).contains(&received), "{received} of {frames}");
    assert_eq!(trio.metric(Of::Gateway, REFERENCES), report.requests);
    assert_eq!(
        trio.metric(Of::Stages, "spillgate_values_given_back_total"),
        0
    );
    trio.keeps_nothing();
    let status: Value = {
        let answer = get(&trio.admin[0], "/status").unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    assert_eq!(status["values"]["known_requests"], 0, "{status}");
    assert!(
        status["peers"][1]["sent"].as_u64() >= Some(frames),
        "{status}"
    );
}

// Over five seconds: three processes start, and load for 4 s.
#[test]
fn what_is_given_up_for_room_is_sent_again_and_served() {
    // `a` runs ahead of `b`: the frames of the requests that wait for `b` at the gateway exceed what may be kept, which is 4 MiB. All of
    // them have room in the 8 MiB of a gateway, however long answers take to leave a busy machine.
    const BYTES: u32 = 400_000;
    let trio = Trio::start("again", "pull", [1, 20], "16MiB");
    let report = trio.bench(20, BYTES, 4);
    report.completes(1.0);
    assert!(trio.metric(Of::Stages, "spillgate_values_given_back_total") > 0);
    trio.keeps_nothing();
}

// Over five seconds: three processes start, and load for 3 and 1 s.
#[test]
fn a_request_that_finds_no_room_at_a_worker_is_dropped_and_the_process_serves_on() {
    const BYTES: u32 = 6_000_000;
    // Two frames exceed the half of the memory that one gateway may have.
    let mut trio = Trio::start("room", "earliest-start", [20, 20], "16MiB");
    let report = trio.bench(8, BYTES, 3);
    report.accounts_for_all();
    assert_eq!((report.failed, report.late), (0, 0), "{report:?}");
    assert!(report.dropped > 0 && report.completed > 0, "{report:?}");
    assert!(trio.metric(Of::Stages, "spillgate_values_refused_requests_total") >= report.dropped);
    trio.keeps_nothing();
    trio.bench(2, 1000, 1).completes(1.0);
    let lives = trio
        .children
        .iter_mut()
        .all(|c| c.try_wait().unwrap().is_none());
    assert!(lives);
}
