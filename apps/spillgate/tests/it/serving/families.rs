//! Families of models: a frame names its member, and each member is loaded by itself.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spillgate::deployment::Deployment;
use spillgate_backend::operator::{
    BuildContext, Inputs, Library, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_pipeline::catalog::{ModelNeed, ModuleType, ValueType};
use spillgate_pipeline::compile::{Outside, compile_with};
use spillgate_pipeline::profile::{ModuleProfile, ProfileSet};
use spillgate_process::clock::{Clock, TestClock};
use spillgate_process::value::Value;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Ask;
use tonic::Code;

use super::{call, results};
use crate::support::{TestServer, frame, open_stream, result_of};

const PIPELINE: &str = r#"
name: p
slo: 2s
source: { payload: bytes }
limits: { in_flight_per_stream: 120 }
modules:
  faces: { op: named, models: faces/*.pt, inputs: { payload: $source.payload }, device: cpu, batch: { max: 4 }, queue: 120 }
  eyes: { op: named, models: eyes/*.pt, default_model: cam-1, inputs: { payload: $faces.payload }, device: cpu, queue: 120 }
outputs: { payload: $eyes.payload }
"#;

/// Adds the name of its model file to what passes; the model `cam-9` cannot be loaded.
struct Named(Clock);

struct NamedOperator(String, Clock);

impl ModuleKind for Named {
    fn module_type(&self) -> ModuleType {
        ModuleType::new("named", "adds the name of its model", ModelNeed::Required)
            .input("payload", ValueType::Bytes, "what comes in")
            .output("payload", ValueType::Bytes, "what goes out")
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let model = &context.module.variants[0].model;
        match model.as_str() {
            "faces/cam-9.pt" => Err(OperatorError::Other("faces/cam-9.pt: torn".to_owned())),
            model => Ok(Box::new(NamedOperator(model.to_owned(), self.0.clone()))),
        }
    }
}

impl Operator for NamedOperator {
    fn run(&mut self, _: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        self.1.occupy(self.1.now(), Duration::from_millis(2));
        let one = |inputs: &Inputs| {
            let Some(Value::Bytes(bytes)) = &inputs[0] else {
                return Err(OperatorError::Other("no bytes".to_owned()));
            };
            let text = format!("{} {}", String::from_utf8_lossy(bytes), self.0);
            Ok(vec![Value::Bytes(text.into())])
        };
        batch.iter().map(one).collect()
    }

    fn example(&self, _: usize) -> Inputs {
        vec![Some(Value::Bytes("example".into()))]
    }
}

async fn server(dispatch: &str) -> TestServer {
    let clock = TestClock::default();
    let mut library = Library::new();
    library.register(Named(clock.clock()));
    let files = |_: &str, is_asked_for: &dyn Fn(&str) -> bool| {
        let all = (1..10).map(|i| format!("cam-{i}.pt"));
        Ok(all.filter(|name| is_asked_for(name)).collect())
    };
    let outside = Outside {
        files: Some(&files),
        ..Outside::NOTHING
    };
    let text = format!("{PIPELINE}policy: {{ dispatch: {dispatch} }}\n");
    let compiled = compile_with(&text, "p.yaml", &library.catalog(), None, outside);
    let compiled = compiled.unwrap_or_else(|e| panic!("{e}"));
    let mut profiles = ProfileSet::default();
    for module in &compiled.pipeline.modules[1..] {
        let profile = ModuleProfile::linear(Duration::from_millis(2), Duration::ZERO, 8);
        profiles.insert("cpu", &module.name, &module.profile_key(0), profile);
    }
    let deployment = Deployment {
        pipeline: Arc::new(compiled.pipeline),
        base_dir: PathBuf::new(),
        profiles,
        families: Default::default(),
    };
    TestServer::by_clock(clock, vec![deployment], library, |_| {}).await
}

fn asking(number: u64, models: &[(&str, &str)]) -> pb::Frame {
    let models = models.iter();
    let models = models.map(|(module, name)| ((*module).to_owned(), (*name).to_owned()));
    pb::Frame {
        models: models.collect::<HashMap<String, String>>(),
        ..frame(number, b"x")
    }
}

fn text_of(result: &pb::Result) -> String {
    match &result.outputs["payload"].value {
        Some(pb::value::Value::Data(data)) => String::from_utf8_lossy(data).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_runs_through_the_members_that_it_names() {
    let server = server("earliest-start").await;
    let infer = async |models: &[(&str, &str)]| {
        let request = pb::InferRequest {
            pipeline: String::new(),
            frame: Some(asking(1, models)),
        };
        let answer = server.serve(call(&server, request)).await;
        answer.map(|answer| text_of(&answer.into_inner().result.unwrap()))
    };
    let both = infer(&[("faces", "cam-2"), ("eyes", "cam-3")]).await;
    assert_eq!(both.unwrap(), "x faces/cam-2.pt eyes/cam-3.pt");
    let default = infer(&[("faces", "cam-3")]).await;
    assert_eq!(default.unwrap(), "x faces/cam-3.pt eyes/cam-1.pt");
    let refused = [
        (
            vec![("faces", "cam-22")],
            Code::NotFound,
            "did you mean \"cam-2\"?",
        ),
        (
            vec![("nose", "a"), ("faces", "cam-2")],
            Code::NotFound,
            "modules with one: faces, eyes",
        ),
        (vec![], Code::InvalidArgument, "names no model for faces"),
    ];
    for (models, code, part) in refused {
        let status = infer(&models).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(part), "{status}");
        assert_eq!(result_of(&status).outcome(), pb::Outcome::Refused);
    }
    // A member that cannot be loaded fails; the device serves the others.
    let status = infer(&[("faces", "cam-9")]).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(
        status.message().contains("faces/cam-9.pt: torn"),
        "{status}"
    );
    assert!(infer(&[("faces", "cam-8")]).await.is_ok());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_after_unknown_models_and_no_frame_meets_another_ones_model() {
    for dispatch in ["earliest-start", "pull"] {
        stream_of_many_models(dispatch).await;
    }
}

async fn stream_of_many_models(dispatch: &str) {
    let server = server(dispatch).await;
    let open = pb::StreamOpen {
        in_order: true,
        ..Default::default()
    };
    let (sender, replies) = open_stream(&server, open).await;
    const FRAMES: u64 = 120;
    let model = |number: u64| match number % 10 {
        0 => "nobody".to_owned(),
        n => format!("cam-{n}"),
    };
    let sending = tokio::spawn(async move {
        for number in 0..FRAMES {
            let frame = asking(number, &[("faces", &model(number))]);
            sender.send(Ask::Frame(frame)).await.unwrap();
        }
    });
    let results = server.answer(tokio::spawn(results(replies))).await;
    sending.await.unwrap();
    assert_eq!(results.len() as u64, FRAMES);
    for (number, result) in (0..).zip(results) {
        assert_eq!(result.number, number);
        let named = model(number);
        match named.as_str() {
            "nobody" => assert_eq!(result.code, Code::NotFound as i32, "{result:?}"),
            "cam-9" => assert_eq!(result.code, Code::Internal as i32, "{result:?}"),
            named => assert_eq!(
                text_of(&result),
                format!("x faces/{named}.pt eyes/cam-1.pt")
            ),
        }
    }
    server.stop().await;
}
