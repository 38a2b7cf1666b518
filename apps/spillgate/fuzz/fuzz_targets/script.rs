//! What a client of HTTP/2 writes, made of the input: frames that are mostly well formed, so that they get past the first
//! check, in any order, with any content.

use prost::Message;
use spillgate_proto::pb;

/// What the polite client sends, and finds in its answer.
pub(crate) const PAYLOAD: &[u8] = b"the polite client's payload";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PATHS: [&str; 6] = [
    "/spillgate.v1.Spillgate/Infer",
    "/spillgate.v1.Spillgate/Stream",
    "/spillgate.v1.Spillgate/Describe",
    "/spillgate.v1.Spillgate/Nothing",
    "/grpc.health.v1.Health/Check",
    "*",
];
const TIMEOUTS: [&str; 6] = ["1H", "10m", "1n", "0S", "99999999999S", "x"];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A client's bytes.
pub(crate) struct Script {
    pub(crate) bytes: Vec<u8>,
    /// The client reads what it is sent.
    pub(crate) reads: bool,
    /// The server asks for a token.
    pub(crate) needs_token: bool,
}

impl Script {
    /// The script that the input stands for.
    pub(crate) fn of(data: &[u8]) -> Self {
        let mut input = Input(data);
        let how = input.byte();
        let mut script = Script {
            bytes: Vec::new(),
            reads: how & 1 == 0,
            needs_token: how & 6 == 6,
        };
        if how & 24 != 24 {
            script.greet();
        }
        while !input.0.is_empty() {
            script.step(&mut input);
        }
        script
    }

    /// One call that is to be answered.
    pub(crate) fn polite() -> Self {
        let mut script = Script {
            bytes: Vec::new(),
            reads: true,
            needs_token: false,
        };
        script.greet();
        script.call(1, 0, None, END_HEADERS);
        script.frame(DATA, END_STREAM, 1, &framed(&infer(PAYLOAD)));
        script
    }

    fn greet(&mut self) {
        self.bytes.extend_from_slice(PREFACE);
        self.frame(SETTINGS, 0, 0, &[]);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        // Few streams, so that frames meet on them.
        let stream = u32::from(input.byte() % 16);
        let flags = input.byte();
        match what % 12 {
            0 => {
                let path = usize::from(input.byte());
                let timeout = (flags & 16 != 0).then(|| usize::from(input.byte()));
                self.call(stream, path, timeout, flags & END_STREAM | END_HEADERS);
            }
            1 => {
                let message = framed(&infer(input.some()));
                self.frame(DATA, flags & END_STREAM, stream, &message);
            }
            2 => {
                let message = framed(&opening(flags));
                self.frame(DATA, flags & END_STREAM, stream, &message);
            }
            3 => {
                let message = framed(&frame_of_stream(input.some(), flags));
                self.frame(DATA, flags & END_STREAM, stream, &message);
            }
            // A part of a message, or one that claims to be longer or compressed.
            4 => {
                let mut message = framed(&infer(input.some()));
                message[0] = flags >> 7;
                message[1 + usize::from(flags & 3)] ^= input.byte();
                let end = message.len().min(usize::from(input.byte()));
                self.frame(DATA, flags & END_STREAM, stream, &message[..end]);
            }
            5 => self.frame(DATA, flags & END_STREAM, stream, input.some()),
            6 => self.frame(RST_STREAM, 0, stream, &[0, 0, 0, flags]),
            7 => {
                let id = [0, flags % 8];
                let value = [input.byte(), input.byte(), input.byte(), input.byte()];
                self.frame(SETTINGS, 0, 0, &[&id[..], &value[..]].concat());
            }
            8 => {
                let more = [flags & 127, input.byte(), input.byte(), input.byte()];
                self.frame(WINDOW_UPDATE, 0, stream, &more);
            }
            9 => {
                let kind = input.byte() % 12;
                self.frame(kind, flags, stream, input.some());
            }
            10 => self.frame(HEADERS, flags, stream, input.some()),
            _ => self.bytes.extend_from_slice(input.some()),
        }
    }

    fn call(&mut self, stream: u32, path: usize, timeout: Option<usize>, flags: u8) {
        let mut block = Vec::new();
        let path = PATHS[path % PATHS.len()];
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "fuzz"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            literal(&mut block, name, value);
        }
        if let Some(timeout) = timeout {
            literal(&mut block, "grpc-timeout", TIMEOUTS[timeout % TIMEOUTS.len()]);
        }
        self.frame(HEADERS, flags, stream, &block);
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, content: &[u8]) {
        let length = (content.len() as u32).to_be_bytes();
        self.bytes.extend_from_slice(&length[1..]);
        self.bytes.extend_from_slice(&[kind, flags]);
        self.bytes.extend_from_slice(&stream.to_be_bytes());
        self.bytes.extend_from_slice(content);
    }
}

/// A header that no table knows, nor is to know.
fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        block.push(text.len() as u8);
        block.extend_from_slice(text.as_bytes());
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

fn infer(payload: &[u8]) -> Vec<u8> {
    let frame = pb::Frame {
        data: payload.to_vec().into(),
        ..Default::default()
    };
    let request = pb::InferRequest {
        frame: Some(frame),
        ..Default::default()
    };
    request.encode_to_vec()
}

fn opening(flags: u8) -> Vec<u8> {
    let open = pb::StreamOpen {
        in_order: flags & 2 != 0,
        latest_only: flags & 4 != 0,
        ..Default::default()
    };
    let message = Some(pb::stream_request::Message::Open(open));
    pb::StreamRequest { message }.encode_to_vec()
}

fn frame_of_stream(payload: &[u8], flags: u8) -> Vec<u8> {
    let frame = pb::Frame {
        data: payload.to_vec().into(),
        timeout_ms: if flags & 2 != 0 { 0.001 } else { 0.0 },
        ..Default::default()
    };
    let message = Some(pb::stream_request::Message::Frame(frame));
    pb::StreamRequest { message }.encode_to_vec()
}

/// The input, from its beginning to its end; zeros after that.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    /// A few bytes: as many as the next one says.
    fn some(&mut self) -> &'a [u8] {
        let n = usize::from(self.byte()).min(self.0.len());
        let (some, rest) = self.0.split_at(n);
        self.0 = rest;
        some
    }
}
