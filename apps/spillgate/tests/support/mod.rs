//! A server in the test's own process, with module types that the library does not have: those below, and that of the
//! example.

#[path = "../../../examples/own_module/daylight.rs"]
pub(crate) mod daylight;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate::cores::Cores;
use spillgate::embedded::Deployment;
use spillgate::server::{Ended, Server, ServerConfig};
use spillgate_backend::emulated;
use spillgate_backend::operator::{
    BuildContext, Inputs, Library, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_backend::value::Value;
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, ValueType};
use spillgate_pipeline::compile::compile;
use spillgate_pipeline::profile::{ModuleProfile, ProfileSet};
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_telemetry::TelemetryConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::transport::Channel;

use daylight::Daylight;

/// Passes its payload through. `fragile` also fails on "refuse" and panics on "panic", and on "panic late" after
/// longer than a batch takes.
struct PassThrough {
    name: &'static str,
    fragile: bool,
}

impl ModuleKind for PassThrough {
    fn module_type(&self) -> ModuleType {
        ModuleType::new(self.name, "passes its payload through", ModelNeed::None)
            .input("payload", ValueType::Bytes, "what comes in")
            .output("payload", ValueType::Bytes, "what goes out")
    }

    fn build(&self, _: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        Ok(Box::new(PassThrough { ..*self }))
    }
}

impl Operator for PassThrough {
    fn run(&mut self, _variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let one = |inputs: &Inputs| match &inputs[0] {
            Some(Value::Bytes(b)) if self.fragile && b == "panic".as_bytes() => panic!("told to"),
            Some(Value::Bytes(b)) if self.fragile && b == "panic late".as_bytes() => {
                std::thread::sleep(Duration::from_millis(40));
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
struct Timed;

impl ModuleKind for Timed {
    fn module_type(&self) -> ModuleType {
        ModuleType::new("timed", "takes the time that it is sent", ModelNeed::None)
            .input("payload", ValueType::Bytes, "what comes in")
            .output("payload", ValueType::Bytes, "what goes out")
    }

    fn build(&self, _: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        Ok(Box::new(Timed))
    }
}

impl Operator for Timed {
    fn run(&mut self, _variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let start = Instant::now();
        let length = |inputs: &Inputs| match &inputs[0] {
            Some(Value::Bytes(b)) => std::str::from_utf8(b).unwrap().parse::<f64>().unwrap(),
            _ => unreachable!("a required input"),
        };
        let lengths = batch.iter().map(length);
        let (longest, sum) = lengths.fold((0.0, 0.0), |(most, sum), l| (l.max(most), sum + l));
        emulated::occupy(start, Duration::from_secs_f64((longest + sum) / 2e3));
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

pub(crate) struct TestServer {
    pub(crate) server: Server,
}

impl TestServer {
    /// Serves these pipelines; each module takes 20 ms a batch. Of a `timed` one the profile says a tenth of what it
    /// takes at 4 ms.
    pub(crate) async fn start(specs: &[&str]) -> Self {
        Self::configured(specs, |_| {}).await
    }

    /// The same, set up otherwise.
    pub(crate) async fn configured(specs: &[&str], change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut library = Library::new();
        library.register(PassThrough {
            name: "slow",
            fragile: false,
        });
        library.register(PassThrough {
            name: "fragile",
            fragile: true,
        });
        library.register(Daylight);
        library.register(Timed);
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
        Self::with(deployments, library, change).await
    }

    /// Serves what is given.
    pub(crate) async fn over(deployments: Vec<Deployment>, library: Library) -> Self {
        Self::with(deployments, library, |_| {}).await
    }

    /// The same, set up otherwise.
    pub(crate) async fn with(
        deployments: Vec<Deployment>,
        library: Library,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut config = ServerConfig {
            listen: any,
            admin: Some(any),
            connections: CONNECTIONS,
            connections_per_address: CONNECTIONS,
            calls_per_connection: 256,
            memory: 256 << 20,
            security: Default::default(),
            idle: Duration::from_secs(600),
            decoders: 1,
            drain: Duration::from_secs(3),
            telemetry: TelemetryConfig::default(),
            placing: None,
            cores: Cores::default(),
            part: None,
            link_listen: None,
        };
        change(&mut config);
        let server = Server::start(config, deployments, Arc::new(library))
            .await
            .unwrap();
        TestServer { server }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address)
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

    pub(crate) fn in_flight(&self) -> usize {
        self.server.hosts().iter().map(|h| h.in_flight()).sum()
    }

    /// Waits for a condition, at most two seconds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let give_up = Instant::now() + Duration::from_secs(2);
        while !holds(self) {
            assert!(Instant::now() < give_up, "not so after 2 s: {what}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until the health service says NOT_SERVING.
    pub(crate) async fn until_not_serving(&self) {
        let channel = Channel::from_shared(format!("http://{}", self.server.address))
            .unwrap()
            .connect()
            .await
            .unwrap();
        let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
        let give_up = Instant::now() + Duration::from_secs(2);
        loop {
            let request = tonic_health::pb::HealthCheckRequest {
                service: String::new(),
            };
            let answer = health.check(request).await.unwrap().into_inner();
            if answer.status
                == tonic_health::pb::health_check_response::ServingStatus::NotServing as i32
            {
                return;
            }
            assert!(Instant::now() < give_up, "still {:?}", answer.status);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What `/readyz` says: `Err` with its reason.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        let (status, body) = self.get("/readyz").await;
        if status == 200 { Ok(()) } else { Err(body) }
    }

    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").await.1
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

    pub(crate) async fn stop(self) -> Ended {
        self.server.stop().await
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
