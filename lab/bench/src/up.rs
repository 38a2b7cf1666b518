//! A set of processes under `spillgate up`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use xtask::process::{self, Daemon};
use xtask::workspace::Workspace;

use crate::observe::{admin_address, metrics, series};

/// How long the processes may take to be ready.
const START_LIMIT: Duration = Duration::from_secs(60);
/// `up` ends gateways, workers and the controller one kind after the other.
const STOP_LIMIT: Duration = Duration::from_secs(50);
/// How often its words are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// One of the processes.
struct Member {
    name: String,
    pid: u32,
    admin: String,
}

/// The set, until it is stopped or goes out of scope.
pub(crate) struct Up {
    daemon: Daemon,
    members: Vec<Member>,
    gateways: Vec<String>,
}

impl Up {
    /// Starts it with its files in `folder`, and waits until all its processes are ready.
    pub(crate) fn start(
        workspace: &Workspace,
        program: &Path,
        pipeline: &Path,
        folder: &Path,
        arguments: &[&str],
        environment: &[(&str, PathBuf)],
    ) -> Result<Up> {
        std::fs::create_dir_all(folder)?;
        let mut command = workspace.program(program);
        command.arg("up").arg(pipeline).args(["--port", "0"]);
        command.arg("--folder").arg(folder).args(arguments);
        command.envs(environment.iter().map(|(name, value)| (*name, value)));
        let log = folder.join("up.log");
        let mut daemon = Daemon::start("spillgate up", &mut command, &log)?;
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(&log)?;
            if let Some(gateways) = gateways(&text) {
                let members = members(&text, folder)?;
                return Ok(Up {
                    daemon,
                    members,
                    gateways,
                });
            }
            if let Some(status) = daemon.ended()? {
                bail!("spillgate up ended ({status}):\n{}", daemon.tail(30));
            }
            if process::interrupted() || begun.elapsed() > START_LIMIT {
                bail!(
                    "the processes were not ready within {START_LIMIT:?}:\n{}",
                    daemon.tail(30)
                );
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Where clients reach the gateways.
    pub(crate) fn gateways(&self) -> &[String] {
        &self.gateways
    }

    /// CPU time of all its processes, without the one that supervises them.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let times = self.members.iter().map(|m| process::cpu_time(m.pid));
        times.sum()
    }

    /// Values of a metric over all processes, summed.
    pub(crate) fn sum(&self, name: &str, label: &str, is_meant: fn(&str) -> bool) -> Result<f64> {
        let mut sum = 0.0;
        for member in &self.members {
            let text = metrics(&member.admin);
            let text = text.with_context(|| format!("the process {}", member.name))?;
            let values = series(&text, name, label);
            let meant = values.iter().filter(|(key, _)| is_meant(key));
            sum += meant.map(|(_, value)| value).sum::<f64>();
        }
        Ok(sum)
    }

    /// Fails if a process has died.
    pub(crate) fn check_alive(&self) -> Result<()> {
        match self
            .daemon
            .tail(1000)
            .lines()
            .find(|l| l.contains(": ended ("))
        {
            Some(line) => bail!("a process died: {line}"),
            None => Ok(()),
        }
    }

    /// Ends it.
    pub(crate) fn stop(self) -> Result<()> {
        self.daemon.stop(STOP_LIMIT).map(drop)
    }
}

/// The addresses of the gateways, once all processes are ready.
fn gateways(log: &str) -> Option<Vec<String>> {
    let (_, rest) = log.split_once("all processes are ready; clients: ")?;
    // The line may not be whole yet.
    let (line, _) = rest.split_once('\n')?;
    Some(line.split(", ").map(str::to_owned).collect())
}

fn members(log: &str, folder: &Path) -> Result<Vec<Member>> {
    // Lines begin with their time.
    let ready = log.lines().filter_map(|line| {
        let (name, pid) = line.split_once(": ready, process ")?;
        Some((name.split(' ').next_back()?, pid))
    });
    let member = |(name, pid): (&str, &str)| {
        let own = std::fs::read_to_string(folder.join(format!("{name}.log")))?;
        Ok(Member {
            name: name.to_owned(),
            pid: pid.trim().parse().context("no process id")?,
            admin: admin_address(&own).with_context(|| format!("{name} names no admin port"))?,
        })
    };
    ready.map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_up_are_read() {
        let folder =
            std::env::temp_dir().join(format!("spillgate-bench-up-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = "admin on http://127.0.0.1:39 (/metrics)\n";
        std::fs::write(folder.join("a-0.log"), own).unwrap();
        let log = "topology and logs are in x\n2026-11-28T20:00:00.1Z a-0: ready, process 4857\n\
                   all processes are ready; clients: 127.0.0.1:1, 127.0.0.1:2";
        assert!(gateways(log).is_none(), "the line may go on");
        let log = format!("{log}\n");
        assert_eq!(gateways(&log).unwrap(), ["127.0.0.1:1", "127.0.0.1:2"]);
        let members = members(&log, &folder).unwrap();
        let [Member { name, pid, admin }] = &members[..] else {
            panic!("one process");
        };
        assert_eq!((&**name, *pid, &**admin), ("a-0", 4857, "127.0.0.1:39"));
        assert!(super::members("b-0: ready, process 1\n", &folder).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
