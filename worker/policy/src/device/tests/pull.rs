use spillgate_pipeline::policy::BudgetOrder;
use spillgate_protocol::message::{Answer, Ask, Lent, Returned};

use super::*;

const US: Duration = Duration::from_micros(1);
const RUN: Duration = Duration::from_millis(20);
const LEAD: Duration = Duration::from_micros(500);

fn us(n: u64) -> Timestamp {
    Timestamp::from_ns(n * 1000)
}

/// A request of a gateway.
fn request(gateway: u16, number: u64) -> Request {
    Request::new(
        RequestId::at(GatewayId(gateway), Default::default(), number),
        us(0),
        us(1_000_000),
    )
}

/// What the device said since it was asked last.
#[derive(Debug, Default, PartialEq)]
struct Sent {
    /// By gateway.
    asks: Vec<(u16, Ask)>,
    withdrawn: Vec<(u16, u64)>,
    returned: Vec<(u16, Vec<u64>)>,
    dropped: Vec<u64>,
    batches: Vec<Vec<u64>>,
    /// The gateways that hear that its worker leaves.
    leaves: Vec<u16>,
}

struct Asking {
    device: Device<()>,
    now: Timestamp,
    batch: Option<BatchId>,
}

/// A device with one worker, whose batches of up to 4 take 20 ms, and so many gateways.
fn asking(gateways: u16) -> Asking {
    let config = BrokerConfig {
        module: ModuleId(1),
        capacity: 16,
        batch: 4,
        execution: vec![RUN; 4].into(),
        recipe: DropPolicy::SPILLGATE.recipe(),
        pulls: true,
        is_family: false,
        is_adapted: false,
        background: 64,
        background_time: Duration::from_millis(10),
        schedule: None,
    };
    let mut asking = Asking {
        device: Device::new(vec![(WorkerId(1), config)], LEAD),
        now: us(0),
        batch: None,
    };
    for gateway in 0..gateways {
        asking.on(DeviceEvent::Greeted(GatewayId(gateway), &[WorkerId(1)]));
    }
    asking
}

impl Asking {
    fn on(&mut self, event: DeviceEvent<'_, ()>) -> Sent {
        let mut out = Vec::new();
        self.device.on_event(self.now, event, &mut out);
        let mut sent = Sent::default();
        for command in out {
            match command {
                DeviceCommand::Tell {
                    gateway, message, ..
                } => match message {
                    ToGateway::Ask(ask) => sent.asks.push((gateway.0, ask)),
                    ToGateway::Withdrawn(_, serial) => sent.withdrawn.push((gateway.0, serial)),
                    ToGateway::Returned(Returned { requests, .. }) => {
                        let numbers = requests.iter().map(|(id, _)| id.ordinal());
                        sent.returned.push((gateway.0, numbers.collect()));
                    }
                    ToGateway::Dropped { request, .. } => sent.dropped.push(request.ordinal()),
                    ToGateway::Forgotten { .. } => {}
                    ToGateway::Leaves(WorkerId(1)) => sent.leaves.push(gateway.0),
                    message => panic!("{message:?}"),
                },
                DeviceCommand::Execute(batch) => {
                    self.batch = Some(batch.id);
                    let numbers = batch.members.iter().map(|m| m.request.id.ordinal());
                    sent.batches.push(numbers.collect());
                }
                command => panic!("{command:?}"),
            }
        }
        sent
    }

    /// What it says when that time has come.
    fn at(&mut self, now: Timestamp) -> Sent {
        self.now = now;
        self.on(DeviceEvent::Wakeup)
    }

    fn answer(&mut self, gateway: u16, serial: u64, numbers: &[u64]) -> Sent {
        let offered = numbers.iter().map(|n| Lent {
            request: request(gateway, *n),
            since: us(0),
            payload: (),
        });
        let answer = Answer {
            worker: WorkerId(1),
            serial,
            order: BudgetOrder::LowestFirst,
            waiting: 0,
            requests: offered.collect(),
        };
        self.on(DeviceEvent::Answer(GatewayId(gateway), answer))
    }

    fn batch_ends(&mut self) -> Sent {
        let batch = self.batch.take().expect("a batch runs");
        self.on(DeviceEvent::BatchEnded {
            batch,
            took: RUN,
            sampled: None,
        })
    }

    /// Runs a batch, and asks for the next one. Returns the serial of that ask.
    fn runs_and_asks(&mut self) -> u64 {
        let serial = self.device.asks.standing().expect("it is idle");
        self.answer(0, serial, &[100]);
        if self.batch.is_none() {
            self.at(self.now + US * 200);
        }
        self.batch.expect("it runs");
        let at = self.device.next_wakeup().expect("it asks in time");
        let sent = self.at(at);
        sent.asks[0].1.serial
    }
}

#[test]
fn an_idle_device_asks_all_gateways_and_begins_soon_after_the_first_request() {
    let mut asking = asking(2);
    let sent = asking.at(us(0));
    assert_eq!(sent, Sent::default(), "its ask stands");
    let serial = asking.device.asks.standing().expect("it is idle");
    assert_eq!(asking.answer(1, serial, &[7]), Sent::default());
    // The others of the batch of the module before come by other gateways.
    asking.now = us(50);
    assert_eq!(asking.answer(0, serial, &[6]), Sent::default());
    assert_eq!(asking.device.next_wakeup(), Some(us(200)));
    let sent = asking.at(us(200));
    assert_eq!(sent.batches, [[7, 6]]);
    assert_eq!(sent.withdrawn, [(0, serial), (1, serial)]);
    // Another gateway had sent one before it heard that.
    let sent = asking.answer(0, serial, &[8]);
    assert_eq!((sent.returned, sent.batches), (vec![(0, vec![8])], vec![]));
}

#[test]
fn a_gateway_that_comes_hears_of_the_ask_that_stands() {
    let mut asking = asking(1);
    let serial = asking.device.asks.standing().expect("it is idle");
    let sent = asking.on(DeviceEvent::Greeted(GatewayId(3), &[WorkerId(1)]));
    assert_eq!((sent.asks[0].0, sent.asks[0].1.serial), (3, serial));
    assert_eq!(sent.asks[0].1.until, None);
}

#[test]
fn a_busy_device_asks_a_round_trip_before_it_binds_and_binds_when_all_have_answered() {
    let mut asking = asking(2);
    let serial = asking.device.asks.standing().expect("it is idle");
    asking.answer(0, serial, &[1]);
    assert_eq!(asking.at(us(200)).batches, [[1]]);
    let at = asking.device.next_wakeup().expect("it asks in time");
    // The first round trips are assumed to take 2 ms.
    assert_eq!(at, us(20_200 - 500 - 2_000));
    let sent = asking.at(at);
    let asks: Vec<(u16, u32, Option<Timestamp>)> = sent
        .asks
        .iter()
        .map(|(h, a)| (*h, a.most, a.until))
        .collect();
    let until = Some(us(20_200 - 500 - 1_000));
    assert_eq!(asks, [(0, 12, until), (1, 12, until)], "three batches");
    let serial = sent.asks[0].1.serial;
    asking.now = us(18_500);
    assert_eq!(asking.answer(0, serial, &[2, 3, 4]), Sent::default());
    assert_eq!(
        asking.at(us(19_800)).batches,
        Vec::<Vec<u64>>::new(),
        "one is missing"
    );
    let sent = asking.answer(1, serial, &[5, 6]);
    assert_eq!(sent.batches, [[2, 3, 4, 5]]);
    assert_eq!(sent.returned, [(1, vec![6])], "there is no room for it");
    assert_eq!(sent.withdrawn, [], "it stands no longer anyway");
}

#[test]
fn answers_are_waited_for_three_milliseconds_and_a_silent_gateway_not_again() {
    let mut asking = asking(2);
    let serial = asking.runs_and_asks();
    asking.answer(0, serial, &[1]);
    asking.now = us(20_200);
    assert_eq!(asking.batch_ends().batches, Vec::<Vec<u64>>::new());
    let patience_ends = us(20_200 - 500 + 3_000);
    assert_eq!(asking.device.next_wakeup(), Some(patience_ends));
    assert_eq!(asking.at(patience_ends).batches, [[1]]);
    // The next time the other one alone is waited for.
    let at = asking.device.next_wakeup().expect("it asks in time");
    let sent = asking.at(at);
    assert_eq!(sent.asks.len(), 2, "both are asked");
    let serial = sent.asks[0].1.serial;
    asking.answer(0, serial, &[2]);
    assert!(
        asking
            .device
            .next_wakeup()
            .is_some_and(|at| at < us(42_500))
    );
    let sent = asking.at(us(42_200));
    assert_eq!(sent.batches, [[2]]);
    // Its late answer comes back, and from then on it is waited for again.
    let sent = asking.answer(1, serial, &[3]);
    assert_eq!(sent.returned, [(1, vec![3])]);
    assert!(asking.device.asks.lead() > 2000 * US);
}

#[test]
fn one_gateway_alone_is_not_waited_for() {
    let mut asking = asking(1);
    let serial = asking.device.asks.standing().expect("it is idle");
    assert_eq!(asking.answer(0, serial, &[7]).batches, [[7]]);
}

#[test]
fn what_finds_no_room_in_the_queue_goes_back() {
    let mut asking = asking(2);
    let serial = asking.runs_and_asks();
    let numbers: Vec<u64> = (0..20).collect();
    let sent = asking.answer(0, serial, &numbers);
    assert_eq!(sent.returned, [(0, vec![16, 17, 18, 19])]);
}

#[test]
fn without_requests_it_is_idle_and_its_ask_stands() {
    let mut asking = asking(1);
    let serial = asking.runs_and_asks();
    asking.answer(0, serial, &[]);
    asking.now = us(20_000);
    let sent = asking.batch_ends();
    assert_eq!(sent.asks.len(), 1);
    assert_eq!(
        (sent.asks[0].1.until, sent.asks[0].1.most),
        (None, 4),
        "one gateway alone"
    );
}

#[test]
fn a_gateway_that_is_gone_or_silent_is_not_waited_for_until_it_answers() {
    for event in [
        DeviceEvent::Lost(GatewayId(1)),
        DeviceEvent::Suspected(GatewayId(1)),
    ] {
        let is_suspected = matches!(event, DeviceEvent::Suspected(_));
        let mut asking = asking(2);
        let serial = asking.runs_and_asks();
        asking.answer(0, serial, &[1]);
        asking.on(event);
        asking.now = us(20_200);
        assert_eq!(asking.batch_ends().batches, [[1]]);
        if is_suspected {
            // Its answer is late, and shows that it is there.
            assert_eq!(asking.answer(1, serial, &[2]).returned, [(1, vec![2])]);
            let at = asking.device.next_wakeup().expect("it asks in time");
            let serial = asking.at(at).asks[0].1.serial;
            asking.answer(0, serial, &[3]);
            assert!(asking.at(us(39_800)).batches.is_empty(), "one is missing");
            assert_eq!(asking.answer(1, serial, &[4]).batches, [[3, 4]]);
        }
    }
}

/// The gateway that sent a request has no ask of the worker any more. In seed 124 of the swarm the worker took its ask for
/// standing, and neither spoke again.
#[test]
fn an_idle_device_whose_requests_became_no_batch_asks_again() {
    for (gateways, is_cancelled) in [(1, false), (2, false), (2, true)] {
        let mut asking = asking(gateways);
        let serial = asking.device.asks.standing().expect("it is idle");
        if !is_cancelled {
            // Its deadline passes.
            asking.now = us(1_000_000);
        }
        let mut sent = asking.answer(0, serial, &[1]);
        assert_eq!(sent.dropped.is_empty(), is_cancelled);
        if is_cancelled {
            asking.on(DeviceEvent::Cancel(WorkerId(1), request(0, 1).id));
        }
        if gateways > 1 {
            sent = asking.at(asking.now + US * 200);
        }
        assert!(sent.batches.is_empty());
        let asked: Vec<u16> = sent.asks.iter().map(|(gateway, _)| *gateway).collect();
        assert_eq!(asked, (0..gateways).collect::<Vec<u16>>());
        assert!(sent.asks.iter().all(|(_, ask)| ask.serial == serial + 1));
        assert!(asking.at(asking.now + US * 100).asks.is_empty(), "once");
    }
}

#[test]
fn a_closed_device_asks_for_nothing_and_drops_what_comes() {
    let mut asking = asking(1);
    let serial = asking.device.asks.standing().expect("it is idle");
    let sent = asking.on(DeviceEvent::Close(DropReason::Draining));
    assert_eq!(sent.withdrawn, [(0, serial)]);
    let mut out = Vec::new();
    let answer = Answer {
        worker: WorkerId(1),
        serial,
        order: BudgetOrder::LowestFirst,
        waiting: 0,
        requests: vec![Lent {
            request: request(0, 1),
            since: us(0),
            payload: (),
        }],
    };
    let event = DeviceEvent::Answer(GatewayId(0), answer);
    asking.device.on_event(us(1), event, &mut out);
    let is_drop = |c: &DeviceCommand<()>| {
        matches!(
            c,
            DeviceCommand::Tell {
                message: ToGateway::Dropped { .. },
                ..
            }
        )
    };
    assert!(out.len() == 1 && is_drop(&out[0]), "{out:?}");
    assert_eq!(asking.device.next_wakeup(), None);
}

#[test]
fn a_gateway_is_asked_for_the_workers_of_its_pipeline_alone() {
    let mut asking = asking(1);
    // The device's only worker is of another pipeline than this one's.
    let sent = asking.on(DeviceEvent::Greeted(GatewayId(3), &[WorkerId(2)]));
    assert_eq!(sent, Sent::default());
    let serial = asking.device.asks.standing().expect("it is idle");
    asking.answer(0, serial, &[1]);
    asking.at(us(200));
    let at = asking.device.next_wakeup().expect("it asks in time");
    let asked: Vec<u16> = asking.at(at).asks.iter().map(|(of, _)| *of).collect();
    assert_eq!(asked, [0]);
    // So it waits for no answer of the other one.
    let serial = asking.device.asks.serial();
    asking.answer(0, serial, &[]);
    assert_eq!(asking.device.asks.waits_until(), None);
    assert_eq!(asking.on(DeviceEvent::Leave).leaves, [0]);
}

#[test]
fn a_device_that_leaves_asks_no_more_and_hands_back_what_it_has_not_bound() {
    let mut it = asking(2);
    let serial = it.device.asks.standing().expect("it is idle");
    // It would wait a little for what the other gateway has.
    assert_eq!(it.answer(0, serial, &[1]).batches, Vec::<Vec<u64>>::new());
    let sent = it.on(DeviceEvent::Leave);
    assert_eq!(sent.leaves, [0, 1]);
    assert_eq!(sent.withdrawn, [(0, serial), (1, serial)]);
    assert_eq!(sent.returned, [(0, vec![1])]);
    assert!(it.device.has_no_work());
    assert_eq!(it.answer(1, serial, &[2]).returned, [(1, vec![2])]);
    assert_eq!(it.at(us(5_000_000)), Sent::default());
    assert_eq!(
        it.on(DeviceEvent::Greeted(GatewayId(2), &[WorkerId(1)]))
            .leaves,
        [2]
    );
}

#[test]
fn a_device_that_leaves_finishes_its_batch() {
    let mut it = asking(1);
    let serial = it.device.asks.standing().expect("it is idle");
    assert_eq!(it.answer(0, serial, &[1]).batches, [vec![1]]);
    it.on(DeviceEvent::Leave);
    assert!(!it.device.has_no_work());
    // No ask goes ahead of its end.
    it.now = us(20_000);
    let sent = it.on(DeviceEvent::BatchEnded {
        batch: it.batch.unwrap(),
        took: RUN,
        sampled: None,
    });
    assert_eq!(sent, Sent::default());
    assert!(it.device.has_no_work());
}
