//! Commands that call a server which is silent, freezes or means no good. Real processes of the program: each ends, says why, and shows
//! nothing that a terminal would obey.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::pin::Pin;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_server::{Spillgate, SpillgateServer};
use spillgate_proto::pb::stream_response::Message;
use tempfile::TempDir;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// What clears a terminal, takes its title and forges a line.
const OBEYED: &str = "\x1b[2J\x1b]0;title\x07\u{9b}31m\nerror: forged";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A process that is killed with its test.
struct Process(Option<Child>);

impl Process {
    fn start(arguments: &[&str]) -> Self {
        Process(Some(command(arguments).spawn().unwrap()))
    }

    /// Its output; one that does not end fails the test.
    fn ended(&mut self) -> Output {
        let give_up = Instant::now() + PATIENCE;
        let child = self.0.as_mut().unwrap();
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < give_up, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn error_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a server of these tests does.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// It speaks HTTP/2 and answers no call.
    Mute,
    /// All its texts are made for terminals.
    Hostile,
}

struct Server(Manner);

#[tonic::async_trait]
impl Spillgate for Server {
    type StreamStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<pb::StreamResponse, Status>> + Send>>;

    async fn infer(
        &self,
        _: Request<pb::InferRequest>,
    ) -> Result<Response<pb::InferResponse>, Status> {
        let result = Some(refused(0));
        Ok(Response::new(pb::InferResponse { result }))
    }

    async fn stream(
        &self,
        request: Request<Streaming<pb::StreamRequest>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        if self.0 == Manner::Mute {
            std::future::pending::<()>().await;
        }
        let opened = pb::StreamOpened {
            pipeline: format!("p{OBEYED}"),
            slo_ms: 200.0,
            in_flight_max: 64,
            longest_ms: 200.0,
            ..Default::default()
        };
        let (answers, answered) = tokio::sync::mpsc::channel(8);
        let mut requests = request.into_inner();
        tokio::spawn(async move {
            let mut message = Message::Opened(opened);
            loop {
                let message_out = pb::StreamResponse {
                    message: Some(message),
                };
                let sent = answers.send(Ok(message_out)).await;
                let next = requests.message().await;
                let (Ok(()), Ok(Some(request))) = (sent, next) else {
                    let end = Status::internal(format!("broke{OBEYED}"));
                    let _ = answers.send(Err(end)).await;
                    return;
                };
                let number = match request.message {
                    Some(pb::stream_request::Message::Frame(frame)) => frame.number,
                    _ => u64::MAX,
                };
                message = Message::Result(refused(number));
            }
        });
        let answered = tokio_stream::wrappers::ReceiverStream::new(answered);
        Ok(Response::new(Box::pin(answered)))
    }

    async fn describe(
        &self,
        request: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        if self.0 == Manner::Mute {
            std::future::pending::<()>().await;
        }
        if request.get_ref().pipeline == "other" {
            return Err(Status::not_found(format!("no such{OBEYED}")));
        }
        let pipeline = pb::PipelineDescription {
            name: format!("p{OBEYED}"),
            slo_ms: 200.0,
            source: "image".into(),
            ..Default::default()
        };
        let pipelines = vec![pipeline];
        let version = "0".into();
        Ok(Response::new(pb::DescribeResponse { pipelines, version }))
    }
}

fn refused(number: u64) -> pb::Result {
    pb::Result {
        number,
        outcome: pb::Outcome::Refused.into(),
        code: tonic::Code::ResourceExhausted.into(),
        module: format!("m{OBEYED}"),
        reason: format!("r{OBEYED}"),
        detail: format!("d{OBEYED}"),
        timings: vec![pb::ModuleTiming {
            module: format!("t{OBEYED}"),
            batch_size: 1,
            ..Default::default()
        }],
        ..Default::default()
    }
}

async fn serve(manner: Manner) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder()
        .add_service(SpillgateServer::new(Server(manner)).max_decoding_message_size(64 << 20))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    url
}

/// Commands that begin with a call to the server.
fn callers(url: &str) -> [Vec<&str>; 3] {
    [
        vec!["bench", "--rate", "5", "--duration", "1s", "--server", url],
        vec![
            "bench",
            "--stream",
            "--rate",
            "5",
            "--duration",
            "1s",
            "--server",
            url,
        ],
        vec![
            "stream",
            "scene:size=64x64",
            "--frames",
            "3",
            "--server",
            url,
        ],
    ]
}

// Over five seconds: a greeting is waited for as long, by three commands at a time.
#[test]
fn a_server_that_takes_connections_and_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut all = callers(&url).map(|arguments| Process::start(&arguments));
    for process in &mut all {
        let error = error_of(&process.ended());
        let says = "it took the connection and sent no greeting of HTTP/2 within 5s";
        assert!(error.contains(&url) && error.contains(says), "{error}");
    }
}

// Over five seconds: the first answer is waited for during ten, by three commands at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_greets_and_answers_nothing_is_given_up() {
    let url = serve(Manner::Mute).await;
    let ended = tokio::task::spawn_blocking(move || {
        let mut all = callers(&url).map(|arguments| Process::start(&arguments));
        all.each_mut().map(|process| error_of(&process.ended()))
    });
    let calls = ["Describe", "Describe", "the opening of a stream"];
    for (error, call) in ended.await.unwrap().iter().zip(calls) {
        let says = format!("did not answer {call} within 10s");
        assert!(error.contains(&says), "{error}");
    }
}

/// A server of emulated devices in a process of its own, and where it listens.
fn real_server(folder: &TempDir) -> (Process, String) {
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    file("look.pt", "an emulated device runs no model");
    file(
        "p.profile.yaml",
        "emulated: { look: { \"look.pt@64\": { alpha: 4ms, beta: 1ms, max: 4 } } }",
    );
    let pipeline = file(
        "p.yaml",
        "{ name: p, slo: 500ms, modules: { look: { op: classifier, variants: [{ model: look.pt, input: 64 }], inputs: { image: \
         $source.frame }, device: emulated } }, outputs: { look: $look.labels } }",
    );
    let port = folder.path().join("port");
    let ports = ["--listen", "127.0.0.1:0", "--no-admin", "--port-file"];
    let serve = [&["serve", &pipeline], &ports[..], &[port.to_str().unwrap()]].concat();
    let process = Process::start(&serve);
    let give_up = Instant::now() + PATIENCE;
    let address = loop {
        if let Ok(address) = std::fs::read_to_string(&port) {
            break address;
        }
        assert!(Instant::now() < give_up, "the server does not start");
        std::thread::sleep(Duration::from_millis(10));
    };
    (process, address.trim().to_owned())
}

// Over five seconds: two servers start and freeze, and answers are waited for longer than their SLO.
#[test]
fn a_server_that_freezes_is_told_and_each_frame_is_accounted_for() {
    for (frames, says) in [
        (200, "the server has said nothing for 2."),
        (
            20,
            "frames have no answer: the server did not answer in time",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (server, address) = real_server(&folder);
        let n = frames.to_string();
        let source = ["stream", "scene:size=64x64", "--fps", "25", "--frames", &n];
        let to = ["--server", &address, "--results", "-"];
        let mut client = Process::start(&[&source[..], &to[..]].concat());
        let out = client.0.as_mut().unwrap().stdout.take().unwrap();
        let mut lines = BufReader::new(out).lines().map(Result::unwrap);
        let mut results = lines.by_ref().take(14).count();
        let pid = Pid::from_raw(server.0.as_ref().unwrap().id() as i32);
        kill(pid, Signal::SIGSTOP).unwrap();
        results += lines.count();
        let error = error_of(&client.ended());
        assert!(error.contains(says), "{frames}: {error}");
        assert!(error.contains("failed"), "the summary is there: {error}");
        assert_eq!(results, frames);
    }
}

/// Whether a terminal would obey none of it.
fn is_plain(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes).unwrap();
    let forged = text.lines().any(|line| line.starts_with("error: forged"));
    !forged && text.chars().all(|c| c == '\n' || !c.is_control())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_from_a_server_reaches_the_terminal_as_a_command() {
    let url = serve(Manner::Hostile).await;
    let outputs = tokio::task::spawn_blocking(move || {
        let mut all = callers(&url).to_vec();
        all[2].push("--verbose");
        all.push(vec![
            "bench",
            "--rate",
            "1",
            "--pipeline",
            "other",
            "--server",
            &url,
        ]);
        let outputs = all
            .iter()
            .map(|arguments| Process::start(arguments).ended());
        outputs.collect::<Vec<_>>()
    });
    for output in outputs.await.unwrap() {
        let shown = [&output.stdout[..], &output.stderr[..]].concat();
        assert!(shown.len() > 20, "it shows what it was told: {output:?}");
        assert!(is_plain(&output.stdout), "{output:?}");
        assert!(is_plain(&output.stderr), "{output:?}");
    }
}

#[test]
fn nothing_from_an_admin_port_reaches_the_terminal_as_a_command() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for head in ["503 Service Unavailable", "500 Odd"] {
        let mut client = Process::start(&["status", "--admin", &address]);
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0);
        let n = OBEYED.len();
        let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {n}\r\n\r\n{OBEYED}");
        stream.write_all(answer.as_bytes()).unwrap();
        let output = client.ended();
        let error = error_of(&output);
        assert!(
            error.contains("title") && is_plain(&output.stderr),
            "{error:?}"
        );
    }
}
