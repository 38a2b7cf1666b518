mod cases;
mod slow;

use proptest::prelude::*;

use spillgate_pipeline::id::ModelId;

use super::*;
use slow::Slow;

const WEIGHTS: u32 = 5;
/// Pages of the cache. The last weights never fit.
const CACHE: u32 = 6;
const NEEDS: [u32; WEIGHTS as usize] = [1, 2, 3, 4, 7];
/// The last moment at which an action is received.
const RECEIVED_BY: u64 = 60;

fn at(tick: u64) -> Timestamp {
    Timestamp::from_ns(tick)
}

/// An action, when it is received, and what the hardware makes of it.
#[derive(Clone, Debug)]
struct Given {
    received: u64,
    /// 0: UNLOAD, 1: LOAD, more: INFER.
    kind: u8,
    weights: WeightsId,
    window: Window,
    copies: u64,
    takes: u64,
    /// Of a LOAD: the weights can be read.
    is_there: bool,
}

/// What one is told and asked; [`Actions`] and the slow reference.
trait Executor {
    fn receive(&mut self, now: Timestamp, action: Action<()>) -> Vec<ActionCommand<()>>;
    fn input_ready(&mut self, now: Timestamp, id: ActionId) -> Vec<ActionCommand<()>>;
    fn executed(&mut self, now: Timestamp, id: ActionId) -> Vec<ActionCommand<()>>;
    fn loaded(&mut self, now: Timestamp, id: ActionId, there: bool) -> Vec<ActionCommand<()>>;
    fn wake(&mut self, now: Timestamp) -> Vec<ActionCommand<()>>;
    /// Whether it asks to be woken at that moment.
    fn wakes_at(&self, now: Timestamp) -> bool;
    fn free_pages(&self) -> u32;
}

impl Executor for Actions {
    fn receive(&mut self, now: Timestamp, action: Action<()>) -> Vec<ActionCommand<()>> {
        let mut out = Vec::new();
        Actions::receive(self, now, action, &mut out);
        out
    }

    fn input_ready(&mut self, now: Timestamp, id: ActionId) -> Vec<ActionCommand<()>> {
        let mut out = Vec::new();
        Actions::input_ready(self, now, id, &mut out);
        out
    }

    fn executed(&mut self, now: Timestamp, id: ActionId) -> Vec<ActionCommand<()>> {
        let mut out = Vec::new();
        Actions::executed(self, now, id, &mut out);
        out
    }

    fn loaded(&mut self, now: Timestamp, id: ActionId, there: bool) -> Vec<ActionCommand<()>> {
        let mut out = Vec::new();
        Actions::loaded(self, now, id, there, &mut out);
        out
    }

    fn wake(&mut self, now: Timestamp) -> Vec<ActionCommand<()>> {
        let mut out = Vec::new();
        Actions::wake(self, now, &mut out);
        out
    }

    fn wakes_at(&self, now: Timestamp) -> bool {
        self.next_wakeup() == Some(now)
    }

    fn free_pages(&self) -> u32 {
        self.pages().free()
    }
}

/// What happened, with its moment, and the free pages after it.
type Log = Vec<(u64, ActionCommand<()>, u32)>;

fn action(id: usize, given: &Given) -> Action<()> {
    let weights = given.weights;
    let work = match given.kind {
        0 => Work::Unload(weights),
        1 => Work::Load(weights),
        _ => Work::Infer {
            model: ModelId(0),
            weights,
            members: vec![()],
        },
    };
    Action {
        id: ActionId(id as u64),
        work,
        window: given.window,
        starts_at: given.window.earliest,
        expected_end: given.window.earliest,
    }
}

/// Drives one through all ticks. At a tick, ends come first, then what is received.
fn drive(subject: &mut impl Executor, given: &[Given]) -> Log {
    let mut log = Log::new();
    let mut copied: Vec<(u64, ActionId)> = Vec::new();
    let mut running: Option<(u64, ActionId)> = None;
    let mut loading: Option<(u64, ActionId)> = None;
    let longest: u64 = given.iter().map(|g| g.takes + g.copies + 1).sum();
    for now in 0..RECEIVED_BY + 60 + longest {
        let mut commands = Vec::new();
        if let Some((_, id)) = running.take_if(|(end, _)| *end == now) {
            commands.extend(subject.executed(at(now), id));
        }
        if let Some((_, id)) = loading.take_if(|(end, _)| *end == now) {
            commands.extend(subject.loaded(at(now), id, given[id.0 as usize].is_there));
        }
        for (_, id) in copied.extract_if(.., |(end, _)| *end == now) {
            commands.extend(subject.input_ready(at(now), id));
        }
        for (id, given) in given.iter().enumerate() {
            if given.received == now {
                commands.extend(subject.receive(at(now), action(id, given)));
            }
        }
        if subject.wakes_at(at(now)) {
            commands.extend(subject.wake(at(now)));
        }
        for command in commands {
            let of = |id: ActionId| &given[id.0 as usize];
            match &command {
                // What is copied in no time is told at the next tick.
                ActionCommand::CopyInput(id, ..) => {
                    copied.push((now + of(*id).copies.max(1), *id));
                }
                ActionCommand::Execute(id) => {
                    assert!(running.is_none(), "two batches run at once");
                    running = Some((now + of(*id).takes.max(1), *id));
                }
                ActionCommand::Load(id, _) => {
                    assert!(loading.is_none(), "two LOADs run at once");
                    loading = Some((now + of(*id).takes.max(1), *id));
                }
                ActionCommand::Unload(_) | ActionCommand::Refuse(..) => {}
            }
            log.push((now, command, subject.free_pages()));
        }
    }
    assert!(running.is_none() && loading.is_none(), "all has ended");
    log
}

fn given() -> impl Strategy<Value = Vec<Given>> {
    let window = (0..15u64, 0..20u64);
    let one = (
        0..RECEIVED_BY,
        0..6u8,
        0..WEIGHTS,
        window,
        0..4u64,
        0..12u64,
        0..8u8,
    );
    let one = one.prop_map(
        |(received, kind, weights, (earliest, length), copies, takes, fails)| Given {
            received,
            kind,
            weights: WeightsId(weights),
            window: Window {
                earliest: at(received + earliest),
                latest: at(received + earliest + length),
            },
            copies,
            takes,
            is_there: fails > 0,
        },
    );
    prop::collection::vec(one, 0..40)
}

fn fresh(resident: &[WeightsId]) -> Actions {
    Actions::new(CACHE, NEEDS.to_vec(), resident)
}

proptest! {
    #[test]
    fn actions_run_as_in_the_slow_reference(given in given(), resident in prop::collection::vec(0..WEIGHTS, 0..3)) {
        let resident: Vec<WeightsId> = resident.into_iter().map(WeightsId).collect();
        let fast = drive(&mut fresh(&resident), &given);
        let slow = drive(&mut Slow::new(&resident), &given);
        prop_assert_eq!(fast, slow);
    }

    #[test]
    fn each_action_is_answered_once_and_starts_in_its_window(given in given()) {
        let log = drive(&mut fresh(&[WeightsId(0), WeightsId(1)]), &given);
        for (i, one) in given.iter().enumerate().filter(|(_, g)| g.kind > 0) {
            let id = ActionId(i as u64);
            let answers = log.iter().filter(|(_, command, _)| match command {
                ActionCommand::Execute(of) | ActionCommand::Load(of, _) | ActionCommand::Refuse(of, _) => *of == id,
                _ => false,
            });
            let answers: Vec<_> = answers.collect();
            prop_assert_eq!(answers.len(), 1, "{:?}: {:?}", one, &answers);
            let (now, command, _) = answers[0];
            if !matches!(command, ActionCommand::Refuse(..)) {
                prop_assert!(one.window.earliest <= at(*now) && at(*now) <= one.window.latest);
            }
        }
    }

    #[test]
    fn it_never_asks_to_be_woken_in_the_past(given in given()) {
        let mut actions = fresh(&[]);
        for (id, one) in given.iter().enumerate() {
            // Received in any order of time that does not go back.
            let now = at(RECEIVED_BY + id as u64);
            Executor::receive(&mut actions, now, action(id, one));
            prop_assert!(actions.next_wakeup().is_none_or(|wakes| wakes > now));
        }
    }
}

fn load(id: u64, model: u32) -> Action<()> {
    let window = Window {
        earliest: Timestamp::ZERO,
        latest: Timestamp::MAX,
    };
    Action {
        id: ActionId(id),
        work: Work::Load(WeightsId(model)),
        window,
        starts_at: window.earliest,
        expected_end: window.earliest,
    }
}

fn unload(id: u64, model: u32) -> Action<()> {
    Action {
        work: Work::Unload(WeightsId(model)),
        ..load(id, model)
    }
}

#[test]
fn weights_that_are_being_read_are_not_unloaded() {
    let mut actions = fresh(&[]);
    let commands = Executor::receive(&mut actions, at(0), load(0, 1));
    assert_eq!(commands, [ActionCommand::Load(ActionId(0), WeightsId(1))]);
    assert_eq!(Executor::receive(&mut actions, at(1), unload(1, 1)), []);
    assert_eq!(actions.pages().free(), CACHE - NEEDS[1]);
    Executor::loaded(&mut actions, at(5), ActionId(0), true);
    assert!(actions.pages().is_ready(WeightsId(1)));
    let commands = Executor::receive(&mut actions, at(6), unload(2, 1));
    assert_eq!(commands, [ActionCommand::Unload(WeightsId(1))]);
    assert_eq!(actions.pages().free(), CACHE);
}

#[test]
fn a_load_that_waits_is_refused_when_its_weights_are_unloaded() {
    let mut actions = fresh(&[]);
    Executor::receive(&mut actions, at(0), load(0, 1));
    assert_eq!(Executor::receive(&mut actions, at(1), load(1, 2)), []);
    let commands = Executor::receive(&mut actions, at(2), unload(2, 2));
    let refused = ActionCommand::Refuse(ActionId(1), RefusalCause::NotLoaded);
    assert_eq!(commands, [refused, ActionCommand::Unload(WeightsId(2))]);
    assert_eq!(actions.pages().free(), CACHE - NEEDS[1]);
    assert_eq!(Executor::loaded(&mut actions, at(9), ActionId(0), true), []);
}

#[test]
fn a_load_without_room_is_refused_and_takes_nothing() {
    let mut actions = fresh(&[WeightsId(3)]);
    let commands = Executor::receive(&mut actions, at(0), load(0, 2));
    let no_pages = |id| ActionCommand::Refuse(ActionId(id), RefusalCause::NoPages);
    assert_eq!(commands, [no_pages(0)]);
    // What is there already has its pages.
    assert_eq!(
        Executor::receive(&mut actions, at(1), load(1, 3)),
        [no_pages(1)]
    );
    assert_eq!(actions.pages().free(), CACHE - NEEDS[3]);
}

#[test]
fn an_action_without_inputs_holds_up_the_next_one_no_longer_than_its_window() {
    let mut actions = fresh(&[WeightsId(0)]);
    let infer = |id, earliest, latest| {
        let window = Window {
            earliest: at(earliest),
            latest: at(latest),
        };
        let work = Work::Infer {
            model: ModelId(0),
            weights: WeightsId(0),
            members: vec![()],
        };
        Action {
            work,
            window,
            ..load(id, 0)
        }
    };
    Executor::receive(&mut actions, at(0), infer(0, 1, 5));
    Executor::receive(&mut actions, at(0), infer(1, 2, 9));
    assert_eq!(Executor::input_ready(&mut actions, at(3), ActionId(1)), []);
    assert_eq!(actions.next_wakeup(), Some(at(6)));
    let refused = ActionCommand::Refuse(ActionId(0), RefusalCause::Late);
    let commands = Executor::wake(&mut actions, at(6));
    assert_eq!(commands, [refused, ActionCommand::Execute(ActionId(1))]);
}
