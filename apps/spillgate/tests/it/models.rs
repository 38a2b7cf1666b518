//! Model files that mean no good: TorchScript made from a shipped model with other code, checked by the program itself.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use crate::support::archive::{model, shipped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A folder with a pipeline of one classifier, `light.pt`, that goes with its test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(shipped("light.labels"), folder.path().join("light.labels")).unwrap();
        let folder = Folder(folder);
        folder.pipeline("light.pt");
        folder
    }

    fn pipeline(&self, model: &str) {
        self.batched(model, 1);
    }

    /// With batches of so many.
    fn batched(&self, model: &str, max: u32) {
        let text = format!(
            "name: p\nslo: 1s\nmodules:\n  light:\n    op: classifier\n    variants: [{{ model: {model}, input: 64 }}]\n    \
             inputs: {{ image: $source.frame }}\n    batch: {{ max: {max} }}\noutputs: {{ light: $light.labels }}\n"
        );
        std::fs::write(self.0.path().join("p.yaml"), text).unwrap();
    }

    /// The shipped model, whose forward pass begins with this code.
    fn model(&self, code: &str) {
        std::fs::write(self.0.path().join("light.pt"), model(code, 0)).unwrap();
    }

    /// Runs `spillgate validate` on the pipeline.
    fn validate(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
        command
            .current_dir(self.0.path())
            .args(["validate", "p.yaml"])
            .args(arguments);
        command.output().unwrap()
    }

    /// What is said of the model, which is refused with its file and line.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.validate(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{text}");
        assert!(
            text.starts_with("error: p.yaml:4: modules.light: "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }
}

#[test]
fn a_good_model_passes_and_an_error_on_its_example_is_a_warning() {
    let folder = Folder::new();
    folder.model("");
    let output = folder.validate(&[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*text), (Some(0), ""));
    folder.model("    ops.prim.RaiseException(\"not me\")\n");
    let output = folder.validate(&[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("fails on its own example"), "{text}");
}

#[test]
fn a_trace_that_holds_its_batch_of_one_is_refused_where_batches_may_be_larger() {
    let folder = Folder::new();
    folder.model("    argument_1 = torch.reshape(argument_1, [1, 3, 64, 64])\n");
    assert_eq!(folder.validate(&[]).status.code(), Some(0));
    folder.batched("light.pt", 4);
    let text = folder.refused(&[]);
    assert!(
        text.contains("it runs with a batch of 1 and not of 2"),
        "{text}"
    );
    assert!(text.contains("write batch: { max: 1 }"), "{text}");
    // It gives one row for two pictures.
    folder.model("    argument_1 = torch.slice(argument_1, 0, 0, 1)\n");
    let text = folder.refused(&[]);
    assert!(
        text.contains("expected an output of shape [2, 4]"),
        "{text}"
    );
}

#[test]
fn code_that_opens_files_is_refused_and_opens_none() {
    let folder = Folder::new();
    let target = folder.0.path().join("written");
    let target_name = target.display();
    let rest = "True, 16, dtype=6, layout=0, device=torch.device(\"cpu\"), pin_memory=False";
    // However it is written, and also where the run on the example does not come.
    let cases = [
        (
            format!("    _9 = torch.from_file(\"{target_name}\", {rest})\n    print(_9)\n"),
            "aten::from_file",
        ),
        (
            format!("    _9 = torch.from_file (\"{target_name}\", {rest})\n    print(_9)\n"),
            "aten::from_file",
        ),
        (
            format!("    _9 = ops.aten.from_file (\"{target_name}\", {rest})\n    print(_9)\n"),
            "aten::from_file",
        ),
        (
            format!("    torch.save (1, \"{target_name}\")\n"),
            "aten::save",
        ),
        (
            format!(
                "    if bool(torch.gt(torch.sum(argument_1), 1e30)):\n      torch.save(1, \"{target_name}\")\n    else:\n      pass\n"
            ),
            "aten::save",
        ),
    ];
    for (code, operator) in cases {
        folder.model(&code);
        let said = folder.refused(&[]);
        let part =
            format!("names {operator}, which is not among the operators that models may use");
        assert!(said.contains(&part), "{code}: {said}");
        assert!(!target.exists(), "{code}");
    }
}

#[test]
fn a_loop_without_end_is_refused_when_its_time_is_over() {
    let folder = Folder::new();
    folder.model("    _8 = 0\n    _9 = True\n    while _9:\n      _8 = torch.add(_8, 1)\n      _9 = torch.gt(_8, -1)\n");
    let said = folder.refused(&["--model-time", "2"]);
    assert!(
        said.contains("light.pt: loading and running it took more than 2 s"),
        "{said}"
    );
}

#[test]
fn code_nested_too_deeply_is_refused_and_aborts_nothing() {
    let folder = Folder::new();
    let (open, close) = ("torch.neg(".repeat(200_000), ")".repeat(200_000));
    folder.model(&format!("    _9 = {open}argument_1{close}\n"));
    let said = folder.refused(&[]);
    assert!(
        said.contains("light.pt: it crashed the process that checked it"),
        "{said}"
    );
}

#[test]
fn a_model_that_wants_too_much_memory_is_refused() {
    let folder = Folder::new();
    folder.model("    _9 = torch.zeros([3000000000], dtype=1, layout=0, device=torch.device(\"cpu\"), pin_memory=False)\n    print(torch.sum(_9))\n");
    let output = folder.validate(&["--model-memory", "1024"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("more than the 1024 MiB that a check may use"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(78), "{text}");
}

#[test]
fn models_outside_of_their_folder_are_refused_also_by_links_and_dots() {
    let folder = Folder::new();
    folder.model("");
    let inside = folder.0.path().join("models");
    std::fs::create_dir(&inside).unwrap();
    let confined = ["--model-dir", "models"];
    assert!(folder.refused(&confined).contains("outside of --model-dir"));
    for name in ["light.pt", "light.labels"] {
        std::fs::copy(folder.0.path().join(name), inside.join(name)).unwrap();
    }
    folder.pipeline("models/light.pt");
    assert_eq!(folder.validate(&confined).status.code(), Some(0));
    folder.pipeline("models/../light.pt");
    assert!(folder.refused(&confined).contains("outside of --model-dir"));
    std::os::unix::fs::symlink("../light.pt", inside.join("link.pt")).unwrap();
    folder.pipeline("models/link.pt");
    assert!(folder.refused(&confined).contains("outside of --model-dir"));
}

#[test]
fn wrong_files_are_named_with_the_cure_before_anything_is_loaded() {
    let folder = Folder::new();
    std::fs::write(
        folder.0.path().join("light.pt"),
        "version https://git-lfs.github.com/spec/v1\n",
    )
    .unwrap();
    assert!(folder.refused(&[]).contains("`git lfs pull` fetches it"));
    std::fs::write(folder.0.path().join("light.pt"), b"\x08\x07\x12\x07pytorch").unwrap();
    let said = folder.refused(&[]);
    assert!(
        said.contains("it is an ONNX model without a graph"),
        "{said}"
    );
}

/// Starts `spillgate serve` on the pipeline, and gives its standard error from the line on that says that it listens.
fn serve(folder: &Folder) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .current_dir(folder.0.path())
        .args(["serve", "p.yaml", "--listen", "127.0.0.1:0", "--no-admin"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    lines.find(|line| line.as_ref().unwrap().contains("listening on"));
    (server, lines)
}

#[test]
fn a_reload_takes_models_from_the_folders_of_the_start_alone() {
    let folder = Folder::new();
    folder.model("");
    let (mut server, mut lines) = serve(&folder);
    let elsewhere = tempfile::tempdir().unwrap();
    for name in ["light.pt", "light.labels"] {
        std::fs::copy(folder.0.path().join(name), elsewhere.path().join(name)).unwrap();
    }
    let model = elsewhere.path().canonicalize().unwrap().join("light.pt");
    folder.pipeline(&model.display().to_string());
    kill(Pid::from_raw(server.id() as i32), Signal::SIGHUP).unwrap();
    let said = lines.find(|line| line.as_ref().unwrap().contains("modules.light: "));
    server.kill().unwrap();
    server.wait().unwrap();
    let said = said.unwrap().unwrap();
    let part = format!("it lies at {}, outside of the folders", model.display());
    assert!(
        said.contains(&part) && said.contains("--model-dir"),
        "{said}"
    );
}

/// A thread that entered landlock gains no privileges any more, which its status shows.
#[test]
fn threads_that_run_models_or_decode_are_confined_and_the_others_are_not() {
    let folder = Folder::new();
    folder.model("");
    let (mut server, _lines) = serve(&folder);
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let of = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim().to_owned()
        };
        all.push((of("Name:"), of("NoNewPrivs:") == "1"));
    }
    server.kill().unwrap();
    server.wait().unwrap();
    if all.iter().all(|(_, confined)| !confined) {
        return println!("skipped: no landlock here");
    }
    let devices: Vec<&(String, bool)> = all
        .iter()
        .filter(|(name, _)| name.starts_with("device "))
        .collect();
    assert!(devices.len() >= 2, "models and decoding: {all:?}");
    for (name, confined) in &all {
        let runs = name.starts_with("device ") || name.starts_with("load ");
        assert_eq!(*confined, runs, "{name}: {all:?}");
    }
}

#[test]
fn what_serve_would_refuse_validate_finds() {
    let folder = Folder::new();
    folder.model("");
    let text = std::fs::read_to_string(folder.0.path().join("p.yaml")).unwrap();
    std::fs::write(
        folder.0.path().join("p.yaml"),
        text.replace("batch: { max: 1 }", "device: emulated"),
    )
    .unwrap();
    let output = folder.validate(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(
        said.starts_with("error: p.yaml:4: ") && said.contains("no profile for"),
        "{said}"
    );
    assert_eq!(output.status.signal(), None);
}

// Over five seconds: the detector is measured before the changed file is loaded.
#[test]
fn a_file_that_changed_after_its_check_is_not_loaded() {
    let folder = Folder::new();
    folder.model("");
    for name in ["road.pt", "road.labels"] {
        std::fs::copy(shipped(name), folder.0.path().join(name)).unwrap();
    }
    // `detect` is measured for seconds before `light` is loaded.
    let text = "name: p\nslo: 1s\nmodules:\n  detect: { op: detector, variants: [{ model: road.pt, input: 320 }], inputs: { image: \
                $source.frame }, batch: { max: 16 } }\n  light: { op: classifier, variants: [{ model: light.pt, input: 64 }], \
                inputs: { image: $source.frame } }\noutputs: { light: $light.labels, vehicles: $detect.vehicles }\n";
    std::fs::write(folder.0.path().join("p.yaml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    command
        .current_dir(folder.0.path())
        .args(["serve", "p.yaml"])
        .args(ports);
    let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(server.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains(" measuring detect") && told.len() < 100 {
            folder.model("    print(1)\n");
        }
        // It would serve for ever.
        if line.contains(" listening on ") {
            server.kill().unwrap();
        }
        told.push(line);
    }
    let code = server.wait().unwrap().code();
    assert_eq!(code, Some(1), "{told:?}");
    let last = told.last().unwrap();
    assert!(
        last.contains("light.pt: its content is not what was checked"),
        "{told:?}"
    );
}
