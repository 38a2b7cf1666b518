//! Signals: heeded from the first moment on, also by process 1 of a container, and commands end in order.

use std::net::TcpListener;

use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::health_client::HealthClient;

use super::*;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../modules/models/light.pt");

/// A server of pictures with a device that is emulated.
fn pictures(folder: &Folder) -> (Process, String) {
    let text = format!(
        "{{ name: p, slo: 5s, modules: {{ light: {{ op: classifier, model: {MODEL}, inputs: {{ image: $source.frame }}, device: \
         emulated }} }}, outputs: {{ light: $light.labels }} }}"
    );
    let profile =
        format!("emulated: {{ light: {{ \"{MODEL}\": {{ alpha: 1ms, beta: 1ms, max: 8 }} }} }}");
    let pipeline = folder.file("p.yaml", &text);
    folder.file("p.profile.yaml", &profile);
    let server = Process::start(serve(folder, &pipeline).stderr(Stdio::null()));
    (server, port(folder))
}

fn stream(source: &str, server: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    command.args(["stream", source, "--server", server]);
    command
}

#[test]
fn a_stream_that_is_told_to_end_leaves_its_summary_and_a_whole_video() {
    let folder = Folder::new();
    let (_server, address) = pictures(&folder);
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let name = format!("{signal}.mp4");
        let video = folder.0.path().join(name);
        let results = folder.0.path().join(format!("{signal}.jsonl"));
        let mut command = stream("scene:size=64x64", &address);
        command.arg("--save-video").arg(&video);
        command.args(["--quiet", "--results", "-"]);
        command.stdout(std::fs::File::create(&results).unwrap());
        let mut process = Process::start(command.stderr(Stdio::piped()));
        until("frames are answered", || {
            let text = std::fs::read_to_string(&results).ok()?;
            (text.lines().count() >= 10).then_some(())
        });
        process.signal(signal);
        let mut summary = String::new();
        let stderr = process.0.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut summary).unwrap();
        assert_eq!(process.ended().code(), Some(0), "{signal}");
        assert!(summary.contains("completed"), "{signal}: {summary}");
        let mut again = stream(video.to_str().unwrap(), &address);
        let output = again.args(["--frames", "5", "--quiet"]).output().unwrap();
        assert!(output.status.success(), "{signal}: {output:?}");
    }
}

#[test]
fn a_second_signal_ends_a_client_at_once() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", SLOW);
    folder.file("p.profile.yaml", SLOW_PROFILE);
    let _server = Process::start(serve(&folder, &pipeline).stderr(Stdio::null()));
    let address = port(&folder);
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    command.args(["bench", "--server", &address, "--concurrency", "2"]);
    let mut bench = Process::start(command.stdout(Stdio::piped()));
    let mut lines = BufReader::new(bench.0.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    bench.signal(Signal::SIGTERM);
    // It waits for answers that take minutes.
    std::thread::sleep(Duration::from_millis(300));
    bench.signal(Signal::SIGTERM);
    assert_eq!(bench.ended().code(), Some(128 + Signal::SIGTERM as i32));
}

#[test]
fn a_signal_that_its_parent_ignores_is_ignored() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let client = stream("scene:size=64x64", &address);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    command.arg(client.get_program()).args(client.get_args());
    let mut process = Process::start(&mut command);
    let accepted = silent.accept().unwrap();
    process.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(process.0.try_wait().unwrap().is_none());
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended().code(), Some(1), "interrupted");
    drop(accepted);
}

/// A command as process 1 of a namespace of its own; `None` where the system makes none.
fn as_process_1(command: &Command) -> Option<(Process, Pid)> {
    let unshare = || {
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--kill-child",
        ]);
        unshare
    };
    if !unshare().arg("true").status().is_ok_and(|s| s.success()) {
        eprintln!("skipped: the system makes no namespaces of processes for this user");
        return None;
    }
    let mut unshare = unshare();
    unshare.arg(command.get_program()).args(command.get_args());
    let process = Process::start(unshare.stderr(Stdio::null()));
    let id = process.0.id();
    let program = std::fs::canonicalize(command.get_program()).unwrap();
    let pid = until("process 1 runs the program", || {
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let pid: i32 = children.trim().parse().ok()?;
        let runs = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        (runs == program).then_some(Pid::from_raw(pid))
    });
    Some((process, pid))
}

/// Whether the process has a handler for the signal.
fn catches(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigCgt:\t"));
    let mask = u64::from_str_radix(mask.unwrap_or("0"), 16).unwrap();
    mask & (1 << (signal as i32 - 1)) != 0
}

#[test]
fn process_1_of_a_container_heeds_signals_from_its_first_moment_on() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", NOOP);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let commands = [
        stream("scene:size=64x64", &address),
        serve(&folder, &pipeline),
    ];
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        for command in &commands {
            let Some((mut process, pid)) = as_process_1(command) else {
                return;
            };
            until("it has a handler", || catches(pid, signal).then_some(()));
            kill(pid, signal).unwrap();
            let status = process.ended();
            assert_eq!(status.code(), Some(128 + signal as i32), "{command:?}");
        }
    }
    // Once it listens for signals itself.
    let Some((mut process, pid)) = as_process_1(&commands[0]) else {
        return;
    };
    let accepted = silent.accept().unwrap();
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(process.ended().code(), Some(1), "interrupted");
    drop(accepted);
}

#[test]
fn before_it_drains_a_server_serves_on_and_says_that_it_ends() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", NOOP);
    let mut command = serve(&folder, &pipeline);
    command
        .args(["--drain-delay", "60m"])
        .stderr(Stdio::piped());
    let mut process = Process::start(&mut command);
    let lines = process.lines();
    let admin = admin_of(&lines);
    let address = port(&folder);
    process.signal(Signal::SIGTERM);
    line_with(&lines, "SIGTERM: not ready any more; serving on for ");
    let ready = get(&admin, "/readyz").unwrap();
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains("shutting down"),
        "{ready}"
    );
    // A client that has not heard of it yet.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(infer(&address)).unwrap();
    let health = runtime.block_on(async {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        let mut client = HealthClient::new(channel.connect().await.unwrap());
        client
            .check(tonic_health::pb::HealthCheckRequest::default())
            .await
    });
    let not_serving = tonic_health::pb::health_check_response::ServingStatus::NotServing;
    assert_eq!(health.unwrap().into_inner().status, not_serving as i32);
    // A second signal ends the delay.
    process.signal(Signal::SIGTERM);
    line_with(&lines, "SIGTERM: draining; 0 requests in flight");
    assert_eq!(process.ended().code(), Some(0));
    let refused = runtime.block_on(infer(&address)).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
}
