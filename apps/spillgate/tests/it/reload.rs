//! Pipeline files that change while the server serves. Real processes of the program; the devices are emulated.

mod rollout;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Reply;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// One module of 20 ms.
const ONE: &str = "
name: p
slo: 2s
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $a.payload }
";
/// Two of them, and another objective.
const TWO: &str = "
name: p
slo: 3s
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
  b: { op: noop, inputs: { payload: $a.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $b.payload }
";
const PROFILE: &str = "
emulated:
  a: { \"-\": { alpha: 19ms, beta: 1ms, max: 1 } }
  b: { \"-\": { alpha: 19ms, beta: 1ms, max: 1 } }
";

struct Server {
    folder: PathBuf,
    process: Child,
    lines: Receiver<String>,
    client: SpillgateClient<Channel>,
    admin: String,
}

impl Server {
    async fn start(name: &str) -> Self {
        Self::start_with(name, &[]).await
    }

    /// With these arguments besides.
    async fn start_with(name: &str, arguments: &[&str]) -> Self {
        let folder = format!("spillgate-reload-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.yaml"), ONE).unwrap();
        std::fs::write(folder.join("p.profile.yaml"), PROFILE).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .arg("serve")
            .arg(folder.join("p.yaml"))
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null())
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
        let admin = said(&lines, "admin on http://");
        let (_, admin) = admin.split_once("http://").unwrap();
        let admin = admin.split_whitespace().next().unwrap().to_owned();
        let listening = said(&lines, "listening on ");
        let (_, address) = listening.split_once("listening on ").unwrap();
        let client = SpillgateClient::connect(address.to_owned()).await.unwrap();
        Server {
            folder,
            process,
            lines,
            client,
            admin,
        }
    }

    /// Writes the pipeline file and has the server read it. Returns what it says.
    fn reload(&self, text: &str) -> String {
        std::fs::write(self.folder.join("p.yaml"), text).unwrap();
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGHUP).unwrap();
        said(&self.lines, "SIGHUP: pipelines ")
    }

    /// The objective, and the modules of each pipeline.
    async fn describes(&mut self) -> Vec<(String, f64, usize)> {
        let all = self.client.describe(pb::DescribeRequest::default()).await;
        let all = all.unwrap().into_inner().pipelines.into_iter();
        all.map(|p| (p.name, p.slo_ms, p.modules.len())).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The next line that holds this.
fn said(lines: &Receiver<String>, what: &str) -> String {
    let give_up = Instant::now() + PATIENCE;
    let mut before = Vec::new();
    while let Ok(line) = lines.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
        if line.contains(what) {
            return line;
        }
        before.push(line);
    }
    panic!("{what:?} is not said: {before:#?}");
}

fn frame(number: u64) -> pb::StreamRequest {
    let frame = pb::Frame {
        number,
        data: b"x".as_slice().into(),
        ..pb::Frame::default()
    };
    pb::StreamRequest {
        message: Some(Ask::Frame(frame)),
    }
}

/// Frames of a stream, 50 a second, for as long as more are wanted than it has results.
async fn send(
    client: SpillgateClient<Channel>,
    answered: Arc<AtomicU64>,
    wanted: Arc<AtomicU64>,
) -> Vec<pb::Result> {
    send_as("", client, answered, wanted).await
}

/// The same of a stream with this name.
async fn send_as(
    name: &str,
    mut client: SpillgateClient<Channel>,
    answered: Arc<AtomicU64>,
    wanted: Arc<AtomicU64>,
) -> Vec<pb::Result> {
    let (tx, rx) = tokio::sync::mpsc::channel(16);
    let open = pb::StreamOpen {
        pipeline: "p".to_owned(),
        client: name.to_owned(),
        in_order: true,
        ..pb::StreamOpen::default()
    };
    let open = pb::StreamRequest {
        message: Some(Ask::Open(open)),
    };
    tx.send(open).await.unwrap();
    let has_more = {
        let (answered, wanted) = (answered.clone(), wanted);
        move || answered.load(Ordering::Relaxed) < wanted.load(Ordering::Relaxed)
    };
    tokio::spawn(async move {
        for number in 0.. {
            if !has_more() || tx.send(frame(number)).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let replies = client.stream(ReceiverStream::new(rx)).await.unwrap();
    let mut replies = replies.into_inner();
    let mut results = Vec::new();
    while let Some(reply) = replies.next().await {
        if let Some(Reply::Result(result)) = reply.unwrap().message {
            results.push(result);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    results
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_with_the_new_definition_and_loses_no_frame() {
    let mut server = Server::start("stream").await;
    let (answered, wanted) = (Arc::default(), Arc::new(AtomicU64::new(u64::MAX)));
    let sending = send(server.client.clone(), Arc::clone(&answered), wanted.clone());
    let stream = tokio::spawn(sending);
    let give_up = Instant::now() + PATIENCE;
    while answered.load(Ordering::Relaxed) < 20 {
        assert!(Instant::now() < give_up, "no results");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let line = tokio::task::block_in_place(|| server.reload(TWO));
    assert!(
        line.contains("pipelines reloaded: p; requests under way end"),
        "{line}"
    );
    assert_eq!(server.describes().await, [("p".to_owned(), 3000.0, 2)]);
    // Those on their way when it was reloaded, and more.
    wanted.store(answered.load(Ordering::Relaxed) + 80, Ordering::Relaxed);
    let results = stream.await.unwrap();
    let n = results.len();
    assert!(n >= 100, "{n}");
    let numbers: Vec<u64> = results.iter().map(|r| r.number).collect();
    assert_eq!(numbers, (0..n as u64).collect::<Vec<u64>>());
    let not_completed = results
        .iter()
        .filter(|r| r.outcome() != pb::Outcome::Completed);
    assert_eq!(not_completed.collect::<Vec<_>>(), Vec::<&pb::Result>::new());
    let modules: Vec<usize> = results.iter().map(|r| r.timings.len()).collect();
    // Each frame has one definition, the old or the new one.
    assert_eq!((modules[0], modules[n - 1]), (1, 2));
    assert!(modules.is_sorted(), "{modules:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_wrong_changes_nothing_and_says_why() {
    let mut server = Server::start("wrong").await;
    let as_it_was = [("p".to_owned(), 2000.0, 1)];
    let reload = |server: &Server, text: &str| tokio::task::block_in_place(|| server.reload(text));
    let line = reload(&server, &ONE.replace("2s", "soon"));
    assert!(
        line.contains("pipelines not reloaded, what was there stays"),
        "{line}"
    );
    assert!(line.contains("p.yaml:3: slo: "), "{line}");
    assert_eq!(server.describes().await, as_it_was);
    // Its model is away.
    let modelled = "
name: p
slo: 2s
modules:
  detect: { op: detector, model: away.pt, inputs: { image: $source.frame }, device: cpu:0 }
outputs: { vehicles: $detect.vehicles }
";
    let line = reload(&server, modelled);
    assert!(
        line.contains("not reloaded") && line.contains("modules.detect: no model file"),
        "{line}"
    );
    assert_eq!(server.describes().await, as_it_was);
    let line = reload(
        &server,
        &ONE.replace("slo", "limits: { frame_bytes: 1073741824 }\nslo"),
    );
    assert!(
        line.contains("limits.frame_bytes of p is 1073741824"),
        "{line}"
    );
    assert_eq!(server.describes().await, as_it_was);
    let wanted = Arc::new(AtomicU64::new(1));
    let results = send(server.client.clone(), Arc::default(), wanted).await;
    assert!(!results.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_pipeline_that_is_gone_ends() {
    let server = Server::start("gone").await;
    let mut client = server.client.clone();
    let (tx, rx) = tokio::sync::mpsc::channel(16);
    let open = pb::StreamOpen {
        pipeline: "p".to_owned(),
        ..pb::StreamOpen::default()
    };
    let message = Some(Ask::Open(open));
    tx.send(pb::StreamRequest { message }).await.unwrap();
    let replies = client.stream(ReceiverStream::new(rx)).await.unwrap();
    let mut replies = replies.into_inner();
    assert!(replies.next().await.unwrap().is_ok());
    tokio::task::block_in_place(|| server.reload(&ONE.replace("name: p", "name: q")));
    tx.send(frame(0)).await.unwrap();
    let status = replies.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound, "{status}");
    assert!(
        status.message().contains("\"p\"") && status.message().contains('q'),
        "{status}"
    );
}

// Over five seconds: 12 reloads, and the end of what served before.
#[tokio::test(flavor = "multi_thread")]
async fn many_reloads_keep_no_memory_and_no_thread() {
    let server = Server::start_with("many", &["--rollout", "at-once,watch=0s"]).await;
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process.id()));
        tasks.unwrap().count()
    };
    let before = threads();
    for i in 0..12 {
        let text = ONE.replace("2s", &format!("{}ms", 2000 + i));
        tokio::task::block_in_place(|| server.reload(&text));
    }
    let give_up = Instant::now() + PATIENCE;
    // A pool of threads for files may have grown by some.
    while threads() > before + 4 {
        assert!(
            Instant::now() < give_up,
            "{} threads, {before} before",
            threads()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_changed_is_not_started_anew() {
    let server = Server::start("same").await;
    kill(Pid::from_raw(server.process.id() as i32), Signal::SIGHUP).unwrap();
    let line = tokio::task::block_in_place(|| said(&server.lines, "SIGHUP: pipelines "));
    assert!(line.ends_with("nothing has changed"), "{line}");
}

/// Models without profiles are measured for seconds, and a supervisor kills what does not heed SIGTERM.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_reloads_ends_when_it_is_told_to() {
    let mut server = Server::start("ends").await;
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../modules/models");
    for name in ["road.pt", "road.labels"] {
        std::fs::copy(models.join(name), server.folder.join(name)).unwrap();
    }
    let measured = "
name: p
slo: 2s
modules:
  detect: { op: detector, model: road.pt, input: 320, inputs: { image: $source.frame }, device: cpu:0, batch: { max: 64 } }
outputs: { vehicles: $detect.vehicles }
";
    std::fs::write(server.folder.join("p.yaml"), measured).unwrap();
    let pid = Pid::from_raw(server.process.id() as i32);
    kill(pid, Signal::SIGHUP).unwrap();
    tokio::task::block_in_place(|| said(&server.lines, "are measured now"));
    kill(pid, Signal::SIGTERM).unwrap();
    let line = tokio::task::block_in_place(|| said(&server.lines, "SIG"));
    assert!(line.contains("SIGTERM: draining"), "{line}");
    let give_up = Instant::now() + PATIENCE;
    let code = loop {
        if let Some(status) = server.process.try_wait().unwrap() {
            break status.code();
        }
        assert!(Instant::now() < give_up, "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(code, Some(0));
}
