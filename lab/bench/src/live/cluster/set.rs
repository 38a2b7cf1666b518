//! The processes: gateways, a controller, and a few workers that have all devices among them.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use xtask::process::{self, Daemon};
use xtask::workspace::Workspace;

use crate::observe::{metrics, series};

/// Workers of each worker process: twelve of `detect`, five of `face` and seven of `text` in all.
pub(super) const WORKERS: [&str; 4] = [
    "detect: 3, face: 2, text: 1",
    "detect: 3, face: 1, text: 2",
    "detect: 3, face: 1, text: 2",
    "detect: 3, face: 1, text: 2",
];
/// How long the processes may take until all have met.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A gateway drains for up to 10 s.
const STOP_LIMIT: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

/// The set, until it is stopped or goes out of scope.
pub(super) struct Set {
    /// Gateways first: they end first.
    daemons: Vec<Daemon>,
    gateways: Vec<String>,
}

impl Set {
    /// Starts the processes, and waits until each gateway has met all others that it talks with.
    pub(super) fn start(
        workspace: &Workspace,
        program: &Path,
        pipeline: &Path,
        out: &Path,
        gateways: usize,
    ) -> Result<Set> {
        let mut ports = Ports::default();
        let mut processes = String::from("processes:\n");
        for i in 0..gateways {
            processes += &format!("  - {{ name: gateway-{i}, gateway: true }}\n");
        }
        let address = ports.take()?;
        processes +=
            &format!("  - {{ name: control, controllers: all, address: \"{address}\" }}\n");
        for (i, workers) in WORKERS.iter().enumerate() {
            let address = ports.take()?;
            processes += &format!(
                "  - {{ name: workers-{i}, workers: {{ {workers} }}, address: \"{address}\" }}\n"
            );
        }
        let topology = out.join("topology.yaml");
        spillgate_output::write(&topology, processes)?;
        let names = (0..gateways).map(|i| ("gateway", format!("gateway-{i}")));
        let names = names.chain([("controller", "control".to_owned())]);
        let names = names.chain((0..WORKERS.len()).map(|i| ("worker", format!("workers-{i}"))));
        let mut set = Set {
            daemons: Vec::new(),
            gateways: Vec::new(),
        };
        let mut admins = Vec::new();
        let started: Vec<(&str, String)> = names.collect();
        let mut starts = Vec::new();
        for (command, name) in started {
            let mut start = workspace.program(program);
            start.arg(command).arg(pipeline);
            start.arg("--topology").arg(&topology);
            let admin = ports.take()?;
            start.args(["--name", &name, "--admin", &admin]);
            if command == "gateway" {
                let clients = ports.take()?;
                start.args(["--listen", &clients]);
                set.gateways.push(clients);
                admins.push(admin);
            }
            starts.push((name, start));
        }
        drop(ports);
        for (name, mut start) in starts {
            let log: PathBuf = out.join(format!("{name}.log"));
            set.daemons.push(Daemon::start(&name, &mut start, &log)?);
        }
        set.wait_until_met(&admins)?;
        Ok(set)
    }

    fn wait_until_met(&mut self, admins: &[String]) -> Result<()> {
        let begun = Instant::now();
        let has_met = |admin: &String| {
            let text = metrics(admin).unwrap_or_default();
            let met = series(&text, "spillgate_peer_met", "peer");
            met.values().sum::<f64>() as usize == WORKERS.len() + 1
        };
        while !admins.iter().all(has_met) {
            for daemon in &mut self.daemons {
                if let Some(status) = daemon.ended()? {
                    bail!("a process ended ({status}):\n{}", daemon.tail(10));
                }
            }
            if process::interrupted() || begun.elapsed() > START_LIMIT {
                bail!("the processes did not meet within {START_LIMIT:?}");
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Where clients reach the gateways.
    pub(super) fn gateways(&self) -> &[String] {
        &self.gateways
    }

    /// CPU time of all processes.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        let times = self.daemons.iter().map(|d| process::cpu_time(d.id()));
        times.sum()
    }

    /// Ends them.
    pub(super) fn stop(self) -> Result<()> {
        for daemon in self.daemons {
            daemon.stop(STOP_LIMIT)?;
        }
        Ok(())
    }
}

/// Free ports of loopback, taken at once so that they differ. Another program may take one before its process does; the
/// process then says so.
#[derive(Default)]
struct Ports(Vec<TcpListener>);

impl Ports {
    fn take(&mut self) -> Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
        let address = listener.local_addr()?.to_string();
        self.0.push(listener);
        Ok(address)
    }
}
