use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::testing::noop_pipeline;

use super::*;
use crate::shares::{Party, Shortfall};

const SLO: Duration = Duration::from_nanos(100);

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn planned(execution: Vec<Duration>) -> Arc<Planned> {
    Arc::new(Planned {
        batch: vec![1; execution.len()],
        workers: vec![1; execution.len()],
        execution: execution.into_iter().map(|d| vec![d]).collect(),
        alone: false,
    })
}

fn fork() -> Ledger<()> {
    let mut pipeline = noop_pipeline(SLO, &[&[0], &[1], &[1]], &[]);
    pipeline.limits.in_flight = 2;
    pipeline.policy.drop = DropPolicy::DEADLINE;
    let planned = planned(vec![Duration::ZERO; 4]);
    Ledger::new(&pipeline, &planned, &[vec![], vec![0], vec![1], vec![2]])
}

/// Asks at `sent_at`, for all the time of the SLO or less.
fn ask(
    ledger: &mut Ledger<()>,
    sent_at: Timestamp,
    id: u64,
    timeout: Option<Duration>,
) -> Result<Request, Refusal> {
    let offer = Offer {
        sent_at,
        timeout,
        decoding: Duration::ZERO,
        application: Application::default(),
        client: ClientId::default(),
        party: Party::ONLY,
        members: None,
        stream: Default::default(),
        frame: Default::default(),
    };
    ledger.admit(sent_at, RequestId(id), &offer, |_| ())
}

#[test]
fn a_request_ends_once_all_sinks_are_done() {
    let mut ledger = fork();
    let request = ask(&mut ledger, at(0), 1, None).unwrap();
    assert_eq!(request.deadline, at(100));
    assert_eq!(ledger.result_in(at(50), RequestId(1)), None);
    assert_eq!(
        ledger.result_in(at(100), RequestId(1)),
        Some((Outcome::Completed, ()))
    );
    assert_eq!(
        ledger.result_in(at(100), RequestId(1)),
        None,
        "it has ended"
    );
    assert!(ledger.end(at(5), RequestId(1)).is_none());
}

#[test]
fn late_is_an_outcome_of_its_own() {
    let mut ledger = fork();
    ask(&mut ledger, at(0), 1, None).unwrap();
    ledger.result_in(at(101), RequestId(1));
    assert_eq!(
        ledger.result_in(at(101), RequestId(1)),
        Some((Outcome::Late, ()))
    );
}

#[test]
fn a_drop_ends_it_for_all_branches() {
    let mut ledger = fork();
    ask(&mut ledger, at(0), 1, None).unwrap();
    assert!(ledger.end(at(5), RequestId(1)).is_some());
    assert!(ledger.end(at(5), RequestId(1)).is_none());
    assert_eq!(ledger.result_in(at(5), RequestId(1)), None);
    assert_eq!(ledger.in_flight(), 0);
}

#[test]
fn the_timeout_of_a_client_is_capped_at_the_slo() {
    let mut ledger = fork();
    let mut deadline = |id, ns| {
        let timeout = Some(Duration::from_nanos(ns));
        ask(&mut ledger, at(10), id, timeout).unwrap().deadline
    };
    assert_eq!(deadline(1, 30), at(40));
    assert_eq!(deadline(2, 3000), at(110));
}

#[test]
fn what_is_over_a_bound_is_refused_at_once() {
    let mut ledger = fork();
    let zero = ask(&mut ledger, at(0), 0, Some(Duration::ZERO));
    assert_eq!(zero, Err(Refusal::Expired));
    for id in 1..=2 {
        ask(&mut ledger, at(0), id, None).unwrap();
    }
    let third = ask(&mut ledger, at(0), 3, None);
    assert_eq!(third, Err(Refusal::Full { limit: 2 }));
    ledger.end(at(5), RequestId(1));
    ask(&mut ledger, at(0), 3, None).unwrap();
    ledger.drain();
    assert_eq!(ask(&mut ledger, at(0), 4, None), Err(Refusal::Draining));
    assert_eq!(ledger.open_requests(), [RequestId(2), RequestId(3)]);
}

const MS: Duration = Duration::from_millis(1);

fn ms(n: u64) -> Timestamp {
    at(n * 1_000_000)
}

/// Two modules of 20 ms in a chain, then one of 30 ms that only some requests run, behind a gate.
fn chain() -> Ledger<()> {
    let mut pipeline = noop_pipeline(20 * 10 * MS, &[&[0], &[1], &[2]], &[None, None, Some(2)]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let times = vec![Duration::ZERO, 20 * MS, 20 * MS, 30 * MS];
    let planned = planned(times.clone());
    let mut ledger = Ledger::new(&pipeline, &planned, &[vec![], vec![0], vec![1], vec![2]]);
    for module in 1..=3u16 {
        let state = ModuleState {
            execution: 40 * MS,
            capacity: 50.0,
            workers: 1,
            pace: 1.0,
            ..crate::planner::tests::state(module, 1, 0)
        };
        ledger.learn(ms(0), &state);
    }
    ledger
}

/// Requests that pass the gate at that moment.
fn places(ledger: &mut Ledger<()>, now: Timestamp, first_id: u64) -> u64 {
    (0..)
        .take_while(|n| ask(ledger, now, first_id + n, None).is_ok())
        .count() as u64
}

#[test]
fn what_cannot_be_in_time_even_alone_takes_no_place_and_is_not_offered() {
    let mut ledger = chain();
    let places_alone = places(&mut chain(), ms(1000), 0);
    let before = ledger.offered();
    for id in 0..300 {
        let refused = ask(&mut ledger, ms(1000), id, Some(39 * MS));
        assert_eq!(refused, Err(Refusal::Hopeless));
    }
    assert_eq!(ledger.offered(), before);
    assert_eq!(places(&mut ledger, ms(1000), 1000), places_alone);
    // The conditional module may be skipped, so 40 ms may be enough; what a picture needs first counts, too.
    let mut ledger = chain();
    assert!(ask(&mut ledger, ms(1000), 1, Some(40 * MS)).is_ok());
    let offer = Offer {
        sent_at: ms(1000),
        timeout: Some(60 * MS),
        decoding: 21 * MS,
        application: Application::default(),
        client: ClientId::default(),
        party: Party::ONLY,
        members: None,
        stream: Default::default(),
        frame: Default::default(),
    };
    let refused = ledger.admit(ms(1000), RequestId(2), &offer, |_| ());
    assert_eq!(refused, Err(Refusal::Hopeless));
}

#[test]
fn workers_that_are_quicker_than_planned_make_more_possible() {
    let mut ledger = chain();
    let state = ModuleState {
        pace: 0.5,
        ..crate::planner::tests::state(1, 2, 0)
    };
    ledger.learn(ms(0), &state);
    let asked =
        |ledger: &mut Ledger<()>, id, timeout| ask(ledger, ms(10), id, Some(timeout)).is_ok();
    assert!(asked(&mut ledger, 1, 30 * MS));
    assert!(!asked(&mut ledger, 2, 29 * MS));
    // A slow moment must not shut out what is possible at other times.
    let state = ModuleState {
        pace: 3.0,
        ..crate::planner::tests::state(1, 3, 0)
    };
    ledger.learn(ms(0), &state);
    assert!(asked(&mut ledger, 3, 40 * MS));
}

#[test]
fn who_ends_by_its_own_doing_before_a_device_ran_it_gives_its_place_back() {
    let mut ledger = chain();
    let all = places(&mut ledger, ms(1000), 0);
    assert!(all >= 3);
    let offered = ledger.offered();
    let mut end = |id| ledger.end(at(5), RequestId(id)).unwrap().0;
    let (unread, waited, both) = (end(0), end(1), end(2));
    ledger.gives_back(ms(1000), &unread, vec![]);
    assert_eq!(
        places(&mut ledger, ms(1000), 100),
        1,
        "at once: nobody has it"
    );
    ledger.gives_back(ms(1000), &waited, vec![WorkerId(4)]);
    ledger.gives_back(ms(1000), &both, vec![WorkerId(4), WorkerId(5)]);
    assert_eq!(
        places(&mut ledger, ms(1000), 200),
        0,
        "once the workers said so"
    );
    assert!(ledger.forgotten(WorkerId(4), RequestId(1)));
    assert!(ledger.forgotten(WorkerId(4), RequestId(2)));
    assert!(
        !ledger.forgotten(WorkerId(4), RequestId(2)),
        "a worker says it once"
    );
    assert_eq!(places(&mut ledger, ms(1000), 300), 1);
    assert!(ledger.forgotten(WorkerId(5), RequestId(2)));
    assert!(
        !ledger.forgotten(WorkerId(5), RequestId(2)),
        "a second time counts nothing"
    );
    assert_eq!(places(&mut ledger, ms(1000), 400), 1);
    // Four of them were refused; three took a place that was given back.
    let (more, returned) = ledger.offered();
    assert_eq!((more - offered.0, returned - offered.1), (7, 3));
}

#[test]
fn what_a_device_ran_keeps_its_place() {
    let mut ledger = chain();
    let all = places(&mut ledger, ms(1000), 0);
    assert!(
        ledger.ran(RequestId(0), ModuleId::SOURCE),
        "decoding is not a device's work"
    );
    assert!(ledger.ran(RequestId(1), ModuleId(1)));
    let (decoded, ran) = (
        ledger.end(at(5), RequestId(0)).unwrap().0,
        ledger.end(at(5), RequestId(1)).unwrap().0,
    );
    ledger.gives_back(ms(1000), &ran, vec![]);
    assert_eq!(places(&mut ledger, ms(1000), all), 0);
    ledger.gives_back(ms(1000), &decoded, vec![WorkerId(4)]);
    // It was cancelled while it ran: its worker never says that it had not begun.
    assert!(!ledger.ran(RequestId(0), ModuleId(1)));
    assert!(!ledger.forgotten(WorkerId(4), RequestId(0)));
    assert_eq!(places(&mut ledger, ms(1000), 2 * all), 0);
}

#[test]
fn a_place_that_is_given_back_is_its_clients() {
    let mut ledger = chain();
    let mut next = 0;
    let mut ask = |ledger: &mut Ledger<()>, client: u64| {
        next += 1;
        let offer = Offer {
            sent_at: ms(1000),
            timeout: None,
            decoding: Duration::ZERO,
            application: Application::default(),
            client: ClientId::default(),
            party: Party {
                client: ClientKey(client),
                ..Party::ONLY
            },
            members: None,
            stream: Default::default(),
            frame: Default::default(),
        };
        let admitted = ledger.admit(ms(1000), RequestId(next), &offer, |_| ());
        admitted.map(|request| request.id)
    };
    ask(&mut ledger, 1).unwrap();
    let mut taken = Vec::new();
    let refused = loop {
        match ask(&mut ledger, 2) {
            Ok(id) => taken.push(id),
            Err(refused) => break refused,
        }
    };
    let is_share = matches!(refused, Refusal::Overload(Shortfall::Client { .. }));
    assert!(is_share, "{refused:?}");
    let ended = ledger.end(at(5), taken[0]).unwrap().0;
    ledger.gives_back(ms(1000), &ended, vec![]);
    assert!(ask(&mut ledger, 2).is_ok());
}

fn ask_in_background(
    ledger: &mut Ledger<()>,
    id: u64,
    timeout: Option<Duration>,
) -> Result<Request, Refusal> {
    let offer = Offer {
        sent_at: at(0),
        timeout,
        decoding: Duration::ZERO,
        application: Application::default(),
        client: ClientId::default(),
        party: Party {
            background: true,
            ..Party::ONLY
        },
        members: None,
        stream: Default::default(),
        frame: Default::default(),
    };
    ledger.admit(at(0), RequestId(id), &offer, |_| ())
}

#[test]
fn requests_without_an_slo_have_places_of_their_own_and_are_no_demand() {
    let mut ledger = fork();
    let request = ask_in_background(&mut ledger, 1, None).unwrap();
    assert!(request.background);
    assert_eq!(request.deadline, at(0) + BACKGROUND_LONGEST);
    // A quarter of two, but one at least.
    let full = Err(Refusal::BackgroundFull { limit: 1 });
    assert_eq!(ask_in_background(&mut ledger, 2, None), full);
    assert!(ask(&mut ledger, at(0), 3, None).is_ok());
    assert!(ask(&mut ledger, at(0), 4, None).is_ok(), "both places");
    let full = Err(Refusal::Full { limit: 2 });
    assert_eq!(ask(&mut ledger, at(0), 5, None), full);
    assert_eq!(ledger.offered(), (3, 0), "the others alone");
    let (ended, ()) = ledger.end(at(5), RequestId(1)).unwrap();
    ledger.gives_back(at(5), &ended, vec![]);
    assert_eq!(ledger.offered(), (3, 0), "it had not been offered");
    let request = ask_in_background(&mut ledger, 6, Some(SLO * 3)).unwrap();
    assert_eq!(request.deadline, at(300), "longer than the SLO");
    let is_over = ask_in_background(&mut ledger, 7, Some(Duration::ZERO));
    assert_eq!(is_over, Err(Refusal::Expired));
}

#[test]
fn requests_without_an_slo_take_nothing_of_the_gate() {
    let (mut beside, mut alone) = (chain(), chain());
    let background = (0..1000).filter(|id| ask_in_background(&mut beside, *id, None).is_ok());
    assert_eq!(background.count(), 256);
    let pass = |ledger: &mut Ledger<()>| {
        let passed = (1000..2000).filter(|id| ask(ledger, ms(1000), *id, None).is_ok());
        passed.count()
    };
    let passed = pass(&mut alone);
    assert!((1..1000).contains(&passed), "{passed}");
    assert_eq!(pass(&mut beside), passed);
}
