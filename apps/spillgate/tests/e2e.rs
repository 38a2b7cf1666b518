//! The product against real foreign programs: Jaeger receives the traces and tells them back, grpcurl and a
//! Python client call the API, and the kernel shapes a link. Run by `cargo xtask e2e`, which builds them and names them in the environment.

#[path = "e2e/cameras.rs"]
mod cameras;
#[path = "e2e/pictures.rs"]
mod pictures;
#[path = "e2e/shaper.rs"]
mod shaper;
#[path = "e2e/videos.rs"]
mod videos;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a program may take to be up: it loads models, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long spans may take from their end to Jaeger's answers.
const TRACE_LIMIT: Duration = Duration::from_secs(30);

fn env(name: &str) -> PathBuf {
    std::env::var_os(name)
        .unwrap_or_else(|| panic!("{name} is not set; run `cargo xtask e2e`"))
        .into()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program that is ended when the test is.
struct Program(Child);

impl Program {
    fn terminate(&self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn get(url: &str) -> Option<Value> {
    let mut response = ureq::get(url).call().ok()?;
    serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()
}

/// A Jaeger of our own: the shipped configuration on free ports.
struct Jaeger {
    _program: Program,
    otlp: String,
    query: String,
}

impl Jaeger {
    fn start(folder: &Path) -> Self {
        let mut config = std::fs::read_to_string(env("SPILLGATE_JAEGER_CONFIG")).unwrap();
        let mut ports = BTreeMap::new();
        for port in ["24317", "24318", "26686", "26685", "23133"] {
            let free = free_port();
            assert!(config.contains(port), "the configuration names port {port}");
            config = config.replace(port, &free.to_string());
            ports.insert(port, free);
        }
        let file = folder.join("jaeger.yaml");
        std::fs::write(&file, config).unwrap();
        let program = Command::new(env("SPILLGATE_JAEGER"))
            .arg("--config")
            .arg(&file)
            // Its own traces would go to a collector that is not there.
            .env("OTEL_TRACES_SAMPLER", "always_off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let query = format!("http://127.0.0.1:{}", ports["26686"]);
        let program = Program(program);
        until("Jaeger is up", START_LIMIT, || {
            get(&format!("{query}/api/services"))
        });
        Jaeger {
            _program: program,
            otlp: format!("http://127.0.0.1:{}", ports["24317"]),
            query,
        }
    }

    /// The spans of a trace once there are as many as expected, by id.
    fn trace(&self, id: &str, n_spans: usize) -> BTreeMap<String, Value> {
        until(
            &format!("trace {id} has {n_spans} spans"),
            TRACE_LIMIT,
            || {
                let trace = get(&format!("{}/api/traces/{id}", self.query))?;
                let spans = trace["data"][0]["spans"].as_array()?.clone();
                (spans.len() >= n_spans).then_some(spans)
            },
        )
        .into_iter()
        .map(|s| (s["spanID"].as_str().unwrap().to_owned(), s))
        .collect()
    }
}

struct Server {
    program: Program,
    address: String,
}

impl Server {
    fn start(folder: &Path, otlp: &str) -> Self {
        let port_file = folder.join("port");
        let program = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .arg("serve")
            .arg(root().join("apps/pipelines/traffic.yaml"))
            .arg(root().join("apps/pipelines/noop2.yaml"))
            .args([
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--otlp",
                otlp,
            ])
            .arg("--port-file")
            .arg(&port_file)
            .spawn()
            .unwrap();
        let program = Program(program);
        let address = until("the server is up", START_LIMIT, || {
            std::fs::read_to_string(&port_file)
                .ok()
                .map(|t| t.trim().to_owned())
        });
        Server { program, address }
    }

    /// Streams the built-in scene and returns the results.
    fn stream(&self, folder: &Path, otlp: &str, args: &[&str]) -> Vec<Value> {
        let results = folder.join("results.jsonl");
        let out = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .args([
                "stream",
                "scene:",
                "--pipeline",
                "traffic",
                "--trace-sample",
                "1",
                "--otlp",
                otlp,
            ])
            .args(["--server", &format!("http://{}", self.address), "--results"])
            .arg(&results)
            .args(args)
            .output()
            .unwrap();
        println!("{}", text(&out));
        let lines = std::fs::read_to_string(&results).unwrap();
        lines
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    }

    fn grpcurl(&self, args: &[&str]) -> String {
        let mut command = Command::new(env("SPILLGATE_GRPCURL"));
        let (flags, call) = args.split_at(args.len() - 1);
        let out = command
            .arg("-plaintext")
            .args(flags)
            .arg(&self.address)
            .args(call)
            .output();
        text(&out.unwrap())
    }
}

fn text(out: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

fn tag<'a>(span: &'a Value, key: &str) -> &'a Value {
    span["tags"]
        .as_array()
        .and_then(|tags| tags.iter().find(|t| t["key"] == key))
        .map_or(&Value::Null, |t| &t["value"])
}

fn references<'a>(span: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = span["references"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(|r| r["refType"] == kind).collect()
}

fn parent<'a>(spans: &'a BTreeMap<String, Value>, span: &Value) -> Option<&'a Value> {
    let parents = references(span, "CHILD_OF");
    spans.get(parents.first()?["spanID"].as_str()?)
}

fn named<'a>(spans: &'a BTreeMap<String, Value>, name: &str) -> Vec<&'a Value> {
    spans
        .values()
        .filter(|s| s["operationName"] == name)
        .collect()
}

/// The whole tree of a frame's trace: the client's frame, the request, a span a module, three parts each,
/// links to batches.
fn check_tree(jaeger: &Jaeger, result: &Value) {
    let id = result["trace_id"]
        .as_str()
        .expect("a sampled frame names its trace");
    let timings = result["timings"].as_array().unwrap();
    let spans = jaeger.trace(id, 2 + 4 * timings.len());
    let request = named(&spans, "request");
    assert_eq!(request.len(), 1, "one trace a frame");
    let frame = named(&spans, "frame");
    assert_eq!(frame.len(), 1, "the trace begins at the client");
    assert_eq!(
        parent(&spans, request[0]).unwrap()["spanID"],
        frame[0]["spanID"]
    );
    assert_eq!(tag(request[0], "spillgate.pipeline"), "traffic");
    assert_eq!(tag(request[0], "spillgate.frame"), &result["frame"]);
    for timing in timings {
        let module = timing["module"].as_str().unwrap();
        let of_module = named(&spans, &format!("module {module}"));
        assert_eq!(of_module.len(), 1, "module {module}");
        let of_module = of_module[0];
        assert_eq!(
            parent(&spans, of_module).unwrap()["spanID"],
            request[0]["spanID"]
        );
        let mut total = 0;
        for part in ["queueing", "batch wait", "execution"] {
            let part_span = named(&spans, part)
                .into_iter()
                .find(|s| parent(&spans, s).is_some_and(|p| p["spanID"] == of_module["spanID"]))
                .unwrap_or_else(|| panic!("{module} has no {part}"));
            total += part_span["duration"].as_i64().unwrap();
            if part == "execution" {
                check_batch(jaeger, part_span, module);
            }
        }
        let whole = of_module["duration"].as_i64().unwrap();
        assert!(
            (whole - total).abs() <= 3,
            "{module}: parts {total} us of {whole} us"
        );
    }
}

/// The execution links to its batch's span, in a trace of its own.
fn check_batch(jaeger: &Jaeger, execution: &Value, module: &str) -> Value {
    let links = references(execution, "FOLLOWS_FROM");
    assert_eq!(links.len(), 1, "{module}: an execution links to its batch");
    let batch_trace = links[0]["traceID"].as_str().unwrap();
    let batch = jaeger.trace(batch_trace, 1);
    let span = &batch[links[0]["spanID"].as_str().unwrap()];
    assert_eq!(span["operationName"], format!("batch {module}"));
    assert!(tag(span, "spillgate.batch_size").as_i64().unwrap() >= 1);
    span.clone()
}

#[test]
fn frames_are_served_traced_and_explained() {
    let folder = std::env::temp_dir().join(format!("spillgate-e2e-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let jaeger = Jaeger::start(&folder);
    let mut server = Server::start(&folder, &jaeger.otlp);

    // Frames that complete.
    let results = server.stream(&folder, &jaeger.otlp, &["--frames", "12", "--fps", "4"]);
    assert_eq!(results.len(), 12, "one result a frame");
    let completed: Vec<&Value> = results
        .iter()
        .filter(|r| r["outcome"] == "completed")
        .collect();
    assert!(
        completed.len() >= 6,
        "most frames of a slow stream complete: {results:?}"
    );
    for result in completed.iter().take(3) {
        check_tree(&jaeger, result);
    }

    // Frames that have no time even alone are refused before they take a place.
    let results = server.stream(
        &folder,
        &jaeger.otlp,
        &["--frames", "3", "--fps", "4", "--timeout", "2ms"],
    );
    // On a busy machine all of it may be over before a frame has come; the reason is exact in `it/policies.rs`.
    let is_known = |r: &Value| r["reason"] == "predicted" || r["reason"] == "expired";
    let is_refused = |r: &Value| r["outcome"] == "refused" && is_known(r);
    assert!(results.iter().all(is_refused), "{results:?}");

    // Frames that would have time alone, but come together: most are dropped, and a trace says where and why.
    let results = server.stream(
        &folder,
        &jaeger.otlp,
        &[
            "--frames",
            "32",
            "--fps",
            "200",
            "--timeout",
            "80ms",
            // A busy machine makes frames slower than they are to come.
            "--preload",
            "4",
        ],
    );
    let dropped: Vec<&Value> = results
        .iter()
        .filter(|r| r["outcome"] == "dropped" && r["reason"] == "predicted")
        .collect();
    assert!(
        !dropped.is_empty(),
        "80 ms are not enough for all of 32 frames: {results:?}"
    );
    let id = dropped[0]["trace_id"].as_str().unwrap();
    let spans = jaeger.trace(id, 3);
    let explanation = spans
        .values()
        .filter(|s| {
            s["operationName"]
                .as_str()
                .is_some_and(|n| n.starts_with("module "))
        })
        .flat_map(|s| s["logs"].as_array().unwrap().clone())
        .find(|log| {
            log["fields"]
                .as_array()
                .unwrap()
                .iter()
                .any(|f| f["value"] == "drop")
        })
        .unwrap_or_else(|| panic!("no drop event in {spans:?}"));
    let field = |key: &str| {
        let fields = explanation["fields"].as_array().unwrap();
        fields
            .iter()
            .find(|f| f["key"] == key)
            .map(|f| f["value"].clone())
            .unwrap_or_default()
    };
    assert_eq!(field("spillgate.drop.reason"), "predicted");
    let message = field("message");
    for part in ["expected to miss its deadline", "execution", "downstream"] {
        assert!(message.as_str().unwrap().contains(part), "{explanation}");
    }
    let downstream = field("spillgate.estimate.downstream_ms");
    assert!(
        downstream.as_f64().is_some_and(|ms| ms > 1.0),
        "the time of later modules was counted: {explanation}"
    );

    // The waterfall of the same trace.
    let waterfall = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args([
            "trace",
            completed[0]["trace_id"].as_str().unwrap(),
            "--jaeger",
            &jaeger.query,
        ])
        .output()
        .unwrap();
    let waterfall = text(&waterfall);
    for name in ["request", "module detect", "execution"] {
        assert!(waterfall.contains(name), "{waterfall}");
    }

    foreign_clients(&server);

    // An orderly end.
    server.program.terminate();
    let status = until("the server has ended", Duration::from_secs(20), || {
        server.program.0.try_wait().unwrap()
    });
    assert!(status.success(), "{status}");
    let _ = std::fs::remove_dir_all(&folder);
}

/// The port that `spillgate up` says it serves clients on.
fn served_port(log: &Path) -> Option<u16> {
    let log = std::fs::read_to_string(log).ok()?;
    let line = log.lines().find(|line| line.contains("clients: "))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[test]
fn a_frame_through_several_processes_has_one_trace_and_links_to_their_batches() {
    let name = format!("spillgate-e2e-processes-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let jaeger = Jaeger::start(&folder);
    let log = folder.join("up.log");
    let program = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .arg("up")
        .arg(root().join("apps/pipelines/noop2.yaml"))
        .args(["--port", "0", "--folder"])
        .arg(folder.join("up"))
        .env("SPILLGATE_OTLP", &jaeger.otlp)
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn();
    let program = Program(program.unwrap());
    let port = until("the processes are up", START_LIMIT, || served_port(&log));
    let server = Server {
        program,
        address: format!("127.0.0.1:{port}"),
    };
    let call = r#"{"pipeline": "noop2", "frame": {"number": 7, "data": "aGVsbG8="}}"#;
    let answer = server.grpcurl(&["-d", call, "spillgate.v1.Spillgate/Infer"]);
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
    let id = answer["result"]["traceId"].as_str().unwrap();
    // The request, two modules with their three parts, and the way from each of them.
    let spans = jaeger.trace(id, 1 + 2 * 4 + 2);
    let request = named(&spans, "request")[0];
    assert_eq!(tag(request, "spillgate.process"), "gateway-0");
    for execution in named(&spans, "execution") {
        let module = parent(&spans, execution).unwrap();
        let process = tag(module, "spillgate.process");
        let name = tag(module, "spillgate.module").as_str().unwrap();
        assert_eq!(process, &format!("{name}-0"));
        let batch = check_batch(&jaeger, execution, name);
        assert_eq!(tag(&batch, "spillgate.process"), process);
    }
    server.program.terminate();
    let _ = std::fs::remove_dir_all(&folder);
}

fn foreign_clients(server: &Server) {
    let services = server.grpcurl(&["list"]);
    for name in ["spillgate.v1.Spillgate", "grpc.health.v1.Health"] {
        assert!(services.contains(name), "{services}");
    }
    let health = server.grpcurl(&["grpc.health.v1.Health/Check"]);
    assert!(health.contains("SERVING"), "{health}");
    let call = r#"{"pipeline": "noop2", "frame": {"number": 7, "data": "aGVsbG8="}}"#;
    let answer = server.grpcurl(&["-d", call, "spillgate.v1.Spillgate/Infer"]);
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert_eq!(answer["result"]["outcome"], "OUTCOME_COMPLETED");
    assert_eq!(answer["result"]["outputs"]["payload"]["data"], "aGVsbG8=");
    let wrong = server.grpcurl(&[
        "-d",
        r#"{"pipeline": "nope"}"#,
        "spillgate.v1.Spillgate/Infer",
    ]);
    assert!(
        wrong.contains("NotFound") && wrong.contains("noop2"),
        "{wrong}"
    );

    let python = Command::new(env("SPILLGATE_PYTHON"))
        .arg(root().join("apps/examples/python/client.py"))
        .args(["--server", &server.address, "--pipeline", "traffic"])
        .output()
        .unwrap();
    assert!(python.status.success(), "{}", text(&python));
}
