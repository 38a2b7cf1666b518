//! A worker with its queue: which frames it takes next, which it drops, and until when it waits for a fuller batch.

use std::collections::BTreeMap;
use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use super::cache::Cache;
use super::camera::Frame;
use super::setting::Zoo;

/// A frame that would be late by no more than this is executed: profiles are 99th percentiles.
const TOLERANCE: Duration = Duration::from_millis(3);
/// A worker waits for a fuller batch while its tightest frame keeps more than this.
const SLACK: Duration = Duration::from_millis(10);

/// Frames by deadline, and of equal ones by arrival.
pub(super) type Queue = BTreeMap<(Timestamp, u64), Frame>;

/// What a worker does next.
#[derive(Debug)]
pub(super) enum Next {
    /// It executes these with a variant.
    Run { variant: usize, frames: Vec<Frame> },
    /// It waits for more until then.
    Wait(Timestamp),
    /// It has nothing to do.
    Rest,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) queue: Queue,
    /// Frames of cameras that no worker has a place for. They take idle time.
    pub(super) spare: Queue,
    pub(super) cache: Cache,
    /// Largest batch that it forms.
    pub(super) batch: usize,
}

impl Worker {
    pub(super) fn new(n_cached: usize) -> Self {
        Worker {
            queue: Queue::new(),
            spare: Queue::new(),
            cache: Cache::new(n_cached),
            batch: 1,
        }
    }

    /// Where a frame waits.
    pub(super) fn queue_of(&mut self, frame: &Frame) -> &mut Queue {
        match frame.has_place {
            true => &mut self.queue,
            false => &mut self.spare,
        }
    }

    /// What it does next. Frames that are too late for the batch that they would be in are dropped.
    pub(super) fn next(&mut self, now: Timestamp, zoo: &Zoo, dropped: &mut Vec<Frame>) -> Next {
        let Some(variant) = self.cache.active().map(|v| v.0 as usize) else {
            return Next::Rest;
        };
        let times = zoo.execution(variant);
        let times = &times[..self.batch.min(times.len())];
        let next = self.next_planned(now, (variant, times), dropped);
        let until = match next {
            Next::Run { .. } => return next,
            Next::Wait(until) => Some(until),
            Next::Rest => None,
        };
        self.next_spare(now, (variant, times), until, dropped)
            .unwrap_or(next)
    }

    /// What it does for the cameras that it has a place for. `times`: by size of the batches that it forms.
    fn next_planned(
        &mut self,
        now: Timestamp,
        (variant, times): (usize, &[Duration]),
        dropped: &mut Vec<Frame>,
    ) -> Next {
        let most = times.len();
        while let Some(&(deadline, _)) = self.queue.keys().next() {
            let n = self.queue.len().min(most);
            if now + times[n - 1] > deadline + TOLERANCE {
                dropped.extend(self.queue.pop_first().map(|(_, frame)| frame));
                continue;
            }
            let waits_until = deadline - (times[most - 1] + SLACK);
            if n < most && now < waits_until {
                return Next::Wait(waits_until);
            }
            let first = std::iter::from_fn(|| self.queue.pop_first());
            let frames = first.take(n).map(|(_, frame)| frame).collect();
            return Next::Run { variant, frames };
        }
        Next::Rest
    }

    /// A batch for the other cameras, which ends before that time. A frame with a place waits for no longer than it would for a batch of its own
    /// kind, which is what its camera's budget allows for.
    fn next_spare(
        &mut self,
        now: Timestamp,
        (variant, times): (usize, &[Duration]),
        until: Option<Timestamp>,
        dropped: &mut Vec<Frame>,
    ) -> Option<Next> {
        while let Some(&(deadline, _)) = self.spare.keys().next() {
            if now + times[0] > deadline + TOLERANCE {
                dropped.extend(self.spare.pop_first().map(|(_, frame)| frame));
                continue;
            }
            let ends_by = until.map_or(deadline + TOLERANCE, |until| {
                until.min(deadline + TOLERANCE)
            });
            let in_time = |n: &usize| now + times[n - 1] <= ends_by;
            let n = (1..=self.spare.len().min(times.len()))
                .rev()
                .find(in_time)?;
            let first = std::iter::from_fn(|| self.spare.pop_first());
            let frames = first.take(n).map(|(_, frame)| frame).collect();
            return Some(Next::Run { variant, frames });
        }
        None
    }
}
