//! The example of an own module type, served with its pipeline.

mod program;

use std::path::Path;

use spillgate::deployment::Deployment;
use spillgate::files;
use spillgate_proto::pb;
use spillgate_proto::pb::value::Value;

use super::call;
use crate::support::TestServer;
use crate::support::daylight::Daylight;

#[tokio::test(flavor = "multi_thread")]
async fn an_own_module_type_is_served_with_its_options() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/own_module");
    let mut library = spillgate_modules::library();
    library.register(Daylight);
    let loaded = files::load(&folder.join("pipeline.yaml"), &library.catalog());
    let loaded = loaded.unwrap_or_else(|e| panic!("{e}"));
    let deployment = Deployment {
        base_dir: loaded.base_dir(),
        pipeline: loaded.pipeline,
        profiles: loaded.profiles,
        families: Default::default(),
    };
    let server = TestServer::over(vec![deployment], library).await;
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
