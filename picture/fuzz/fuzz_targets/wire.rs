//! Whatever bytes a client sends: messages decode or are refused, frames decode or are refused, and a frame
//! that decodes has the size that it claims, within the bound.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use spillgate_picture::{Frame, FrameFormat, Picture, decode};
use spillgate_proto::pb;

/// Most pixels of a picture.
const PIXELS: u64 = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let data = Bytes::copy_from_slice(data);
    let unary = pb::InferRequest::decode(data.clone()).ok().and_then(|r| r.frame);
    let streamed = pb::StreamRequest::decode(data.clone()).ok().and_then(|r| match r.message {
        Some(pb::stream_request::Message::Frame(frame)) => Some(frame),
        _ => None,
    });
    for frame in [unary, streamed].into_iter().flatten() {
        check(FrameFormat::Auto, frame.data.clone(), frame.width, frame.height);
        check(FrameFormat::Rgb8, frame.data, frame.width, frame.height);
    }
    // Most inputs are no message: try them as pictures, too.
    for format in [FrameFormat::Auto, FrameFormat::Jpeg, FrameFormat::Png, FrameFormat::Webp] {
        check(format, data.clone(), 0, 0);
    }
});

fn check(format: FrameFormat, data: Bytes, width: u32, height: u32) {
    let frame = Frame { format, data, width, height };
    let Ok(picture) = Picture::of(&frame, PIXELS) else {
        return;
    };
    let pixels = u64::from(picture.width) * u64::from(picture.height);
    assert!(pixels > 0 && pixels <= PIXELS);
    if let Ok(decoded) = decode(&frame, &picture, &mut || false) {
        assert_eq!(decoded.rgb.len() as u64, pixels * 3);
    }
}
