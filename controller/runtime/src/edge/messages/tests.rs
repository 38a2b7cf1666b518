use http_body_util::{BodyExt, StreamBody};
use spillgate_backend::account::Account;
use tokio_stream::StreamExt;

use super::*;

fn message(length: usize) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend((0..length).map(|i| i as u8));
    bytes
}

fn body(pieces: Vec<Vec<u8>>) -> impl Body<Data = Bytes, Error = Status> + Unpin {
    let frames = pieces.into_iter().map(|p| Ok(Frame::data(Bytes::from(p))));
    StreamBody::new(tokio_stream::iter(frames))
}

/// A body that brings these pieces and then nothing more.
fn stalled(pieces: Vec<Vec<u8>>) -> impl Body<Data = Bytes, Error = Status> + Unpin {
    let frames = pieces.into_iter().map(|p| Ok(Frame::data(Bytes::from(p))));
    StreamBody::new(tokio_stream::iter(frames).chain(tokio_stream::pending()))
}

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn messages_come_out_whole_however_they_are_cut() {
    let lengths = [0, 1, 3000, 5000, 100_000, 7];
    let all: Vec<u8> = lengths.iter().flat_map(|n| message(*n)).collect();
    for size in [1, 4, 5, 6, 1000, 4096, 5000, 1 << 20] {
        let pieces = all.chunks(size).map(<[u8]>::to_vec).collect();
        let call = Call::of_nobody();
        let mut messages = Messages::new(body(pieces), call.clone(), false, 1 << 20, LIMIT);
        let (mut seen, mut leases) = (Vec::new(), Vec::new());
        while let Some(frame) = messages.frame().await {
            seen.extend_from_slice(&frame.unwrap().into_data().unwrap());
            leases.extend(call.take_message().map(|lease| lease.bytes() as usize));
        }
        assert_eq!(seen, all, "in pieces of {size}");
        assert_eq!(leases, lengths.map(|n| n + HEADER), "in pieces of {size}");
        let holder = call.holder().clone();
        drop((messages, leases, call));
        assert_eq!(holder.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_known_how_long_a_message_took_to_come() {
    // The first message comes in three pieces; with the last one begins the second message; the third comes at once.
    let mut pieces = [message(10), message(10), message(3)];
    let first = pieces[0].split_off(6);
    let mut last = first.clone().split_off(4);
    let middle = first[..4].to_vec();
    last.extend(pieces[1].drain(..7));
    let all = [
        pieces[0].clone(),
        middle,
        last,
        pieces[1].clone(),
        pieces[2].clone(),
    ];
    let frames = tokio_stream::iter(all).then(|piece| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, Status>(Frame::data(Bytes::from(piece)))
    });
    let call = Call::of_nobody();
    let body = StreamBody::new(Box::pin(frames));
    let mut messages = Messages::new(body, call.clone(), false, 1 << 20, LIMIT);
    let mut took = Vec::new();
    while let Some(frame) = messages.frame().await {
        frame.unwrap();
        took.extend(call.take_message().map(|_| call.message_took().as_millis()));
    }
    assert_eq!(took, [200, 100, 0]);
}

#[tokio::test]
async fn nothing_is_passed_on_of_a_message_that_is_only_claimed() {
    let mut claim = vec![0];
    claim.extend(2_000_000_000u32.to_be_bytes());
    claim.extend([7; 100]);
    let call = Call::of_nobody();
    let mut messages = Messages::new(stalled(vec![claim]), call.clone(), false, usize::MAX, LIMIT);
    let next = tokio::time::timeout(Duration::from_millis(20), messages.frame());
    assert!(next.await.is_err(), "it is not whole");
    assert_eq!(
        call.holder().held(),
        105,
        "what came is held, not what is claimed"
    );
    drop(messages);
    assert_eq!(call.holder().held(), 0);
}

#[tokio::test]
async fn a_message_over_the_bound_is_passed_on_at_once_for_its_reader_to_refuse() {
    let call = Call::of_nobody();
    let pieces = vec![message(5000)[..50].to_vec()];
    let mut messages = Messages::new(stalled(pieces), call, false, 4000, LIMIT);
    let first = messages.frame().await.unwrap().unwrap();
    assert_eq!(first.data_ref().unwrap().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_come_to_an_end_ends_the_call() {
    for pieces in [
        vec![],
        vec![vec![0, 0]],
        vec![message(5000)[..4000].to_vec()],
    ] {
        let call = Call::of_nobody();
        let mut messages = Messages::new(stalled(pieces), call, false, 1 << 20, LIMIT);
        let started = tokio::time::Instant::now();
        let error = messages.frame().await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::DeadlineExceeded, "{error}");
        assert_eq!(started.elapsed().as_secs(), LIMIT.as_secs());
    }
    // Between two messages of a stream any time may pass; a unary call is to end after its one.
    for is_unary in [false, true] {
        let call = Call::of_nobody();
        let mut messages =
            Messages::new(stalled(vec![message(10)]), call, is_unary, 1 << 20, LIMIT);
        messages.frame().await.unwrap().unwrap();
        let next = tokio::time::timeout(LIMIT * 10, messages.frame()).await;
        assert_eq!(next.is_ok(), is_unary);
    }
}

#[tokio::test]
async fn a_message_that_the_client_may_not_hold_is_refused_and_gives_back_what_had_come() {
    let account = Account::new(10_000);
    let call = Call::of(account.holder());
    let pieces = message(8000).chunks(1000).map(<[u8]>::to_vec).collect();
    let mut messages = Messages::new(body(pieces), call, false, 1 << 20, LIMIT);
    let error = messages.frame().await.unwrap().unwrap_err();
    assert_eq!(error.code(), tonic::Code::ResourceExhausted);
    assert!(error.message().contains("of 10000 (--memory)"), "{error}");
    assert!(account.held() <= 5000, "nobody holds more than half");
    drop(messages);
    assert_eq!(account.held(), 0);
}

/// The account holds one message for such a call: a second one would have the first one's bytes for nothing.
#[tokio::test]
async fn a_call_of_one_message_takes_no_second_one() {
    let two: Vec<u8> = [message(5000), message(0)].concat();
    for pieces in [vec![two.clone()], vec![message(5000), message(0)]] {
        let call = Call::of_nobody();
        let mut messages = Messages::new(body(pieces), call.clone(), true, 1 << 20, LIMIT);
        let first = messages.frame().await.unwrap().unwrap();
        assert_eq!(first.data_ref().unwrap().len(), 5005);
        let lease = call.take_message().unwrap();
        let error = messages.frame().await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        drop((messages, lease));
        assert_eq!(call.holder().held(), 0);
    }
}

/// What decodes the messages of a stream keeps a buffer of the largest one.
#[tokio::test]
async fn a_stream_holds_its_largest_message_until_it_ends() {
    let account = Account::new(100_000);
    let call = Call::of(account.holder());
    let pieces = vec![message(20_000), message(100)];
    let mut messages = Messages::new(body(pieces), call.clone(), false, 1 << 20, LIMIT);
    while let Some(frame) = messages.frame().await {
        frame.unwrap();
        drop(call.take_message());
    }
    assert_eq!(account.held(), 20_005);
    drop((messages, call));
    assert_eq!(account.held(), 0);
    // One that the client may not hold twice is refused.
    let call = Call::of(account.holder());
    let mut messages = Messages::new(body(vec![message(40_000)]), call, false, 1 << 20, LIMIT);
    let error = messages.frame().await.unwrap().unwrap_err();
    assert_eq!(error.code(), tonic::Code::ResourceExhausted);
}
