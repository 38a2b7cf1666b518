//! What the operator says of a pipeline: conditions with a sentence each, and what is wrong with its pods, with the cure.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::runtime::events::EventType;
use spillgate_pipeline::printable::printable_line;

/// Longest sentence of a condition.
const MESSAGE_BYTES_MAX: usize = 700;

/// A state and its sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whether it holds.
    pub holds: bool,
    /// One word for programs, like `SpecInvalid`.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

impl Said {
    /// It holds, or not, for this reason.
    pub fn new(holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let mut message = printable_line(&message).into_owned();
        if message.len() > MESSAGE_BYTES_MAX {
            let end = (0..=MESSAGE_BYTES_MAX)
                .rev()
                .find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or(0));
            message += " ...";
        }
        Said {
            holds,
            reason,
            message,
        }
    }
}

/// The condition of a type, after the one before it: the time is that of the last change of its status.
pub fn condition(
    before: &[Condition],
    type_: &str,
    said: &Said,
    generation: Option<i64>,
    now: &Time,
) -> Condition {
    let status = if said.holds { "True" } else { "False" };
    let before = before
        .iter()
        .find(|of| of.type_ == type_ && of.status == status);
    Condition {
        last_transition_time: before
            .map_or_else(|| now.clone(), |of| of.last_transition_time.clone()),
        message: said.message.clone(),
        observed_generation: generation,
        reason: said.reason.to_owned(),
        status: status.to_owned(),
        type_: type_.to_owned(),
    }
}

/// An event for each condition whose reason is new: kind, reason, sentence.
pub fn events(before: &[Condition], after: &[Condition]) -> Vec<(EventType, String, String)> {
    let is_new = |of: &&Condition| {
        let same = before.iter().find(|old| old.type_ == of.type_);
        same.is_none_or(|old| (&old.reason, &old.status) != (&of.reason, &of.status))
    };
    let said = after.iter().filter(is_new).map(|of| {
        let type_ = match of.type_ == "Degraded" && of.status == "True" {
            true => EventType::Warning,
            false => EventType::Normal,
        };
        (type_, of.reason.clone(), of.message.clone())
    });
    said.collect()
}

/// What is wrong with a Deployment or its pods, if anything.
pub fn trouble(deployment: &Deployment, pods: &[&Pod]) -> Option<Said> {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    let failure = conditions.find(|of| of.type_ == "ReplicaFailure" && of.status == "True");
    if let Some(failure) = failure {
        let message = failure.message.as_deref().unwrap_or_default();
        return Some(match message.contains("exceeded quota") {
            true => Said::new(
                true,
                "QuotaExceeded",
                format!(
                    "{name} cannot have all its pods: {message}; ask for a larger quota, or give fewer replicas or resources"
                ),
            ),
            false => Said::new(
                true,
                "PodsRefused",
                format!(
                    "{name} cannot have all its pods: {message}; see kubectl describe deployment {name}"
                ),
            ),
        });
    }
    trouble_of(name, pods)
}

/// What is wrong with the pods of a Deployment or Job, if anything.
pub fn trouble_of(name: &str, pods: &[&Pod]) -> Option<Said> {
    pods.iter().find_map(|pod| of_pod(name, pod))
}

fn of_pod(name: &str, pod: &Pod) -> Option<Said> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref()?;
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut conditions = status.conditions.iter().flatten();
    let placed = conditions.find(|of| of.type_ == "PodScheduled" && of.status == "False");
    if let Some(message) = placed.and_then(|of| of.message.as_deref()) {
        let cure = match message.contains("/gpu") {
            true => {
                "no node has a free GPU: add one, install its device plugin, or write device: cpu without GPUs in resources"
            }
            false => "add a node with room, or ask for less in resources",
        };
        return Some(Said::new(
            true,
            "NoNode",
            format!("{name}: no node takes pod {pod_name}: {message}; {cure}"),
        ));
    }
    let init = status.init_container_statuses.iter().flatten();
    let mut containers = init.chain(status.container_statuses.iter().flatten());
    containers.find_map(|container| of_container(name, pod_name, container))
}

fn of_container(name: &str, pod: &str, container: &ContainerStatus) -> Option<Said> {
    let waiting = container.state.as_ref().and_then(|of| of.waiting.as_ref());
    let reason = waiting
        .and_then(|of| of.reason.as_deref())
        .unwrap_or_default();
    let message = waiting
        .and_then(|of| of.message.as_deref())
        .unwrap_or_default();
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => {
            let image = &container.image;
            Some(Said::new(
                true,
                "ImageMissing",
                format!(
                    "{name}: the image {image} cannot be had: {message}; write spec.image: with one that nodes can pull, or \
                     spec.imagePullSecrets:"
                ),
            ))
        }
        "CreateContainerConfigError" | "CreateContainerError" => Some(Said::new(
            true,
            "PodFails",
            format!("{name}: pod {pod} cannot start: {message}; create what it names"),
        )),
        _ => ends(name, pod, container),
    }
}

/// A process that ended with an error, and is not ready again.
fn ends(name: &str, pod: &str, container: &ContainerStatus) -> Option<Said> {
    let of = |state: &Option<ContainerState>| state.as_ref().and_then(|of| of.terminated.clone());
    let ended = of(&container.state).or_else(|| of(&container.last_state))?;
    if container.ready || ended.exit_code == 0 {
        return None;
    }
    let words = last_lines(ended.message.as_deref().unwrap_or_default());
    let previous = if container.restart_count > 0 {
        " --previous"
    } else {
        ""
    };
    Some(Said::new(
        true,
        "ProcessFails",
        format!(
            "{name}: the process of pod {pod} ends with code {}: {words}; see kubectl logs {pod}{previous}",
            ended.exit_code
        ),
    ))
}

/// The end of what a process wrote: its reason.
fn last_lines(words: &str) -> String {
    let lines: Vec<&str> = words
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let errors = lines.iter().rev().find(|line| line.starts_with("error:"));
    let last = errors.or(lines.last());
    last.map_or_else(|| "it says nothing".to_owned(), |line| (*line).to_owned())
}
