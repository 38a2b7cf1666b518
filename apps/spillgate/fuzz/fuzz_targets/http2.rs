//! Whatever a client sends on a connection: nothing panics, the connection ends when the client is gone, no request stays
//! in flight, every byte is given back, and the next client is served. The gateway, the pipeline and its device are the
//! real ones; the input says which frames of HTTP/2 the client writes (`script`).
//!
//! In apps/spillgate, with nightly Rust and cargo-fuzz:
//! `mkdir -p fuzz/corpus/http2; LD_LIBRARY_PATH=../../third_party/libtorch/lib cargo +nightly fuzz run http2 fuzz/corpus/http2 fuzz/seeds`

#![no_main]

mod script;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use spillgate::deployment::Deployment;
use spillgate::embedded::Embedded;
use spillgate::process_context::ProcessContext;
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_controller::api::Api;
use spillgate_controller::edge::{Edge, EdgeLimits};
use spillgate_controller::listener::{Services, serve_stream};
use spillgate_controller::record::{BatchRecord, Observer, RequestRecord, TraceContext};
use spillgate_controller_policy::connection_admission::ConnectionLimits;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::compile::compile;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::invariants::Invariant;
use spillgate_pipeline::profile::ProfileSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use script::{PAYLOAD, Script};

/// How long the server may take to let go of a client that is gone.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a client reads.
const A_MOMENT: Duration = Duration::from_millis(2);
/// Small enough to be reached.
const BUDGET: u64 = 8 << 20;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const PIPELINE: &str = "
name: chain
slo: 1s
source: { payload: bytes }
limits: { in_flight: 8, frame_bytes: 65536 }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated }
outputs: { payload: $a.payload }
";

struct Nobody;

impl Observer for Nobody {
    fn request_ended(&self, _: &Arc<RequestRecord>) {}
    fn request_refused(&self, _: &Arc<Pipeline>, _: &'static str) {}
    fn batch_ended(&self, _: &Arc<Pipeline>, _: &BatchRecord) {}
    fn reran(&self, _: &Arc<Pipeline>, _: ModuleId, _: Duration) {}

    fn breached(&self, _: &Arc<Pipeline>, invariant: Invariant) {
        panic!("{invariant} does not hold");
    }
}

struct World {
    runtime: Runtime,
    embedded: Embedded,
    services: Services,
    /// One that serves everybody, and one that asks for tokens and knows none.
    edges: [Arc<Edge>; 2],
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let library = Arc::new(spillgate_modules::library());
    let compiled = compile(PIPELINE, "fuzz.yaml", &library.catalog(), None)
        .unwrap_or_else(|errors| panic!("{errors}"));
    let deployment = Deployment {
        pipeline: Arc::new(compiled.pipeline),
        base_dir: PathBuf::new(),
        profiles: ProfileSet::default(),
        families: Default::default(),
    };
    let context = ProcessContext::new(Clock::start(), library.clone(), Arc::new(Nobody));
    let embedded = Embedded::start(&context, &[deployment], None).expect("an emulated device starts");
    let untraced = |_: Option<&str>| TraceContext {
        trace_id: 1,
        parent_span_id: 0,
        sampled: false,
    };
    let api = Arc::new(Api::new(vec![embedded.hosts.clone()], Arc::new(untraced)));
    let limits = EdgeLimits {
        admission: ConnectionLimits {
            connections: 4,
            per_address: 4,
            idle: LIMIT,
            silent: LIMIT,
            unread: LIMIT,
            age: None,
        },
        calls_per_connection: 16,
        message_bytes: 1 << 20,
        message: LIMIT,
    };
    let edge = |grants| Edge::new(limits, Account::new(BUDGET), grants, embedded.clock(), 0);
    let edges = [edge(None), edge(Some(Vec::new()))];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    World {
        runtime,
        services: Services::new(api, Routes::default()),
        embedded,
        edges,
    }
});

fuzz_target!(|data: &[u8]| {
    let world = &*WORLD;
    let script = Script::of(data);
    let edge = &world.edges[usize::from(script.needs_token)];
    world.runtime.block_on(async {
        let reads = script.reads.then_some(A_MOMENT);
        visit(world, edge, &script.bytes, reads).await;
        settle(world, edge).await;
        if data.len().is_multiple_of(16) {
            let polite = Script::polite();
            let answer = visit(world, &world.edges[0], &polite.bytes, Some(LIMIT)).await;
            assert!(has_payload(&answer), "the next client is not answered: {answer:?}");
            settle(world, &world.edges[0]).await;
        }
    });
});

/// A client that writes these bytes, reads for that long or until it has its payload, and leaves; returns what it read.
async fn visit(
    world: &World,
    edge: &Arc<Edge>,
    bytes: &[u8],
    reads: Option<Duration>,
) -> Vec<u8> {
    let (client, server) = tokio::io::duplex(16 << 10);
    let (services, edge) = (world.services.clone(), edge.clone());
    let served = tokio::spawn(async move {
        serve_stream(server, PEER, services, &edge, CancellationToken::new()).await;
    });
    let answer = write_and_read(client, bytes, reads).await;
    let ended = tokio::time::timeout(LIMIT, served).await;
    ended
        .expect("the connection of a client that is gone ends")
        .expect("nothing panics");
    answer
}

async fn write_and_read(client: DuplexStream, bytes: &[u8], reads: Option<Duration>) -> Vec<u8> {
    let (mut from, mut to) = tokio::io::split(client);
    let mut answer = Vec::new();
    // A server that does not read, or has closed the connection, ends it.
    let writing = async {
        let _ = tokio::time::timeout(10 * A_MOMENT, to.write_all(bytes)).await;
        tokio::time::sleep(reads.unwrap_or_default()).await;
    };
    if reads.is_none() {
        writing.await;
        return answer;
    }
    let reading = async {
        while !has_payload(&answer) && from.read_buf(&mut answer).await.is_ok_and(|n| n > 0) {}
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
    }
    answer
}

fn has_payload(answer: &[u8]) -> bool {
    answer.windows(PAYLOAD.len()).any(|part| part == PAYLOAD)
}

/// Nothing of the client is left.
async fn settle(world: &World, edge: &Edge) {
    let begun = Instant::now();
    let left = || {
        let in_flight: usize = world.embedded.hosts.iter().map(|h| h.in_flight()).sum();
        let view = edge.view();
        (in_flight, view.connections, view.held)
    };
    while left() != (0, 0, 0) {
        assert!(
            begun.elapsed() < LIMIT,
            "requests in flight, connections, bytes held: {:?}",
            left()
        );
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
}
