//! Families of real TorchScript files, served by the program itself: several architectures, files that are damaged, change or
//! vanish, and thousands of members.

mod cores;
mod placed;
mod taken_back;

use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tonic::Code;
use zip::ZipArchive;

use crate::support::archive::{is_numbers, model, shipped};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Code that changes nothing.
fn code(n: usize) -> String {
    format!("    _9{n} = torch.neg(argument_1)\n")
}

/// That model with a bit of its numbers turned and no other trace of it.
fn damaged(mut bytes: Vec<u8>) -> Vec<u8> {
    let number = {
        let mut zip = ZipArchive::new(Cursor::new(&bytes)).unwrap();
        let name = zip.file_names().find(|n| is_numbers(n)).unwrap();
        let name = name.to_owned();
        zip.by_name(&name).unwrap().data_start() as usize
    };
    bytes[number] ^= 1;
    bytes
}

/// A folder with a pipeline whose module `light` has the family `m/*.pt`; it goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, fields: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("spillgate-family-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("m")).unwrap();
        std::fs::copy(shipped("light.labels"), path.join("light.labels")).unwrap();
        let text = format!(
            "name: p\nslo: 10s\nmodules:\n  light:\n    op: classifier\n    models: m/*.pt\n    {fields}\n    \
             options: {{ size: [64, 64], labels: light.labels }}\n    \
             inputs: {{ image: $source.frame }}\n    batch: {{ max: 2 }}\n    device: cpu\n\
             outputs: {{ light: $light.labels }}\npolicy: {{ gate: 0 }}\n"
        );
        std::fs::write(path.join("p.yaml"), text).unwrap();
        let profile = "cpu: { light: { \"m/*.pt\": { alpha: 2ms, beta: 2ms, max: 2 } } }\n";
        std::fs::write(path.join("p.profile.yaml"), profile).unwrap();
        Folder(path)
    }

    fn member(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("m").join(format!("{name}.pt"))
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
        command
            .current_dir(&self.0)
            .env("RUST_LOG", "info")
            .args([subcommand, "p.yaml"]);
        command
    }

    /// Serves the pipeline.
    fn serve(&self) -> Served {
        self.serve_with(&[])
    }

    /// The same with these arguments besides.
    fn serve_with(&self, arguments: &[&str]) -> Served {
        let mut command = self.command("serve");
        command.args(arguments);
        let port = self.0.join("port");
        command
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .arg("--port-file")
            .arg(&port)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let (mut child, lines) = started(&mut command);
        let began = Instant::now();
        let address = loop {
            if let Ok(address) = std::fs::read_to_string(&port) {
                break address.trim().to_owned();
            }
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{status}: {:?}", lines.iter().collect::<Vec<String>>());
            }
            assert!(began.elapsed() < PATIENCE, "it does not serve");
            std::thread::sleep(Duration::from_millis(5));
        };
        Served::at(address, child, lines)
    }

    /// Serves the pipeline by two gateways and two workers, each a process.
    fn up(&self) -> [Served; 2] {
        self.up_with(&[])
    }

    /// The same with these variables of the environment.
    fn up_with(&self, variables: &[(&str, &str)]) -> [Served; 2] {
        let mut command = self.command("up");
        command
            .args([
                "--port",
                "0",
                "--gateways",
                "2",
                "--workers",
                "light=2",
                "--folder",
            ])
            .arg(self.0.join("up"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let (child, lines) = started(&mut command);
        let mut first = Served::at(String::new(), child, lines);
        let ready = first.line_with("all processes are ready; clients: ");
        let (_, addresses) = ready.split_once("clients: ").unwrap();
        let (one, other) = addresses.split_once(", ").unwrap();
        first.address = one.to_owned();
        let other = Served::at(other.to_owned(), None, channel().1);
        [first, other]
    }
}

/// The status of the process with that log.
fn status(log: &Path) -> serde_json::Value {
    let log = std::fs::read_to_string(log).unwrap();
    let (_, rest) = log.split_once("admin on http://").unwrap();
    let address = rest.split_whitespace().next().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    command.args(["status", "--json", "--admin", address]);
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Models that were loaded into the memory of a process's device, and pages that are taken.
fn weights(log: &Path) -> (u64, u64) {
    let weights = &status(log)["devices"][0]["weights"];
    let of = |field: &str| weights[field].as_u64().expect("a number");
    (of("loads"), of("pages"))
}

/// A process, and the lines of its standard error as they come.
fn started(command: &mut Command) -> (Child, Receiver<String>) {
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    (child, lines)
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that is ended when the test is.
struct Served {
    /// `None`: it ends with another one.
    child: Option<Child>,
    lines: Receiver<String>,
    address: String,
    runtime: tokio::runtime::Runtime,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // `up` ends its processes.
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

impl Served {
    fn at(address: String, child: impl Into<Option<Child>>, lines: Receiver<String>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread();
        Served {
            child: child.into(),
            lines,
            address,
            runtime: { runtime }.enable_all().build().unwrap(),
        }
    }

    /// The answer for a picture that is for this member.
    fn ask(&self, member: &str) -> Result<(), tonic::Status> {
        self.ask_of("p", member)
    }

    /// The same of a pipeline; no member where its name is empty.
    fn ask_of(&self, pipeline: &str, member: &str) -> Result<(), tonic::Status> {
        let models = [("light".to_owned(), member.to_owned())];
        let models = models.into_iter().filter(|(_, member)| !member.is_empty());
        let frame = pb::Frame {
            format: pb::FrameFormat::Rgb8.into(),
            width: 8,
            height: 8,
            data: vec![100; 192].into(),
            models: models.collect(),
            ..Default::default()
        };
        let request = pb::InferRequest {
            pipeline: pipeline.to_owned(),
            frame: Some(frame),
        };
        let call = async {
            let url = format!("http://{}", self.address);
            let mut client = SpillgateClient::connect(url).await.unwrap();
            client.infer(request).await
        };
        let patient = async { tokio::time::timeout(PATIENCE, call).await };
        let answer = self.runtime.block_on(patient).expect("an answer")?;
        let result = answer.into_inner().result.unwrap();
        assert_eq!(result.outputs.len(), 1, "{result:?}");
        Ok(())
    }

    /// The same again while the member is being checked, or no worker process is heard of.
    fn ask_in_the_end(&self, member: &str) -> Result<(), tonic::Status> {
        let began = Instant::now();
        loop {
            let answer = self.ask(member);
            let Err(status) = &answer else {
                return answer;
            };
            // On a machine that stalls, all workers may be silent for long enough to be suspected: requests of that moment are
            // dropped, and clients are to ask again.
            let passes = ["it is checked now", "no worker of the module was alive"];
            if !passes.iter().any(|part| status.message().contains(part)) {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "{member}: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What is said of a member that fails.
    fn failure(&self, member: &str) -> String {
        let status = self.ask_in_the_end(member).unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status}");
        let text = status.message().to_owned();
        let part = format!("module light: model {member}: ");
        assert!(
            text.contains(&part) || text.contains("module light (classifier): "),
            "{text}"
        );
        text
    }

    /// Has it read its files again, and waits until it serves them.
    fn read_again(&self) {
        let child = self.child.as_ref().unwrap();
        kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP).unwrap();
        self.line_with("requests under way end as they began");
    }

    /// The next line that holds `part`.
    fn line_with(&self, part: &str) -> String {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no line with {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }
}

#[test]
fn members_of_several_architectures_serve_beside_bad_ones() {
    let folder = Folder::new("mixed", "default_model: a1");
    folder.member("a1", &model("", 0));
    folder.member("a2", &model("", 100));
    folder.member("b", &model(&code(1), 7));
    folder.member("c", &model(&code(2), 0));
    folder.member("bit", &damaged(model("", 0)));
    folder.member("cut", &model("", 0)[..9_000]);
    folder.member("other", &std::fs::read(shipped("plate.pt")).unwrap());
    let served = folder.serve();
    for member in ["b", "a2", "c", "a1"] {
        served.ask_in_the_end(member).unwrap();
    }
    let cases = [
        ("cut", "it is a damaged zip archive"),
        ("other", "it fails on its own example"),
        ("bit", "is damaged: Invalid checksum"),
    ];
    for (member, part) in cases {
        let text = served.failure(member);
        assert!(text.contains(part), "{text}");
    }
    let line = served.line_with("can be served");
    assert!(
        line.contains("5 of its 7 models can be served; their architectures: 3"),
        "{line}"
    );
    // All go on as before.
    for _ in 0..3 {
        for member in ["a1", "a2", "b", "c"] {
            served.ask(member).unwrap();
        }
        assert!(served.ask("cut").is_err());
    }
    assert_eq!(served.ask("d").unwrap_err().code(), Code::NotFound);
}

#[test]
fn loads_and_the_requests_that_waited_for_them_are_counted() {
    let folder = Folder::new("counted", "default_model: a");
    for (n, member) in ["a", "b", "c"].into_iter().enumerate() {
        folder.member(member, &model("", n));
    }
    let served = folder.serve_with(&[]);
    let admin = served.admin();
    served.line_with("can be served");
    for member in ["a", "b", "b", "c"] {
        served.ask(member).unwrap();
    }
    let weights = served.weights(&admin);
    let number = |name: &str| weights[name].as_u64();
    assert_eq!(number("batches"), Some(4), "{weights}");
    assert_eq!(
        (number("loads"), number("cold")),
        (Some(2), Some(2)),
        "{weights}"
    );
    // They stay.
    assert_eq!(
        (number("pages"), number("unloads")),
        (None, Some(0)),
        "{weights}"
    );
}

#[test]
fn a_file_that_changes_or_vanishes_fails_alone_until_files_are_read_again() {
    let folder = Folder::new("changed", "default_model: a");
    // Names of equal files would be one model.
    for (member, n) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        folder.member(member, &model("", n));
    }
    let served = folder.serve();
    served.line_with("can be served");
    served.ask("a").unwrap();
    // `a` is in memory.
    folder.member("a", b"no model any more");
    folder.member("b", &model(&code(3), 0));
    std::fs::remove_file(folder.path("c")).unwrap();
    served.ask("a").unwrap();
    let text = served.failure("b");
    assert!(
        text.contains("changed since it was listed; restart the server"),
        "{text}"
    );
    let text = served.failure("c");
    assert!(
        text.contains("m/c.pt cannot be had: No such file"),
        "{text}"
    );
    served.ask("d").unwrap();
    served.read_again();
    served.ask_in_the_end("b").unwrap();
    served.ask("d").unwrap();
    assert_eq!(served.ask("c").unwrap_err().code(), Code::NotFound);
    assert!(served.failure("a").contains("no TorchScript model"));
}

#[test]
fn the_first_load_is_known_from_the_check_at_the_start() {
    let folder = Folder::new("load", "");
    folder.member("a", &model("", 0));
    let served = folder.serve();
    let load_ms = || {
        let line = served.line_with("a load of a model is expected to take so long at first");
        let (_, rest) = line.split_once("load_ms=").unwrap();
        let number = rest.split_whitespace().next().unwrap();
        number.parse::<f64>().unwrap()
    };
    let at_start = load_ms();
    assert!(0.0 < at_start && at_start < 1e4, "{at_start} ms");
    // The same architecture is not checked again.
    folder.member("b", &model("", 1));
    let child = served.child.as_ref().unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP).unwrap();
    assert_eq!(load_ms(), at_start);
}

// Over five seconds: processes with models start, and measure two architectures.
#[test]
fn gateways_and_workers_of_several_processes_agree_on_members() {
    let folder = Folder::new("up", "default_model: a");
    folder.member("a", &model("", 0));
    folder.member("b", &model(&code(1), 0));
    folder.member("c", b"junk");
    let gateways = folder.up();
    for served in &gateways {
        for member in ["a", "b", "a"] {
            served.ask_in_the_end(member).unwrap();
        }
        assert!(served.failure("c").contains("it is no TorchScript model"));
        assert_eq!(served.ask("d").unwrap_err().code(), Code::NotFound);
    }
}

// Over five seconds: processes with models start, and one of them once more.
#[test]
fn under_a_placement_each_model_is_at_one_of_several_processes() {
    const MEMBERS: u64 = 8;
    let folder = Folder::new("placed", "default_model: m0");
    for n in 0..MEMBERS {
        folder.member(&format!("m{n}"), &model("", n as usize));
    }
    folder.member("bad", b"junk");
    // Its processes inherit the variables, and go by the topology.
    let gateways = folder.up_with(&[
        ("SPILLGATE_DEVICES", "cpu,memory=1GiB"),
        ("SPILLGATE_PLACEMENT", "spillgate"),
    ]);
    let ask_all = || {
        for served in &gateways {
            for n in 0..MEMBERS {
                served.ask_in_the_end(&format!("m{n}")).unwrap();
            }
        }
    };
    let log = |process: &str| folder.0.join("up").join(format!("{process}.log"));
    // A gateway that has met one of the workers sends it the requests for all models.
    let began = Instant::now();
    let has_met = |gateway: &str| {
        let status = status(&log(gateway));
        let mut peers = status["peers"].as_array().unwrap().iter();
        peers.all(|peer| peer["state"] == "met")
    };
    while !["gateway-0", "gateway-1"].iter().all(|g| has_met(g)) {
        assert!(began.elapsed() < PATIENCE, "they do not meet");
        std::thread::sleep(Duration::from_millis(50));
    }
    ask_all();
    let logs = ["light-0", "light-1"].map(log);
    let [first, second] = logs.each_ref().map(|log| weights(log));
    // The default is at both from the start. Others are at one of them each, but for some where a worker does not get on for a while: it
    // shares the cores with other tests.
    let loads = first.0 + second.0;
    let (least, most) = (MEMBERS - 1, 2 * (MEMBERS - 1));
    assert!((least..most).contains(&loads), "{first:?} {second:?}");
    assert_eq!(first.1 + second.1, loads + 2);
    assert!(first.0 > 0 && second.0 > 0, "{first:?} {second:?}");
    // A model that cannot be loaded fails its requests alone, not the sessions of the processes.
    for served in &gateways {
        for _ in 0..3 {
            let text = served.failure("bad");
            assert!(text.contains("it is no TorchScript model"), "{text}");
        }
    }
    for gateway in ["gateway-0", "gateway-1"] {
        let text = std::fs::read_to_string(log(gateway)).unwrap();
        assert!(!text.contains("peer lost"), "{text}");
    }
    ask_all();
    // One of them dies: the other one serves its models.
    let pattern = format!("worker .*{}.*--name light-0", folder.0.display());
    let killed = Command::new("pkill").args(["-9", "-f", &pattern]).status();
    assert!(killed.unwrap().success());
    ask_all();
}

// Over five seconds: 3600 files are linked and read.
#[test]
fn thousands_of_members_are_served_in_seconds() {
    const MEMBERS: usize = 3600;
    let folder = Folder::new("thousands", "input: 64");
    let profile = "cpu: { light: { \"m/*.pt@64\": { alpha: 2ms, beta: 2ms, max: 2 } } }\n";
    std::fs::write(folder.0.join("p.profile.yaml"), profile).unwrap();
    folder.member("cam-0", &model("", 0));
    for n in 1..MEMBERS {
        std::fs::hard_link(folder.path("cam-0"), folder.path(&format!("cam-{n}"))).unwrap();
    }
    let began = Instant::now();
    let served = folder.serve();
    served.ask("cam-3599").unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let line = served.line_with("can be served");
    let text = format!("{MEMBERS} of its {MEMBERS} models can be served; their architectures: 1");
    assert!(line.contains(&text), "{line}");
    let status = served.ask("").unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("light: cam-0"), "{status}");
}

// Over five seconds: 16 architectures are loaded and measured.
#[test]
fn a_member_that_is_asked_for_first_is_checked_first() {
    const MEMBERS: usize = 16;
    let folder = Folder::new("first", "default_model: m00");
    for n in 0..MEMBERS {
        folder.member(&format!("m{n:02}"), &model(&code(n), 0));
    }
    let served = folder.serve();
    served.ask_in_the_end("m15").unwrap();
    let so_far: Vec<String> = served.lines.try_iter().collect();
    let is_done = so_far.iter().any(|line| line.contains("can be served"));
    assert!(!is_done, "all were checked before it: {so_far:?}");
    served.line_with("16 of its 16 models can be served; their architectures: 16");
}

#[test]
fn a_family_without_a_good_member_is_an_error_with_its_line() {
    let folder = Folder::new("bad", "default_model: b");
    folder.member("a", b"junk");
    folder.member("b", b"");
    let output = folder
        .command("serve")
        .args(["--listen", "127.0.0.1:0", "--no-admin"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{text}");
    let line = "error: p.yaml:4: modules.light: none of the first models of its 2 can be served; model b (m/b.pt): it is \
                empty; write it anew, or fetch it again; model a (m/a.pt): it is no TorchScript model";
    assert!(text.contains(line), "{text}");
    folder.member("a", &model("", 0));
    let output = folder.command("validate").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.starts_with("warning: p.yaml:4: modules.light: model b (m/b.pt): it is empty"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}
