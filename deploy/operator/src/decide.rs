//! What there should be of a set, from all that was observed of it. Pure: the same observations give the same decision.

mod checks;
mod images;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use spillgate_pipeline::Catalog;
use spillgate_pipeline::profile::ProfileSet;
use spillgate_pipeline::profile_file::render_profiles;
use spillgate_protocol::publication::RolloutReport;

use crate::authority::{Certificates, Lifetimes, POD_ROLES};
use crate::conditions::Said;
use crate::crd::{Pipeline, PipelineStatus};
use crate::definition::{Compiled, Workers};
use crate::names;
use crate::processes::{ControllerStatus, Rates};
use crate::record::{Next, Record, Version};
use crate::render::{Kind, Object, Rendered, Settings};
use crate::set::{Group, Member, groups};

use checks::{accept, checked, members, note};
use images::{ImageSequence, Images, is_late, is_rolled_out};

/// All that was observed of a set.
#[derive(Default)]
pub struct Observed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub set: String,
    /// Its resources that are not being deleted, by name.
    pub resources: BTreeMap<String, Pipeline>,
    /// The texts that `configMapRef`s name, by the name of the resource.
    pub texts: BTreeMap<String, String>,
    /// The operator's own ConfigMaps, by name.
    pub config_maps: BTreeMap<String, BTreeMap<String, String>>,
    /// The certificates in the operator's own Secret.
    pub certificates: Option<String>,
    /// The set's Deployments, by name.
    pub deployments: BTreeMap<String, Deployment>,
    /// The set's Jobs, by name.
    pub jobs: BTreeMap<String, Job>,
    /// What Jobs that have ended wrote, by name.
    pub job_logs: BTreeMap<String, String>,
    /// The set's pods.
    pub pods: Vec<Pod>,
    /// What the controller says.
    pub controller: Option<ControllerStatus>,
    /// What the controller says of rollouts.
    pub rollouts: Option<Vec<RolloutReport>>,
    /// What came of requests, by the pipelines' own names.
    pub rates: BTreeMap<String, Rates>,
    /// What the API refused in the pass before: the object, and why.
    pub refusals: Vec<String>,
    /// What the controllers answered to the offers of the pass before, by resource.
    pub offered: BTreeMap<String, Result<RolloutReport, String>>,
}

/// A version that the controllers are to publish.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Name of the resource.
    pub resource: String,
    /// The address of the controller's pod; `None` while there is none.
    pub controller: Option<String>,
    /// The text of the pipeline file.
    pub pipeline: String,
    /// The text of the file of profiles.
    pub profiles: String,
    /// How admission is to move.
    pub how: String,
}

/// What there should be.
#[derive(Default)]
pub struct Decision {
    /// Objects as they should be, in the order in which they are needed.
    pub objects: Vec<Object>,
    /// Objects that should not be.
    pub deletions: Vec<(Kind, String)>,
    /// What the controllers are to publish.
    pub offers: Vec<Offer>,
    /// The status of each resource.
    pub statuses: BTreeMap<String, PipelineStatus>,
    /// The certificates of the set.
    pub certificates: Certificates,
    /// A rollout is under way: what controllers say of it counts in the next pass.
    pub rolls: bool,
}

/// What the operator was started with, and knows.
pub struct Knows {
    /// For rendering.
    pub settings: Settings,
    /// The module types of processes.
    pub catalog: Catalog,
    /// Of certificates.
    pub lifetimes: Lifetimes,
}

/// One resource on its way through a decision.
struct Resource<'a> {
    resource: &'a Pipeline,
    /// What is wrong with it now.
    wrong: Option<Said>,
    /// What it waits for.
    waits: Option<String>,
    record: Option<Record>,
    /// What it says now, where that passed the checks of the pipeline by itself.
    candidate: Option<Version>,
    measured: ProfileSet,
}

/// Decides. `compiled` saves work, and changes nothing.
///
/// # Errors
/// When a certificate cannot be made.
pub fn decide(
    now: u64,
    observed: &Observed,
    knows: &Knows,
    compiled: &mut Compiled,
) -> anyhow::Result<Decision> {
    let mut decision = Decision::default();
    let stored = observed
        .certificates
        .as_deref()
        .and_then(Certificates::read);
    decision.certificates = stored.unwrap_or_default();
    decision
        .certificates
        .renew(&observed.set, now, knows.lifetimes)?;

    let mut resources: BTreeMap<&str, Resource<'_>> = BTreeMap::new();
    let mut jobs: Vec<Object> = Vec::new();
    for (name, resource) in &observed.resources {
        let (of, needs) = checked(name, resource, observed, knows, compiled);
        jobs.extend(needs);
        resources.insert(name, of);
    }
    accept(&mut resources, knows, compiled);
    let mut members = members(&mut resources, knows, compiled);
    compiled.end_pass();
    // One that refers to what is not there is left out, and with it those that refer to it.
    let groups = loop {
        let (groups, wrong) = groups(&members);
        if wrong.is_empty() {
            break groups;
        }
        note(&wrong, &members, &mut resources);
        let left: BTreeSet<String> = wrong.keys().map(|at| members[*at].name.clone()).collect();
        members.retain(|member| !left.contains(&member.name));
    };
    let owners: Vec<(String, String)> = observed
        .resources
        .values()
        .map(|of| (of.name_any(), of.uid().unwrap_or_default()))
        .collect();
    let images = Images::decide(&mut resources, &members, &groups, observed, knows);
    let rendered = Rendered {
        set: &observed.set,
        namespace: &observed.namespace,
        settings: &knows.settings,
        image: images.image,
        members: &members,
        owners: &owners,
    };
    for (at, member) in members.iter().enumerate() {
        let of = resources.get_mut(member.name.as_str());
        let of = of.expect("each member is a resource");
        roll_out(of, at, &members, &groups, observed, &mut decision);
        if let Some(record) = &of.record {
            decision.objects.push(rendered.definition(member, record));
        }
    }
    for role in POD_ROLES {
        let data = decision.certificates.of_role(role).unwrap_or_default();
        decision.objects.push(rendered.link_secret(role, &data));
    }
    let kept = BTreeMap::from([("certificates.json".to_owned(), decision.certificates.text())]);
    decision
        .objects
        .push(rendered.link_secret("authority", &kept));
    decision.objects.extend(rendered.surroundings());
    decision.objects.extend(jobs);
    for (name, of) in &resources {
        if !of.measured.devices.is_empty()
            && let Some(member) = members.iter().find(|member| member.name == *name)
        {
            let text = render_profiles(&of.measured, "Measured by the operator's Jobs");
            decision.objects.push(rendered.measured(member, &text));
        }
    }
    if !members.is_empty() {
        let mut sequence = ImageSequence::new(observed);
        for group in &groups {
            let replicas = replicas(group, &members, observed);
            let objects = rendered.workers(group, replicas);
            sequence.watch(&objects);
            decision.objects.extend(objects);
        }
        decision
            .objects
            .extend(sequence.held(rendered.controller()));
        decision.objects.extend(sequence.held(rendered.gateway()));
    }
    prune(&resources, &members, &groups, observed, &mut decision);
    for (name, of) in &resources {
        let status = status::status(of, &members, &groups, observed, now);
        decision.statuses.insert((*name).to_owned(), status);
    }
    Ok(decision)
}

/// Follows a rollout: what is to be published, and what is to be waited for.
fn roll_out(
    of: &mut Resource<'_>,
    at: usize,
    members: &[Member],
    groups: &[Group],
    observed: &Observed,
    decision: &mut Decision,
) {
    let member = &members[at];
    let Some(record) = &mut of.record else {
        return;
    };
    match observed.offered.get(&member.name) {
        Some(Ok(report)) => record.offered(Ok(report)),
        Some(Err(why)) => record.offered(Err(why)),
        None => {}
    }
    if serves(at, groups, observed) && record.previous.is_none() {
        record.ready();
    }
    let name = &member.definition.pipeline.name;
    let report = observed.rollouts.as_ref();
    let report = report.and_then(|all| all.iter().find(|of| *of.pipeline == **name));
    let new = new_group(at, members, groups, observed);
    let waits = new.map(|group| format!("workers of {} are not ready", group.module));
    let is_late = |group: &&Group| {
        let deployment = observed.deployments.get(&group.deployment);
        deployment.is_some_and(is_late)
    };
    if let Some(group) = new.filter(is_late) {
        let why = format!("workers of {} did not get ready in time", group.module);
        record.offered(Err(&why));
    }
    match record.step(report, waits) {
        Next::Nothing => {}
        Next::Wait(what) => of.waits = Some(format!("the new revision: {what}")),
        Next::Offer => {
            of.waits = Some("the controller publishes the new revision".to_owned());
            decision.offers.push(Offer {
                resource: member.name.clone(),
                controller: controller_address(observed),
                pipeline: record.now.pipeline.clone(),
                profiles: record.now.profiles.clone(),
                how: member.spec.rollout.clone(),
            });
        }
    }
    decision.rolls |= record.previous.is_some();
    let version = record.notes.refused.clone();
    if let Some(refused) = version
        && of.wrong.is_none()
    {
        let why = format!(
            "the last change was taken back, and what was served before is served on: {}; change the resource",
            refused.why
        );
        of.wrong = Some(Said::new(true, "TakenBack", why));
    }
}

/// The address of the controller's pod.
fn controller_address(observed: &Observed) -> Option<String> {
    let mut pods = observed.pods.iter().filter(|pod| {
        pod.labels().get(names::ROLE).map(String::as_str) == Some("controller")
            && pod.metadata.deletion_timestamp.is_none()
    });
    pods.find_map(|pod| pod.status.as_ref()?.pod_ip.clone())
}

/// A group of which some processes do not run yet what the revision that is rolled out has more than the one before.
fn new_group<'a>(
    at: usize,
    members: &[Member],
    groups: &'a [Group],
    observed: &Observed,
) -> Option<&'a Group> {
    let member = &members[at];
    let ran = member.before.as_ref().map(|before| &before.workers);
    let is_new = |module: &String| {
        let now = member.definition.workers.get(module).map(Workers::with);
        now.is_some() && ran.and_then(|ran| ran.get(module)).map(Workers::with) != now
    };
    let waits = |group: &&Group| {
        let mut of = group.runs.iter().filter(|(of, _)| *of == at);
        if !of.any(|(_, module)| is_new(module)) {
            return ready_of(&group.deployment, observed) == 0;
        }
        let deployment = observed.deployments.get(&group.deployment);
        deployment.is_none_or(|of| !runs(of, &group.modules(members)) || !is_rolled_out(of))
    };
    groups_of(at, groups).find(waits)
}

/// Whether the pods of a Deployment begin with these modules.
fn runs(deployment: &Deployment, modules: &str) -> bool {
    let pod = deployment
        .spec
        .as_ref()
        .and_then(|of| of.template.spec.as_ref());
    let mut args = pod
        .into_iter()
        .flat_map(|of| &of.containers)
        .flat_map(|of| &of.args);
    args.any(|args| args.iter().any(|arg| arg == modules))
}

/// The groups that run modules of a pipeline.
fn groups_of(at: usize, groups: &[Group]) -> impl Iterator<Item = &Group> {
    let runs_it = move |group: &&Group| group.runs.iter().any(|(of, _)| *of == at);
    groups.iter().filter(runs_it)
}

fn ready_of(deployment: &str, observed: &Observed) -> u32 {
    let deployment = observed.deployments.get(deployment);
    let status = deployment.and_then(|of| of.status.as_ref());
    let ready = status.and_then(|of| of.ready_replicas).unwrap_or(0);
    u32::try_from(ready).unwrap_or(0)
}

/// Whether clients are served: gateways are ready, and so is a process of each module.
fn serves(at: usize, groups: &[Group], observed: &Observed) -> bool {
    let mut all = groups_of(at, groups);
    ready_of(&names::gateway(&observed.set), observed) > 0
        && all.all(|group| ready_of(&group.deployment, observed) > 0)
}

/// How many processes a group should have; `None`: somebody else says it.
fn replicas(group: &Group, members: &[Member], observed: &Observed) -> Option<u32> {
    if group.is_external() {
        return None;
    }
    let wanted = group.runs.iter().filter_map(|(at, module)| {
        let pipeline = &members[*at].definition.pipeline.name;
        Some(
            observed
                .controller
                .as_ref()?
                .wanted(pipeline, module)?
                .wanted,
        )
    });
    let wanted = wanted.max();
    let now = observed.deployments.get(&group.deployment);
    let now = now.and_then(|of| of.spec.as_ref()?.replicas);
    let now = now.and_then(|n| u32::try_from(n).ok());
    Some(match (wanted, now) {
        (Some(wanted), _) => group.processes(wanted),
        // While the controller says nothing the number stays.
        (None, Some(now)) => now.clamp(group.replicas.0, group.replicas.1.max(group.replicas.0)),
        (None, None) => group.replicas.0,
    })
}

/// Workers of modules that are gone, and Jobs whose times are known.
fn prune(
    resources: &BTreeMap<&str, Resource<'_>>,
    members: &[Member],
    groups: &[Group],
    observed: &Observed,
    decision: &mut Decision,
) {
    let is_settled = |pipeline: &str| {
        let of = resources.get(pipeline);
        let record = of.and_then(|of| of.record.as_ref());
        let member = members.iter().find(|member| member.name == pipeline);
        // One that was taken back in this pass has other groups in the next one.
        record.zip(member).is_some_and(|(record, member)| {
            record.previous.is_none() && record.now.pipeline == member.definition.text
        })
    };
    let wanted: BTreeSet<&str> = groups
        .iter()
        .map(|group| group.deployment.as_str())
        .collect();
    for (name, deployment) in &observed.deployments {
        let labels = deployment.labels();
        let is_worker = labels.contains_key(names::PIPELINE);
        let pipeline = labels.get(names::PIPELINE).map_or("", String::as_str);
        if is_worker && is_settled(pipeline) && !wanted.contains(name.as_str()) {
            decision.deletions.push((Kind::Deployment, name.clone()));
            decision
                .deletions
                .push((Kind::PodDisruptionBudget, name.clone()));
        }
    }
    let needed: BTreeSet<&str> = decision
        .objects
        .iter()
        .filter(|of| of.kind == Kind::Job)
        .map(|of| of.name.as_str())
        .collect();
    for name in observed
        .jobs
        .keys()
        .filter(|name| !needed.contains(name.as_str()))
    {
        decision.deletions.push((Kind::Job, name.clone()));
        decision.deletions.push((Kind::ConfigMap, name.clone()));
    }
}
