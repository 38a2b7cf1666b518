//! The same device, as plainly as it can be said: lists, and a search at each tick.

use super::*;

#[derive(Clone, Copy, PartialEq)]
enum Stand {
    Absent,
    /// Pages are taken; the LOAD waits or runs.
    Awaited,
    There,
}

struct Waiting {
    id: ActionId,
    weights: WeightsId,
    window: Window,
    is_ready: bool,
}

pub(super) struct Slow {
    stands: Vec<Stand>,
    infers: Vec<Waiting>,
    is_running: bool,
    loads: Vec<Waiting>,
    reading: Option<WeightsId>,
}

impl Slow {
    pub(super) fn new(resident: &[WeightsId]) -> Self {
        let mut slow = Slow {
            stands: vec![Stand::Absent; WEIGHTS as usize],
            infers: Vec::new(),
            is_running: false,
            loads: Vec::new(),
            reading: None,
        };
        for weights in resident {
            if NEEDS[weights.idx()] <= slow.free_pages() {
                slow.stands[weights.idx()] = Stand::There;
            }
        }
        slow
    }

    fn start(&mut self, now: Timestamp) -> Vec<ActionCommand<()>> {
        let mut out = Vec::new();
        while !self.is_running {
            // `min_by_key` gives the first of equal ones.
            let infers = self.infers.iter().enumerate();
            let first = infers.min_by_key(|(_, w)| w.window.earliest);
            let Some((i, first)) = first else { break };
            let is_late = now > first.window.latest;
            let may_start = first.is_ready && now >= first.window.earliest;
            if !is_late && !may_start {
                break;
            }
            let first = self.infers.remove(i);
            if is_late {
                out.push(ActionCommand::Refuse(first.id, RefusalCause::Late));
            } else if self.stands[first.weights.idx()] != Stand::There {
                out.push(ActionCommand::Refuse(first.id, RefusalCause::NotLoaded));
            } else {
                self.is_running = true;
                out.push(ActionCommand::Execute(first.id));
            }
        }
        while self.reading.is_none() && !self.loads.is_empty() {
            if now < self.loads[0].window.earliest {
                break;
            }
            let first = self.loads.remove(0);
            if now > first.window.latest {
                self.stands[first.weights.idx()] = Stand::Absent;
                out.push(ActionCommand::Refuse(first.id, RefusalCause::Late));
            } else {
                self.reading = Some(first.weights);
                out.push(ActionCommand::Load(first.id, first.weights));
            }
        }
        out
    }
}

impl Executor for Slow {
    fn receive(&mut self, now: Timestamp, action: Action<()>) -> Vec<ActionCommand<()>> {
        let Action {
            id, work, window, ..
        } = action;
        let waiting = |weights| Waiting {
            id,
            weights,
            window,
            is_ready: false,
        };
        let mut out = Vec::new();
        match work {
            Work::Load(weights) => {
                let is_absent = self.stands[weights.idx()] == Stand::Absent;
                if is_absent && NEEDS[weights.idx()] <= self.free_pages() {
                    self.stands[weights.idx()] = Stand::Awaited;
                    self.loads.push(waiting(weights));
                } else {
                    out.push(ActionCommand::Refuse(id, RefusalCause::NoPages));
                }
            }
            Work::Unload(weights) => {
                let is_absent = self.stands[weights.idx()] == Stand::Absent;
                if !is_absent && self.reading != Some(weights) {
                    self.stands[weights.idx()] = Stand::Absent;
                    for load in self.loads.extract_if(.., |l| l.weights == weights) {
                        out.push(ActionCommand::Refuse(load.id, RefusalCause::NotLoaded));
                    }
                    out.push(ActionCommand::Unload(weights));
                }
            }
            Work::Infer {
                weights, members, ..
            } => {
                self.infers.push(waiting(weights));
                out.push(ActionCommand::CopyInput(id, weights, members));
            }
        }
        out.extend(self.start(now));
        out
    }

    fn input_ready(&mut self, now: Timestamp, id: ActionId) -> Vec<ActionCommand<()>> {
        for infer in &mut self.infers {
            infer.is_ready |= infer.id == id;
        }
        self.start(now)
    }

    fn executed(&mut self, now: Timestamp, _: ActionId) -> Vec<ActionCommand<()>> {
        self.is_running = false;
        self.start(now)
    }

    fn loaded(&mut self, now: Timestamp, _: ActionId, there: bool) -> Vec<ActionCommand<()>> {
        if let Some(weights) = self.reading.take() {
            self.stands[weights.idx()] = match there {
                true => Stand::There,
                false => Stand::Absent,
            };
        }
        self.start(now)
    }

    fn wake(&mut self, now: Timestamp) -> Vec<ActionCommand<()>> {
        self.start(now)
    }

    fn wakes_at(&self, _: Timestamp) -> bool {
        true
    }

    fn free_pages(&self) -> u32 {
        let weights = self.stands.iter().zip(NEEDS);
        let taken = weights.filter(|(w, _)| **w != Stand::Absent);
        CACHE - taken.map(|(_, needs)| needs).sum::<u32>()
    }
}
