//! A scenario whose devices are divided among processes, as in a topology: each has a placement of its own, and requests go by model
//! ([`Models`]).
//!
//! Requests are divided before they run: of several processes that serve a model each gets the same number of its requests. Gateways
//! look at what is under way there.

use std::time::Duration;

use spillgate_controller_policy::models::Models;
use spillgate_controller_policy::placement::PlacementName;
use spillgate_pipeline::id::{GatewayId, MemberId, ModelId, WorkerId};
use spillgate_pipeline::message::Incarnation;
use spillgate_pipeline::time::Timestamp;

use super::report::{Figures, quantile};
use super::run::{End, Outcome, run};
use super::scenario::Scenario;

/// How often gateways report what was asked for.
const REPORT_PERIOD: Duration = Duration::from_millis(100);

/// Serves a scenario by so many processes. Errors of prediction and shares are those of no single placement, and left out.
///
/// # Panics
/// When there are more processes than devices, or more models than a family may have.
pub fn run_divided(
    scenario: &Scenario,
    name: PlacementName,
    is_fair: bool,
    n_processes: u16,
) -> Figures {
    let parts = divide(scenario, n_processes);
    let devices = f64::from(scenario.system.gpus);
    let runs: Vec<(f64, Figures, Vec<Outcome>)> = (parts.iter())
        .map(|part| {
            let (figures, outcomes, _) = run(part, name, is_fair, false);
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
    }
}

/// What each process serves. Devices go to processes in turn; each is a worker to which requests go.
fn divide(scenario: &Scenario, n_processes: u16) -> Vec<Scenario> {
    let devices = scenario.system.gpus;
    assert!(n_processes <= devices, "each process has a device");
    let process_of = |device: usize| device % usize::from(n_processes);
    let mut parts: Vec<Scenario> = (0..n_processes)
        .map(|process| {
            let mut part = scenario.clone();
            let own = (0..usize::from(devices)).filter(|d| process_of(*d) == usize::from(process));
            part.resident = own.map(|d| scenario.resident[d].clone()).collect();
            part.system.gpus = part.resident.len() as u16;
            part.system.noise_seed ^= u64::from(process) << 32;
            part.arrivals.clear();
            part.clients.clear();
            part
        })
        .collect();
    let workers: Vec<WorkerId> = (0..u32::from(devices)).map(WorkerId).collect();
    let mut models = Models::new(mean_execution(scenario));
    let member = |model: ModelId| {
        MemberId(u16::try_from(model.0).expect("no more models than a family may have"))
    };
    let mut counts = vec![0u64; scenario.models.len()];
    let mut changed: Vec<ModelId> = Vec::new();
    let mut reports_at = Timestamp::ZERO + REPORT_PERIOD;
    for arrival in &scenario.arrivals {
        while arrival.at >= reports_at {
            changed.sort_unstable();
            changed.dedup();
            let asked = changed.drain(..).map(|m| (member(m), counts[m.idx()]));
            let asked = asked.collect();
            models.take(reports_at, GatewayId(0), Incarnation::default(), asked);
            models.look(reports_at, &workers);
            reports_at = reports_at + REPORT_PERIOD;
        }
        let of = models.workers_of(member(arrival.model), &workers);
        let turn = counts[arrival.model.idx()] as usize % of.len();
        counts[arrival.model.idx()] += 1;
        changed.push(arrival.model);
        parts[process_of(of[turn].0 as usize)]
            .arrivals
            .push(*arrival);
    }
    for client in &scenario.clients {
        let of = models.workers_of(member(client.model), &workers);
        parts[process_of(of[0].0 as usize)].clients.push(*client);
    }
    parts
}

/// Of a request alone, over all requests.
fn mean_execution(scenario: &Scenario) -> Duration {
    let alone = |model: ModelId| scenario.models[model.idx()].execution[0].as_secs_f64();
    let sum: f64 = scenario.arrivals.iter().map(|a| alone(a.model)).sum();
    Duration::from_secs_f64(sum / scenario.arrivals.len().max(1) as f64)
}
