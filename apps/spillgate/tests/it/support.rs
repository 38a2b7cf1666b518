//! A server in the test's own process, with module types that the library does not have: those below, and those of the
//! example.

#[path = "../../../examples/own_module/src/colours.rs"]
pub(crate) mod colours;
#[path = "../../../examples/own_module/src/daylight.rs"]
pub(crate) mod daylight;
#[path = "../../../examples/own_module/src/spots.rs"]
pub(crate) mod spots;

pub(crate) mod archive;
pub(crate) mod chain;
pub(crate) mod machine;
pub(crate) mod submission;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate::admin::open_admin;
use spillgate::deployment::{Deployment, Revision};
use spillgate::process_context::ProcessContext;
use spillgate::renewer::Renewer;
use spillgate::server::{ClientPort, Ended, Server};
use spillgate_backend::operator::{
    BuildContext, Inputs, Library, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_controller::host::PipelineHost;
use spillgate_controller_policy::rollout::RevisionId;
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, ValueType};
use spillgate_pipeline::compile::compile;
use spillgate_pipeline::profile::{ModuleProfile, ProfileSet};
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::{Clock, TestClock};
use spillgate_process::value::Value;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_telemetry::{Telemetry, TelemetryConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::transport::Channel;

use daylight::Daylight;

/// Passes its payload through. `fragile` also fails on "refuse" and panics on "panic", and on "panic late" after
/// longer than a batch takes.
#[derive(Clone)]
struct PassThrough {
    name: &'static str,
    fragile: bool,
    clock: Clock,
}

impl ModuleKind for PassThrough {
    fn module_type(&self) -> ModuleType {
        ModuleType::new(self.name, "passes its payload through", ModelNeed::None)
            .input("payload", ValueType::Bytes, "what comes in")
            .output("payload", ValueType::Bytes, "what goes out")
    }

    fn build(&self, _: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        Ok(Box::new(self.clone()))
    }
}

impl Operator for PassThrough {
    fn run(&mut self, _variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let one = |inputs: &Inputs| match &inputs[0] {
            Some(Value::Bytes(b)) if self.fragile && b == "panic".as_bytes() => panic!("told to"),
            Some(Value::Bytes(b)) if self.fragile && b == "panic late".as_bytes() => {
                let start = self.clock.now();
                self.clock.occupy(start, Duration::from_millis(40));
                panic!("told to")
            }
            Some(Value::Bytes(b)) if self.fragile && b == "refuse".as_bytes() => {
                Err(OperatorError::Other("cannot be computed".to_owned()))
            }
            value => Ok(vec![value.clone().expect("a required input")]),
        };
        batch.iter().map(one).collect()
    }

    fn example(&self, _objects: usize) -> Inputs {
        vec![Some(Value::Bytes("x".into()))]
    }
}

/// Payloads are lengths in ms; a batch takes half of its longest and half of their sum.
#[derive(Clone)]
struct Timed(Clock);

impl ModuleKind for Timed {
    fn module_type(&self) -> ModuleType {
        ModuleType::new("timed", "takes the time that it is sent", ModelNeed::None)
            .input("payload", ValueType::Bytes, "what comes in")
            .output("payload", ValueType::Bytes, "what goes out")
    }

    fn build(&self, _: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        Ok(Box::new(self.clone()))
    }
}

impl Operator for Timed {
    fn run(&mut self, _variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let start = self.0.now();
        let length = |inputs: &Inputs| match &inputs[0] {
            Some(Value::Bytes(b)) => std::str::from_utf8(b).unwrap().parse::<f64>().unwrap(),
            _ => unreachable!("a required input"),
        };
        let lengths = batch.iter().map(length);
        let (longest, sum) = lengths.fold((0.0, 0.0), |(most, sum), l| (l.max(most), sum + l));
        let took = Duration::from_secs_f64((longest + sum) / 2e3);
        self.0.occupy(start, took);
        batch
            .iter()
            .map(|i| Ok(vec![i[0].clone().unwrap()]))
            .collect()
    }

    fn example(&self, _objects: usize) -> Inputs {
        vec![Some(Value::Bytes("1".into()))]
    }
}

/// Connections that a test server takes at a time.
pub(crate) const CONNECTIONS: usize = 64;

/// How long a condition may take that no clock of a test brings: answers on their way through sockets.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked at.
const LOOK: Duration = Duration::from_micros(200);

/// What a test may change of a server before it starts.
pub(crate) struct Setup {
    pub(crate) context: ProcessContext,
    pub(crate) port: ClientPort,
}

/// A server whose clock the test moves. Requests are on their way in no time of that clock: a test sends them, and then moves it.
pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) clock: TestClock,
}

/// A call that a server has, or has answered.
pub(crate) type Call<T> = tokio::task::JoinHandle<T>;

impl TestServer {
    /// Serves these pipelines; each module takes 20 ms a batch. Of a `timed` one the profile says a tenth of what it
    /// takes at 4 ms.
    pub(crate) async fn start(specs: &[&str]) -> Self {
        Self::configured(specs, |_| {}).await
    }

    /// The same, set up otherwise.
    pub(crate) async fn configured(specs: &[&str], change: impl FnOnce(&mut Setup)) -> Self {
        let test = TestClock::default();
        Self::of(specs, test.clock(), test, change).await
    }

    /// The same by the machine's clock: for tests that ask whom it serves, and not when.
    pub(crate) async fn live(specs: &[&str], change: impl FnOnce(&mut Setup)) -> Self {
        let clock = Clock::start();
        let by = clock.clone();
        let change = |config: &mut Setup| {
            config.context.clock = by;
            change(config);
        };
        Self::of(specs, clock, TestClock::default(), change).await
    }

    async fn of(
        specs: &[&str],
        clock: Clock,
        test: TestClock,
        change: impl FnOnce(&mut Setup),
    ) -> Self {
        let mut library = Library::new();
        for (name, fragile) in [("slow", false), ("fragile", true)] {
            let clock = clock.clone();
            library.register(PassThrough {
                name,
                fragile,
                clock,
            });
        }
        library.register(Daylight);
        library.register(Timed(clock));
        let deployments = specs
            .iter()
            .map(|text| {
                let compiled = compile(text, "test.yaml", &library.catalog(), None)
                    .unwrap_or_else(|e| panic!("{e}"));
                let mut profiles = ProfileSet::default();
                for module in &compiled.pipeline.modules[1..] {
                    let [once, each] = match module.op.as_str() {
                        "timed" => [Duration::from_micros(200); 2],
                        _ => [Duration::from_millis(20), Duration::ZERO],
                    };
                    let profile = ModuleProfile::linear(once, each, 8);
                    profiles.insert("emulated", &module.name, "-", profile);
                }
                Deployment {
                    pipeline: Arc::new(compiled.pipeline),
                    base_dir: PathBuf::new(),
                    profiles,
                    families: Default::default(),
                }
            })
            .collect();
        Self::by_clock(test, deployments, library, change).await
    }

    /// Serves what is given.
    pub(crate) async fn over(deployments: Vec<Deployment>, library: Library) -> Self {
        Self::with(deployments, library, |_| {}).await
    }

    /// The same, set up otherwise.
    pub(crate) async fn with(
        deployments: Vec<Deployment>,
        library: Library,
        change: impl FnOnce(&mut Setup),
    ) -> Self {
        Self::by_clock(TestClock::default(), deployments, library, change).await
    }

    /// The same by a clock that module types have, too.
    pub(crate) async fn by_clock(
        clock: TestClock,
        deployments: Vec<Deployment>,
        library: Library,
        change: impl FnOnce(&mut Setup),
    ) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let by = clock.clock();
        let telemetry = Telemetry::new(TelemetryConfig::default(), {
            let by = by.clone();
            move || by.epoch_wall()
        });
        let telemetry = Arc::new(telemetry.unwrap());
        let mut setup = Setup {
            context: ProcessContext {
                drain: PATIENCE,
                ..ProcessContext::new(by, Arc::new(library), telemetry.clone())
            },
            port: ClientPort {
                listen: any,
                connections: CONNECTIONS,
                connections_per_address: CONNECTIONS,
                calls_per_connection: 1024,
                security: Default::default(),
                idle: Duration::from_secs(600),
                connection_age: None,
                seed: 0,
            },
        };
        change(&mut setup);
        let Setup { context, port } = setup;
        let admin = open_admin(Some(any)).await.unwrap();
        // Models that are loaded take their time.
        let revision = Revision {
            id: RevisionId(0),
            deployments,
            roles: Vec::new(),
        };
        let starting = Server::start(context, telemetry, port, admin, revision);
        let starting = tokio::spawn(starting);
        while !starting.is_finished() {
            tokio::time::sleep(100 * LOOK).await;
            if !starting.is_finished() {
                tokio::task::block_in_place(|| clock.step());
            }
        }
        let server = starting.await.unwrap().unwrap();
        TestServer { server, clock }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// What serves other pipelines from then on.
    pub(crate) fn renewer(&self) -> Renewer {
        self.server.renewers()[0].clone()
    }

    /// The hosts of its pipelines.
    pub(crate) fn hosts(&self) -> Vec<Arc<PipelineHost>> {
        self.server.hosts()
    }

    pub(crate) async fn client(&self) -> SpillgateClient<Channel> {
        SpillgateClient::connect(format!("http://{}", self.server.address))
            .await
            .unwrap()
    }

    /// A connection on which nothing is said.
    pub(crate) async fn connect(&self) -> tokio::net::TcpStream {
        tokio::net::TcpStream::connect(self.server.address)
            .await
            .unwrap()
    }

    /// A client that sends `grpc-timeout` but leaves the deadline to the server.
    pub(crate) fn patient_client(
        &self,
    ) -> SpillgateClient<
        hyper_util::client::legacy::Client<
            hyper_util::client::legacy::connect::HttpConnector,
            tonic::body::Body,
        >,
    > {
        let executor = hyper_util::rt::TokioExecutor::new();
        let http = hyper_util::client::legacy::Client::builder(executor)
            .http2_only(true)
            .build_http();
        let origin = format!("http://{}", self.server.address).parse().unwrap();
        SpillgateClient::with_origin(http, origin)
    }

    /// Requests that came to the gateway.
    fn requests(&self) -> u64 {
        let hosts = self.server.hosts();
        let all = hosts.iter().flat_map(|host| host.client_counts());
        all.map(|(_, count)| count.requests).sum()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.server.hosts().iter().map(|h| h.in_flight()).sum()
    }

    /// Waits for a condition while the clock stands still.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        // Mostly it is a matter of microseconds.
        let soon = Instant::now() + 10 * LOOK;
        while !holds(self) {
            let now = Instant::now();
            assert!(now < give_up, "not so after {PATIENCE:?}: {what}");
            match now < soon {
                true => tokio::task::yield_now().await,
                false => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Makes a call of one request, and waits until the server has it, or has answered it.
    pub(crate) async fn send<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Call<T> {
        let before = self.requests();
        let call = tokio::spawn(call);
        let is_there = |s: &Self| s.requests() > before || call.is_finished();
        self.until("the server has the request", is_there).await;
        call
    }

    /// Moves the clock on from one event to the next until a call is answered.
    pub(crate) async fn answer<T>(&self, call: Call<T>) -> T {
        self.until_ready(call).await.unwrap()
    }

    /// The same for something else that comes once the server has done its work.
    pub(crate) async fn until_ready<T>(&self, awaited: impl Future<Output = T>) -> T {
        let mut awaited = std::pin::pin!(awaited);
        let give_up = Instant::now() + PATIENCE;
        loop {
            // An answer that has left the server is on its way.
            if let Ok(ready) = tokio::time::timeout(LOOK, &mut awaited).await {
                return ready;
            }
            assert!(Instant::now() < give_up, "nothing comes");
            if self.in_flight() > 0 {
                self.step();
            }
        }
    }

    /// Sends a request and moves the clock on until it is answered.
    pub(crate) async fn serve<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let call = self.send(call).await;
        self.answer(call).await
    }

    /// Moves the clock on to the next event.
    pub(crate) fn step(&self) {
        tokio::task::block_in_place(|| self.clock.step());
    }

    /// Moves the clock on to that time.
    pub(crate) fn advance_to(&self, at: Timestamp) {
        tokio::task::block_in_place(|| self.clock.advance_to(at));
    }

    /// Moves the clock on.
    pub(crate) fn advance(&self, span: Duration) {
        tokio::task::block_in_place(|| self.clock.advance(span));
    }

    /// What `/readyz` says: `Err` with its reason.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        let (status, body) = self.get("/readyz").await;
        if status == 200 { Ok(()) } else { Err(body) }
    }

    /// Bytes that the server holds for clients.
    pub(crate) async fn held(&self) -> u64 {
        let metrics = self.metrics().await;
        let mut lines = metrics.lines();
        let held = lines.find_map(|line| line.strip_prefix("spillgate_edge_memory_held_bytes "));
        held.unwrap().parse().unwrap()
    }

    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").await.1
    }

    /// Where KEDA would ask.
    pub(crate) async fn scaler(&self) -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.server.serve_scaler(listener);
        address
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let address = self.server.admin_address.unwrap();
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// Stops it, while the clock goes on: what still runs ends.
    pub(crate) async fn stop(self) -> Ended {
        let TestServer { server, clock } = self;
        let stopping = tokio::spawn(server.stop());
        while !stopping.is_finished() {
            tokio::task::block_in_place(|| clock.step());
            tokio::time::sleep(LOOK).await;
        }
        stopping.await.unwrap()
    }
}

/// A pipeline of shipped models on the processor, beside the shipped pipelines; each variant is profiled to take 20 ms.
pub(crate) fn on_cpu(text: &str) -> Deployment {
    let catalog = spillgate_modules::library().catalog();
    let compiled = compile(text, "test.yaml", &catalog, None).unwrap_or_else(|e| panic!("{e}"));
    let mut profiles = ProfileSet::default();
    for module in &compiled.pipeline.modules[1..] {
        for variant in 0..module.variants.len().max(1) {
            let profile = ModuleProfile::linear(Duration::from_millis(20), Duration::ZERO, 8);
            profiles.insert("cpu", &module.name, &module.profile_key(variant), profile);
        }
    }
    Deployment {
        pipeline: Arc::new(compiled.pipeline),
        base_dir: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../pipelines"),
        profiles,
        families: Default::default(),
    }
}

pub(crate) fn frame(number: u64, data: &'static [u8]) -> pb::Frame {
    pb::Frame {
        number,
        data: data.into(),
        ..Default::default()
    }
}

/// Opens a stream: what to send frames to, and what answers come from.
pub(crate) async fn open_stream(
    server: &TestServer,
    open: pb::StreamOpen,
) -> (Sender, tonic::Streaming<pb::StreamResponse>) {
    let (tx, rx) = tokio::sync::mpsc::channel(128);
    let sender = Sender(tx);
    sender
        .send(pb::stream_request::Message::Open(open))
        .await
        .unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(rx);
    let replies = server
        .client()
        .await
        .stream(requests)
        .await
        .unwrap()
        .into_inner();
    (sender, replies)
}

pub(crate) struct Sender(tokio::sync::mpsc::Sender<pb::StreamRequest>);

impl Sender {
    pub(crate) async fn send(
        &self,
        message: pb::stream_request::Message,
    ) -> Result<(), &'static str> {
        let request = pb::StreamRequest {
            message: Some(message),
        };
        self.0
            .send(request)
            .await
            .map_err(|_| "the stream is closed")
    }
}

/// The result in a status's details.
pub(crate) fn result_of(status: &tonic::Status) -> pb::Result {
    use prost::Message;
    #[derive(Clone, PartialEq, prost::Message)]
    struct Any {
        #[prost(string, tag = "1")]
        type_url: String,
        #[prost(bytes = "vec", tag = "2")]
        value: Vec<u8>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct RpcStatus {
        #[prost(message, repeated, tag = "3")]
        details: Vec<Any>,
    }
    let rpc = RpcStatus::decode(status.details()).unwrap();
    pb::Result::decode(rpc.details[0].value.as_slice()).unwrap()
}
