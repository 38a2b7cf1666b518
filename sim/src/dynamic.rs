//! One dynamic module on one device in virtual time: requests whose execution time depends on their content, served
//! by a batch scheduler. It evaluates each [`Scheduler`] alone, on the same requests.
//!
//! This driver decides nothing: it asks the scheduler whenever the device is free and something may have changed.

mod clairvoyant;
pub mod csv;
pub mod named;
mod workload;

use std::time::Duration;

use spillgate_pipeline::distribution::{BatchTime, WINDOW_DEFAULT, Window};
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::schedule::{
    Pending, ScheduleError, Scheduler, SchedulerConfig, Scoring,
};

pub use clairvoyant::clairvoyant;
pub use workload::{Mode, SIZES, Shape, Workload, WorkloadError};

/// A request; the scheduler does not learn its length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// When it arrives.
    pub at: Timestamp,
    /// Its application.
    pub application: Application,
    /// Its length, ms.
    pub length_ms: f64,
}

/// An instance of the scheduling problem: a device, its load, and the lengths known before the start.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Time of a batch.
    pub time: BatchTime,
    /// Sizes that a batch can be computed at, rising.
    pub sizes: Vec<u32>,
    /// Time from arrival to deadline.
    pub slo: Duration,
    /// Requests in order of arrival.
    pub jobs: Vec<Job>,
    /// Lengths of earlier requests: they fill the distributions before the start.
    pub history: Vec<(Application, f64)>,
    /// Which lengths count.
    pub window: Window,
    /// Most requests that wait; further ones are refused.
    pub capacity: usize,
    /// Every n-th finished request runs again alone and its length is learnt; 0: none. Reruns cost no device time
    /// here: the profiler uses idle time.
    pub sample_every: u32,
    /// How `orloj` scores requests.
    pub scoring: Scoring,
}

/// Most waiting requests by default.
pub const CAPACITY_DEFAULT: usize = 4096;

impl Instance {
    /// An instance with the default window and capacity that learns nothing while it runs.
    pub fn new(time: BatchTime, sizes: Vec<u32>, slo: Duration) -> Self {
        Instance {
            time,
            sizes,
            slo,
            jobs: Vec::new(),
            history: Vec::new(),
            window: WINDOW_DEFAULT,
            capacity: CAPACITY_DEFAULT,
            sample_every: 0,
            scoring: Scoring::default(),
        }
    }

    /// The batch that a planner of static models would choose at the mean length: the largest size of which two fit
    /// into the SLO, one to wait for and one to run in.
    pub fn planned(&self) -> u32 {
        let mean = self.mean_length_ms();
        let slo_ms = self.slo.as_secs_f64() * 1e3;
        let fits =
            |size: &&u32| 2.0 * self.time.ms(**size, mean, mean * f64::from(**size)) <= slo_ms;
        self.sizes.iter().rev().find(fits).copied().unwrap_or(1)
    }

    fn mean_length_ms(&self) -> f64 {
        let lengths = || self.history.iter().map(|sample| sample.1);
        if self.history.is_empty() {
            return self.jobs.iter().map(|job| job.length_ms).sum::<f64>()
                / self.jobs.len().max(1) as f64;
        }
        lengths().sum::<f64>() / self.history.len() as f64
    }

    /// Execution time of a batch of these members.
    fn duration(&self, size: u32, lengths: impl Iterator<Item = f64>) -> Duration {
        let (longest, sum) = lengths.fold((0.0f64, 0.0), |(longest, sum), length| {
            (longest.max(length), sum + length)
        });
        Duration::from_nanos((self.time.ms(size, longest, sum) * 1e6).round() as u64)
    }
}

/// The result of an instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finish {
    /// Requests in time over all requests.
    pub finish_rate: f64,
    /// The same of each application, by ordinal.
    pub by_application: Vec<f64>,
    /// Requests in a batch, padding not counted.
    pub batch_mean: f64,
    /// Share of the time that the device ran, from the first arrival to the last end.
    pub utilisation: f64,
    /// Requests that the scheduler dropped or refused.
    pub given_up: u64,
}

/// Adds up the outcomes of the requests.
#[derive(Debug, Default)]
struct Tally {
    /// (in time, all) by application.
    applications: Vec<(u64, u64)>,
    batches: u64,
    members: u64,
    busy: Duration,
    given_up: u64,
}

impl Tally {
    fn new(jobs: &[Job]) -> Self {
        let mut tally = Tally::default();
        for job in jobs {
            let idx = job.application.idx();
            if tally.applications.len() <= idx {
                tally.applications.resize(idx + 1, (0, 0));
            }
            tally.applications[idx].1 += 1;
        }
        tally
    }

    fn batch(&mut self, instance: &Instance, members: &[usize], start: Timestamp, took: Duration) {
        self.batches += 1;
        self.members += members.len() as u64;
        self.busy += took;
        for &member in members {
            let job = instance.jobs[member];
            if start + took <= job.at + instance.slo {
                self.applications[job.application.idx()].0 += 1;
            }
        }
    }

    fn finish(self, first: Timestamp, end: Timestamp) -> Finish {
        let ratio = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let good: u64 = self.applications.iter().map(|a| a.0).sum();
        let all: u64 = self.applications.iter().map(|a| a.1).sum();
        let span = end.since(first).as_secs_f64();
        Finish {
            finish_rate: ratio(good, all),
            by_application: self
                .applications
                .iter()
                .map(|&(good, all)| ratio(good, all))
                .collect(),
            batch_mean: ratio(self.members, self.batches),
            utilisation: if span > 0.0 {
                self.busy.as_secs_f64() / span
            } else {
                0.0
            },
            given_up: self.given_up,
        }
    }
}

/// Runs the instance under the scheduler of that name.
///
/// # Errors
/// When no scheduler can be built for the instance.
pub fn run(instance: &Instance, name: SchedulePolicy) -> Result<Finish, ScheduleError> {
    let mut scheduler = Scheduler::new(SchedulerConfig {
        policy: name,
        sizes: instance.sizes.clone(),
        planned: instance.planned(),
        time: instance.time,
        prior_ms: instance.mean_length_ms().max(f64::MIN_POSITIVE),
        window: instance.window,
        capacity: instance.capacity,
        scoring: instance.scoring,
    })?;
    for &(application, length_ms) in &instance.history {
        scheduler.learn(Timestamp::ZERO, application, length_ms)?;
    }
    let mut tally = Tally::new(&instance.jobs);
    let first = instance.jobs.first().map_or(Timestamp::ZERO, |job| job.at);
    let (mut now, mut end) = (first, first);
    let mut arrivals = instance.jobs.iter().enumerate().peekable();
    let mut gone = Vec::new();
    let mut finished = 0u32;
    loop {
        while let Some((i, job)) = arrivals.next_if(|(_, job)| job.at <= now) {
            let pending = Pending {
                id: RequestId(i as u64),
                application: job.application,
                deadline: job.at + instance.slo,
                arrived_at: job.at,
            };
            if scheduler.insert(job.at, pending).is_err() {
                tally.given_up += 1;
            }
        }
        gone.clear();
        let batch = scheduler.next(now, &mut gone);
        tally.given_up += gone.len() as u64;
        let Some(batch) = batch else {
            let Some((_, job)) = arrivals.peek() else {
                break;
            };
            now = job.at;
            continue;
        };
        let members: Vec<usize> = batch.members.iter().map(|id| id.0 as usize).collect();
        let lengths = members
            .iter()
            .map(|&member| instance.jobs[member].length_ms);
        let took = instance.duration(batch.size, lengths);
        tally.batch(instance, &members, now, took);
        now = now + took;
        end = now;
        scheduler.executed(now, batch.size, (batch.expected, batch.lengths), took);
        for member in members {
            finished += 1;
            if instance.sample_every > 0 && finished.is_multiple_of(instance.sample_every) {
                let job = instance.jobs[member];
                scheduler.learn(now, job.application, job.length_ms)?;
            }
        }
    }
    Ok(tally.finish(first, end))
}

#[cfg(test)]
mod tests;
