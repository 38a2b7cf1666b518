//! What other processes may send, and what becomes of it.

use std::time::Duration;

use spillgate_picture::Damage;
use spillgate_pipeline::id::{BatchId, DeviceId, Incarnation};
use spillgate_pipeline::request::ModuleTimes;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Arrival, Fault, Filled, Finished, ToDevice};

use super::*;

const MIB: usize = 1 << 20;
const FRAME: PortRef = PortRef {
    module: ModuleId::SOURCE,
    port: 0,
};
const PEER: Peer = Peer(3);

/// The modules 1 and 2 take the frame. A worker of each is in one process.
fn values(memory: u64) -> Values {
    values_of(&[&[0], &[0]], memory)
}

/// The same of two modules that read from these.
fn values_of(reads: &[&[u16]], memory: u64) -> Values {
    let pipeline = noop_pipeline(Duration::from_secs(1), reads, &[]);
    let own = [place(0), place(1)];
    Values::new(Arc::new(pipeline), &own, Account::new(memory))
}

fn place(worker: u32) -> Place {
    Place {
        worker: WorkerId(worker),
        module: ModuleId(worker as u16 + 1),
        device: DeviceId(worker as u16),
    }
}

fn id(ordinal: u64) -> RequestId {
    RequestId::at(GatewayId(0), Incarnation(0), ordinal)
}

fn request(id: RequestId) -> Request {
    Request::new(id, Timestamp::ZERO, Timestamp::ZERO)
}

fn envelope<L>(worker: u32, id: RequestId, payload: L) -> Envelope<L> {
    let arrival = Arrival {
        worker: WorkerId(worker),
        request: request(id),
        payload,
    };
    Envelope {
        from: Address::Gateway(GatewayId(0)),
        incarnation: Incarnation(0),
        to: Address::Device(DeviceId(worker as u16)),
        message: Message::Device(ToDevice::Requests(vec![arrival])),
    }
}

fn carrying(carried: Vec<Carried>) -> Parcel {
    Parcel {
        frame: None,
        outputs: vec![(ModuleId::SOURCE, carried)],
        keep: true,
        is_traced: true,
    }
}

fn bytes(n: usize) -> Value {
    Value::Bytes(vec![7; n].into())
}

fn payloads<L>(envelope: Envelope<L>) -> Vec<L> {
    let Message::Device(ToDevice::Requests(arrivals)) = envelope.message else {
        panic!("it brings requests");
    };
    arrivals
        .into_iter()
        .map(|arrival| arrival.payload)
        .collect()
}

/// The values of a request with that frame, at a gateway.
fn job(frame: usize) -> Arc<Job> {
    let none = Frame {
        format: FrameFormat::Bytes,
        data: Bytes::new(),
        width: 0,
        height: 0,
    };
    let job = Job::unaccounted(none, 3);
    job.set_held(ModuleId::SOURCE, vec![bytes(frame)]);
    Arc::new(job)
}

#[test]
fn a_frame_goes_once_and_a_small_one_always() {
    for (n, is_once) in [(MIB, true), (1000, false)] {
        let (gateway, worker) = (values(1 << 30), values(1 << 30));
        let job = job(n);
        let mut carried = Vec::new();
        for at in [0, 1] {
            let (packed, told) = gateway.pack(PEER, envelope(at, id(1), job.clone()));
            assert_eq!(told.is_empty(), !is_once);
            assert!(gateway.ended_since(PEER, told).is_empty());
            let outputs = payloads(packed.clone()).remove(0).outputs;
            carried.push(outputs[0].1[0].clone());
            let unpacked = worker.unpack(packed).unwrap();
            let there = payloads(unpacked.envelope).remove(0);
            assert_eq!(there.output(FRAME), Some(&bytes(n)));
        }
        assert_eq!(carried[0], Carried::Value(bytes(n)));
        assert_eq!(carried[1] == Carried::Kept, is_once);
        assert_eq!(gateway.ends(id(1)).len(), usize::from(is_once));
        assert_eq!(worker.reading().kept_requests, usize::from(is_once));
        worker.ended([id(1)].into_iter());
        let left = worker.reading();
        assert_eq!((left.kept_requests, left.kept_bytes, left.held), (0, 0, 0));
    }
}

#[test]
fn a_reference_to_what_was_never_sent_comes_back_and_is_answered_with_the_value() {
    let (gateway, worker) = (values(1 << 30), values(1 << 30));
    let job = job(MIB);
    let (_, _) = gateway.pack(PEER, envelope(0, id(1), job.clone()));
    // The first message was lost.
    let (packed, _) = gateway.pack(PEER, envelope(1, id(1), job.clone()));
    let lacking = worker.unpack(packed).map(|_| ()).unwrap_err();
    assert_eq!(payloads(lacking.clone()), [Parcel::default()]);
    gateway.lacks(PEER, [id(1)].into_iter());
    let (again, _) = gateway.pack(PEER, lacking.map(|_, _, _| job.clone()));
    let there = payloads(worker.unpack(again).unwrap().envelope).remove(0);
    assert_eq!(there.output(FRAME), Some(&bytes(MIB)));
    assert_eq!(worker.reading().given_back, 1);
}

#[test]
fn references_to_what_no_input_takes_are_left_out_however_many() {
    let worker = values(1 << 30);
    let mut parcel = carrying(vec![Carried::Value(bytes(10))]);
    let all = (1..1000).map(|module| (ModuleId(module), vec![Carried::Kept; 64]));
    parcel.outputs.extend(all);
    let there = payloads(worker.unpack(envelope(0, id(1), parcel)).unwrap().envelope).remove(0);
    assert_eq!(there.output(FRAME), Some(&bytes(10)));
    // One that an input takes is looked for, and all come back.
    let parcel = carrying(vec![Carried::Kept; 64]);
    assert!(worker.unpack(envelope(0, id(2), parcel)).is_err());
    let none = worker.unpack(envelope(9, id(3), Parcel::default()));
    assert!(none.is_err(), "there is no such worker");
    assert_eq!(worker.reading().kept_requests, 1, "of the first request");
}

#[test]
fn what_is_kept_makes_room_for_requests_and_then_requests_are_refused() {
    let worker = values(16 << 20);
    let arrive = |ordinal: u64, n: usize| {
        let parcel = carrying(vec![Carried::Value(bytes(n))]);
        worker.unpack(envelope(0, id(ordinal), parcel)).unwrap()
    };
    for ordinal in 0..20 {
        assert!(arrive(ordinal, MIB).refused.is_empty());
    }
    let reading = worker.reading();
    assert_eq!(reading.kept_bytes, 4 << 20, "a quarter of the memory");
    assert_eq!(reading.held, 4 << 20);
    // A request that needs more than is free takes what is kept; the next one finds no room beside it.
    let first = arrive(20, 8 * MIB);
    assert!(first.refused.is_empty());
    assert_eq!(worker.reading().kept_bytes, 0);
    let second = arrive(21, MIB);
    assert_eq!(second.refused[0].1.id, id(21));
    assert!(payloads(second.envelope).is_empty());
    drop(first);
    assert!(arrive(22, MIB).refused.is_empty());
    assert_eq!(worker.reading().refused, 1);
}

#[test]
fn a_gateway_that_is_lost_leaves_nothing() {
    let worker = values(64 << 20);
    for ordinal in 0..10_000 {
        let parcel = carrying(vec![Carried::Value(bytes(MIB / 32))]);
        drop(worker.unpack(envelope(0, id(ordinal), parcel)).unwrap());
    }
    assert_eq!(worker.reading().kept_requests, KEPT_REQUESTS_MAX);
    worker.loses(GatewayId(0));
    let left = worker.reading();
    assert_eq!((left.kept_requests, left.kept_bytes, left.held), (0, 0, 0));
}

#[test]
fn a_request_that_ends_while_it_is_sent_is_ended_behind_it() {
    let gateway = values(1 << 30);
    let job = job(MIB);
    let (_, told) = gateway.pack(PEER, envelope(0, id(1), job.clone()));
    assert_eq!(gateway.ends(id(1)), [PEER]);
    assert_eq!(gateway.ended_since(PEER, told), [id(1)]);
    // One that has ended before is not to be kept.
    job.end();
    let (packed, told) = gateway.pack(PEER, envelope(1, id(1), job));
    assert!(told.is_empty() && !payloads(packed)[0].keep);
    assert_eq!(gateway.reading().known_requests, 0);
}

/// A batch of worker 0 with these results.
fn finished<L>(results: &[Result<Filled, Fault>]) -> Envelope<L> {
    let member = |(ordinal, result): (u64, &Result<Filled, Fault>)| Finished {
        request: id(ordinal),
        result: result.clone(),
    };
    Envelope {
        from: Address::Device(DeviceId(0)),
        incarnation: Incarnation(0),
        to: Address::Gateway(GatewayId(0)),
        message: Message::Gateway(ToGateway::Finished {
            worker: WorkerId(0),
            batch: BatchId(0),
            took: Duration::ZERO,
            size: results.len() as u32,
            members: (0..).zip(results).map(member).collect(),
        }),
    }
}

const TIMES: ModuleTimes = ModuleTimes {
    module: ModuleId(1),
    worker: WorkerId(0),
    arrived_at: Timestamp::ZERO,
    batched_at: Timestamp::ZERO,
    started_at: Timestamp::ZERO,
    ended_at: Timestamp::ZERO,
    batch: BatchId(0),
    batch_size: 1,
    load: None,
    incarnation: Incarnation(0),
};

#[test]
fn what_a_module_makes_for_another_one_beside_it_does_not_come_back() {
    let reads: &[&[u16]] = &[&[0], &[1]];
    let (gateway, worker) = (values_of(reads, 1 << 30), values_of(reads, 1 << 30));
    let job = job(1000);
    let (packed, told) = gateway.pack(PEER, envelope(0, id(0), job.clone()));
    assert_eq!(
        told,
        [id(0)],
        "the frame is small, and what becomes of it may not be"
    );
    drop(worker.unpack(packed).unwrap());
    let made = ItemOutputs {
        times: TIMES,
        outputs: Some(vec![bytes(MIB)]),
        damage: Some(Damage::Missing),
    };
    let batch = finished(&[Ok(Filled::ALL)]);
    let brought = worker.bring(&batch, vec![made.clone()]);
    let taken = gateway.take(PEER, &finished(&[Ok(Filled::ALL)]), brought);
    assert_eq!(taken, [made]);
    job.set_held(ModuleId(1), taken[0].outputs.clone().unwrap());
    let (packed, _) = gateway.pack(PEER, envelope(1, id(0), job));
    let outputs = payloads(packed.clone()).remove(0).outputs;
    assert_eq!(outputs, [(ModuleId(1), vec![Carried::Kept])]);
    let there = payloads(worker.unpack(packed).unwrap().envelope).remove(0);
    let made_there = PortRef {
        module: ModuleId(1),
        port: 0,
    };
    assert_eq!(there.output(made_there), Some(&bytes(MIB)));
    drop(there);
    // A request that has ended, or was never told of, leaves nothing.
    worker.ended(gateway.ends(id(0)).iter().map(|_| id(0)));
    let late = worker.bring(
        &batch,
        vec![ItemOutputs {
            times: TIMES,
            outputs: Some(vec![bytes(MIB)]),
            damage: None,
        }],
    );
    assert_eq!(late[0].kept, Ports::default());
    assert_eq!((worker.reading().kept_bytes, worker.reading().held), (0, 0));
}

#[test]
fn what_a_worker_says_that_it_keeps_counts_for_its_own_requests_only() {
    let gateway = values(1 << 30);
    let brought = |outputs| wire::ItemOutputs {
        times: TIMES,
        outputs,
        kept: Ports::from_bits(u64::MAX),
        damage: None,
    };
    let all = [
        brought(Some(vec![Carried::Value(bytes(10))])),
        brought(Some(vec![Carried::Kept])),
        brought(None),
    ];
    let failed = Err(Fault::Module("no".to_owned()));
    let envelope = finished(&[Ok(Filled::ALL), Ok(Filled::ALL), failed]);
    let taken = gateway.take(PEER, &envelope, all.to_vec());
    let outputs: Vec<_> = taken.into_iter().map(|brought| brought.outputs).collect();
    assert_eq!(outputs, [Some(vec![bytes(10)]), None, None]);
    assert_eq!(
        gateway.reading().known_requests,
        0,
        "it was told to keep none"
    );
}

#[test]
fn a_frame_goes_once_to_workers_that_joined_in_one_process() {
    let pipeline = noop_pipeline(Duration::from_secs(1), &[&[0], &[0]], &[]);
    let gateway = Values::new(Arc::new(pipeline), &[], Account::new(1 << 30));
    let is_kept = |ordinal: u64| {
        let (packed, told) = gateway.pack(PEER, envelope(0, id(ordinal), job(MIB)));
        let parcel = payloads(packed).remove(0);
        assert_eq!(told.is_empty(), !parcel.keep);
        parcel.keep
    };
    gateway.join(&[place(0)]);
    gateway.join(&[place(1)]);
    assert!(!is_kept(1), "the other one is in another process");
    gateway.forget(&[place(0)], None);
    gateway.forget(&[place(1)], None);
    gateway.join(&[place(0), place(1)]);
    assert!(is_kept(2), "the other one needs it, too");
}

#[test]
fn nothing_goes_to_or_comes_from_a_worker_that_left() {
    let values = values(1 << 30);
    values.forget(&[place(0)], None);
    let (packed, told) = values.pack(PEER, envelope(0, id(1), job(MIB)));
    assert!(payloads(packed).is_empty() && told.is_empty());
    assert_eq!(values.reading().known_requests, 0);
    let finished = |worker| Envelope {
        from: Address::Device(DeviceId(worker as u16)),
        incarnation: Incarnation(0),
        to: Address::Gateway(GatewayId(0)),
        message: Message::Gateway(ToGateway::Finished {
            worker: WorkerId(worker),
            batch: BatchId(0),
            took: Duration::ZERO,
            size: 1,
            members: vec![Finished {
                request: id(1),
                result: Ok(Filled::ALL),
            }],
        }),
    };
    let brought = |worker| {
        let brought = wire::ItemOutputs {
            times: TIMES,
            outputs: Some(vec![Carried::Value(bytes(1))]),
            kept: Ports::default(),
            damage: None,
        };
        let taken = values.take(PEER, &finished(worker), vec![brought]);
        taken[0].outputs.is_some()
    };
    assert_eq!([0, 1, 9].map(brought), [false, true, false]);
}

#[test]
fn a_gateway_that_left_leaves_nothing_to_the_next_one_with_its_id() {
    let worker = values(64 << 20);
    let parcel = || carrying(vec![Carried::Value(bytes(MIB))]);
    let running = worker.unpack(envelope(0, id(1), parcel())).unwrap();
    let before = worker.holder(GatewayId(0));
    worker.forget(&[], Some(GatewayId(0)));
    assert_eq!(worker.reading().kept_requests, 0);
    let after = worker.holder(GatewayId(0));
    assert!(!Arc::ptr_eq(&before, &after), "it holds nothing yet");
    drop(running);
    assert_eq!(worker.reading().held, 0);
}
