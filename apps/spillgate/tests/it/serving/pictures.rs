//! Pictures as cameras and phones store them: turned, and damaged.

use image::{ExtendedColorType, ImageEncoder, RgbImage};
use spillgate_proto::pb;
use tonic::Code;

use super::call;
use super::objects::{OBJECTS, street};
use crate::support::{TestServer, on_cpu};

/// The picture as it is stored where a reader must turn it as `number` says (EXIF, tag 0x0112) to see it upright.
fn stored(upright: &RgbImage, number: u8) -> RgbImage {
    use image::imageops::{flip_horizontal, flip_vertical, rotate90, rotate180, rotate270};
    match number {
        2 => flip_horizontal(upright),
        3 => rotate180(upright),
        4 => flip_vertical(upright),
        5 => flip_horizontal(&rotate90(upright)),
        6 => rotate270(upright),
        7 => flip_horizontal(&rotate270(upright)),
        8 => rotate90(upright),
        _ => upright.clone(),
    }
}

/// A PNG of it that says so, in a chunk behind its header.
fn turned(upright: &RgbImage, number: u8) -> Vec<u8> {
    let stored = stored(upright, number);
    let (width, height) = stored.dimensions();
    let mut file = Vec::new();
    image::codecs::png::PngEncoder::new(&mut file)
        .write_image(stored.as_raw(), width, height, ExtendedColorType::Rgb8)
        .unwrap();
    let mut chunk = b"eXIfMM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    chunk.extend([number, 0, 0, 0, 0, 0, 0]);
    let length = u32::try_from(chunk.len() - 4).unwrap();
    let sum = checksum(&chunk);
    let whole = [&length.to_be_bytes()[..], &chunk, &sum.to_be_bytes()].concat();
    // The signature and IHDR take 33 bytes.
    file.splice(33..33, whole);
    file
}

/// CRC-32, as PNG has it.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

fn request(data: Vec<u8>) -> pb::InferRequest {
    let frame = pb::Frame {
        data: data.into(),
        ..Default::default()
    };
    pb::InferRequest {
        frame: Some(frame),
        ..Default::default()
    }
}

// Over five seconds: three networks look at nine pictures.
#[tokio::test(flavor = "multi_thread")]
async fn however_a_picture_lies_the_same_is_found_in_its_upright_pixels() {
    let server = TestServer::over(vec![on_cpu(OBJECTS)], spillgate_modules::library()).await;
    let frame = street();
    let upright = RgbImage::from_raw(frame.width, frame.height, frame.data.to_vec()).unwrap();
    let raw = pb::InferRequest {
        frame: Some(frame),
        ..Default::default()
    };
    let answer = server.serve(call(&server, raw)).await.unwrap();
    let expected = answer.into_inner().result.unwrap();
    assert_eq!((expected.width, expected.height), upright.dimensions());
    for number in 1..=8 {
        let request = request(turned(&upright, number));
        let answer = server.serve(call(&server, request)).await.unwrap();
        let result = answer.into_inner().result.unwrap();
        assert_eq!((result.width, result.height), upright.dimensions());
        assert_eq!(result.outputs, expected.outputs, "orientation {number}");
        assert_eq!(result.damage, "");
    }
}

/// A JPEG of which some compressed bytes are missing, and its end is not.
fn with_a_hole() -> Vec<u8> {
    let frame = street();
    let picture = RgbImage::from_raw(frame.width, frame.height, frame.data.to_vec()).unwrap();
    let mut file = spillgate_client::encode::jpeg(&picture, 90).unwrap();
    let middle = file.len() / 2;
    file.splice(middle..middle + 2048, [0xff, 0xd9]);
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_told_in_the_result_and_refused_where_the_pipeline_says_so() {
    let library = spillgate_modules::library();
    let server = TestServer::over(vec![on_cpu(OBJECTS)], library).await;
    let answer = server.serve(call(&server, request(with_a_hole()))).await;
    let result = answer.unwrap().into_inner().result.unwrap();
    assert_eq!(
        result.damage,
        "data of the picture are missing: a part of it is not as it was"
    );
    drop(server);
    let strict = format!("{OBJECTS}limits: {{ damaged: refused }}\n");
    let library = spillgate_modules::library();
    let server = TestServer::over(vec![on_cpu(&strict)], library).await;
    let status = server.serve(call(&server, request(with_a_hole()))).await;
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("limits.damaged"), "{status}");
}
