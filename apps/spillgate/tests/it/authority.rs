//! The name of the server in a call, as gRPC sends it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::TestServer;

const NOOP: &str = "
name: p
slo: 1s
source: { payload: bytes }
modules:
  a: { op: slow, inputs: { payload: $source.payload }, device: emulated }
outputs: { payload: $a.payload }
";
/// Types of frames of HTTP/2, and the flags of a call's headers and of its last data.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![
        length[1], length[2], length[3], kind, flags, 0, 0, 0, stream,
    ];
    bytes.extend(payload);
    bytes
}

/// A header whose name is that of the index, or is written out.
fn header(index: u8, name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x40 | index];
    if index == 0 {
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
    }
    bytes.push(value.len() as u8);
    bytes.extend(value.as_bytes());
    bytes
}

/// `Describe` at the server of this name, which is in a field of that index: the types of the frames that answer it.
async fn described(server: &TestServer, index: u8, authority: &str) -> Vec<u8> {
    let block = [
        // POST, http.
        vec![0x83, 0x86],
        header(4, ":path", "/spillgate.v1.Spillgate/Describe"),
        header(index, ":authority", authority),
        header(31, "content-type", "application/grpc"),
        header(0, "te", "trailers"),
    ];
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    // The same twice: the second time the name is in the table of headers.
    let again = [vec![0x83, 0x86], vec![0xc1, 0xc0, 0xbf, 0xbe]].concat();
    for (stream, block) in [(1, block.concat()), (3, again)] {
        bytes.extend(frame(HEADERS, END_HEADERS, stream, &block));
        bytes.extend(frame(DATA, END_STREAM, stream, &[0; 5]));
    }
    let mut socket = server.connect().await;
    socket.write_all(&bytes).await.unwrap();
    let mut kinds = Vec::new();
    let mut ended = 0;
    while ended < 2 {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        socket.read_exact(&mut payload).await.unwrap();
        let (kind, flags, stream) = (head[3], head[4], head[8]);
        if stream > 0 && kind <= 3 {
            kinds.push(kind);
            ended += usize::from(kind == 3 || flags & END_STREAM != 0);
        }
    }
    kinds
}

#[tokio::test(flavor = "multi_thread")]
async fn names_for_lists_of_servers_are_served_as_others_are() {
    let server = TestServer::start(&[NOOP]).await;
    let mut usual = described(&server, 1, "127.0.0.1:7700").await;
    assert!(usual.contains(&DATA), "{usual:?}");
    usual.sort_unstable();
    for authority in [
        "127.0.0.1:7700%2C127.0.0.1:7701",
        "127.0.0.1:7700,127.0.0.1:7701",
        "%5B::1%5D:7700%2C%5B::1%5D:7701",
        "[::1]:7700",
    ] {
        // gRPC writes the name of the header out.
        for index in [0, 1] {
            let mut kinds = described(&server, index, authority).await;
            kinds.sort_unstable();
            assert_eq!(kinds, usual, "{authority}");
        }
    }
    server.stop().await;
}
