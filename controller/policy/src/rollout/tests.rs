use std::collections::BTreeSet;

use expect_test::expect;
use proptest::prelude::*;
use proptest::strategy::Strategy as Generator;

use super::judgement::LEAST;
use super::{Strategy, *};

const OLD: RevisionId = RevisionId(1);
const NEW: RevisionId = RevisionId(2);
const THIRD: RevisionId = RevisionId(3);

fn second(n: u64) -> Timestamp {
    Timestamp::from_ns(n * 1_000_000_000)
}

fn config(strategy: Strategy) -> RolloutConfig {
    RolloutConfig {
        strategy,
        watch: Duration::from_secs(60),
    }
}

fn by_share() -> Strategy {
    Strategy::Share("5%".parse().unwrap())
}

fn good(n: u64) -> Outcomes {
    Outcomes {
        in_time: n,
        ..Outcomes::default()
    }
}

fn bad(n: u64) -> Outcomes {
    Outcomes {
        failed: n,
        ..Outcomes::default()
    }
}

fn late(n: u64) -> Outcomes {
    Outcomes {
        late: n,
        ..Outcomes::default()
    }
}

/// A rollout and what it said.
struct Told {
    rollout: Rollout,
    pipeline: Arc<str>,
}

impl Told {
    fn new(strategy: Strategy) -> Self {
        Told {
            rollout: Rollout::new(config(strategy), second(0), OLD),
            pipeline: "p".into(),
        }
    }

    fn tell(&mut self, at: u64, event: Event<'_>) -> Vec<Command> {
        let mut out = Vec::new();
        self.rollout.on_event(second(at), event, &mut out);
        out
    }

    fn ended(&mut self, at: u64, id: RevisionId, outcomes: Outcomes) -> Vec<Command> {
        let pipeline = self.pipeline.clone();
        self.tell(at, Event::Ended(id, &pipeline, outcomes))
    }

    /// Revisions and what they do.
    fn shows(&self) -> String {
        let revisions = self.rollout.view();
        let revisions = revisions.iter().map(|of| {
            let (id, state) = (of.id.0, of.state.name());
            format!("{id} {state} {}", of.share)
        });
        revisions.collect::<Vec<_>>().join(", ")
    }
}

fn one(id: RevisionId) -> Command {
    Command::Admit(Admission::One(id))
}

#[test]
fn at_once_all_requests_go_to_the_new_one_and_the_old_one_is_kept_for_a_watch() {
    let mut of = Told::new(Strategy::AtOnce);
    assert_eq!(of.tell(1, Event::Offered(NEW)), [Command::Start(NEW)]);
    assert_eq!(
        (of.rollout.choose(7), of.shows().as_str()),
        (Some(OLD), "1 old 100%, 2 starting 0%")
    );
    assert_eq!(
        of.tell(2, Event::Ready(NEW)),
        [one(NEW), Command::Drain(OLD)]
    );
    assert_eq!(of.shows(), "2 watching 100%, 1 draining 0%");
    assert_eq!(of.tell(3, Event::Drained(OLD)), []);
    assert_eq!(of.shows(), "2 watching 100%, 1 idle 0%");
    assert_eq!(of.rollout.next_wakeup(), Some(second(62)));
    assert_eq!(of.tell(61, Event::Wakeup), []);
    assert_eq!(of.tell(62, Event::Wakeup), [Command::End(OLD)]);
    assert_eq!(
        (of.shows().as_str(), of.rollout.next_wakeup()),
        ("2 stable 100%", None)
    );
}

#[test]
fn a_share_goes_first_and_is_sticky_by_stream() {
    let mut of = Told::new(by_share());
    of.tell(1, Event::Offered(NEW));
    let share = "5%".parse().unwrap();
    let (old, new) = (OLD, NEW);
    let split = Admission::Split { old, new, share };
    assert_eq!(of.tell(2, Event::Ready(NEW)), [Command::Admit(split)]);
    assert_eq!(of.shows(), "1 old 95%, 2 moving 5%");
    let chosen = |of: &Told| {
        (0..2000)
            .map(|key| of.rollout.choose(key))
            .collect::<Vec<_>>()
    };
    let (first, new) = (chosen(&of), Some(NEW));
    of.ended(3, NEW, good(50));
    assert_eq!(chosen(&of), first);
    let n = first.iter().filter(|id| **id == new).count();
    assert!((60..140).contains(&n), "{n}");
    assert_eq!(of.tell(62, Event::Wakeup), [one(NEW), Command::Drain(OLD)]);
    assert_eq!(of.tell(63, Event::Drained(OLD)), []);
    assert_eq!(of.tell(122, Event::Wakeup), [Command::End(OLD)]);
}

#[test]
fn where_there_is_no_room_for_two_the_old_one_ends_first() {
    let mut of = Told::new(Strategy::Recreate);
    let offered = of.tell(1, Event::Offered(NEW));
    assert_eq!(
        offered,
        [Command::Admit(Admission::Nobody), Command::Drain(OLD)]
    );
    assert_eq!(
        (of.rollout.choose(7), of.shows().as_str()),
        (None, "1 draining 0%, 2 starting 0%")
    );
    let drained = of.tell(2, Event::Drained(OLD));
    assert_eq!(drained, [Command::End(OLD), Command::Start(NEW)]);
    assert_eq!(of.tell(5, Event::Ready(NEW)), [one(NEW)]);
    assert_eq!(of.shows(), "2 watching 100%");
    assert_eq!(of.tell(65, Event::Wakeup), []);
    assert_eq!(of.shows(), "2 stable 100%");
}

#[test]
fn one_that_fails_more_goes_back_at_once_and_says_so() {
    let mut of = Told::new(Strategy::AtOnce);
    of.ended(0, OLD, good(500));
    of.tell(1, Event::Offered(NEW));
    of.tell(2, Event::Ready(NEW));
    of.tell(3, Event::Drained(OLD));
    assert_eq!(of.ended(4, NEW, bad(LEAST - 1)), []);
    let said = of.ended(5, NEW, bad(1));
    let why = "pipeline p: 10 of its 10 requests failed; of the one before it 0 of 500 in its last minute, and at most 2% more may be";
    let back = Command::TakenBack(NEW, why.to_owned());
    assert_eq!(said, [back, one(OLD), Command::Drain(NEW)]);
    assert_eq!(of.shows(), "1 stable 100%, 2 draining 0%, 2 taken_back 0%");
    assert_eq!(of.tell(6, Event::Drained(NEW)), [Command::End(NEW)]);
    assert_eq!(of.shows(), "1 stable 100%, 2 taken_back 0%");
    // The same once more is a new attempt.
    assert_eq!(of.tell(7, Event::Offered(NEW)), [Command::Start(NEW)]);
    assert_eq!(of.shows(), "1 old 100%, 2 starting 0%");
}

#[test]
fn lateness_counts_once_the_new_one_has_settled() {
    let mut of = Told::new(Strategy::AtOnce);
    of.ended(0, OLD, good(500));
    of.tell(1, Event::Offered(NEW));
    of.tell(2, Event::Ready(NEW));
    assert_eq!(of.ended(11, NEW, late(400)), []);
    assert_eq!(of.ended(12, NEW, good(400)), []);
    let said = of.ended(13, NEW, late(400));
    assert!(
        matches!(&said[0], Command::TakenBack(NEW, why) if why.contains("late or dropped")),
        "{said:?}"
    );
}

#[test]
fn one_that_is_as_late_as_the_old_one_under_the_same_load_stays() {
    let mut of = Told::new(by_share());
    of.ended(0, OLD, good(500));
    of.tell(1, Event::Offered(NEW));
    of.tell(2, Event::Ready(NEW));
    // The load has risen since: both are late.
    of.ended(20, OLD, late(400));
    assert_eq!(of.ended(20, NEW, late(40)), []);
    assert_eq!(of.tell(62, Event::Wakeup).len(), 2);
}

#[test]
fn what_the_old_one_did_an_hour_ago_is_no_measure() {
    let mut of = Told::new(Strategy::AtOnce);
    of.ended(0, OLD, good(500));
    of.tell(4000, Event::Offered(NEW));
    of.tell(4000, Event::Ready(NEW));
    assert_eq!(
        of.ended(4030, NEW, late(400)),
        [],
        "lateness depends on the load"
    );
    assert_ne!(of.ended(4031, NEW, bad(800)), [], "failures do not");
}

#[test]
fn each_pipeline_is_judged_by_itself() {
    let mut of = Told::new(Strategy::AtOnce);
    of.ended(0, OLD, good(5000));
    of.tell(1, Event::Offered(NEW));
    of.tell(2, Event::Ready(NEW));
    of.ended(3, NEW, good(5000));
    let small: Arc<str> = "q".into();
    let said = of.tell(4, Event::Ended(NEW, &small, bad(LEAST)));
    assert!(
        matches!(&said[0], Command::TakenBack(NEW, why) if why.starts_with("pipeline q: ")),
        "{said:?}"
    );
}

#[test]
fn one_that_is_not_ready_in_time_or_cannot_start_is_taken_back() {
    let mut of = Told::new(Strategy::AtOnce);
    of.tell(0, Event::Offered(NEW));
    let limit = READY_LIMIT.as_secs();
    assert_eq!(of.tell(limit - 1, Event::Wakeup), []);
    let said = of.tell(limit, Event::Wakeup);
    let why = "it was not ready within 600s".to_owned();
    assert_eq!(said, [Command::TakenBack(NEW, why), Command::End(NEW)]);
    // It comes late.
    assert_eq!(of.tell(limit + 1, Event::Ready(NEW)), [Command::End(NEW)]);
    of.tell(limit + 2, Event::Offered(THIRD));
    let said = of.tell(limit + 3, Event::NotStarted(THIRD, "no memory"));
    let why = "it could not start: no memory".to_owned();
    assert_eq!(said, [Command::TakenBack(THIRD, why), Command::End(THIRD)]);
    assert_eq!(of.shows(), "1 stable 100%, 3 taken_back 0%");
}

#[test]
fn without_room_for_two_the_old_one_is_started_again() {
    let mut of = Told::new(Strategy::Recreate);
    of.tell(0, Event::Offered(NEW));
    of.tell(1, Event::Drained(OLD));
    let said = of.tell(2, Event::NotStarted(NEW, "no memory"));
    assert_eq!(said[1..], [Command::End(NEW), Command::Start(OLD)]);
    assert_eq!(of.tell(3, Event::Ready(OLD)), [one(OLD)]);
    assert_eq!(of.shows(), "1 stable 100%, 2 taken_back 0%");
    // It fails while it serves: the same, with a drain before.
    of.tell(10, Event::Offered(NEW));
    of.tell(11, Event::Drained(OLD));
    of.tell(12, Event::Ready(NEW));
    let said = of.ended(13, NEW, bad(LEAST));
    assert_eq!(
        said[1..],
        [Command::Admit(Admission::Nobody), Command::Drain(NEW)]
    );
    assert_eq!(
        of.tell(14, Event::Drained(NEW)),
        [Command::End(NEW), Command::Start(OLD)]
    );
    let said = of.tell(15, Event::NotStarted(OLD, "its file is gone"));
    let why = "it could not start: its file is gone".to_owned();
    assert_eq!(said, [Command::End(OLD), Command::Lost(why)]);
    assert_eq!(
        (of.rollout.choose(1), of.shows().as_str()),
        (None, "2 taken_back 0%")
    );
    assert_eq!(of.tell(20, Event::Offered(THIRD)), [Command::Start(THIRD)]);
    assert_eq!(of.tell(21, Event::Ready(THIRD)), [one(THIRD)]);
}

#[test]
fn an_undo_brings_the_old_one_back_in_every_state() {
    let undone = |strategy, steps: &[(u64, Event<'static>)]| {
        let mut of = Told::new(strategy);
        for (at, event) in steps {
            of.tell(*at, event.clone());
        }
        let said = of.tell(70, Event::Undo);
        format!("{said:?}; {}\n", of.shows())
    };
    let (offered, ready) = ((0, Event::Offered(NEW)), (1, Event::Ready(NEW)));
    let drained = (2, Event::Drained(OLD));
    let mut all = String::new();
    all += &undone(Strategy::AtOnce, std::slice::from_ref(&offered));
    all += &undone(by_share(), &[offered.clone(), ready.clone()]);
    all += &undone(Strategy::AtOnce, &[offered.clone(), ready.clone()]);
    let steps = [
        offered.clone(),
        ready.clone(),
        drained.clone(),
        (61, Event::Wakeup),
    ];
    all += &undone(Strategy::AtOnce, &steps);
    all += &undone(Strategy::Recreate, std::slice::from_ref(&offered));
    all += &undone(Strategy::Recreate, &[offered.clone(), drained.clone()]);
    all += &undone(
        Strategy::Recreate,
        &[offered, drained, (3, Event::Ready(NEW))],
    );
    expect![[r#"
        [End(RevisionId(2))]; 1 stable 100%, 2 taken_back 0%
        [Admit(One(RevisionId(1))), Drain(RevisionId(2))]; 1 stable 100%, 2 draining 0%, 2 taken_back 0%
        [Admit(One(RevisionId(1))), Drain(RevisionId(2))]; 1 stable 100%, 2 draining 0%, 2 taken_back 0%
        [Start(RevisionId(1))]; 2 old 100%, 1 starting 0%
        [Admit(One(RevisionId(1)))]; 1 stable 100%, 2 taken_back 0%
        [End(RevisionId(2)), Start(RevisionId(1))]; 1 starting 0%, 2 taken_back 0%
        [Admit(Nobody), Drain(RevisionId(2))]; 2 draining 0%, 1 starting 0%, 2 taken_back 0%
    "#]].assert_eq(&all);
}

#[test]
fn the_former_revision_offered_again_is_an_undo_and_the_same_one_is_nothing() {
    let mut of = Told::new(Strategy::AtOnce);
    assert_eq!(of.tell(0, Event::Offered(OLD)), []);
    of.tell(0, Event::Offered(NEW));
    of.tell(1, Event::Ready(NEW));
    assert!(of.rollout.holds(OLD) && of.rollout.holds(NEW) && !of.rollout.holds(THIRD));
    assert_eq!(of.tell(2, Event::Offered(NEW)), []);
    of.tell(3, Event::Drained(OLD));
    assert_eq!(
        of.tell(4, Event::Offered(OLD)),
        [one(OLD), Command::Drain(NEW)]
    );
    // What drains can serve on: nothing is started.
    assert_eq!(
        of.tell(5, Event::Offered(NEW)),
        [one(NEW), Command::Drain(OLD)]
    );
}

#[test]
fn an_offer_during_a_watch_lets_the_oldest_go() {
    let mut of = Told::new(Strategy::AtOnce);
    of.tell(0, Event::Offered(NEW));
    of.tell(1, Event::Ready(NEW));
    assert_eq!(of.tell(2, Event::Offered(THIRD)), [Command::Start(THIRD)]);
    assert_eq!(of.tell(3, Event::Drained(OLD)), [Command::End(OLD)]);
    assert_eq!(
        of.tell(4, Event::Ready(THIRD)),
        [one(THIRD), Command::Drain(NEW)]
    );
}

#[test]
fn without_a_watch_the_old_one_ends_with_its_last_request() {
    let mut of = Told::new(Strategy::AtOnce);
    of.rollout.config.watch = Duration::ZERO;
    of.tell(0, Event::Offered(NEW));
    assert_eq!(
        of.tell(1, Event::Ready(NEW)),
        [one(NEW), Command::Drain(OLD)]
    );
    assert_eq!(of.shows(), "2 stable 100%, 1 draining 0%");
    assert_eq!(of.ended(2, NEW, bad(100)), []);
    assert_eq!(of.tell(3, Event::Drained(OLD)), [Command::End(OLD)]);
}

/// What a driver sees: which revisions live, as the commands made it.
#[derive(Debug, Default)]
struct World {
    starting: BTreeSet<RevisionId>,
    alive: BTreeSet<RevisionId>,
    draining: BTreeSet<RevisionId>,
    drained: BTreeSet<RevisionId>,
    admission: Option<Admission>,
    is_recreate: bool,
}

impl World {
    fn admitted(&self) -> Vec<RevisionId> {
        match self.admission {
            None | Some(Admission::Nobody) => Vec::new(),
            Some(Admission::One(id)) => vec![id],
            Some(Admission::Split { old, new, .. }) => vec![old, new],
        }
    }

    fn act(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Start(id) => {
                    assert!(!self.alive.contains(&id), "{id} lives");
                    assert!(self.starting.insert(id), "{id} starts twice");
                    assert!(!self.is_recreate || self.alive.is_empty(), "no room");
                }
                Command::Admit(admission) => {
                    self.admission = Some(admission);
                    for id in self.admitted() {
                        assert!(self.alive.contains(&id), "{id} cannot serve");
                        self.draining.remove(&id);
                        self.drained.remove(&id);
                    }
                }
                Command::Drain(id) => {
                    assert!(self.alive.contains(&id) && !self.admitted().contains(&id));
                    self.draining.insert(id);
                }
                Command::End(id) if self.alive.contains(&id) => {
                    assert!(self.drained.contains(&id), "{id} may have requests");
                    self.alive.remove(&id);
                    self.draining.remove(&id);
                    self.drained.remove(&id);
                }
                Command::End(id) => drop(self.starting.remove(&id)),
                Command::TakenBack(..) => {}
                Command::Lost(_) => assert!(self.alive.is_empty() && self.is_recreate),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Offer(u64),
    Starts(bool),
    Drains,
    Ends(bool, u64),
    Undo,
    Passes(u64),
}

fn steps() -> impl Generator<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u64..6).prop_map(Step::Offer),
        4 => any::<bool>().prop_map(Step::Starts),
        3 => Just(Step::Drains),
        3 => (any::<bool>(), 1u64..40).prop_map(|(is_good, n)| Step::Ends(is_good, n)),
        1 => Just(Step::Undo),
        3 => (1u64..50).prop_map(Step::Passes),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    /// Whatever happens: nothing is ended that may have requests, nothing serves that cannot, and in the end one revision serves.
    #[test]
    fn requests_go_to_what_lives_and_nothing_is_left_behind(
        steps in steps(),
        strategy in prop_oneof![Just(Strategy::AtOnce), Just(by_share()), Just(Strategy::Recreate)],
        watch in prop_oneof![Just(0u64), Just(60)],
    ) {
        let config = RolloutConfig { strategy, watch: Duration::from_secs(watch) };
        let pipeline: Arc<str> = "p".into();
        let mut rollout = Rollout::new(config, second(0), RevisionId(1));
        let mut world = World {
            alive: [RevisionId(1)].into(),
            admission: Some(Admission::One(RevisionId(1))),
            is_recreate: strategy == Strategy::Recreate,
            ..World::default()
        };
        let mut now = 0;
        let mut tell = |now: u64, world: &mut World, event: Event<'_>| {
            let mut out = Vec::new();
            rollout.on_event(second(now), event, &mut out);
            world.act(out);
            assert_eq!(Some(rollout.admission()), world.admission);
            let chosen = (0..50).map(|key| rollout.choose(key));
            assert!(chosen.flatten().all(|id| world.alive.contains(&id)));
            let kept = world.alive.difference(&world.draining).count();
            assert!(kept + world.starting.len() <= 2, "{world:?}");
            if world.admitted().is_empty() {
                assert!(world.is_recreate, "a gap");
            }
            rollout.next_wakeup()
        };
        let quiet = (0..12).flat_map(|_| [Step::Starts(true), Step::Drains, Step::Passes(61)]);
        for step in steps.into_iter().chain(quiet) {
            match step {
                Step::Offer(id) => drop(tell(now, &mut world, Event::Offered(RevisionId(id)))),
                Step::Starts(is_ready) => {
                    let Some(id) = world.starting.pop_first() else { continue };
                    let event = match is_ready {
                        true => {
                            world.alive.insert(id);
                            Event::Ready(id)
                        }
                        false => Event::NotStarted(id, "no memory"),
                    };
                    tell(now, &mut world, event);
                }
                Step::Drains => {
                    let waiting = world.draining.difference(&world.drained).next().copied();
                    let Some(id) = waiting else { continue };
                    world.drained.insert(id);
                    tell(now, &mut world, Event::Drained(id));
                }
                Step::Ends(is_good, n) => {
                    let outcomes = if is_good { good(n) } else { bad(n) };
                    let Some(id) = world.admitted().pop() else { continue };
                    tell(now, &mut world, Event::Ended(id, &pipeline, outcomes));
                }
                Step::Undo => drop(tell(now, &mut world, Event::Undo)),
                Step::Passes(seconds) => {
                    now += seconds;
                    while tell(now, &mut world, Event::Wakeup).is_some_and(|at| at <= second(now)) {}
                }
            }
        }
        prop_assert!(world.starting.is_empty() && world.alive.len() <= 1, "{world:?}");
        prop_assert!(world.is_recreate || world.alive.len() == 1, "{world:?}");
        let serves: Vec<RevisionId> = world.alive.iter().copied().collect();
        prop_assert_eq!(world.admitted(), serves);
    }

    /// A slow reference: each verdict anew, from all requests that ever ended.
    #[test]
    fn verdicts_are_those_of_the_whole_record(
        before in proptest::collection::vec((0u64..30, 0u64..40, 0u64..4, 0u64..4), 0..12),
        idle in 1u64..100,
        during in proptest::collection::vec((0u64..6, any::<bool>(), 0u64..12, 0u64..3, 0u64..3), 1..40),
        is_by_share in any::<bool>(),
    ) {
        let strategy = if is_by_share { by_share() } else { Strategy::AtOnce };
        let mut of = Told::new(strategy);
        let mut log: Vec<(u64, RevisionId, Outcomes)> = Vec::new();
        let mut now = 0;
        let outcomes = |in_time, late, failed| Outcomes { in_time, late, dropped: 0, failed };
        for (gap, in_time, late, failed) in before {
            now += gap;
            log.push((now, OLD, outcomes(in_time, late, failed)));
            of.ended(now, OLD, outcomes(in_time, late, failed));
        }
        now += idle;
        let began = now;
        of.tell(now, Event::Offered(NEW));
        of.tell(now, Event::Ready(NEW));
        for (gap, is_new, in_time, late, failed) in during {
            now += gap;
            if now >= began + 60 {
                break;
            }
            // At once, the old one has nothing but stragglers, which do not count.
            let id = if is_new { NEW } else { OLD };
            let ended = outcomes(in_time, late, failed);
            let said = of.ended(now, id, ended);
            if is_new || is_by_share {
                log.push((now, id, ended));
            }
            let sum = |of: RevisionId, from: u64| {
                let mut sum = Outcomes::default();
                let some = log.iter().filter(|(at, id, _)| *id == of && *at >= from);
                some.for_each(|(_, _, more)| sum.add(*more));
                sum
            };
            let beside = sum(OLD, began);
            let newest = log.iter().rev().find(|(_, id, of)| *id == OLD && of.all() > 0);
            let last = newest.map(|(at, ..)| sum(OLD, (at / 10).saturating_sub(5) * 10));
            let expected = judge(&Judged {
                pipeline: "p",
                failing: sum(NEW, began),
                timely: sum(NEW, began + 10),
                beside: is_by_share.then_some(beside),
                before: last,
            });
            let taken_back = said.iter().find_map(|command| match command {
                Command::TakenBack(_, why) => Some(why.clone()),
                _ => None,
            });
            prop_assert_eq!(&taken_back, &expected);
            if taken_back.is_some() {
                break;
            }
        }
    }
}
