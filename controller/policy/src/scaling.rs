//! Scaling: how many workers each module should have, from the *offered* rate at the entry.
//!
//! A module sees only what the gate and the modules before it let through. A scaler that follows this rate spirals
//! down: fewer workers let through less. So the offered rate counts, times the part of the requests that run each
//! module. Workers are asked for at once and need their cold start. They are given back only after a whole cool-down in
//! which fewer would have been enough. A worker that cannot start is tried again after a cool-down. A worker that died
//! is replaced by the next free one.

use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::time::Timestamp;

/// How long fewer workers must have been enough before any is given back, unless said otherwise.
pub const COOL_DOWN_DEFAULT: Duration = Duration::from_secs(30);
/// How often a scaler is to look at the offered rate.
pub const SCALING_PERIOD: Duration = Duration::from_secs(1);

/// Spare capacity that is kept: the rate is followed at this multiple, so that batches need not be full.
const HEADROOM: f64 = 1.1;

/// How the workers of a pipeline follow the load, by module.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingConfig {
    /// Least workers by module; the source's is not used.
    pub least: Vec<u32>,
    /// Most workers by module.
    pub most: Vec<u32>,
    /// Requests a second of one worker in planned batches, by module.
    pub throughput: Vec<f64>,
    /// How long fewer workers must have been enough before any is given back.
    pub cool_down: Duration,
}

impl ScalingConfig {
    /// What the scaler of a module is built from; `None` for the source, whose workers are fixed.
    pub fn of(&self, module: ModuleId) -> Option<ModuleScaling> {
        (module != ModuleId::SOURCE).then(|| ModuleScaling {
            least: self.least[module.idx()],
            most: self.most[module.idx()].max(self.least[module.idx()]),
            throughput: self.throughput[module.idx()],
            cool_down: self.cool_down,
        })
    }
}

/// What a scaler is built from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModuleScaling {
    /// Least workers.
    pub least: u32,
    /// Most workers.
    pub most: u32,
    /// Requests a second of one worker in planned batches.
    pub throughput: f64,
    /// How long fewer workers must have been enough before any is given back.
    pub cool_down: Duration,
}

/// What happens to the workers of a module, given by ordinal.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Time to look: this many requests a second that run the module are offered.
    Offered(f64),
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

/// The scaler of one module.
#[derive(Clone, Debug)]
pub struct Scaler {
    config: ModuleScaling,
    /// Workers that the module should have.
    asked: u32,
    /// Since when fewer workers would be enough, and the largest number needed since.
    spare: Option<(Timestamp, u32)>,
    /// What each worker does, by ordinal.
    workers: Vec<Worker>,
}

impl Scaler {
    /// A scaler of a module of which the least workers serve.
    pub fn new(config: ModuleScaling) -> Self {
        let state = |ordinal| {
            if ordinal < config.least {
                Worker::Up
            } else {
                Worker::Off
            }
        };
        Scaler {
            asked: config.least,
            spare: None,
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
            Event::Offered(rate) => self.ask(now, rate),
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

    /// How many workers the module should have under that rate.
    fn ask(&mut self, now: Timestamp, rate: f64) {
        let needed = rate * HEADROOM / self.config.throughput;
        let ModuleScaling { least, most, .. } = self.config;
        let needed = (needed.max(0.0).ceil() as u32).clamp(least, most);
        if needed >= self.asked {
            self.spare = None;
            self.asked = needed;
            return;
        }
        let (since, peak) = self.spare.unwrap_or((now, 0));
        let peak = peak.max(needed);
        let cooled = now.since(since) >= self.config.cool_down;
        self.spare = (!cooled).then_some((since, peak));
        if cooled {
            self.asked = peak;
        }
    }

    /// Starts or retires workers until as many serve or start as are asked for. The first workers that are off start;
    /// the last that serve are retired. A starting worker is waited for even if it is no longer needed, and no other
    /// worker is retired in its place.
    fn settle(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        let asked = self.asked as usize;
        let serving = self.workers.iter().filter(|w| **w == Worker::Up).count();
        let starting = self
            .workers
            .iter()
            .filter(|w| **w == Worker::Starting)
            .count();
        let mut missing = asked.saturating_sub(serving + starting);
        let mut surplus = serving.saturating_sub(asked);
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

#[cfg(test)]
mod tests {
    use super::*;
    use Command::{Retire, Serve, Start};

    fn scaler() -> Scaler {
        Scaler::new(ModuleScaling {
            least: 1,
            most: 10,
            throughput: 100.0,
            cool_down: Duration::from_secs(30),
        })
    }

    fn drive(scaler: &mut Scaler, second: u64, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        let now = Timestamp::ZERO + Duration::from_secs(second);
        scaler.on_event(now, event, &mut out);
        out
    }

    fn at(scaler: &mut Scaler, second: u64, rate: f64) -> Vec<Command> {
        drive(scaler, second, Event::Offered(rate))
    }

    /// Everything that starts is ready at once.
    fn settled(scaler: &mut Scaler, second: u64, rate: f64) -> Vec<Command> {
        let mut all = at(scaler, second, rate);
        for command in all.clone() {
            if let Start(ordinal) = command {
                all.extend(drive(scaler, second, Event::Started(ordinal)));
            }
        }
        all
    }

    #[test]
    fn rises_at_once_and_falls_after_the_cool_down() {
        let mut s = scaler();
        assert_eq!(s.off_at_first().count(), 9);
        assert_eq!(at(&mut s, 0, 50.0), []);
        assert_eq!(settled(&mut s, 1, 450.0).len(), 2 * 4);
        assert_eq!(s.asked, 5);
        settled(&mut s, 2, 5_000.0);
        assert_eq!(s.asked, 10, "not over the most");
        assert_eq!(at(&mut s, 3, 450.0), []);
        assert_eq!(
            at(&mut s, 20, 600.0),
            [],
            "the most needed meanwhile is kept"
        );
        assert_eq!(at(&mut s, 33, 100.0), [7, 8, 9].map(Retire));
        assert_eq!(
            at(&mut s, 34, 800.0),
            [7, 8].map(Start),
            "and rises at once again"
        );
    }

    #[test]
    fn a_short_lull_gives_nothing_back() {
        let mut s = scaler();
        settled(&mut s, 0, 900.0);
        for second in 1..200 {
            let rate = if second % 20 == 0 { 900.0 } else { 0.0 };
            assert_eq!(at(&mut s, second, rate), [], "{second}");
        }
    }

    #[test]
    fn one_that_is_ready_when_it_is_not_wanted_any_more_is_given_back() {
        let mut s = scaler();
        assert_eq!(at(&mut s, 0, 150.0), [Start(1)]);
        assert_eq!(at(&mut s, 1, 50.0), []);
        assert_eq!(at(&mut s, 31, 50.0), [], "it still starts");
        assert_eq!(drive(&mut s, 32, Event::Started(1)), [Serve(1), Retire(1)]);
    }

    #[test]
    fn one_that_never_starts_evicts_none_that_serves() {
        let mut s = scaler();
        assert_eq!(at(&mut s, 0, 150.0), [Start(1)]);
        drive(&mut s, 1, Event::NotStarted(1));
        assert_eq!(at(&mut s, 2, 150.0), [Start(2)]);
        assert_eq!(drive(&mut s, 3, Event::Started(2)), [Serve(2)]);
        for second in 4..200 {
            assert_eq!(at(&mut s, second, 150.0), [], "{second}");
        }
    }

    #[test]
    fn one_that_cannot_start_is_tried_again_and_one_that_died_is_replaced() {
        let mut s = scaler();
        assert_eq!(at(&mut s, 0, 150.0), [Start(1)]);
        assert_eq!(drive(&mut s, 1, Event::NotStarted(1)), []);
        assert_eq!(at(&mut s, 2, 150.0), [Start(2)], "another instead");
        assert_eq!(drive(&mut s, 3, Event::Died(0)), [Start(3)]);
        assert_eq!(at(&mut s, 40, 350.0), [Start(1), Start(4)]);
        assert_eq!(
            drive(&mut s, 41, Event::Returned(0)),
            [Serve(0)],
            "what starts is waited for"
        );
    }
}
