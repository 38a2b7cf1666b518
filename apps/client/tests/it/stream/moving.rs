//! A stream whose server ends it in order goes on at another server, without a lost frame.

use super::{Answer, FakeServer, assert_each_once, by_outcome, stream_to};

/// Three frames wait for their answers when the call ends.
fn ends(number: u64) -> Answer {
    match number {
        17..20 => Answer::Silence,
        20 => Answer::End,
        _ => Answer::Completed,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_did_not_answer_when_it_shut_down_goes_to_another_one() {
    let (first, second) = (
        FakeServer::start(ends).await,
        FakeServer::start(|_| Answer::Completed).await,
    );
    let both = format!("{},{}", first.url, second.url);
    let arguments = ["--frames", "60", "--server", &both];
    let (outcome, lines) = stream_to(&first, "moves", &arguments).await;
    let summary = outcome.unwrap();
    assert_each_once(&lines, 1, 60);
    assert_eq!(summary.served, 60, "{:?}", by_outcome(&lines));
    assert_eq!(second.seen(), 60 - 17, "those without an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_wait_for_their_answers_at_the_end_of_the_source_go_elsewhere_too() {
    let (first, second) = (
        FakeServer::start(ends).await,
        FakeServer::start(|_| Answer::Completed).await,
    );
    let both = format!("{},{}", first.url, second.url);
    let arguments = ["--frames", "21", "--server", &both];
    let (outcome, lines) = stream_to(&first, "last", &arguments).await;
    assert_eq!(outcome.unwrap().served, 21);
    assert_each_once(&lines, 1, 21);
    assert_eq!(second.seen(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_each_stream_without_an_answer_is_given_up() {
    let server = FakeServer::start(|number| match number {
        17 => Answer::End,
        _ => Answer::Completed,
    });
    let server = server.await;
    let (outcome, lines) = stream_to(&server, "vain", &["--frames", "60"]).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("shutting down"), "{error}");
    assert_each_once(&lines, 1, 60);
    let counts = by_outcome(&lines);
    assert_eq!((counts["completed"], counts["failed"]), (17, 60 - 17));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_is_sent_again_once_for_a_server_that_gave_it_up() {
    let server = FakeServer::start(|number| match number {
        17 => Answer::GivenUp,
        _ => Answer::Completed,
    });
    let server = server.await;
    let (outcome, lines) = stream_to(&server, "given-up", &["--frames", "30"]).await;
    assert_eq!(outcome.unwrap().served, 29);
    assert_each_once(&lines, 1, 30);
    assert_eq!((by_outcome(&lines)["dropped"], server.seen()), (1, 31));
}
