//! The example of an own module type, served with its pipeline.

mod program;

use std::path::Path;

use spillgate::deployment::Deployment;
use spillgate::files;
use spillgate_proto::pb;
use spillgate_proto::pb::value::Value;

use super::call;
use crate::support::TestServer;
use crate::support::colours::Colours;
use crate::support::daylight::Daylight;
use crate::support::spots::Spots;

/// Serves a pipeline of the example.
async fn server(pipeline: &str) -> TestServer {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/own_module");
    let mut library = spillgate_modules::library();
    library.register(Daylight);
    library.register(Spots);
    library.register(Colours);
    let loaded = files::load(&folder.join(pipeline), &library.catalog());
    let loaded = loaded.unwrap_or_else(|e| panic!("{e}"));
    let deployment = Deployment {
        base_dir: loaded.base_dir(),
        pipeline: loaded.pipeline,
        profiles: loaded.profiles,
        families: Default::default(),
    };
    TestServer::over(vec![deployment], library).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_own_module_type_is_served_with_its_options() {
    let server = server("pipeline.yaml").await;
    // The pipeline's threshold is 100.
    for (byte, expected) in [(20, "night"), (90, "night"), (110, "day")] {
        let frame = pb::Frame {
            format: pb::FrameFormat::Rgb8.into(),
            width: 4,
            height: 2,
            data: vec![byte; 4 * 2 * 3].into(),
            ..Default::default()
        };
        let request = pb::InferRequest {
            pipeline: String::new(),
            frame: Some(frame),
        };
        let answer = server.serve(call(&server, request)).await.unwrap();
        let mut result = answer.into_inner().result.unwrap();
        let Some(Value::Labels(labels)) = result.outputs.remove("sky").unwrap().value else {
            panic!("no labels")
        };
        let labels: Vec<&str> = labels.labels.iter().map(|l| l.label.as_str()).collect();
        assert_eq!(labels, [expected], "{byte}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn masks_and_key_points_are_in_pixels_of_the_source() {
    let server = server("spots.yaml").await;
    // A white square of 4 x 2 pixels at (2, 1) and two darker pixels, of a picture that was 20 x 12 before it was made smaller to 10 x 4.
    let grey = |at: (usize, usize)| match at {
        (2..6, 1..3) => 255,
        (8, 0) => 200,
        (0, 3) => 100,
        _ => 0,
    };
    let pixels = (0..4).flat_map(|y| (0..10).map(move |x| (x, y)));
    let data: Vec<u8> = pixels.flat_map(|at| [grey(at); 3]).collect();
    let frame = pb::Frame {
        format: pb::FrameFormat::Rgb8.into(),
        width: 10,
        height: 4,
        source_width: 20,
        source_height: 12,
        data: data.into(),
        ..Default::default()
    };
    let request = pb::InferRequest {
        pipeline: String::new(),
        frame: Some(frame),
    };
    let answer = server.serve(call(&server, request)).await.unwrap();
    let result = answer.into_inner().result.unwrap();
    let output = |name: &str| result.outputs[name].value.clone().unwrap();
    let (Value::Boxes(boxes), Value::Masks(masks), Value::Keypoints(points)) =
        (output("spots"), output("outlines"), output("points"))
    else {
        panic!("{result:?}")
    };
    let area = &boxes.boxes[0];
    assert_eq!((area.x0, area.y0, area.x1, area.y1), (4.0, 3.0, 12.0, 9.0));
    let mask = &masks.masks[0];
    assert_eq!((masks.objects.as_str(), mask.object), ("spots", Some(0)));
    let square = [4.0, 3.0, 4.0, 9.0, 12.0, 9.0, 12.0, 3.0];
    assert_eq!(mask.polygons[0].points, square);
    let of = &points.keypoints[0];
    assert_eq!((points.objects.as_str(), of.object), ("spots", Some(0)));
    assert_eq!(of.points, [8.0, 6.0, 5.0, 4.5]);
    assert_eq!(of.scores, [1.0, 0.5]);
    let Value::Embeddings(colours) = output("colours") else {
        panic!("{result:?}")
    };
    let colour = &colours.embeddings[0];
    assert_eq!(
        (colours.objects.as_str(), colour.object),
        ("spots", Some(0))
    );
    assert!((colour.values[0] - 3f32.sqrt().recip()).abs() < 1e-6);
    // The pipeline's bound is two objects.
    let why: Vec<_> = colours.embeddings.iter().map(|e| e.left_out()).collect();
    let (seen, over) = (pb::LeftOut::None, pb::LeftOut::OverLimit);
    assert_eq!(why, [seen, seen, over]);
    let metrics = server.metrics().await;
    let counted = "spillgate_gateway_left_out_objects_total{pipeline=\"spots\",module=\"compare\",reason=\"over_limit\"} 1";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    server.stop().await;
}
