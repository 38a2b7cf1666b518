mod backlog_check;
mod bound;
mod pull;
mod suspected;

use std::time::Duration;

use spillgate_pipeline::id::{BatchId, ClientId};
use spillgate_pipeline::policy::{DropPolicy, Guidance};
use spillgate_pipeline::request::{Drop, DropReason};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_protocol::message::{BatchShape, Finished, ModulePlan};

use super::*;
use crate::shares::Party;

const MS: Duration = Duration::from_millis(1);
const SLO: Duration = Duration::from_millis(100);
const LIFE: Incarnation = Incarnation(1);

/// A gateway, and what it said.
struct Harness {
    gateway: Gateway<u64, ()>,
    now: Timestamp,
    sent: Vec<(u32, u64)>,
    /// By worker that asked.
    given: Vec<(u32, Vec<u64>)>,
    cancelled: Vec<(u16, u64)>,
    /// All other messages.
    others: Vec<String>,
    demands: Vec<(u16, u64)>,
    /// By module: requests dropped, requests that asked for nothing after all.
    unasked: Vec<(u16, u64)>,
    ended: Vec<(u64, &'static str)>,
    /// The modules of the requests that were dropped.
    dropped_at: Vec<u16>,
}

fn device(of: u32) -> Address {
    Address::Device(DeviceId(of as u16))
}

/// Workers of module m are m, 10 + m, 20 + m and so on, each on a device of its own number.
fn harness(reads: &[&[u16]], whens: &[Option<u16>], workers: u32) -> Harness {
    let mut pipeline = noop_pipeline(SLO, reads, whens);
    pipeline.policy.drop = DropPolicy::DEADLINE;
    harness_of(pipeline, workers)
}

fn harness_of(pipeline: Pipeline, workers: u32) -> Harness {
    let n = pipeline.modules.len();
    let planned = Planned {
        batch: vec![4; n],
        execution: vec![vec![MS * 10; 4]; n].into(),
        workers: vec![1; n],
        alone: false,
    };
    let places: Vec<Place> = (0..workers)
        .flat_map(|i| (1..n as u32).map(move |m| (m, 10 * i + m)))
        .map(|(m, worker)| Place {
            worker: WorkerId(worker),
            module: ModuleId(m as u16),
            device: DeviceId(worker as u16),
        })
        .collect();
    let gateway = Gateway::new(&GatewayConfig {
        id: GatewayId(0),
        incarnation: LIFE,
        pipeline: &Arc::new(pipeline),
        planned: &Arc::new(planned),
        places: &places,
        turn: 0,
        seed: 1,
        born: Timestamp::ZERO,
    });
    let mut harness = Harness {
        gateway,
        now: Timestamp::ZERO,
        sent: Vec::new(),
        given: Vec::new(),
        cancelled: Vec::new(),
        others: Vec::new(),
        demands: Vec::new(),
        unasked: Vec::new(),
        ended: Vec::new(),
        dropped_at: Vec::new(),
    };
    for place in places {
        harness.on(Event::Greeted(device(place.worker.0), LIFE));
    }
    harness
}

impl Harness {
    fn on(&mut self, event: Event<'_>) {
        let mut out = Vec::new();
        self.gateway.on_event(self.now, event, &mut out);
        for command in out {
            match command {
                Command::Send(Envelope { to, message, .. }) => self.note(to, message),
                Command::End(ended) => {
                    assert_eq!(ended.payload, ended.request.id.0);
                    let end = (ended.request.id.0, ended.outcome.label());
                    self.ended.push(end);
                    if let Outcome::Dropped(drop) = &ended.outcome {
                        self.dropped_at.push(drop.module.0);
                    }
                }
                Command::Ask { stream, .. } => panic!("nothing adapts here: {stream:?}"),
            }
        }
    }

    fn note(&mut self, to: Address, message: Message<()>) {
        match (to, message) {
            (Address::Device(device), Message::Device(ToDevice::Cancel(_, id))) => {
                self.cancelled.push((device.0, id.0));
            }
            (_, Message::Device(ToDevice::Answer(answer))) => {
                let ids = answer.requests.iter().map(|o| o.request.id.0);
                self.given.push((answer.worker.0, ids.collect()));
            }
            (_, Message::Device(ToDevice::Requests(requests))) => {
                let sent = requests.iter().map(|a| (a.worker.0, a.request.id.0));
                self.sent.extend(sent);
            }
            (Address::Controller(module), Message::Controller(ToController::Demand(demand))) => {
                self.demands.push((module.0, demand.reached));
                self.unasked.push((module.0, demand.unasked));
            }
            (_, message) => self.others.push(format!("{message:?}")),
        }
    }

    /// A request comes in, and the source has read it.
    fn submit(&mut self, id: u64) {
        self.submit_of(id, 0);
    }

    /// The same, of a client of that class.
    fn submit_of(&mut self, id: u64, class: u8) {
        self.submit_by(
            id,
            Party {
                class,
                ..Party::ONLY
            },
        );
    }

    /// The same, of a client without an SLO.
    fn submit_in_background(&mut self, id: u64) {
        self.submit_by(
            id,
            Party {
                background: true,
                ..Party::ONLY
            },
        );
    }

    fn submit_by(&mut self, id: u64, party: Party) {
        self.submit_sent(id, party, self.now);
    }

    fn submit_sent(&mut self, id: u64, party: Party, sent_at: Timestamp) {
        let offer = Offer {
            sent_at,
            timeout: None,
            decoding: Duration::ZERO,
            application: Application::default(),
            client: ClientId::default(),
            party,
            members: None,
            stream: Default::default(),
            frame: Default::default(),
        };
        let admitted = self
            .gateway
            .admit(self.now, RequestId(id), &offer, || (id, ()));
        admitted.expect("there is room");
        self.on(Event::Read(RequestId(id), Ok(Filled::ALL)));
    }

    /// A worker has finished a request.
    fn done(&mut self, worker: u32, id: u64) {
        self.finished(LIFE, worker, id, Ok(Filled::ALL));
    }

    fn finished(&mut self, life: Incarnation, worker: u32, id: u64, result: Result<Filled, Fault>) {
        let message = ToGateway::Finished {
            worker: WorkerId(worker),
            batch: BatchId(id),
            took: MS * 10,
            size: 1,
            members: vec![Finished {
                request: RequestId(id),
                result,
            }],
        };
        self.on(Event::Message(device(worker), life, message));
    }

    /// A worker drops a request.
    fn dropped(&mut self, worker: u32, id: u64, reason: DropReason) {
        let drop = Drop {
            module: ModuleId(1),
            reason,
            at: self.now,
            budget: (self.now + SLO).budget_at(self.now),
            estimate: None,
        };
        let message = ToGateway::Dropped {
            worker: WorkerId(worker),
            request: RequestId(id),
            drop: Box::new(drop),
        };
        self.on(Event::Message(device(worker), LIFE, message));
    }

    fn at(&mut self, ms: u64) -> &mut Self {
        self.now = Timestamp::from_ns(ms * 1_000_000);
        self
    }
}

#[test]
fn a_join_waits_for_both_branches() {
    let mut harness = harness(&[&[0], &[1], &[1], &[2, 3]], &[], 1);
    harness.submit(7);
    harness.done(1, 7);
    assert_eq!(harness.sent, [(1, 7), (2, 7), (3, 7)]);
    harness.done(3, 7);
    assert_eq!(harness.sent.len(), 3);
    harness.done(2, 7);
    assert_eq!(harness.sent[3..], [(4, 7)]);
    harness.done(4, 7);
    assert_eq!(harness.ended, [(7, "completed")]);
}

#[test]
fn a_false_condition_skips_a_module_and_those_that_need_it() {
    let mut harness = harness(&[&[0], &[0], &[2]], &[None, Some(1)], 1);
    harness.submit(7);
    assert_eq!(harness.sent, [(1, 7)]);
    harness.finished(LIFE, 1, 7, Ok(Filled::default()));
    assert_eq!(harness.sent.len(), 1);
    assert_eq!(harness.ended, [(7, "completed")]);
    harness.submit(8);
    harness.done(1, 8);
    assert_eq!(harness.sent[1..], [(1, 8), (2, 8)]);
}

#[test]
fn a_request_that_ends_is_cancelled_where_it_is() {
    let mut harness = harness(&[&[0], &[1], &[1]], &[], 1);
    harness.submit(7);
    harness.done(1, 7);
    harness.on(Event::Cancel(RequestId(7)));
    assert_eq!(harness.ended, [(7, "dropped")]);
    assert_eq!(harness.cancelled, [(2, 7), (3, 7)]);
    harness.on(Event::Cancel(RequestId(7)));
    assert_eq!(harness.ended.len(), 1, "it has ended");
}

#[test]
fn a_late_branch_after_the_end_opens_nothing() {
    let mut harness = harness(&[&[0], &[1], &[1], &[2, 3]], &[], 1);
    harness.submit(7);
    harness.done(1, 7);
    harness.on(Event::Cancel(RequestId(7)));
    let sent = harness.sent.len();
    harness.done(2, 7);
    harness.done(3, 7);
    assert_eq!(harness.sent.len(), sent);
    assert_eq!(harness.gateway.in_flight(), 0);
    assert_eq!(harness.ended.len(), 1);
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    let mut harness = harness(&[&[0], &[0], &[1, 2]], &[], 1);
    harness.submit(7);
    harness.done(1, 7);
    harness.done(1, 7);
    assert_eq!(
        harness.sent,
        [(1, 7), (2, 7)],
        "the join waits for module 2"
    );
    harness.done(2, 7);
    harness.done(2, 7);
    harness.done(3, 7);
    assert_eq!(harness.sent[2..], [(3, 7)]);
    assert_eq!(harness.ended, [(7, "completed")]);
}

#[test]
fn a_request_waits_for_outputs_of_modules_that_others_read() {
    let mut pipeline = noop_pipeline(SLO, &[&[0], &[1]], &[]);
    assert_eq!(pipeline.awaited(), [false, false, true]);
    let mut also = pipeline.outputs[0].clone();
    also.from.module = ModuleId(1);
    pipeline.outputs.push(also);
    assert_eq!(pipeline.awaited(), [false, true, true]);
}

#[test]
fn a_newer_frame_takes_the_place_of_one_that_waits() {
    let mut harness = harness(&[&[0]], &[], 1);
    harness.submit(7);
    harness.on(Event::Supersede(RequestId(7)));
    assert_eq!(
        harness.others,
        ["Device(Withdraw(WorkerId(1), RequestId(7), Superseded))"]
    );
    assert!(
        harness.ended.is_empty(),
        "its worker says whether it waited"
    );
}

#[test]
fn a_module_that_brings_nothing_ends_the_request() {
    let mut harness = harness(&[&[0], &[1]], &[], 1);
    harness.submit(7);
    let fault = Fault::Module("no model".to_owned());
    harness.finished(LIFE, 1, 7, Err(fault));
    assert_eq!(harness.ended, [(7, "failed")]);
    harness.submit(8);
    let fault = Fault::Memory("no room".to_owned());
    harness.finished(LIFE, 1, 8, Err(fault));
    assert_eq!(harness.ended[1..], [(8, "dropped")]);
}

#[test]
fn what_a_dead_worker_had_goes_to_another_once_a_module() {
    let mut harness = harness(&[&[0], &[1]], &[], 3);
    harness.submit(7);
    assert_eq!(harness.sent, [(1, 7)]);
    harness.on(Event::Lost(device(1), "it died"));
    assert_eq!(harness.sent[1..], [(11, 7)]);
    harness.on(Event::Lost(device(11), "it died"));
    assert_eq!(harness.ended, [(7, "failed")], "a second time is too much");

    harness.submit(8);
    harness.done(21, 8);
    assert_eq!(harness.sent[2..], [(21, 8), (2, 8)]);
    harness.on(Event::Lost(device(2), "it died"));
    assert_eq!(harness.sent[4..], [(12, 8)], "another module");
    harness.done(12, 8);
    assert_eq!(harness.ended[1..], [(8, "completed")]);
}

#[test]
fn what_a_dead_worker_had_is_not_sent_again_after_its_deadline() {
    let mut harness = harness(&[&[0]], &[], 2);
    harness.submit(7);
    harness.at(100).on(Event::Lost(device(1), "it died"));
    assert_eq!(harness.sent.len(), 1);
    assert_eq!(harness.ended, [(7, "failed")]);
}

#[test]
fn what_is_said_in_another_life_is_void() {
    let mut harness = harness(&[&[0]], &[], 2);
    harness.submit(7);
    harness.on(Event::Lost(device(1), "it died"));
    // Its answer was under way when it died; then it is there again.
    harness.done(1, 7);
    harness.on(Event::Greeted(device(1), Incarnation(2)));
    harness.done(1, 7);
    assert!(harness.ended.is_empty());
    harness.done(11, 7);
    assert_eq!(harness.ended, [(7, "completed")]);
}

#[test]
fn a_request_whose_answer_is_lost_ends_a_grace_after_its_deadline() {
    let mut harness = harness(&[&[0]], &[], 1);
    harness.submit(7);
    harness.at(50).submit(8);
    harness.done(1, 8);
    let over = Timestamp::from_ns(1_100_000_000);
    harness.at(100).on(Event::Wakeup);
    assert_eq!(harness.gateway.next_wakeup(), Some(over));
    harness.at(1099).on(Event::Wakeup);
    assert_eq!(harness.ended, [(8, "completed")]);
    harness.at(1100).on(Event::Wakeup);
    assert_eq!(harness.ended[1..], [(7, "failed")]);
    assert_eq!(harness.cancelled, [(1, 7)]);
    harness.done(1, 7);
    assert_eq!(harness.ended.len(), 2);
    harness.at(1200).on(Event::Wakeup);
    assert_eq!(harness.gateway.next_wakeup(), None);
}

#[test]
fn a_request_that_is_dropped_before_it_is_sent_is_not_sent() {
    // Module 3 has no worker left; module 2 is entered first.
    let mut harness = harness(&[&[0], &[1], &[1]], &[], 1);
    harness.on(Event::Lost(device(3), "it died"));
    harness.submit(7);
    harness.done(1, 7);
    assert_eq!(harness.ended, [(7, "dropped")]);
    assert_eq!(harness.sent, [(1, 7)]);
    assert!(harness.cancelled.is_empty());
}

#[test]
fn demand_is_reported_while_there_is_any() {
    let mut harness = harness(&[&[0], &[1]], &[], 1);
    assert_eq!(harness.gateway.next_wakeup(), None);
    harness.at(30).submit(7);
    let reports_at = Timestamp::from_ns(100_000_000);
    assert_eq!(harness.gateway.next_wakeup(), Some(reports_at));
    harness.at(100).on(Event::Wakeup);
    assert_eq!(harness.demands, [(0, 0), (1, 1), (2, 0)]);
    harness.at(230).done(1, 7);
    harness.done(2, 7);
    harness.at(300).on(Event::Wakeup);
    assert_eq!(harness.demands[3..], [(0, 0), (1, 1), (2, 1)]);
    harness.at(2000).on(Event::Wakeup);
    assert_eq!(harness.demands.len(), 6);
}

#[test]
fn a_controller_that_began_anew_is_told_what_comes_from_then_on() {
    let mut harness = harness(&[&[0], &[1]], &[], 1);
    let controller = Address::Controller(ModuleId(1));
    harness.on(Event::Greeted(controller, LIFE));
    harness.submit(7);
    harness.done(1, 7);
    // A connection that comes again is no other life.
    harness.on(Event::Lost(controller, "reset"));
    harness.on(Event::Greeted(controller, LIFE));
    harness.at(100).on(Event::Wakeup);
    assert_eq!(harness.demands, [(0, 0), (1, 1), (2, 1)]);
    harness.on(Event::Greeted(controller, Incarnation(9)));
    harness.submit(8);
    harness.submit(9);
    harness.at(200).on(Event::Wakeup);
    assert_eq!(harness.demands[3..], [(0, 0), (1, 2), (2, 1)]);
}

#[test]
fn a_worker_that_drops_a_request_ends_it() {
    let mut harness = harness(&[&[0]], &[], 1);
    harness.submit(7);
    harness.dropped(1, 7, DropReason::Predicted);
    assert_eq!(harness.ended, [(7, "dropped")]);
    assert!(harness.cancelled.is_empty(), "nobody has it");
}

/// A client that replaces its own frames must not make the module look overloaded.
#[test]
fn a_superseded_request_asked_for_nothing() {
    let mut harness = harness(&[&[0]], &[], 1);
    for (id, reason) in [(7, DropReason::Superseded), (8, DropReason::Predicted)] {
        harness.submit(id);
        harness.dropped(1, id, reason);
        // That it comes twice changes nothing.
        harness.dropped(1, id, reason);
    }
    harness.at(100).on(Event::Wakeup);
    assert_eq!(harness.unasked, [(0, 0), (1, 1)]);
}

#[test]
fn a_device_speaks_for_its_own_workers_only() {
    let mut harness = harness(&[&[0]], &[], 2);
    harness.submit(7);
    let finished = |worker| ToGateway::Finished {
        worker: WorkerId(worker),
        batch: BatchId(7),
        took: MS * 10,
        size: 1,
        members: vec![Finished {
            request: RequestId(7),
            result: Ok(Filled::ALL),
        }],
    };
    // Another device, no worker of this pipeline, a controller.
    harness.on(Event::Message(device(11), LIFE, finished(1)));
    harness.on(Event::Message(device(11), LIFE, finished(99)));
    let controller = Address::Controller(ModuleId(1));
    harness.on(Event::Greeted(controller, LIFE));
    harness.on(Event::Message(controller, LIFE, finished(1)));
    assert!(harness.ended.is_empty());
    harness.on(Event::Message(device(1), LIFE, finished(1)));
    assert_eq!(harness.ended, [(7, "completed")]);
}

#[test]
fn a_device_that_begins_anew_without_a_word_has_lost_what_it_had() {
    let mut harness = harness(&[&[0]], &[], 2);
    harness.submit(7);
    harness.on(Event::Greeted(device(1), Incarnation(2)));
    assert_eq!(harness.sent, [(1, 7), (11, 7)]);
}

/// What fails at the source is a frame that nobody can read: a lost answer of a decoder is not the client's fault.
#[test]
fn an_answer_that_the_source_never_gives_is_a_drop() {
    let mut harness = harness(&[&[0]], &[], 1);
    let offer = Offer {
        sent_at: harness.now,
        timeout: None,
        decoding: Duration::ZERO,
        application: Application::default(),
        client: ClientId::default(),
        party: Party::ONLY,
        members: None,
        stream: Default::default(),
        frame: Default::default(),
    };
    let admitted = harness
        .gateway
        .admit(harness.now, RequestId(7), &offer, || (7, ()));
    admitted.expect("there is room");
    harness.at(1100).on(Event::Wakeup);
    assert_eq!(harness.ended, [(7, "dropped")]);
}

/// A device may lie, or say late what it had before its connection was lost.
#[test]
fn only_the_worker_that_has_a_request_speaks_of_it() {
    let mut harness = harness(&[&[0], &[1]], &[], 2);
    harness.submit(0);
    assert_eq!(harness.sent, [(1, 0)]);
    // The other worker of the module, and a worker of the next one.
    for worker in [11, 2] {
        harness.done(worker, 0);
        let message = ToGateway::Dropped {
            worker: WorkerId(worker),
            request: RequestId(0),
            drop: Box::new(Drop {
                module: ModuleId(1),
                reason: DropReason::Expired,
                at: harness.now,
                budget: (harness.now + SLO).budget_at(harness.now),
                estimate: None,
            }),
        };
        harness.on(Event::Message(device(worker), LIFE, message));
    }
    assert_eq!((harness.sent.len(), harness.gateway.n_ignored()), (1, 4));
    assert!(harness.ended.is_empty() && harness.cancelled.is_empty());
    harness.done(1, 0);
    harness.done(2, 0);
    assert_eq!(harness.ended, [(0, "completed")]);
}
