//! The wanted number carried out where controller and workers are in one process: which of them start, serve and retire.
//!
//! Workers are started at once and need their cold start. A worker that cannot start is tried again after a cool-down. A
//! worker that died is replaced by the next free one.

use spillgate_pipeline::time::Timestamp;

use super::ModuleScaling;

/// What happens to the workers of a module, given by ordinal.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// So many are wanted.
    Wanted(u32),
    /// A worker that was asked for is ready.
    Started(u32),
    /// A worker that was asked for could not start.
    NotStarted(u32),
    /// A worker is gone.
    Died(u32),
    /// A worker that was gone is back and holds its model.
    Returned(u32),
}

/// What is to be done with a worker, given by ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start it and say when it is ready.
    Start(u32),
    /// It is ready: requests may go there.
    Serve(u32),
    /// It gets no more requests. Once it has none, give its memory back.
    Retire(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    Off,
    /// Could not start then.
    NotStarted(Timestamp),
    Starting,
    Up,
    Dead,
}

/// The workers of one module, in the process of its controller.
#[derive(Clone, Debug)]
pub struct LocalWorkers {
    config: ModuleScaling,
    wanted: u32,
    /// What each worker does, by ordinal.
    workers: Vec<Worker>,
}

impl LocalWorkers {
    /// The workers of a module of which the least serve.
    pub fn new(config: ModuleScaling) -> Self {
        let state = |ordinal| {
            if ordinal < config.least {
                Worker::Up
            } else {
                Worker::Off
            }
        };
        LocalWorkers {
            wanted: config.least,
            workers: (0..config.most).map(state).collect(),
            config,
        }
    }

    /// Workers that do not serve at first.
    pub fn off_at_first(&self) -> impl Iterator<Item = u32> {
        self.config.least..self.config.most
    }

    /// Takes in one event.
    pub fn on_event(&mut self, now: Timestamp, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Wanted(workers) => self.wanted = workers,
            Event::Started(ordinal) => {
                self.workers[ordinal as usize] = Worker::Up;
                out.push(Command::Serve(ordinal));
            }
            Event::NotStarted(ordinal) => {
                self.workers[ordinal as usize] = Worker::NotStarted(now);
                return;
            }
            Event::Died(ordinal) => self.workers[ordinal as usize] = Worker::Dead,
            Event::Returned(ordinal) => {
                self.workers[ordinal as usize] = Worker::Up;
                out.push(Command::Serve(ordinal));
            }
        }
        self.settle(now, out);
    }

    /// Starts or retires workers until as many serve or start as are wanted. The first workers that are off start;
    /// the last that serve are retired. A starting worker is waited for even if it is no longer wanted, and no other
    /// worker is retired in its place.
    fn settle(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        let wanted = self.wanted as usize;
        let serving = self.workers.iter().filter(|w| **w == Worker::Up).count();
        let starting = self
            .workers
            .iter()
            .filter(|w| **w == Worker::Starting)
            .count();
        let mut missing = wanted.saturating_sub(serving + starting);
        let mut surplus = serving.saturating_sub(wanted);
        let cool_down = self.config.cool_down;
        for (ordinal, worker) in (0..).zip(&mut self.workers) {
            let may_start = match *worker {
                Worker::Off => true,
                Worker::NotStarted(at) => now.since(at) >= cool_down,
                _ => false,
            };
            if may_start && missing > 0 {
                missing -= 1;
                *worker = Worker::Starting;
                out.push(Command::Start(ordinal));
            }
        }
        let mut retired = Vec::new();
        for (ordinal, worker) in (0..)
            .zip(&mut self.workers)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            if *worker == Worker::Up && surplus > 0 {
                surplus -= 1;
                *worker = Worker::Off;
                retired.push(Command::Retire(ordinal));
            }
        }
        out.extend(retired.into_iter().rev());
    }
}
