//! A program with a module type of its own has the whole command line.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The example, which `cargo test` builds beside the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().join("../examples/own_module")
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder =
            std::env::temp_dir().join(format!("spillgate-own-program-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/own_module");
        fs::copy(example.join("pipeline.yaml"), folder.join("pipeline.yaml")).unwrap();
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

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_command_knows_the_types_of_its_program() {
    let folder = Folder::new();
    assert!(folder.run(&["modules"]).contains("daylight"));
    assert!(folder.run(&["schema"]).contains("daylight"));
    assert!(
        folder
            .run(&["validate", "pipeline.yaml"])
            .contains("ok: pipeline daylight")
    );
    folder.run(&["profile", "pipeline.yaml"]);
    folder.run(&["plan", "pipeline.yaml", "--rate", "5"]);

    let serve = [
        "serve",
        "pipeline.yaml",
        "--listen",
        "127.0.0.1:0",
        "--no-admin",
    ];
    let mut child = folder
        .command(&serve)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let serving = Serving(child);
    let mut said = |what: &str| {
        lines
            .find(|line| line.contains(what))
            .unwrap_or_else(|| panic!("it never says {what}"))
    };
    let listening = said("listening on ");
    let (_, address) = listening.split_once("listening on ").unwrap();
    folder.run(&["stream", "scene:", "--frames", "3", "--server", address]);
    let text = fs::read_to_string(folder.0.join("pipeline.yaml")).unwrap();
    fs::write(folder.0.join("pipeline.yaml"), text.replace("100", "120")).unwrap();
    kill(Pid::from_raw(serving.0.id() as i32), Signal::SIGHUP).unwrap();
    said("pipelines reloaded: daylight");
}
