//! Files that commands write: whole or not there, and found before the work when they cannot be written. Real processes of the
//! program; a disk is full for a process whose files may have no bytes (`ulimit -f 0`).

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::TestServer;
use crate::support::archive::shipped;

const PIPELINE: &str = "name: p\nslo: 1s\nmodules:\n  light: { op: classifier, variants: [{ model: light.pt, input: 64 }], \
                        inputs: { image: $source.frame }, batch: { max: 2 } }\noutputs: { light: $light.labels }\n";
const SKY: &str = r#"
name: sky
slo: 5s
modules:
  sky: { op: daylight, inputs: { image: $source.frame }, device: "emulated:0" }
outputs: { sky: $sky.labels }
"#;

/// A pipeline of one classifier, with its model.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["light.pt", "light.labels"] {
        std::fs::copy(shipped(name), folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("p.yaml"), PIPELINE).unwrap();
    folder
}

/// Runs the program in a folder.
fn ran(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    let command = command.current_dir(folder).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

/// The same where no byte can be written to a file.
fn ran_without_space(folder: &Path, arguments: &[&str]) -> Output {
    // Without its signal the limit is an error of the write, as a full disk is.
    let mut command = Command::new("sh");
    command
        .current_dir(folder)
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_spillgate"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const PROFILE: [&str; 6] = ["profile", "p.yaml", "--rounds", "3", "--warm-up", "1"];

// Over five seconds: it measures a model twice.
#[test]
fn a_profile_is_whole_or_the_old_one_and_no_part_of_it_passes() {
    let folder = folder();
    let at = folder.path();
    let first = ran(at, &PROFILE);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let file = at.join("p.profile.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    let before = names(at);

    let full = ran_without_space(at, &PROFILE);
    let (shown, told) = (text(&full.stdout), text(&full.stderr));
    assert_eq!(full.status.code(), Some(1), "{told}");
    assert!(
        told.contains("cannot write p.profile.yaml") && told.contains("File too large"),
        "{told}"
    );
    assert!(
        shown.contains("cpu light light.pt@64 batch 2: mean"),
        "{shown}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), good);
    assert_eq!(names(at), before, "nothing stays beside");

    // Cut after its first batch size.
    let cut: Vec<&str> = good.lines().collect();
    std::fs::write(&file, cut[..cut.len() - 1].join("\n")).unwrap();
    let refused = ran(at, &["validate", "p.yaml"]);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(78), "{told}");
    assert!(
        told.starts_with(
            "error: p.profile.yaml:2: entries: the file has 2 entries, and says 3: it was cut off"
        ),
        "{told}"
    );
}

#[test]
fn what_cannot_be_written_is_found_before_anything_runs() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let url = format!("http://{address}");
    let commands: [&[&str]; 8] = [
        &["profile", "p.yaml", "--out", "gone/x"],
        &[
            "serve",
            "p.yaml",
            "--listen",
            &address,
            "--no-admin",
            "--port-file",
            "gone/x",
        ],
        &[
            "trace",
            "00000000000000000000000000000001",
            "--jaeger",
            &url,
            "--svg",
            "gone/x",
        ],
        &["bench", "--rate", "1", "--server", &url, "--json", "gone/x"],
        &["stream", "scene", "--server", &url, "--results", "gone/x"],
        &["stream", "scene", "--server", &url, "--plot", "gone/x"],
        &[
            "stream",
            "scene",
            "--server",
            &url,
            "--save-video",
            "gone/x",
        ],
        &[
            "stream",
            "scene",
            "--server",
            &url,
            "--save-frames",
            "p.yaml/x",
        ],
    ];
    for command in commands {
        let output = ran(folder.path(), command);
        let told = text(&output.stderr);
        assert!(!output.status.success(), "{command:?}: {told}");
        let named = told.contains("cannot write gone/x: it is written beside, in gone")
            || told.contains("cannot make the folder p.yaml/x");
        assert!(named, "{command:?}: {told}");
        assert_eq!(text(&output.stdout), "", "{command:?}");
    }
    let reached = listener.accept().map_err(|error| error.kind());
    assert_eq!(
        reached.map(|_| ()),
        Err(ErrorKind::WouldBlock),
        "no server was called"
    );
}

/// Runs `stream` or `bench` on a server of this process, without space for files.
async fn without_space(
    server: &TestServer,
    folder: &TempDir,
    arguments: &'static [&'static str],
) -> Output {
    let (folder, url) = (folder.path().to_owned(), server.url());
    let run = move || {
        let mut all = arguments.to_vec();
        all.extend(["--server", &url]);
        ran_without_space(&folder, &all)
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_during_a_run_leaves_the_summary_and_the_old_file() {
    let server = TestServer::live(&[SKY], |_| {}).await;
    let folder = tempfile::tempdir().unwrap();
    const STREAM: [&str; 6] = ["stream", "scene", "--frames", "3", "--fps", "30"];
    const CASES: [&[&str]; 5] = [
        &[
            STREAM[0],
            STREAM[1],
            STREAM[2],
            STREAM[3],
            STREAM[4],
            STREAM[5],
            "--results",
            "old",
        ],
        &[
            STREAM[0], STREAM[1], STREAM[2], STREAM[3], STREAM[4], STREAM[5], "--plot", "old",
        ],
        &[
            STREAM[0],
            STREAM[1],
            STREAM[2],
            STREAM[3],
            STREAM[4],
            STREAM[5],
            "--save-video",
            "old",
        ],
        &[
            STREAM[0],
            STREAM[1],
            STREAM[2],
            STREAM[3],
            STREAM[4],
            STREAM[5],
            "--save-frames",
            ".",
        ],
        &[
            "bench",
            "--rate",
            "20",
            "--duration",
            "100ms",
            "--json",
            "old",
        ],
    ];
    for name in ["old", "frame-000000.jpg"] {
        std::fs::write(folder.path().join(name), "whole").unwrap();
    }
    for case in CASES {
        let output = without_space(&server, &folder, case).await;
        let (shown, told) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{case:?}: {told}");
        assert!(shown.contains("completed "), "{case:?}: {shown} {told}");
        assert!(
            told.contains("cannot write") && told.contains("File too large"),
            "{case:?}: {told}"
        );
        assert_eq!(
            names(folder.path()),
            ["frame-000000.jpg", "old"],
            "{case:?}"
        );
        for name in ["old", "frame-000000.jpg"] {
            assert_eq!(
                std::fs::read_to_string(folder.path().join(name)).unwrap(),
                "whole",
                "{case:?}"
            );
        }
    }
    server.stop().await;
}
