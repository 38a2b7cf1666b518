use std::time::Duration;

use proptest::prelude::*;
use spillgate_pipeline::id::{BatchId, Incarnation, ModuleId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

use super::*;
use crate::membership::MemberDevice;
use crate::message::{Arrival, Finished, ToController, ToDevice, ToGateway};

fn member(name: &str, is_gateway: bool, controllers: &[u16], devices: &[&[u16]]) -> Arc<Member> {
    let modules = |ids: &[u16]| ids.iter().copied().map(ModuleId).collect();
    let device = |(i, workers): (usize, &&[u16])| MemberDevice {
        name: format!("cpu:{i}").into(),
        workers: workers.iter().map(|id| ModuleId(*id).into()).collect(),
    };
    Arc::new(Member {
        name: name.into(),
        incarnation: Incarnation(1),
        version: "0.1.0".into(),
        address: None,
        is_gateway,
        controllers: modules(controllers),
        devices: devices.iter().enumerate().map(device).collect(),
    })
}

fn directory(me: &Arc<Member>, others: &[&Arc<Member>]) -> Directory {
    let mut directory = Directory::new(me, OwnIds::alone(me));
    for other in others {
        directory.admit(other);
    }
    directory
}

/// A gateway, a controller, and two processes with workers, each of which met the others in another order.
struct Set {
    gateway: Directory,
    control: Directory,
    a: Directory,
    b: Directory,
}

fn set() -> Set {
    let g = member("g", true, &[], &[]);
    let h = member("h", true, &[], &[]);
    let c = member("c", false, &[0, 1, 2], &[]);
    let a = member("a", false, &[], &[&[1, 2], &[1]]);
    let b = member("b", false, &[], &[&[2]]);
    Set {
        gateway: directory(&g, &[&c, &b, &a]),
        control: directory(&c, &[&a, &h, &g, &b]),
        a: directory(&a, &[&h, &g, &c]),
        b: directory(&b, &[&c, &g]),
    }
}

fn send(
    (from, from_name): (&Directory, &str),
    (to, to_name): (&Directory, &str),
    mut envelope: Envelope<()>,
) -> Result<Envelope<()>, UnknownId> {
    let listed = from.outward(to_name, &mut envelope)?;
    to.inward(from_name, listed.as_deref(), &mut envelope)?;
    Ok(envelope)
}

fn envelope(from: Address, to: Address, message: Message<()>) -> Envelope<()> {
    Envelope {
        from,
        incarnation: Incarnation(1),
        to,
        message,
    }
}

fn gateway_of(directory: &Directory, name: &str) -> GatewayId {
    directory.ids(name).unwrap().gateway.unwrap()
}

fn place(directory: &Directory, name: &str, i: usize) -> Place {
    directory.ids(name).unwrap().places[i]
}

#[test]
fn requests_and_their_results_find_their_way() {
    let Set { gateway, a, .. } = set();
    let here = place(&gateway, "a", 2);
    let there = place(&a, "a", 2);
    assert_ne!(here, there, "the test needs ids that differ");
    let (mine, its) = (gateway_of(&gateway, "g"), gateway_of(&a, "g"));
    assert_ne!(mine, its, "the test needs ids that differ");
    let id = RequestId::at(mine, Incarnation(1), 77);
    let now = Timestamp::from_ns(5);
    let request = Request::new(id, now, now + Duration::from_millis(1));
    let sent = Message::Device(ToDevice::Requests(vec![Arrival {
        worker: here.worker,
        request,
        payload: (),
    }]));
    let sent = envelope(Address::Gateway(mine), Address::Device(here.device), sent);
    let came = send((&gateway, "g"), (&a, "a"), sent).unwrap();
    assert_eq!(came.from, Address::Gateway(its));
    assert_eq!(came.to, Address::Device(there.device));
    let Message::Device(ToDevice::Requests(arrivals)) = &came.message else {
        panic!("{came:?}");
    };
    let arrived = arrivals[0].request.id;
    assert_eq!(arrivals[0].worker, there.worker);
    assert_eq!(arrived, RequestId::at(its, Incarnation(1), 77));
    let finished = Message::Gateway(ToGateway::Finished {
        worker: there.worker,
        batch: BatchId(3),
        took: Duration::from_millis(1),
        size: 1,
        members: vec![Finished {
            request: arrived,
            result: Ok(crate::message::Filled::ALL),
        }],
    });
    let back = envelope(
        Address::Device(there.device),
        Address::Gateway(its),
        finished,
    );
    let back = send((&a, "a"), (&gateway, "g"), back).unwrap();
    assert_eq!(back.from, Address::Device(here.device));
    let Message::Gateway(ToGateway::Finished {
        worker, members, ..
    }) = back.message
    else {
        panic!("{back:?}");
    };
    assert_eq!((worker, members[0].request), (here.worker, id));
}

#[test]
fn a_controller_speaks_of_workers_of_third_processes() {
    let Set {
        gateway, control, ..
    } = set();
    for (name, i) in [("a", 0), ("a", 2), ("b", 0)] {
        let of = place(&control, name, i).worker;
        let serve = envelope(
            Address::Controller(ModuleId(1)),
            Address::Gateway(gateway_of(&control, "g")),
            Message::Gateway(ToGateway::Serve(of)),
        );
        let came = send((&control, "c"), (&gateway, "g"), serve).unwrap();
        let expected = place(&gateway, name, i).worker;
        assert_eq!(came.message, Message::Gateway(ToGateway::Serve(expected)));
    }
}

#[test]
fn what_is_not_its_senders_is_unknown() {
    let Set {
        gateway,
        control,
        a,
        b,
    } = set();
    let worker = place(&b, "b", 0);
    let loaded = |device, worker| {
        envelope(
            Address::Device(device),
            Address::Controller(ModuleId(2)),
            Message::Controller(ToController::Loaded(worker, true)),
        )
    };
    assert!(
        send(
            (&b, "b"),
            (&control, "c"),
            loaded(worker.device, worker.worker)
        )
        .is_ok()
    );
    // Positions that the sender does not have, as a rogue would write them.
    for (device, worker) in [(1, 0), (0, 1), (9, 0), (0, u32::MAX)] {
        let mut rogue = loaded(DeviceId(device), WorkerId(worker));
        assert_eq!(control.inward("b", None, &mut rogue), Err(UnknownId));
    }
    // A process without a gateway owns no request.
    let mut rogue = envelope(
        Address::Gateway(GatewayId(0)),
        Address::Device(DeviceId(0)),
        Message::Device(ToDevice::Cancel(WorkerId(0), RequestId(7))),
    );
    assert_eq!(a.inward("c", None, &mut rogue), Err(UnknownId));
    // Nor does a controller speak for a module that it does not hold.
    let mut rogue = envelope(
        Address::Controller(ModuleId(7)),
        Address::Gateway(GatewayId(0)),
        Message::Gateway(ToGateway::Serve(WorkerId(0))),
    );
    assert_eq!(gateway.inward("c", None, &mut rogue), Err(UnknownId));
    assert_eq!(gateway.inward("nobody", None, &mut rogue), Err(UnknownId));
}

#[test]
fn requests_that_are_given_back_find_their_way() {
    let Set { gateway, a, .. } = set();
    let here = place(&gateway, "a", 2);
    let there = place(&a, "a", 2);
    let (mine, its) = (gateway_of(&gateway, "g"), gateway_of(&a, "g"));
    let cancel = |owner, worker| {
        let id = RequestId::at(owner, Incarnation(1), 7);
        Message::Device(ToDevice::Cancel(worker, id))
    };
    let (from, to) = (Address::Gateway(its), Address::Device(there.device));
    let mut back = envelope(from, to, cancel(its, there.worker));
    a.outward_again("g", &mut back).unwrap();
    gateway.inward_again("a", &mut back).unwrap();
    let (from, to) = (Address::Gateway(mine), Address::Device(here.device));
    assert_eq!(back, envelope(from, to, cancel(mine, here.worker)));
    // What this process did not send cannot come back to it.
    let (from, to) = (Address::Gateway(GatewayId(1)), Address::Device(DeviceId(0)));
    let mut rogue = envelope(from, to, cancel(mine, WorkerId(0)));
    assert_eq!(gateway.inward_again("a", &mut rogue), Err(UnknownId));
}

#[test]
fn ids_of_one_that_is_forgotten_go_to_others_and_the_table_stays_small() {
    let me = member("me", true, &[], &[]);
    let mut directory = Directory::new(&me, OwnIds::alone(&me));
    for i in 0..10_000 {
        let name = format!("w-{i}");
        let worker = member(&name, false, &[], &[&[1], &[2, 3]]);
        let ids = directory.admit(&worker).clone();
        assert!(ids.places.iter().all(|p| p.worker.0 < 3) && ids.devices.len() == 2);
        assert_eq!(directory.roles(&name).len(), 2);
        assert_eq!(directory.forget(&name), Some(ids));
        assert_eq!(directory.forget(&name), None);
    }
}

#[test]
fn pipelines_of_a_process_share_no_ids_but_its_gateway() {
    let (mine, theirs) = (&[&[1u16][..]][..], &[&[1u16, 2][..]][..]);
    // A process with a gateway and, for each of two pipelines, a worker, on one device.
    let me = member("me", true, &[], mine);
    let directory = |pipeline: usize| {
        let ids = MemberIds {
            gateway: Some(GatewayId(0)),
            devices: vec![DeviceId(0)],
            places: vec![Place {
                worker: WorkerId(pipeline as u32),
                module: ModuleId(1),
                device: DeviceId(0),
            }],
        };
        Directory::new(&me, OwnIds::new(ids, pipeline, 1, 2))
    };
    let mut all = [0, 1].map(directory);
    let full = |directory: &mut Directory| {
        let others = (0..MEMBERS_MAX).map(|i| member(&format!("p-{i}"), true, &[], theirs));
        let ids = others.map(|other| directory.admit(&other).clone());
        ids.collect::<Vec<_>>()
    };
    let ids = all.each_mut().map(full);
    let gateways = |i: usize| ids[i].iter().map(|of| of.gateway.unwrap());
    assert!(gateways(0).chain(gateways(1)).all(|of| of != GatewayId(0)));
    assert!(gateways(0).max() < gateways(1).min());
    for of in ids.iter().flatten() {
        assert!(of.devices.iter().all(|device| device.0 >= 1));
        assert!(of.places.iter().all(|place| place.worker.0 >= 2));
    }
    // A message finds the worker of its own pipeline.
    assert_eq!(all[1].worker_outward(WorkerId(1)), Some(WorkerId(0)));
    assert_eq!(all[1].worker_outward(WorkerId(0)), None);
    // Those of the last pipeline fit, too.
    let last = OwnIds::new(MemberIds::default(), PIPELINES_MAX - 1, 1, 2);
    assert!(usize::from(last.gateways_from) + MEMBERS_MAX <= usize::from(u16::MAX));
}

proptest! {
    /// At any time no id is given twice, and each is the lowest that was free.
    #[test]
    fn ids_are_dense_and_given_once(steps in prop::collection::vec((0usize..6, any::<bool>()), 1..40)) {
        let me = member("me", true, &[0], &[&[1]]);
        let mut directory = Directory::new(&me, OwnIds::alone(&me));
        let mut there: Vec<usize> = Vec::new();
        for (i, comes) in steps {
            let name = format!("p-{i}");
            if comes {
                let workers: Vec<u16> = (0..i as u16).collect();
                directory.admit(&member(&name, i % 2 == 0, &[], &[&workers, &[1]]));
                there.push(i);
            } else {
                directory.forget(&name);
                there.retain(|of| *of != i);
            }
            there.sort_unstable();
            there.dedup();
            let all = || directory.entries.values();
            let mut workers: Vec<u32> = all().flat_map(|e| &e.ids.places).map(|p| p.worker.0).collect();
            workers.sort_unstable();
            let n = workers.len();
            workers.dedup();
            prop_assert_eq!(workers.len(), n);
            prop_assert_eq!(n, 1 + there.iter().map(|i| i + 1).sum::<usize>());
            let gateways = all().filter_map(|e| e.ids.gateway).count();
            prop_assert_eq!(gateways, 1 + there.iter().filter(|i| *i % 2 == 0).count());
        }
    }
}
