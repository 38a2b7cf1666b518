//! A gateway and its controllers in this process, and workers of another one that join and leave.

use std::time::Duration;

use parking_lot::Mutex;
use spillgate_controller_policy::plan::Planned;
use spillgate_controller_policy::shares::Party;
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{BatchId, ClientId, GatewayId, Incarnation, ModuleId, RequestId};
use spillgate_pipeline::invariants::Invariant;
use spillgate_pipeline::request::ModuleTimes;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::TestClock;
use spillgate_process::job::Job;
use spillgate_process::value::Value;
use spillgate_protocol::message::{
    Address, Envelope, EnvelopeSender, Filled, Finished, Message, ToDevice, ToGateway,
};

use super::super::{
    Counted, HostConfig, ItemOutputs, OutgoingSender, RequestIds, Roles, Submission,
};
use super::*;
use crate::record::{BatchRecord, Observer, RequestRecord, Sizes, TraceContext};

const LIFE: Incarnation = Incarnation(1);
const MODULE: ModuleId = ModuleId(1);

/// How requests ended.
#[derive(Default)]
struct Ends(Mutex<Vec<&'static str>>);

impl Observer for Ends {
    fn request_ended(&self, record: &Arc<RequestRecord>) {
        self.0.lock().push(record.outcome.label());
    }

    fn request_refused(&self, _: &Arc<Pipeline>, _: &'static str) {}

    fn batch_ended(&self, _: &Arc<Pipeline>, _: &BatchRecord) {}

    fn reran(&self, _: &Arc<Pipeline>, _: ModuleId, _: Duration) {}

    fn breached(&self, _: &Arc<Pipeline>, invariant: Invariant) {
        panic!("{invariant} does not hold");
    }
}

/// Device and requests of each message with requests.
type Sent = Arc<Mutex<Vec<(DeviceId, Vec<RequestId>)>>>;

/// A way that notes the requests that go on it.
fn noting(sent: &Sent) -> OutgoingSender {
    let sent = sent.clone();
    Arc::new(move |outgoing: Outgoing| {
        if let Address::Device(device) = outgoing.envelope.to
            && let Message::Device(ToDevice::Requests(arrivals)) = outgoing.envelope.message
        {
            let ids = arrivals.iter().map(|arrival| arrival.request.id).collect();
            sent.lock().push((device, ids));
        }
    })
}

struct Harness {
    host: Arc<PipelineHost>,
    ends: Arc<Ends>,
    /// To devices of this process.
    here: Sent,
    /// To other processes.
    there: Sent,
    _clock: TestClock,
}

fn place(worker: u32, device: u16) -> Place {
    Place {
        worker: WorkerId(worker),
        module: MODULE,
        device: DeviceId(device),
    }
}

/// A host with these workers of its own.
fn host(own: &[Place]) -> (Arc<PipelineHost>, Arc<Ends>, TestClock) {
    let pipeline = Arc::new(noop_pipeline(Duration::from_secs(1), &[&[0]], &[]));
    let planned = Planned {
        batch: vec![4; 2],
        execution: vec![vec![Duration::from_millis(1); 4]; 2].into(),
        workers: vec![1; 2],
        alone: false,
    };
    let ends = Arc::new(Ends::default());
    let clock = TestClock::default();
    let devices = own.iter().map(|place| place.device).collect();
    let host = PipelineHost::new(HostConfig {
        roles: Roles {
            incarnation: LIFE,
            ..Roles::all(&pipeline, devices)
        },
        pipeline,
        planned: &Arc::new(planned),
        workers: own.to_vec(),
        scaling: None,
        ids: Arc::new(RequestIds::new(GatewayId(0), LIFE)),
        clock: clock.clock(),
        observer: ends.clone(),
    });
    (Arc::new(host), ends, clock)
}

impl Harness {
    fn new(own: &[Place]) -> Self {
        let (host, ends, clock) = host(own);
        let (here, there) = (Sent::default(), Sent::default());
        let devices = own.iter().map(|place| (place.device, noting(&here)));
        host.connect(devices, noting(&there), Box::new(|_| {}), Box::new(|_| {}));
        Harness {
            host,
            ends,
            here,
            there,
            _clock: clock,
        }
    }

    /// Workers join, and their devices greet.
    fn join(&self, places: &[Place], life: Incarnation) {
        self.host.join(places);
        for place in places {
            self.host.met(&[Address::Device(place.device)], life);
        }
    }

    fn submit(&self) -> RequestId {
        self.host.submit(submission()).unwrap()
    }

    fn ends(&self) -> Vec<&'static str> {
        self.ends.0.lock().clone()
    }

    /// A worker says that a request is done.
    fn says_done(&self, place: Place, life: Incarnation, request: RequestId) {
        let finished = ToGateway::Finished {
            worker: place.worker,
            batch: BatchId(1),
            took: Duration::from_millis(1),
            size: 1,
            members: vec![Finished {
                request,
                result: Ok(Filled::ALL),
            }],
        };
        let envelope = Envelope {
            from: Address::Device(place.device),
            incarnation: life,
            to: Address::Gateway(GatewayId(0)),
            message: Message::Gateway(finished),
        };
        let brought = ItemOutputs {
            times: ModuleTimes {
                module: MODULE,
                worker: place.worker,
                arrived_at: Timestamp::ZERO,
                batched_at: Timestamp::ZERO,
                started_at: Timestamp::ZERO,
                ended_at: Timestamp::ZERO,
                batch: BatchId(1),
                batch_size: 1,
                incarnation: life,
                load: None,
            },
            outputs: Some(vec![Value::Bytes("y".into())]),
            damage: None,
        };
        self.host.heard(envelope, vec![brought]);
    }
}

fn submission() -> Submission {
    let frame = Frame {
        format: FrameFormat::Bytes,
        data: "x".into(),
        width: 0,
        height: 0,
    };
    let job = Arc::new(Job::unaccounted(frame, 2));
    job.set_outputs(ModuleId::SOURCE, vec![Value::Bytes("x".into())])
        .unwrap();
    Submission {
        job,
        source_done: true,
        number: 0,
        client: Arc::from(""),
        client_id: ClientId::default(),
        party: Party::ONLY,
        counted: Counted {
            name: Arc::from("test"),
            is_token: false,
        },
        application: Arc::from(""),
        members: None,
        stream: Default::default(),
        frame: Default::default(),
        sizes: Sizes::default(),
        sent_at: None,
        timeout: None,
        decoding: Duration::ZERO,
        trace: TraceContext {
            trace_id: 1,
            parent_span_id: 0,
            sampled: false,
        },
        on_end: Box::new(|_| {}),
    }
}

/// A request to be cancelled at a worker.
fn cancel(place: Place, request: RequestId) -> Envelope<Arc<Job>> {
    Envelope {
        from: Address::Gateway(GatewayId(0)),
        incarnation: LIFE,
        to: Address::Device(place.device),
        message: Message::Device(ToDevice::Cancel(place.worker, request)),
    }
}

#[test]
fn workers_serve_from_when_they_join_until_they_leave() {
    let of = Harness::new(&[]);
    let (first, second) = (place(0, 3), place(1, 4));
    of.submit();
    assert_eq!(of.ends(), ["dropped"], "nobody serves");
    of.join(&[first, second], LIFE);
    assert_eq!(of.host.all_workers(), [first, second]);
    let ids = [of.submit(), of.submit()];
    let sent = std::mem::take(&mut *of.there.lock());
    let to: Vec<_> = sent.iter().map(|(device, _)| *device).collect();
    assert_eq!(to, [first.device, second.device]);
    of.says_done(first, LIFE, ids[0]);
    assert_eq!(of.ends(), ["dropped", "completed"]);

    // What a worker has when it leaves goes to another one, as long as there is one.
    of.host.forget(&[second.device]);
    assert_eq!(of.host.all_workers(), [first]);
    assert_eq!(*of.there.lock(), [(first.device, vec![ids[1]])]);
    of.host.forget(&[first.device]);
    assert_eq!(of.ends(), ["dropped", "completed", "failed"]);
    assert_eq!(of.host.all_workers(), []);
    of.submit();
    assert_eq!(of.ends()[3..], ["dropped"], "nobody serves any more");
    assert!(of.here.lock().is_empty());
}

#[test]
fn ids_of_workers_that_left_serve_again() {
    let of = Harness::new(&[]);
    of.join(&[place(0, 0)], LIFE);
    let lost = of.submit();
    of.host.forget(&[DeviceId(0)]);
    // The device has the id of another one now, and the worker is on another device.
    let (a, b) = (place(1, 0), place(0, 1));
    of.join(&[a, b], Incarnation(2));
    of.there.lock().clear();
    let ids = [of.submit(), of.submit()];
    let sent = [(a.device, vec![ids[0]]), (b.device, vec![ids[1]])];
    let mut is_sent = of.there.lock().clone();
    is_sent.sort_unstable_by_key(|(_, ids)| ids[0].0);
    assert!(
        is_sent == sent || is_sent == [(b.device, vec![ids[0]]), (a.device, vec![ids[1]])],
        "{is_sent:?}"
    );
    // Late, of the device that had the id before.
    of.says_done(place(0, 0), LIFE, lost);
    of.says_done(a, LIFE, ids[0]);
    assert_eq!(of.ends(), ["failed"]);
    for (device, ids) in is_sent {
        let worker = if device == a.device { a } else { b };
        of.says_done(worker, Incarnation(2), ids[0]);
    }
    assert_eq!(of.ends(), ["failed", "completed", "completed"]);
}

#[test]
fn own_devices_have_their_own_ways() {
    let (own, other) = (place(4, 7), place(2, 1));
    let of = Harness::new(&[own]);
    of.host.met(&[Address::Device(own.device)], LIFE);
    of.join(&[other], LIFE);
    assert_eq!(of.host.all_workers(), [other, own]);
    let workers: Vec<Place> = of.host.workers().iter().copied().collect();
    assert_eq!(workers, [own]);
    of.submit();
    of.submit();
    let devices =
        |sent: &Sent| -> Vec<DeviceId> { sent.lock().iter().map(|(device, _)| *device).collect() };
    assert_eq!(devices(&of.here), [own.device]);
    assert_eq!(devices(&of.there), [other.device]);
    // The own one takes over.
    of.host.forget(&[other.device]);
    assert_eq!(devices(&of.here), [own.device, own.device]);
}

#[test]
fn an_envelope_to_a_device_that_left_goes_nowhere() {
    let (host, ends, _clock) = host(&[]);
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let gone = place(0, 0);
    let way = {
        let (arrived, host) = (arrived.clone(), Arc::downgrade(&host));
        move |outgoing: Outgoing| {
            let Message::Device(ToDevice::Cancel(_, id)) = outgoing.envelope.message else {
                return;
            };
            arrived.lock().push(id.0);
            // Another one waits behind it when its device leaves.
            let host = host.upgrade().unwrap();
            host.send(cancel(gone, RequestId(id.0 + 1)));
            host.forget(&[gone.device]);
            host.send(cancel(gone, RequestId(id.0 + 2)));
        }
    };
    host.connect([], Arc::new(way), Box::new(|_| {}), Box::new(|_| {}));
    host.join(&[gone]);
    host.send(cancel(gone, RequestId(1)));
    assert_eq!(*arrived.lock(), [1]);
    // Nor to one that never was.
    host.send(cancel(place(9, 999), RequestId(9)));
    assert_eq!(*arrived.lock(), [1]);
    // Another device has its id, and gets what is sent to it alone.
    host.join(&[gone]);
    host.send(cancel(gone, RequestId(10)));
    assert_eq!(*arrived.lock(), [1, 10]);
    assert!(ends.0.lock().is_empty());
}

#[test]
fn a_late_message_of_a_worker_that_left_changes_nothing() {
    let of = Harness::new(&[]);
    let (gone, left) = (place(0, 0), place(1, 1));
    of.join(&[gone, left], LIFE);
    let ids = [of.submit(), of.submit()];
    of.host.forget(&[gone.device]);
    let [(_, first), (_, second), (_, again)] = &of.there.lock()[..] else {
        panic!("what the worker had goes to the other one");
    };
    assert_eq!(
        (first, second, again),
        (&vec![ids[0]], &vec![ids[1]], first)
    );
    of.says_done(gone, LIFE, ids[0]);
    of.host.unsent([(gone.worker, ids[0])].into_iter());
    of.host.lacking(cancel(gone, ids[0]), LIFE);
    of.host.doubted(&[Address::Device(gone.device)], true);
    of.host
        .parted(&[Address::Device(gone.device)], "it is gone");
    of.host.met(&[Address::Device(gone.device)], Incarnation(2));
    of.says_done(gone, Incarnation(2), ids[0]);
    of.host.forget(&[gone.device]);
    assert!(of.ends().is_empty(), "{:?}", of.ends());
    assert_eq!(of.host.in_flight(), 2);
    of.says_done(left, LIFE, ids[0]);
    of.says_done(left, LIFE, ids[1]);
    assert_eq!(of.ends(), ["completed", "completed"]);
}
