//! What a pipeline's processes read, and how far a rollout is: kept in one ConfigMap, so that an operator that begins anew goes on.
//!
//! `pipeline.yaml` is what processes that start read. Those that run hear of another definition from their controllers, which
//! the operator asks to publish it. Until that has gone well, the definition before lies beside it under `previous.`: one that is taken back
//! is replaced by it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spillgate_controller_policy::rollout::RevisionState;
use spillgate_protocol::publication::{ProcessReport, RolloutReport};

use crate::crd::PipelineSpec;
use crate::short_hash;

/// The key of the pipeline's text, which is the name of the file in pods.
pub const PIPELINE: &str = "pipeline.yaml";
/// The key of its profiles: `spillgate` looks for them beside the pipeline under this name.
pub const PROFILES: &str = "pipeline.profile.yaml";
const RESOURCE: &str = "resource.json";
const NOTES: &str = "notes.json";
const PREVIOUS: &str = "previous.";

/// One state of a resource that passed its checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The text of the pipeline file.
    pub pipeline: String,
    /// The text of the file of profiles.
    pub profiles: String,
    /// The resource: what of it is no part of the texts.
    pub resource: PipelineSpec,
}

impl Version {
    /// Tells versions apart whose processes read other texts.
    pub fn hash(&self) -> String {
        short_hash(format!("{}\n---\n{}", self.pipeline, self.profiles).as_bytes())
    }

    fn write(&self, prefix: &str, data: &mut BTreeMap<String, String>) {
        let resource = serde_json::to_string(&self.resource).unwrap_or_default();
        data.insert(format!("{prefix}{PIPELINE}"), self.pipeline.clone());
        data.insert(format!("{prefix}{PROFILES}"), self.profiles.clone());
        data.insert(format!("{prefix}{RESOURCE}"), resource);
    }

    fn read(prefix: &str, data: &BTreeMap<String, String>) -> Option<Self> {
        let of = |key: &str| data.get(&format!("{prefix}{key}")).cloned();
        Some(Version {
            pipeline: of(PIPELINE)?,
            profiles: of(PROFILES)?,
            resource: serde_json::from_str(&of(RESOURCE)?).ok()?,
        })
    }
}

/// What is known of the version that counts now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notes {
    /// The hash of the version with which processes began; frozen once they were ready. Pods of another one are replaced.
    pub began: String,
    /// They were ready once: another version is rolled out from now on, and pods stay.
    pub was_ready: bool,
    /// What the controllers published, while a rollout is under way.
    pub published: Option<Published>,
    /// The version that was taken back last.
    pub refused: Option<Refused>,
    /// The last image with which all pods were ready.
    pub image: Option<String>,
    /// The image that was taken back, while the resource states it.
    pub refused_image: Option<String>,
}

/// What the controllers published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Its generation.
    pub generation: u64,
    /// Its revision.
    pub revision: u64,
}

/// A version that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Its hash.
    pub hash: String,
    /// Why.
    pub why: String,
}

/// What a pipeline's processes read, and how far a rollout is.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What processes read that start.
    pub now: Version,
    /// What was served before, while a rollout is under way.
    pub previous: Option<Version>,
    /// What is known of it.
    pub notes: Notes,
}

/// What a rollout needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: none is under way.
    Nothing,
    /// The controllers are to publish the version.
    Offer,
    /// Processes move; in words.
    Wait(String),
}

impl Record {
    /// The first version of a pipeline.
    pub fn first(now: Version) -> Self {
        let notes = Notes {
            began: now.hash(),
            ..Notes::default()
        };
        Record {
            now,
            previous: None,
            notes,
        }
    }

    /// The record in a ConfigMap.
    pub fn read(data: &BTreeMap<String, String>) -> Option<Self> {
        Some(Record {
            now: Version::read("", data)?,
            previous: Version::read(PREVIOUS, data),
            notes: serde_json::from_str(data.get(NOTES)?).ok()?,
        })
    }

    /// The contents of its ConfigMap.
    pub fn data(&self) -> BTreeMap<String, String> {
        let mut data = BTreeMap::new();
        self.now.write("", &mut data);
        if let Some(previous) = &self.previous {
            previous.write(PREVIOUS, &mut data);
        }
        let notes = serde_json::to_string(&self.notes).unwrap_or_default();
        data.insert(NOTES.to_owned(), notes);
        data
    }

    /// The resource is this version now. One that was taken back stays out until the resource says something else.
    pub fn wanted(&mut self, version: Version) {
        let hash = version.hash();
        if self.now.hash() == hash {
            self.now.resource = version.resource;
            // The resource says what is served: nothing is refused any more.
            self.notes.refused = None;
            return;
        }
        if self.refused(&hash).is_some() {
            return;
        }
        self.notes.published = None;
        self.notes.refused = None;
        if !self.notes.was_ready {
            self.notes.began = hash;
            self.now = version;
            return;
        }
        let before = std::mem::replace(&mut self.now, version);
        // Of a rollout that is under way, what was served well is kept.
        let served = self.previous.take().unwrap_or(before);
        let is_the_same = served.hash() == self.now.hash();
        // Going back to what is served is a rollout, too: the controllers have published another one meanwhile.
        self.previous = Some(served);
        if is_the_same {
            self.notes.published = None;
        }
    }

    /// Why the version of this hash was taken back, if it was.
    pub fn refused(&self, hash: &str) -> Option<&str> {
        let refused = self.notes.refused.as_ref()?;
        (refused.hash == hash).then_some(refused.why.as_str())
    }

    /// All its processes were ready.
    pub fn ready(&mut self) {
        self.notes.was_ready = true;
    }

    /// The controllers answered an offer.
    pub fn offered(&mut self, answer: Result<&RolloutReport, &str>) {
        match answer {
            Ok(report) => {
                self.notes.published = Some(Published {
                    generation: report.generation,
                    revision: report.revision,
                });
            }
            Err(why) => self.take_back(why),
        }
    }

    fn take_back(&mut self, why: &str) {
        let Some(previous) = self.previous.take() else {
            return;
        };
        let refused = std::mem::replace(&mut self.now, previous);
        self.notes.published = None;
        self.notes.refused = Some(Refused {
            hash: refused.hash(),
            why: why.to_owned(),
        });
    }

    /// What the rollout needs next, by what the controllers say. `workers_wait`: workers of modules that the version before has not
    /// are not ready, in words.
    pub fn step(&mut self, report: Option<&RolloutReport>, workers_wait: Option<String>) -> Next {
        if self.previous.is_none() {
            return Next::Nothing;
        }
        let Some(published) = self.notes.published.clone() else {
            return match workers_wait {
                Some(why) => Next::Wait(why),
                None => Next::Offer,
            };
        };
        let Some(report) = report else {
            return Next::Wait("the controller does not answer".to_owned());
        };
        let is_it = report.revision == published.revision;
        if report.generation > published.generation && !is_it {
            let why = match &*report.why {
                "" => "an operator published another revision",
                why => why,
            };
            self.take_back(why);
            return Next::Nothing;
        }
        if is_it && all_serve(&report.processes, report.revision) {
            self.previous = None;
            self.notes.published = None;
            return Next::Nothing;
        }
        // All that knew it ended together: processes serve what they read, and this is read by those that begin.
        if report.generation < published.generation && !is_it && report.generation == 0 {
            self.notes.published = None;
            return Next::Offer;
        }
        Next::Wait(moving(&report.processes, published.revision))
    }
}

/// Whether all gateways serve a revision, and are done with the one before.
fn all_serve(processes: &[ProcessReport], revision: u64) -> bool {
    let serves = |of: &&ProcessReport| {
        let mut revisions = of.revisions.iter();
        revisions.any(|of| of.id == revision && &*of.state == RevisionState::Stable.name())
    };
    let mut gateways = processes.iter().filter(|of| of.is_gateway).peekable();
    gateways.peek().is_some() && gateways.all(|of| serves(&of))
}

/// What the gateways do with a revision.
fn moving(processes: &[ProcessReport], revision: u64) -> String {
    let gateways = processes.iter().filter(|of| of.is_gateway);
    let said = gateways.filter_map(|of| {
        let of_it = of.revisions.iter().find(|of| of.id == revision)?;
        let share = f64::from(of_it.share) / 100.0;
        Some(format!(
            "{} {} with {share}% of the streams",
            of.process, of_it.state
        ))
    });
    let said: Vec<String> = said.collect();
    match said.is_empty() {
        true => "no gateway serves the new revision yet".to_owned(),
        false => said.join("; "),
    }
}
