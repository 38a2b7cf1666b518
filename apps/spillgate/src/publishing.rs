//! What is published of the pipelines of a set, as this process knows it: it hears it from others or, of controllers, from operators; it
//! says it to the others; and it has the revision served here.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_controller_policy::rollout::{
    RevisionId, RevisionState, RevisionView, RolloutConfig,
};
use spillgate_link::revisions::{Operating, Revisions};
use spillgate_process::clock::Clock;
use spillgate_protocol::membership::{MEMBERS_MAX, Member};
use spillgate_protocol::publication::{
    Definition, News, Operate, Operated, ProcessReport, Publication, Published, RevisionReport,
    RevisionReports, RolloutReport,
};
use tokio::sync::Notify;

use crate::deployment::Revision;
use crate::process_role::ProcessRole;
use crate::renewer::Renewer;
use crate::rollout_flag;
use crate::serving::Serving;

/// Reads a definition of a pipeline of the process.
pub(crate) type Read = dyn Fn(&Definition) -> anyhow::Result<Revision> + Send + Sync;
/// Checks a definition that an operator hands in. Returns the name of its pipeline and its revision.
pub(crate) type Check = dyn Fn(&Definition) -> anyhow::Result<(Arc<str>, u64)> + Send + Sync;

/// The definitions of a process, and how others are read.
pub(crate) struct Definitions {
    /// What its files say, by pipeline.
    pub(crate) first: Vec<(Arc<str>, Arc<Definition>)>,
    pub(crate) read: Arc<Read>,
    pub(crate) check: Arc<Check>,
}

/// What is published of the pipelines of a process.
pub(crate) struct Publishing {
    /// The name of the process.
    process: Arc<str>,
    is_gateway: bool,
    has_controllers: bool,
    pipelines: Vec<OfPipeline>,
    read: Arc<Read>,
    check: Arc<Check>,
    clock: Clock,
    /// Operators are answered one after the other: what they hand in is read and checked.
    turn: tokio::sync::Mutex<()>,
    serves: OnceLock<(Serving, Vec<Renewer>)>,
}

/// What is published of a pipeline.
struct OfPipeline {
    name: Arc<str>,
    /// What the file says with which the process began.
    first: Arc<Definition>,
    state: Mutex<State>,
    /// Another publication counts.
    changed: Notify,
}

impl OfPipeline {
    /// The publication that counts.
    fn latest(&self) -> Option<Arc<Publication>> {
        self.state.lock().published.latest().cloned()
    }
}

#[derive(Default)]
struct State {
    published: Published,
    /// By process: what its revisions do, and at which generation.
    seen: IndexMap<Arc<str>, (u64, ProcessReport), FxBuildHasher>,
}

impl State {
    /// The publication by which controllers take the latest one back: a worker cannot serve it, and no gateway has admitted to it yet. A
    /// gateway may not hear of that where the worker serves another revision.
    fn taken_back(&self) -> Option<Publication> {
        let latest = self.published.latest()?;
        let id = latest.now.revision;
        let mut gateways = self.seen.values().filter(|(_, of)| of.is_gateway);
        let serves = |of: &RevisionReport| of.id == id && of.share > 0;
        if gateways.any(|(_, of)| of.revisions.iter().any(serves)) {
            return None;
        }
        let same = self.seen.values();
        let mut same = same.filter(|(generation, _)| *generation == latest.generation);
        same.find_map(|(_, of)| latest.taken_back(unable(of, id)?.into()))
    }
}

/// Why a process without a gateway cannot serve a revision, as it says.
fn unable(of: &ProcessReport, id: u64) -> Option<String> {
    let back = RevisionState::TakenBack.name();
    let mut revisions = of.revisions.iter().filter(|_| !of.is_gateway);
    let failed = revisions.find(|of| of.id == id && &*of.state == back)?;
    Some(format!("{}: {}", of.process, failed.why))
}

impl Publishing {
    pub(crate) fn new(role: &ProcessRole, clock: Clock, definitions: Definitions) -> Arc<Self> {
        use spillgate_protocol::session::rights::Kind;

        let Definitions { first, read, check } = definitions;
        let pipelines = first.into_iter().map(|(name, first)| OfPipeline {
            name,
            first,
            state: Mutex::default(),
            changed: Notify::new(),
        });
        Arc::new(Publishing {
            process: role.name.clone(),
            is_gateway: role.is(Kind::Gateway),
            has_controllers: role.is(Kind::Controller),
            pipelines: pipelines.collect(),
            read,
            check,
            clock,
            turn: tokio::sync::Mutex::default(),
            serves: OnceLock::new(),
        })
    }

    /// Has what is published served from now on: each group of `serving` is a pipeline and has its renewer.
    pub(crate) fn begin(self: &Arc<Self>, serving: Serving, renewers: Vec<Renewer>) {
        let is_first = self.serves.set((serving, renewers)).is_ok();
        assert!(is_first, "a process begins once");
        for group in 0..self.pipelines.len() {
            tokio::spawn(self.clone().follow(group));
        }
    }

    /// Reads and offers each publication of a pipeline that counts, one after the other.
    async fn follow(self: Arc<Self>, group: usize) {
        let pipeline = &self.pipelines[group];
        let mut served = None;
        loop {
            pipeline.changed.notified().await;
            let latest = pipeline.latest();
            // Two controllers may publish with one generation.
            if served == latest {
                continue;
            }
            served.clone_from(&latest);
            let of = match &latest {
                Some(latest) => (latest.generation, RevisionId(latest.now.revision)),
                None => (0, RevisionId(pipeline.first.revision)),
            };
            let this = self.clone();
            let reading = tokio::task::spawn_blocking(move || this.read(group, latest.as_deref()));
            let read = reading
                .await
                .unwrap_or_else(|_| Err("it failed".to_owned()));
            let (read, config) = match read {
                Ok((revision, config)) => (Ok(revision), config),
                Err(why) => (Err(why), None),
            };
            if let Some((serving, renewers)) = self.serves.get() {
                renewers[group].publish(of, read, config).await;
                if serving.is_closed() {
                    return;
                }
            }
        }
    }

    /// What a publication says, or the file where there is none.
    fn read(
        &self,
        group: usize,
        latest: Option<&Publication>,
    ) -> Result<(Revision, Option<RolloutConfig>), String> {
        let how = latest.map(|latest| &*latest.how);
        let config = match how.filter(|how| !how.is_empty()) {
            None => None,
            Some(how) => Some(rollout_flag::rollout(how)?),
        };
        let pipeline = &self.pipelines[group];
        let now = latest.map_or(&pipeline.first, |latest| &latest.now);
        let revision = (self.read)(now).map_err(|error| format!("{error:#}"))?;
        if revision.id != RevisionId(now.revision) {
            return Err(format!(
                "this process reads revision {} where {} is published: do variables of its environment differ?",
                revision.id,
                RevisionId(now.revision)
            ));
        }
        Ok((revision, config))
    }

    /// A publication is heard, or made here.
    fn hear(&self, said: &Arc<Publication>) {
        let Some(group) = self.group(&said.pipeline) else {
            return;
        };
        let of = &self.pipelines[group];
        if of.state.lock().published.hear(said) != News::Later {
            return;
        }
        tracing::info!(
            pipeline = &*of.name,
            generation = said.generation,
            revision = %RevisionId(said.now.revision),
            why = &*said.why,
            "published"
        );
        of.changed.notify_one();
        if let Some((serving, _)) = self.serves.get() {
            let live = serving.all_of(group);
            let links = live.iter().flat_map(|(_, served)| served.links());
            links.for_each(|links| links.say_published(said));
        }
    }

    /// This gateway took a revision back: all go back together, if an operator published it.
    pub(crate) fn taken_back(&self, group: usize, id: RevisionId, why: &str) {
        let latest = self.pipelines[group].latest();
        let latest = latest.filter(|latest| latest.now.revision == id.0);
        if let Some(latest) = latest {
            let why = format!("{}: {why}", self.process);
            if let Some(back) = latest.taken_back(why.into()) {
                self.hear(&Arc::new(back));
            }
        }
    }

    fn group(&self, pipeline: &str) -> Option<usize> {
        self.pipelines.iter().position(|of| *of.name == *pipeline)
    }

    /// The pipeline of that name.
    fn named(&self, pipeline: &str) -> Result<usize, String> {
        self.group(pipeline).ok_or_else(|| {
            let names: Vec<&str> = self.pipelines.iter().map(|of| &*of.name).collect();
            format!(
                "no pipeline of this set is named {pipeline:?}; it serves {}: begin processes with the file of another one",
                names.join(", ")
            )
        })
    }

    /// Publishes a definition that an operator hands in.
    fn offer(&self, offered: &Definition, how: &Arc<str>) -> Result<usize, String> {
        if !how.is_empty() {
            rollout_flag::rollout(how)?;
        }
        let (name, revision) = (self.check)(offered).map_err(|error| format!("{error:#}"))?;
        let group = self.named(&name)?;
        let of = &self.pipelines[group];
        let latest = of.latest();
        let served = latest.as_ref().map_or(&of.first, |latest| &latest.now);
        // An operator that lost the answer asks again.
        if served.revision == revision {
            return Ok(group);
        }
        let now = Arc::new(Definition {
            revision,
            ..offered.clone()
        });
        let next = match &latest {
            Some(latest) => latest.next(now),
            None => Publication::first(name, of.first.clone(), now),
        };
        self.hear(&Arc::new(Publication {
            how: how.clone(),
            ..next
        }));
        Ok(group)
    }

    /// Publishes again what was served before.
    fn undo(&self, pipeline: &str) -> Result<usize, String> {
        let group = self.named(pipeline)?;
        let latest = self.pipelines[group].latest();
        let latest = latest.ok_or_else(|| {
            format!("nothing was published of pipeline {pipeline} since its processes began")
        })?;
        self.hear(&Arc::new(latest.undone("".into())));
        Ok(group)
    }

    fn operated(&self, what: &Operate) -> Operated {
        if !self.has_controllers {
            return Err("this process holds no controller; ask one that does".to_owned());
        }
        let groups = match what {
            Operate::Offer { definition, how } => {
                let group = self.offer(definition, how)?;
                group..group + 1
            }
            Operate::Undo(pipeline) => {
                let group = self.undo(pipeline)?;
                group..group + 1
            }
            Operate::Query => 0..self.pipelines.len(),
        };
        Ok(groups.map(|group| self.rollout(group)).collect())
    }

    fn rollout(&self, group: usize) -> RolloutReport {
        let of = &self.pipelines[group];
        let met = self.met(group);
        let state = of.state.lock();
        let latest = state.published.latest();
        let seen = state.seen.values();
        let mut processes: BTreeMap<Arc<str>, ProcessReport> = seen
            .filter(|(_, of)| met.contains(&of.process))
            .map(|(_, of)| (of.process.clone(), of.clone()))
            .collect();
        let own = ProcessReport {
            process: self.process.clone(),
            is_gateway: self.is_gateway,
            revisions: self.own(group).revisions,
        };
        processes.insert(own.process.clone(), own);
        RolloutReport {
            pipeline: of.name.clone(),
            generation: state.published.generation(),
            revision: latest.map_or(of.first.revision, |latest| latest.now.revision),
            why: latest.map_or_else(|| "".into(), |latest| latest.why.clone()),
            processes: processes.into_values().collect(),
        }
    }

    /// The processes with which there is a session for some revision of a pipeline.
    fn met(&self, group: usize) -> Vec<Arc<str>> {
        let Some((serving, _)) = self.serves.get() else {
            return Vec::new();
        };
        let live = serving.all_of(group);
        let links = live.iter().flat_map(|(_, served)| served.links());
        let peers = links.flat_map(|links| links.peers());
        peers
            .map(|peer| peer.greeting.member.name.clone())
            .collect()
    }

    /// What the revisions of a pipeline do here.
    fn own(&self, group: usize) -> RevisionReports {
        let reports = self.serves.get().map(|(serving, _)| serving.reports(group));
        let (views, generation) = reports.unwrap_or_default();
        RevisionReports {
            generation,
            revisions: views.iter().map(report).collect(),
        }
    }

    /// Why a process without a gateway cannot serve the revision of a publication, as it says.
    pub(crate) fn unable(&self, group: usize, generation: u64, id: RevisionId) -> Option<String> {
        let met = self.met(group);
        let state = self.pipelines[group].state.lock();
        let same = state.seen.values().filter(|(of, _)| *of == generation);
        let mut met = same.filter(|(_, of)| met.contains(&of.process));
        met.find_map(|(_, of)| unable(of, id.0))
    }
}

fn report(view: &RevisionView) -> RevisionReport {
    RevisionReport {
        id: view.id.0,
        share: view.share.parts(),
        state: view.state.name().into(),
        why: view.why.as_deref().unwrap_or_default().into(),
    }
}

impl Revisions for Publishing {
    fn published(&self, pipeline: &str) -> Option<Arc<Publication>> {
        let of = &self.pipelines[self.group(pipeline)?];
        of.latest()
    }

    fn heard(&self, said: Arc<Publication>) {
        self.hear(&said);
    }

    fn greeted(&self, pipeline: &str, generation: u64) {
        let Some(of) = self.group(pipeline).map(|group| &self.pipelines[group]) else {
            return;
        };
        let may_publish = self.is_gateway || self.has_controllers;
        let mut state = of.state.lock();
        if !may_publish && state.published.greeted(self.clock.now(), generation) {
            tracing::warn!(
                pipeline = &*of.name,
                "no controller knows what was published: this process serves what its file says"
            );
            of.changed.notify_one();
        }
    }

    fn reports(&self, pipeline: &str) -> RevisionReports {
        let group = self.group(pipeline);
        group.map_or_else(RevisionReports::default, |group| self.own(group))
    }

    fn seen(&self, pipeline: &str, process: &Member, reports: RevisionReports) {
        let Some(group) = self.group(pipeline) else {
            return;
        };
        let report = ProcessReport {
            process: process.name.clone(),
            is_gateway: process.is_gateway,
            revisions: reports.revisions,
        };
        let met = self.met(group);
        let mut state = self.pipelines[group].state.lock();
        if state.seen.len() >= MEMBERS_MAX {
            state.seen.retain(|name, _| met.contains(name));
        }
        let reported = (reports.generation, report);
        state.seen.insert(process.name.clone(), reported);
        let back = self.has_controllers.then(|| state.taken_back()).flatten();
        drop(state);
        if let Some(back) = back {
            self.hear(&Arc::new(back));
        }
    }

    fn operate(self: Arc<Self>, what: Operate) -> Operating {
        Box::pin(async move {
            let this = self.clone();
            let _turn = this.turn.lock().await;
            // Files are read meanwhile.
            let operated = tokio::task::spawn_blocking(move || self.operated(&what)).await;
            operated.unwrap_or_else(|_| Err("the operation failed".to_owned()))
        })
    }
}
