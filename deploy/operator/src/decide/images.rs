//! Another image: who gets it when, and what becomes of one with which pods do not get ready.

use k8s_openapi::api::apps::v1::Deployment;

use std::collections::BTreeMap;

use super::{Knows, Observed, Resource};
use crate::conditions::Said;
use crate::names;
use crate::render::{Kind, Object};
use crate::set::{Group, Member};

/// The image that the processes of a set are to have.
pub(super) struct Images {
    pub(super) image: String,
}

impl Images {
    /// The image that the first resource by name states, or the operator's default. One with which a Deployment did not get ready in
    /// time is taken back, until another one is stated.
    pub(super) fn decide(
        resources: &mut BTreeMap<&str, Resource<'_>>,
        members: &[Member],
        groups: &[Group],
        observed: &Observed,
        knows: &Knows,
    ) -> Self {
        let stated = members.iter().find_map(|member| member.spec.image.clone());
        let stated = stated.unwrap_or_else(|| knows.settings.image.clone());
        let controller = names::controller(&observed.set);
        let gateway = names::gateway(&observed.set);
        let all = groups.iter().map(|group| &group.deployment);
        let all: Vec<&String> = all.chain([&controller, &gateway]).collect();
        let deployment = |name: &&String| observed.deployments.get(*name);
        let has = |of: &Deployment| image_of(of).as_deref() == Some(stated.as_str());
        let is_good = all
            .iter()
            .all(|name| deployment(name).is_some_and(|of| has(of) && is_rolled_out(of)));
        let late = all
            .iter()
            .find(|name| deployment(name).is_some_and(|of| has(of) && is_late(of)));
        let mut image = stated.clone();
        for member in members {
            let Some(of) = resources.get_mut(member.name.as_str()) else {
                continue;
            };
            let Some(record) = &mut of.record else {
                continue;
            };
            let notes = &mut record.notes;
            if notes.refused_image.as_ref() != Some(&stated) {
                notes.refused_image = None;
            }
            if is_good {
                notes.image = Some(stated.clone());
            }
            let before = notes.image.clone().filter(|before| *before != stated);
            let (Some(before), true) = (before, late.is_some() || notes.refused_image.is_some())
            else {
                continue;
            };
            notes.refused_image = Some(stated.clone());
            let why = format!(
                "the image {stated} was taken back, and {before} is served on: pods with it did not get ready in time; state another \
                 image"
            );
            of.wrong.get_or_insert(Said::new(true, "TakenBack", why));
            image = before;
        }
        Images { image }
    }
}

/// Whether Kubernetes has given up waiting for a Deployment's pods.
pub(super) fn is_late(deployment: &Deployment) -> bool {
    let status = deployment.status.as_ref();
    let mut conditions = status
        .and_then(|of| of.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|of| {
        of.type_ == "Progressing" && of.reason.as_deref() == Some("ProgressDeadlineExceeded")
    })
}

/// Another image goes to workers first, then to the controller, then to the gateways, each once those before it have it.
pub(super) struct ImageSequence<'a> {
    observed: &'a Observed,
    /// All before have the image.
    is_through: bool,
}

impl<'a> ImageSequence<'a> {
    pub(super) fn new(observed: &'a Observed) -> Self {
        ImageSequence {
            observed,
            is_through: true,
        }
    }

    /// Whether a Deployment that is there has its image on all pods.
    pub(super) fn watch(&mut self, objects: &[Object]) {
        for object in objects.iter().filter(|of| of.kind == Kind::Deployment) {
            let wanted =
                object.value["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
            if let Some(there) = self.observed.deployments.get(&object.name) {
                self.is_through &= image_of(there).as_deref() == wanted && is_rolled_out(there);
            }
        }
    }

    /// The same objects, with the image that is there while others have not the new one.
    pub(super) fn held(&mut self, mut objects: Vec<Object>) -> Vec<Object> {
        for object in objects.iter_mut().filter(|of| of.kind == Kind::Deployment) {
            let there = self
                .observed
                .deployments
                .get(&object.name)
                .and_then(image_of);
            if let (Some(there), false) = (there, self.is_through) {
                object.value["spec"]["template"]["spec"]["containers"][0]["image"] = there.into();
            }
        }
        self.watch(&objects);
        objects
    }
}

fn image_of(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.clone()
}

/// Whether all pods are of the last template, and ready.
pub(super) fn is_rolled_out(deployment: &Deployment) -> bool {
    let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else {
        return false;
    };
    let wanted = spec.replicas.unwrap_or(1);
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
}
