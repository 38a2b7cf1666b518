//! A program with a module type of its own has the whole command line.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use image::{Rgb, RgbImage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value as Json, json};

/// The example, which `cargo test` builds beside the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().join("../examples/own_module")
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("spillgate-own-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/own_module");
        for file in ["pipeline.yaml", "spots.yaml"] {
            let text = fs::read_to_string(example.join(file)).unwrap();
            // Other work on the machine is to drop nothing.
            fs::write(folder.join(file), text.replace("slo: 1s", "slo: 30s")).unwrap();
        }
        Folder(folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut run = Command::new(program());
        run.args(arguments)
            .current_dir(&self.0)
            .stdin(Stdio::null());
        run
    }

    fn run(&self, arguments: &[&str]) -> String {
        let run: Output = self
            .command(arguments)
            .output()
            .expect("`cargo build --examples` makes the program");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{arguments:?}: {said}");
        String::from_utf8(run.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Serving {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Serving {
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let mut command = folder.command(arguments);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Serving {
            child,
            lines: Box::new(lines.map_while(Result::ok)),
        }
    }

    /// The rest of the next line that has this.
    fn said(&mut self, what: &str) -> String {
        let line = self.lines.find(|line| line.contains(what));
        let line = line.unwrap_or_else(|| panic!("it never says {what}"));
        let (_, rest) = line.split_once(what).unwrap();
        rest.to_owned()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_command_knows_the_types_of_its_program() {
    let folder = Folder::new("program");
    assert!(folder.run(&["modules"]).contains("daylight"));
    assert!(folder.run(&["schema"]).contains("daylight"));
    assert!(
        folder
            .run(&["validate", "pipeline.yaml"])
            .contains("ok: pipeline daylight")
    );
    folder.run(&["profile", "pipeline.yaml"]);
    folder.run(&["plan", "pipeline.yaml", "--rate", "5"]);

    let mut serving = Serving::start(&folder, &serve("pipeline.yaml"));
    let address = serving.said("listening on ");
    folder.run(&["stream", "scene:", "--frames", "3", "--server", &address]);
    let text = fs::read_to_string(folder.0.join("pipeline.yaml")).unwrap();
    fs::write(folder.0.join("pipeline.yaml"), text.replace("100", "120")).unwrap();
    kill(Pid::from_raw(serving.child.id() as i32), Signal::SIGHUP).unwrap();
    serving.said("pipelines reloaded: daylight");
}

/// The arguments with which one process serves.
fn serve(pipeline: &str) -> [&str; 5] {
    ["serve", pipeline, "--listen", "127.0.0.1:0", "--no-admin"]
}

/// Black with a red area of two steps, a blue one, and a green one that is the darkest.
fn picture() -> RgbImage {
    RgbImage::from_fn(128, 96, |x, y| match (x, y) {
        (10..30, 20..40) | (10..50, 40..60) => Rgb([255, 0, 0]),
        (64..80, 8..16) => Rgb([0, 0, 204]),
        (100..120, 70..90) => Rgb([0, 102, 0]),
        _ => Rgb([0, 0, 0]),
    })
}

/// What is said of the picture. The pipeline's bound is two objects.
fn expected() -> Json {
    let of = |object: u32, mut item: Json| {
        item["object"] = object.into();
        item["of"] = "spots".into();
        item
    };
    let outline = |object, points: &[[f32; 2]]| of(object, json!({ "polygons": [points] }));
    let points = |object, points: [[f64; 2]; 2]| {
        of(object, json!({ "points": points, "scores": [1.0, 0.5] }))
    };
    let spot =
        |corners: [f32; 4], score: f64| json!({ "box": corners, "label": "spot", "score": score });
    let square = |[x0, y0, x1, y1]: [f32; 4]| [[x0, y0], [x0, y1], [x1, y1], [x1, y0]];
    let (blue, green) = ([64.0, 8.0, 80.0, 16.0], [100.0, 70.0, 120.0, 90.0]);
    let red = [
        [10.0, 20.0],
        [10.0, 60.0],
        [50.0, 60.0],
        [50.0, 40.0],
        [30.0, 40.0],
        [30.0, 20.0],
    ];
    json!({
        "spots": [spot([10.0, 20.0, 50.0, 60.0], 1.0), spot(blue, 0.8), spot(green, 0.4)],
        "outlines": [outline(0, &red), outline(1, &square(blue)), outline(2, &square(green))],
        "points": [
            // 400 pixels around (20, 30), and 800 around (30, 50).
            points(0, [[26.6667, 43.3333], [10.5, 20.5]]),
            points(1, [[72.0, 12.0], [64.5, 8.5]]),
            points(2, [[110.0, 80.0], [100.5, 70.5]]),
        ],
        "colours": [
            // Black is in the box, too.
            of(0, json!({ "embedding": [1.0, 0.0, 0.0] })),
            of(1, json!({ "embedding": [0.0, 0.0, 1.0] })),
            of(2, json!({ "embedding": [], "left_out": "over_limit" })),
        ],
    })
}

/// Streams the picture, and returns what the client wrote of it.
fn streamed(folder: &Folder, address: &str) -> Json {
    picture().save(folder.0.join("spots.png")).unwrap();
    let stream = [
        "stream",
        "spots.png",
        "--server",
        address,
        "--results",
        "results.jsonl",
        "--save-frames",
        "saved",
    ];
    folder.run(&stream);
    let saved = fs::read_dir(folder.0.join("saved")).unwrap().next();
    let saved = image::open(saved.unwrap().unwrap().path())
        .unwrap()
        .into_rgb8();
    // The tint of the first mask: red with a part of the group's colour. What is left out is tinted, too: its mask is there.
    for (x, y) in [(40, 50), (110, 75)] {
        let difference = saved
            .get_pixel(x, y)
            .0
            .iter()
            .zip(picture().get_pixel(x, y).0);
        let difference: i32 = difference
            .map(|(a, b)| (i32::from(*a) - i32::from(b)).abs())
            .sum();
        assert!(difference > 40, "{x}, {y}");
    }
    let text = fs::read_to_string(folder.0.join("results.jsonl")).unwrap();
    let line: Json = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["outcome"], "completed", "{line}");
    line["outputs"].clone()
}

#[test]
fn masks_key_points_and_embeddings_are_served_by_one_process() {
    let folder = Folder::new("one");
    folder.run(&["profile", "spots.yaml"]);
    let mut serving = Serving::start(&folder, &serve("spots.yaml"));
    let address = serving.said("listening on ");
    assert_eq!(streamed(&folder, &address), expected());
}

// Over five seconds: it measures the modules, and four processes start.
#[test]
fn masks_key_points_and_embeddings_are_served_by_several_processes() {
    let folder = Folder::new("several");
    folder.run(&["profile", "spots.yaml"]);
    fs::create_dir_all(folder.0.join("set")).unwrap();
    let up = ["up", "spots.yaml", "--port", "0", "--folder", "set"];
    let mut serving = Serving::start(&folder, &up);
    let address = serving.said("all processes are ready; clients: ");
    assert_eq!(streamed(&folder, &address), expected());
    kill(Pid::from_raw(serving.child.id() as i32), Signal::SIGTERM).unwrap();
    assert!(serving.child.wait().unwrap().success());
}
