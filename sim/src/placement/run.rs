//! Drives a placement and its devices through a scenario.

use std::time::Duration;

use spillgate_controller_policy::placement::{
    DeviceSpec, Ended, Model, Placement, PlacementCommand, PlacementConfig, PlacementEvent,
    PlacementName,
};
use spillgate_pipeline::action::Work;
use spillgate_pipeline::id::{ActionId, DeviceId, ModelId, RequestId};
use spillgate_pipeline::time::Timestamp;

use super::agenda::{Agenda, Rank};
use super::device::{Device, World, copy};
use super::report::{Figures, Got, Logged, error, least_share, quantile};
use super::scenario::Scenario;

/// From a request of a client that ends without an answer to its next one passes at least this time.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) enum Event {
    /// The next request of the list.
    Offer,
    /// A request of the closed-loop client of that ordinal.
    Ask(usize),
    InputReady {
        device: usize,
        action: ActionId,
    },
    Executed {
        device: usize,
        action: ActionId,
    },
    LoadEnded {
        device: usize,
        action: ActionId,
        took: Duration,
    },
    DeviceWakeup {
        device: usize,
    },
    /// The placement hears of an INFER.
    Result {
        device: usize,
        action: ActionId,
        ended_at: Option<Timestamp>,
    },
    /// The placement hears of a LOAD.
    LoadResult {
        device: usize,
        action: ActionId,
        took: Option<Duration>,
    },
    Wakeup,
    Deliver {
        device: usize,
        action: Box<spillgate_pipeline::action::Action<RequestId>>,
        estimate: Duration,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not yet.
    Open,
    /// Answered after that time.
    Answered(Duration),
    /// Ended without an answer.
    Cancelled,
    /// Ended by a refused action.
    Refused,
}

/// A request, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it arrived.
    pub at: Timestamp,
    /// Its model.
    pub model: ModelId,
    /// The time until its deadline.
    pub slo: Duration,
    /// The closed-loop client that sent it.
    pub client: Option<usize>,
    /// How it ended.
    pub end: End,
}

impl Outcome {
    /// Whether it was answered in time.
    pub fn is_in_time(&self) -> bool {
        matches!(self.end, End::Answered(latency) if latency <= self.slo)
    }
}

pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    agenda: Agenda<Event>,
    placement: Placement,
    devices: Vec<Device>,
    asked: Vec<Outcome>,
    offered: usize,
    travel: Duration,
    warm_until: Timestamp,
    end: Timestamp,
    wakes_at: Option<Timestamp>,
    log: Option<Vec<Logged>>,
    batches: (usize, usize),
    loads: usize,
    refused_actions: usize,
    errors: Vec<i64>,
    completions: Vec<i64>,
    /// By model.
    got: Vec<Got>,
    /// Requests that have ended since these were taken.
    pub(super) ended: Vec<RequestId>,
}

/// Serves a scenario by a placement, with or without its fair shares. Gives its figures, its requests and, if asked for, the actions in order.
pub fn run(
    scenario: &Scenario,
    name: PlacementName,
    is_fair: bool,
    logs: bool,
) -> (Figures, Vec<Outcome>, Vec<Logged>) {
    let mut run = Run::new(scenario, name, is_fair, logs);
    run.drain();
    run.finish(name)
}

impl<'a> Run<'a> {
    /// Nothing has happened yet.
    pub(super) fn new(
        scenario: &'a Scenario,
        name: PlacementName,
        is_fair: bool,
        logs: bool,
    ) -> Self {
        let system = &scenario.system;
        let travel = Duration::from_nanos((system.net_ms * 1e6) as u64);
        let second = |s: f64| Timestamp::from_ns((s * 1e9) as u64);
        let models = scenario.models.iter().map(|m| Model {
            pages: m.pages,
            load: m.load,
            execution: m.execution.clone(),
            input: copy(m.input_kb, system.link_mb_per_ms),
        });
        let devices = scenario.resident.iter().map(|resident| DeviceSpec {
            pages: system.pages_per_gpu,
            resident: resident.clone(),
        });
        let config = PlacementConfig {
            sizes: scenario.sizes.clone(),
            models: models.collect(),
            devices: devices.collect(),
            travel,
            is_fair,
            background_time: Duration::MAX,
        };
        let mut run = Run {
            scenario,
            agenda: Agenda::new(),
            placement: Placement::new(name, config),
            devices: (0..usize::from(system.gpus))
                .map(|i| Device::new(scenario, i))
                .collect(),
            asked: Vec::with_capacity(scenario.arrivals.len()),
            offered: 0,
            travel,
            warm_until: second(system.warm_s),
            end: second(system.end_s),
            wakes_at: None,
            log: logs.then(Vec::new),
            batches: (0, 0),
            loads: 0,
            refused_actions: 0,
            errors: Vec::new(),
            completions: Vec::new(),
            got: vec![Got::default(); scenario.models.len()],
            ended: Vec::new(),
        };
        run.offer_next();
        for (i, client) in scenario.clients.iter().enumerate() {
            for _ in 0..client.concurrency {
                run.agenda
                    .push(Timestamp::ZERO, Rank::Arrival, Event::Ask(i));
            }
        }
        run
    }

    /// Whether a device holds the weights of a model, or is to.
    pub(super) fn holds(&self, model: ModelId) -> bool {
        self.placement.is_held(model)
    }

    /// Goes on to the end.
    pub(super) fn drain(&mut self) {
        while let Some((now, event)) = self.agenda.pop() {
            self.on_event(now, event);
        }
    }

    /// Goes on to the moment when a request comes that is in no list: what happens before happens first.
    pub(super) fn advance(&mut self, now: Timestamp) {
        while let Some((at, event)) = self.agenda.pop_before(now, Rank::Arrival) {
            self.on_event(at, event);
        }
    }
}

impl Run<'_> {
    fn offer_next(&mut self) {
        if let Some(arrival) = self.scenario.arrivals.get(self.offered) {
            self.agenda.push(arrival.at, Rank::Arrival, Event::Offer);
        }
    }

    fn on_event(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Offer => {
                let arrival = self.scenario.arrivals[self.offered];
                self.offered += 1;
                self.offer_next();
                let _ = self.ask(now, arrival.model, arrival.slo, None);
            }
            Event::Ask(client) => {
                let asks = self.scenario.clients[client];
                let _ = self.ask(now, asks.model, asks.slo, Some(client));
            }
            Event::InputReady { device, action } => {
                self.on_device(device, |d, world| d.input_ready(now, world, action));
            }
            Event::Executed { device, action } => {
                self.on_device(device, |d, world| d.executed(now, world, action));
            }
            Event::LoadEnded {
                device,
                action,
                took,
            } => self.on_device(device, |d, world| d.loaded(now, world, action, took)),
            Event::DeviceWakeup { device } => {
                self.on_device(device, |d, world| d.wake(now, world));
            }
            Event::Deliver {
                device,
                action,
                estimate,
            } => self.on_device(device, |d, world| d.receive(now, world, *action, estimate)),
            Event::Result {
                device,
                action,
                ended_at,
            } => self.result(now, device, action, ended_at),
            Event::LoadResult {
                device,
                action,
                took,
            } => {
                self.devices[device].held.swap_remove(&action);
                let device = DeviceId(device as u16);
                self.tell(
                    now,
                    PlacementEvent::Loaded {
                        device,
                        action,
                        took,
                    },
                );
            }
            Event::Wakeup => {
                if self.wakes_at.is_some_and(|at| at <= now) {
                    self.wakes_at = None;
                    self.tell(now, PlacementEvent::Wakeup);
                }
            }
        }
    }

    fn on_device(&mut self, device: usize, act: impl FnOnce(&mut Device, &mut World<'_>)) {
        let mut world = World {
            scenario: self.scenario,
            agenda: &mut self.agenda,
            counts: (self.warm_until, self.end),
            log: self.log.as_mut(),
        };
        act(&mut self.devices[device], &mut world);
    }

    /// A request comes. Returns its id.
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        model: ModelId,
        slo: Duration,
        client: Option<usize>,
    ) -> RequestId {
        let request = RequestId(self.asked.len() as u64);
        self.asked.push(Outcome {
            at: now,
            model,
            slo,
            client,
            end: End::Open,
        });
        let deadline = now + slo;
        self.tell(
            now,
            PlacementEvent::Arrived {
                request,
                model,
                deadline,
            },
        );
        request
    }

    fn end(&mut self, now: Timestamp, request: RequestId, end: End) {
        let asked = &mut self.asked[request.0 as usize];
        assert_eq!(asked.end, End::Open, "{request} ended twice");
        asked.end = end;
        self.ended.push(request);
        if let Some(client) = asked.client
            && now < self.end
        {
            let again = match end {
                End::Answered(_) => now,
                // One that ended as it came would come and end at one moment for ever.
                _ => now.max(asked.at + PAUSE),
            };
            self.agenda.push(again, Rank::Arrival, Event::Ask(client));
        }
    }

    fn result(
        &mut self,
        now: Timestamp,
        device: usize,
        action: ActionId,
        ended_at: Option<Timestamp>,
    ) {
        let Some(held) = self.devices[device].held.swap_remove(&action) else {
            return;
        };
        let ended = match ended_at {
            None => {
                self.refused_actions += 1;
                Ended::Refused
            }
            Some(at) => {
                for request in &held.members {
                    let latency = now.since(self.asked[request.0 as usize].at);
                    self.end(now, *request, End::Answered(latency));
                }
                if now >= self.warm_until {
                    let got = &mut self.got[held.model.idx()];
                    got.served += held.members.len();
                    got.time += held.took;
                    self.batches.0 += 1;
                    self.batches.1 += held.members.len();
                    self.errors.push(error(held.took, held.estimate));
                    let completion = at.as_ns() as i64 - held.expected_end.as_ns() as i64;
                    self.completions.push(completion);
                }
                let took = held.took;
                Ended::Ran { at, took }
            }
        };
        let was_refused = ended == Ended::Refused;
        let device = DeviceId(device as u16);
        let event = PlacementEvent::Inferred {
            device,
            action,
            ended,
        };
        let refused = if was_refused {
            held.members
        } else {
            Vec::new()
        };
        self.tell_of(now, event, &refused);
    }

    fn tell(&mut self, now: Timestamp, event: PlacementEvent) {
        self.tell_of(now, event, &[]);
    }

    /// Tells the placement of an event. Those of `refused` that it cancels at once are refused.
    fn tell_of(&mut self, now: Timestamp, event: PlacementEvent, refused: &[RequestId]) {
        let mut out = Vec::new();
        self.placement.on_event(now, event, &mut out);
        for command in out {
            match command {
                PlacementCommand::Do { device, action } => {
                    let estimate = match &action.work {
                        Work::Infer { .. } => action.expected_end.since(action.starts_at),
                        Work::Load(_) | Work::Unload(_) => Duration::ZERO,
                    };
                    self.loads +=
                        usize::from(matches!(action.work, Work::Load(_)) && now >= self.warm_until);
                    let device = device.idx();
                    if self.travel.is_zero() {
                        self.on_device(device, |d, world| d.receive(now, world, action, estimate));
                    } else {
                        let action = Box::new(action);
                        let event = Event::Deliver {
                            device,
                            action,
                            estimate,
                        };
                        self.agenda.push(now + self.travel, Rank::Device, event);
                    }
                }
                PlacementCommand::Cancel { request } => {
                    let end = match refused.contains(&request) {
                        true => End::Refused,
                        false => End::Cancelled,
                    };
                    self.end(now, request, end);
                }
            }
        }
        if let Some(at) = self.placement.next_wakeup(now)
            && self.wakes_at.is_none_or(|w| at < w)
        {
            self.wakes_at = Some(at);
            self.agenda.push(at, Rank::Wakeup, Event::Wakeup);
        }
    }

    pub(super) fn finish(mut self, name: PlacementName) -> (Figures, Vec<Outcome>, Vec<Logged>) {
        let counted = self.asked.iter().filter(|a| a.at >= self.warm_until);
        let counted: Vec<&Outcome> = counted.collect();
        let count = |is: fn(&Outcome) -> bool| counted.iter().filter(|a| is(a)).count();
        let in_time = count(Outcome::is_in_time);
        let latencies = counted.iter().filter_map(|a| match a.end {
            End::Answered(latency) if latency <= a.slo => Some(latency.as_nanos() as i64),
            _ => None,
        });
        let mut latencies: Vec<i64> = latencies.collect();
        latencies.sort_unstable();
        self.errors.sort_unstable();
        self.completions.sort_unstable();
        let span = self.end.since(self.warm_until).as_secs_f64();
        let device_time = span * self.devices.len() as f64;
        for asked in &counted {
            self.got[asked.model.idx()].asked += 1;
        }
        let capacity = Duration::from_secs_f64(device_time);
        let part = |time: Duration| time.as_secs_f64() / device_time;
        let figures = Figures {
            placement: name.name(),
            requests: counted.len(),
            in_time,
            share: in_time as f64 / counted.len().max(1) as f64,
            goodput: in_time as f64 / span,
            late: count(|a| matches!(a.end, End::Answered(l) if l > a.slo)),
            cancelled: count(|a| a.end == End::Cancelled),
            refused: count(|a| a.end == End::Refused),
            refused_actions: self.refused_actions,
            loads: self.loads,
            mean_batch: self.batches.1 as f64 / self.batches.0.max(1) as f64,
            exec_utilisation: part(self.devices.iter().map(|d| d.executed).sum()),
            link_utilisation: part(self.devices.iter().map(|d| d.transferred).sum()),
            p50_ms: quantile(&latencies, 0.5),
            p99_ms: quantile(&latencies, 0.99),
            p9999_ms: quantile(&latencies, 0.9999),
            error_p01_ms: quantile(&self.errors, 0.01),
            error_p99_ms: quantile(&self.errors, 0.99),
            completion_p99_ms: quantile(&self.completions, 0.99),
            least_share: least_share(capacity, &self.got),
        };
        (figures, self.asked, self.log.unwrap_or_default())
    }
}
