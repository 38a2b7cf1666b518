//! Gateways that are restarted one after the other while clients stream: no frame is lost.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

use super::{PATIENCE, Report, Up, send};
use crate::support::machine::Machine;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../modules/models/light.pt");
/// What frames may take, on a busy machine.
const SLO: &str = "10s";
const CLIENTS: usize = 2;
/// Restarts, where the variable `SPILLGATE_RESTARTS` asks for no other number.
const RESTARTS: usize = 4;

/// `spillgate stream` to both gateways, until it is told to end.
fn stream(up: &Up, results: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args(["stream", "scene:size=64x64", "--fps", "4", "--quiet"])
        .args(["--server", &up.gateways.join(",")])
        .args(["--clients", &CLIENTS.to_string()])
        .args(["--results", "-"])
        .stdout(std::fs::File::create(results).unwrap())
        .spawn()
        .unwrap()
}

/// `spillgate bench` to both gateways, until it is told to end.
fn bench(up: &Up) -> Child {
    Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args(["bench", "--json", "-", "--rate", "2", "--duration", "60m"])
        .args(["--connections", "4", "--server", &up.gateways.join(",")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until so many frames are answered.
fn until_answered(results: &Path, frames: usize) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(results).unwrap_or_default();
        if text.lines().count() >= frames {
            return;
        }
        assert!(Instant::now() < give_up, "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Restarts the two gateways in turn, so often in all.
fn restarts(name: &str, n: usize) {
    let pipeline = format!(
        "name: pictures
slo: {SLO}
policy: {{ drop: none }}
modules:
  light: {{ op: classifier, model: {MODEL}, inputs: {{ image: $source.frame }}, device: emulated, batch: {{ max: 1 }}, queue: 1024 }}
outputs: {{ light: $light.labels }}
"
    );
    let profile =
        format!("emulated: {{ light: {{ \"{MODEL}\": {{ alpha: 9ms, beta: 1ms, max: 1 }} }} }}");
    let mut up = Up::serving(
        Machine::shared(),
        name,
        (&pipeline, &profile),
        &["--gateways", "2"],
        &[("SPILLGATE_DRAIN_DELAY", "300ms")],
    );
    let results = up.folder.join("results.jsonl");
    let mut client = stream(&up, &results);
    let mut calls = bench(&up);
    until_answered(&results, 10 * CLIENTS);
    for i in 0..n {
        let gateway = format!("gateway-{}", i % 2);
        send(up.pid(&gateway), Signal::SIGTERM);
        up.waits_for(&format!("{gateway}: ended (exit status: 0)"));
        up.waits_for(&format!("{gateway}: ready"));
    }
    send(Pid::from_raw(client.id() as i32), Signal::SIGINT);
    send(Pid::from_raw(calls.id() as i32), Signal::SIGINT);
    let report = Report::of(&mut calls);
    assert!(report.requests > 0, "{report:?}");
    assert_eq!(
        report.completed + report.late,
        report.requests,
        "{report:?}"
    );
    let status = client.wait().unwrap();
    assert!(status.success(), "{status}");
    let mut frames = vec![Vec::new(); CLIENTS];
    for line in std::fs::read_to_string(&results).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let served = matches!(line["outcome"].as_str(), Some("completed" | "late"));
        assert!(served, "{line}");
        let number = |field: &str| line[field].as_u64().unwrap();
        frames[number("client") as usize].push(number("frame"));
    }
    for mut of_client in frames {
        of_client.sort_unstable();
        let n = of_client.len() as u64;
        assert!(of_client.into_iter().eq(0..n), "each frame once");
    }
}

// Over five seconds: six processes start, and gateways restart.
#[test]
fn gateways_that_are_restarted_lose_no_frame() {
    let n = std::env::var("SPILLGATE_RESTARTS").map_or(RESTARTS, |n| n.parse().unwrap());
    restarts("restarts", n);
}
