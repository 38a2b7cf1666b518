//! What a scheduler knows of execution times. A *law* is the distribution of a request's length, the time that it takes
//! alone. The book keeps the law of each application and their mixture, and computes them anew after every few samples.
//! It also keeps how the time of a batch follows from the lengths of its members, and the pace of the device
//! ([`spillgate_pipeline::predict::Pace`]), by which these times are corrected.

use spillgate_pipeline::distribution::{
    BatchTime, Distribution, DistributionError, Learner, LearnerError, Learnt, Window, prior,
};
use spillgate_pipeline::predict::{Pace, PaceRule};
use spillgate_pipeline::schedule::{APPLICATIONS_MAX, Application};
use spillgate_pipeline::time::Timestamp;

use super::forming::{Forming, Grid};
use super::sharing::{Lengths, Sharing};

/// The laws are remade after at least this many samples: remaking computes the scores of all waiting requests anew.
const REMAKE_EVERY: usize = 16;
/// The laws are remade after new samples are one in this many of all in the windows: a few samples among many change
/// little.
const REMAKE_SHARE: usize = 16;
/// Requests over which an application's share is counted: halved at twice this number.
const SHARE_COUNT: f64 = 4096.0;

/// Length of a request that took no time, ms. Rates are per time, so a batch must take some time.
const LENGTH_MIN: f64 = 1e-6;

const _: () = assert!(REMAKE_EVERY > 0 && REMAKE_SHARE > 0);

/// Laws of execution times, as of the last remaking.
#[derive(Debug)]
pub(crate) struct Book {
    sizes: Vec<u32>,
    /// As the profile says.
    profiled: BatchTime,
    /// With the part that members share as the batches show it.
    shared: BatchTime,
    sharing: Option<Sharing>,
    /// As the batches on the device show it.
    time: BatchTime,
    /// Measured over expected time, held: what follows from it is computed anew when it changes.
    pace: Pace,
    window: Window,
    bins: usize,
    prior: Distribution,
    learners: Vec<Learner>,
    /// Requests seen of each application, fading: weights of the mixture.
    seen: Vec<f64>,
    since_remade: usize,
    /// The laws are to be remade whatever the number of new samples.
    is_due: bool,
    version: u64,
    /// Law of each application, then that of the mixture. An application without samples has the law of the mixture.
    laws: Vec<Distribution>,
    grid: Grid,
    /// Scratch.
    forming: Forming,
}

impl Book {
    pub(crate) fn new(
        sizes: Vec<u32>,
        time: BatchTime,
        window: Window,
        bins: usize,
        prior_ms: f64,
    ) -> Result<Self, LearnerError> {
        let prior = prior(prior_ms)?;
        // One window tells whether such windows and bins are valid at all.
        Learner::new(window, bins, prior.clone())?;
        let sharing = Sharing::new(&time);
        let shared = sharing.as_ref().map_or(time, Sharing::time);
        let laws = vec![prior.clone()];
        Ok(Book {
            sizes,
            profiled: time,
            shared,
            sharing,
            time: shared,
            pace: Pace::new(PaceRule::Held),
            window,
            bins,
            grid: Grid::new(&laws),
            forming: Forming::default(),
            laws,
            prior,
            learners: Vec::new(),
            seen: Vec::new(),
            since_remade: 0,
            is_due: false,
            version: 0,
        })
    }

    pub(crate) fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    pub(crate) fn time(&self) -> &BatchTime {
        &self.time
    }

    /// Rises whenever the laws change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The law that is used for a request of that application.
    pub(crate) fn law_idx(&self, application: Application) -> usize {
        application.idx().min(self.laws.len() - 1)
    }

    /// Laws told apart, the mixture included, which is the last.
    pub(crate) fn len(&self) -> usize {
        self.laws.len()
    }

    /// The law of an application, or of the mixture.
    pub(crate) fn law(&self, application: usize) -> &Distribution {
        &self.laws[application]
    }

    /// The distribution functions of all laws.
    pub(crate) fn grid(&self) -> &Grid {
        &self.grid
    }

    pub(crate) fn mixture(&self) -> &Distribution {
        &self.laws[self.laws.len() - 1]
    }

    /// The samples of an application's own requests.
    pub(crate) fn learner(&self, application: Application) -> Option<&Learner> {
        self.learners.get(application.idx())
    }

    /// Counts a request of the application.
    pub(crate) fn see(&mut self, application: Application) {
        let idx = application.idx();
        if idx >= APPLICATIONS_MAX {
            return;
        }
        if self.seen.len() <= idx {
            self.seen.resize(idx + 1, 0.0);
        }
        self.seen[idx] += 1.0;
        if self.seen.iter().sum::<f64>() > 2.0 * SHARE_COUNT {
            self.seen.iter_mut().for_each(|n| *n *= 0.5);
        }
    }

    /// The length of a request that took this long alone, ms. The profile's pace is used and not the measured one: a
    /// change of the measured pace would scale earlier samples differently from later ones.
    pub(crate) fn length_ms(&self, alone_ms: f64) -> f64 {
        self.profiled.length_ms(alone_ms)
    }

    /// Takes in the length of a request, ms.
    pub(crate) fn learn(
        &mut self,
        now: Timestamp,
        application: Application,
        length_ms: f64,
    ) -> Result<Learnt, LearnerError> {
        let idx = application.idx().min(APPLICATIONS_MAX - 1);
        while self.learners.len() <= idx {
            let learner = Learner::new(self.window, self.bins, self.prior.clone())?;
            self.learners.push(learner);
        }
        let length_ms = if length_ms == 0.0 {
            LENGTH_MIN
        } else {
            length_ms
        };
        let was_taught = self.learners.iter().any(Learner::is_taught);
        let learnt = self.learners[idx].observe(now, length_ms)?;
        self.see(application);
        self.since_remade += 1;
        if self.learners[idx].len() <= REMAKE_EVERY || learnt != Learnt::Added {
            self.is_due = true;
        }
        let is_first = !was_taught && self.learners[idx].is_taught();
        if is_first || learnt != Learnt::Added {
            // From here on the lengths themselves contain the error of the prior, or of the lengths before the jump.
            self.pace = Pace::new(PaceRule::Held);
            if let Some(sharing) = self.sharing.as_mut().filter(|_| is_first) {
                sharing.forget();
                self.shared = sharing.time();
            }
            self.time = self.shared;
        }
        Ok(learnt)
    }

    /// From now on this number stands for another application: its samples are forgotten.
    pub(crate) fn forget(&mut self, application: Application) {
        let idx = application.idx();
        if let Some(learner) = self.learners.get_mut(idx)
            && let Ok(fresh) = Learner::new(self.window, self.bins, self.prior.clone())
        {
            *learner = fresh;
        }
        if let Some(seen) = self.seen.get_mut(idx) {
            *seen = 0.0;
        }
        self.is_due = true;
    }

    /// Takes in how long a batch took and what was expected.
    pub(crate) fn keep_pace(&mut self, now: Timestamp, expected_ms: f64, took_ms: f64) {
        let ratio = took_ms / expected_ms * self.pace.factor();
        if self.pace.observe(now, ratio) {
            self.time = self.shared.slowed(self.pace.factor());
            self.version += 1;
        }
    }

    /// Time passed: a slow pace that nothing confirms fades.
    pub(crate) fn age(&mut self, now: Timestamp) {
        if self.pace.age(now) {
            self.time = self.shared.slowed(self.pace.factor());
            self.version += 1;
        }
    }

    /// The expected times of members of these applications alone; zero where nothing is learnt from them.
    pub(crate) fn lengths(&mut self, members: impl Iterator<Item = Application>) -> Lengths {
        if self.sharing.is_none() {
            return Lengths::default();
        }
        self.forming.clear(&self.grid);
        for application in members {
            let law = application.idx().min(self.laws.len() - 1);
            self.forming.push(&self.grid, law);
        }
        self.forming.lengths(&self.grid)
    }

    /// Takes in how long a batch of members with these lengths took, and learns how much they share.
    pub(crate) fn keep_sharing(&mut self, lengths: Lengths, took_ms: f64) {
        let Some(sharing) = &mut self.sharing else {
            return;
        };
        if sharing.observe(lengths, took_ms / self.pace.factor()) {
            self.shared = sharing.time();
            self.time = self.shared.slowed(self.pace.factor());
            self.version += 1;
        }
    }

    /// Remakes the laws when enough was learnt.
    pub(crate) fn refresh(&mut self, now: Timestamp) {
        let samples: usize = self.learners.iter().map(Learner::len).sum();
        let enough = REMAKE_EVERY.max(samples / REMAKE_SHARE);
        if self.since_remade < enough && !self.is_due {
            return;
        }
        self.since_remade = 0;
        self.is_due = false;
        match self.remake(now) {
            Ok(laws) => {
                self.grid = Grid::new(&laws);
                self.laws = laws;
            }
            // All samples were checked when they came in.
            Err(error) => unreachable!("learnt laws can be mixed: {error}"),
        }
        self.version += 1;
    }

    fn remake(&mut self, now: Timestamp) -> Result<Vec<Distribution>, DistributionError> {
        let mut laws = Vec::with_capacity(self.learners.len() + 1);
        for learner in &mut self.learners {
            let taught = learner.is_taught();
            let law = learner.law(now).clone();
            laws.push(taught.then_some(law));
        }
        let parts: Vec<(f64, &Distribution)> = laws
            .iter()
            .enumerate()
            .filter_map(|(i, law)| Some((self.seen.get(i).copied()?, law.as_ref()?)))
            .collect();
        let mixture = if parts.is_empty() {
            self.prior.clone()
        } else {
            Distribution::mixture(&parts, self.bins)?
        };
        let mut laws: Vec<Distribution> = laws
            .into_iter()
            .map(|law| law.unwrap_or_else(|| mixture.clone()))
            .collect();
        laws.push(mixture);
        Ok(laws)
    }
}
