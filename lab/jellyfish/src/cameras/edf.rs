//! The paper's baseline (§7.3): one variant, one queue for all workers. Frames whose deadline allows a batch of a size wait for it in
//! order of their deadlines, and the largest size that has enough of them is executed. This is Clockwork's rule (`clockwork.txt`,
//! §5.3) without its strategies' lead over the devices.

use spillgate_pipeline::time::Timestamp;

use super::camera::Frame;
use super::setting::Zoo;
use super::worker::{Next, Queue};

#[derive(Debug)]
pub(super) struct Edf {
    pub(super) queue: Queue,
    variant: usize,
}

impl Edf {
    pub(super) fn new(variant: usize) -> Self {
        Edf {
            queue: Queue::new(),
            variant,
        }
    }

    /// What a worker that is free does next.
    pub(super) fn next(&mut self, now: Timestamp, zoo: &Zoo, dropped: &mut Vec<Frame>) -> Next {
        let times = zoo.execution(self.variant);
        let in_time = self.queue.split_off(&(now + times[0], 0));
        dropped.extend(std::mem::replace(&mut self.queue, in_time).into_values());
        for n in (1..=times.len()).rev() {
            let allows = self.queue.range((now + times[n - 1], 0)..);
            let keys: Vec<_> = allows.take(n).map(|(key, _)| *key).collect();
            if keys.len() == n {
                let frames = keys.iter().filter_map(|key| self.queue.remove(key));
                return Next::Run {
                    variant: self.variant,
                    frames: frames.collect(),
                };
            }
        }
        Next::Rest
    }
}
