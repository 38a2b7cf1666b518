//! `spillgate serve` and `spillgate token` themselves: flags, what they say, SIGHUP, and the program's own client.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::files::Files;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const NOOP: &str = "{ name: harbour, slo: 1s, source: { payload: bytes }, modules: { a: { op: noop, inputs: { payload: \
                    $source.payload } } }, outputs: { payload: $a.payload } }";

fn spillgate(files: &Files, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillgate"));
    command.current_dir(files.path("")).args(arguments);
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end: its exit code and what it said on standard error.
fn run(files: &Files, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = spillgate(files, arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A server, ended with its test.
struct Serving {
    child: Child,
    lines: Receiver<String>,
}

impl Serving {
    fn start(files: &Files, flags: &[&str]) -> Self {
        let fixed = ["serve", "p.yaml", "--no-admin"];
        let mut command = spillgate(files, &fixed);
        let mut child = command.args(flags).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Serving { child, lines }
    }

    /// The lines up to the one that holds `part`.
    fn until(&self, part: &str) -> Vec<String> {
        let give_up = Instant::now() + PATIENCE;
        let mut lines = Vec::new();
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => lines.push(line),
                Err(_) => panic!("no line with \"{part}\" in {lines:?}"),
            }
            if lines.last().is_some_and(|line| line.contains(part)) {
                return lines;
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Over five seconds: the program starts for each file, and each start initialises libtorch.
#[test]
fn files_that_cannot_be_used_are_errors_that_say_which_and_why() {
    let files = Files::new("errors");
    files.write("p.yaml", NOOP);
    files.write("empty", "");
    files.write(
        "broken",
        "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n",
    );
    files.write(
        "junk",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    files.write(
        "tokens.yaml",
        "tokens:\n- { name: a, sha256: sgt_1, pipelines: all }\n",
    );
    let pair = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
    let of = |flags: &[&str]| {
        let (code, said) = run(&files, &[&["serve", "p.yaml"], flags].concat());
        (code, said.lines().next().unwrap_or_default().to_owned())
    };
    for (flags, code, says) in [
        (
            &["--tls-cert", "missing", "--tls-key", "server.key"][..],
            1,
            "error: --tls-cert missing: No such file",
        ),
        (
            &["--tls-cert", "empty", "--tls-key", "server.key"],
            1,
            "error: --tls-cert empty: no certificate in it; write it as PEM",
        ),
        (
            &["--tls-cert", "server.key", "--tls-key", "server.key"],
            1,
            "error: --tls-cert server.key: no certificate in it",
        ),
        (
            &["--tls-cert", "broken", "--tls-key", "server.key"],
            1,
            "error: --tls-cert broken: it is no PEM",
        ),
        (
            &["--tls-cert", "junk", "--tls-key", "server.key"],
            1,
            "error: --tls-cert junk: it cannot be used",
        ),
        (
            &["--tls-cert", "server.pem", "--tls-key", "server.pem"],
            1,
            "error: --tls-key server.pem: no private key in it",
        ),
        (
            &["--tls-cert", "server.pem", "--tls-key", "client.key"],
            1,
            "error: --tls-key client.key: it is not the key of the certificate in server.pem",
        ),
        (
            &[&pair[..], &["--tls-client-ca", "empty"]].concat(),
            1,
            "error: --tls-client-ca empty: no certificate in it",
        ),
        (
            &["--tokens", "tokens.yaml"],
            78,
            "error: tokens.yaml:2: tokens[0].sha256: it is no SHA-256; write the 64 hex digits that `spillgate token` prints",
        ),
        (
            &["--tokens", "missing"],
            78,
            "error: missing: cannot be read: No such file",
        ),
        (
            &["--tls-cert", "server.pem"],
            2,
            "error: the following required arguments were not provided",
        ),
        (
            &["--tls-client-ca", "ca.pem"],
            2,
            "error: the following required arguments were not provided",
        ),
    ] {
        let (ended, said) = of(flags);
        assert!(said.starts_with(says), "{flags:?}: {said}");
        assert_eq!(ended, Some(code), "{flags:?}: {said}");
    }
}

#[test]
fn the_programs_own_client_is_served_over_tls_with_a_token_until_it_is_taken_away() {
    let files = Files::new("product");
    files.write("p.yaml", NOOP);
    let made = spillgate(&files, &["token", "camera"]).output().unwrap();
    let (token, said) = (made.stdout, String::from_utf8(made.stderr).unwrap());
    let entry = said.lines().find(|line| line.starts_with("- {")).unwrap();
    let text = String::from_utf8(token).unwrap();
    assert!(!said.contains(text.trim()), "the token is said once");
    files.write("token", &text);
    files.write(
        "tokens.yaml",
        &format!(
            "tokens:\n{entry}\n- {{ name: x, sha256: {}, pipelines: [nowhere] }}\n",
            "1".repeat(64)
        ),
    );
    files.certificate("server", |params| {
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let mut flags = vec![
        "--listen",
        "0.0.0.0:0",
        "--tls-cert",
        "server.pem",
        "--tls-key",
        "server.key",
    ];
    flags.extend(["--tls-client-ca", "ca.pem", "--tokens", "tokens.yaml"]);
    let server = Serving::start(&files, &flags);
    let lines = server.until("listening on https://0.0.0.0:");
    let port = lines.last().unwrap().rsplit(':').next().unwrap();
    let warnings: Vec<&str> = lines
        .iter()
        .filter_map(|l| Some(l.split_once(" warning: ")?.1))
        .collect();
    assert_eq!(
        warnings,
        [
            "the certificate in server.pem has expired: clients will refuse it",
            "tokens.yaml:3: x may use \"nowhere\", which is not served here",
        ]
    );

    files.certificate("server", |_| {});
    kill(Pid::from_raw(server.child.id() as i32), Signal::SIGHUP).unwrap();
    server.until("SIGHUP: certificates reloaded: 1 in server.pem");
    server.until("SIGHUP: tokens reloaded: 2 in tokens.yaml");
    let url = format!("https://localhost:{port}");
    let mut bench = vec![
        "bench",
        "--server",
        &url,
        "--ca",
        "ca.pem",
        "--cert",
        "client.pem",
        "--key",
        "client.key",
    ];
    bench.extend(["--rate", "50", "--duration", "1s"]);
    let (code, said) = run(&files, &bench);
    assert_ne!(code, Some(0), "no token: {said}");
    assert!(said.contains("token"), "{said}");
    let (code, said) = run(&files, &[&bench[..], &["--token-file", "token"]].concat());
    assert_eq!(code, Some(0), "{said}");

    files.write("tokens.yaml", "tokens: []\n");
    kill(Pid::from_raw(server.child.id() as i32), Signal::SIGHUP).unwrap();
    server.until("SIGHUP: tokens reloaded: 0 in tokens.yaml");
    let (code, _) = run(&files, &[&bench[..], &["--token-file", "token"]].concat());
    assert_ne!(code, Some(0));
}

#[test]
fn files_that_change_are_read_again_without_a_signal() {
    let files = Files::new("watched");
    files.write("p.yaml", NOOP);
    files.write("tokens.yaml", "tokens: []");
    let flags = ["--listen", "127.0.0.1:0", "--tls-cert", "server.pem"];
    let more = ["--tls-key", "server.key", "--tokens", "tokens.yaml"];
    let server = Serving::start(&files, &[&flags[..], &more].concat());
    server.until("listening on https://");
    files.token("camera", "pipelines: all");
    server.until("files have changed: tokens reloaded: 1 in tokens.yaml");
    files.write("tokens.yaml", "tokens: 7");
    server.until("files have changed: tokens not reloaded, what was there stays: ");
    files.certificate("server", |_| {});
    server.until("files have changed: certificates reloaded: 1 in server.pem");
}

#[test]
fn what_others_can_reach_unprotected_warns() {
    let files = Files::new("warns");
    files.write("p.yaml", NOOP);
    let server = Serving::start(&files, &["--listen", "0.0.0.0:0"]);
    let lines = server.until("listening on http://");
    let warnings: Vec<&String> = lines.iter().filter(|l| l.contains(" warning: ")).collect();
    assert!(warnings[0].ends_with("no --tls-cert"), "{lines:?}");
    assert!(warnings[1].ends_with("no --tokens"), "{lines:?}");
    let server = Serving::start(&files, &["--listen", "127.0.0.1:0"]);
    let lines = server.until("listening on http://");
    assert!(
        !lines.iter().any(|line| line.contains("warning")),
        "{lines:?}"
    );
}

#[test]
fn a_name_that_is_none_makes_no_token() {
    let files = Files::new("name");
    for name in ["a b", "a, rate: 5", "7", "ä", "x }", ""] {
        let made = spillgate(&files, &["token", name]).output().unwrap();
        assert_eq!(made.status.code(), Some(1), "{name}");
        assert!(made.stdout.is_empty(), "{name}");
    }
}
