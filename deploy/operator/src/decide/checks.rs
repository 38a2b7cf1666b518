//! Which resources are right, and what is to be measured before they are served.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use spillgate_pipeline::profile::ProfileSet;
use spillgate_pipeline::profile_file::parse_profiles;

use super::{Knows, Observed, Resource};
use crate::conditions::{Said, trouble_of};
use crate::crd::{Pipeline, PipelineSpec};
use crate::definition::{Compiled, Definition, Wrong};
use crate::names;
use crate::record::{Record, Version};
use crate::render::{Object, Rendered};
use crate::set::{Member, groups};

/// Checks a resource, and says which Jobs it needs.
pub(super) fn checked<'a>(
    name: &str,
    resource: &'a Pipeline,
    observed: &Observed,
    knows: &Knows,
    compiled: &mut Compiled,
) -> (Resource<'a>, Vec<Object>) {
    let stored = observed.config_maps.get(&names::definition(name));
    let measured = observed.config_maps.get(&names::profiles(name));
    let measured =
        measured.and_then(|data| parse_profiles(data.get("profiles.yaml")?, "measured").ok());
    let mut of = Resource {
        resource,
        wrong: None,
        waits: None,
        record: stored.and_then(Record::read),
        candidate: None,
        measured: measured.unwrap_or_default(),
    };
    let text = observed.texts.get(name).map(String::as_str);
    let definition = match compiled.define(name, &resource.spec, text, &knows.catalog) {
        Ok(definition) => definition,
        Err(wrong) => {
            of.wrong = Some(Said::new(true, "SpecInvalid", wrong.0));
            return (of, Vec::new());
        }
    };
    let mut jobs = Vec::new();
    let known = |of: &Resource<'_>| {
        let mut known = definition.given.clone();
        known.fill_from(&of.measured);
        known
    };
    for kind in definition.missing(&known(&of)) {
        let job = names::profile_job(name, &kind, &definition.models);
        match observed.job_logs.get(&job).map(|log| profiles_in(log)) {
            Some(Ok(profiles)) => {
                let before = std::mem::replace(&mut of.measured, profiles);
                of.measured.fill_from(&before);
            }
            Some(Err(why)) => {
                let why = format!(
                    "Job {job} does not say what it measured: {why}; see kubectl logs job/{job}"
                );
                of.wrong = Some(Said::new(true, "ProfilesMissing", why));
            }
            None => {}
        }
    }
    let missing = definition.missing(&known(&of));
    if missing.is_empty() {
        let profiles = definition.profiles_text(&of.measured);
        if let Err(wrong) = definition.fits(&profiles) {
            of.wrong = Some(Said::new(true, "SpecInvalid", wrong.0));
            return (of, jobs);
        }
        of.candidate = Some(Version {
            pipeline: definition.text.clone(),
            profiles,
            resource: resource.spec.clone(),
        });
        return (of, jobs);
    }
    let owners = [(name.to_owned(), resource.uid().unwrap_or_default())];
    let member = [Member {
        name: name.to_owned(),
        uid: resource.uid().unwrap_or_default(),
        spec: resource.spec.clone(),
        definition,
        before: None,
        began: String::new(),
    }];
    let rendered = Rendered {
        set: &observed.set,
        namespace: &observed.namespace,
        settings: &knows.settings,
        image: resource
            .spec
            .image
            .clone()
            .unwrap_or_else(|| knows.settings.image.clone()),
        members: &member,
        owners: &owners,
    };
    for kind in &missing {
        jobs.extend(rendered.profile_job(&member[0], kind));
        let job = names::profile_job(name, kind, &member[0].definition.models);
        of.waits = Some(format!(
            "Job {job} measures how long batches take on {kind}"
        ));
        if let Some(why) = observed.jobs.get(&job).and_then(failed) {
            let why = format!(
                "Job {job} cannot measure the pipeline on {kind}: {why}; see kubectl logs job/{job}, mend it and delete the Job, or state \
                 spec.profiles"
            );
            of.wrong = Some(Said::new(true, "ProfilesMissing", why));
        }
        let is_of_job = |pod: &&Pod| pod.labels().get(names::JOB) == Some(&job);
        let pods: Vec<&Pod> = observed.pods.iter().filter(is_of_job).collect();
        of.wrong = of
            .wrong
            .or_else(|| trouble_of(&format!("Job {job}"), &pods));
    }
    (of, jobs)
}

/// Why a Job has failed for good.
fn failed(job: &Job) -> Option<String> {
    let status = job.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let failed = conditions.find(|of| of.type_ == "Failed" && of.status == "True")?;
    Some(failed.message.clone().unwrap_or_default())
}

/// The file of profiles at the end of what a Job wrote.
fn profiles_in(log: &str) -> Result<ProfileSet, String> {
    let at = log
        .rfind("\n---\n")
        .ok_or("there is no file of profiles in its log")?;
    parse_profiles(&log[at + 5..], "profiles").map_err(|problems| problems.to_string())
}

/// Takes over what resources say now, where the set as a whole allows it.
pub(super) fn accept(
    resources: &mut BTreeMap<&str, Resource<'_>>,
    knows: &Knows,
    compiled: &mut Compiled,
) {
    loop {
        let members = members(resources, knows, compiled);
        let (_, wrong) = groups(&members);
        note(&wrong, &members, resources);
        let names = wrong.keys().map(|at| members[*at].name.as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        let mut changed = false;
        for name in names {
            let of = resources.get_mut(name.as_str());
            changed |= of.is_some_and(|of| of.candidate.take().is_some());
        }
        if !changed {
            break;
        }
    }
    for of in resources.values_mut() {
        match (of.candidate.take(), &mut of.record) {
            (None, _) => {}
            (Some(version), Some(record)) => record.wanted(version),
            (Some(version), None) => of.record = Some(Record::first(version)),
        }
    }
}

/// Notes what is wrong with members, by position.
pub(super) fn note(
    wrong: &BTreeMap<usize, Wrong>,
    members: &[Member],
    resources: &mut BTreeMap<&str, Resource<'_>>,
) {
    for (at, why) in wrong {
        if let Some(of) = resources.get_mut(members[*at].name.as_str()) {
            of.wrong = Some(Said::new(true, "SpecInvalid", why.0.clone()));
        }
    }
}

/// The pipelines that processes serve: as their resources say it now, else each in its last state that passed all checks. They are
/// sorted by name.
pub(super) fn members(
    resources: &mut BTreeMap<&str, Resource<'_>>,
    knows: &Knows,
    compiled: &mut Compiled,
) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    // Of two of one name the one that is served already stays.
    let mut order: Vec<(bool, &str)> = resources
        .iter()
        .map(|(name, of)| (of.record.is_none(), *name))
        .collect();
    order.sort_unstable();
    for (_, name) in order {
        let Some(of) = resources.get_mut(name) else {
            continue;
        };
        let stored = of.record.as_ref().map(|record| &record.now);
        let Some(version) = of.candidate.as_ref().or(stored) else {
            continue;
        };
        let spec = version.resource.clone();
        let definition = match defined(name, &spec, version, knows, compiled) {
            Ok(definition) => definition,
            // It passed with another version of the operator.
            Err(why) => {
                of.wrong.get_or_insert(Said::new(true, "SpecInvalid", why));
                continue;
            }
        };
        let own = definition.pipeline.name.clone();
        let twin = members
            .iter()
            .find(|other| other.definition.pipeline.name == own);
        if let Some(twin) = twin {
            let why = format!(
                "spec.pipeline.name: {} of this set serves a pipeline of the name {own} already; give another name, or another set",
                twin.name
            );
            of.wrong = Some(Said::new(true, "SpecInvalid", why));
            of.candidate = None;
            continue;
        }
        let before = of.record.as_ref().and_then(|of| of.previous.as_ref());
        let before = before.and_then(|of| defined(name, &of.resource, of, knows, compiled).ok());
        members.push(Member {
            name: name.to_owned(),
            uid: of.resource.uid().unwrap_or_default(),
            spec,
            definition,
            before,
            began: of
                .record
                .as_ref()
                .map_or_else(String::new, |record| record.notes.began.clone()),
        });
    }
    members.sort_by(|one, other| one.name.cmp(&other.name));
    members
}

/// The definition of a version that is stored: its text is what processes read.
fn defined(
    name: &str,
    spec: &PipelineSpec,
    version: &Version,
    knows: &Knows,
    compiled: &mut Compiled,
) -> Result<Arc<Definition>, String> {
    let text = spec
        .config_map_ref
        .as_ref()
        .map(|_| version.pipeline.as_str());
    let defined = compiled.define(name, spec, text, &knows.catalog);
    defined.map_err(|wrong| wrong.0)
}
