mod backlog_check;
mod bound;
mod pull;
mod suspected;

use std::time::Duration;

use spillgate_pipeline::id::{BatchId, ClientId};
use spillgate_pipeline::message::{BatchShape, Finished, ModulePlan};
use spillgate_pipeline::policy::{DropPolicy, Guidance};
use spillgate_pipeline::request::{Drop, DropReason};
use spillgate_pipeline::testing::noop_pipeline;

use super::*;
use crate::shares::Party;

const MS: Duration = Duration::from_millis(1);
const SLO: Duration = Duration::from_millis(100);
const LIFE: Incarnation = Incarnation(1);

/// A gateway, and what it said.
struct Home {
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
}

fn device(of: u32) -> Address {
    Address::Device(DeviceId(of as u16))
}

/// Workers of module m are m, 10 + m, 20 + m and so on, each on a device of its own number.
fn home(reads: &[&[u16]], whens: &[Option<u16>], workers: u32) -> Home {
    let mut pipeline = noop_pipeline(SLO, reads, whens);
    pipeline.policy.drop = DropPolicy::DEADLINE;
    home_of(pipeline, workers)
}

fn home_of(pipeline: Pipeline, workers: u32) -> Home {
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
        seed: 1,
        born: Timestamp::ZERO,
    });
    let mut home = Home {
        gateway,
        now: Timestamp::ZERO,
        sent: Vec::new(),
        given: Vec::new(),
        cancelled: Vec::new(),
        others: Vec::new(),
        demands: Vec::new(),
        unasked: Vec::new(),
        ended: Vec::new(),
    };
    for place in places {
        home.on(Event::Greeted(device(place.worker.0), LIFE));
    }
    home
}

impl Home {
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
    let mut home = home(&[&[0], &[1], &[1], &[2, 3]], &[], 1);
    home.submit(7);
    home.done(1, 7);
    assert_eq!(home.sent, [(1, 7), (2, 7), (3, 7)]);
    home.done(3, 7);
    assert_eq!(home.sent.len(), 3);
    home.done(2, 7);
    assert_eq!(home.sent[3..], [(4, 7)]);
    home.done(4, 7);
    assert_eq!(home.ended, [(7, "completed")]);
}

#[test]
fn a_false_condition_skips_a_module_and_those_that_need_it() {
    let mut home = home(&[&[0], &[0], &[2]], &[None, Some(1)], 1);
    home.submit(7);
    assert_eq!(home.sent, [(1, 7)]);
    home.finished(LIFE, 1, 7, Ok(Filled::default()));
    assert_eq!(home.sent.len(), 1);
    assert_eq!(home.ended, [(7, "completed")]);
    home.submit(8);
    home.done(1, 8);
    assert_eq!(home.sent[1..], [(1, 8), (2, 8)]);
}

#[test]
fn a_request_that_ends_is_cancelled_where_it_is() {
    let mut home = home(&[&[0], &[1], &[1]], &[], 1);
    home.submit(7);
    home.done(1, 7);
    home.on(Event::Cancel(RequestId(7)));
    assert_eq!(home.ended, [(7, "dropped")]);
    assert_eq!(home.cancelled, [(2, 7), (3, 7)]);
    home.on(Event::Cancel(RequestId(7)));
    assert_eq!(home.ended.len(), 1, "it has ended");
}

#[test]
fn a_late_branch_after_the_end_opens_nothing() {
    let mut home = home(&[&[0], &[1], &[1], &[2, 3]], &[], 1);
    home.submit(7);
    home.done(1, 7);
    home.on(Event::Cancel(RequestId(7)));
    let sent = home.sent.len();
    home.done(2, 7);
    home.done(3, 7);
    assert_eq!(home.sent.len(), sent);
    assert_eq!(home.gateway.in_flight(), 0);
    assert_eq!(home.ended.len(), 1);
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    let mut home = home(&[&[0], &[0], &[1, 2]], &[], 1);
    home.submit(7);
    home.done(1, 7);
    home.done(1, 7);
    assert_eq!(home.sent, [(1, 7), (2, 7)], "the join waits for module 2");
    home.done(2, 7);
    home.done(2, 7);
    home.done(3, 7);
    assert_eq!(home.sent[2..], [(3, 7)]);
    assert_eq!(home.ended, [(7, "completed")]);
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
    let mut home = home(&[&[0]], &[], 1);
    home.submit(7);
    home.on(Event::Supersede(RequestId(7)));
    assert_eq!(
        home.others,
        ["Device(Withdraw(WorkerId(1), RequestId(7), Superseded))"]
    );
    assert!(home.ended.is_empty(), "its worker says whether it waited");
}

#[test]
fn a_module_that_brings_nothing_ends_the_request() {
    let mut home = home(&[&[0], &[1]], &[], 1);
    home.submit(7);
    let fault = Fault::Module("no model".to_owned());
    home.finished(LIFE, 1, 7, Err(fault));
    assert_eq!(home.ended, [(7, "failed")]);
    home.submit(8);
    let fault = Fault::Memory("no room".to_owned());
    home.finished(LIFE, 1, 8, Err(fault));
    assert_eq!(home.ended[1..], [(8, "dropped")]);
}

#[test]
fn what_a_dead_worker_had_goes_to_another_once_a_module() {
    let mut home = home(&[&[0], &[1]], &[], 3);
    home.submit(7);
    assert_eq!(home.sent, [(1, 7)]);
    home.on(Event::Lost(device(1), "it died"));
    assert_eq!(home.sent[1..], [(11, 7)]);
    home.on(Event::Lost(device(11), "it died"));
    assert_eq!(home.ended, [(7, "failed")], "a second time is too much");

    home.submit(8);
    home.done(21, 8);
    assert_eq!(home.sent[2..], [(21, 8), (2, 8)]);
    home.on(Event::Lost(device(2), "it died"));
    assert_eq!(home.sent[4..], [(12, 8)], "another module");
    home.done(12, 8);
    assert_eq!(home.ended[1..], [(8, "completed")]);
}

#[test]
fn what_a_dead_worker_had_is_not_sent_again_after_its_deadline() {
    let mut home = home(&[&[0]], &[], 2);
    home.submit(7);
    home.at(100).on(Event::Lost(device(1), "it died"));
    assert_eq!(home.sent.len(), 1);
    assert_eq!(home.ended, [(7, "failed")]);
}

#[test]
fn what_is_said_in_another_life_is_void() {
    let mut home = home(&[&[0]], &[], 2);
    home.submit(7);
    home.on(Event::Lost(device(1), "it died"));
    // Its answer was under way when it died; then it is there again.
    home.done(1, 7);
    home.on(Event::Greeted(device(1), Incarnation(2)));
    home.done(1, 7);
    assert!(home.ended.is_empty());
    home.done(11, 7);
    assert_eq!(home.ended, [(7, "completed")]);
}

#[test]
fn a_request_whose_answer_is_lost_ends_a_grace_after_its_deadline() {
    let mut home = home(&[&[0]], &[], 1);
    home.submit(7);
    home.at(50).submit(8);
    home.done(1, 8);
    let over = Timestamp::from_ns(1_100_000_000);
    home.at(100).on(Event::Wakeup);
    assert_eq!(home.gateway.next_wakeup(), Some(over));
    home.at(1099).on(Event::Wakeup);
    assert_eq!(home.ended, [(8, "completed")]);
    home.at(1100).on(Event::Wakeup);
    assert_eq!(home.ended[1..], [(7, "failed")]);
    assert_eq!(home.cancelled, [(1, 7)]);
    home.done(1, 7);
    assert_eq!(home.ended.len(), 2);
    home.at(1200).on(Event::Wakeup);
    assert_eq!(home.gateway.next_wakeup(), None);
}

#[test]
fn a_request_that_is_dropped_before_it_is_sent_is_not_sent() {
    // Module 3 has no worker left; module 2 is entered first.
    let mut home = home(&[&[0], &[1], &[1]], &[], 1);
    home.on(Event::Lost(device(3), "it died"));
    home.submit(7);
    home.done(1, 7);
    assert_eq!(home.ended, [(7, "dropped")]);
    assert_eq!(home.sent, [(1, 7)]);
    assert!(home.cancelled.is_empty());
}

#[test]
fn demand_is_reported_while_there_is_any() {
    let mut home = home(&[&[0], &[1]], &[], 1);
    assert_eq!(home.gateway.next_wakeup(), None);
    home.at(30).submit(7);
    let reports_at = Timestamp::from_ns(100_000_000);
    assert_eq!(home.gateway.next_wakeup(), Some(reports_at));
    home.at(100).on(Event::Wakeup);
    assert_eq!(home.demands, [(0, 0), (1, 1), (2, 0)]);
    home.at(230).done(1, 7);
    home.done(2, 7);
    home.at(300).on(Event::Wakeup);
    assert_eq!(home.demands[3..], [(0, 0), (1, 1), (2, 1)]);
    home.at(2000).on(Event::Wakeup);
    assert_eq!(home.demands.len(), 6);
}

#[test]
fn a_controller_that_began_anew_is_told_what_comes_from_then_on() {
    let mut home = home(&[&[0], &[1]], &[], 1);
    let controller = Address::Controller(ModuleId(1));
    home.on(Event::Greeted(controller, LIFE));
    home.submit(7);
    home.done(1, 7);
    // A connection that comes again is no other life.
    home.on(Event::Lost(controller, "reset"));
    home.on(Event::Greeted(controller, LIFE));
    home.at(100).on(Event::Wakeup);
    assert_eq!(home.demands, [(0, 0), (1, 1), (2, 1)]);
    home.on(Event::Greeted(controller, Incarnation(9)));
    home.submit(8);
    home.submit(9);
    home.at(200).on(Event::Wakeup);
    assert_eq!(home.demands[3..], [(0, 0), (1, 2), (2, 1)]);
}

#[test]
fn a_worker_that_drops_a_request_ends_it() {
    let mut home = home(&[&[0]], &[], 1);
    home.submit(7);
    home.dropped(1, 7, DropReason::Predicted);
    assert_eq!(home.ended, [(7, "dropped")]);
    assert!(home.cancelled.is_empty(), "nobody has it");
}

/// A client that replaces its own frames must not make the module look overloaded.
#[test]
fn a_superseded_request_asked_for_nothing() {
    let mut home = home(&[&[0]], &[], 1);
    for (id, reason) in [(7, DropReason::Superseded), (8, DropReason::Predicted)] {
        home.submit(id);
        home.dropped(1, id, reason);
        // That it comes twice changes nothing.
        home.dropped(1, id, reason);
    }
    home.at(100).on(Event::Wakeup);
    assert_eq!(home.unasked, [(0, 0), (1, 1)]);
}

#[test]
fn a_device_speaks_for_its_own_workers_only() {
    let mut home = home(&[&[0]], &[], 2);
    home.submit(7);
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
    home.on(Event::Message(device(11), LIFE, finished(1)));
    home.on(Event::Message(device(11), LIFE, finished(99)));
    let controller = Address::Controller(ModuleId(1));
    home.on(Event::Greeted(controller, LIFE));
    home.on(Event::Message(controller, LIFE, finished(1)));
    assert!(home.ended.is_empty());
    home.on(Event::Message(device(1), LIFE, finished(1)));
    assert_eq!(home.ended, [(7, "completed")]);
}

#[test]
fn a_device_that_begins_anew_without_a_word_has_lost_what_it_had() {
    let mut home = home(&[&[0]], &[], 2);
    home.submit(7);
    home.on(Event::Greeted(device(1), Incarnation(2)));
    assert_eq!(home.sent, [(1, 7), (11, 7)]);
}

/// What fails at the source is a frame that nobody can read: a lost answer of a decoder is not the client's fault.
#[test]
fn an_answer_that_the_source_never_gives_is_a_drop() {
    let mut home = home(&[&[0]], &[], 1);
    let offer = Offer {
        sent_at: home.now,
        timeout: None,
        decoding: Duration::ZERO,
        application: Application::default(),
        client: ClientId::default(),
        party: Party::ONLY,
        members: None,
        stream: Default::default(),
        frame: Default::default(),
    };
    let admitted = home
        .gateway
        .admit(home.now, RequestId(7), &offer, || (7, ()));
    admitted.expect("there is room");
    home.at(1100).on(Event::Wakeup);
    assert_eq!(home.ended, [(7, "dropped")]);
}

/// A device may lie, or say late what it had before its connection was lost.
#[test]
fn only_the_worker_that_has_a_request_speaks_of_it() {
    let mut home = home(&[&[0], &[1]], &[], 2);
    home.submit(0);
    assert_eq!(home.sent, [(1, 0)]);
    // The other worker of the module, and a worker of the next one.
    for worker in [11, 2] {
        home.done(worker, 0);
        let message = ToGateway::Dropped {
            worker: WorkerId(worker),
            request: RequestId(0),
            drop: Box::new(Drop {
                module: ModuleId(1),
                reason: DropReason::Expired,
                at: home.now,
                budget: (home.now + SLO).budget_at(home.now),
                estimate: None,
            }),
        };
        home.on(Event::Message(device(worker), LIFE, message));
    }
    assert_eq!((home.sent.len(), home.gateway.n_ignored()), (1, 4));
    assert!(home.ended.is_empty() && home.cancelled.is_empty());
    home.done(1, 0);
    home.done(2, 0);
    assert_eq!(home.ended, [(0, "completed")]);
}
