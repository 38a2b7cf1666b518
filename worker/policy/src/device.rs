//! The device executor: one device, one batch at a time, several workers (modules) that share it.
//!
//! When the device is free it takes, among the workers with a forming batch, the one whose batch holds
//! the earliest deadline (ties: lower worker). Brokers are told when the device is expected to be free,
//! so that they count the other modules' batches too.
//!
//! Invariants: at most one batch runs; the device never idles while a broker has a forming batch; every
//! arrival leaves in exactly one `Execute` or `Drop`, or is cancelled.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{BatchId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::{DropReason, Request};
use spillgate_pipeline::time::Timestamp;

use crate::broker::{Broker, BrokerConfig, Member, Rejected};

/// A request on its way to a worker.
#[derive(Debug)]
pub struct Arrival<T> {
    /// The worker that it was dispatched to.
    pub worker: WorkerId,
    /// The request.
    pub request: Request,
    /// The driver's own.
    pub payload: T,
}

/// What happens to a device.
#[derive(Debug)]
pub enum Event<'a, T> {
    /// Requests arrived together; they are drained from the vector. They may start as one batch.
    Arrivals(&'a mut Vec<Arrival<T>>),
    /// A request ended elsewhere: forget it.
    Cancel(RequestId),
    /// Drop a request for this reason if it still waits here; what executes goes on.
    Withdraw(RequestId, DropReason),
    /// The running batch ended.
    BatchEnded(BatchId),
    /// The time of [`Device::next_wakeup`] has come.
    Wakeup,
    /// Reject everything that waits and everything that still arrives.
    Close(DropReason),
}

/// What the driver must do.
#[derive(Debug)]
pub enum Command<T> {
    /// Run this batch now.
    Execute(Batch<T>),
    /// Answer this request: it was dropped.
    Drop {
        /// The worker at which it waited.
        worker: WorkerId,
        /// The request and why.
        rejected: Rejected<T>,
    },
}

/// A batch to execute.
#[derive(Debug)]
pub struct Batch<T> {
    /// Its id, unique on this device.
    pub id: BatchId,
    /// The worker whose module runs.
    pub worker: WorkerId,
    /// That module.
    pub module: ModuleId,
    /// t_e.
    pub started_at: Timestamp,
    /// When it is expected to end.
    pub expected_end: Timestamp,
    /// Its requests, at least one.
    pub members: Vec<Member<T>>,
}

struct Running {
    id: BatchId,
    expected_end: Timestamp,
}

/// The executor of one device.
pub struct Device<T> {
    workers: IndexMap<WorkerId, Broker<T>, FxBuildHasher>,
    running: Option<Running>,
    closed: Option<DropReason>,
    next_batch: u64,
    rejected: Vec<Rejected<T>>,
}

impl<T> Device<T> {
    /// A device that serves these workers.
    pub fn new(workers: Vec<(WorkerId, BrokerConfig)>) -> Self {
        let workers = workers
            .into_iter()
            .map(|(id, config)| (id, Broker::new(config)))
            .collect();
        Device {
            workers,
            running: None,
            closed: None,
            next_batch: 0,
            rejected: Vec::new(),
        }
    }

    /// Takes in one event.
    pub fn on_event(&mut self, now: Timestamp, event: Event<'_, T>, out: &mut Vec<Command<T>>) {
        match event {
            Event::Arrivals(arrivals) => self.on_arrivals(now, arrivals, out),
            Event::Cancel(id) => {
                for broker in self.workers.values_mut() {
                    broker.cancel(id);
                }
            }
            Event::Withdraw(id, reason) => {
                for (&worker, broker) in &mut self.workers {
                    broker.withdraw(now, id, reason, &mut self.rejected);
                    drain_rejected(worker, &mut self.rejected, out);
                }
            }
            Event::BatchEnded(id) => {
                let ended = self.running.take();
                assert_eq!(
                    ended.map(|r| r.id),
                    Some(id),
                    "only the running batch can end"
                );
            }
            Event::Wakeup => {}
            Event::Close(reason) => self.close(now, reason, out),
        }
        self.collect(now, out);
        self.start(now, out);
    }

    /// The next moment at which something happens without an event from outside: a deadline passes.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.workers.values().filter_map(Broker::next_expiry).min()
    }

    /// When the device is expected to be free: the expected end of the running batch, but not
    /// earlier than `now`.
    pub fn free_at(&self, now: Timestamp) -> Timestamp {
        self.running
            .as_ref()
            .map_or(now, |r| r.expected_end.max(now))
    }

    /// Whether a batch runs.
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Requests that wait at a worker.
    pub fn waiting(&self, worker: WorkerId) -> usize {
        self.workers.get(&worker).map_or(0, Broker::waiting)
    }

    fn on_arrivals(
        &mut self,
        now: Timestamp,
        arrivals: &mut Vec<Arrival<T>>,
        out: &mut Vec<Command<T>>,
    ) {
        let mut rejected = std::mem::take(&mut self.rejected);
        for arrival in arrivals.drain(..) {
            let Arrival {
                worker,
                request,
                payload,
            } = arrival;
            let broker = self
                .workers
                .get_mut(&worker)
                .expect("requests are dispatched to known workers");
            broker.arrive(now, request, payload, &mut rejected);
            if let Some(reason) = self.closed {
                broker.reject_all(now, reason, &mut rejected);
            }
            drain_rejected(worker, &mut rejected, out);
        }
        self.rejected = rejected;
    }

    fn collect(&mut self, now: Timestamp, out: &mut Vec<Command<T>>) {
        let free_at = self.free_at(now);
        for (&worker, broker) in &mut self.workers {
            broker.expire(now, &mut self.rejected);
            broker.collect(now, free_at, &mut self.rejected);
            drain_rejected(worker, &mut self.rejected, out);
        }
    }

    /// Starts the most urgent forming batch if the device is free, and begins to form the next one.
    fn start(&mut self, now: Timestamp, out: &mut Vec<Command<T>>) {
        if self.running.is_some() {
            return;
        }
        let urgent = self
            .workers
            .iter()
            .enumerate()
            .filter_map(|(idx, (_, broker))| Some((broker.forming_deadline()?, idx)))
            .min();
        let Some((_, idx)) = urgent else { return };
        let (&worker, broker) = self
            .workers
            .get_index_mut(idx)
            .expect("the index was just found");
        let members = broker.take_batch();
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        let expected_end = now + broker.execution(members.len());
        let module = broker.module();
        self.running = Some(Running { id, expected_end });
        out.push(Command::Execute(Batch {
            id,
            worker,
            module,
            started_at: now,
            expected_end,
            members,
        }));
        self.collect(now, out);
    }

    fn close(&mut self, now: Timestamp, reason: DropReason, out: &mut Vec<Command<T>>) {
        self.closed = Some(reason);
        for (&worker, broker) in &mut self.workers {
            broker.reject_all(now, reason, &mut self.rejected);
            drain_rejected(worker, &mut self.rejected, out);
        }
    }
}

fn drain_rejected<T>(worker: WorkerId, rejected: &mut Vec<Rejected<T>>, out: &mut Vec<Command<T>>) {
    out.extend(
        rejected
            .drain(..)
            .map(|rejected| Command::Drop { worker, rejected }),
    );
}

#[cfg(test)]
mod tests;
