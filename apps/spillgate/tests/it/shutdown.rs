//! The end of a server or of a connection, as clients see it.

use std::sync::Arc;
use std::time::Duration;

use spillgate::deployment::{Deployment, Revision};
use spillgate_controller_policy::connection_admission::AGE_GRACE;
use spillgate_controller_policy::rollout::RevisionId;
use spillgate_pipeline::profile::{ModuleProfile, ProfileSet};
use spillgate_process::clock::Clock;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Said;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{Setup, TestServer, chain, frame, open_stream};

const ONE: &str = "
name: one
slo: 10s
source: { payload: bytes }
modules:
  a: { op: slow, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $a.payload }
";
const FRAMES: u64 = 5;
/// How long threads may take to end on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// How often something is looked at.
const LOOK: Duration = Duration::from_millis(20);

async fn next(replies: &mut tonic::Streaming<pb::StreamResponse>) -> Result<Said, tonic::Status> {
    let reply = replies.next().await.expect("the stream goes on")?;
    Ok(reply.message.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_a_sentence_once_what_they_took_is_answered() {
    for in_order in [false, true] {
        let server = TestServer::start(&[ONE]).await;
        let open = pb::StreamOpen {
            in_order,
            ..Default::default()
        };
        let (sender, mut replies) = open_stream(&server, open).await;
        assert!(matches!(next(&mut replies).await, Ok(Said::Opened(_))));
        for number in 0..FRAMES {
            sender.send(Ask::Frame(frame(number, b"x"))).await.unwrap();
        }
        let all = |s: &TestServer| s.in_flight() == FRAMES as usize;
        server.until("the server has all", all).await;
        let stopping = tokio::spawn(server.stop());
        let mut answered = Vec::new();
        let status = loop {
            match next(&mut replies).await {
                Ok(Said::Result(result)) => {
                    assert_eq!(result.outcome(), pb::Outcome::Completed);
                    answered.push(result.number);
                }
                Ok(other) => panic!("{other:?}"),
                Err(status) => break status,
            }
        };
        answered.sort_unstable();
        assert!(answered.into_iter().eq(0..FRAMES));
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        let says = "the server is shutting down: open the stream again at another one";
        assert!(status.message().starts_with(says), "{status:?}");
        assert_eq!(stopping.await.unwrap().aborted, 0);
    }
}

/// A process ends where one of its devices has died. A revision that gives way ends its devices.
#[test]
fn devices_that_are_stopped_have_not_died() {
    let embedded = chain::start("spillgate", &Clock::start(), Arc::default());
    assert_eq!(embedded.dead(), None);
    assert!(embedded.stop(LIMIT).is_empty());
    assert!(embedded.device_handles().iter().all(|d| !d.is_alive()));
    assert_eq!(embedded.dead(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_watches_the_health_hears_of_the_end_and_then_its_stream_ends() {
    let server = TestServer::start(&[ONE]).await;
    let channel = Channel::from_shared(server.url()).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    let watched = client.watch(HealthCheckRequest::default()).await;
    let mut watched = watched.unwrap().into_inner();
    let serving = watched.next().await.unwrap().unwrap();
    assert_eq!(serving.status, 1);
    let stopping = tokio::spawn(server.stop());
    let mut last = serving.status;
    let status = loop {
        match watched.next().await.expect("a status") {
            Ok(health) => last = health.status,
            Err(status) => break status,
        }
    };
    assert_eq!((last, status.code()), (2, Code::Unavailable), "{status:?}");
    stopping.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_its_age_takes_no_new_calls_and_then_its_streams_end() {
    let age = Duration::from_secs(300);
    let configured = TestServer::configured(&[ONE], |setup| {
        setup.port.connection_age = Some(age);
        // Nothing else ends a connection.
        setup.port.idle = 1000 * age;
    });
    let server = configured.await;
    let stream = || open_stream(&server, pb::StreamOpen::default());
    let (sender, mut replies) = stream().await;
    assert!(matches!(next(&mut replies).await, Ok(Said::Opened(_))));
    // Streams of its connection go on for a while.
    server.advance(age + age / 5);
    sender.send(Ask::Frame(frame(0, b"x"))).await.unwrap();
    let answered = server.until_ready(next(&mut replies)).await;
    assert!(matches!(answered, Ok(Said::Result(_))), "{answered:?}");
    sender.send(Ask::Frame(frame(1, b"x"))).await.unwrap();
    let is_there = |s: &TestServer| s.in_flight() == 1;
    server.until("the server has it", is_there).await;
    // Ages are looked at every second of real time, by the server's clock.
    let mut answers = 0;
    let status = loop {
        match tokio::time::timeout(LOOK, next(&mut replies)).await {
            Ok(Ok(_)) => answers += 1,
            Ok(Err(status)) => break status,
            Err(_) => server.advance(AGE_GRACE),
        }
    };
    assert_eq!(
        (answers, status.code()),
        (1, Code::Unavailable),
        "{status:?}"
    );
    let says = "the connection has its age (--connection-age)";
    assert!(status.message().starts_with(says), "{status:?}");
    // New connections are young.
    let (_sender, mut replies) = stream().await;
    assert!(matches!(next(&mut replies).await, Ok(Said::Opened(_))));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_what_was_served_before_a_reload() {
    let without_a_watch = |setup: &mut Setup| setup.context.rollout.watch = Duration::ZERO;
    let server = TestServer::live(&[ONE], without_a_watch).await;
    let before = Arc::downgrade(&server.hosts()[0]);
    let mut pipeline = (**server.hosts()[0].pipeline()).clone();
    pipeline.slo += Duration::from_millis(1);
    let mut profiles = ProfileSet::default();
    let profile = ModuleProfile::linear(Duration::from_millis(20), Duration::ZERO, 8);
    profiles.insert("emulated", "a", "-", profile);
    let deployment = Deployment {
        pipeline: Arc::new(pipeline),
        base_dir: Default::default(),
        profiles,
        families: Default::default(),
    };
    let revision = Revision {
        id: RevisionId(1),
        deployments: vec![deployment],
        roles: Vec::new(),
    };
    let renewer = server.renewer();
    let renewed = tokio::task::spawn_blocking(move || renewer.renew(revision));
    renewed.await.unwrap().unwrap();
    let is_freed = |_: &TestServer| before.strong_count() == 0;
    server.until("the pipeline's host is freed", is_freed).await;
}
