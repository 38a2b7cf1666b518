//! Definitions that are published to the processes of a set: how another revision of a pipeline reaches all of them.
//!
//! An operator hands a definition to a controller. Each process keeps the latest [`Publication`] of each pipeline that it serves, and
//! says it at the beginning of each connection with a process that may not know it. So no process has to store anything: a controller
//! that begins anew hears from the gateways what is published, and a process that begins with an old file hears from the controllers.
//! Where gateways and controllers all end together, nobody knows it any more but workers, which are not believed: they forget it, too.
//! Of two publications the larger generation counts; of two with one generation, which two controllers gave at the same time, the one
//! whose text is larger, so that all processes choose the same.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

/// Most bytes of a definition's two texts together: greetings carry two definitions, and so strangers may send as much.
pub const DEFINITION_BYTES_MAX: usize = 64 << 10;
/// A worker forgets what is published once controllers have known less for so long, and nobody as much: gateways tell a controller that
/// begins anew within a second.
pub const UNKNOWN_AFTER: Duration = Duration::from_secs(10);
/// Most bytes of how admission is to move.
pub const HOW_BYTES_MAX: usize = 64;
/// Most bytes of the name of a revision's state.
pub const STATE_BYTES_MAX: usize = 32;
/// Most revisions of a pipeline of which a process speaks: those that live, and the one that was taken back last.
pub const REPORTS_MAX: usize = 8;

/// A pipeline as files define it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Definition {
    /// The beginning of the hash of what it states: the revision that it makes. 0 where an operator hands it in.
    pub revision: u64,
    /// The text of the pipeline file. Paths in it are relative to the file with which a process began.
    pub pipeline: Arc<str>,
    /// The text of the file of profiles; empty where there is none.
    pub profiles: Arc<str>,
}

impl Definition {
    /// Bytes of its texts.
    pub fn bytes(&self) -> usize {
        self.pipeline.len() + self.profiles.len()
    }
}

/// A definition of a pipeline that all processes of the set are to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The name of the pipeline.
    pub pipeline: Arc<str>,
    /// Rises with each publication of the pipeline. The first one is 1: before, processes serve what their files say.
    pub generation: u64,
    /// What is to be served.
    pub now: Arc<Definition>,
    /// What was served before: an undo publishes it again.
    pub former: Arc<Definition>,
    /// How admission moves, as `--rollout` takes it; empty: as each gateway does by itself.
    pub how: Arc<str>,
    /// Why the definition before was taken back; empty where an operator published this one.
    pub why: Arc<str>,
}

impl Publication {
    /// The first publication of a pipeline.
    pub fn first(pipeline: Arc<str>, former: Arc<Definition>, now: Arc<Definition>) -> Self {
        Publication {
            pipeline,
            generation: 1,
            now,
            former,
            how: "".into(),
            why: "".into(),
        }
    }

    /// The publication after this one.
    #[must_use]
    pub fn next(&self, now: Arc<Definition>) -> Self {
        Publication {
            pipeline: self.pipeline.clone(),
            // A process that says the largest one is broken, and harms nobody by it.
            generation: self.generation.saturating_add(1),
            now,
            former: self.now.clone(),
            how: "".into(),
            why: "".into(),
        }
    }

    /// The publication of what was served before, for that reason; empty where an operator undoes this one.
    #[must_use]
    pub fn undone(&self, why: Arc<str>) -> Self {
        Publication {
            why,
            ..self.next(self.former.clone())
        }
    }

    /// The publication by which a gateway takes this one back, for that reason. `None` where this one takes one back already: the two
    /// would follow each other for ever. Then each gateway goes back by itself, until an operator publishes what is right.
    #[must_use]
    pub fn taken_back(&self, why: Arc<str>) -> Option<Self> {
        self.why.is_empty().then(|| self.undone(why))
    }

    /// Whether this one counts where the other one is known, too.
    fn compare(&self, other: &Self) -> Ordering {
        let key = |of: &Self| (of.generation, of.now.clone(), of.former.clone());
        let same = || (&self.how, &self.why).cmp(&(&other.how, &other.why));
        key(self).cmp(&key(other)).then_with(same)
    }
}

/// What a revision does in a process, as that says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionReport {
    /// The beginning of the hash of what its definition states.
    pub id: u64,
    /// The part of the streams that go to it, in hundredths of a percent.
    pub share: u32,
    /// What it does, as `/status` says it: at most [`STATE_BYTES_MAX`] bytes.
    pub state: Arc<str>,
    /// Why it was taken back; empty otherwise.
    pub why: Arc<str>,
}

/// What the revisions of a pipeline do in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevisionReports {
    /// The generation that it serves, or tries to; 0: what its file says.
    pub generation: u64,
    /// At most [`REPORTS_MAX`].
    pub revisions: Vec<RevisionReport>,
}

/// What an operator asks of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name of the set.
    pub set: Arc<str>,
    /// What is to be done.
    pub what: Operate,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operate {
    /// This definition is to be published.
    Offer {
        /// The definition.
        definition: Arc<Definition>,
        /// As in publications.
        how: Arc<str>,
    },
    /// What was served before the last publication of the pipeline of this name is to be published again.
    Undo(Arc<str>),
    /// What is published, and what the revisions do.
    Query,
}

/// What a controller answers to an operator, or why it refuses.
pub type Operated = Result<Vec<RolloutReport>, String>;

/// What is published of a pipeline, and what its revisions do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutReport {
    /// The name of the pipeline.
    pub pipeline: Arc<str>,
    /// The generation; 0: nothing was published.
    pub generation: u64,
    /// The revision that is to be served.
    pub revision: u64,
    /// Why the one before was taken back; empty where it was not.
    pub why: Arc<str>,
    /// The processes that the controller has met, and itself.
    pub processes: Vec<ProcessReport>,
}

/// What the revisions of a pipeline do in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessReport {
    /// Its name.
    pub process: Arc<str>,
    /// Whether it is a gateway.
    pub is_gateway: bool,
    /// Its revisions: at most [`REPORTS_MAX`].
    pub revisions: Vec<RevisionReport>,
}

/// What is published of one pipeline, as a process knows it.
#[derive(Clone, Debug, Default)]
pub struct Published {
    latest: Option<Arc<Publication>>,
    /// Since when controllers know less.
    doubted_since: Option<Timestamp>,
}

/// What a publication is to a process that hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It counts from now on: the process serves it, and says it to its peers.
    Later,
    /// It is known.
    Known,
    /// A later one is known: whoever said this one is to hear of that.
    Earlier,
}

impl Published {
    /// The one that counts; `None` before the first.
    pub fn latest(&self) -> Option<&Arc<Publication>> {
        self.latest.as_ref()
    }

    /// Its generation; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.latest.as_ref().map_or(0, |latest| latest.generation)
    }

    /// To a process that may not publish a gateway or controller greeted that knows this generation. Whether what was published is
    /// forgotten now: then the process serves what its file says.
    pub fn greeted(&mut self, now: Timestamp, generation: u64) -> bool {
        if generation >= self.generation() {
            self.doubted_since = None;
            return false;
        }
        let since = *self.doubted_since.get_or_insert(now);
        let forgets = now >= since + UNKNOWN_AFTER;
        if forgets {
            *self = Published::default();
        }
        forgets
    }

    /// A publication is heard, or made here.
    pub fn hear(&mut self, said: &Arc<Publication>) -> News {
        let order = match &self.latest {
            None => Ordering::Greater,
            Some(latest) => said.compare(latest),
        };
        match order {
            Ordering::Less => News::Earlier,
            Ordering::Equal => News::Known,
            Ordering::Greater => {
                self.latest = Some(said.clone());
                self.doubted_since = None;
                News::Later
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(text: &str) -> Arc<Definition> {
        Arc::new(Definition {
            revision: 1,
            pipeline: text.into(),
            profiles: "".into(),
        })
    }

    fn first() -> Publication {
        Publication::first("tm".into(), definition("a"), definition("b"))
    }

    #[test]
    fn the_larger_generation_counts_in_whatever_order_they_are_heard() {
        let first = Arc::new(first());
        let second = Arc::new(first.next(definition("c")));
        let mut process = Published::default();
        assert_eq!(process.hear(&second), News::Later);
        assert_eq!(process.hear(&first), News::Earlier);
        assert_eq!(process.hear(&second), News::Known);
        assert_eq!(process.generation(), 2);
        assert_eq!(second.former, definition("b"));
    }

    #[test]
    fn a_worker_forgets_what_no_controller_knows_for_a_while() {
        let at = |s| Timestamp::ZERO + Duration::from_secs(s);
        let mut worker = Published::default();
        worker.hear(&Arc::new(first()));
        assert!(!worker.greeted(at(1), 0));
        // A gateway that knows it is there still.
        assert!(!worker.greeted(at(5), 1));
        assert!(!worker.greeted(at(6), 0));
        assert!(!worker.greeted(at(15), 0));
        assert!(worker.greeted(at(16), 0));
        assert_eq!(worker.generation(), 0);
        assert!(!worker.greeted(at(40), 0));
    }

    #[test]
    fn of_two_with_one_generation_all_processes_choose_the_same() {
        let [one, two] = ["x", "y"].map(|text| Arc::new(first().next(definition(text))));
        for order in [[&one, &two], [&two, &one]] {
            let mut process = Published::default();
            for of in order {
                process.hear(of);
            }
            assert_eq!(process.latest(), Some(&two));
        }
    }

    #[test]
    fn an_undo_publishes_what_was_served_before_and_can_be_undone() {
        let back = first().undone("it fails".into());
        assert_eq!(
            (back.generation, &back.now, &*back.why),
            (2, &definition("a"), "it fails")
        );
        let again = back.undone("".into());
        assert_eq!((again.generation, again.now), (3, definition("b")));
    }

    #[test]
    fn gateways_take_back_what_an_operator_published_and_nothing_else() {
        let back = first().taken_back("it fails".into()).unwrap();
        assert_eq!(back, first().undone("it fails".into()));
        // What was served before fails, too.
        assert_eq!(back.taken_back("it fails, too".into()), None);
        let again = back.undone("".into());
        assert!(again.taken_back("it fails still".into()).is_some());
    }
}
