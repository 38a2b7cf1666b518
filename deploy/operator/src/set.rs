//! A set: the pipelines of a namespace that share gateways and a controller, and the groups of workers that they need.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::crd::{Autoscaler, ModuleWorkers, PipelineSpec};
use crate::definition::{Definition, Workers, Wrong, gpus};
use crate::names::{self, DEPLOYMENT_LENGTH_MAX};

/// A pipeline of the set that is served, or is to be.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name of the resource.
    pub name: String,
    /// Its unique id, by which it owns objects.
    pub uid: String,
    /// The resource, in the last state that passed its checks.
    pub spec: PipelineSpec,
    /// What that defines.
    pub definition: Arc<Definition>,
    /// What it served before, while a revision is rolled out.
    pub before: Option<Arc<Definition>>,
    /// Tells apart the versions with which pods begin.
    pub began: String,
}

/// The source runs with a module that may run with another one.
const STEPS_MAX: usize = 4;

/// Worker processes that run the same modules: a Deployment.
#[derive(Clone, Debug)]
pub struct Group {
    /// Position of the pipeline that says how many there are.
    pub pipeline: usize,
    /// The module that says so.
    pub module: String,
    /// Name of the Deployment.
    pub deployment: String,
    /// What each process runs: positions of pipelines, and modules. While a revision is rolled out, that are those of both.
    pub runs: Vec<(usize, String)>,
    /// Least and most processes.
    pub replicas: (u32, u32),
    /// Workers of each module in a process.
    pub workers: u32,
    /// What else was said.
    pub stated: ModuleWorkers,
}

impl Group {
    /// Whether the number of processes is somebody else's matter.
    pub fn is_external(&self) -> bool {
        self.stated.autoscaler == Autoscaler::External
    }

    /// `--modules` of its processes. Pods may begin while the pipeline has not all of them: each is for the pipelines that have it.
    pub fn modules(&self, members: &[Member]) -> String {
        let first = self.runs.first().map(|(at, _)| *at);
        let is_one = self.runs.iter().all(|(at, _)| Some(*at) == first);
        let entry = |(at, module): &(usize, String)| {
            let pipeline = match is_one {
                true => String::new(),
                false => format!("{}/", members[*at].definition.pipeline.name),
            };
            match self.workers {
                1 => format!("{pipeline}{module}?"),
                n => format!("{pipeline}{module}?={n}"),
            }
        };
        let all: Vec<String> = self.runs.iter().map(entry).collect();
        all.join(",")
    }

    /// Processes for so many wanted workers.
    pub fn processes(&self, wanted: u32) -> u32 {
        let (min, max) = self.replicas;
        wanted
            .div_ceil(self.workers.max(1))
            .clamp(min, max.max(min))
    }
}

/// The groups of these pipelines. A pipeline with a module that runs nowhere has none.
///
/// # Errors
/// What is wrong with which pipelines, by position. The groups of the others are given all the same.
pub fn groups(members: &[Member]) -> (Vec<Group>, BTreeMap<usize, Wrong>) {
    let mut wrong = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (at, member) in members.iter().enumerate() {
        for (module, workers) in &member.definition.workers {
            let Workers::Own { replicas, stated } = workers else {
                continue;
            };
            let deployment = names::worker(&member.name, module);
            if deployment.len() > DEPLOYMENT_LENGTH_MAX {
                let why = format!(
                    "spec.modules.{module}: its Deployment would be called {deployment}, which is longer than {DEPLOYMENT_LENGTH_MAX} \
                     characters; shorten the names of the pipeline or of the module"
                );
                wrong.entry(at).or_insert(Wrong(why));
            }
            groups.push(Group {
                pipeline: at,
                module: module.clone(),
                deployment,
                runs: vec![(at, module.clone())],
                replicas: *replicas,
                workers: gpus(stated).max(1),
                stated: stated.clone(),
            });
        }
    }
    for (at, member) in members.iter().enumerate() {
        for (module, workers) in &member.definition.workers {
            let Workers::With { other, replicas } = workers else {
                continue;
            };
            match root_of(members, at, other) {
                Ok(root) => {
                    let mut all = groups.iter_mut();
                    let group = all.find(|of| (of.pipeline, of.module.as_str()) == root);
                    let group = group.expect("each module with workers of its own has a group");
                    group.runs.push((at, module.clone()));
                    let (min, max) = group.replicas;
                    if let Some((least, most)) = replicas {
                        group.replicas = (min.max(*least), max.max(*most));
                    }
                }
                Err(why) => {
                    let why = format!("spec.modules.{module}.with: {why}");
                    wrong.entry(at).or_insert(Wrong(why));
                }
            }
        }
    }
    for (at, member) in members.iter().enumerate() {
        let before = member.before.as_ref().map(|before| &before.workers);
        for (module, workers) in before.into_iter().flatten() {
            let Workers::With { other, .. } = workers else {
                continue;
            };
            let root = root_before(members, at, other);
            let mut all = groups.iter_mut();
            let group = all.find(|of| Some((of.pipeline, of.module.as_str())) == root);
            let run = (at, module.clone());
            if let Some(group) = group.filter(|of| !of.runs.contains(&run)) {
                group.runs.push(run);
            }
        }
    }
    groups.retain(|group| !wrong.contains_key(&group.pipeline));
    for group in &mut groups {
        group.runs.retain(|(at, _)| !wrong.contains_key(at));
        group.runs.sort();
    }
    (groups, wrong)
}

/// The module in whose processes one ran before the revision that is rolled out.
fn root_before<'a>(
    members: &'a [Member],
    at: usize,
    mut other: &'a str,
) -> Option<(usize, &'a str)> {
    let before = &members[at].before.as_ref()?.workers;
    for _ in 0..STEPS_MAX {
        match before.get(other) {
            Some(Workers::Own { .. }) => return Some((at, other)),
            Some(Workers::With { other: next, .. }) => other = next,
            None => break,
        }
    }
    root_of(members, at, other).ok()
}

/// The module in whose processes one runs, which a name means: `MODULE`, or `PIPELINE/MODULE` of the set.
fn root_of<'a>(
    members: &'a [Member],
    mut at: usize,
    mut other: &'a str,
) -> Result<(usize, &'a str), String> {
    for _ in 0..STEPS_MAX {
        if let Some((pipeline, module)) = other.split_once('/') {
            let found = members.iter().position(|member| member.name == pipeline);
            at = found.ok_or_else(|| {
                format!("there is no pipeline {pipeline} in the set whose definition is right; write MODULE, or PIPELINE/MODULE")
            })?;
            other = module;
        }
        match members[at].definition.workers.get_key_value(other) {
            None => {
                return Err(format!(
                    "there is no module {other} in pipeline {}",
                    members[at].name
                ));
            }
            Some((module, Workers::Own { .. })) => return Ok((at, module)),
            Some((_, Workers::With { other: next, .. })) => other = next,
        }
    }
    Err("the modules refer to each other; one of them needs processes of its own: write replicas there".to_owned())
}
