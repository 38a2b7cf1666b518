//! What is said about objects, with the shipped networks on the processor: it names its box, and a TorchScript file
//! wired to boxes finds what the type made for it finds.

use std::path::Path;

use spillgate_client::source::{Content, SILENT, SourceSpec};
use spillgate_proto::pb;
use spillgate_proto::pb::value::Value;

use super::call;
use crate::support::{TestServer, on_cpu};

pub(super) const OBJECTS: &str = r#"
name: objects
slo: 30s
modules:
  detect:
    op: detector
    model: ../modules/models/road.pt
    input: 320
    inputs: { image: $source.frame }
  plates:
    op: text_reader
    model: ../modules/models/plate.pt
    inputs: { image: $source.frame, boxes: $detect.vehicles }
  faces:
    op: face_recognizer
    model: ../modules/models/face.pt
    inputs: { image: $source.frame, boxes: $detect.people }
    options: { confidence: 0 }
  own:
    op: classifier
    model: ../modules/models/face.pt
    inputs: { image: $source.frame, boxes: $detect.people }
    options: { size: [40, 40], region: [0, 0, 1, 0.42] }
  rows:
    op: model
    model: ../modules/models/face.pt
    inputs: { image: $source.frame, boxes: $detect.people }
    options: { size: [40, 40], region: [0, 0, 1, 0.42] }
outputs: { people: $detect.people, vehicles: $detect.vehicles, plates: $plates.text, faces: $faces.id, own: $own.labels, rows: $rows.tensor }
"#;

/// A frame of the built-in scene that has vehicles and people.
pub(super) fn street() -> pb::Frame {
    let source = SourceSpec::parse("scene:seed=7,size=640x360,density=1").unwrap();
    let mut source = source.open(0, SILENT).unwrap();
    let picture = loop {
        let frame = source.next_frame().unwrap().unwrap();
        let truth = frame.truth.unwrap();
        if let Content::Picture(picture) = frame.content
            && truth.people.len() > 1
            && !truth.vehicles.is_empty()
        {
            break picture;
        }
    };
    pb::Frame {
        format: pb::FrameFormat::Rgb8.into(),
        width: picture.width(),
        height: picture.height(),
        data: picture.into_raw().into(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_of_objects_names_them_and_own_models_say_the_same() {
    let library = spillgate_modules::library();
    let server = TestServer::over(vec![on_cpu(OBJECTS)], library).await;
    let request = pb::InferRequest {
        pipeline: String::new(),
        frame: Some(street()),
    };
    let answer = server.serve(call(&server, request)).await.unwrap();
    let result = answer.into_inner().result.unwrap();
    let output = |name: &str| result.outputs[name].value.clone().unwrap();
    let (Value::Boxes(people), Value::Boxes(vehicles)) = (output("people"), output("vehicles"))
    else {
        panic!("no boxes")
    };
    let indices = |n: usize| -> Vec<Option<u32>> { (0..n as u32).map(Some).collect() };
    assert!(people.boxes.len() > 1 && !vehicles.boxes.is_empty());

    let Value::Texts(plates) = output("plates") else {
        panic!("no texts")
    };
    let objects: Vec<Option<u32>> = plates.texts.iter().map(|t| t.object).collect();
    assert_eq!(objects, indices(vehicles.boxes.len()));
    assert_eq!(plates.objects, "vehicles");

    let (Value::Labels(faces), Value::Labels(own)) = (output("faces"), output("own")) else {
        panic!("no labels")
    };
    let objects: Vec<Option<u32>> = faces.labels.iter().map(|l| l.object).collect();
    assert_eq!(
        (objects, &*faces.objects),
        (indices(people.boxes.len()), "people")
    );
    assert_eq!(own.objects, "people");
    for (face, own) in faces.labels.iter().zip(&own.labels) {
        assert_eq!((&face.label, face.object), (&own.label, own.object));
        assert!((face.score - own.score).abs() < 1e-4, "{face:?} {own:?}");
    }

    let Value::Tensor(rows) = output("rows") else {
        panic!("no tensor")
    };
    assert_eq!(rows.shape[0] as usize, people.boxes.len());
    assert_eq!(rows.objects, "people");
    let names = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../modules/models/face.labels"),
    );
    let names: Vec<String> = names.unwrap().lines().map(str::to_owned).collect();
    assert_eq!(rows.shape[1..], [names.len() as i64]);
    for (row, face) in rows.data.chunks(names.len()).zip(&faces.labels) {
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
        assert_eq!(names[best.unwrap()], face.label);
    }
    server.stop().await;
}

/// Groups with names of one's own, wired and answered as the outputs of the type are.
const GROUPS: &str = r#"
name: groups
slo: 30s
modules:
  detect:
    op: detector
    model: ../modules/models/road.pt
    input: 320
    inputs: { image: $source.frame }
    options: { groups: { wheels: [vehicle], everyone: [person, vehicle], walkers: [person] } }
  rows:
    op: model
    model: ../modules/models/face.pt
    inputs: { image: $source.frame, boxes: $detect.walkers }
    when: $detect.walkers
    options: { size: [40, 40] }
outputs:
  walkers: $detect.walkers
  people: $detect.people
  wheels: $detect.wheels
  vehicles: $detect.vehicles
  everyone: $detect.everyone
  boxes: $detect.boxes
  rows: $rows.tensor
"#;

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_classes_are_answered_under_their_names() {
    let server = TestServer::over(vec![on_cpu(GROUPS)], spillgate_modules::library()).await;
    let request = pb::InferRequest {
        pipeline: String::new(),
        frame: Some(street()),
    };
    let answer = server.serve(call(&server, request)).await.unwrap();
    let result = answer.into_inner().result.unwrap();
    let output = |name: &str| result.outputs[name].value.clone().unwrap();
    let boxes = |name: &str| match output(name) {
        Value::Boxes(list) => list.boxes,
        other => panic!("{name}: {other:?}"),
    };
    assert!(boxes("walkers").len() > 1 && !boxes("wheels").is_empty());
    assert_eq!(boxes("walkers"), boxes("people"));
    assert_eq!(boxes("wheels"), boxes("vehicles"));
    assert_eq!(boxes("everyone"), boxes("boxes"));
    let Value::Tensor(rows) = output("rows") else {
        panic!("no tensor")
    };
    assert_eq!(
        (rows.shape[0] as usize, &*rows.objects),
        (boxes("walkers").len(), "walkers")
    );
    server.stop().await;
}
