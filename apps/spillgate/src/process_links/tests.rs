//! What a process knows of another one, and what is left of it.

use std::time::Duration;

use spillgate_controller::host::{HostConfig, RequestIds, Roles};
use spillgate_controller::record::{BatchRecord, Observer, RequestRecord};
use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::id::{BatchId, Incarnation, ModuleId};
use spillgate_pipeline::invariants::Invariant;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_protocol::membership::MemberDevice;
use spillgate_protocol::message::{Arrival, Started};

use super::*;
use crate::device_name::DeviceName;
use links::Roles as _;

struct Nobody;

impl Observer for Nobody {
    fn request_ended(&self, _: &Arc<RequestRecord>) {}

    fn request_refused(&self, _: &Arc<Pipeline>, _: &'static str) {}

    fn batch_ended(&self, _: &Arc<Pipeline>, _: &BatchRecord) {}

    fn reran(&self, _: &Arc<Pipeline>, _: ModuleId, _: Duration) {}

    fn breached(&self, _: &Arc<Pipeline>, invariant: Invariant) {
        panic!("{invariant} does not hold");
    }
}

/// The roles of a process with a gateway, controllers, and a worker of module 1 on device 0.
fn gateway() -> LocalRoles {
    let pipeline = Arc::new(noop_pipeline(Duration::from_secs(1), &[&[0], &[1]], &[]));
    let own = [Place {
        worker: WorkerId(0),
        module: ModuleId(1),
        device: DeviceId(0),
    }];
    let planned = Planned {
        batch: vec![4; 3],
        execution: vec![vec![Duration::from_millis(1); 4]; 3].into(),
        workers: vec![1; 3],
        alone: false,
    };
    let router = RemoteRouter::new(pipeline.clone(), &own, Account::new(1 << 20));
    let host = Arc::new(PipelineHost::new(HostConfig {
        roles: Roles::all(&pipeline, vec![DeviceId(0)]),
        pipeline,
        planned: &Arc::new(planned),
        workers: own.to_vec(),
        scaling: None,
        ids: Arc::new(RequestIds::new(GatewayId(0), Incarnation(0))),
        clock: Clock::start(),
        observer: Arc::new(Nobody),
    }));
    let here: OutgoingSender = Arc::new(|_| {});
    let own = [(DeviceId(0), here)];
    host.connect(own, router.way(), router.on_ended(), Box::new(|_| {}));
    let name = DeviceName {
        process: "gateway-0".to_owned(),
        device: "cpu:0".to_owned(),
    };
    LocalRoles {
        host,
        devices: IndexMap::default(),
        router,
        device_names: DeviceNames::new([(DeviceId(0), name)]),
        processes: Processes::new("gateway-0"),
        profiles: ProfileAgreement::default(),
    }
}

/// A process with a device for each of two modules.
fn stages() -> (Arc<Member>, MemberIds) {
    let device = |name: &str, module| MemberDevice {
        name: name.into(),
        workers: vec![ModuleId(module).into()],
    };
    let member = Member {
        name: "stages".into(),
        incarnation: Incarnation(7),
        version: "0.1.0".into(),
        address: None,
        is_gateway: false,
        controllers: Vec::new(),
        devices: vec![device("cpu:0", 1), device("cuda:0", 2)],
    };
    let place = |worker, module, device| Place {
        worker: WorkerId(worker),
        module: ModuleId(module),
        device: DeviceId(device),
    };
    let ids = MemberIds {
        gateway: None,
        devices: vec![DeviceId(4), DeviceId(3)],
        places: vec![place(1, 1, 4), place(2, 2, 3)],
    };
    (Arc::new(member), ids)
}

fn name(process: &str, device: &str) -> DeviceName {
    DeviceName {
        process: process.to_owned(),
        device: device.to_owned(),
    }
}

/// Whether values for that worker are packed.
fn is_packed(of: &LocalRoles, place: Place) -> bool {
    let frame = spillgate_picture::Frame {
        format: spillgate_picture::FrameFormat::Bytes,
        data: "x".into(),
        width: 0,
        height: 0,
    };
    let request = RequestId::at(GatewayId(0), Incarnation(0), 1);
    let arrival = Arrival {
        worker: place.worker,
        request: Request::new(request, of.host.now(), of.host.now()),
        payload: Arc::new(spillgate_process::job::Job::unaccounted(frame, 3)),
    };
    let envelope = Envelope {
        from: Address::Gateway(GatewayId(0)),
        incarnation: Incarnation(0),
        to: Address::Device(place.device),
        message: Message::Device(ToDevice::Requests(vec![arrival])),
    };
    let (packed, _) = of.router.values.pack(Peer(1), envelope);
    packed.message != Message::Device(ToDevice::Requests(Vec::new()))
}

#[test]
fn a_process_that_joined_is_known_until_it_leaves() {
    let of = gateway();
    let own: Vec<Place> = of.host.all_workers();
    let (member, ids) = stages();
    let names = || [DeviceId(0), DeviceId(3), DeviceId(4)].map(|id| of.device_names.of(id));
    let packed = || [0, 1].map(|worker| is_packed(&of, ids.places[worker]));
    for _ in 0..2 {
        of.joined(&member, &ids);
        assert_eq!(
            of.host.all_workers(),
            [own[0], ids.places[0], ids.places[1]]
        );
        let (cpu, cuda) = (name("stages", "cpu:0"), name("stages", "cuda:0"));
        assert_eq!(names(), [name("gateway-0", "cpu:0"), cuda, cpu]);
        assert_eq!(packed(), [true; 2]);

        of.left(&member, &ids);
        assert_eq!(of.host.all_workers(), own);
        let gone = DeviceName::default();
        assert_eq!(names(), [name("gateway-0", "cpu:0"), gone.clone(), gone]);
        assert_eq!(packed(), [false; 2]);
    }
}

#[test]
fn late_messages_of_a_process_that_left_are_heard_by_nobody() {
    let of = gateway();
    let (member, ids) = stages();
    of.joined(&member, &ids);
    let greeting = Greeting {
        member: member.clone(),
        set: "spillgate".into(),
        pipeline: "one".into(),
        hash: Default::default(),
        wire: WireVersions::OWN,
        published: None,
    };
    let peer = PeerRoles {
        greeting: Arc::new(greeting),
        addresses: ids.devices.iter().copied().map(Address::Device).collect(),
    };
    let roles: &dyn links::Roles = &of;
    roles.met(&peer);
    of.left(&member, &ids);
    let say = |to, message| Envelope {
        from: Address::Device(ids.devices[0]),
        incarnation: member.incarnation,
        to,
        message,
    };
    let worker = ids.places[0].worker;
    let request = RequestId::at(GatewayId(0), Incarnation(0), 1);
    let gateway = Address::Gateway(GatewayId(0));
    let controller = Address::Controller(ModuleId(1));
    let started = ToGateway::Started(Started {
        worker,
        batch: BatchId(1),
        size: 1,
        expected_end: of.host.now(),
    });
    let loaded = spillgate_protocol::message::ToController::Loaded(worker, true);
    let late = [
        say(gateway, Message::Gateway(started)),
        say(gateway, Message::Gateway(ToGateway::Leaves(worker))),
        say(gateway, Message::Gateway(ToGateway::Serve(worker))),
        say(controller, Message::Controller(loaded)),
    ];
    for envelope in late {
        roles.heard(Peer(1), envelope, Vec::new());
    }
    let lacking = Envelope {
        from: gateway,
        incarnation: Incarnation(0),
        to: Address::Device(ids.devices[0]),
        message: Message::Device(ToDevice::Cancel(worker, request)),
    };
    roles.lacking(Peer(1), &peer, lacking);
    roles.doubted(&peer, true);
    roles.parted(&peer, "it is gone");
    assert_eq!(of.host.all_workers().len(), 1);
    let view = of.host.gateway_view().unwrap();
    let workers = view.modules.iter().map(|module| module.workers.len());
    assert_eq!(workers.collect::<Vec<_>>(), [0, 1, 0]);
}
