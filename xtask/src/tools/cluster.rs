//! The programs of the Kubernetes that runs on this machine for tests: `deploy/kubernetes/cluster`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Tool, put, require_go};
use crate::process;
use crate::workspace::Workspace;

/// Built as its own module: it and Kubernetes ask for other versions of the same modules.
const COREDNS: &str = "github.com/coredns/coredns@v1.12.4";
/// Its chart is installed with it.
const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.19.0";
const PROGRAMS: [&str; 5] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
];

/// The folder of the programs, which are built if need be.
pub fn build_cluster(workspace: &Workspace) -> Result<PathBuf> {
    let module = workspace.path("deploy/kubernetes/cluster");
    let go_mod = std::fs::read_to_string(module.join("go.mod"))
        .context("deploy/kubernetes/cluster/go.mod")?;
    let version = kubernetes_version(&go_mod)
        .context("deploy/kubernetes/cluster/go.mod requires no k8s.io/kubernetes")?;
    // The last one that is built stands for all.
    let last = Tool::new(
        workspace,
        "kubernetes/coredns",
        format!("{go_mod}{COREDNS}\n"),
    );
    let folder = workspace.tools().join("kubernetes");
    if last.is_built() {
        return Ok(folder);
    }
    require_go(workspace)?;
    println!("tools: building Kubernetes {version} (ten minutes when Go's cache is empty) ...");
    let staging = workspace.tools().join("kubernetes-new");
    std::fs::create_dir_all(&staging)?;
    std::fs::create_dir_all(&folder)?;
    for program in PROGRAMS {
        let mut go = workspace.program("go");
        go.current_dir(&module)
            .args(["build", "-mod=readonly", "-ldflags", &link_flags(version)])
            .arg("-o")
            .arg(staging.join(program))
            .arg(format!("k8s.io/kubernetes/cmd/{program}"));
        process::run(&mut go)?;
        put(&staging.join(program), &folder.join(program))?;
    }
    let mut go = workspace.program("go");
    go.args(["install", COREDNS]).env("GOBIN", &staging);
    process::run(&mut go)?;
    put(&staging.join("coredns"), &last.program)?;
    std::fs::remove_dir_all(&staging)?;
    last.note_built()?;
    Ok(folder)
}

/// Helm, built if need be.
pub fn build_helm(workspace: &Workspace) -> Result<PathBuf> {
    let tool = Tool::new(workspace, "helm", format!("{HELM}\n"));
    if !tool.is_built() {
        require_go(workspace)?;
        println!("tools: building {HELM} (six minutes when Go's cache is empty) ...");
        let staging = workspace.tools().join("helm-new");
        let mut go = workspace.program("go");
        go.args(["install", HELM]).env("GOBIN", &staging);
        process::run(&mut go)?;
        put(&staging.join("helm"), &tool.program)?;
        std::fs::remove_dir(&staging)?;
        tool.note_built()?;
    }
    Ok(tool.program)
}

/// The version of Kubernetes that a module requires: `v1.34.2`.
fn kubernetes_version(go_mod: &str) -> Option<&str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim().strip_prefix("require ").unwrap_or(line.trim());
        line.strip_prefix("k8s.io/kubernetes ")?
            .split_whitespace()
            .next()
    })
}

/// Kubernetes learns its version when it is linked; without one, kubelet and API do not agree to work together.
fn link_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    let set = |name: &str, value: &str| format!(" -X k8s.io/component-base/version.{name}={value}");
    format!(
        "-s -w{}{}{}",
        set("gitVersion", version),
        set("gitMajor", major),
        set("gitMinor", minor)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_the_module_requires() {
        let go_mod = include_str!("../../../deploy/kubernetes/cluster/go.mod");
        let version = kubernetes_version(go_mod).unwrap();
        assert!(version.starts_with("v1."), "{version}");
        assert_eq!(kubernetes_version("require k8s.io/api v0.34.2\n"), None);
    }

    #[test]
    fn the_version_is_linked_in() {
        assert_eq!(
            link_flags("v1.34.2"),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.2 -X k8s.io/component-base/version.gitMajor=1 \
             -X k8s.io/component-base/version.gitMinor=34"
        );
    }
}
