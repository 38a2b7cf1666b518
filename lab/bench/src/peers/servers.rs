//! The servers, their settings, and how each is started and ended.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xtask::process::Daemon;
use xtask::tools;
use xtask::workspace::Workspace;

/// Ray starts half a dozen processes before it opens its port.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Ray stops its processes one after the other.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Every process of a server inherits it, so that none is missed at the end, wherever it moved to.
const MARK: &str = "SPILLGATE_PEERS_RUNS";

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Spillgate,
    Mosec,
    Ray,
    Triton,
}

/// A server with its options.
pub(super) struct Setting {
    pub(super) peer: Peer,
    /// As the table names it.
    pub(super) label: &'static str,
    args: &'static [&'static str],
}

const fn setting(peer: Peer, label: &'static str, args: &'static [&'static str]) -> Setting {
    Setting { peer, label, args }
}

/// The measured servers, in the order of the table. Tuned settings are the best that were found by hand for this very
/// test.
pub(super) const SETTINGS: &[Setting] = &[
    setting(Peer::Spillgate, "default", &[]),
    setting(Peer::Mosec, "default", &[]),
    setting(
        Peer::Mosec,
        "tuned: capacity 3, timeout 200 ms",
        &["--capacity", "3", "--timeout", "200"],
    ),
    setting(
        Peer::Mosec,
        "tuned: capacity 4, timeout 200 ms",
        &["--capacity", "4", "--timeout", "200"],
    ),
    setting(Peer::Ray, "default", &[]),
    setting(
        Peer::Ray,
        "tuned: entry with max_ongoing_requests 4, max_queued_requests 1",
        &["--entry-ongoing", "4", "--entry-queued", "1"],
    ),
    setting(Peer::Triton, "default", &[]),
    setting(
        Peer::Triton,
        "tuned: dynamic batcher, REJECT after 60 ms in a queue",
        &["--queue-timeout-us", "60000"],
    ),
];

impl Peer {
    pub(super) const ALL: [Peer; 4] = [Peer::Spillgate, Peer::Mosec, Peer::Ray, Peer::Triton];

    /// As `--only` names it, and the files of it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Spillgate => "spillgate",
            Peer::Mosec => "mosec",
            Peer::Ray => "ray",
            Peer::Triton => "triton",
        }
    }

    /// As people name it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Peer::Spillgate => "Spillgate",
            Peer::Mosec => "mosec",
            Peer::Ray => "Ray Serve",
            Peer::Triton => "Triton ensemble",
        }
    }

    fn requirements(self) -> String {
        format!("lab/bench/peers/{}.requirements.txt", self.name())
    }

    /// What is measured, with its version. Spillgate is built here, or `given`.
    pub(super) fn version(self, workspace: &Workspace, given: bool) -> Result<String> {
        match self {
            Peer::Spillgate if given => {
                return Ok("Spillgate as `--spillgate` named it".to_owned());
            }
            Peer::Spillgate => return Ok("Spillgate as this commit has it".to_owned()),
            _ => {}
        }
        let file = workspace.path(&self.requirements());
        let text = std::fs::read_to_string(&file).with_context(|| self.requirements())?;
        let pins: Vec<&str> = pins(&text).collect();
        Ok(format!("{} from {}", self.title(), pins.join(", ")))
    }

    /// Makes it ready to be started; returns the program that runs it.
    pub(super) fn install(
        self,
        workspace: &Workspace,
        spillgate: Option<&Path>,
    ) -> Result<PathBuf> {
        match self {
            Peer::Spillgate => super::build_spillgate(workspace, spillgate),
            peer => tools::build_venv(
                workspace,
                &format!("peers/{}", peer.name()),
                &peer.requirements(),
            )
            .context("does not install"),
        }
    }
}

/// The packages that a file of requirements pins.
fn pins(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A server that runs, with all that it started; it ends when this goes out of scope.
pub(super) struct Running {
    daemon: Option<Daemon>,
    client_args: Vec<OsString>,
    port: u16,
    /// The file in which its modules note the requests that they run.
    runs: PathBuf,
}

impl Running {
    pub(super) fn start(
        workspace: &Workspace,
        setting: &Setting,
        program: &Path,
        out: &Path,
    ) -> Result<Running> {
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let name = setting.peer.name();
        // A file of its own for each start: a process that is left over cannot write into the next one's.
        let runs = out.join(format!("{name}-{port}.runs"));
        spillgate_output::write(&runs, "")?;
        let script = workspace.path(&format!("lab/bench/peers/server_{name}.py"));
        let mut command = workspace.program(program);
        let mut client_args: Vec<OsString> = Vec::new();
        let mut tell = |words: [&str; 4]| client_args.extend(words.map(OsString::from));
        match setting.peer {
            Peer::Spillgate => {
                let admin = format!("127.0.0.1:{}", free_port()?);
                command.args(["serve", "apps/pipelines/two_stage.yaml"]);
                command.args(["--listen", &address, "--admin", &admin]);
                tell(["--protocol", "spillgate", "--url", &address]);
                let metrics = format!("http://{admin}/metrics");
                client_args.extend(["--metrics".into(), metrics.into()]);
            }
            Peer::Mosec => {
                command.arg(script).args(["--address", "127.0.0.1"]);
                let url = format!("http://{address}/inference");
                tell(["--protocol", "http", "--url", &url]);
            }
            Peer::Ray => {
                command.arg(script);
                tell(["--protocol", "http", "--url", &format!("http://{address}/")]);
            }
            Peer::Triton => {
                command.arg(script).arg("--folder").arg(out.join("triton"));
                tell(["--protocol", "triton", "--url", &address]);
            }
        }
        if setting.peer != Peer::Spillgate {
            command.args(["--port", &port.to_string()]);
            client_args.extend(["--runs".into(), runs.clone().into()]);
        }
        command
            .args(setting.args)
            .env(MARK, &runs)
            .env("PYTHONPATH", workspace.path("lab/bench/peers"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let log = out.join(format!("{name}.log"));
        let daemon = Daemon::start(name, &mut command, &log)?;
        Ok(Running {
            daemon: Some(daemon),
            client_args,
            port,
            runs,
        })
    }

    /// What the load client needs to know.
    pub(super) fn client_args(&self) -> &[OsString] {
        &self.client_args
    }

    /// Waits until its port takes connections. That it answers, the client sees to.
    pub(super) fn wait_until_open(&mut self) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            self.check_alive()?;
            if xtask::process::interrupted() {
                bail!("interrupted");
            }
            if begun.elapsed() > START_LIMIT {
                bail!("its port was not open within {START_LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Complains if it ended.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        if let Some(daemon) = &mut self.daemon
            && let Some(status) = daemon.ended()?
        {
            bail!("the server ended ({status})");
        }
        Ok(())
    }

    /// The end of its output.
    pub(super) fn last_words(&self) -> String {
        self.daemon.as_ref().map_or_else(String::new, |d| d.tail(5))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.stop(STOP_LIMIT);
        }
        let mark = [
            MARK.as_bytes(),
            b"=",
            self.runs.as_os_str().as_encoded_bytes(),
        ]
        .concat();
        for id in marked(&mark) {
            let _ = kill(id, Signal::SIGKILL);
        }
        let _ = std::fs::remove_file(&self.runs);
    }
}

/// Processes with this variable in their environment, ourselves left out.
fn marked(variable: &[u8]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|id| u32::try_from(*id) != Ok(std::process::id()))
        .filter(|id| {
            std::fs::read(format!("/proc/{id}/environ"))
                .is_ok_and(|text| text.split(|byte| *byte == 0).any(|word| word == variable))
        })
        .map(Pid::from_raw)
        .collect()
}

/// A free port. Another process may take it before the server does; the server then reports that.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_measured_as_it_comes_first() {
        for peer in Peer::ALL {
            let first = SETTINGS
                .iter()
                .find(|setting| setting.peer == peer)
                .unwrap();
            assert!(first.label == "default" && first.args.is_empty());
        }
        // Comparing a tuned Spillgate would miss the point.
        let own = SETTINGS.iter().filter(|s| s.peer == Peer::Spillgate);
        assert_eq!(own.count(), 1);
    }

    #[test]
    fn pins_are_told_from_remarks() {
        let text = "# The wheel\nray[serve]==2.60.0\n\n";
        assert_eq!(pins(text).collect::<Vec<_>>(), ["ray[serve]==2.60.0"]);
    }

    #[test]
    fn processes_that_left_the_group_are_found_by_their_mark() {
        let value = format!("test-{}", std::process::id());
        let mark = format!("{MARK}={value}");
        assert!(marked(mark.as_bytes()).is_empty());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(MARK, &value)
            .spawn()
            .unwrap();
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap());
        // Until it has become `sleep` it is a copy of this process.
        let begun = Instant::now();
        while marked(mark.as_bytes()) != [id] && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let found = marked(mark.as_bytes());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [id]);
    }
}
