use std::collections::BTreeSet;

use proptest::prelude::*;
use spillgate_pipeline::id::{Incarnation, ModuleId};

use super::*;
use crate::membership::MemberDevice;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(ms * 1_000_000)
}

fn member(name: &str, life: u64) -> Member {
    Member {
        name: name.into(),
        incarnation: Incarnation(life),
        version: "0.1.0".into(),
        address: None,
        is_gateway: false,
        controllers: Vec::new(),
        devices: Vec::new(),
    }
}

fn gateway(name: &str) -> Arc<Member> {
    Arc::new(Member {
        is_gateway: true,
        ..member(name, 1)
    })
}

fn controller(name: &str) -> Arc<Member> {
    Arc::new(Member {
        controllers: vec![ModuleId(0), ModuleId(1)],
        ..member(name, 1)
    })
}

fn worker(name: &str, life: u64) -> Arc<Member> {
    Arc::new(Member {
        address: Some(format!("{name}:7720").into()),
        devices: vec![MemberDevice {
            name: "cpu:0".into(),
            workers: vec![ModuleId(1).into()],
        }],
        ..member(name, life)
    })
}

/// A roster, and the processes that its roles know by what it said.
struct Tried {
    roster: Roster,
    known: BTreeSet<Arc<str>>,
}

impl Tried {
    fn new(me: Arc<Member>) -> Self {
        Tried {
            roster: Roster::new(me, &[], at(0), &mut Vec::new()),
            known: BTreeSet::new(),
        }
    }

    fn hear(&mut self, ms: u64, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.roster.on_event(at(ms), event, &mut out);
        for command in &out {
            match command {
                Command::Joined(member) => {
                    assert!(self.known.insert(member.name.clone()), "{out:?}")
                }
                Command::Left(member) => assert!(self.known.remove(&member.name), "{out:?}"),
                _ => {}
            }
        }
        let listed = self.roster.list().map(|(member, _)| member.name.clone());
        assert_eq!(listed.collect::<BTreeSet<_>>(), self.known);
        out
    }
}

impl Tried {
    /// The life of a process that counts.
    fn life_of(&self, name: &str) -> Incarnation {
        let mut known = self.roster.list();
        let of = known.find(|(member, _)| &*member.name == name);
        of.map_or(Incarnation(0), |(member, _)| member.incarnation)
    }
}

fn list(members: &[&Arc<Member>]) -> MemberList {
    let listed = members.iter().map(|member| Listed {
        member: (*member).clone(),
        state: MemberState::Serving,
    });
    listed.collect()
}

#[test]
fn a_controller_publishes_workers_to_gateways() {
    let mut roster = Tried::new(controller("control"));
    let (a, b) = (worker("a", 1), worker("b", 1));
    assert_eq!(
        roster.hear(0, Event::Greeted(gateway("g"))),
        [
            Command::Joined(gateway("g")),
            Command::Publish("g".into(), vec![])
        ]
    );
    assert_eq!(
        roster.hear(1, Event::Greeted(a.clone())),
        [Command::Joined(a.clone())]
    );
    roster.hear(2, Event::Greeted(b.clone()));
    assert_eq!(roster.roster.next_wakeup(), Some(at(51)));
    assert_eq!(
        roster.hear(51, Event::Wakeup),
        [Command::Publish("g".into(), list(&[&a, &b]))],
        "both in one list"
    );
    roster.hear(60, Event::Leaves("a".into()));
    let published = roster.hear(110, Event::Wakeup);
    let mut leaving = list(&[&a, &b]);
    leaving[0].state = MemberState::Leaving;
    assert_eq!(published, [Command::Publish("g".into(), leaving)]);
    assert_eq!(
        roster.hear(120, Event::Lost("a".into(), Incarnation(1))),
        [Command::Left(a)],
        "it said that it goes"
    );
    assert_eq!(
        roster.hear(170, Event::Wakeup),
        [Command::Publish("g".into(), list(&[&b]))]
    );
}

#[test]
fn a_gateway_dials_who_is_listed_until_nobody_lists_it() {
    let mut roster = Tried::new(gateway("g"));
    let a = worker("a", 1);
    roster.hear(0, Event::Greeted(controller("control")));
    assert_eq!(
        roster.hear(1, Event::List("control".into(), list(&[&a]))),
        [Command::Joined(a.clone()), Command::Dial(a.clone())]
    );
    assert_eq!(
        roster.hear(2, Event::List("control".into(), list(&[&a]))),
        []
    );
    roster.hear(3, Event::Greeted(a.clone()));
    // A session is more than any list.
    roster.hear(4, Event::List("control".into(), vec![]));
    assert_eq!(roster.roster.next_wakeup(), None);
    roster.hear(20_000, Event::Lost("a".into(), Incarnation(1)));
    assert_eq!(roster.hear(29_999, Event::Wakeup), []);
    assert_eq!(
        roster.hear(30_000, Event::Wakeup),
        [Command::HangUp("a".into()), Command::Left(a)]
    );
}

#[test]
fn the_last_list_holds_while_its_controller_is_away() {
    let mut roster = Tried::new(gateway("g"));
    let (a, b) = (worker("a", 1), worker("b", 1));
    roster.hear(0, Event::Greeted(controller("control")));
    roster.hear(1, Event::List("control".into(), list(&[&a, &b])));
    roster.hear(2, Event::Lost("control".into(), Incarnation(1)));
    roster.hear(60_000, Event::Wakeup);
    assert!(roster.known.contains("a") && roster.known.contains("b"));
    // It begins anew, and hears from one of them in time.
    roster.hear(61_000, Event::Greeted(controller("control")));
    roster.hear(61_001, Event::List("control".into(), vec![]));
    roster.hear(61_800, Event::List("control".into(), list(&[&a])));
    let left = roster.hear(71_001, Event::Wakeup);
    assert_eq!(left, [Command::HangUp("b".into()), Command::Left(b)]);
    assert_eq!(roster.roster.next_wakeup(), None);
}

#[test]
fn another_controller_takes_the_place_of_one_that_stays_away() {
    let mut roster = Tried::new(gateway("g"));
    let (a, b) = (worker("a", 1), worker("b", 1));
    roster.hear(0, Event::Greeted(controller("control-x")));
    roster.hear(1, Event::List("control-x".into(), list(&[&a, &b])));
    roster.hear(2, Event::Lost("control-x".into(), Incarnation(1)));
    roster.hear(500, Event::Greeted(controller("control-y")));
    roster.hear(501, Event::List("control-y".into(), list(&[&a])));
    assert_eq!(
        roster.hear(10_002, Event::Wakeup),
        [Command::Left(controller("control-x"))]
    );
    assert_eq!(
        roster.hear(20_002, Event::Wakeup),
        [Command::HangUp("b".into()), Command::Left(b)]
    );
}

#[test]
fn a_process_that_begins_anew_stays_and_one_with_other_roles_joins_anew() {
    let mut roster = Tried::new(controller("control"));
    roster.hear(0, Event::Greeted(worker("a", 1)));
    roster.hear(1, Event::Lost("a".into(), Incarnation(1)));
    assert_eq!(roster.hear(9_000, Event::Greeted(worker("a", 2))), []);
    roster.hear(9_000, Event::Lost("a".into(), Incarnation(2)));
    let mut other = (*worker("a", 3)).clone();
    other.devices[0].workers.push(ModuleId(2).into());
    let other = Arc::new(other);
    assert_eq!(
        roster.hear(9_001, Event::Greeted(other.clone())),
        [Command::Left(worker("a", 2)), Command::Joined(other)]
    );
}

#[test]
fn of_two_processes_with_one_name_the_one_that_greeted_last_counts() {
    let mut roster = Tried::new(controller("control"));
    roster.hear(0, Event::Greeted(worker("a", 1)));
    assert_eq!(
        roster.hear(1, Event::Greeted(worker("a", 2))),
        [Command::Replaced("a".into(), Incarnation(1), "a".into())]
    );
    // The session with the other one ends.
    roster.hear(2, Event::Lost("a".into(), Incarnation(1)));
    let (_, state) = roster.roster.list().next().unwrap();
    assert_eq!(state, MemberState::Serving);
    assert_eq!(roster.roster.next_wakeup(), Some(at(50)), "a list alone");
    // It lives on, and dials again.
    assert_eq!(
        roster.hear(3, Event::Greeted(worker("a", 1))),
        [Command::Refuse(
            "a".into(),
            Incarnation(1),
            Refusal::Replaced
        )]
    );
    roster.hear(4, Event::Lost("a".into(), Incarnation(2)));
    assert_eq!(roster.hear(5, Event::Greeted(worker("a", 1))), []);
}

#[test]
fn one_that_has_the_name_of_this_process_is_refused() {
    let mut roster = Tried::new(controller("a"));
    let refused = Command::Refuse("a".into(), Incarnation(2), Refusal::Own);
    assert_eq!(roster.hear(0, Event::Greeted(worker("a", 2))), [refused]);
}

#[test]
fn of_two_processes_with_one_controller_the_lower_name_counts() {
    let mut roster = Tried::new(gateway("g"));
    roster.hear(0, Event::Greeted(controller("b")));
    assert_eq!(
        roster.hear(1, Event::Greeted(controller("a"))),
        [
            Command::Replaced("b".into(), Incarnation(1), "a".into()),
            Command::Joined(controller("a"))
        ]
    );
    roster.hear(2, Event::Lost("b".into(), Incarnation(1)));
    let refused = |other: &str| {
        let by = Refusal::Holds(other.into());
        [Command::Refuse("b".into(), Incarnation(1), by)]
    };
    assert_eq!(
        roster.hear(3, Event::Greeted(controller("b"))),
        refused("a")
    );
    // It stands by, and serves where the other one is gone.
    roster.hear(4, Event::Lost("a".into(), Incarnation(1)));
    assert_eq!(roster.hear(5, Event::Greeted(controller("b"))), []);
    let mut roster = Tried::new(controller("z"));
    assert_eq!(
        roster.hear(3, Event::Greeted(controller("b"))),
        refused("z")
    );
}

#[test]
fn a_name_that_several_had_is_free_once_the_last_of_them_is_gone() {
    let mut roster = Tried::new(gateway("g"));
    for life in [1, 2, 3] {
        roster.hear(0, Event::Greeted(worker("b", life)));
    }
    let refused = |life| {
        let by = Refusal::Replaced;
        [Command::Refuse("b".into(), Incarnation(life), by)]
    };
    // The end of one that was replaced frees nothing.
    roster.hear(1, Event::Lost("b".into(), Incarnation(2)));
    for life in [1, 2] {
        assert_eq!(
            roster.hear(2, Event::Greeted(worker("b", life))),
            refused(life)
        );
    }
    roster.hear(3, Event::Lost("b".into(), Incarnation(3)));
    assert!(
        roster
            .hear(4, Event::Greeted(worker("b", 1)))
            .iter()
            .all(|c| !matches!(c, Command::Refuse(..)))
    );
    assert_eq!(roster.life_of("b"), Incarnation(1));
}

#[test]
fn a_list_counts_from_a_controller_alone_and_at_gateways_alone() {
    let a = worker("a", 1);
    let mut roster = Tried::new(gateway("g"));
    roster.hear(0, Event::Greeted(worker("b", 1)));
    assert_eq!(roster.hear(1, Event::List("b".into(), list(&[&a]))), []);
    assert_eq!(roster.hear(1, Event::List("c".into(), list(&[&a]))), []);
    let mut roster = Tried::new(worker("b", 1));
    roster.hear(0, Event::Greeted(controller("control")));
    assert_eq!(
        roster.hear(1, Event::List("control".into(), list(&[&a]))),
        []
    );
}

#[test]
fn registrations_without_end_are_refused() {
    let mut roster = Tried::new(controller("control"));
    for i in 0..MEMBERS_MAX {
        roster.hear(0, Event::Greeted(worker(&format!("w-{i}"), 1)));
    }
    assert_eq!(
        roster.hear(0, Event::Greeted(worker("one-more", 1))),
        [Command::Refuse(
            "one-more".into(),
            Incarnation(1),
            Refusal::Full
        )]
    );
    assert_eq!(roster.known.len(), MEMBERS_MAX);
    // Those that are known come and go.
    roster.hear(1, Event::Lost("w-3".into(), Incarnation(1)));
    assert_eq!(roster.hear(2, Event::Greeted(worker("w-3", 2))), []);
}

#[test]
fn registrations_of_ever_more_workers_are_refused() {
    let mut roster = Tried::new(controller("control"));
    let large = |i: usize| {
        let mut member = (*worker(&format!("w-{i}"), 1)).clone();
        member.devices[0].workers = vec![ModuleId(1).into(); 1000];
        Event::Greeted(Arc::new(member))
    };
    let refused: Vec<Vec<Command>> = (0..40).map(|i| roster.hear(0, large(i))).collect();
    let is_refusal = |c: &Command| matches!(c, Command::Refuse(_, _, Refusal::Full));
    assert_eq!(
        refused.iter().flatten().filter(|c| is_refusal(c)).count(),
        8
    );
    assert!(roster.known.len() * 1001 <= ROLES_KNOWN_MAX);
}

#[test]
fn a_static_topology_is_known_from_the_start_and_stays() {
    let mut out = Vec::new();
    let fixed = [worker("a", 1), gateway("g")];
    let mut roster = Roster::new(gateway("g"), &fixed, at(0), &mut out);
    let (joined, dial) = (
        Command::Joined(worker("a", 1)),
        Command::Dial(worker("a", 1)),
    );
    assert_eq!(out, [joined, dial]);
    roster.on_event(at(1), Event::Greeted(worker("a", 1)), &mut out);
    roster.on_event(at(2), Event::Lost("a".into(), Incarnation(1)), &mut out);
    assert_eq!((roster.next_wakeup(), out.len()), (None, 2));
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn event() -> impl Strategy<Value = (u64, u8, usize, u8)> {
    (0u64..4_000, 0u8..8, 0..NAMES.len(), any::<u8>())
}

proptest! {
    /// Whatever comes in whatever order: a process joins before it leaves, one with a session never leaves, and what is left when
    /// all are gone is forgotten.
    #[test]
    fn who_is_there_is_known_and_who_is_gone_is_forgotten(events in prop::collection::vec(event(), 1..60)) {
        let mut roster = Tried::new(gateway("g"));
        let mut there: BTreeSet<&str> = BTreeSet::new();
        let mut ms = 0;
        for (module, name) in [(0, "x"), (1, "y")] {
            let controllers = vec![ModuleId(module)];
            let controller = Member { controllers, ..member(name, 1) };
            roster.hear(0, Event::Greeted(Arc::new(controller)));
        }
        for (passed, kind, of, bits) in events {
            ms += passed;
            let name = NAMES[of];
            let event = match kind {
                0 | 1 => {
                    there.insert(name);
                    Event::Greeted(worker(name, u64::from(bits)))
                }
                2 => {
                    there.remove(name);
                    Event::Lost(name.into(), roster.life_of(name))
                }
                3 => Event::Leaves(name.into()),
                4 => Event::Suspected(name.into()),
                5 => Event::Trusted(name.into()),
                6 => {
                    let all: Vec<Arc<Member>> = (0..NAMES.len())
                        .filter(|i| bits >> i & 1 == 1)
                        .map(|i| worker(NAMES[i], 9))
                        .collect();
                    let by = if bits > 127 { "x" } else { "y" };
                    Event::List(by.into(), list(&all.iter().collect::<Vec<_>>()))
                }
                _ => Event::Wakeup,
            };
            roster.hear(ms, event);
            prop_assert!(there.iter().all(|name| roster.known.contains(*name)));
        }
        for name in NAMES {
            let life = roster.life_of(name);
            roster.hear(ms, Event::Lost(name.into(), life));
        }
        for name in ["x", "y"] {
            roster.hear(ms, Event::List(name.into(), vec![]));
        }
        while let Some(next) = roster.roster.next_wakeup() {
            let next = next.as_ns() / 1_000_000;
            prop_assert!(next <= ms + FORGET_AFTER.as_millis() as u64);
            roster.hear(next, Event::Wakeup);
        }
        prop_assert_eq!(roster.known.len(), 2, "the controllers");
    }
}
