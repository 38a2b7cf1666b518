//! Load on a gateway: `spillgate bench` as a process of this machine, which reaches the addresses of pods.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use xtask::process::{Daemon, Ended};

use super::cluster::{Namespace, Pod, Seen, sum, wait};

/// Longer than any scenario; whoever starts load stops it.
const DURATION: &str = "1h";
/// How long answers to requests in flight may take after the last one was sent.
const LAST_ANSWERS: Duration = Duration::from_secs(60);

/// How long what takes a moment may take, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(180);

/// How the requests of a load ended, as their client saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) completed: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
}

impl Counts {
    fn read(report: &Value) -> Result<Counts> {
        let count = |value: &Value| value.as_u64().context("a report of bench lacks a count");
        let outcomes = &report["outcomes"];
        Ok(Counts {
            sent: count(&report["requests"])?,
            completed: count(&outcomes["completed"])?,
            late: count(&outcomes["late"])?,
            dropped: count(&outcomes["dropped"])?,
            refused: count(&outcomes["refused"])?,
            failed: count(&outcomes["failed"])?,
        })
    }

    /// Each request that was sent has ended in one way, and some were completed.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.sent == self.ended() + self.refused && self.completed > 0,
            "a client counts {self}"
        );
        Ok(())
    }

    /// Requests that a gateway accepted and that ended, in whatever way.
    pub(crate) fn ended(&self) -> u64 {
        self.completed + self.late + self.dropped + self.failed
    }
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            sent: self.sent + other.sent,
            completed: self.completed + other.completed,
            late: self.late + other.late,
            dropped: self.dropped + other.dropped,
            refused: self.refused + other.refused,
            failed: self.failed + other.failed,
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} sent: {} completed, {} late, {} dropped, {} refused, {} failed",
            self.sent, self.completed, self.late, self.dropped, self.refused, self.failed
        )
    }
}

/// Load that goes on until it is stopped.
pub(crate) struct Load {
    bench: Daemon,
    report: PathBuf,
}

impl Load {
    /// Sends requests to a gateway: `["--rate", "20"]`.
    pub(crate) fn start(namespace: &Namespace<'_>, gateway: &Pod, args: &[&str]) -> Result<Load> {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| {
            namespace
                .folder
                .join(format!("bench-{number}-{}.{kind}", gateway.name))
        };
        let report = file("json");
        let mut bench = namespace
            .cluster
            .workspace
            .program(&namespace.cluster.spillgate);
        let host = match gateway.ip.contains(':') {
            true => format!("[{}]", gateway.ip),
            false => gateway.ip.clone(),
        };
        bench
            .args(["bench", "--server", &format!("http://{host}:7700")])
            .args(["--duration", DURATION, "--json"])
            .arg(&report)
            .args(args);
        let bench = Daemon::start("bench", &mut bench, &file("log"))?;
        Ok(Load { bench, report })
    }

    /// True while it sends.
    ///
    /// # Errors
    /// It has ended: says what it printed last.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.bench.ended()? {
            None => Ok(()),
            Some(status) => bail!("bench ended ({status}): {}", self.bench.tail(5)),
        }
    }

    /// Stops it, and returns how its requests ended.
    pub(crate) fn stop(self) -> Result<Counts> {
        let last = self.bench.tail(5);
        if let Ended::Killed = self.bench.stop(LAST_ANSWERS)? {
            bail!("bench did not end when it was told to; its output ends: {last}");
        }
        let text = std::fs::read_to_string(&self.report)
            .with_context(|| format!("bench wrote no report; its output ends: {last}"))?;
        Counts::read(&serde_json::from_str(&text)?)
    }
}

/// Load on each of some gateways.
pub(crate) struct Loads<'n> {
    namespace: &'n Namespace<'n>,
    each: Vec<(Pod, Load)>,
}

impl<'n> Loads<'n> {
    /// Sends requests to each gateway: `["--rate", "20"]`.
    pub(crate) fn start(
        namespace: &'n Namespace<'n>,
        gateways: &[Pod],
        args: &[&str],
    ) -> Result<Loads<'n>> {
        let load = |gateway: &Pod| Ok((gateway.clone(), Load::start(namespace, gateway, args)?));
        Ok(Loads {
            namespace,
            each: gateways.iter().map(load).collect::<Result<_>>()?,
        })
    }

    /// Waits until each gateway has completed some more requests.
    pub(crate) fn more(&mut self) -> Result<()> {
        /// A second's worth.
        const MORE: f64 = 15.0;
        for (gateway, load) in &mut self.each {
            let completed = || requests(self.namespace, gateway, &["outcome=\"completed\""]);
            let before = completed()?;
            let what = format!("{} to complete {MORE} more requests", gateway.name);
            wait(&what, PATIENCE, || {
                let more = completed()? - before;
                Ok(if more >= MORE {
                    Seen::Yes(())
                } else {
                    Seen::NotYet(format!("{more}"))
                })
            })?;
            load.check()?;
        }
        Ok(())
    }

    /// Requests that failed until now.
    pub(crate) fn failed(&self) -> Result<f64> {
        let each = self.each.iter();
        each.map(|(gateway, _)| requests(self.namespace, gateway, &["outcome=\"failed\""]))
            .sum()
    }

    /// Ends the load on one gateway, of which nothing is asked any more: it is to go.
    pub(crate) fn leave(&mut self, gateway: &Pod) -> Result<Counts> {
        let at = self.each.iter().position(|(of, _)| of.name == gateway.name);
        let (_, load) = self
            .each
            .remove(at.context("there is no load on this gateway")?);
        load.stop()
    }

    /// Ends all load. Each request that the gateways accepted has ended then, and their clients count the same, besides
    /// `others` of theirs.
    pub(crate) fn stop(self, others: Counts) -> Result<Counts> {
        let gateways = self.gateways();
        let namespace = self.namespace;
        let all = self.end()? + others;
        all.check()?;
        let expected = [all.sent, all.refused, all.ended(), 0].map(|n| n as f64);
        let what = format!("the gateways to account for each request of clients ({all})");
        agree(namespace, &gateways, &what, |sums| sums == expected)?;
        Ok(all)
    }

    /// The same, where another revision has been served meanwhile, with which gateways count requests of clients anew.
    pub(crate) fn stop_revised(self) -> Result<Counts> {
        let gateways = self.gateways();
        let namespace = self.namespace;
        let all = self.end()?;
        all.check()?;
        let (ended, none) = (all.ended() as f64, 0.0);
        let what = format!("the gateways to account for each request of clients ({all})");
        agree(namespace, &gateways, &what, |sums| {
            sums[2] == ended && sums[3] == none
        })?;
        Ok(all)
    }

    /// Ends all load. Each request that the gateways accepted has ended then; they had others besides those counted here.
    pub(crate) fn stop_beside(self) -> Result<Counts> {
        let gateways = self.gateways();
        let namespace = self.namespace;
        let all = self.end()?;
        all.check()?;
        // The other clients send on: at some look nothing is in flight.
        for gateway in gateways {
            let what = format!("{} to have ended what it accepted", gateway.name);
            agree(
                namespace,
                &[gateway],
                &what,
                |[sent, refused, ended, breaches]| {
                    sent == refused + ended && breaches == 0.0 && sent > 0.0
                },
            )?;
        }
        Ok(all)
    }

    fn gateways(&self) -> Vec<Pod> {
        let each = self.each.iter();
        each.map(|(gateway, _)| gateway.clone()).collect()
    }

    /// Ends all load.
    pub(crate) fn end(self) -> Result<Counts> {
        let mut all = Counts::default();
        for (_, load) in self.each {
            all = all + load.stop()?;
        }
        Ok(all)
    }
}

/// Requests that a gateway ended.
fn requests(namespace: &Namespace<'_>, gateway: &Pod, labels: &[&str]) -> Result<f64> {
    namespace.metric(gateway, "spillgate_gateway_requests_total", labels)
}

/// Looks until the sums over the gateways of requests that were sent, refused and ended, and of breaches of invariants, are as
/// they should be.
fn agree(
    namespace: &Namespace<'_>,
    gateways: &[Pod],
    what: &str,
    is_right: impl Fn([f64; 4]) -> bool,
) -> Result<()> {
    const NAMES: [&str; 4] = [
        "spillgate_client_requests_total",
        "spillgate_client_refused_requests_total",
        "spillgate_gateway_requests_total",
        "spillgate_invariant_breaches_total",
    ];
    // A request whose answer has just been sent is counted a moment later.
    wait(what, PATIENCE, || {
        let mut sums = [0.0; 4];
        for gateway in gateways {
            // All of one moment: other clients may send on.
            let metrics = namespace.admin(gateway, "/metrics")?;
            for (of, name) in sums.iter_mut().zip(NAMES) {
                *of += sum(&metrics, name, &[]);
            }
        }
        let [sent, refused, ended, breaches] = sums;
        Ok(if is_right(sums) {
            Seen::Yes(())
        } else {
            Seen::NotYet(format!(
                "{sent} sent, {refused} refused, {ended} ended, {breaches} breaches of invariants"
            ))
        })
    })
}

/// Load from a pod of its own, on a name that pods resolve.
pub(crate) struct PodLoad<'n> {
    namespace: &'n Namespace<'n>,
}

impl<'n> PodLoad<'n> {
    /// Sends requests until it is stopped.
    pub(crate) fn start(
        namespace: &'n Namespace<'n>,
        image: &str,
        server: &str,
        args: &[&str],
    ) -> Result<PodLoad<'n>> {
        let args = [&["--duration", DURATION], args].concat();
        client(namespace, image, server, &args)?;
        namespace.ready(CLIENT, 1, PATIENCE)?;
        Ok(PodLoad { namespace })
    }

    /// Waits until the gateways with these labels have completed some more requests of it.
    pub(crate) fn more(&self, gateways: &str) -> Result<()> {
        /// A second's worth.
        const MORE: f64 = 15.0;
        let mut before: Option<f64> = None;
        wait("a client in the cluster to be answered", PATIENCE, || {
            let mut now = 0.0;
            for gateway in self.namespace.pods(gateways)? {
                // One that just goes, or is not there yet, has none.
                if gateway.is_ready && !gateway.is_ending {
                    now += from_cluster(self.namespace, &gateway)?;
                }
            }
            // Gateways that go take their counts along.
            let first = *before.get_or_insert(now);
            before = Some(first.min(now));
            Ok(match now - first >= MORE {
                true => Seen::Yes(()),
                false => Seen::NotYet(format!("{} more", now - first)),
            })
        })
    }

    /// Stops it, and returns how its requests ended.
    ///
    /// # Errors
    /// Also when it had ended before.
    pub(crate) fn stop(self) -> Result<Counts> {
        let pods = self.namespace.ready(CLIENT, 1, Duration::ZERO)?;
        self.namespace.signal(&pods[0], "SIGTERM")?;
        counted(self.namespace, LAST_ANSWERS)
    }
}

/// Requests of clients in the cluster that a gateway has completed in time.
pub(crate) fn from_cluster(namespace: &Namespace<'_>, gateway: &Pod) -> Result<f64> {
    let of =
        |labels: &[&str]| namespace.metric(gateway, "spillgate_client_good_requests_total", labels);
    // This machine is the gateway of the pods' network.
    Ok(of(&[])? - of(&["client=\"10.88.0.1\""])?)
}

/// The label of pods of clients.
const CLIENT: &str = "app=client";

/// Sends requests from a pod of its own, to a name that pods resolve, until `--duration` is over.
pub(crate) fn from_pod(
    namespace: &Namespace<'_>,
    image: &str,
    server: &str,
    args: &[&str],
    limit: Duration,
) -> Result<Counts> {
    client(namespace, image, server, args)?;
    counted(namespace, limit)
}

/// Starts the pod of a client.
fn client(namespace: &Namespace<'_>, image: &str, server: &str, args: &[&str]) -> Result<()> {
    let mut words = vec!["bench", "--json=-", "--server", server];
    words.extend(args);
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "client", "labels": { "app": "client" } },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "client", "image": image, "imagePullPolicy": "IfNotPresent", "args": words,
                "securityContext": {
                    "readOnlyRootFilesystem": true,
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                },
            }],
        },
    });
    namespace.apply_json(&pod)
}

/// Waits for the end of a client's pod, and reads what it counted.
fn counted(namespace: &Namespace<'_>, limit: Duration) -> Result<Counts> {
    let client = wait("the client's pod to end", limit, || {
        let pods = namespace.pods(CLIENT)?;
        let ended = |pod: &&Pod| ["Succeeded", "Failed"].contains(&pod.phase.as_str());
        Ok(match pods.iter().find(ended) {
            Some(pod) => Seen::Yes(pod.clone()),
            None => Seen::NotYet(pods.iter().map(Pod::to_string).collect()),
        })
    })?;
    let log = namespace.logs(&client)?;
    // Warnings may come before the report.
    let report = log.find('{').map_or("", |start| &log[start..]);
    let counts = serde_json::from_str(report)
        .with_context(|| format!("the pod of the client printed no report, but: {log}"));
    let counts = Counts::read(&counts?)?;
    namespace.kubectl(&["delete", "pod", "client"])?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_a_count_is_an_error() {
        let outcomes = json!({"completed": 3, "late": 1, "dropped": 2, "refused": 1, "failed": 0});
        let counts = Counts::read(&json!({"requests": 7, "outcomes": outcomes})).unwrap();
        assert_eq!((counts.sent, counts.ended(), counts.refused), (7, 6, 1));
        assert_eq!((counts + counts).sent, 14);
        assert!(Counts::read(&json!({"requests": 7})).is_err());
    }
}
