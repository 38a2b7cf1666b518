use std::time::Duration;

use spillgate_pipeline::id::ClientId;
use spillgate_pipeline::policy::DropPolicyName;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::testing::noop_pipeline;

use super::*;

const MS: Duration = Duration::from_millis(1);
const SLO: Duration = Duration::from_millis(100);

/// A gateway, and what it said.
struct Home {
    gateway: Gateway<u64, ()>,
    now: Timestamp,
    /// The outputs that a `when:` finds empty, by module and request.
    empty: Vec<(ModuleId, RequestId)>,
    sent: Vec<(u32, u64)>,
    cancelled: Vec<(u16, u64)>,
    ended: Vec<(u64, &'static str)>,
    told: Vec<String>,
}

/// One worker a module, each on a device of its own.
fn home(reads: &[&[u16]], whens: &[Option<u16>]) -> Home {
    let mut pipeline = noop_pipeline(SLO, reads, whens);
    pipeline.policy.drop = DropPolicyName::Deadline;
    let n = pipeline.modules.len();
    let planned = Planned {
        batch: vec![4; n],
        execution: vec![vec![MS * 10; 4]; n],
        workers: None,
    };
    let places: Vec<Place> = (1..n as u16)
        .map(|m| Place {
            worker: WorkerId(u32::from(m)),
            module: ModuleId(m),
            device: DeviceId(m),
        })
        .collect();
    Home {
        gateway: Gateway::new(&Arc::new(pipeline), &Arc::new(planned), &places, 1),
        now: Timestamp::ZERO,
        empty: Vec::new(),
        sent: Vec::new(),
        cancelled: Vec::new(),
        ended: Vec::new(),
        told: Vec::new(),
    }
}

impl Home {
    fn on(&mut self, event: Event<'_>) {
        let mut out = Vec::new();
        self.gateway.on_event(self.now, event, &mut out);
        for command in out {
            match command {
                Command::ToDevice(device, ToDevice::Cancel(id)) => {
                    self.cancelled.push((device.0, id.0));
                }
                Command::ToDevice(_, ToDevice::Requests(requests)) => {
                    let sent = requests.iter().map(|a| (a.worker.0, a.request.id.0));
                    self.sent.extend(sent);
                }
                Command::ToDevice(_, message) => self.told.push(format!("{message:?}")),
                Command::ToController(..) => {}
                Command::Branches(branches) => self.on(Event::Branches(branches)),
                Command::End(ended) => {
                    assert_eq!(ended.payload, ended.request.id.0);
                    self.ended.push((ended.request.id.0, ended.outcome.label()));
                }
            }
        }
    }

    /// A request comes in, and the source has read it.
    fn submit(&mut self, id: u64) {
        let offer = Offer {
            sent_at: self.now,
            timeout: None,
            decoding: Duration::ZERO,
            application: Application::default(),
            client: ClientId::default(),
        };
        let admitted = self.gateway.admit(self.now, RequestId(id), &offer, id, ());
        admitted.expect("there is room");
        self.done(0, id);
    }

    /// A module ran for a request.
    fn done(&mut self, module: u16, id: u64) {
        let empty = self.empty.clone();
        let member = Member {
            request: RequestId(id),
            result: Ok(()),
        };
        self.on(Event::Done {
            module: ModuleId(module),
            members: &[member],
            holds: &mut |request, _| !empty.contains(&(ModuleId(module), request)),
        });
    }
}

#[test]
fn a_join_waits_for_both_branches() {
    let mut home = home(&[&[0], &[1], &[1], &[2, 3]], &[]);
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
    let mut home = home(&[&[0], &[0], &[2]], &[None, Some(1)]);
    home.empty.push((ModuleId(1), RequestId(7)));
    home.submit(7);
    assert_eq!(home.sent, [(1, 7)]);
    home.done(1, 7);
    assert_eq!(home.sent.len(), 1);
    assert_eq!(home.ended, [(7, "completed")]);
    home.submit(8);
    home.done(1, 8);
    assert_eq!(home.sent[1..], [(1, 8), (2, 8)]);
}

#[test]
fn a_request_that_ends_is_cancelled_where_it_is() {
    let mut home = home(&[&[0], &[1], &[1]], &[]);
    home.submit(7);
    home.done(1, 7);
    home.on(Event::Cancel(RequestId(7)));
    assert_eq!(home.ended, [(7, "dropped")]);
    assert!(home.cancelled.ends_with(&[(2, 7), (3, 7)]));
    home.on(Event::Cancel(RequestId(7)));
    home.done(2, 7);
    home.done(3, 7);
    assert_eq!(home.ended.len(), 1, "it has ended");
}

#[test]
fn a_newer_frame_takes_the_place_of_one_that_waits() {
    let mut home = home(&[&[0]], &[]);
    home.submit(7);
    home.on(Event::Supersede(RequestId(7)));
    assert_eq!(home.told, ["Withdraw(RequestId(7), Superseded)"]);
    assert!(home.ended.is_empty(), "its worker says whether it waited");
}

#[test]
fn a_module_that_brings_nothing_ends_the_request() {
    let mut home = home(&[&[0], &[1]], &[]);
    home.submit(7);
    let module = ModuleId(1);
    home.on(Event::Done {
        module,
        members: &[Member {
            request: RequestId(7),
            result: Err((Outcome::Failed { module }, "no model".to_owned())),
        }],
        holds: &mut |_, _| true,
    });
    assert_eq!(home.ended, [(7, "failed")]);
}
