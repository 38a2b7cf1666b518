//! Scaling: how many workers each module should have, from the *offered* rate at the entry.
//!
//! A module sees only what the gate and the modules before it let through. A scaler that follows this rate spirals down:
//! fewer workers let through less. So the offered rate counts, times the part of the requests that run each module.
//! Workers are asked for at once and take their cold start; they are given back only after a whole cool-down in
//! which fewer would have done. One that cannot start is tried again after a cool-down; one that died is replaced by
//! the next that there is.

use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::time::Timestamp;

/// How long fewer workers must have been enough before any is given back, unless said otherwise.
pub const COOL_DOWN_DEFAULT: Duration = Duration::from_secs(30);
/// How often a scaler is to look at the offered rate.
pub const SCALING_PERIOD: Duration = Duration::from_secs(1);

/// Spare capacity that is kept: the rate is followed at this multiple, so that batches need not be full.
const HEADROOM: f64 = 1.1;

/// What a scaler is built from.
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

/// What happens to the workers of a pipeline.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Time to look: the offered rate in requests a second, and the part of them that runs each module.
    Offered {
        /// Requests a second at the entry.
        rate: f64,
        /// By module.
        probability: &'a [f64],
    },
    /// A worker that was asked for is ready.
    Started(ModuleId, u32),
    /// A worker that was asked for could not start.
    NotStarted(ModuleId, u32),
    /// A worker is gone for good.
    Died(ModuleId, u32),
}

/// What the driver must do with a worker, given by module and ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start it and say when it is ready.
    Start(ModuleId, u32),
    /// It is ready: requests may go there.
    Serve(ModuleId, u32),
    /// It gets no more requests; once it has none, give back what it holds.
    Retire(ModuleId, u32),
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

/// The scaler of one pipeline.
#[derive(Clone, Debug)]
pub struct Scaler {
    config: ScalingConfig,
    /// Workers that each module should have.
    asked: Vec<u32>,
    /// Since when fewer would do, and the most that were needed since.
    spare: Vec<Option<(Timestamp, u32)>>,
    /// What each worker does, by module and ordinal.
    workers: Vec<Vec<Worker>>,
}

impl Scaler {
    /// A scaler of modules of which the least workers serve.
    pub fn new(config: ScalingConfig) -> Self {
        let of = |(&least, &most): (&u32, &u32)| {
            let state = |ordinal| {
                if ordinal < least {
                    Worker::Up
                } else {
                    Worker::Off
                }
            };
            (0..most.max(least)).map(state).collect()
        };
        Scaler {
            asked: config.least.clone(),
            spare: vec![None; config.least.len()],
            workers: config.least.iter().zip(&config.most).map(of).collect(),
            config,
        }
    }

    /// Workers that do not serve at first, by module and ordinal.
    pub fn off_at_first(&self) -> impl Iterator<Item = (ModuleId, u32)> {
        let least = self.config.least.iter().enumerate();
        least.flat_map(|(module, &least)| {
            let id = ModuleId(module as u16);
            (least..self.workers[module].len() as u32).map(move |ordinal| (id, ordinal))
        })
    }

    /// Takes in one event.
    pub fn on_event(&mut self, now: Timestamp, event: Event<'_>, out: &mut Vec<Command>) {
        match event {
            Event::Offered { rate, probability } => {
                for module in 1..self.asked.len() {
                    let part = probability.get(module).copied().unwrap_or(1.0);
                    self.ask(now, module, rate * part);
                    self.settle(now, module, out);
                }
            }
            Event::Started(module, ordinal) => {
                self.workers[module.idx()][ordinal as usize] = Worker::Up;
                out.push(Command::Serve(module, ordinal));
                self.settle(now, module.idx(), out);
            }
            Event::NotStarted(module, ordinal) => {
                self.workers[module.idx()][ordinal as usize] = Worker::NotStarted(now);
            }
            Event::Died(module, ordinal) => {
                self.workers[module.idx()][ordinal as usize] = Worker::Dead;
                self.settle(now, module.idx(), out);
            }
        }
    }

    /// How many workers the module should have under that rate.
    fn ask(&mut self, now: Timestamp, module: usize, rate: f64) {
        let needed = rate * HEADROOM / self.config.throughput[module];
        let (least, most) = (self.config.least[module], self.config.most[module]);
        let needed = (needed.max(0.0).ceil() as u32).clamp(least, most.max(least));
        let asked = &mut self.asked[module];
        if needed >= *asked {
            self.spare[module] = None;
            *asked = needed;
            return;
        }
        let (since, peak) = self.spare[module].unwrap_or((now, 0));
        let peak = peak.max(needed);
        let cooled = now.since(since) >= self.config.cool_down;
        self.spare[module] = (!cooled).then_some((since, peak));
        if cooled {
            *asked = peak;
        }
    }

    /// The first workers that live serve, as many as are asked for. One that starts is waited for, wanted or not.
    fn settle(&mut self, now: Timestamp, module: usize, out: &mut Vec<Command>) {
        let id = ModuleId(module as u16);
        let mut missing = self.asked[module];
        for (ordinal, worker) in (0..).zip(&mut self.workers[module]) {
            match *worker {
                Worker::Dead => {}
                Worker::NotStarted(at) if now.since(at) < self.config.cool_down => {}
                Worker::Off | Worker::NotStarted(_) if missing > 0 => {
                    missing -= 1;
                    *worker = Worker::Starting;
                    out.push(Command::Start(id, ordinal));
                }
                Worker::Off | Worker::NotStarted(_) => {}
                Worker::Starting | Worker::Up if missing > 0 => missing -= 1,
                Worker::Starting => {}
                Worker::Up => {
                    *worker = Worker::Off;
                    out.push(Command::Retire(id, ordinal));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Command::{Retire, Serve, Start};

    const A: ModuleId = ModuleId(1);
    const B: ModuleId = ModuleId(2);

    fn scaler() -> Scaler {
        Scaler::new(ScalingConfig {
            least: vec![0, 1, 1],
            most: vec![0, 10, 4],
            throughput: vec![f64::INFINITY, 100.0, 200.0],
            cool_down: Duration::from_secs(30),
        })
    }

    fn drive(scaler: &mut Scaler, second: u64, event: Event<'_>) -> Vec<Command> {
        let mut out = Vec::new();
        let now = Timestamp::ZERO + Duration::from_secs(second);
        scaler.on_event(now, event, &mut out);
        out
    }

    fn at(scaler: &mut Scaler, second: u64, rate: f64) -> Vec<Command> {
        let probability = &[1.0, 1.0, 0.5];
        drive(scaler, second, Event::Offered { rate, probability })
    }

    /// Everything that starts is ready at once.
    fn settled(scaler: &mut Scaler, second: u64, rate: f64) -> Vec<Command> {
        let mut all = at(scaler, second, rate);
        for command in all.clone() {
            if let Start(module, ordinal) = command {
                all.extend(drive(scaler, second, Event::Started(module, ordinal)));
            }
        }
        all
    }

    #[test]
    fn rises_at_once_and_falls_after_the_cool_down() {
        let mut s = scaler();
        assert_eq!(s.off_at_first().count(), 9 + 3);
        assert_eq!(at(&mut s, 0, 50.0), []);
        assert_eq!(settled(&mut s, 1, 450.0).len(), 2 * (4 + 1));
        assert_eq!(s.asked, [0, 5, 2]);
        settled(&mut s, 2, 5_000.0);
        assert_eq!(s.asked, [0, 10, 4], "not over the most");
        assert_eq!(at(&mut s, 3, 450.0), []);
        assert_eq!(
            at(&mut s, 20, 600.0),
            [],
            "the most needed meanwhile is kept"
        );
        let given_back = [7, 8, 9].map(|i| Retire(A, i));
        let given_back: Vec<Command> = given_back
            .into_iter()
            .chain([2, 3].map(|i| Retire(B, i)))
            .collect();
        assert_eq!(at(&mut s, 33, 100.0), given_back);
        assert_eq!(
            at(&mut s, 34, 800.0),
            [Start(A, 7), Start(A, 8), Start(B, 2)],
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
        assert_eq!(at(&mut s, 0, 150.0), [Start(A, 1)]);
        assert_eq!(at(&mut s, 1, 50.0), []);
        assert_eq!(at(&mut s, 31, 50.0), [], "it still starts");
        assert_eq!(
            drive(&mut s, 32, Event::Started(A, 1)),
            [Serve(A, 1), Retire(A, 1)]
        );
    }

    #[test]
    fn one_that_cannot_start_is_tried_again_and_one_that_died_is_replaced() {
        let mut s = scaler();
        assert_eq!(at(&mut s, 0, 150.0), [Start(A, 1)]);
        assert_eq!(drive(&mut s, 1, Event::NotStarted(A, 1)), []);
        assert_eq!(at(&mut s, 2, 150.0), [Start(A, 2)], "another instead");
        assert_eq!(drive(&mut s, 3, Event::Died(A, 0)), [Start(A, 3)]);
        assert_eq!(at(&mut s, 40, 350.0), [Start(A, 1), Start(A, 4)]);
    }
}
