//! The process around the server: signals, standard error, flags, descriptors. Real processes of the program itself.

mod signals;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tempfile::TempDir;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const NOOP: &str = "{ name: p, slo: 1s, source: { payload: bytes }, modules: { a: { op: noop, inputs: { payload: \
                    $source.payload } } }, outputs: { payload: $a.payload } }";
/// Batches of a minute.
const SLOW: &str = "{ name: p, slo: 3m, source: { payload: bytes }, policy: { drop: none }, modules: { a: { op: noop, inputs: \
                    { payload: $source.payload }, device: emulated, batch: { max: 1 } } }, outputs: { payload: $a.payload } }";
const SLOW_PROFILE: &str = "emulated: { a: { \"-\": { alpha: 60s, beta: 1ms, max: 32 } } }";

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder that goes with its test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// `spillgate serve` on free ports.
fn serve(folder: &Folder, pipeline: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    command
        .arg("serve")
        .arg(pipeline)
        .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .arg("--port-file")
        .arg(folder.0.path().join("port"))
        .stdin(Stdio::null());
    command
}

/// A process that is ended when the test is.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Process(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        until("the process ends", || self.0.try_wait().unwrap())
    }

    /// The lines of its standard error as they come.
    fn lines(&mut self) -> Receiver<String> {
        let stderr = BufReader::new(self.0.stderr.take().unwrap());
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        receive
    }

    /// Seconds of processor time so far.
    fn seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
        let ticks: u64 = fields[12..14]
            .iter()
            .map(|t| t.parse::<u64>().unwrap())
            .sum();
        ticks as f64 / 100.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The next line that holds `part`; with it the lines before.
fn line_with(lines: &Receiver<String>, part: &str) -> String {
    let give_up = Instant::now() + PATIENCE;
    let mut before = Vec::new();
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        let Ok(line) = lines.recv_timeout(left) else {
            panic!("no line with \"{part}\" in {before:?}");
        };
        if line.contains(part) {
            return line;
        }
        before.push(line);
    }
}

fn port(folder: &Folder) -> String {
    let file = folder.0.path().join("port");
    let address = until("the server is up", || std::fs::read_to_string(&file).ok());
    address.trim().to_owned()
}

async fn infer(address: &str) -> Result<(), tonic::Status> {
    let mut client = SpillgateClient::connect(format!("http://{address}"))
        .await
        .map_err(|e| tonic::Status::unavailable(e.to_string()))?;
    let frame = pb::Frame {
        data: b"x".as_slice().into(),
        ..Default::default()
    };
    let request = pb::InferRequest {
        pipeline: "p".to_owned(),
        frame: Some(frame),
    };
    client.infer(request).await.map(|_| ())
}

/// The admin port's answer; its address stands in the log.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn admin_of(lines: &Receiver<String>) -> String {
    let line = line_with(lines, "admin on http://");
    let rest = line.split("http://").nth(1).unwrap();
    rest.split(' ').next().unwrap().to_owned()
}

/// Serves requests and ends in order with this standard error, which takes nothing, or not for long.
fn serves_with(name: &str, stderr: Stdio) {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", NOOP);
    // Each call makes some hundred lines: a pipe is full after a few.
    let mut command = serve(&folder, &pipeline);
    let mut process = Process::start(command.env("RUST_LOG", "trace").stderr(stderr));
    let address = port(&folder);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    for _ in 0..50 {
        let call = async { tokio::time::timeout(PATIENCE, infer(&address)).await };
        runtime.block_on(call).expect("an answer").unwrap();
    }
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended().code(), Some(0), "{name}");
}

#[test]
fn a_standard_error_that_nobody_reads_holds_up_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    serves_with("full-pipe", writer.into());
    drop(reader);
}

#[test]
fn a_standard_error_without_a_reader_fails_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    serves_with("closed-pipe", writer.into());
}

#[test]
fn a_full_disk_fails_nothing() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    serves_with("full-disk", full.unwrap().into());
}

#[test]
fn a_second_sigterm_ends_at_once_and_says_what_is_unanswered() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", SLOW);
    folder.file("p.profile.yaml", SLOW_PROFILE);
    let mut process = Process::start(serve(&folder, &pipeline).stderr(Stdio::piped()));
    let lines = process.lines();
    let admin = admin_of(&lines);
    let address = port(&folder);
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().worker_threads(1).build().unwrap();
    let calls = [address.clone(), address];
    let calls = calls.map(|address| runtime.spawn(async move { infer(&address).await }));
    until("one runs and the other waits", || {
        let metrics = get(&admin, "/metrics")?;
        let mut lines = metrics.lines();
        let queue = "spillgate_worker_queue_length_requests{";
        lines.find(|l| l.starts_with(queue) && l.ends_with(" 1"))?;
        Some(())
    });
    process.signal(Signal::SIGTERM);
    line_with(&lines, "SIGTERM: draining; 2 requests in flight");
    let start = Instant::now();
    process.signal(Signal::SIGTERM);
    line_with(
        &lines,
        "SIGTERM while draining: ending at once; 2 requests are unanswered",
    );
    assert_eq!(process.ended().code(), Some(1));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    for call in calls {
        assert!(runtime.block_on(call).unwrap().is_err());
    }
}

/// Two seconds and more to measure.
const UNMEASURED: &str = "{ name: p, slo: 9s, modules: { detect: { op: detector, variants: [{ model: road.pt, input: 320 }], \
                          inputs: { image: $source.frame }, batch: { max: 16 } } }, outputs: { v: $detect.vehicles } }";

#[test]
fn a_start_is_live_says_how_far_it_is_and_can_be_ended() {
    let folder = Folder::new();
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/modules/models");
    for name in ["road.pt", "road.labels"] {
        std::fs::copy(models.join(name), folder.0.path().join(name)).unwrap();
    }
    let pipeline = folder.file("p.yaml", UNMEASURED);
    let mut process = Process::start(serve(&folder, &pipeline).stderr(Stdio::piped()));
    let lines = process.lines();
    let admin = admin_of(&lines);
    line_with(&lines, "measuring detect on cpu:0, 0 of 5 steps done");
    // The line is there a moment before the port says it.
    let text = "starting: pipeline p: measuring detect on cpu:0, ";
    until("the port says how far it is", || {
        let ready = get(&admin, "/readyz")?;
        assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
        ready.contains(text).then_some(())
    });
    assert!(get(&admin, "/livez").unwrap().starts_with("HTTP/1.1 200"));
    process.signal(Signal::SIGTERM);
    line_with(&lines, "SIGTERM while starting: ended, nothing was served");
    let status = process.ended();
    assert_eq!(status.code(), Some(0), "{status}");
}

// Over five seconds: a pipe is given up after 5 s.
#[test]
fn a_pipe_that_nobody_writes_and_a_device_without_end_are_errors() {
    let folder = Folder::new();
    let fifo = folder.0.path().join("p.yaml");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let devices = [("/dev/zero", "5242880 bytes"), ("/", "it is a folder")];
    let all = [(fifo.to_str().unwrap(), "it is a pipe")];
    for (path, part) in all.into_iter().chain(devices) {
        let start = Instant::now();
        let output = serve(&folder, Path::new(path)).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{text}");
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("error: ") && last.contains(path) && last.contains(part),
            "{text}"
        );
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn all_lines_are_json_when_asked_for_and_none_otherwise() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", NOOP);
    for json in [true, false] {
        let _ = std::fs::remove_file(folder.0.path().join("port"));
        let mut command = serve(&folder, &pipeline);
        command.env("SPILLGATE_LOG_JSON", json.to_string());
        command.env("RUST_LOG", "debug").stderr(Stdio::piped());
        let mut process = Process::start(&mut command);
        let lines = process.lines();
        port(&folder);
        process.signal(Signal::SIGTERM);
        assert_eq!(process.ended().code(), Some(0));
        let all: Vec<String> = lines.iter().collect();
        let is_json = |l: &String| serde_json::from_str::<serde_json::Value>(l).is_ok();
        assert!(all.len() > 5, "{all:?}");
        assert!(all.iter().all(|l| is_json(l) == json), "{all:?}");
    }
    // What ends before the log is set up, or ends it.
    for (arguments, code) in [(["--connections", "0"], 2), (["--drain", "1s"], 78)] {
        let mut command = serve(&folder, &folder.file("bad.yaml", "name: ["));
        let output = command
            .args(arguments)
            .env("SPILLGATE_LOG_JSON", "1")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code));
        let text = String::from_utf8(output.stderr).unwrap();
        for line in text.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{text}"));
        }
        assert!(!text.is_empty());
    }
}

#[test]
fn what_the_environment_turns_off_is_off() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", NOOP);
    let mut command = serve(&folder, &pipeline);
    command
        .env("SPILLGATE_NO_ADMIN", "false")
        .env("SPILLGATE_DRAIN", "2s");
    let mut process = Process::start(command.stderr(Stdio::piped()));
    let lines = process.lines();
    let admin = admin_of(&lines);
    port(&folder);
    assert!(get(&admin, "/readyz").unwrap().ends_with("ready\n"));
    process.signal(Signal::SIGINT);
    assert_eq!(process.ended().code(), Some(0));
}

// Over five seconds: the program starts 14 times, and each start initialises libtorch.
#[test]
fn flags_outside_of_their_range_are_usage_errors_also_by_environment() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", NOOP);
    let cases = [
        ("connections", "0", "use 1 to 65536"),
        ("connections", "4611686018427387904", "use 1 to 65536"),
        ("calls-per-connection", "0", "use 1 to 65536"),
        ("decoders", "100000", "use 1 to 512"),
        ("threads", "1000000", "use 1 to 512"),
        ("drain", "100m", "use up to 3600s"),
        ("trace-sample", "nan", "use 0 to 1"),
    ];
    for (flag, value, told) in cases {
        let name = format!("SPILLGATE_{}", flag.to_uppercase().replace('-', "_"));
        let mut by_flag = serve(&folder, &pipeline);
        by_flag.arg(format!("--{flag}")).arg(value);
        let mut by_environment = serve(&folder, &pipeline);
        by_environment.env(name, value);
        for mut command in [by_flag, by_environment] {
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{flag} {value}: {text}");
            assert!(text.contains(told) && text.contains(flag), "{text}");
        }
    }
}

#[test]
fn commands_of_the_laboratory_say_where_they_are() {
    for arguments in [&["evaluate", "pard", "--help"][..], &["adapt", "x.json"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let where_it_is = format!("-p spillgate-lab -- {}", arguments[0]);
        assert!(said.contains(&where_it_is), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
}

/// The same command under a limit of descriptors, in the words of `ulimit`.
fn limited(limit: &str, command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"]);
    limited.arg(command.get_program()).args(command.get_args());
    limited.stderr(Stdio::piped());
    limited
}

#[test]
fn connections_follow_from_the_descriptors() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", NOOP);
    let output = limited("-n 100", &serve(&folder, &pipeline)).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("needs 161 descriptors"), "{text}");
    // The soft limit is raised.
    let mut process = Process::start(&mut limited("-Sn 48", &serve(&folder, &pipeline)));
    admin_of(&process.lines());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.0.id())).unwrap();
    let line = limits.lines().find(|l| l.starts_with("Max open files"));
    let line: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(line[3], line[4], "{limits}");
    // As many connections as there are descriptors for.
    let mut process = Process::start(&mut limited("-n 162", &serve(&folder, &pipeline)));
    let lines = process.lines();
    line_with(&lines, "warning: at most 2 connections");
    admin_of(&lines);
    let address = port(&folder);
    let _used: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    described(&address);
}

/// A new client gets an answer.
fn described(address: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = format!("http://{address}");
    let asked = async {
        let mut client = SpillgateClient::connect(url).await?;
        client.describe(pb::DescribeRequest::default()).await?;
        anyhow::Ok(())
    };
    let answered = async { tokio::time::timeout(PATIENCE, asked).await };
    runtime.block_on(answered).expect("an answer").unwrap();
}

#[test]
fn without_descriptors_pending_connections_cost_no_core_and_idle_ones_give_way() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", NOOP);
    let mut process = Process::start(serve(&folder, &pipeline).stderr(Stdio::piped()));
    let lines = process.lines();
    let admin = admin_of(&lines);
    let address = port(&folder);
    // Fewer than it found at its start.
    let pid = process.0.id().to_string();
    let lowered = Command::new("prlimit")
        .args(["--pid", &pid, "--nofile=48:48"])
        .status();
    assert!(lowered.unwrap().success());
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(TcpStream::connect(&address).unwrap());
        held.push(TcpStream::connect(&admin).unwrap());
    }
    line_with(&lines, "could not be accepted");
    let before = process.seconds();
    std::thread::sleep(Duration::from_secs(2));
    let used = process.seconds() - before;
    assert!(used < 1.0, "{used} s of processor time in two seconds");
    let told = lines
        .try_iter()
        .filter(|l| l.contains("could not be accepted"));
    let n = told.count();
    assert!(
        n <= 24,
        "{n} lines about it: a burst of two call sites is 20"
    );
    described(&address);
    drop(held);
    let ready = until("the admin port answers again", || get(&admin, "/readyz"));
    assert!(ready.ends_with("ready\n"), "{ready}");
}
