mod chaos;
mod network;
mod silence;

use std::time::Duration;

use expect_test::expect;

use super::*;
use crate::membership::{Member, MemberDevice};
use spillgate_pipeline::id::{Incarnation, ModuleId};

const FIRST: Connection = Connection(1);
const SECOND: Connection = Connection(2);

fn ms(n: u64) -> Timestamp {
    Timestamp::from_ns(n * 1_000_000)
}

fn greeting(member: Member) -> Arc<Greeting> {
    Arc::new(Greeting {
        member: Arc::new(member),
        set: "spillgate".into(),
        pipeline: "one".into(),
        hash: PipelineHash([7; 32]),
        wire: WireVersions::OWN,
        published: None,
    })
}

fn member(name: &str, incarnation: u64) -> Member {
    Member {
        name: name.into(),
        incarnation: Incarnation(incarnation),
        version: "0.1.0".into(),
        address: None,
        is_gateway: false,
        controllers: Vec::new(),
        devices: Vec::new(),
    }
}

/// This process.
fn me() -> Arc<Greeting> {
    greeting(Member {
        is_gateway: true,
        ..member("front", 1)
    })
}

/// The peer in one of its lives.
fn device(incarnation: u64) -> Arc<Greeting> {
    let device = MemberDevice {
        name: "cpu:0".into(),
        workers: vec![ModuleId(1).into()],
    };
    greeting(Member {
        devices: vec![device],
        ..member("a-1", incarnation)
    })
}

/// The same greeting with another process in it.
fn with(greeting: &Greeting, change: impl FnOnce(&mut Member)) -> Greeting {
    let mut greeting = greeting.clone();
    change(Arc::make_mut(&mut greeting.member));
    greeting
}

fn session(side: Side) -> Session {
    seeded(side, 1)
}

fn seeded(side: Side, seed: u64) -> Session {
    Session::new(Timing::default(), me(), side, seed, Timestamp::ZERO)
}

fn step(session: &mut Session, now: Timestamp, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    session.on_event(now, event, &mut out);
    out
}

fn greets(on: Connection, peer: &Arc<Greeting>) -> Event {
    Event::Received(on, Frame::Greeting(peer.clone()))
}

fn heartbeat(now: Timestamp) -> Frame {
    Frame::Heartbeat { sent_at: now }
}

fn close(connection: Connection, cause: &str) -> Command {
    Command::Close {
        connection,
        cause: cause.to_owned(),
    }
}

fn lost(peer: &Arc<Greeting>, cause: &str) -> Command {
    Command::Tell(News::Lost {
        peer: peer.clone(),
        cause: cause.to_owned(),
    })
}

/// An accepting session whose peer greeted on the first connection at 0.
fn greeted() -> Session {
    let mut session = session(Side::Accepts);
    step(&mut session, ms(0), Event::Connected(FIRST));
    step(&mut session, ms(0), greets(FIRST, &device(5)));
    assert_eq!(session.connection(), Some(FIRST));
    session
}

/// Wakes a session at its time until that gives a dial.
fn next_dial(session: &mut Session) -> (Timestamp, Connection) {
    loop {
        let now = session.next_wakeup().expect("it dials again");
        let out = step(session, now, Event::Wakeup);
        if let [Command::Dial(connection)] = out[..] {
            return (now, connection);
        }
    }
}

#[test]
fn one_side_dials_and_both_greet() {
    let mut dialling = session(Side::Dials);
    assert_eq!(dialling.next_wakeup(), Some(Timestamp::ZERO));
    let out = step(&mut dialling, ms(0), Event::Wakeup);
    assert_eq!(out, [Command::Dial(FIRST)]);
    let out = step(&mut dialling, ms(1), Event::Connected(FIRST));
    assert_eq!(out, [Command::Send(FIRST, Frame::Greeting(me()))]);
    assert_eq!(dialling.peer(), None);
    let out = step(&mut dialling, ms(2), greets(FIRST, &device(5)));
    let told = Command::Tell(News::Greeted(device(5)));
    assert_eq!(out, [told, Command::Send(FIRST, heartbeat(ms(2)))]);
    assert_eq!(dialling.peer(), Some(&device(5)));

    let mut accepting = session(Side::Accepts);
    assert_eq!(accepting.next_wakeup(), None);
    assert!(accepting.is_idle());
    let out = step(&mut accepting, ms(0), Event::Connected(FIRST));
    assert_eq!(out, [Command::Send(FIRST, Frame::Greeting(me()))]);
    assert!(!accepting.is_idle());
}

#[test]
fn a_newer_connection_replaces_the_older_one_when_it_greets() {
    let mut session = greeted();
    step(&mut session, ms(10), Event::Connected(SECOND));
    assert_eq!(
        session.connection(),
        Some(FIRST),
        "the newer one has not greeted"
    );
    let out = step(&mut session, ms(11), greets(SECOND, &device(5)));
    let cause = "the peer made a newer connection";
    let told = Command::Tell(News::Greeted(device(5)));
    assert_eq!(
        out[..3],
        [close(FIRST, cause), lost(&device(5), cause), told]
    );

    for event in [
        Event::Received(FIRST, heartbeat(ms(12))),
        greets(FIRST, &device(9)),
        Event::Traffic(FIRST),
        Event::Ended {
            connection: FIRST,
            cause: "reset".to_owned(),
        },
    ] {
        assert_eq!(step(&mut session, ms(900), event), []);
    }
    assert_eq!(session.connection(), Some(SECOND));
    let out = step(&mut session, ms(1_011), Event::Wakeup);
    assert_eq!(
        out[0],
        Command::Tell(News::Suspected),
        "the old one gives no sign of life"
    );
}

#[test]
fn a_peer_that_began_anew_is_lost_before_it_is_greeted() {
    let mut session = greeted();
    step(&mut session, ms(10), Event::Connected(SECOND));
    let out = step(&mut session, ms(11), greets(SECOND, &device(6)));
    let cause = "the peer began anew";
    let told = Command::Tell(News::Greeted(device(6)));
    assert_eq!(
        out[..3],
        [close(FIRST, cause), lost(&device(5), cause), told]
    );
}

#[test]
fn a_second_greeting_on_one_connection_closes_it() {
    for life in [5, 6] {
        let mut session = greeted();
        let out = step(&mut session, ms(10), greets(FIRST, &device(life)));
        let cause = "the peer greeted twice on one connection";
        assert_eq!(out, [close(FIRST, cause), lost(&device(5), cause)]);
    }
}

#[test]
fn what_comes_before_the_greeting_closes_the_connection() {
    let answer = Frame::Answer(Answer {
        heartbeat_sent_at: ms(0),
        received_at: ms(0),
        sent_at: ms(0),
    });
    for event in [
        Event::Received(FIRST, heartbeat(ms(0))),
        Event::Received(FIRST, answer),
        Event::Traffic(FIRST),
    ] {
        let mut session = session(Side::Accepts);
        step(&mut session, ms(0), Event::Connected(FIRST));
        let out = step(&mut session, ms(1), event);
        assert!(matches!(
            out[..],
            [Command::Close {
                connection: FIRST,
                ..
            }]
        ));
        assert!(session.is_idle());
    }
}

#[test]
fn a_greeting_that_never_comes_is_given_up() {
    let mut accepting = session(Side::Accepts);
    step(&mut accepting, ms(0), Event::Connected(FIRST));
    assert_eq!(accepting.next_wakeup(), Some(ms(3_000)));
    let out = step(&mut accepting, ms(3_000), Event::Wakeup);
    assert_eq!(out, [close(FIRST, "the peer did not greet within 3s")]);
    assert_eq!(accepting.next_wakeup(), None);

    let mut dialling = session(Side::Dials);
    step(&mut dialling, ms(0), Event::Wakeup);
    let out = step(&mut dialling, ms(3_000), Event::Wakeup);
    assert_eq!(out, [close(FIRST, "no connection was made within 3s")]);
    let (_, second) = next_dial(&mut dialling);
    assert_eq!(second, SECOND);
    let out = step(&mut dialling, ms(3_200), Event::Connected(FIRST));
    assert_eq!(out, [close(FIRST, "the connection is not wanted any more")]);
}

#[test]
fn only_the_newest_silent_connection_is_kept() {
    let mut session = session(Side::Accepts);
    for n in 1..100 {
        let out = step(&mut session, ms(n), Event::Connected(Connection(n)));
        let n_closed = out
            .iter()
            .filter(|c| matches!(c, Command::Close { .. }))
            .count();
        assert_eq!(n_closed, usize::from(n > 1));
    }
    assert_eq!(
        step(&mut session, ms(200), greets(Connection(98), &device(5))),
        []
    );
    assert_eq!(
        step(&mut session, ms(200), Event::Connected(Connection(99))),
        []
    );
}

#[test]
fn a_peer_of_another_wire_set_or_pipeline_is_refused_with_the_values_of_both() {
    let refusal = |change: fn(&mut Greeting)| {
        let mut peer = (*device(5)).clone();
        change(&mut peer);
        let mut session = session(Side::Accepts);
        step(&mut session, ms(0), Event::Connected(FIRST));
        let out = step(&mut session, ms(1), greets(FIRST, &Arc::new(peer)));
        let [
            Command::Close { cause, .. },
            Command::Tell(News::Refused { reason }),
        ] = &out[..]
        else {
            panic!("{out:?}");
        };
        assert_eq!(cause, reason);
        assert_eq!(session.peer(), None);
        reason.clone()
    };
    let reasons = [
        refusal(|peer| {
            peer.wire = WireVersions {
                oldest: 2,
                newest: 3,
            };
        }),
        refusal(|peer| peer.hash = PipelineHash([0xab; 32])),
        refusal(|peer| {
            peer.set = "prod".into();
            peer.pipeline = "other".into();
        }),
        refusal(|peer| {
            *peer = with(peer, |m| {
                m.devices[0].workers = vec![ModuleId(1).into(); ROLES_MAX];
            });
        }),
        refusal(|peer| *peer = with(peer, |m| m.controllers = vec![ModuleId(4); 2])),
        refusal(|peer| *peer = with(peer, |m| m.version = "x".repeat(5_000_000).into())),
        refusal(|peer| *peer = with(peer, |m| m.address = Some("x".repeat(261).into()))),
        refusal(|peer| *peer = with(peer, |m| m.name = "a\n1".into())),
        refusal(|peer| *peer = with(peer, |m| m.devices[0].name = "".into())),
        refusal(|peer| *peer = (*me()).clone()),
    ];
    expect![[r#"
        a-1 runs version "0.1.0" of the program and speaks version 2 to 3 of the link, this process "0.1.0" and 1; run adjacent releases
        a-1 serves revision abababababab of pipeline "one", this process revision 070707070707 of "one"; give both the same pipeline file
        a-1 belongs to set "prod", this process to "spillgate"; start both with the same --set, or connect each with its own; a-1 serves revision 070707070707 of pipeline "other", this process revision 070707070707 of "one"; give both the same pipeline file
        the peer's greeting names 1025 roles and workers; a process has at most 1024
        the peer's greeting names the controller of module 4 twice; a process has a role once
        the peer's version has 5000000 bytes; it may have 64
        the peer's address has 261 bytes; it may have 260
        a name in the peer's greeting has 3 bytes or unprintable characters; names have 1 to 253 of ASCII
        a name in the peer's greeting has 0 bytes or unprintable characters; names have 1 to 253 of ASCII
        the peer is this process itself; dial other processes only"#]]
    .assert_eq(&reasons.join("\n"));
}

#[test]
fn a_refused_newcomer_does_not_touch_the_greeted_connection() {
    let mut session = greeted();
    step(&mut session, ms(10), Event::Connected(SECOND));
    let mut peer = (*device(6)).clone();
    peer.pipeline = "other".into();
    let out = step(&mut session, ms(11), greets(SECOND, &Arc::new(peer)));
    assert!(matches!(
        out[..],
        [
            Command::Close {
                connection: SECOND,
                ..
            },
            Command::Tell(News::Refused { .. })
        ]
    ));
    assert_eq!(session.peer(), Some(&device(5)));
}

#[test]
fn a_refused_peer_is_dialled_again_with_the_longest_backoff() {
    let mut waits = Vec::new();
    for seed in 0..50 {
        let mut session = seeded(Side::Dials, seed);
        let (now, connection) = next_dial(&mut session);
        step(&mut session, now, Event::Connected(connection));
        let peer = Greeting {
            pipeline: "other".into(),
            ..(*device(5)).clone()
        };
        step(&mut session, now, greets(connection, &Arc::new(peer)));
        waits.push(next_dial(&mut session).0.since(now));
    }
    let mean = waits.iter().sum::<Duration>() / waits.len() as u32;
    assert!(mean > Duration::from_millis(400), "half of 1 s: {mean:?}");
    assert!(waits.iter().all(|w| *w <= Duration::from_secs(1)));
}

#[test]
fn a_session_that_one_side_may_not_have_ends_and_is_told() {
    let refused = |connection| Event::Refused {
        connection,
        reason: "no rights".to_owned(),
    };
    let told = |commands: &[Command]| {
        let reason = "no rights".to_owned();
        commands.contains(&Command::Tell(News::Refused { reason }))
    };
    for has_greeted in [false, true] {
        let mut session = session(Side::Dials);
        let (now, connection) = next_dial(&mut session);
        step(&mut session, now, Event::Connected(connection));
        if has_greeted {
            step(&mut session, now, greets(connection, &device(5)));
        }
        // What is said of another connection counts for nothing.
        let other = Connection(connection.0 + 1);
        assert!(step(&mut session, now, refused(other)).is_empty());
        let commands = step(&mut session, now, refused(connection));
        assert!(told(&commands), "{commands:?}");
        let closes =
            |c: &Command| matches!(c, Command::Close { connection: of, .. } if *of == connection);
        assert!(commands.iter().any(closes), "{commands:?}");
        assert_eq!(session.peer(), None);
        assert!(step(&mut session, now, refused(connection)).is_empty());
        assert!(next_dial(&mut session).0 > now, "it is dialled again");
    }
}

/// Dials of a session whose connections greet and end after `life`, in `time`.
fn dials_within(time: Timestamp, life: Duration) -> usize {
    let mut session = session(Side::Dials);
    let mut n_dials = 0;
    loop {
        let (now, connection) = next_dial(&mut session);
        if now > time {
            return n_dials;
        }
        n_dials += 1;
        step(&mut session, now, Event::Connected(connection));
        step(&mut session, now, greets(connection, &device(5)));
        let cause = "connection reset".to_owned();
        step(&mut session, now + life, Event::Ended { connection, cause });
    }
}

#[test]
fn backoff_begins_anew_only_after_a_session_that_lasted() {
    let n_short = dials_within(ms(600_000), Duration::from_millis(1));
    assert!((1100..1300).contains(&n_short), "0.5 s each: {n_short}");
    let n_long = dials_within(ms(600_000), Duration::from_secs(1));
    assert!((565..580).contains(&n_long), "1.05 s each: {n_long}");
}

#[test]
fn an_ended_session_closes_and_dials_no_more() {
    let mut accepting = greeted();
    let cause = "d3 greeted in another life";
    let end = Event::End {
        cause: cause.to_owned(),
    };
    let out = step(&mut accepting, ms(10), end.clone());
    assert_eq!(out, [close(FIRST, cause), lost(&device(5), cause)]);
    let out = step(&mut accepting, ms(20), Event::Connected(SECOND));
    assert!(matches!(
        out[..],
        [Command::Close {
            connection: SECOND,
            ..
        }]
    ));
    assert!(accepting.is_idle());

    let mut dialling = session(Side::Dials);
    let (now, connection) = next_dial(&mut dialling);
    assert_eq!(step(&mut dialling, now, end), [close(connection, cause)]);
    assert!(dialling.is_idle());
    assert_eq!(dialling.next_wakeup(), None);
}

#[test]
fn times_that_do_not_fit_together_are_refused() {
    let [a, b, c] = [1, 100, 5_000].map(Duration::from_millis);
    let errors = [
        Timing::try_new(a, b, a, a),
        Timing::try_new(b, b, a, a),
        Timing::try_new(b, c, c, b),
        Timing::try_new(b, c, Duration::ZERO, b),
    ];
    let texts = errors.map(|e| e.unwrap_err().to_string());
    expect![[r#"
        suspicion after 1ms: at least 10ms is needed
        death after 100ms must come later than suspicion after 100ms
        the first backoff, 5s, must be more than 0 and at most the longest, 100ms
        the first backoff, 0ms, must be more than 0 and at most the longest, 100ms"#]]
    .assert_eq(&texts.join("\n"));
}
