use std::time::Duration;

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_protocol::message::{BatchReport, BatchShape, ClientReport, Demand};

use super::*;

const MS: Duration = Duration::from_millis(1);
const FIRST: Incarnation = Incarnation(1);
const SECOND: Incarnation = Incarnation(2);
const GATEWAY: Address = Address::Gateway(GatewayId(0));

fn ms(n: u64) -> Timestamp {
    Timestamp::from_ns(n * 1_000_000)
}

/// The controller of module 1 of two. Its two workers are on devices of their own.
struct Module {
    controller: ModuleController,
    out: Vec<String>,
}

impl Module {
    fn new(scaling: Option<ModuleScaling>) -> Self {
        Module::under(DropPolicy::PARD, scaling)
    }

    fn under(drop: DropPolicy, scaling: Option<ModuleScaling>) -> Self {
        Module::of(ModuleId(1), drop, scaling)
    }

    fn of(module: ModuleId, drop: DropPolicy, scaling: Option<ModuleScaling>) -> Self {
        let mut pipeline = noop_pipeline(MS * 400, &[&[0], &[1]], &[]);
        pipeline.policy.drop = drop;
        let planned = Planned {
            batch: vec![4; 3],
            execution: vec![vec![MS * 10; 4]; 3].into(),
            workers: vec![1; 3],
            alone: false,
        };
        let place = |worker: u32| Place {
            worker: WorkerId(worker),
            module,
            device: DeviceId(worker as u16),
        };
        let controller = ModuleController::new(&ControllerConfig {
            module,
            incarnation: FIRST,
            pipeline: &Arc::new(pipeline),
            planned: &Arc::new(planned),
            places: &[place(0), place(1)],
            scaling,
            seed: 1,
            born: Timestamp::ZERO,
        });
        let mut module = Module {
            controller,
            out: Vec::new(),
        };
        for peer in [GATEWAY, device(0), device(1), other()] {
            module.on(ms(0), ControllerEvent::Greeted(peer, FIRST));
        }
        module.out.clear();
        module
    }

    /// What it says to an event, in short; an estimate is made at once.
    fn on(&mut self, now: Timestamp, event: ControllerEvent) -> Vec<String> {
        let mut out: Vec<ControllerCommand<()>> = Vec::new();
        self.controller.on_event(now, event, &mut out);
        let mut sent = Vec::new();
        for command in out {
            match command {
                ControllerCommand::Send(Envelope { message, .. }) => sent.extend(short(&message)),
                ControllerCommand::Compute(computation) => {
                    let computed = ControllerEvent::Computed(Box::new(computation.run()));
                    sent.extend(self.on(now, computed));
                }
            }
        }
        sent
    }

    /// The planner's turn.
    fn turn(&mut self, second: u64) {
        self.on(ms(second * 1000), ControllerEvent::Wakeup);
        self.on(ms(second * 1000 + 10), ControllerEvent::Wakeup);
    }

    fn downstream(&self) -> Duration {
        self.controller.guidance().downstream
    }

    fn peer(&mut self, life: Incarnation, version: u64, queueing: u64) {
        let state = crate::planner::tests::state(2, version, queueing);
        let message = ToController::Peer(Arc::new(state));
        self.on(ms(1), ControllerEvent::Message(other(), life, message));
    }
}

fn device(of: u16) -> Address {
    Address::Device(DeviceId(of))
}

fn other() -> Address {
    Address::Controller(ModuleId(2))
}

/// What is said of workers, and of the capacity that is for a gateway.
fn short(message: &Message<()>) -> Option<String> {
    match message {
        Message::Gateway(ToGateway::Serve(_) | ToGateway::Retire(_) | ToGateway::Try(_))
        | Message::Device(ToDevice::Load(_) | ToDevice::Unload(_)) => Some(format!("{message:?}")),
        Message::Gateway(ToGateway::Clients(portion)) => Some(format!("{}/s", portion.rate)),
        _ => None,
    }
}

#[test]
fn a_controller_that_began_anew_is_heard_at_once() {
    let mut module = Module::new(None);
    module.peer(FIRST, 50, 20);
    module.turn(1);
    let before = module.downstream();
    // Its successor counts its states from 1.
    module.on(ms(1100), ControllerEvent::Greeted(other(), SECOND));
    module.peer(SECOND, 1, 60);
    module.turn(2);
    assert_eq!(module.downstream(), before + MS * 40);
    // What the first one still said is void.
    module.peer(FIRST, 51, 20);
    module.turn(3);
    assert_eq!(module.downstream(), before + MS * 40);
}

#[test]
fn a_gateway_that_began_anew_counts_from_zero() {
    let mut module = Module::new(None);
    let report = |reached| {
        ToController::Demand(Box::new(Demand {
            reached,
            ..Demand::default()
        }))
    };
    let offered = |module: &Module| module.controller.published().map(|s| s.offered);
    module.on(
        ms(500),
        ControllerEvent::Message(GATEWAY, FIRST, report(100)),
    );
    module.on(
        ms(510),
        ControllerEvent::Message(GATEWAY, FIRST, report(100)),
    );
    module.turn(1);
    assert_eq!(offered(&module), Some(100.0));
    module.on(ms(1500), ControllerEvent::Greeted(GATEWAY, SECOND));
    module.on(
        ms(1600),
        ControllerEvent::Message(GATEWAY, SECOND, report(40)),
    );
    module.on(
        ms(1700),
        ControllerEvent::Message(GATEWAY, FIRST, report(500)),
    );
    module.turn(2);
    assert_eq!(offered(&module), Some(70.0));
}

#[test]
fn workers_of_a_device_that_is_gone_serve_no_more_until_it_greets_again() {
    let mut module = Module::new(None);
    // Gateways have sessions of their own with the device.
    assert!(
        module
            .on(ms(1), ControllerEvent::Lost(device(1)))
            .is_empty()
    );
    module.turn(1);
    let workers = |module: &Module| module.controller.published().map(|s| s.workers);
    assert_eq!(workers(&module), Some(1));
    let sent = module.on(ms(1500), ControllerEvent::Greeted(device(1), SECOND));
    assert_eq!(sent, ["Gateway(Serve(WorkerId(1)))"]);
    module.turn(2);
    assert_eq!(workers(&module), Some(2));
}

#[test]
fn a_controller_that_lost_a_device_tells_new_gateways_nothing_of_its_workers() {
    let mut module = Module::new(None);
    module.on(ms(1), ControllerEvent::Lost(device(1)));
    let sent = module.on(ms(2), ControllerEvent::Greeted(GATEWAY, SECOND));
    let lists = sent.iter().filter(|s| !s.contains("Plan"));
    assert_eq!(lists.collect::<Vec<_>>(), ["Gateway(Serve(WorkerId(0)))"]);
}

#[test]
fn workers_follow_the_demand_that_gateways_report() {
    let mut module = Module::new(Some(ModuleScaling {
        least: 1,
        most: 2,
        throughput: 100.0,
        cool_down: MS * 2000,
        carried_out: CarriedOut::Here,
    }));
    let report = |offered| {
        ToController::Demand(Box::new(Demand {
            offered,
            reached: offered,
            ..Demand::default()
        }))
    };
    module.on(
        ms(900),
        ControllerEvent::Message(GATEWAY, FIRST, report(150)),
    );
    let asked = module.on(ms(1000), ControllerEvent::Wakeup);
    assert_eq!(asked, ["Device(Load(WorkerId(1)))"]);
    let loaded = ToController::Loaded(WorkerId(1), true);
    let served = module.on(ms(1800), ControllerEvent::Message(device(1), FIRST, loaded));
    assert_eq!(served, ["Gateway(Serve(WorkerId(1)))"]);
    let retired = (2..10).map(|s| module.on(ms(s * 1000), ControllerEvent::Wakeup));
    assert_eq!(
        retired.flatten().collect::<Vec<_>>(),
        [
            "Gateway(Retire(WorkerId(1)))",
            "Device(Unload(WorkerId(1)))"
        ]
    );
}

/// Two workers of a topology serve, 150 requests a second are offered, and their batches take twice as long as planned.
#[test]
fn in_a_topology_the_number_is_told_and_the_workers_are_left_alone() {
    let wanted = |drop| {
        let mut module = Module::under(
            drop,
            Some(ModuleScaling {
                least: 1,
                most: 8,
                throughput: 100.0,
                cool_down: MS * 2000,
                carried_out: CarriedOut::Elsewhere,
            }),
        );
        let told = |module: &Module| {
            let view = module.controller.workers_view().unwrap();
            (view.wanted.workers, view.serving)
        };
        assert_eq!(told(&module), (1, 2));
        module.on(ms(999), ControllerEvent::Wakeup);
        assert_eq!(told(&module), (1, 2), "nothing was looked at");
        for worker in [0, 1] {
            ran(&mut module, worker, 800, 20);
        }
        let demand = ToController::Demand(Box::new(Demand {
            offered: 150,
            reached: 150,
            ..Demand::default()
        }));
        module.on(ms(900), ControllerEvent::Message(GATEWAY, FIRST, demand));
        let none: [&str; 0] = [];
        assert_eq!(module.on(ms(1000), ControllerEvent::Wakeup), none);
        let first = told(&module);
        // What it says of a worker that was away does not depend on the number.
        module.on(ms(1100), ControllerEvent::Lost(device(1)));
        let back = module.on(ms(1200), ControllerEvent::Greeted(device(1), FIRST));
        assert_eq!(back, ["Gateway(Serve(WorkerId(1)))"]);
        // Without a gateway the load is not known.
        module.on(ms(1300), ControllerEvent::Lost(GATEWAY));
        for second in 2..20 {
            module.on(ms(second * 1000), ControllerEvent::Wakeup);
            assert_eq!(told(&module), first);
        }
        module.on(ms(20_000), ControllerEvent::Greeted(GATEWAY, SECOND));
        for second in 20..23 {
            module.on(ms(second * 1000), ControllerEvent::Wakeup);
        }
        assert_eq!(told(&module), (1, 2));
        first
    };
    assert_eq!(wanted(DropPolicy::SPILLGATE), (4, 2), "by their pace");
    assert_eq!(wanted(DropPolicy::PARD), (2, 2), "by the profile");
}

#[test]
fn a_fixed_number_is_wanted_and_the_source_wants_none() {
    let mut module = Module::new(None);
    let view = module.controller.workers_view().unwrap();
    assert_eq!((view.wanted.workers, view.serving), (2, 2));
    assert_eq!(view.wanted.reason, scaling::Reason::Fixed);
    let wanted = |module: &Module| module.controller.workers_view().unwrap().wanted;
    let joined = Place {
        worker: WorkerId(2),
        module: ModuleId(1),
        device: DeviceId(2),
    };
    module.on(ms(1), ControllerEvent::Joined(vec![joined]));
    assert_eq!(wanted(&module).workers, 3, "as many as there are");
    module.on(ms(2), ControllerEvent::Left(DeviceId(0)));
    assert_eq!(wanted(&module).workers, 2);
    let source = Module::of(ModuleId::SOURCE, DropPolicy::PARD, None);
    assert_eq!(source.controller.workers_view(), None);
}

#[test]
fn a_gateway_that_greets_hears_what_to_go_by() {
    let mut module = Module::new(None);
    let mut out: Vec<ControllerCommand<()>> = Vec::new();
    let late = ControllerEvent::Greeted(Address::Gateway(GatewayId(1)), FIRST);
    module.controller.on_event(ms(5), late, &mut out);
    let plan = out.iter().find_map(|command| match command {
        ControllerCommand::Send(Envelope {
            message: Message::Gateway(ToGateway::Plan(_, plan)),
            ..
        }) => Some(plan.shape),
        _ => None,
    });
    let shape = BatchShape {
        size: 4,
        execution: MS * 10,
    };
    assert_eq!(plan, Some(shape));
}

/// A controller that begins anew does not know which devices are there.
#[test]
fn a_worker_serves_once_its_device_has_greeted() {
    let mut module = Module::new(None);
    let began = ModuleController::new(&ControllerConfig {
        module: ModuleId(1),
        incarnation: SECOND,
        pipeline: &Arc::new(noop_pipeline(MS * 400, &[&[0], &[1]], &[])),
        planned: &Arc::new(Planned {
            batch: vec![4; 3],
            execution: vec![vec![MS * 10; 4]; 3].into(),
            workers: vec![1; 3],
            alone: false,
        }),
        places: &module
            .controller
            .workers
            .iter()
            .map(|worker| worker.place)
            .collect::<Vec<_>>(),
        scaling: None,
        seed: 1,
        born: Timestamp::ZERO,
    });
    module.controller = began;
    let greeted = |peer| ControllerEvent::Greeted(peer, FIRST);
    let none: [&str; 0] = [];
    assert_eq!(module.on(ms(0), greeted(GATEWAY)), none);
    let sent = module.on(ms(1), greeted(device(1)));
    assert_eq!(sent, ["Gateway(Serve(WorkerId(1)))"]);
    assert_eq!(module.controller.n_up(), 1);
    // Told anew to those that come later; a device that greets again changes nothing.
    assert_eq!(module.on(ms(2), greeted(device(1))), none);
    let other = Address::Gateway(GatewayId(1));
    assert_eq!(module.on(ms(3), greeted(other)), sent);
}

/// A batch of the worker took so long; it is planned to take 10 ms.
fn ran(module: &mut Module, worker: u32, at: u64, took: u64) -> Vec<String> {
    let report = BatchReport {
        worker: WorkerId(worker),
        variant: Default::default(),
        started_at: ms(at - took),
        ended_at: ms(at),
        size: 4,
        members: vec![(ms(at - took), ms(at - took)); 4],
    };
    let report = ToController::Report(report);
    let from = device(worker as u16);
    module.on(ms(at), ControllerEvent::Message(from, FIRST, report))
}

#[test]
fn a_worker_much_slower_than_its_fellow_is_set_aside_and_tried() {
    let mut module = Module::under(DropPolicy::SPILLGATE, None);
    for at in [100, 110, 120] {
        assert!(ran(&mut module, 0, at, 10).is_empty());
    }
    assert!(ran(&mut module, 1, 140, 30).is_empty());
    assert_eq!(
        ran(&mut module, 1, 170, 30),
        ["Gateway(Retire(WorkerId(1)))"]
    );
    let wakes_at = module.controller.next_wakeup();
    assert_eq!(wakes_at, Some(ms(670)));
    let tried = module.on(ms(670), ControllerEvent::Wakeup);
    assert_eq!(tried, ["Gateway(Try(WorkerId(1)))"]);
    module.turn(1);
    assert_eq!(module.controller.published().map(|s| s.workers), Some(1));
    assert!(ran(&mut module, 1, 1300, 30).is_empty());
    assert_eq!(
        ran(&mut module, 1, 1310, 10),
        ["Gateway(Serve(WorkerId(1)))"]
    );
}

#[test]
fn a_slow_worker_is_better_than_none() {
    for event in [
        ControllerEvent::Lost(device(0)),
        ControllerEvent::Suspected(device(0)),
    ] {
        let mut module = Module::under(DropPolicy::SPILLGATE, None);
        for (worker, at, took) in [(0, 100, 10), (1, 140, 30), (1, 170, 30)] {
            ran(&mut module, worker, at, took);
        }
        let serve = "Gateway(Serve(WorkerId(1)))";
        assert_eq!(module.on(ms(200), event), [serve]);
    }
}

/// Gateways hear of the silence themselves. What the pipeline can serve is less from the next state on.
#[test]
fn a_suspected_worker_counts_for_nothing_until_it_is_trusted() {
    let mut module = Module::under(DropPolicy::SPILLGATE, None);
    let workers = |module: &Module| module.controller.published().map(|s| s.workers);
    assert!(
        module
            .on(ms(100), ControllerEvent::Suspected(device(0)))
            .is_empty()
    );
    module.turn(1);
    assert_eq!(workers(&module), Some(1));
    module.on(ms(1900), ControllerEvent::Trusted(device(0)));
    module.turn(2);
    assert_eq!(workers(&module), Some(2));
    // It is silent again, lost, and back.
    module.on(ms(2100), ControllerEvent::Suspected(device(0)));
    module.on(ms(2200), ControllerEvent::Lost(device(0)));
    module.on(ms(2300), ControllerEvent::Greeted(device(0), FIRST));
    module.turn(3);
    assert_eq!(workers(&module), Some(2));
}

#[test]
fn a_controller_that_hears_no_worker_says_nothing_of_them() {
    let mut module = Module::new(None);
    let sent = |module: &mut Module, second: u64| {
        let mut out: Vec<ControllerCommand<()>> = Vec::new();
        let (turn, then) = (ms(second * 1000), ms(second * 1000 + 10));
        for now in [turn, then] {
            module
                .controller
                .on_event(now, ControllerEvent::Wakeup, &mut out);
        }
        let sends = |c: &&ControllerCommand<()>| matches!(c, ControllerCommand::Send(_));
        out.iter().filter(sends).count()
    };
    assert!(sent(&mut module, 1) > 0);
    module.on(ms(1500), ControllerEvent::Suspected(device(0)));
    assert!(sent(&mut module, 2) > 0, "it hears one worker");
    // Both died, which gateways know by themselves; or nothing reaches the controller, and both serve.
    module.on(ms(2500), ControllerEvent::Suspected(device(1)));
    assert_eq!(sent(&mut module, 3), 0);
    module.on(ms(3500), ControllerEvent::Lost(device(0)));
    module.on(ms(3500), ControllerEvent::Lost(device(1)));
    assert_eq!(sent(&mut module, 4), 0);
    module.on(ms(4500), ControllerEvent::Greeted(device(1), SECOND));
    assert!(sent(&mut module, 5) > 0);
}

#[test]
fn a_published_policy_trusts_the_profile() {
    let mut module = Module::new(None);
    for (worker, took) in [(0, 10), (1, 30)].repeat(5) {
        assert!(ran(&mut module, worker, 100, took).is_empty());
    }
}

/// Under a policy that does not adapt nothing is said anew each second.
#[test]
fn each_gateway_hears_its_part_when_another_one_comes() {
    let mut module = Module::under(DropPolicy::DEADLINE, None);
    let mut out: Vec<ControllerCommand<()>> = Vec::new();
    let greeted = ControllerEvent::Greeted(Address::Gateway(GatewayId(1)), FIRST);
    module.controller.on_event(ms(1), greeted, &mut out);
    let part = |command: &ControllerCommand<()>| match command {
        ControllerCommand::Send(Envelope {
            to,
            message: Message::Gateway(ToGateway::Plan(_, plan)),
            ..
        }) => Some((*to, plan.part)),
        _ => None,
    };
    let parts: Vec<(Address, f64)> = out.iter().filter_map(part).collect();
    assert_eq!(
        parts,
        [0, 1].map(|id| (Address::Gateway(GatewayId(id)), 0.5))
    );
}

/// The first gateways that greet a controller that began anew would get the capacity of all.
#[test]
fn capacity_is_divided_once_all_gateways_have_greeted() {
    let mut module = Module::of(ModuleId::SOURCE, DropPolicy::SPILLGATE, None);
    let mut asked = |at| {
        let report = ToController::Clients(Box::new(ClientReport::new(50.0, Vec::new())));
        module.on(ms(at), ControllerEvent::Message(GATEWAY, FIRST, report))
    };
    assert!(asked(1000).is_empty());
    assert!(asked(5900).is_empty());
    assert_eq!(asked(7000), ["50/s"]);
}
