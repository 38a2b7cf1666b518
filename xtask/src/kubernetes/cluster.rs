//! The cluster that scenarios run on: `deploy/kubernetes/cluster`, and what its API server says.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xtask::workspace::Workspace;
use xtask::{process, tools};

/// How often a condition is looked at: often enough to see a pod between two states.
const POLL: Duration = Duration::from_millis(200);

/// Where pods reach the API server: address and port.
pub(super) const API: (&str, u16) = ("10.89.0.1", 16443);

/// The script by hand.
pub(super) fn script(workspace: &Workspace) -> Result<Command> {
    let programs = tools::build_cluster(workspace)?;
    Ok(script_in(workspace, &state(workspace)?, &programs))
}

/// The script with its two folders.
fn script_in(workspace: &Workspace, folder: &Path, programs: &Path) -> Command {
    let mut script = workspace.program(workspace.path("deploy/kubernetes/cluster/cluster"));
    script.env("CLUSTER", folder).env("CLUSTER_BIN", programs);
    script
}

/// Where the cluster keeps its state and logs.
fn state(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.target_dir()?.join("kubernetes"))
}

/// A running cluster. It is taken down when this goes out of scope, whatever the reason.
pub(crate) struct Cluster<'w> {
    pub(crate) workspace: &'w Workspace,
    /// Its state; scenarios put what they write into a folder of their own below it.
    folder: PathBuf,
    programs: PathBuf,
    /// The `spillgate` of this machine that makes load: the one in the image.
    pub(crate) spillgate: PathBuf,
    keep: bool,
}

impl<'w> Cluster<'w> {
    /// Starts it. With `keep` it stays in the end.
    pub(crate) fn up(
        workspace: &'w Workspace,
        spillgate: PathBuf,
        keep: bool,
    ) -> Result<Cluster<'w>> {
        let cluster = Cluster {
            workspace,
            folder: state(workspace)?,
            programs: tools::build_cluster(workspace)?,
            spillgate,
            keep,
        };
        // One that an earlier run kept is there already.
        if keep && cluster.kubectl(["get", "--raw", "/readyz"]).is_ok() {
            return Ok(cluster);
        }
        // From here on it is taken down again, also if this fails half way.
        process::run(cluster.script().arg("up"))?;
        Ok(cluster)
    }

    /// Its state.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// True if it stays in the end.
    pub(crate) fn keeps(&self) -> bool {
        self.keep
    }

    /// Gives the node an image.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        process::run(self.script().arg("image").arg(archive))
    }

    /// Gives an image that the node has a second name.
    pub(crate) fn tag(&self, image: &str, name: &str) -> Result<()> {
        // The archive says no registry, which containerd takes for Docker's.
        let full = |name: &str| format!("docker.io/library/{name}");
        self.ctr(&["images", "tag", "--force", &full(image), &full(name)])
    }

    /// `ctr`, the client of containerd.
    fn ctr(&self, args: &[&str]) -> Result<()> {
        let mut ctr = self.workspace.program("ctr");
        ctr.arg("-a")
            .arg(self.folder.join("containerd.sock"))
            .args(["-n", "k8s.io"])
            .args(args)
            .stdout(Stdio::null());
        process::run(&mut ctr)
    }

    /// A folder for what a scenario, or something that several need, writes. It is empty.
    pub(crate) fn scratch(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join("scenarios").join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn script(&self) -> Command {
        script_in(self.workspace, &self.folder, &self.programs)
    }

    /// What `kubectl` prints.
    ///
    /// # Errors
    /// An unsuccessful end, with what it says on standard error.
    pub(crate) fn kubectl<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String> {
        if process::interrupted() {
            bail!("interrupted");
        }
        let mut kubectl = self.workspace.program(self.programs.join("kubectl"));
        kubectl
            .env("KUBECONFIG", self.kubeconfig())
            .args(args)
            .stdin(Stdio::null());
        let output = kubectl
            .output()
            .with_context(|| format!("cannot start `{}`", process::shown(&kubectl)))?;
        if !output.status.success() {
            bail!(
                "`{}` failed: {}",
                process::shown(&kubectl),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What `kubectl ... -o json` prints.
    pub(crate) fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(args.iter().chain(&["-o", "json"]))?;
        serde_json::from_str(&text).with_context(|| format!("kubectl {}: no JSON", args.join(" ")))
    }

    /// The file by which programs of this machine reach the API server as its administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("pki/admin.conf")
    }

    /// A namespace of this name, anew. It takes only pods that keep to the strictest of Kubernetes's own standards.
    pub(crate) fn namespace(&self, name: &str) -> Result<Namespace<'_>> {
        // One that an earlier run kept.
        self.kubectl(["delete", "namespace", name, "--ignore-not-found", "--wait"])?;
        self.kubectl(["create", "namespace", name])?;
        let standard = "pod-security.kubernetes.io/enforce=restricted";
        self.kubectl(["label", "namespace", name, standard])?;
        Ok(Namespace {
            cluster: self,
            name: name.to_owned(),
            folder: self.scratch(name)?,
        })
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        if self.keep {
            println!(
                "kubernetes: the cluster stays: cargo xtask cluster kubectl get pods -A; cargo xtask cluster down ends it"
            );
            return;
        }
        use std::os::unix::process::CommandExt as _;
        // Nothing that refuses to start once we were interrupted; in a group of its own, where no Ctrl-C reaches it.
        let down = process::judge(self.script().arg("down").process_group(0));
        match down {
            Ok((true, _)) => {}
            Ok((false, said)) => eprintln!("kubernetes: the cluster did not end: {said}"),
            Err(error) => eprintln!("kubernetes: the cluster did not end: {error:#}"),
        }
    }
}

/// What a look at the cluster found.
pub(crate) enum Seen<T> {
    /// It is as it should be.
    Yes(T),
    /// It is not yet; this is there instead.
    NotYet(String),
}

/// Looks until it is as it should be.
///
/// # Errors
/// It is not after `limit`: says what was last seen. A look that failed counts as one that found nothing yet.
pub(crate) fn wait<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Seen<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        let last = match look() {
            Ok(Seen::Yes(found)) => return Ok(found),
            Ok(Seen::NotYet(last)) => last,
            Err(error) => format!("{error:#}"),
        };
        if process::interrupted() {
            bail!("interrupted while waiting for {what}");
        }
        if begun.elapsed() >= limit {
            bail!("waited {} s for {what}; last seen: {last}", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

/// A pod, as the API server has it.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: String,
    /// Tells it from another one of the same name.
    pub(crate) uid: String,
    /// The hash of its Deployment's template that it is made of.
    pub(crate) template: String,
    /// Its address, which this machine reaches; empty before it has one.
    pub(crate) ip: String,
    /// The id of its first container, empty before that runs.
    pub(crate) container: String,
    /// The image of its first container.
    pub(crate) image: String,
    pub(crate) phase: String,
    pub(crate) is_ready: bool,
    /// It is to end.
    pub(crate) is_ending: bool,
    pub(crate) restarts: u64,
    /// Why a container waits or ended, as far as one is told.
    pub(crate) reason: String,
}

impl Pod {
    fn read(pod: &Value) -> Pod {
        let status = &pod["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let containers = each(&status["containerStatuses"]);
        let ready =
            |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        let reason = containers.iter().find_map(|container| {
            ["waiting", "terminated"].iter().find_map(|state| {
                let state = &container["state"][state];
                let said = [text(&state["reason"]), text(&state["message"])];
                (!said[0].is_empty()).then(|| said.join(" ").trim().to_owned())
            })
        });
        Pod {
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            template: text(&pod["metadata"]["labels"]["pod-template-hash"]),
            ip: text(&status["podIP"]),
            container: text(&status["containerStatuses"][0]["containerID"])
                .trim_start_matches("containerd://")
                .to_owned(),
            image: text(&pod["spec"]["containers"][0]["image"]),
            phase: text(&status["phase"]),
            is_ready: each(&status["conditions"]).iter().any(ready),
            is_ending: !pod["metadata"]["deletionTimestamp"].is_null(),
            restarts: containers
                .iter()
                .filter_map(|container| container["restartCount"].as_u64())
                .sum(),
            reason: super::shortened(&reason.unwrap_or_default()),
        }
    }
}

impl std::fmt::Display for Pod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.phase)?;
        for (is, word) in [(self.is_ready, " ready"), (self.is_ending, " ending")] {
            if is {
                f.write_str(word)?;
            }
        }
        if self.restarts > 0 {
            write!(f, " {} restarts", self.restarts)?;
        }
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        Ok(())
    }
}

/// A namespace of the cluster, in which one scenario runs.
pub(crate) struct Namespace<'c> {
    pub(crate) cluster: &'c Cluster<'c>,
    pub(crate) name: String,
    /// Where it puts what it writes.
    pub(crate) folder: PathBuf,
}

impl Namespace<'_> {
    /// `kubectl` in this namespace.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster.kubectl(["-n", &self.name].iter().chain(args))
    }

    /// The same, as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Result<Value> {
        self.cluster.json(&[&["-n", &self.name], args].concat())
    }

    /// Applies objects, written as YAML.
    pub(crate) fn apply(&self, yaml: &str) -> Result<()> {
        let file = self.folder.join("applied.yaml");
        std::fs::write(&file, yaml)?;
        self.kubectl(&["apply", "-f", &file.to_string_lossy()])?;
        Ok(())
    }

    /// Applies an object.
    pub(crate) fn apply_json(&self, object: &Value) -> Result<()> {
        self.apply(&object.to_string())
    }

    /// Applies a folder of the repository with a kustomization.
    pub(crate) fn apply_folder(&self, folder: &str) -> Result<()> {
        self.kubectl(&["apply", "-k", folder])?;
        Ok(())
    }

    /// The pods with these labels, by name: `app.kubernetes.io/component=gateway`; all for an empty text.
    pub(crate) fn pods(&self, labels: &str) -> Result<Vec<Pod>> {
        let list = self.json(&["get", "pods", "-l", labels])?;
        let pods = list["items"].as_array().context("a list has no items")?;
        let mut pods: Vec<Pod> = pods.iter().map(Pod::read).collect();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pods)
    }

    /// Waits until there are so many pods with these labels, all of them ready and none about to end.
    pub(crate) fn ready(&self, labels: &str, count: usize, limit: Duration) -> Result<Vec<Pod>> {
        let which = if labels.is_empty() {
            String::new()
        } else {
            format!(" with {labels}")
        };
        let what = format!("{count} ready pods{which} in {}", self.name);
        wait(&what, limit, || {
            let pods = self.pods(labels)?;
            let are_ready = pods.iter().all(|pod| pod.is_ready && !pod.is_ending);
            Ok(if pods.len() == count && are_ready {
                Seen::Yes(pods)
            } else {
                let seen: Vec<String> = pods.iter().map(Pod::to_string).collect();
                Seen::NotYet(format!("{} pods: {}", pods.len(), seen.join("; ")))
            })
        })
    }

    /// Deletes a pod: it gets SIGTERM and its grace time. Does not wait.
    pub(crate) fn delete(&self, pod: &Pod) -> Result<()> {
        self.kubectl(&["delete", "pod", &pod.name, "--wait=false"])?;
        Ok(())
    }

    /// Deletes a pod by force: it is gone from the API at once, and its processes get SIGTERM and two seconds.
    pub(crate) fn delete_by_force(&self, pod: &Pod) -> Result<()> {
        self.kubectl(&["delete", "pod", &pod.name, "--force", "--grace-period=0"])?;
        Ok(())
    }

    /// Kills what runs in a pod (SIGKILL), without a word to Kubernetes, which starts it again in the same pod.
    pub(crate) fn crash(&self, pod: &Pod) -> Result<()> {
        self.signal(pod, "SIGKILL")
    }

    /// Sends a signal to what runs in a pod, without a word to Kubernetes.
    pub(crate) fn signal(&self, pod: &Pod, signal: &str) -> Result<()> {
        let args = ["tasks", "kill", "-s", signal, &pod.container];
        self.cluster.ctr(&args)
    }

    /// What a pod has logged.
    pub(crate) fn logs(&self, pod: &Pod) -> Result<String> {
        self.kubectl(&["logs", &pod.name])
    }

    /// What the admin port of a pod answers with 200: `/metrics`, `/status`.
    pub(crate) fn admin(&self, pod: &Pod, path: &str) -> Result<String> {
        let url = format!(
            "/api/v1/namespaces/{}/pods/{}:7701/proxy{path}",
            self.name, pod.name
        );
        self.cluster.kubectl(["get", "--raw", &url])
    }

    /// The sum of a metric over its labels, in a pod. Only lines with all of these labels, like `outcome="failed"`, count.
    pub(crate) fn metric(&self, pod: &Pod, name: &str, labels: &[&str]) -> Result<f64> {
        Ok(sum(&self.admin(pod, "/metrics")?, name, labels))
    }

    /// Writes what explains a failure: the pods, the events, and the log of each pod.
    pub(crate) fn diagnose(&self) -> Result<()> {
        for (file, args) in [
            ("pods.txt", &["describe", "pods"][..]),
            ("events.txt", &["get", "events", "--sort-by=.lastTimestamp"]),
        ] {
            std::fs::write(self.folder.join(file), self.kubectl(args)?)?;
        }
        for pod in self.pods("")? {
            // Of a container that never ran there is none.
            let log = self
                .logs(&pod)
                .unwrap_or_else(|error| format!("{error:#}\n"));
            std::fs::write(self.folder.join(format!("{}.log", pod.name)), log)?;
            if let Ok(log) = self.kubectl(&["logs", "--previous", &pod.name]) {
                std::fs::write(self.folder.join(format!("{}.previous.log", pod.name)), log)?;
            }
        }
        Ok(())
    }
}

/// The sum of a metric, as Prometheus reads it, over the lines with these labels.
pub(super) fn sum(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (found, value) = rest.rsplit_once(' ')?;
        let is_whole = found.is_empty() || found.starts_with('{');
        let has_all = labels.iter().all(|label| found.contains(label));
        (is_whole && has_all).then(|| value.parse::<f64>().ok())?
    });
    lines.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_metric_is_summed_over_the_lines_with_its_labels() {
        let text = "# TYPE a_total counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\"} 4\na_total_more 5\nb 6\n";
        assert_eq!(sum(text, "a_total", &[]), 7.0);
        assert_eq!(sum(text, "a_total", &["x=\"1\""]), 3.0);
        assert_eq!(sum(text, "b", &[]), 6.0);
        assert_eq!(sum(text, "c", &[]), 0.0);
    }

    #[test]
    fn a_pod_says_why_it_does_not_run() {
        let pod = Pod::read(&json!({
            "metadata": { "name": "p" },
            "status": {
                "phase": "Pending",
                "containerStatuses": [
                    { "restartCount": 2, "state": { "waiting": { "reason": "ErrImagePull", "message": "no such image" } } }
                ],
            },
        }));
        assert_eq!(
            pod.to_string(),
            "p Pending 2 restarts (ErrImagePull no such image)"
        );
        let pod = Pod::read(&json!({
            "metadata": { "name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Running", "podIP": "10.88.0.2", "conditions": [{ "type": "Ready", "status": "True" }] },
        }));
        assert_eq!(pod.to_string(), "p Running ready ending");
    }

    #[test]
    fn a_wait_that_ends_says_what_was_last_seen() {
        let mut n = 0;
        let error = wait::<()>("a thing", Duration::ZERO, || {
            n += 1;
            Ok(Seen::NotYet(format!("{n} of 2")))
        });
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "waited 0 s for a thing; last seen: 1 of 2");
        assert_eq!(wait("it", Duration::ZERO, || Ok(Seen::Yes(5))).unwrap(), 5);
    }
}
