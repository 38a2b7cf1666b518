//! Gateways and devices around a fleet, in virtual time, and an account of each request.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::action::RefusalCause;
use spillgate_pipeline::id::{GatewayId, Incarnation, MemberId};
use spillgate_pipeline::request::Request;
use spillgate_protocol::message::Arrival;

use super::*;

/// A gateway that sends nothing and hears which models are in memory.
const LISTENER: GatewayId = GatewayId(99);

/// A request on its way to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) at: Timestamp,
    pub(super) worker: WorkerId,
    /// Its ordinal at its gateway; that of the ask where there is none.
    pub(super) id: Option<u64>,
    pub(super) gateway: u16,
    pub(super) member: u16,
    pub(super) deadline: Timestamp,
}

/// What a gateway heard of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Dropped(DropReason),
    Forgotten,
    Failed(String),
    /// It was in the batch of that action.
    Ran(ActionId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Unborn,
    Waiting,
    Sent,
    Over,
    /// Its gateway was lost while it waited.
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Arrives(usize),
    Cancel(usize),
    Withdraw(usize, DropReason),
    Lost(u16),
    Close(DropReason),
    /// LOADs on that device fail from now on, or succeed.
    Breaks(usize, bool),
    /// LOADs on that device that begin from now on take that many times as long as expected.
    Slows(usize, u32),
}

enum Due {
    Outside(Event),
    Delivered(usize, Action<BatchItem<usize>>),
    Looks(usize),
    BatchEnds(usize, Duration),
    LoadEnds(usize, Duration),
    Reported(usize, Done),
    Woken,
}

#[derive(Default)]
struct Device {
    infers: Vec<Action<BatchItem<usize>>>,
    running: Option<Action<BatchItem<usize>>>,
    loads: Vec<Action<BatchItem<usize>>>,
    reading: Option<Action<BatchItem<usize>>>,
    loaded: Vec<WeightsId>,
    is_broken: bool,
    /// How many times as long as expected its LOADs take, where a test says so.
    slow: Option<u32>,
}

pub(super) struct World {
    pub(super) fleet: Fleet<usize>,
    config: PlacementConfig,
    hardware: Hardware,
    rng: ChaCha8Rng,
    workers: Vec<FleetWorker>,
    asks: Vec<Ask>,
    stands: Vec<Stands>,
    /// Those that ended elsewhere while they were under way.
    have_ended: Vec<bool>,
    devices: Vec<Device>,
    agenda: BTreeMap<(Timestamp, u64), Due>,
    scheduled: u64,
    is_closed: bool,
    /// The models of workers that are in memory here, as the gateway [`LISTENER`] was told.
    announced: BTreeSet<(WorkerId, MemberId)>,
    /// By ask, in order.
    pub(super) answers: Vec<Vec<Answer>>,
    /// When each ended.
    pub(super) ended: Vec<Timestamp>,
    /// LOADs that devices began, by device.
    pub(super) loads: Vec<usize>,
}

impl World {
    pub(super) fn new(
        name: PlacementPolicy,
        config: &PlacementConfig,
        workers: Vec<FleetWorker>,
        hardware: Hardware,
        asks: &[Ask],
    ) -> Self {
        let devices = config.devices.iter().map(|spec| {
            let mut free = spec.pages;
            let fits = spec.resident.iter().filter(|w| {
                let pages = config.weights[w.idx()].pages;
                let fits = pages <= free;
                free -= if fits { pages } else { 0 };
                fits
            });
            Device {
                loaded: fits.copied().collect(),
                ..Device::default()
            }
        });
        let mut world = World {
            fleet: Fleet::new(Placement::new(name, config.clone()), workers.clone()),
            config: config.clone(),
            hardware,
            rng: ChaCha8Rng::seed_from_u64(hardware.seed),
            workers,
            asks: asks.to_vec(),
            stands: vec![Stands::Unborn; asks.len()],
            have_ended: vec![false; asks.len()],
            devices: devices.collect(),
            agenda: BTreeMap::new(),
            scheduled: 0,
            is_closed: false,
            announced: BTreeSet::new(),
            answers: vec![Vec::new(); asks.len()],
            ended: vec![Timestamp::ZERO; asks.len()],
            loads: vec![0; config.devices.len()],
        };
        for (i, ask) in asks.iter().enumerate() {
            world.push(ask.at, Due::Outside(Event::Arrives(i)));
        }
        world.tell(Timestamp::ZERO, FleetEvent::Greeted(LISTENER));
        world
    }

    pub(super) fn with(mut self, at: Timestamp, event: Event) -> Self {
        self.push(at, Due::Outside(event));
        self
    }

    /// Runs until nothing happens any more.
    pub(super) fn run(mut self) -> Self {
        let mut steps = 0;
        while let Some(((now, _), due)) = self.agenda.pop_first() {
            steps += 1;
            assert!(steps < 100_000, "it goes on without an end: {now}");
            self.on(now, due);
        }
        assert!(self.fleet.has_no_work(), "all has ended");
        for (stands, answers) in self.stands.iter().zip(&self.answers) {
            let n = usize::from(*stands == Stands::Over);
            assert_eq!(answers.len(), n, "{stands:?} {answers:?}");
            assert!(matches!(stands, Stands::Over | Stands::Gone), "{stands:?}");
        }
        self
    }

    /// The only answer of each request.
    pub(super) fn only_answers(&self) -> Vec<Answer> {
        self.answers.iter().map(|a| a[0].clone()).collect()
    }

    fn push(&mut self, at: Timestamp, due: Due) {
        self.agenda.insert((at, self.scheduled), due);
        self.scheduled += 1;
    }

    fn id(&self, i: usize) -> RequestId {
        let ask = &self.asks[i];
        let ordinal = ask.id.unwrap_or(i as u64);
        RequestId::at(GatewayId(ask.gateway), Incarnation(0), ordinal)
    }

    /// Requests that wait at that worker, with a deadline or without.
    fn waiting(&self, worker: WorkerId, background: bool) -> usize {
        let all = self.stands.iter().zip(&self.asks);
        let like = all.filter(|(_, a)| (a.deadline == Timestamp::MAX) == background);
        like.filter(|(s, a)| **s == Stands::Waiting && a.worker == worker)
            .count()
    }

    fn on(&mut self, now: Timestamp, due: Due) {
        match due {
            Due::Outside(event) => self.outside(now, event),
            Due::Delivered(i, action) => {
                let device = &mut self.devices[i];
                match action.work {
                    Work::Infer { .. } => device.infers.push(action),
                    Work::Load(_) => device.loads.push(action),
                    Work::Unload(weights) => device.loaded.retain(|w| *w != weights),
                }
                self.start(now, i);
            }
            Due::Looks(i) => self.start(now, i),
            Due::BatchEnds(i, took) => {
                let action = self.devices[i].running.take().expect("a batch runs");
                let Work::Infer { members, .. } = &action.work else {
                    unreachable!("it is a batch")
                };
                for member in members {
                    self.answer(now, member.payload, Answer::Ran(action.id));
                }
                self.done(now, i, action.id, Ended::Ran { at: now, took });
                self.start(now, i);
            }
            Due::LoadEnds(i, took) => {
                let action = self.devices[i].reading.take().expect("a model is read");
                let fails = self.rng.random_bool(self.hardware.fails) || self.devices[i].is_broken;
                let ended = match (fails, &action.work) {
                    (false, Work::Load(weights)) => {
                        self.devices[i].loaded.push(*weights);
                        Ended::Ran { at: now, took }
                    }
                    _ => Ended::Failed("its file is no model".into()),
                };
                self.done(now, i, action.id, ended);
                self.start(now, i);
            }
            Due::Reported(i, done) => {
                let refused = matches!(done.ended, Ended::Refused(_));
                let was = self.fleet.under_way.get(&done.id);
                let members = was.map(|was| was.members.clone()).unwrap_or_default();
                for ticket in members.iter().filter(|_| refused) {
                    let ask = self.fleet.entries[ticket].member.payload;
                    self.stands[ask] = Stands::Waiting;
                }
                self.tell(now, FleetEvent::Done(DeviceId(i as u16), done));
            }
            Due::Woken => self.tell(now, FleetEvent::Wakeup),
        }
    }

    fn outside(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Arrives(i) => {
                let ask = self.asks[i];
                let of = &self.workers[ask.worker.0 as usize];
                let is_known = of.models.len() > usize::from(ask.member);
                let background = ask.deadline == Timestamp::MAX;
                let most = match background {
                    true => of.background,
                    false => of.capacity,
                };
                let is_full = is_known && self.waiting(ask.worker, background) >= most;
                self.stands[i] = Stands::Waiting;
                let request = Request {
                    member: MemberId(ask.member),
                    background: ask.deadline == Timestamp::MAX,
                    ..Request::new(self.id(i), now, ask.deadline)
                };
                let mut arrivals = vec![Arrival {
                    worker: ask.worker,
                    request,
                    payload: i,
                }];
                self.tell(now, FleetEvent::Arrivals(&mut arrivals));
                let full = Answer::Dropped(DropReason::QueueFull);
                let is_refused = self.answers[i].contains(&full);
                assert_eq!(is_refused, is_full && !self.is_closed, "capacity holds");
            }
            Event::Cancel(i) => {
                let (worker, id) = (self.asks[i].worker, self.id(i));
                let waited = self.stands[i] == Stands::Waiting;
                self.have_ended[i] |= self.stands[i] == Stands::Sent;
                self.tell(now, FleetEvent::Cancel(worker, id));
                assert!(!waited || self.answers[i] == [Answer::Forgotten]);
            }
            Event::Withdraw(i, reason) => {
                let (worker, id) = (self.asks[i].worker, self.id(i));
                let waited = self.stands[i] == Stands::Waiting;
                self.tell(now, FleetEvent::Withdraw(worker, id, reason));
                assert!(!waited || self.answers[i] == [Answer::Dropped(reason)]);
            }
            Event::Lost(gateway) => {
                for (stands, ask) in self.stands.iter_mut().zip(&self.asks) {
                    if *stands == Stands::Waiting && ask.gateway == gateway {
                        *stands = Stands::Gone;
                    }
                }
                self.tell(now, FleetEvent::Lost(GatewayId(gateway)));
            }
            Event::Close(reason) => {
                self.is_closed = true;
                self.tell(now, FleetEvent::Close(reason));
            }
            Event::Breaks(i, is_broken) => self.devices[i].is_broken = is_broken,
            Event::Slows(i, times) => self.devices[i].slow = Some(times),
        }
    }

    fn done(&mut self, now: Timestamp, i: usize, id: ActionId, ended: Ended) {
        let heard_at = now + self.config.travel;
        self.push(heard_at, Due::Reported(i, Done::new(id, ended)));
    }

    fn deviates(&mut self, base: Duration) -> Duration {
        let factor = 1.0 + (self.hardware.deviation - 1.0) * self.rng.random::<f64>();
        base.mul_f64(factor)
    }

    fn start(&mut self, now: Timestamp, i: usize) {
        while self.devices[i].running.is_none() {
            let infers = self.devices[i].infers.iter().enumerate();
            let first = infers.min_by_key(|(_, a)| (a.window.earliest, a.id));
            let Some((first, action)) = first else { break };
            if now < action.window.earliest {
                let earliest = action.window.earliest;
                self.push(earliest, Due::Looks(i));
                break;
            }
            let action = self.devices[i].infers.remove(first);
            let Work::Infer {
                model,
                weights,
                members,
            } = &action.work
            else {
                unreachable!("only batches are here")
            };
            let cause = if now > action.window.latest {
                Some(RefusalCause::Late)
            } else if !self.devices[i].loaded.contains(weights)
                || self.rng.random_bool(self.hardware.refuses)
            {
                Some(RefusalCause::NotLoaded)
            } else {
                None
            };
            if let Some(cause) = cause {
                self.done(now, i, action.id, Ended::Refused(cause));
                continue;
            }
            let size = self.config.sizes.iter();
            let size = size
                .clone()
                .position(|s| *s as usize == members.len())
                .expect("never padded");
            let took = self.deviates(self.config.models[model.idx()].execution[size]);
            self.devices[i].running = Some(action);
            self.push(now + took, Due::BatchEnds(i, took));
        }
        while self.devices[i].reading.is_none() && !self.devices[i].loads.is_empty() {
            let earliest = self.devices[i].loads[0].window.earliest;
            if now < earliest {
                self.push(earliest, Due::Looks(i));
                break;
            }
            let action = self.devices[i].loads.remove(0);
            if now > action.window.latest {
                self.done(now, i, action.id, Ended::Refused(RefusalCause::Late));
                continue;
            }
            let Work::Load(weights) = action.work else {
                unreachable!("only LOADs are here")
            };
            self.loads[i] += 1;
            let took = self.deviates(self.config.weights[weights.idx()].load);
            let took = took * self.devices[i].slow.unwrap_or(1);
            self.devices[i].reading = Some(action);
            self.push(now + took, Due::LoadEnds(i, took));
        }
    }

    fn answer(&mut self, now: Timestamp, i: usize, answer: Answer) {
        let due = match answer {
            Answer::Ran(_) => Stands::Sent,
            _ => Stands::Waiting,
        };
        assert_eq!(self.stands[i], due, "{i} gets {answer:?}");
        self.stands[i] = Stands::Over;
        self.answers[i].push(answer);
        self.ended[i] = now;
    }

    fn tell(&mut self, now: Timestamp, event: FleetEvent<'_, usize>) {
        let mut out = Vec::new();
        self.fleet.on_event(now, event, &mut out);
        for command in out {
            self.obey(now, command);
        }
        for worker in &self.workers {
            let waiting = [false, true].map(|b| self.waiting(worker.worker, b));
            let waiting: usize = waiting.iter().sum();
            assert_eq!(self.fleet.waiting(worker.worker), waiting, "at {now}");
            assert!(waiting == 0 || !self.is_closed, "nothing waits any more");
        }
        let models = |w: &FleetWorker| {
            let members = (0..).map(MemberId).zip(w.models.clone());
            members
                .map(|(member, model)| ((w.worker, member), model))
                .collect::<Vec<_>>()
        };
        for (of, model) in self.workers.iter().flat_map(models) {
            let weights = self.config.models[model.idx()].weights;
            let is_held = self.fleet.placement.is_held(weights);
            assert_eq!(self.announced.contains(&of), is_held, "{of:?} at {now}");
        }
        if let Some(at) = self.fleet.next_wakeup(now) {
            assert!(at > now, "a wake-up lies ahead");
            let known = self.agenda.range((now, 0)..=(at, u64::MAX));
            if !known.into_iter().any(|(_, due)| matches!(due, Due::Woken)) {
                self.push(at, Due::Woken);
            }
        }
    }

    fn obey(&mut self, now: Timestamp, command: FleetCommand<usize>) {
        match command {
            FleetCommand::Do { device, action } => {
                if let Work::Infer { model, members, .. } = &action.work {
                    for member in members {
                        let i = member.payload;
                        assert_eq!(self.stands[i], Stands::Waiting);
                        assert!(!self.have_ended[i], "{i} runs after its end");
                        assert_eq!(
                            (member.worker, member.request.id),
                            (self.asks[i].worker, self.id(i))
                        );
                        let of = &self.workers[member.worker.0 as usize];
                        assert_eq!(of.models[usize::from(self.asks[i].member)], *model);
                        let due = match member.request.deadline {
                            Timestamp::MAX => Timestamp::MAX,
                            deadline => deadline - of.downstream,
                        };
                        assert!(action.expected_end <= due, "modules downstream have time");
                        self.stands[i] = Stands::Sent;
                    }
                }
                let at = now + self.config.travel;
                self.push(at, Due::Delivered(device.idx(), action));
            }
            FleetCommand::Tell {
                worker,
                gateway,
                message,
            } => {
                if let ToGateway::Holds(of, models) = message {
                    assert_eq!((of, gateway), (worker, LISTENER));
                    for (member, is_there) in models {
                        let is_new = match is_there {
                            true => self.announced.insert((of, member)),
                            false => self.announced.remove(&(of, member)),
                        };
                        assert!(is_new, "it is said once");
                    }
                    return;
                }
                let (of, id, answer) = match message {
                    ToGateway::Dropped {
                        worker,
                        request,
                        drop,
                    } => (worker, request, Answer::Dropped(drop.reason)),
                    ToGateway::Forgotten { worker, request } => {
                        (worker, request, Answer::Forgotten)
                    }
                    ToGateway::Failed {
                        worker,
                        request,
                        why,
                    } => (worker, request, Answer::Failed(why)),
                    other => panic!("no gateway expects {other:?}"),
                };
                assert_eq!((of, id.owner()), (worker, gateway));
                let is = |i: &usize| self.id(*i) == id && self.asks[*i].worker == worker;
                let i = (0..self.asks.len()).find(is).expect("it was asked");
                self.answer(now, i, answer);
            }
        }
    }
}
