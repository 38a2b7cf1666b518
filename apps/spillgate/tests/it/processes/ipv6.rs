//! A machine without IPv4.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::{PIPELINE, PROFILE};

/// A command in a network of its own whose loopback has no address of IPv4.
fn without_ipv4(command: &str) -> Command {
    let prepared = format!("ip link set lo up && ip addr del 127.0.0.1/8 dev lo && {command}");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--net", "--pid", "--fork"]);
    unshare.args(["--kill-child", "sh", "-c", &prepared, "sh"]);
    unshare
}

// Over five seconds: four processes start.
#[test]
fn up_serves_on_loopback_of_ipv6_where_there_is_no_other() {
    let can = without_ipv4("true").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!("skipped: the system makes no networks for this user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pipeline = folder.path().join("pair.yaml");
    std::fs::write(&pipeline, PIPELINE).unwrap();
    std::fs::write(folder.path().join("pair.profile.yaml"), PROFILE).unwrap();
    let mut up = without_ipv4("exec \"$@\"")
        .arg(env!("CARGO_BIN_EXE_spillgate"))
        .arg("up")
        .arg(&pipeline)
        .args(["--port", "0", "--folder"])
        .arg(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(up.stderr.take().unwrap());
    let mut lines = stderr.lines().map_while(Result::ok);
    let ready = lines.find(|line| line.contains("all processes are ready"));
    let ready = ready.expect("it says so before it ends");
    assert!(ready.contains("clients: [::1]:"), "{ready}");
    up.kill().unwrap();
    up.wait().unwrap();
}
