//! What the objects of sets and pipelines are called, and the labels by which they are found.

use serde_json::{Value, json};

/// Who manages an object: the operator changes and deletes none without it.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const OPERATOR: &str = "spillgate-operator";
/// Set of an object.
pub const SET: &str = "spillgate.dev/set";
/// Resource name of the pipeline of an object.
pub const PIPELINE: &str = "spillgate.dev/pipeline";
/// What a pod is: `controller`, `gateway`, `worker`, `profile`.
pub const ROLE: &str = "spillgate.dev/role";
/// The module that a Deployment of workers is named after.
pub const MODULE: &str = "spillgate.dev/module";

/// The Job of a pod, as Kubernetes labels it.
pub const JOB: &str = "batch.kubernetes.io/job-name";

/// Port of clients.
pub const CLIENT_PORT: u16 = 7700;
/// Port of probes, metrics and status.
pub const ADMIN_PORT: u16 = 7701;
/// Port of other processes.
pub const LINK_PORT: u16 = 7720;
/// Port of KEDA.
pub const SCALER_PORT: u16 = 7730;

/// Longest name of a Deployment: Kubernetes adds 17 characters to make that of a pod, which is a label of 63 at most.
pub const DEPLOYMENT_LENGTH_MAX: usize = 46;

/// The Deployment and Service of the set's controller.
pub fn controller(set: &str) -> String {
    format!("spillgate-{set}-controller")
}

/// The Deployment and Service of the set's gateways.
pub fn gateway(set: &str) -> String {
    format!("spillgate-{set}-gateway")
}

/// A Secret with certificates of the set: `authority`, or the role of who shows them.
pub fn link_secret(set: &str, role: &str) -> String {
    format!("spillgate-{set}-link-{role}")
}

/// The policy that says who may reach the set's pods.
pub fn network_policy(set: &str) -> String {
    format!("spillgate-{set}")
}

/// The Deployment of workers that is named after this module. Modules may have letters that names of Kubernetes may not.
pub fn worker(pipeline: &str, module: &str) -> String {
    format!("{pipeline}-worker-{}", label(module))
}

/// The ConfigMap of what a pipeline's processes read.
pub fn definition(pipeline: &str) -> String {
    format!("{pipeline}-pipeline")
}

/// The ConfigMap of execution times that were measured.
pub fn profiles(pipeline: &str) -> String {
    format!("{pipeline}-profiles")
}

/// The Job that measures a pipeline on a kind of device, and the ConfigMap that it reads.
pub fn profile_job(pipeline: &str, kind: &str, models: &str) -> String {
    format!("{pipeline}-profile-{kind}-{models}")
}

/// A name of Kubernetes for a module.
pub fn label(module: &str) -> String {
    let lower = module.to_ascii_lowercase().replace('_', "-");
    let lower = lower.trim_matches('-');
    match lower == module {
        true => lower.to_owned(),
        // Two modules may differ in these letters alone.
        false => format!("{lower}-{}", crate::short_hash(module.as_bytes())),
    }
}

/// The labels of all objects of a set.
pub fn set_labels(set: &str) -> Value {
    json!({ MANAGED_BY: OPERATOR, "app.kubernetes.io/part-of": "spillgate", SET: set })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_differ_in_letters_of_no_name_have_names_that_differ() {
        assert_eq!(worker("traffic", "detect"), "traffic-worker-detect");
        let names = ["a_b", "a-b", "A_b", "_a_b"].map(|module| worker("p", module));
        let mut each = names.to_vec();
        each.sort();
        each.dedup();
        assert_eq!(each.len(), names.len(), "{names:?}");
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(
            names.iter().all(|name| name.chars().all(is_name)),
            "{names:?}"
        );
    }
}
