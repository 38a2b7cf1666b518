//! `spillgate stream` as a process: what it reads from a pipe, what it writes into one, and its exit code.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::TestServer;

const SKY: &str = r#"
name: sky
slo: 5s
modules:
  sky: { op: daylight, inputs: { image: $source.frame }, device: "emulated:0" }
outputs: { sky: $sky.labels }
"#;

/// Three frames of 4x2 pixels, as ffmpeg writes them.
const FRAMES: &[u8] = include_bytes!("../../../../client/src/source/video/three-5.1.nut");

/// A folder with a program named ffmpeg: a camera that gives three frames, and ends.
struct Camera(PathBuf);

impl Camera {
    /// Each test names its own: the tests of a process run beside each other.
    fn new(name: &str) -> Self {
        let folder = format!("spillgate-pipes-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("ffmpeg");
        std::fs::write(folder.join("frames"), FRAMES).unwrap();
        let announced = |n: usize| {
            let says = "fmt:rgb24 sar:1/1 s:4x2 i:P iskey:1 type:I";
            format!(
                "echo '[Parsed_showinfo_0 @ 0x1] [info] n: {n} pts: {n} pts_time:{n} {says}' >&2\n"
            )
        };
        let script = [0, 1, 2].map(announced).concat();
        let frames = folder.join("frames");
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = -version ]; then echo ffmpeg version 5.1; exit; fi\n{script}cat {}\n",
            frames.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        Camera(folder)
    }
}

/// How long a stream may take before its test fails.
const PATIENCE: Duration = Duration::from_secs(60);

impl Drop for Camera {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `spillgate stream` with these arguments and this standard input; one that does not end fails the test.
async fn stream(
    server: &TestServer,
    arguments: &[&str],
    input: Vec<u8>,
    camera: &Camera,
) -> Output {
    let path = std::env::var("PATH").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .arg("stream")
        .args(arguments)
        .args(["--server", &server.url()])
        .env("PATH", format!("{}:{path}", camera.0.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // A program that wants no input closes its end.
    let _ = child.stdin.take().unwrap().write_all(&input).await;
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output());
    ended.await.expect("it ends").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_source_that_ends_is_exit_code_1_and_one_that_is_waited_for_is_told() {
    let server = TestServer::live(&[SKY], |_| {}).await;
    let camera = Camera::new("live");
    // Somebody takes its connections; the pictures come from the program.
    let taker = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("rtsp://{}/1", taker.local_addr().unwrap());
    let live = [&*address, "--fps", "20"];
    let ended = stream(&server, &live, vec![], &camera).await;
    assert_eq!(ended.status.code(), Some(1));
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(error.contains("--reconnect waits for it"), "{error}");

    let waiting = [&address, "--fps", "20", "--reconnect", "--frames", "3"];
    let waited = stream(&server, &waiting, vec![], &camera).await;
    let told = String::from_utf8_lossy(&waited.stdout);
    assert_eq!(waited.status.code(), Some(0), "{told}");
    for line in [
        "trying to reach it again",
        "the source is back after",
        "was lost and came back",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pixels_come_in_by_a_pipe_and_results_leave_by_one() {
    let server = TestServer::live(&[SKY], |_| {}).await;
    let camera = Camera::new("pixels");
    let pipes = ["-", "--raw-video", "8x4@20", "--results", "-"];
    let output = stream(&server, &pipes, vec![7; 3 * 8 * 4 * 3], &camera).await;
    assert_eq!(output.status.code(), Some(0));
    let results = String::from_utf8(output.stdout).unwrap();
    let outcomes: Vec<serde_json::Value> = results
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["completed"; 3]);
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("completed         3"), "{shown}");
    server.stop().await;
}
