//! Families whose models share the memory of a device under a placement.

use std::io::Write;

use zip::CompressionMethod;
use zip::write::{FileOptions, ZipWriter};

use super::*;

/// The same model with bytes that are in no one's way.
fn padded(bytes: Vec<u8>, by: usize) -> Vec<u8> {
    let mut zip = ZipWriter::new_append(Cursor::new(bytes)).unwrap();
    let options = FileOptions::default().compression_method(CompressionMethod::Stored);
    zip.start_file("light/extra/padding", options).unwrap();
    zip.write_all(&vec![0; by]).unwrap();
    zip.finish().unwrap().into_inner()
}

// Over five seconds: an architecture is measured, and nine models are loaded time and again.
#[test]
fn members_share_the_memory_of_two_and_bad_ones_fail_alone() {
    share_the_memory_of_two("spillgate", "more memory than any device has");
}

// Over five seconds: an architecture is measured, and nine models are loaded time and again.
#[test]
fn members_whose_batches_brokers_form_do_so_too() {
    share_the_memory_of_two("brokers", "more memory than its device has");
}

fn share_the_memory_of_two(placement: &str, too_large: &str) {
    let folder = Folder::new(&format!("placed-{placement}"), "");
    for i in 1..=8 {
        folder.member(&format!("a{i}"), &model("", i));
    }
    folder.member("b", &model(&code(1), 7));
    folder.member("bit", &damaged(model("", 0)));
    folder.member("large", &padded(model("", 3), 40 << 20));
    // It has the architecture of the others, and comes before them.
    folder.member("a0", &damaged(model("", 0)));
    let device = ["--device", "cpu,memory=32MiB", "--placement", placement];
    let served = folder.serve_with(&device);
    let admin = served.admin();
    let line = served.line_with("cannot be measured");
    assert!(line.contains("a0"), "{line}");
    served.line_with("measured: one of its architecture");
    served.line_with("can be served");
    // All are cold at once.
    let all = || (1..=8).map(|i| format!("a{i}")).chain(["b".to_owned()]);
    let url = served.address.clone();
    std::thread::scope(|scope| {
        for member in all() {
            let address = url.clone();
            scope.spawn(move || Served::at(address, None, channel().1).ask(&member).unwrap());
        }
    });
    // Each gives way to others, and comes back.
    for _ in 0..2 {
        for member in all() {
            served.ask(&member).unwrap();
        }
        let text = served.failure("bit");
        assert!(text.contains("is damaged: Invalid checksum"), "{text}");
        let status = served.ask("large").unwrap_err();
        let text = status.message();
        assert!(text.contains(too_large), "{text}");
    }
    let did = served.did(&admin);
    assert!(
        did.pages <= 2 && did.loads > 9 && did.failed_loads > 0,
        "{did:?}"
    );
    // At the least the input of a batch of two.
    let input = 2 * 3 * 48 * 48 * 4;
    assert!(did.workspace > input && did.workspace < 64 << 20, "{did:?}");
    assert_eq!(served.ask("d").unwrap_err().code(), Code::NotFound);
}

#[test]
fn memory_for_a_device_that_is_not_there_and_too_little_are_errors_at_the_start() {
    let folder = Folder::new("no-room", "");
    folder.member("a", &padded(model("", 0), 20 << 20));
    let pipeline = folder.0.join("p.yaml");
    let text = std::fs::read_to_string(&pipeline).unwrap();
    std::fs::write(&pipeline, text.replace("models: m/*.pt", "model: m/a.pt")).unwrap();
    let profile = folder.0.join("p.profile.yaml");
    let text = std::fs::read_to_string(&profile).unwrap();
    std::fs::write(&profile, text.replace("m/*.pt", "m/a.pt")).unwrap();
    let failed = |device: &str| {
        let mut command = folder.command("serve");
        command.args(["--listen", "127.0.0.1:0", "--no-admin", "--device", device]);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = failed("cuda:7,memory=16MiB");
    let part = "cuda:7: memory for weights is given for it, but no module runs on it; modules run on cpu:0";
    assert!(text.contains(part), "{text}");
    let text = failed("cpu,memory=16MiB");
    let part =
        "the model of module light takes 2 pages of 16 MiB, and the device has 1 for weights";
    assert!(text.contains(part), "{text}");
    assert!(text.contains("--device cpu:0,memory=32MiB"), "{text}");
}

/// Memory for one of the models.
const ONE: [&str; 2] = ["--device", "cpu,memory=16MiB"];

/// What its device did.
#[derive(Debug)]
struct Did {
    pages: u64,
    loads: u64,
    failed_loads: u64,
    workspace: u64,
}

impl Served {
    /// As `spillgate status` says; `admin` is its admin port.
    pub(super) fn weights(&self, admin: &str) -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
        let output = command
            .args(["status", "--json", "--admin", admin])
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let devices = status["devices"].as_array().unwrap();
        let weights = devices.iter().map(|device| &device["weights"]);
        let mut weights = weights.filter(|weights| weights.is_object());
        weights.next().expect("a device with weights").clone()
    }

    fn did(&self, admin: &str) -> Did {
        let weights = self.weights(admin);
        let number = |name: &str| {
            weights[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{weights}"))
        };
        Did {
            pages: number("pages"),
            loads: number("loads"),
            failed_loads: number("failed_loads"),
            workspace: number("workspace"),
        }
    }

    /// Its admin port, which its log names.
    pub(super) fn admin(&self) -> String {
        let line = self.line_with("admin on http://");
        let (_, rest) = line.split_once("admin on http://").unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    }
}

#[test]
fn names_of_equal_files_share_one_model() {
    let folder = Folder::new("equal", "default_model: bit");
    let bytes = model("", 1);
    for member in ["a", "b", "c"] {
        folder.member(member, &bytes);
    }
    // Its checksums are those of the others.
    folder.member("bit", &damaged(bytes));
    let served = folder.serve_with(&ONE);
    let admin = served.admin();
    let line = served.line_with("the default of a family cannot be loaded");
    assert!(line.contains("is damaged: Invalid checksum"), "{line}");
    for _ in 0..2 {
        for member in ["a", "b", "c"] {
            served.ask_in_the_end(member).unwrap();
        }
    }
    let did = served.did(&admin);
    assert_eq!((did.pages, did.loads), (1, 1), "{did:?}");
    let text = served.failure("bit");
    assert!(text.contains("is damaged: Invalid checksum"), "{text}");
    served.ask("b").unwrap();
    let did = served.did(&admin);
    assert_eq!((did.loads, did.failed_loads), (2, 1), "{did:?}");
}

#[test]
fn a_shared_model_is_read_from_any_of_its_files_that_is_as_it_was() {
    let folder = Folder::new("any", "default_model: other");
    let bytes = model("", 1);
    for member in ["a", "b"] {
        folder.member(member, &bytes);
    }
    folder.member("other", &model("", 2));
    let served = folder.serve_with(&ONE);
    served.line_with("can be served");
    for member in ["a", "b", "other"] {
        served.ask(member).unwrap();
    }
    // The shared model is not in memory any more.
    folder.member("a", b"no model any more");
    for member in ["a", "b", "other"] {
        served.ask(member).unwrap();
    }
    std::fs::remove_file(folder.path("b")).unwrap();
    for member in ["a", "b"] {
        let text = served.ask(member).unwrap_err().message().to_owned();
        for part in [
            "its 2 names had equal files when they were listed, and none of these can be loaded",
            "model a: its file m/a.pt changed since it was listed; restart the server",
            "model b: its file m/b.pt cannot be had: No such file",
        ] {
            assert!(text.contains(part), "{text}");
        }
        served.ask("other").unwrap();
    }
    folder.member("a", &bytes);
    served.read_again();
    served.ask_in_the_end("a").unwrap();
    served.ask("other").unwrap();
    assert_eq!(served.ask("b").unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_model_with_other_names_of_its_classes_is_another_one() {
    let folder = Folder::new("labels", "default_model: a");
    let pipeline = folder.0.join("p.yaml");
    let text = std::fs::read_to_string(&pipeline).unwrap();
    let own = text.replace(", labels: light.labels", "");
    assert_ne!(own, text);
    std::fs::write(&pipeline, own).unwrap();
    let bytes = model("", 1);
    let labels = std::fs::read_to_string(shipped("light.labels")).unwrap();
    for (member, labels) in [("a", labels.clone()), ("b", labels.to_uppercase())] {
        folder.member(member, &bytes);
        std::fs::write(folder.path(member).with_extension("labels"), labels).unwrap();
    }
    let served = folder.serve_with(&ONE);
    let admin = served.admin();
    for member in ["a", "b", "a"] {
        served.ask_in_the_end(member).unwrap();
    }
    assert_eq!(served.did(&admin).loads, 2);
    // Equal now; a server that reads its files again finds that labels changed.
    std::fs::write(folder.path("b").with_extension("labels"), labels).unwrap();
    served.read_again();
    for member in ["a", "b", "a"] {
        served.ask_in_the_end(member).unwrap();
    }
    assert_eq!(served.did(&admin).loads, 0);
}

// Over five seconds: 3600 files are written and read.
#[test]
fn thousands_of_equal_copies_are_one_model() {
    const MEMBERS: usize = 3600;
    let folder = Folder::new("copies", "default_model: cam-0");
    // Half of them are of one content. Of the others each is one of its own.
    let bytes = model("", 0);
    for n in 0..MEMBERS / 2 {
        folder.member(&format!("cam-{n}"), &bytes);
        folder.member(&format!("own-{n}"), &model("", n + 1));
    }
    let began = Instant::now();
    let served = folder.serve_with(&ONE);
    served.ask("cam-1799").unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let admin = served.admin();
    assert_eq!(served.did(&admin).loads, 0);
    for member in ["own-0", "own-1799", "cam-7"] {
        served.ask_in_the_end(member).unwrap();
    }
    assert_eq!(served.did(&admin).loads, 3);
}

/// Also of a model that was in memory before and gave way.
#[test]
fn a_file_that_changes_or_vanishes_fails_alone() {
    let folder = Folder::new("placed-changed", "default_model: a");
    for (i, member) in ["a", "b", "c", "d"].iter().enumerate() {
        folder.member(member, &model("", i));
    }
    let served = folder.serve_with(&ONE);
    served.line_with("can be served");
    for member in ["b", "c", "d", "a"] {
        served.ask(member).unwrap();
    }
    // `a` is in memory; `b` and `c` were.
    folder.member("a", b"no model any more");
    folder.member("b", &model(&code(3), 0));
    std::fs::remove_file(folder.path("c")).unwrap();
    served.ask("a").unwrap();
    served.ask("d").unwrap();
    for _ in 0..2 {
        for (member, part) in [
            (
                "a",
                "its file m/a.pt changed since it was listed; restart the server, or let it read its files again (SIGHUP)",
            ),
            (
                "b",
                "its file m/b.pt changed since it was listed; restart the server",
            ),
            ("c", "its file m/c.pt cannot be had: No such file"),
        ] {
            let text = served.failure(member);
            assert!(text.contains(part), "{text}");
            served.ask("d").unwrap();
        }
    }
    served.read_again();
    served.ask_in_the_end("b").unwrap();
    served.ask("d").unwrap();
    assert_eq!(served.ask("c").unwrap_err().code(), Code::NotFound);
    assert!(served.failure("a").contains("no TorchScript model"));
    // What comes back is found.
    folder.member("a", &model("", 0));
    folder.member("c", &model("", 2));
    served.read_again();
    for member in ["a", "c", "b", "d"] {
        served.ask_in_the_end(member).unwrap();
    }
}

impl Folder {
    /// Puts the pipelines `p` and `q` into it, whose modules have the models `a` and `b` and no family.
    fn plain(self, a: &[u8], b: &[u8]) -> Self {
        let text = std::fs::read_to_string(self.0.join("p.yaml")).unwrap();
        for (name, member, bytes) in [("p", "a", a), ("q", "b", b)] {
            self.member(member, bytes);
            let own = text.replace("models: m/*.pt", &format!("model: m/{member}.pt"));
            let own = own.replace("name: p", &format!("name: {name}"));
            std::fs::write(self.0.join(format!("{name}.yaml")), own).unwrap();
            let times = "{ alpha: 2ms, beta: 2ms, max: 2 }";
            let profile = format!("cpu: {{ light: {{ m/{member}.pt: {times} }} }}\n");
            std::fs::write(self.0.join(format!("{name}.profile.yaml")), profile).unwrap();
        }
        self
    }
}

#[test]
fn pipelines_with_equal_files_share_one_model() {
    let bytes = model("", 1);
    let folder = Folder::new("placed-equal", "").plain(&bytes, &bytes);
    let served = folder.serve_with(&["q.yaml", ONE[0], ONE[1]]);
    let admin = served.admin();
    for pipeline in ["p", "q", "p", "q"] {
        served.ask_of(pipeline, "").unwrap();
    }
    let did = served.did(&admin);
    assert_eq!(
        (did.pages, did.loads),
        (1, 0),
        "loaded at the start: {did:?}"
    );
}

/// The same of modules with one model each, of two pipelines that share a device.
#[test]
fn a_model_file_that_changes_fails_its_pipeline_alone() {
    let folder = Folder::new("placed-plain", "").plain(&model("", 0), &model("", 1));
    let served = folder.serve_with(&["q.yaml", "--device", "cpu,memory=16MiB"]);
    for _ in 0..2 {
        served.ask_of("p", "").unwrap();
        served.ask_of("q", "").unwrap();
    }
    // That of `q` is in memory.
    folder.member("a", &model(&code(1), 0));
    folder.member("b", &model("", 2));
    served.ask_of("q", "").unwrap();
    for _ in 0..2 {
        let status = served.ask_of("p", "").unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        let part = "m/a.pt: its content is not what was checked when the server listed it; restart the server, or let it read its files again (SIGHUP)";
        assert!(status.message().contains(part), "{status}");
    }
    served.read_again();
    for _ in 0..2 {
        served.ask_of("p", "").unwrap();
        served.ask_of("q", "").unwrap();
    }
    // What is gone when files are read again changes nothing.
    std::fs::remove_file(folder.path("b")).unwrap();
    served.ask_of("p", "").unwrap();
    let status = served.ask_of("q", "").unwrap_err();
    assert!(
        status.message().contains("m/b.pt: No such file"),
        "{status}"
    );
    served.ask_of("p", "").unwrap();
}
