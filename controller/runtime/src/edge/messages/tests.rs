use http_body_util::{BodyExt, StreamBody};
use prost::Message;
use spillgate_process::account::Account;
use spillgate_proto::pb;
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

/// Messages of any kind, not packed.
fn taking(is_unary: bool, bytes_max: usize) -> Taking {
    Taking {
        bytes_max,
        limit: LIMIT,
        is_unary,
        has_frames: false,
        hands_over: false,
        is_packed: false,
    }
}

#[tokio::test]
async fn messages_come_out_whole_however_they_are_cut() {
    let lengths = [0, 1, 3000, 5000, 100_000, 7];
    let all: Vec<u8> = lengths.iter().flat_map(|n| message(*n)).collect();
    for size in [1, 4, 5, 6, 1000, 4096, 5000, 1 << 20] {
        let pieces = all.chunks(size).map(<[u8]>::to_vec).collect();
        let call = Call::of_nobody();
        let mut messages = Messages::new(body(pieces), call.clone(), taking(false, 1 << 20));
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
    let mut messages = Messages::new(body, call.clone(), taking(false, 1 << 20));
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
    let mut messages = Messages::new(
        stalled(vec![claim]),
        call.clone(),
        taking(false, usize::MAX),
    );
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
    let mut messages = Messages::new(stalled(pieces), call, taking(false, 4000));
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
        let mut messages = Messages::new(stalled(pieces), call, taking(false, 1 << 20));
        let started = tokio::time::Instant::now();
        let error = messages.frame().await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::DeadlineExceeded, "{error}");
        assert_eq!(started.elapsed().as_secs(), LIMIT.as_secs());
    }
    // Between two messages of a stream any time may pass; a unary call is to end after its one.
    for is_unary in [false, true] {
        let call = Call::of_nobody();
        let mut messages =
            Messages::new(stalled(vec![message(10)]), call, taking(is_unary, 1 << 20));
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
    let mut messages = Messages::new(body(pieces), call, taking(false, 1 << 20));
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
        let mut messages = Messages::new(body(pieces), call.clone(), taking(true, 1 << 20));
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
    let mut messages = Messages::new(body(pieces), call.clone(), taking(false, 1 << 20));
    while let Some(frame) = messages.frame().await {
        frame.unwrap();
        drop(call.take_message());
    }
    assert_eq!(account.held(), 20_005);
    drop((messages, call));
    assert_eq!(account.held(), 0);
    // One that the client may not hold twice is refused.
    let call = Call::of(account.holder());
    let mut messages = Messages::new(body(vec![message(40_000)]), call, taking(false, 1 << 20));
    let error = messages.frame().await.unwrap().unwrap_err();
    assert_eq!(error.code(), tonic::Code::ResourceExhausted);
}

/// A call's message with a frame of so many bytes.
fn with_frame(number: u64, bytes: usize) -> pb::InferRequest {
    pb::InferRequest {
        pipeline: "p".to_owned(),
        frame: Some(pb::Frame {
            number,
            data: vec![number as u8; bytes].into(),
            ..Default::default()
        }),
    }
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flag];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    bytes
}

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut encoder, message).unwrap();
    encoder.finish().unwrap()
}

/// What the reader of a call gets: each message, and how many bytes of its frame were left out.
async fn read(
    pieces: Vec<Vec<u8>>,
    bytes_max: usize,
    call: &Arc<Call>,
) -> Result<Vec<(pb::InferRequest, Option<usize>)>, Status> {
    let mut messages = Messages::new(
        body(pieces),
        call.clone(),
        Taking {
            has_frames: true,
            is_packed: true,
            ..taking(false, bytes_max)
        },
    );
    let (mut seen, mut bytes) = (Vec::new(), BytesMut::new());
    while let Some(frame) = messages.frame().await {
        bytes.extend_from_slice(&frame?.into_data().unwrap());
        if length_of(&bytes).is_some_and(|n| bytes.len() == HEADER + n) {
            let message = pb::InferRequest::decode(&bytes.split()[HEADER..]).unwrap();
            let left_out = match call.left_out() {
                Some(LeftOut::TooLong { bytes }) => Some(bytes),
                _ => None,
            };
            seen.push((message, left_out));
            drop(call.take_message());
        }
    }
    Ok(seen)
}

#[tokio::test]
async fn a_frame_over_the_limit_comes_without_its_data_and_those_around_it_as_they_are() {
    const MAX: usize = 70_000;
    let requests = [
        with_frame(1, 100),
        with_frame(2, 500_000),
        with_frame(3, 60_000),
        with_frame(4, 70_000),
        with_frame(5, 0),
    ];
    let expected = [
        (1, None),
        (2, Some(500_000)),
        (3, None),
        (4, Some(70_000)),
        (5, None),
    ];
    for is_packed in [false, true] {
        let message = |request: &pb::InferRequest| match is_packed {
            true => framed(1, &gzip(&request.encode_to_vec())),
            false => framed(0, &request.encode_to_vec()),
        };
        let all: Vec<u8> = requests.iter().flat_map(message).collect();
        for size in [1, 6, 4096, 30_000, 1 << 20] {
            let pieces = all.chunks(size).map(<[u8]>::to_vec).collect();
            let call = Call::of(Account::new(1 << 30).holder());
            let seen = read(pieces, MAX, &call).await.unwrap();
            for ((request, left_out), whole) in seen.iter().zip(&requests) {
                let data = &request.frame.as_ref().unwrap().data;
                match left_out {
                    Some(_) => assert!(data.is_empty()),
                    None => assert_eq!(request, whole, "in pieces of {size}"),
                }
            }
            let seen = seen
                .iter()
                .map(|(r, left_out)| (r.frame.as_ref().unwrap().number, *left_out));
            assert_eq!(
                seen.collect::<Vec<_>>(),
                expected,
                "packed: {is_packed}, in pieces of {size}"
            );
        }
    }
}

#[tokio::test]
async fn a_message_whose_packed_bytes_are_over_the_limit_is_known_by_its_number() {
    // What is random cannot be packed.
    let mut x = 1u32;
    let random = std::iter::repeat_with(|| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    });
    let mut request = with_frame(7, 0);
    request.frame.as_mut().unwrap().data = random.take(300_000).collect();
    let packed = gzip(&request.encode_to_vec());
    assert!(packed.len() > 250_000);
    let mut all = framed(1, &packed);
    all.extend(framed(1, &gzip(&with_frame(8, 10).encode_to_vec())));
    for size in [1000, 1 << 20] {
        let call = Call::of_nobody();
        let pieces = all.chunks(size).map(<[u8]>::to_vec).collect();
        let seen = read(pieces, 100_000, &call).await.unwrap();
        let seen = seen
            .iter()
            .map(|(r, left_out)| (r.frame.as_ref().unwrap().number, *left_out));
        assert_eq!(seen.collect::<Vec<_>>(), [(7, Some(300_000)), (8, None)]);
    }
}

#[tokio::test]
async fn what_is_unpacked_is_on_the_account_and_what_is_left_out_is_not() {
    // A thousand times as much as it was.
    let bomb = framed(1, &gzip(&with_frame(1, 8 << 20).encode_to_vec()));
    assert!(bomb.len() < 10_000, "{}", bomb.len());
    let call = Call::of(Account::new(1 << 20).holder());
    let error = read(vec![bomb.clone()], 16 << 20, &call).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::ResourceExhausted, "{error}");
    // Where its content is over the limit for messages, that is all of it that is there at a time.
    let account = Account::new(64 << 20);
    let call = Call::of(account.holder());
    let seen = read(vec![bomb], 1 << 20, &call).await.unwrap();
    assert_eq!(seen[0].1, Some(8 << 20));
    let most = account.most_since();
    assert!(most < 4 << 20, "{most}");
    // Plain bytes are not kept at all.
    let account = Account::new(1 << 20);
    let call = Call::of(account.holder());
    let plain = framed(0, &with_frame(1, 8 << 20).encode_to_vec());
    let pieces = plain.chunks(30_000).map(<[u8]>::to_vec).collect();
    let seen = read(pieces, 100_000, &call).await.unwrap();
    assert_eq!(seen[0].1, Some(8 << 20));
    drop(seen);
    assert_eq!(account.held(), call.holder().held());
    let most = account.most_since();
    assert!(most < 200_000, "{most}");
}

#[tokio::test]
async fn what_is_not_gzip_or_carries_no_frame_ends_the_call_and_says_why() {
    let call = Call::of_nobody();
    let wrong = read(vec![framed(1, b"no gzip")], 1000, &call)
        .await
        .unwrap_err();
    assert_eq!(wrong.code(), tonic::Code::InvalidArgument, "{wrong}");
    let whole = gzip(&with_frame(1, 100).encode_to_vec());
    let cut = framed(1, &whole[..whole.len() - 9]);
    let wrong = read(vec![cut], 1000, &call).await.unwrap_err();
    assert_eq!(wrong.code(), tonic::Code::InvalidArgument, "{wrong}");
    let no_frame = pb::InferRequest {
        pipeline: "x".repeat(5000),
        frame: None,
    };
    let wrong = read(vec![framed(0, &no_frame.encode_to_vec())], 1000, &call).await;
    let wrong = wrong.unwrap_err();
    assert_eq!(wrong.code(), tonic::Code::ResourceExhausted, "{wrong}");
    assert!(wrong.message().contains("limits.frame_bytes"), "{wrong}");
}

fn stream_of(number: u64, bytes: usize) -> pb::StreamRequest {
    let frame = with_frame(number, bytes).frame.unwrap();
    pb::StreamRequest {
        message: Some(pb::stream_request::Message::Frame(frame)),
    }
}

/// What the reader of a stream gets: the number of each frame, with its bytes, or why they were left out.
async fn streamed(
    pieces: Vec<Vec<u8>>,
    bytes_max: usize,
    call: &Arc<Call>,
) -> Vec<(u64, Result<usize, LeftOut>)> {
    let mut messages = Messages::new(
        body(pieces),
        call.clone(),
        Taking {
            has_frames: true,
            is_packed: true,
            hands_over: true,
            ..taking(false, bytes_max)
        },
    );
    let mut seen = Vec::new();
    while let Some(frame) = messages.frame().await {
        let in_band = frame.unwrap().into_data().unwrap();
        let handed = call.take_handed();
        let is_handed = handed.is_some();
        let content = handed.unwrap_or_else(|| in_band.slice(HEADER..));
        let request = pb::StreamRequest::decode(content).unwrap();
        let Some(pb::stream_request::Message::Frame(frame)) = request.message else {
            panic!("no frame");
        };
        let lease = call.take_message();
        seen.push((
            frame.number,
            match call.left_out() {
                Some(why) => {
                    assert!(!is_handed && lease.is_none() && frame.data.is_empty());
                    Err(why)
                }
                None => {
                    assert!(is_handed && in_band == EMPTY && lease.is_some());
                    assert!(frame.data.iter().all(|b| *b == frame.number as u8));
                    Ok(frame.data.len())
                }
            },
        ));
    }
    seen
}

#[tokio::test]
async fn messages_of_a_stream_are_handed_over_whole_however_they_are_cut() {
    let sizes = [0, 1, 3000, 5000, 30, 100_000, 7, 30_000];
    let all: Vec<u8> = (1..)
        .zip(sizes)
        .flat_map(|(n, bytes)| {
            let message = stream_of(n, bytes).encode_to_vec();
            match n % 3 {
                0 => framed(1, &gzip(&message)),
                _ => framed(0, &message),
            }
        })
        .collect();
    for size in [1, 4, 5, 6, 1000, 4096, 5000, 1 << 20] {
        let pieces = all.chunks(size).map(<[u8]>::to_vec).collect();
        let call = Call::of_nobody();
        let seen = streamed(pieces, 40_000, &call).await;
        let expected = (1..).zip(sizes).map(|(n, bytes)| match bytes > 40_000 {
            true => (n, Err(LeftOut::TooLong { bytes })),
            false => (n, Ok(bytes)),
        });
        assert_eq!(seen, expected.collect::<Vec<_>>(), "in pieces of {size}");
        assert_eq!(call.holder().held(), 0);
    }
}

#[tokio::test]
async fn a_frame_that_its_client_may_not_hold_is_left_out_and_the_next_one_comes() {
    let account = Account::new(10_000);
    let sizes = [8000, 100, 6000, 3000];
    let frames = (1..).zip(sizes);
    let frames = frames.flat_map(|(n, bytes)| framed(0, &stream_of(n, bytes).encode_to_vec()));
    let all: Vec<u8> = frames.collect();
    for size in [1, 5, 100, 1000] {
        let pieces = all.chunks(size).map(<[u8]>::to_vec).collect();
        let call = Call::of(account.holder());
        let seen = streamed(pieces, 1 << 20, &call).await;
        let taken: Vec<(u64, Option<usize>)> = seen.iter().map(|(n, r)| (*n, r.ok())).collect();
        let expected = [(1, None), (2, Some(100)), (3, None), (4, Some(3000))];
        assert_eq!(taken, expected, "in pieces of {size}");
        assert!(matches!(seen[0].1, Err(LeftOut::Memory(full)) if full.budget == 10_000));
        assert_eq!(account.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_left_out_may_take_no_longer_than_another() {
    let all = framed(0, &stream_of(1, 5000).encode_to_vec());
    let pieces = vec![all[..4000].to_vec()];
    let mut messages = Messages::new(
        stalled(pieces),
        Call::of_nobody(),
        Taking {
            has_frames: true,
            hands_over: true,
            ..taking(false, 1000)
        },
    );
    let error = messages.frame().await.unwrap().unwrap_err();
    assert_eq!(error.code(), tonic::Code::DeadlineExceeded, "{error}");
}
