//! A scenario whose devices are divided among processes, as in a topology: each has a placement of its own, and requests go to them by
//! the dispatch policy `affinity`, or by another one.
//!
//! One gateway sends the requests ([`Dispatcher`]) and knows at once what has ended and what is in memory. Clients with a closed loop keep to one process.

use std::collections::BTreeMap;
use std::time::Duration;

use spillgate_controller_policy::dispatcher::Dispatcher;
use spillgate_pipeline::id::{MemberId, ModelId, RequestId, WorkerId};
use spillgate_pipeline::policy::DispatchPolicyName;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::BatchShape;
use spillgate_worker_policy::weights::placement::PlacementPolicy;

use super::report::{Figures, quantile};
use super::run::{End, Outcome, Run};
use super::scenario::{Arrival, Scenario};

/// Serves a scenario by so many processes. Errors of prediction and shares are those of no single placement, and left out.
///
/// # Panics
/// When there are more processes than devices, or more models than a family may have.
pub fn run_divided(
    scenario: &Scenario,
    name: PlacementPolicy,
    is_fair: bool,
    (n_processes, dispatch): (u16, DispatchPolicyName),
) -> Figures {
    let parts = parts(scenario, n_processes);
    let mut sender = Sender::new(scenario, n_processes, dispatch);
    let mut live: Vec<Run<'_>> = (parts.iter())
        .map(|part| Run::new(part, name, is_fair, false))
        .collect();
    for arrival in &scenario.arrivals {
        for (process, run) in live.iter_mut().enumerate() {
            run.advance(arrival.at);
            sender.ended(process, &mut run.ended);
        }
        for (process, run) in live.iter().enumerate() {
            sender.holds(process, arrival.model, run.holds(arrival.model));
        }
        let (process, request) = sender.send(arrival);
        let of_part = live[process].ask(arrival.at, arrival.model, arrival.slo, None);
        sender.is_known_as(request, process, of_part);
    }
    let devices = f64::from(scenario.system.gpus);
    let runs: Vec<(f64, Figures, Vec<Outcome>)> = (parts.iter().zip(live))
        .map(|(part, mut run)| {
            run.drain();
            let (figures, outcomes, _) = run.finish(name);
            (f64::from(part.system.gpus) / devices, figures, outcomes)
        })
        .collect();
    let warm = Timestamp::from_ns((scenario.system.warm_s * 1e9) as u64);
    let all = runs.iter().flat_map(|(_, _, outcomes)| outcomes);
    let latencies = all.filter_map(|o| match o.end {
        End::Answered(latency) if o.at >= warm && latency <= o.slo => {
            Some(latency.as_nanos() as i64)
        }
        _ => None,
    });
    let mut latencies: Vec<i64> = latencies.collect();
    latencies.sort_unstable();
    let sum = |of: fn(&Figures) -> usize| runs.iter().map(|(_, f, _)| of(f)).sum::<usize>();
    let mean = |of: fn(&Figures) -> f64| runs.iter().map(|(part, f, _)| part * of(f)).sum();
    let (requests, in_time) = (sum(|f| f.requests), sum(|f| f.in_time));
    let batches: f64 = (runs.iter())
        .map(|(_, f, _)| (f.in_time + f.late) as f64 / f.mean_batch.max(1.0))
        .sum();
    Figures {
        placement: name.name(),
        requests,
        in_time,
        share: in_time as f64 / requests.max(1) as f64,
        goodput: runs.iter().map(|(_, f, _)| f.goodput).sum(),
        late: sum(|f| f.late),
        cancelled: sum(|f| f.cancelled),
        refused: sum(|f| f.refused),
        refused_actions: sum(|f| f.refused_actions),
        loads: sum(|f| f.loads),
        mean_batch: (in_time + sum(|f| f.late)) as f64 / batches.max(1.0),
        exec_utilisation: mean(|f| f.exec_utilisation),
        link_utilisation: mean(|f| f.link_utilisation),
        p50_ms: quantile(&latencies, 0.5),
        p99_ms: quantile(&latencies, 0.99),
        p9999_ms: quantile(&latencies, 0.9999),
        error_p01_ms: None,
        error_p99_ms: None,
        completion_p99_ms: None,
        least_share: None,
        background: 0,
    }
}

/// The devices and clients of each process. Devices go to processes in turn.
fn parts(scenario: &Scenario, n_processes: u16) -> Vec<Scenario> {
    let devices = scenario.system.gpus;
    assert!(n_processes <= devices, "each process has a device");
    let part = |process: u16| {
        let mut part = scenario.clone();
        let own = (process..devices).step_by(usize::from(n_processes));
        part.resident = own
            .map(|d| scenario.resident[usize::from(d)].clone())
            .collect();
        part.system.gpus = part.resident.len() as u16;
        part.system.noise_seed ^= u64::from(process) << 32;
        part.arrivals.clear();
        part.clients
            .retain(|client| client.model.0 % u32::from(n_processes) == u32::from(process));
        part
    };
    (0..n_processes).map(part).collect()
}

fn member(model: ModelId) -> MemberId {
    MemberId(u16::try_from(model.0).expect("no more models than a family may have"))
}

/// A gateway.
struct Sender {
    n_processes: u32,
    workers: Vec<WorkerId>,
    dispatcher: Dispatcher,
    /// By process and the request's number there.
    sent: BTreeMap<(usize, RequestId), RequestId>,
    next: u64,
}

impl Sender {
    fn new(scenario: &Scenario, n_processes: u16, dispatch: DispatchPolicyName) -> Self {
        let workers: Vec<WorkerId> = (0..u32::from(scenario.system.gpus)).map(WorkerId).collect();
        let execution = mean_execution(scenario);
        let shape = BatchShape { size: 1, execution };
        let mut dispatcher = Dispatcher::new(dispatch, shape, &workers);
        workers.iter().for_each(|worker| dispatcher.found(*worker));
        Sender {
            n_processes: u32::from(n_processes),
            workers,
            dispatcher,
            sent: BTreeMap::new(),
            next: 0,
        }
    }

    /// Requests have ended at a process.
    fn ended(&mut self, process: usize, ended: &mut Vec<RequestId>) {
        for request in ended.drain(..) {
            if let Some(request) = self.sent.remove(&(process, request)) {
                self.dispatcher.take_back(request);
            }
        }
    }

    /// A process has a model in memory, or not.
    fn holds(&mut self, process: usize, model: ModelId, is_there: bool) {
        let own = self.workers.iter().skip(process);
        for worker in own.step_by(self.n_processes as usize) {
            self.dispatcher.holds(*worker, &[(member(model), is_there)]);
        }
    }

    /// Chooses the process for a request, and gives the request a number.
    fn send(&mut self, arrival: &Arrival) -> (usize, RequestId) {
        let id = RequestId(self.next);
        self.next += 1;
        let request = Request {
            member: member(arrival.model),
            ..Request::new(id, arrival.at, arrival.at + arrival.slo)
        };
        let worker = self.dispatcher.send(arrival.at, &request);
        let worker = worker.expect("all workers are up");
        ((worker.0 % self.n_processes) as usize, id)
    }

    /// The process knows the request by that number. It may have ended there as it came.
    fn is_known_as(&mut self, request: RequestId, process: usize, of_part: RequestId) {
        self.sent.insert((process, of_part), request);
    }
}

/// Of a request alone, over all requests.
fn mean_execution(scenario: &Scenario) -> Duration {
    let alone = |model: ModelId| scenario.models[model.idx()].execution[0].as_secs_f64();
    let sum: f64 = scenario.arrivals.iter().map(|a| alone(a.model)).sum();
    Duration::from_secs_f64(sum / scenario.arrivals.len().max(1) as f64)
}
