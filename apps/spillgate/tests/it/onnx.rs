//! ONNX models, checked and served by the program itself.

#[path = "../../../../worker/backend/fixtures/onnx.rs"]
#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared with tests of other packages"
)]
pub(crate) mod fixture;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fixture::Axis::{Is, Named};
use fixture::{FLOAT, Graph, Message, STRING, colours, external, floats, node, raw, tensor_port};
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::value::Value;
use tempfile::TempDir;

use crate::support::archive::shipped;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Height and width of the pictures that the models take.
const SIDE: i64 = 32;

/// A folder with a pipeline of one classifier of colours, that goes with its test.
struct Folder(TempDir);

impl Folder {
    fn new(module: &str) -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("colours.labels", "red\ngreen\nblue\n");
        folder.pipeline(module);
        folder
    }

    /// A folder with this model as `colours.onnx`.
    fn of(model: &[u8]) -> Self {
        let folder = Folder::new("variants: [{ model: colours.onnx, input: 32 }]");
        folder.write("colours.onnx", model);
        folder
    }

    fn pipeline(&self, module: &str) {
        let text = format!(
            "name: p\nslo: 10s\nmodules:\n  colour:\n    op: classifier\n    {module}\n    options: {{ labels: colours.labels }}\n    \
             inputs: {{ image: $source.frame }}\n    batch: {{ max: 4 }}\n    device: cpu\noutputs: {{ colour: $colour.labels }}\n\
             policy: {{ gate: 0 }}\n"
        );
        self.write("p.yaml", text);
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), bytes).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
        command.current_dir(self.path()).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    fn validate(&self) -> Output {
        self.command(&["validate", "p.yaml"]).output().unwrap()
    }

    /// What is said of the model, which is refused with its file and line.
    fn refused(&self) -> String {
        said_of(&self.validate())
    }
}

fn said_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{text}");
    assert!(
        text.starts_with("error: p.yaml:4: modules.colour: "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn passes(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*text), (Some(0), ""));
}

/// A server that ends with its test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let ports = [
            "--listen",
            "127.0.0.1:0",
            "--no-admin",
            "--port-file",
            "port",
        ];
        let arguments = [&["serve", "p.yaml"][..], &ports].concat();
        let mut child = folder.command(&arguments).spawn().unwrap();
        let give_up = Instant::now() + PATIENCE;
        let address = loop {
            if let Ok(text) = std::fs::read_to_string(folder.path().join("port"))
                && text.ends_with('\n')
            {
                break text.trim().to_owned();
            }
            assert_eq!(child.try_wait().unwrap(), None);
            assert!(Instant::now() < give_up, "the server is not up");
            std::thread::sleep(Duration::from_millis(10));
        };
        Server { child, address }
    }

    /// What it says of a picture of one colour; and the member of a family that says it.
    async fn colour(&self, rgb: [u8; 3], model: Option<&str>) -> Result<String, tonic::Status> {
        let picture = image::RgbImage::from_pixel(64, 48, image::Rgb(rgb));
        let mut data = std::io::Cursor::new(Vec::new());
        picture
            .write_to(&mut data, image::ImageFormat::Png)
            .unwrap();
        let models = model.map(|model| ("colour".to_owned(), model.to_owned()));
        let frame = pb::Frame {
            data: data.into_inner().into(),
            format: pb::FrameFormat::Png.into(),
            models: models.into_iter().collect(),
            ..Default::default()
        };
        let mut client = SpillgateClient::connect(format!("http://{}", self.address)).await;
        let request = pb::InferRequest {
            pipeline: "p".to_owned(),
            frame: Some(frame),
        };
        let client = client.as_mut().unwrap();
        let result = client.infer(request).await?.into_inner().result.unwrap();
        let outputs: BTreeMap<_, _> = result.outputs.into_iter().collect();
        match &outputs["colour"].value {
            Some(Value::Labels(labels)) => Ok(labels.labels[0].label.clone()),
            other => panic!("no labels: {other:?}"),
        }
    }

    /// Whether it has loaded ONNX Runtime.
    fn has_library(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id()));
        maps.unwrap().contains("libonnxruntime")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const COLOURS: [([u8; 3], &str); 3] = [
    ([250, 10, 10], "red"),
    ([10, 250, 10], "green"),
    ([10, 10, 250], "blue"),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_onnx_classifier_is_validated_and_served() {
    for batch in [Named("batch"), Is(1), Is(3)] {
        let folder = Folder::of(&colours(batch, SIDE).model());
        passes(&folder.validate());
        let server = Server::start(&folder);
        let asked = COLOURS.map(|(rgb, colour)| {
            let server = &server;
            async move { assert_eq!(server.colour(rgb, None).await.unwrap(), colour) }
        });
        for one in asked {
            one.await;
        }
        assert!(server.has_library());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_onnx_models_does_not_load_the_library() {
    let folder = Folder::new("variants: [{ model: light.pt, input: 64 }]");
    for name in ["light.pt", "light.labels"] {
        std::fs::copy(shipped(name), folder.path().join(name)).unwrap();
    }
    folder.write("colours.labels", "day\ndusk\nnight\nfog\n");
    let server = Server::start(&folder);
    server.colour([9, 9, 9], None).await.unwrap();
    assert!(!server.has_library());
}

#[tokio::test(flavor = "multi_thread")]
async fn variants_of_both_formats_are_served_side_by_side() {
    let folder =
        Folder::new("variants: [{ model: four.onnx, input: 32 }, { model: light.pt, input: 64 }]");
    std::fs::copy(shipped("light.pt"), folder.path().join("light.pt")).unwrap();
    folder.write("colours.labels", "day\ndusk\nnight\nfog\n");
    // The classifier of colours with a fourth class.
    let mut graph = colours(Named("batch"), SIDE);
    graph.nodes[2] = node("MatMul", &["flat", "factor"], &["scores"]);
    let factors = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    graph.weights = vec![floats("factor", &[3, 4], &factors)];
    graph.outputs = vec![tensor_port("scores", FLOAT, &[Named("batch"), Is(4)])];
    folder.write("four.onnx", graph.model());
    passes(&folder.validate());
    let server = Server::start(&folder);
    let said = server.colour([10, 250, 10], None).await.unwrap();
    assert!(["day", "dusk", "night", "fog"].contains(&&*said), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_family_of_onnx_models_is_served_and_a_bad_one_fails_alone() {
    let folder = Folder::new("models: m/*.onnx");
    folder.write(
        "p.profile.yaml",
        "cpu: { colour: { \"m/*.onnx\": { alpha: 2ms, beta: 2ms, max: 4 } } }\n",
    );
    std::fs::create_dir(folder.path().join("m")).unwrap();
    folder.write("m/plain.onnx", colours(Named("batch"), 224).model());
    // It takes what there is least of.
    let mut graph = colours(Named("batch"), 224);
    graph.weights = vec![floats("factor", &[3], &[-10.0; 3])];
    folder.write("m/negative.onnx", graph.model());
    graph
        .outputs
        .push(tensor_port("label", STRING, &[Named("batch")]));
    folder.write("m/strings.onnx", graph.model());
    let server = Server::start(&folder);
    let give_up = Instant::now() + PATIENCE;
    for (model, expected) in [("plain", "red"), ("negative", "green")] {
        // One that was not checked yet asks for patience.
        let said = loop {
            match server.colour([250, 10, 90], Some(model)).await {
                Ok(said) => break said,
                Err(status) => assert!(Instant::now() < give_up, "{model}: {status}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(said, expected, "{model}");
    }
    let status = loop {
        let status = server
            .colour([250, 10, 90], Some("strings"))
            .await
            .unwrap_err();
        if !status.message().contains("checked now") {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(status.message().contains("gives strings"), "{status}");
}

#[test]
fn a_model_of_a_family_that_keeps_weights_in_other_files_is_refused_by_name() {
    let folder = Folder::new("models: m/*.onnx");
    std::fs::create_dir(folder.path().join("m")).unwrap();
    folder.write("m/plain.onnx", colours(Named("batch"), 224).model());
    let mut graph = colours(Named("batch"), 224);
    graph.weights = vec![external("factor", &[3], "w.bin", 0, 12)];
    folder.write("m/beside.onnx", graph.model());
    folder.write("m/w.bin", [0; 12]);
    // Nor would its weights help where they are.
    graph.weights = vec![external("factor", &[3], "gone.bin", 0, 12)];
    folder.write("m/gone.onnx", graph.model());
    let output = folder.validate();
    let text = String::from_utf8_lossy(&output.stderr);
    for name in ["beside", "gone"] {
        let begin = format!("model {name} (m/{name}.onnx): it keeps weights in other files");
        let mut lines = text.lines();
        let line = lines.find(|line| line.contains(&begin));
        assert!(
            line.is_some_and(|line| line.contains("save_as_external_data=False")),
            "{text}"
        );
    }
    assert!(!text.contains("model plain"), "{text}");
}

#[test]
fn bad_onnx_files_are_refused_with_their_line_and_the_cure() {
    let good = colours(Named("batch"), SIDE);
    let with = |change: &dyn Fn(&mut Graph)| {
        let mut graph = good.clone();
        change(&mut graph);
        graph.model()
    };
    let model = good.model();
    let random: Vec<u8> = (0..4000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let wrong_axis = with(&|g| {
        g.inputs = vec![tensor_port(
            "images",
            FLOAT,
            &[Is(3), Named("batch"), Is(32), Is(32)],
        )]
    });
    let two = with(&|g| {
        g.inputs
            .push(tensor_port("mask", FLOAT, &[Named("batch"), Is(3)]))
    });
    let texts = with(&|g| {
        g.outputs
            .push(tensor_port("label", STRING, &[Named("batch")]))
    });
    let huge = with(&|g| {
        g.weights
            .push(raw("w", FLOAT, &[75_000_000_000], &vec![0; 3 << 20]))
    });
    let declared = with(&|g| {
        g.inputs = vec![tensor_port(
            "images",
            FLOAT,
            &[Is(1), Is(3), Is(160_000), Is(160_000)],
        )]
    });
    let outside = with(&|g| g.weights = vec![external("factor", &[3], "../w.bin", 0, 12)]);
    let gone = with(&|g| g.weights = vec![external("factor", &[3], "w.bin", 0, 12)]);
    let operator = with(&|g| {
        g.nodes
            .push(node("TRT_NMS", &["scores"], &["x"]).bytes(7, "my.plugins"))
    });
    let fixed = with(&|g| {
        g.nodes[1] = node("Reshape", &["mean", "shape"], &["flat"]);
        g.weights.push(fixture::integers("shape", &[1, 3]));
    });
    let ended = Message::new().number(1, 8).bytes(2, "tests").0;
    let cases: [(&str, &[u8], &str); 13] = [
        (
            "cut",
            &model[..model.len() / 2],
            "cut short; fetch or export it again",
        ),
        ("no graph", &ended, "ONNX model without a graph"),
        ("random", &random, "no ONNX model"),
        (
            "axis",
            &wrong_axis,
            "dynamic_axes={\"images\": {0: \"batch\"}",
        ),
        ("inputs", &two, "it has 2 inputs (images, mask)"),
        ("strings", &texts, "options={'zipmap': False}"),
        ("huge", &huge, "more than the 8589934592 bytes"),
        ("declared", &declared, "more than the 8589934592 bytes"),
        ("outside", &outside, "outside of the model's folder"),
        ("gone", &gone, "copy that file with the model"),
        ("operator", &operator, "TRT_NMS is of the domain my.plugins"),
        ("fixed", &fixed, "runs with a batch of 1 and not of 2"),
        (
            "new",
            &good.versioned(99, 17),
            "pip install --upgrade onnxruntime",
        ),
    ];
    for (name, bytes, part) in cases {
        let said = Folder::of(bytes).refused();
        assert!(
            said.contains(part) && said.contains("colours.onnx"),
            "{name}: {said}"
        );
    }
}

#[test]
fn weights_in_a_file_beside_the_model_are_part_of_it() {
    let mut graph = colours(Named("batch"), SIDE);
    graph.weights = vec![external("factor", &[3], "w.bin", 0, 12)];
    let folder = Folder::of(&graph.model());
    let bytes: Vec<u8> = [10.0f32; 3].iter().flat_map(|v| v.to_le_bytes()).collect();
    folder.write("w.bin", bytes);
    passes(&folder.validate());
    let server = Server::start(&folder);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let said = runtime.block_on(server.colour([10, 250, 10], None));
    assert_eq!(said.unwrap(), "green");
}

#[test]
fn a_model_that_needs_more_memory_than_a_check_may_use_is_refused() {
    // 4 GiB that no declared shape tells: one is tiled by a size that is computed.
    let mut graph = colours(Named("batch"), SIDE);
    graph.weights.push(fixture::integers("half", &[1 << 15]));
    graph.nodes.push(node("Mul", &["half", "half"], &["n"]));
    graph
        .nodes
        .push(node("ConstantOfShape", &["n"], &["zeros"]));
    graph.nodes.push(node("ReduceSum", &["zeros"], &["sum"]));
    graph.nodes.push(node("Add", &["scores", "sum"], &["more"]));
    graph.outputs = vec![tensor_port("more", FLOAT, &[Named("batch"), Is(3)])];
    let folder = Folder::of(&graph.model());
    let output = folder
        .command(&["validate", "p.yaml", "--model-memory", "1024"])
        .output()
        .unwrap();
    let said = said_of(&output);
    assert!(
        said.contains("more than the 1024 MiB that a check may use"),
        "{said}"
    );
}

#[test]
fn without_the_library_the_model_and_the_command_that_installs_it_are_named() {
    let folder = Folder::of(&colours(Named("batch"), SIDE).model());
    let mut command = folder.command(&["validate", "p.yaml"]);
    let said = said_of(
        &command
            .env("ORT_DYLIB_PATH", "/no/such/library.so")
            .output()
            .unwrap(),
    );
    for part in [
        "colours.onnx",
        "/no/such/library.so",
        "`pip install onnxruntime`",
        "`cargo xtask setup`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn an_onnx_module_is_profiled() {
    let folder = Folder::of(&colours(Named("batch"), SIDE).model());
    let output = folder.command(&["profile", "p.yaml"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let profile = std::fs::read_to_string(folder.path().join("p.profile.yaml")).unwrap();
    assert!(profile.contains("colours.onnx"), "{profile}");
}
