//! What is measured: the bare relay, one process, and several.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use xtask::address::await_address;
use xtask::process::{self, Daemon};
use xtask::workspace::Workspace;

use super::{Programs, certificates};
use crate::observe::{admin_address, metrics, series};
use crate::up::Up;

/// What is served.
const PIPELINE: &str = "apps/pipelines/noop2.yaml";
/// What a server without models may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Name and label of a metric, and which of the label's values count.
type Part = (&'static str, &'static str, fn(&str) -> bool);

/// Requests that were not served in time. h2load leaves the last ones unanswered, which are dropped as cancelled.
const UNSERVED: [Part; 3] = [
    ("spillgate_gateway_requests_total", "outcome", |how| {
        how == "late"
    }),
    ("spillgate_gateway_requests_total", "reason", |why| {
        !matches!(why, "" | "cancelled")
    }),
    ("spillgate_gateway_refused_requests_total", "reason", |_| {
        true
    }),
];

/// A subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Relay,
    Serve,
    Processes,
    Secure,
}

impl Kind {
    /// In the order of the tables.
    pub(super) const ALL: &[Kind] = &[Kind::Relay, Kind::Serve, Kind::Processes, Kind::Secure];

    /// As the tables name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Relay => "bare tonic relay, 3 processes",
            Kind::Serve => "`spillgate serve`, 1 process",
            Kind::Processes => "gateway, controller, 2 workers",
            Kind::Secure => "the same, links with TLS",
        }
    }
}

enum Running {
    /// Processes that are started here, with the admin port of the first if it has one.
    Alone(Vec<Daemon>, Option<String>),
    Set(Up),
}

/// A subject that runs.
pub(super) struct Subject {
    pub(super) kind: Kind,
    address: String,
    running: Running,
}

/// What a subject has used and done so far.
pub(super) struct Reading {
    /// CPU time of all its processes.
    pub(super) cpu: Duration,
    /// Requests that ended otherwise than in time.
    pub(super) unserved: f64,
    /// Bytes that its processes wrote to each other.
    pub(super) written: f64,
}

impl Subject {
    pub(super) fn start(
        workspace: &Workspace,
        programs: &Programs,
        kind: Kind,
        out: &Path,
    ) -> Result<Subject> {
        let Programs { spillgate, echo } = programs;
        let alone = |name: &str, program: &Path, arguments: &[&str], port_file: bool| {
            let file = out.join(format!("{name}.address"));
            let mut command = workspace.program(program);
            command.args(arguments);
            if port_file {
                command.arg("--port-file");
            }
            command.arg(&file);
            (file, command)
        };
        let start = |name: &str, command: &mut std::process::Command, file: &Path| {
            let mut daemon = Daemon::start(name, command, &out.join(format!("{name}.log")))?;
            let url = await_address(&mut daemon, file)?;
            let address = url.strip_prefix("http://").unwrap_or(&url).to_owned();
            anyhow::Ok((daemon, address))
        };
        let (address, running) = match kind {
            Kind::Relay => {
                let mut daemons = Vec::new();
                let mut hops = Vec::new();
                for name in ["echo-1", "echo-2"] {
                    let (file, mut command) = alone(name, echo, &[], false);
                    let (daemon, address) = start(name, &mut command, &file)?;
                    daemons.push(daemon);
                    hops.push(address);
                }
                let (file, mut command) = alone("relay", echo, &[], false);
                let (daemon, address) = start("relay", command.args(&hops), &file)?;
                daemons.push(daemon);
                (address, Running::Alone(daemons, None))
            }
            Kind::Serve => {
                let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
                let arguments = [&["serve", PIPELINE], &ports[..]].concat();
                let (file, mut command) = alone("serve", spillgate, &arguments, true);
                let (daemon, address) = start("serve", &mut command, &file)?;
                let log = std::fs::read_to_string(out.join("serve.log"))?;
                let admin = admin_address(&log).context("serve names no admin port")?;
                (address, Running::Alone(vec![daemon], Some(admin)))
            }
            Kind::Processes | Kind::Secure => {
                let folder = out.join(match kind {
                    Kind::Secure => "secure",
                    _ => "plain",
                });
                let environment = match kind {
                    Kind::Secure => certificates::make(&folder)?,
                    _ => Vec::new(),
                };
                let pipeline = workspace.path(PIPELINE);
                let up = Up::start(workspace, spillgate, &pipeline, &folder, &[], &environment)?;
                (up.gateways()[0].clone(), Running::Set(up))
            }
        };
        Ok(Subject {
            kind,
            address,
            running,
        })
    }

    /// Where clients reach it.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn reading(&self) -> Result<Reading> {
        match &self.running {
            Running::Alone(daemons, admin) => {
                let times = daemons.iter().map(|d| process::cpu_time(d.id()));
                let text = admin.as_deref().map(metrics).transpose()?;
                let text = text.unwrap_or_default();
                let unserved = UNSERVED.map(|(name, label, is_meant)| {
                    let values = series(&text, name, label);
                    let meant = values.iter().filter(|(key, _)| is_meant(key));
                    meant.map(|(_, n)| n).sum::<f64>()
                });
                Ok(Reading {
                    cpu: times.sum::<Result<Duration>>()?,
                    unserved: unserved.iter().sum(),
                    written: 0.0,
                })
            }
            Running::Set(up) => {
                up.check_alive()?;
                let mut unserved = 0.0;
                for (name, label, is_meant) in UNSERVED {
                    unserved += up.sum(name, label, is_meant)?;
                }
                Ok(Reading {
                    cpu: up.cpu_time()?,
                    unserved,
                    written: up.sum("spillgate_peer_sent_bytes_total", "peer", |_| true)?,
                })
            }
        }
    }

    /// Ends it.
    pub(super) fn stop(self) -> Result<()> {
        match self.running {
            Running::Alone(daemons, _) => {
                for daemon in daemons {
                    daemon.stop(STOP_LIMIT)?;
                }
                Ok(())
            }
            Running::Set(up) => up.stop(),
        }
    }
}
