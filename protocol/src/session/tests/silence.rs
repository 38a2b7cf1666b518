use super::*;

/// Wakes a session at its times up to `until`; what it did, each with its time in milliseconds.
fn run(session: &mut Session, until: Timestamp) -> Vec<(u64, Command)> {
    let mut did = Vec::new();
    while let Some(now) = session.next_wakeup().filter(|at| *at <= until) {
        let out = step(session, now, Event::Wakeup);
        assert!(
            session.next_wakeup() > Some(now) || session.is_idle(),
            "it makes progress"
        );
        did.extend(out.into_iter().map(|c| (now.as_ns() / 1_000_000, c)));
    }
    did
}

fn times_of_heartbeats(did: &[(u64, Command)]) -> Vec<u64> {
    did.iter()
        .filter(|(_, c)| matches!(c, Command::Send(_, Frame::Heartbeat { .. })))
        .map(|(at, _)| *at)
        .collect()
}

#[test]
fn a_silent_peer_is_suspected_and_then_lost() {
    let mut session = greeted();
    let did = run(&mut session, ms(10_000));
    let told: Vec<_> = did
        .iter()
        .filter(|(_, c)| !matches!(c, Command::Send(..)))
        .cloned()
        .collect();
    let cause = "the peer was silent for 3s";
    let expected = [
        (1_000, Command::Tell(News::Suspected)),
        (3_000, close(FIRST, cause)),
        (3_000, lost(&device(5), cause)),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        times_of_heartbeats(&did),
        (1..12).map(|i| i * 250).collect::<Vec<_>>(),
        "a suspected peer is asked on"
    );
}

#[test]
fn a_suspected_peer_is_trusted_at_its_next_sign_of_life_once_it_answers() {
    let signs = [
        Event::Traffic(FIRST),
        Event::Received(FIRST, heartbeat(ms(77))),
    ];
    for sign in signs {
        let mut session = greeted();
        run(&mut session, ms(2_900));
        assert!(session.is_suspected());
        step(&mut session, ms(2_950), sign.clone());
        assert!(session.is_suspected(), "it may not hear");
        answer_all(&mut session, ms(2_950));
        assert!(!session.is_suspected());
        let did = run(&mut session, ms(3_900));
        assert_eq!(
            did.len(),
            times_of_heartbeats(&did).len(),
            "nothing is told"
        );
    }
}

/// The peer answers the heartbeat of that time, if there is one without an answer.
fn answer(session: &mut Session, now: Timestamp, heartbeat_sent_at: Timestamp) {
    let answer = Frame::Answer(Answer {
        heartbeat_sent_at,
        received_at: now,
        sent_at: now,
    });
    step(session, now, Event::Received(FIRST, answer));
}

/// The peer answers all heartbeats of the first three seconds.
fn answer_all(session: &mut Session, now: Timestamp) {
    (0..12).for_each(|n| answer(session, now, ms(n * 250)));
}

#[test]
fn a_peer_that_speaks_and_does_not_answer_is_suspected_and_not_lost() {
    let mut session = greeted();
    answer_all(&mut session, ms(10));
    let mut told = Vec::new();
    for at in (100..10_000).step_by(100) {
        let speaks = step(&mut session, ms(at), Event::Traffic(FIRST));
        let did = run(&mut session, ms(at));
        let news = did.into_iter().map(|(_, command)| command).chain(speaks);
        let news = news.filter(|command| matches!(command, Command::Tell(_)));
        told.extend(news.map(|news| (at, news)));
    }
    // The heartbeat at 250 ms is the first without an answer.
    assert_eq!(told, [(1_300, Command::Tell(News::Suspected))]);
}

#[test]
fn a_session_that_wakes_late_tells_the_loss_only() {
    let mut session = greeted();
    let out = step(&mut session, ms(60_000), Event::Wakeup);
    let cause = "the peer was silent for 3s";
    assert_eq!(out, [close(FIRST, cause), lost(&device(5), cause)]);
}

#[test]
fn other_traffic_is_life_and_makes_most_heartbeats_unnecessary() {
    let mut session = greeted();
    answer(&mut session, ms(5), ms(0));
    let mut did = Vec::new();
    for n in 1..=400 {
        assert_eq!(step(&mut session, ms(n * 10), Event::Traffic(FIRST)), []);
        assert_eq!(step(&mut session, ms(n * 10), Event::Sent(FIRST)), []);
        did.extend(run(&mut session, ms(n * 10)));
        for at in times_of_heartbeats(&did) {
            answer(&mut session, ms(n * 10), ms(at));
        }
    }
    assert_eq!(
        times_of_heartbeats(&did),
        (1..=8).map(|i| i * 500).collect::<Vec<_>>(),
        "for the clock"
    );
    assert_eq!(did.len(), 8);
}

#[test]
fn a_heartbeat_is_answered_with_its_time_and_mine() {
    let mut session = greeted();
    for theirs in [0, 77, u64::MAX] {
        let sent_at = Timestamp::from_ns(theirs);
        let event = Event::Received(FIRST, Frame::Heartbeat { sent_at });
        let answer = Frame::Answer(Answer {
            heartbeat_sent_at: sent_at,
            received_at: ms(9),
            sent_at: ms(9),
        });
        let out = step(&mut session, ms(9), event);
        assert_eq!(out, [Command::Send(FIRST, answer)]);
    }
}

#[test]
fn the_offset_is_that_of_one_connection() {
    let mut session = greeted();
    let answer = Frame::Answer(Answer {
        heartbeat_sent_at: ms(0),
        received_at: ms(1_001),
        sent_at: ms(1_001),
    });
    assert_eq!(session.offset(ms(2)), None);
    step(&mut session, ms(2), Event::Received(FIRST, answer));
    assert_eq!(session.offset(ms(2)).unwrap().ns, 1_000_000_000);
    assert_eq!(session.to_mine(ms(1_500)), Some(ms(500)));
    step(&mut session, ms(10), Event::Connected(SECOND));
    step(&mut session, ms(10), greets(SECOND, &device(6)));
    assert_eq!(
        session.offset(ms(10)),
        None,
        "another life has another clock"
    );
}
