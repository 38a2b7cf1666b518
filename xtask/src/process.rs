//! Child processes that never outlive us.
//!
//! Every child leads a process group of its own. When we are interrupted (Ctrl-C, SIGTERM, SIGHUP) the
//! same signal goes to the group of whatever runs, and SIGKILL to what is still there after the grace
//! time; a [`Daemon`] is stopped when it goes out of scope, whatever the reason. A SIGKILL of this
//! program itself is the one case that cannot be covered.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How often a running child is looked at: short against what a person notices.
const POLL: Duration = Duration::from_millis(20);

/// How long a child may take to end after it was told to.
pub const GRACE: Duration = Duration::from_secs(10);

/// The signal that came last, zero before any.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Notes interrupting signals from now on instead of dying of them at once.
pub fn watch_signals() -> Result<()> {
    let flag = SIGNAL.get_or_init(Default::default);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signal_hook::flag::register_usize(signal as i32, Arc::clone(flag), signal as usize)
            .with_context(|| format!("cannot watch {signal}"))?;
    }
    Ok(())
}

fn interruption() -> Option<Signal> {
    match SIGNAL.get()?.load(Ordering::SeqCst) {
        0 => None,
        number => Signal::try_from(i32::try_from(number).ok()?).ok(),
    }
}

/// True once we were told to stop.
pub fn interrupted() -> bool {
    interruption().is_some()
}

/// The program, without its folder, and its arguments, about as one would type them.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(program).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn spawn(command: &mut Command) -> Result<Child> {
    if interrupted() {
        bail!("interrupted");
    }
    command.process_group(0).stdin(Stdio::null());
    command
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))
}

fn group(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("process ids fit pid_t"))
}

/// Waits for the child's end, for `limit` at most.
fn wait_for(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= limit {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Ends the child's group: the signal, the grace time, then SIGKILL.
fn end(child: &mut Child, signal: Signal, grace: Duration) -> Result<Ended> {
    let group = group(child);
    if child.try_wait()?.is_none() {
        let _ = killpg(group, signal);
    }
    let ended = match wait_for(child, grace)? {
        Some(status) => Ended::Itself(status),
        None => Ended::Killed,
    };
    // The leader's own children, if it left any, and the leader itself if it would not go.
    let _ = killpg(group, Signal::SIGKILL);
    child.wait()?;
    Ok(ended)
}

/// Waits for the child; passes an interruption on to it.
fn wait(child: &mut Child) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(signal) = interruption() {
            end(child, signal, GRACE)?;
            bail!("interrupted");
        }
        std::thread::sleep(POLL);
    }
}

/// Runs to the end with our own output; an unsuccessful end is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let mut child = spawn(command)?;
    check(command, wait(&mut child)?)
}

fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs to the end; its standard output is handed over line by line, and shown.
///
/// # Errors
/// An unsuccessful end; and no line for `silence`: the child is stopped then, and the last line is told.
pub fn run_lines(
    command: &mut Command,
    silence: Duration,
    mut on_line: impl FnMut(&str),
) -> Result<()> {
    let mut child = spawn(command.stdout(Stdio::piped()))?;
    let stdout = child.stdout.take().expect("stdout was asked for");
    // A line at a time through a bounded channel: the reader waits when we are slow.
    let (lines, received) = std::sync::mpsc::sync_channel::<String>(256);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { break };
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    let mut heard = Instant::now();
    let mut last = String::new();
    loop {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match received.recv_timeout(POLL) {
            Ok(line) => {
                println!("{line}");
                on_line(&line);
                (heard, last) = (Instant::now(), line);
            }
            Err(Disconnected) => break,
            Err(Timeout) if heard.elapsed() >= silence => {
                end(&mut child, Signal::SIGTERM, GRACE)?;
                bail!(
                    "`{}` printed nothing for {silence:?} and was stopped; its last line: {last}",
                    shown(command)
                );
            }
            Err(Timeout) => {}
        }
        if interrupted() {
            break;
        }
    }
    check(command, wait(&mut child)?)
}

/// Runs to the end and returns its standard output; what it says on standard error is shown.
pub fn capture(command: &mut Command) -> Result<String> {
    capture_unless(command, |status| !status.success())
}

/// The same, where only such an end is an error.
pub fn capture_unless(
    command: &mut Command,
    failed: impl Fn(ExitStatus) -> bool,
) -> Result<String> {
    let mut child = spawn(command.stdout(Stdio::piped()))?;
    let mut stdout = child.stdout.take().expect("stdout was asked for");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let status = wait(&mut child)?;
    let bytes = reader.join().expect("the reader does not panic")?;
    if failed(status) {
        check(command, status)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs to the end and returns whether it succeeded with both its outputs, error output first.
pub fn judge(command: &mut Command) -> Result<(bool, String)> {
    command.stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let text = [output.stderr, output.stdout].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

/// True if the program can be started and succeeds; it shows nothing.
pub fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// How a stopped process ended.
#[derive(Debug, Clone, Copy)]
pub enum Ended {
    /// It went when asked, or had gone before.
    Itself(ExitStatus),
    /// It was still there when the grace time was over.
    Killed,
}

/// A process that runs beside us, with its output in a file, until it is stopped or goes out of scope.
pub struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Daemon> {
        if let Some(folder) = log.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let output =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdout(output.try_clone()?).stderr(output);
        Ok(Daemon {
            name: name.to_owned(),
            child: spawn(command)?,
            log: log.to_path_buf(),
        })
    }

    /// Its end, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of its output.
    pub fn tail(&self, n_lines: usize) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(n_lines)..].join("\n")
    }

    /// Waits for it to end by itself, successfully.
    pub fn join(mut self) -> Result<()> {
        let status = wait(&mut self.child)?;
        if !status.success() {
            bail!(
                "{} failed ({status}); its output ends:\n{}",
                self.name,
                self.tail(30)
            );
        }
        Ok(())
    }

    /// Asks it to end (SIGTERM) and kills it when it does not.
    pub fn stop(mut self, grace: Duration) -> Result<Ended> {
        end(&mut self.child, Signal::SIGTERM, grace)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = end(&mut self.child, Signal::SIGTERM, GRACE);
        }
    }
}

/// CPU time that a process has used, from the kernel's count of clock ticks.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    /// USER_HZ, fixed on Linux for user space.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold spaces; utime and stime are the 12th and 13th fields after it.
    let after = stat
        .rsplit_once(')')
        .context("/proc/PID/stat has an unknown shape")?
        .1;
    let field = |i: usize| {
        after
            .split_whitespace()
            .nth(i)
            .and_then(|t| t.parse::<u64>().ok())
    };
    let ticks = field(11)
        .zip(field(12))
        .context("/proc/PID/stat has an unknown shape")?;
    Ok(Duration::from_millis(
        (ticks.0 + ticks.1) * 1000 / TICKS_PER_SECOND,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder.join("log")
    }

    #[test]
    fn output_is_captured_and_failure_names_the_command() {
        assert_eq!(
            capture(&mut shell("echo one; echo two")).unwrap(),
            "one\ntwo\n"
        );
        let error = run(&mut shell("exit 3")).unwrap_err().to_string();
        assert!(
            error.contains("sh -c exit 3") && error.contains('3'),
            "{error}"
        );
    }

    #[test]
    fn lines_arrive_in_order() {
        let mut lines = Vec::new();
        run_lines(&mut shell("echo a; echo b"), GRACE, |line| {
            lines.push(line.to_owned())
        })
        .unwrap();
        assert_eq!(lines, ["a", "b"]);
    }

    #[test]
    fn a_child_that_falls_silent_is_stopped_and_its_last_line_told() {
        let silence = Duration::from_millis(100);
        let begun = Instant::now();
        let error = run_lines(&mut shell("echo one; echo two; sleep 600"), silence, |_| {});
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with("last line: two"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_daemon_that_ignores_the_request_is_killed() {
        let log = scratch("stubborn");
        let mut command = shell("trap '' TERM; echo up; while :; do sleep 0.05; done");
        let daemon = Daemon::start("stubborn", &mut command, &log).unwrap();
        while daemon.tail(1) != "up" {
            std::thread::sleep(POLL);
        }
        assert!(matches!(
            daemon.stop(Duration::from_millis(200)).unwrap(),
            Ended::Killed
        ));
    }

    #[test]
    fn a_daemon_takes_its_own_children_along() {
        let log = scratch("parent");
        let mut command = shell("sleep 600 & echo $!; wait");
        let daemon = Daemon::start("parent", &mut command, &log).unwrap();
        let grandchild = loop {
            if let Ok(id) = daemon.tail(1).parse::<i32>() {
                break Pid::from_raw(id);
            }
            std::thread::sleep(POLL);
        };
        drop(daemon);
        // The process is gone, or a zombie that its adopter has not collected yet. On a busy machine the kernel takes a
        // moment to deliver the signal.
        let give_up = Instant::now() + Duration::from_secs(5);
        loop {
            let stat =
                std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                break;
            }
            assert!(Instant::now() < give_up, "{stat}");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn cpu_time_of_this_process_rises() {
        let before = cpu_time(std::process::id()).unwrap();
        let mut x = 0u64;
        while cpu_time(std::process::id()).unwrap() <= before {
            for i in 0..1_000_000u64 {
                x = x.wrapping_mul(31).wrapping_add(std::hint::black_box(i));
            }
        }
        std::hint::black_box(x);
    }
}
