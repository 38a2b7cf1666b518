//! Several pipelines on one port.

use std::time::Duration;

use spillgate_proto::link as pb;
use spillgate_proto::link::link_client::LinkClient;
use spillgate_protocol::session::Timing;
use tokio::time::Instant;

use super::process::{DEVICE, GATEWAY, PATIENCE, Process, any};
use super::{greeting, join};

/// Waits until a process complains of a peer in these words.
async fn complains(process: &Process, what: &str) {
    let give_up = Instant::now() + PATIENCE;
    let has = || {
        process
            .complaints
            .all()
            .iter()
            .any(|(_, why)| why.contains(what))
    };
    while !has() {
        let all = process.complaints.all();
        assert!(Instant::now() < give_up, "{what:?} is not in {all:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_hands_each_peer_to_the_links_of_its_pipeline() {
    let [one, two] = [("one", 2), ("two", 3)].map(|(of, life)| Process::serving(DEVICE, life, of));
    one.port.add(two.links.clone());
    let at = one.listens(any()).await;
    let [to_one, to_two] =
        [("one", 11), ("two", 12)].map(|(of, life)| Process::serving(GATEWAY, life, of));
    to_one.dials(at);
    to_two.dials(at);
    to_one.heard.waits_for("met 2").await;
    to_two.heard.waits_for("met 3").await;
    one.heard.waits_for("met 11").await;
    two.heard.waits_for("met 12").await;
    // The end of one pipeline's links leaves the others alone.
    one.port.remove(&one.links);
    one.links.end().await;
    to_one.heard.waits_for("parted 2").await;
    complains(&to_one, "serves pipeline \"one\"; this process serves two").await;
    assert_eq!(two.heard.news.lock().join(", "), "met 12");
    assert!(to_two.links.reaches(DEVICE));
    // It may come back.
    let again = Process::serving(DEVICE, 4, "one");
    one.port.add(again.links.clone());
    to_one.heard.waits_for("met 4").await;
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_that_is_not_served_is_refused_by_name_on_both_sides() {
    let [one, two] = [("one", 2), ("two", 3)].map(|(of, life)| Process::serving(DEVICE, life, of));
    one.port.add(two.links.clone());
    let at = one.listens(any()).await;
    let other = Process::serving(GATEWAY, 11, "three");
    other.dials(at);
    let why = "front serves pipeline \"three\"; this process serves one, two; give both the same pipeline files";
    complains(&one, why).await;
    complains(&other, &format!("the peer refuses this process: {why}")).await;
    let heard = [&one, &two, &other].map(|of| of.heard.is_empty());
    assert_eq!(heard, [true; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_greeting_ends_after_a_while() {
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    let mut client = LinkClient::connect(format!("http://{at}")).await.unwrap();
    let (say, mut answers) = join(&mut client).await.unwrap();
    let began = Instant::now();
    assert!(
        !matches!(answers.message().await, Ok(Some(_))),
        "it says nothing"
    );
    assert!(began.elapsed() >= Timing::default().death());
    let packets = vec![greeting()];
    let _ = say.send(pb::Packets { packets });
    complains(&device, "the peer did not greet within").await;
    assert!(device.heard.is_empty());
}
