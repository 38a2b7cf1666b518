//! The same device, as plainly as it can be said: lists, and a search at each tick.

use super::*;

#[derive(Clone, Copy, PartialEq)]
enum Weights {
    Absent,
    /// Pages are taken; the LOAD waits or runs.
    Awaited,
    There,
}

struct Waiting {
    id: ActionId,
    model: ModelId,
    window: Window,
    is_ready: bool,
}

pub(super) struct Slow {
    weights: Vec<Weights>,
    infers: Vec<Waiting>,
    is_running: bool,
    loads: Vec<Waiting>,
    reading: Option<ModelId>,
}

impl Slow {
    pub(super) fn new(resident: &[ModelId]) -> Self {
        let mut slow = Slow {
            weights: vec![Weights::Absent; MODELS as usize],
            infers: Vec::new(),
            is_running: false,
            loads: Vec::new(),
            reading: None,
        };
        for model in resident {
            if NEEDS[model.idx()] <= slow.free_pages() {
                slow.weights[model.idx()] = Weights::There;
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
            } else if self.weights[first.model.idx()] != Weights::There {
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
                self.weights[first.model.idx()] = Weights::Absent;
                out.push(ActionCommand::Refuse(first.id, RefusalCause::Late));
            } else {
                self.reading = Some(first.model);
                out.push(ActionCommand::Load(first.id, first.model));
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
        let waiting = |model| Waiting {
            id,
            model,
            window,
            is_ready: false,
        };
        let mut out = Vec::new();
        match work {
            Work::Load(model) => {
                let is_absent = self.weights[model.idx()] == Weights::Absent;
                if is_absent && NEEDS[model.idx()] <= self.free_pages() {
                    self.weights[model.idx()] = Weights::Awaited;
                    self.loads.push(waiting(model));
                } else {
                    out.push(ActionCommand::Refuse(id, RefusalCause::NoPages));
                }
            }
            Work::Unload(model) => {
                let is_absent = self.weights[model.idx()] == Weights::Absent;
                if !is_absent && self.reading != Some(model) {
                    self.weights[model.idx()] = Weights::Absent;
                    for load in self.loads.extract_if(.., |l| l.model == model) {
                        out.push(ActionCommand::Refuse(load.id, RefusalCause::NotLoaded));
                    }
                    out.push(ActionCommand::Unload(model));
                }
            }
            Work::Infer { model, members } => {
                self.infers.push(waiting(model));
                out.push(ActionCommand::CopyInput(id, model, members));
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
        if let Some(model) = self.reading.take() {
            self.weights[model.idx()] = match there {
                true => Weights::There,
                false => Weights::Absent,
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
        let weights = self.weights.iter().zip(NEEDS);
        let taken = weights.filter(|(w, _)| **w != Weights::Absent);
        CACHE - taken.map(|(_, needs)| needs).sum::<u32>()
    }
}
