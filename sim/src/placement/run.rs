//! Drives a placement and its devices through a scenario.

use std::time::Duration;

use spillgate_pipeline::action::{self, Action, Work};
use spillgate_pipeline::id::{ActionId, DeviceId, ModelId, RequestId, WeightsId};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::actions::Actions;
use spillgate_worker_policy::weights::placement::{
    DeviceSpec, Ended, Model, Placement, PlacementCommand, PlacementConfig, PlacementEvent,
    PlacementPolicy, Weights,
};

use super::device::{Due, Held, PlacedDevice};
use super::hardware::{Noises, Profiled, copy, only_model};
use super::report::{Figures, Got, Logged, error, least_share, quantile};
use super::scenario::{NO_SLO, Scenario};
use crate::agenda::{Agenda, Rank};

/// From a request of a client that ends without an answer to its next one passes at least this time.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) enum Event {
    /// The next request of the list.
    Offer,
    /// A request of the closed-loop client of that ordinal.
    Ask(usize),
    /// What was due on a device.
    Device {
        device: usize,
        due: Due,
    },
    Wakeup,
    Deliver {
        device: usize,
        action: Box<Action<RequestId>>,
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
    devices: Vec<PlacedDevice<RequestId>>,
    noises: Vec<Noises>,
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
    /// Time for which devices executed and for which links were in use, of the time that counts.
    executed: Duration,
    transferred: Duration,
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
    name: PlacementPolicy,
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
        name: PlacementPolicy,
        is_fair: bool,
        logs: bool,
    ) -> Self {
        let system = &scenario.system;
        let travel = Duration::from_nanos((system.net_ms * 1e6) as u64);
        let second = |s: f64| Timestamp::from_ns((s * 1e9) as u64);
        let weights = scenario.models.iter().map(|m| Weights {
            pages: m.pages,
            load: m.load,
        });
        let models = (0..).zip(&scenario.models).map(|(i, m)| Model {
            weights: WeightsId(i),
            neighbours: Vec::new(),
            execution: m.execution.clone(),
            input: copy(m.input_kb, system.link_mb_per_ms),
        });
        let devices = scenario.resident.iter().map(|resident| DeviceSpec {
            pages: system.pages_per_gpu,
            resident: resident.clone(),
        });
        let config = PlacementConfig {
            sizes: scenario.sizes.clone(),
            weights: weights.collect(),
            models: models.collect(),
            devices: devices.collect(),
            travel,
            is_fair,
            background_time: scenario.background_time(),
        };
        let mut run = Run {
            scenario,
            agenda: Agenda::default(),
            placement: Placement::new(name, config),
            devices: devices_of(scenario),
            noises: (0..usize::from(system.gpus))
                .map(|i| Noises::new(scenario, i))
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
            executed: Duration::ZERO,
            transferred: Duration::ZERO,
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
        self.placement.is_held(self.placement.weights_of(model))
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

fn devices_of(scenario: &Scenario) -> Vec<PlacedDevice<RequestId>> {
    let pages: Vec<u32> = scenario.models.iter().map(|m| m.pages).collect();
    let cache = scenario.system.pages_per_gpu;
    let actions = scenario
        .resident
        .iter()
        .map(|resident| Actions::new(cache, pages.clone(), resident));
    actions.map(PlacedDevice::new).collect()
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
            Event::Device {
                device,
                due: Due::Done(action, ended),
            } => self.done(now, device, action, ended),
            Event::Device { device, due } => {
                self.on_device(now, device, |d, hardware, out| {
                    d.on(now, &due, hardware, out);
                });
            }
            Event::Deliver { device, action } => self.receive(now, device, *action),
            Event::Wakeup => {
                if self.wakes_at.is_some_and(|at| at <= now) {
                    self.wakes_at = None;
                    self.tell(now, PlacementEvent::Wakeup);
                }
            }
        }
    }

    /// A device gets an action.
    fn receive(&mut self, now: Timestamp, device: usize, action: Action<RequestId>) {
        let sent = match &action.work {
            Work::Infer {
                weights, members, ..
            } => Some(("send_infer", *weights, members.len())),
            Work::Load(weights) => Some(("send_load", *weights, 0)),
            Work::Unload(_) => None,
        };
        if let Some((event, weights, size)) = sent {
            self.log(Logged {
                at: now,
                device,
                event,
                model: only_model(weights),
                size,
                window: action.window,
                expected_end: action.expected_end,
            });
        }
        self.on_device(now, device, |d, hardware, out| {
            d.receive(now, action, hardware, out);
        });
    }

    fn on_device(
        &mut self,
        now: Timestamp,
        device: usize,
        act: impl FnOnce(&mut PlacedDevice<RequestId>, &mut Profiled<'_>, &mut Vec<(Timestamp, Due)>),
    ) {
        let mut hardware = Profiled {
            scenario: self.scenario,
            noises: &mut self.noises[device],
        };
        let mut all_due = Vec::new();
        act(&mut self.devices[device], &mut hardware, &mut all_due);
        for (at, due) in all_due {
            let at = match due {
                Due::Executed(action) => {
                    self.executed += self.counted(now, at);
                    self.log_begun(now, device, "exec", action);
                    at
                }
                Due::Loaded(action, _) => {
                    self.transferred += self.counted(now, at);
                    self.log_begun(now, device, "load", action);
                    at
                }
                Due::Done(..) => at + self.travel,
                Due::InputReady(_) | Due::Wakeup => at,
            };
            self.agenda
                .push(at, Rank::Device, Event::Device { device, due });
        }
    }

    /// The part of an action that falls into the time that counts.
    fn counted(&self, from: Timestamp, to: Timestamp) -> Duration {
        to.min(self.end).since(from.max(self.warm_until))
    }

    fn log(&mut self, logged: Logged) {
        if let Some(log) = &mut self.log {
            log.push(logged);
        }
    }

    /// Notes an action as it begins.
    fn log_begun(&mut self, now: Timestamp, device: usize, event: &'static str, action: ActionId) {
        if let Some(held) = self.devices[device].held(action) {
            self.log(Logged {
                at: now,
                device,
                event,
                model: only_model(held.weights),
                size: held.members.len(),
                window: held.window,
                expected_end: held.expected_end,
            });
        }
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

    /// The placement hears what became of an action.
    fn done(&mut self, now: Timestamp, device: usize, action: ActionId, ended: action::Ended) {
        let Some(held) = self.devices[device].take(action) else {
            return;
        };
        if held.model.is_some() {
            self.inferred(now, device, (action, held), &ended);
            return;
        }
        let device = DeviceId(device as u16);
        let took = match ended {
            action::Ended::Ran { took, .. } => Some(took),
            action::Ended::Refused(_) | action::Ended::Failed(_) => None,
        };
        let event = PlacementEvent::Loaded {
            device,
            action,
            took,
        };
        self.tell(now, event);
    }

    fn inferred(
        &mut self,
        now: Timestamp,
        device: usize,
        (action, held): (ActionId, Held<RequestId>),
        ended: &action::Ended,
    ) {
        let device = DeviceId(device as u16);
        let action::Ended::Ran { at, took } = *ended else {
            self.refused_actions += 1;
            let event = PlacementEvent::Inferred {
                device,
                action,
                ended: Ended::Refused,
            };
            return self.tell_of(now, event, &held.members);
        };
        for request in &held.members {
            let latency = now.since(self.asked[request.0 as usize].at);
            self.end(now, *request, End::Answered(latency));
        }
        if now >= self.warm_until {
            let got = &mut self.got[only_model(held.weights).idx()];
            got.served += held.members.len();
            got.time += took;
            self.batches.0 += 1;
            self.batches.1 += held.members.len();
            self.errors.push(error(took, held.estimate));
            let completion = at.as_ns() as i64 - held.expected_end.as_ns() as i64;
            self.completions.push(completion);
        }
        let ended = Ended::Ran { at, took };
        let event = PlacementEvent::Inferred {
            device,
            action,
            ended,
        };
        self.tell(now, event);
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
                    self.loads +=
                        usize::from(matches!(action.work, Work::Load(_)) && now >= self.warm_until);
                    let device = device.idx();
                    if self.travel.is_zero() {
                        self.receive(now, device, action);
                    } else {
                        let action = Box::new(action);
                        let event = Event::Deliver { device, action };
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

    pub(super) fn finish(mut self, name: PlacementPolicy) -> (Figures, Vec<Outcome>, Vec<Logged>) {
        let counted = self.asked.iter().filter(|a| a.at >= self.warm_until);
        let (counted, background): (Vec<&Outcome>, Vec<&Outcome>) =
            counted.partition(|a| a.slo < NO_SLO);
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
            exec_utilisation: part(self.executed),
            link_utilisation: part(self.transferred),
            p50_ms: quantile(&latencies, 0.5),
            p99_ms: quantile(&latencies, 0.99),
            p9999_ms: quantile(&latencies, 0.9999),
            error_p01_ms: quantile(&self.errors, 0.01),
            error_p99_ms: quantile(&self.errors, 0.99),
            completion_p99_ms: quantile(&self.completions, 0.99),
            least_share: least_share(capacity, &self.got),
            background: background.iter().filter(|a| a.is_in_time()).count(),
        };
        (figures, self.asked, self.log.unwrap_or_default())
    }
}
