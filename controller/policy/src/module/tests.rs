use std::time::Duration;

use spillgate_pipeline::message::{BatchShape, Demand};
use spillgate_pipeline::policy::DropPolicyName;
use spillgate_pipeline::testing::noop_pipeline;

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
        let mut pipeline = noop_pipeline(MS * 400, &[&[0], &[1]], &[]);
        pipeline.policy.drop = DropPolicyName::Pard;
        let planned = Planned {
            batch: vec![4; 3],
            execution: vec![vec![MS * 10; 4]; 3].into(),
            workers: vec![1; 3],
            alone: false,
        };
        let place = |worker: u32| Place {
            worker: WorkerId(worker),
            module: ModuleId(1),
            device: DeviceId(worker as u16),
        };
        let controller = ModuleController::new(&ControllerConfig {
            module: ModuleId(1),
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
        let mut said = Vec::new();
        for command in out {
            match command {
                ControllerCommand::Send(Envelope { message, .. }) => said.extend(short(&message)),
                ControllerCommand::Compute(computation) => {
                    let computed = ControllerEvent::Computed(Box::new(computation.run()));
                    said.extend(self.on(now, computed));
                }
            }
        }
        said
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

/// What is said of workers.
fn short(message: &Message<()>) -> Option<String> {
    match message {
        Message::Gateway(ToGateway::Serve(_) | ToGateway::Retire(_))
        | Message::Device(ToDevice::Load(_) | ToDevice::Unload(_)) => Some(format!("{message:?}")),
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
    let said = module.on(ms(1), ControllerEvent::Lost(device(1)));
    assert_eq!(said, ["Gateway(Retire(WorkerId(1)))"]);
    module.turn(1);
    let workers = |module: &Module| module.controller.published().map(|s| s.workers);
    assert_eq!(workers(&module), Some(1));
    let said = module.on(ms(1500), ControllerEvent::Greeted(device(1), SECOND));
    assert_eq!(said, ["Gateway(Serve(WorkerId(1)))"]);
    module.turn(2);
    assert_eq!(workers(&module), Some(2));
}

#[test]
fn workers_follow_the_demand_that_gateways_report() {
    let mut module = Module::new(Some(ModuleScaling {
        least: 1,
        most: 2,
        throughput: 100.0,
        cool_down: MS * 2000,
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
            .map(|(place, _)| *place)
            .collect::<Vec<_>>(),
        scaling: None,
        seed: 1,
        born: Timestamp::ZERO,
    });
    module.controller = began;
    let greeted = |peer| ControllerEvent::Greeted(peer, FIRST);
    let none: [&str; 0] = [];
    assert_eq!(module.on(ms(0), greeted(GATEWAY)), none);
    let said = module.on(ms(1), greeted(device(1)));
    assert_eq!(said, ["Gateway(Serve(WorkerId(1)))"]);
    assert_eq!(module.controller.n_up(), 1);
    // Told anew to those that come later; a device that greets again changes nothing.
    assert_eq!(module.on(ms(2), greeted(device(1))), none);
    let other = Address::Gateway(GatewayId(1));
    assert_eq!(module.on(ms(3), greeted(other)), said);
}
