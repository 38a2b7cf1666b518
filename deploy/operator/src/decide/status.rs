//! What is said of a resource: its status and conditions.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::images::is_rolled_out;
use super::{Observed, Resource, groups_of, ready_of};
use crate::conditions::{Said, condition, trouble};
use crate::crd::{ModuleStatus, PipelineStatus};
use crate::names;
use crate::set::{Group, Member};

/// What is said of a resource.
pub(super) fn status(
    of: &Resource<'_>,
    members: &[Member],
    groups: &[Group],
    observed: &Observed,
    now: u64,
) -> PipelineStatus {
    let name = of.resource.name_any();
    let generation = of.resource.metadata.generation;
    let before = of.resource.status.clone().unwrap_or_default();
    let gateway = names::gateway(&observed.set);
    let mut status = PipelineStatus {
        observed_generation: generation,
        gateways: ready_of(&gateway, observed),
        gateway_selector: Some(format!(
            "{}={},{}=gateway",
            names::SET,
            observed.set,
            names::ROLE
        )),
        revision: of.record.as_ref().map(|record| {
            let served = record.previous.as_ref().unwrap_or(&record.now);
            served.hash()
        }),
        ..PipelineStatus::default()
    };
    let mut troubles: Vec<Said> = of.wrong.iter().cloned().collect();
    troubles.extend(
        observed
            .refusals
            .iter()
            .map(|why| Said::new(true, "Refused", why.clone())),
    );
    let mut progress: Vec<String> = of.waits.iter().cloned().collect();
    let mut unready: Vec<String> = Vec::new();
    let at = members.iter().position(|member| member.name == name);
    if let Some(at) = at {
        let definition = &members[at].definition;
        status.slo = Some(definition.slo());
        status.address = Some(format!(
            "{gateway}.{}:{}",
            observed.namespace,
            names::CLIENT_PORT
        ));
        if let Some(rates) = observed.rates.get(&definition.pipeline.name) {
            status.goodput = Some(format!("{:.1}/s", rates.goodput));
            status.dropped = rates.dropped.map(|part| format!("{:.1}%", part * 100.0));
        }
        let (mut ready, mut wanted) = (0, 0);
        for group in groups_of(at, groups) {
            let module = module_status(group, members, observed);
            ready += module.ready;
            wanted += module.replicas;
            if module.ready == 0 {
                unready.push(format!("no worker of {} is ready", group.module));
            }
            look_at(&group.deployment, observed, &mut troubles, &mut progress);
            status.modules.insert(group.module.clone(), module);
        }
        status.workers = Some(format!("{ready}/{wanted}"));
        for deployment in [names::controller(&observed.set), gateway] {
            if ready_of(&deployment, observed) == 0 {
                unready.push(format!("{deployment} is not ready"));
            }
            look_at(&deployment, observed, &mut troubles, &mut progress);
        }
    }
    let ready = match (at, unready.first()) {
        (None, _) => Said::new(false, "NotServed", "nothing runs of it yet"),
        (Some(_), Some(_)) => Said::new(false, "NotReady", unready.join("; ")),
        (Some(_), None) => Said::new(
            true,
            "Serves",
            format!(
                "{} gateways and {} workers are ready",
                status.gateways,
                status.workers.as_deref().unwrap_or("0")
            ),
        ),
    };
    let progressing = match progress.is_empty() {
        true => Said::new(false, "Settled", "all is as it should be"),
        false => Said::new(true, "Progressing", progress.join("; ")),
    };
    let degraded = match troubles.into_iter().next() {
        Some(trouble) => trouble,
        None => Said::new(false, "AsExpected", "nothing is wrong"),
    };
    let at = Time(
        k8s_openapi::jiff::Timestamp::from_second(i64::try_from(now).unwrap_or(0))
            .unwrap_or_default(),
    );
    let each = [
        ("Ready", ready),
        ("Progressing", progressing),
        ("Degraded", degraded),
    ];
    let each =
        each.map(|(type_, said)| condition(&before.conditions, type_, &said, generation, &at));
    status.conditions = each.into();
    status
}

fn module_status(group: &Group, members: &[Member], observed: &Observed) -> ModuleStatus {
    let deployment = observed.deployments.get(&group.deployment);
    let replicas = deployment.and_then(|of| of.spec.as_ref()?.replicas);
    let reason = group.runs.iter().filter_map(|(at, module)| {
        let pipeline = &members[*at].definition.pipeline.name;
        observed.controller.as_ref()?.wanted(pipeline, module)
    });
    ModuleStatus {
        replicas: replicas
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(group.replicas.0),
        ready: ready_of(&group.deployment, observed),
        reason: reason
            .max_by_key(|of| of.wanted)
            .map(|of| of.reason.clone()),
    }
}

/// What is wrong with a Deployment, and what it waits for.
fn look_at(name: &str, observed: &Observed, troubles: &mut Vec<Said>, progress: &mut Vec<String>) {
    let Some(deployment) = observed.deployments.get(name) else {
        progress.push(format!("{name} is created"));
        return;
    };
    let selector = deployment
        .spec
        .as_ref()
        .and_then(|of| of.selector.match_labels.as_ref());
    let is_of_it = |pod: &&Pod| {
        let mut labels = selector.into_iter().flatten();
        labels.all(|(key, value)| pod.labels().get(key) == Some(value))
    };
    let pods: Vec<&Pod> = observed.pods.iter().filter(is_of_it).collect();
    troubles.extend(trouble(deployment, &pods));
    if !is_rolled_out(deployment) {
        let wanted = deployment
            .spec
            .as_ref()
            .and_then(|of| of.replicas)
            .unwrap_or(1);
        progress.push(format!(
            "{name} has {} of {wanted} pods ready",
            ready_of(name, observed)
        ));
    }
}
