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
    pub(super) cache: Cache,
    /// Largest batch that it forms.
    pub(super) batch: usize,
}

impl Worker {
    pub(super) fn new(n_cached: usize) -> Self {
        Worker {
            queue: Queue::new(),
            cache: Cache::new(n_cached),
            batch: 1,
        }
    }

    /// What it does next. Frames that are too late for the batch that they would be in are dropped.
    pub(super) fn next(&mut self, now: Timestamp, zoo: &Zoo, dropped: &mut Vec<Frame>) -> Next {
        let Some(variant) = self.cache.active().map(|v| v.0 as usize) else {
            return Next::Rest;
        };
        let times = zoo.execution(variant);
        let most = self.batch.min(times.len());
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
}
