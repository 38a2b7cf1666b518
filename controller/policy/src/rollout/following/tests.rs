use std::time::Duration;

use proptest::prelude::*;
use spillgate_pipeline::time::Timestamp;

use super::*;

const OLD: RevisionId = RevisionId(1);
const NEW: RevisionId = RevisionId(2);

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// A process that serves `OLD`, with a gateway.
fn following() -> Following {
    let mut of = Following::new(at(0), OLD);
    assert_eq!(tell(&mut of, 0, Followed::Gateways(OLD, 1)), []);
    of
}

fn tell(of: &mut Following, ms: u64, event: Followed<'_>) -> Vec<Command> {
    let mut out = Vec::new();
    of.on_event(at(ms), event, &mut out);
    out
}

const fn offered(id: RevisionId) -> Followed<'static> {
    Followed::Offered { id, alone: false }
}

#[test]
fn the_former_revision_stays_while_gateways_keep_it_and_goes_after_them() {
    let mut of = following();
    assert_eq!(tell(&mut of, 100, offered(NEW)), [Command::Start(NEW)]);
    let admits = Command::Admit(Admission::One(NEW));
    assert_eq!(tell(&mut of, 200, Followed::Ready(NEW)), [admits]);
    assert_eq!(tell(&mut of, 300, Followed::Gateways(NEW, 2)), []);
    assert_eq!(of.next_wakeup(), None);
    assert_eq!(tell(&mut of, 60_000, Followed::Gateways(OLD, 0)), []);
    assert_eq!(of.next_wakeup(), Some(at(63_000)));
    assert_eq!(tell(&mut of, 62_999, Followed::Wakeup), []);
    assert_eq!(tell(&mut of, 63_000, Followed::Wakeup), [Command::End(OLD)]);
}

#[test]
fn a_revision_that_gateways_took_back_goes() {
    let mut of = following();
    tell(&mut of, 100, offered(NEW));
    tell(&mut of, 200, Followed::Ready(NEW));
    tell(&mut of, 300, Followed::Gateways(NEW, 1));
    tell(&mut of, 400, offered(OLD));
    assert_eq!(tell(&mut of, 500, Followed::Gateways(NEW, 0)), []);
    assert_eq!(tell(&mut of, 3500, Followed::Wakeup), [Command::End(NEW)]);
}

#[test]
fn while_no_gateway_is_there_nothing_ends() {
    let mut of = following();
    tell(&mut of, 100, offered(NEW));
    tell(&mut of, 200, Followed::Ready(NEW));
    tell(&mut of, 300, Followed::Gateways(OLD, 0));
    assert_eq!(of.next_wakeup(), None);
    assert_eq!(tell(&mut of, 600_000, Followed::Wakeup), []);
}

#[test]
fn one_that_could_not_start_leaves_the_former_one() {
    let mut of = following();
    tell(&mut of, 100, offered(NEW));
    let out = tell(&mut of, 200, Followed::NotStarted(NEW, "no model"));
    assert_eq!(out, [Command::TakenBack(NEW, "no model".to_owned())]);
    assert_eq!(of.view().len(), 2);
    tell(&mut of, 300, Followed::Gateways(OLD, 0));
    assert_eq!(tell(&mut of, 60_000, Followed::Wakeup), []);
}

/// Without it the process would have no sessions, and never hear that the new one was taken back.
#[test]
fn without_room_for_two_the_former_one_starts_again_where_the_new_one_cannot() {
    let mut of = following();
    let alone = |id| Followed::Offered { id, alone: true };
    tell(&mut of, 100, alone(NEW));
    tell(&mut of, 200, Followed::Gateways(OLD, 0));
    let out = tell(&mut of, 3200, Followed::Wakeup);
    assert_eq!(out, [Command::End(OLD), Command::Start(NEW)]);
    assert!(of.knows(OLD));
    let out = tell(&mut of, 3300, Followed::NotStarted(NEW, "no model"));
    let back = Command::TakenBack(NEW, "no model".to_owned());
    assert_eq!(out, [back, Command::Start(OLD)]);
    assert_eq!(tell(&mut of, 3400, Followed::Ready(OLD)), []);
    // It stays until another one is published, or this one again.
    assert_eq!(tell(&mut of, 60_000, Followed::Wakeup), []);
    let admits = Command::Admit(Admission::One(OLD));
    assert_eq!(tell(&mut of, 61_000, alone(OLD)), [admits]);
    // A former one that cannot start either is not tried again.
    let out = tell(&mut of, 62_000, alone(NEW));
    assert_eq!(out, [Command::End(OLD), Command::Start(NEW)]);
    tell(&mut of, 65_100, Followed::NotStarted(NEW, "no model"));
    let out = tell(&mut of, 65_200, Followed::NotStarted(OLD, "no model"));
    assert_eq!(out, [Command::TakenBack(OLD, "no model".to_owned())]);
}

#[test]
fn a_former_one_that_is_published_again_before_it_starts_is_started_once() {
    let mut of = following();
    let alone = |id| Followed::Offered { id, alone: true };
    tell(&mut of, 100, alone(NEW));
    tell(&mut of, 200, Followed::Gateways(OLD, 0));
    tell(&mut of, 3200, Followed::Wakeup);
    assert_eq!(tell(&mut of, 3300, alone(OLD)), []);
    let out = tell(&mut of, 3400, Followed::NotStarted(NEW, "no model"));
    let back = Command::TakenBack(NEW, "no model".to_owned());
    assert_eq!(out, [back, Command::Start(OLD)]);
    let admits = Command::Admit(Admission::One(OLD));
    assert_eq!(tell(&mut of, 3500, Followed::Ready(OLD)), [admits]);
    // Nobody may report this of one that serves; if so, it serves on.
    assert_eq!(tell(&mut of, 3600, Followed::NotStarted(OLD, "late")), []);
    assert!(of.view().iter().any(|of| of.id == OLD));
}

#[test]
fn without_room_for_two_the_former_one_ends_first() {
    let mut of = following();
    let alone = Followed::Offered {
        id: NEW,
        alone: true,
    };
    assert_eq!(tell(&mut of, 100, alone), []);
    tell(&mut of, 500, Followed::Gateways(OLD, 0));
    let out = tell(&mut of, 3500, Followed::Wakeup);
    assert_eq!(out, [Command::End(OLD), Command::Start(NEW)]);
}

proptest! {
    /// Whatever happens: a revision with gateways never ends, no more than the bound live, and each that started ends at most once.
    #[test]
    fn a_revision_with_gateways_never_ends(
        steps in proptest::collection::vec((0_u8..5, 0_u64..4, 0_usize..3, any::<bool>()), 1..200)
    ) {
        let mut of = Following::new(at(0), RevisionId(0));
        let mut live = vec![(RevisionId(0), 0)];
        let mut ms = 0;
        for (what, id, n, alone) in steps {
            ms += 700;
            let id = RevisionId(id);
            let is_live = live.iter().any(|(of, _)| *of == id);
            let event = match what {
                0 => Followed::Offered { id, alone },
                1 => Followed::Ready(id),
                2 => Followed::NotStarted(id, "it fails"),
                3 if is_live => Followed::Gateways(id, n),
                _ => Followed::Wakeup,
            };
            if let Followed::Gateways(id, n) = &event {
                live.iter_mut().filter(|(of, _)| of == id).for_each(|of| of.1 = *n);
            }
            let was_ready = matches!(event, Followed::Ready(_));
            for command in tell(&mut of, ms, event) {
                match command {
                    Command::Start(id) => {
                        prop_assert!(live.iter().all(|(of, _)| *of != id));
                        live.push((id, 0));
                    }
                    Command::End(id) => {
                        let at = live.iter().position(|(of, _)| *of == id);
                        prop_assert!(at.is_some() || was_ready);
                        if let Some(at) = at {
                            prop_assert_eq!(live.remove(at).1, 0);
                        }
                    }
                    Command::Admit(Admission::One(id)) => {
                        prop_assert!(live.iter().any(|(of, _)| *of == id));
                    }
                    Command::TakenBack(id, _) => live.retain(|(of, _)| *of != id),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert!(live.len() <= REVISIONS_MAX);
        }
    }
}
