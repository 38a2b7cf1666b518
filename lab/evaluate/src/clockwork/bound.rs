//! What no placement exceeds.

use spillgate_sim::placement::{Scenario, ScenarioModel};

/// Requests in time a second that no placement exceeds. Devices run nothing but the cheapest requests that are asked for, each in batches of
/// the size with the least time a request.
///
/// A request counts that arrives within the span from the warm-up to the end. One of the list is executed within the span and the longest
/// SLO after it, so devices have that much time. A client has no more requests under way at the end than its concurrency, with an SLO or
/// without, and these come on top. Durations are never below their profile.
pub(super) fn bound(scenario: &Scenario) -> f64 {
    let system = &scenario.system;
    let span = system.end_s - system.warm_s;
    let mut asked = vec![Asked::default(); scenario.models.len()];
    let (mut after_s, mut under_way): (f64, f64) = (0.0, 0.0);
    for arrival in &scenario.arrivals {
        if arrival.at.as_secs_f64() >= system.warm_s {
            let slo_s = arrival.slo.as_secs_f64();
            asked[arrival.model.idx()].add(1.0, f64::INFINITY, slo_s);
            after_s = after_s.max(slo_s);
        }
    }
    for client in &scenario.clients {
        let concurrency = f64::from(client.concurrency);
        asked[client.model.idx()].add(f64::INFINITY, concurrency, client.slo.as_secs_f64());
        under_way += concurrency;
    }
    let models = asked.iter().zip(&scenario.models);
    let costs = models.filter_map(|(asked, model)| {
        let each = least_s(scenario, model, asked)?;
        Some((each, asked.requests))
    });
    let mut costs: Vec<(f64, f64)> = costs.collect();
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = (span + after_s) * f64::from(system.gpus);
    let mut served = under_way;
    for (each, requests) in costs {
        let n = requests.min(left / each);
        served += n;
        left -= n * each;
    }
    served / span
}

/// What a model is asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    requests: f64,
    /// Most of them that wait at one time.
    at_once: f64,
    longest_slo_s: f64,
}

impl Asked {
    fn add(&mut self, requests: f64, at_once: f64, slo_s: f64) {
        self.requests += requests;
        self.at_once += at_once;
        self.longest_slo_s = self.longest_slo_s.max(slo_s);
    }
}

/// The least device time of a request in time, in s. None where none can be in time.
fn least_s(scenario: &Scenario, model: &ScenarioModel, asked: &Asked) -> Option<f64> {
    let copied_s = (model.input_kb + model.output_kb) / 1e6 / scenario.system.link_mb_per_ms;
    let sizes = scenario.sizes.iter().map(|size| f64::from(*size));
    let times = model.execution.iter().map(|e| e.as_secs_f64()).zip(sizes);
    let possible = times.filter(|(time, size)| {
        *size <= asked.at_once && time + copied_s * size <= asked.longest_slo_s
    });
    let each = possible.map(|(time, size)| time / size);
    each.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_pipeline::id::ModelId;
    use spillgate_pipeline::time::Timestamp;
    use spillgate_sim::placement::{Arrival, ClosedLoop};

    use super::super::scenarios::{self, Table};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One device for 10 s, and two models: 10 ms alone and 40 ms for a batch of 16; 20 ms and 160 ms.
    fn scenario() -> Scenario {
        let csv = "family,model,input_kb,output_kb,weights_mb,transfer_ms,b1,b2,b4,b8,b16\n\
                   A,resnet50_v1,0,0,16,1,10,12,16,24,40\n";
        let table = Table::parse(csv, "table").unwrap();
        let mut scenario = scenarios::copies(&table, 100.0, 10.0).unwrap();
        scenario.models.truncate(2);
        scenario.models[1].execution = [20, 40, 60, 100, 160].map(|n| n * MS).to_vec();
        scenario.clients.clear();
        scenario.system.warm_s = 0.0;
        scenario.system.end_s = 10.0;
        scenario
    }

    fn arrivals(n: u64, model: u32, slo: Duration) -> Vec<Arrival> {
        let each = |i| Arrival {
            at: Timestamp::from_ns(i),
            model: ModelId(model),
            slo,
        };
        (0..n).map(each).collect()
    }

    fn check(bound: f64, expected: f64) {
        assert!((bound - expected).abs() < 1e-6, "{bound} is not {expected}");
    }

    #[test]
    fn what_is_executed_after_the_end_counts() {
        let mut scenario = scenario();
        // 2.5 ms each in batches of 16, in 10.1 s.
        scenario.arrivals = arrivals(100_000, 0, 100 * MS);
        check(bound(&scenario), 404.0);
    }

    #[test]
    fn no_more_is_served_than_is_asked_for_the_cheapest_first() {
        let mut scenario = scenario();
        scenario.arrivals = arrivals(40, 0, 100 * MS);
        check(bound(&scenario), 4.0);
        // They take 0.1 s. The other model's batches of 8 take 12.5 ms a request: its batches of 16 end after the SLO.
        scenario.arrivals.extend(arrivals(100_000, 1, 100 * MS));
        check(bound(&scenario), 4.0 + 80.0);
    }

    #[test]
    fn what_cannot_be_in_time_does_not_count() {
        let mut scenario = scenario();
        scenario.arrivals = arrivals(100, 1, 19 * MS);
        check(bound(&scenario), 0.0);
    }

    #[test]
    fn clients_without_an_slo_have_their_concurrency_under_way_at_the_end() {
        let mut scenario = scenario();
        scenario.clients = vec![ClosedLoop {
            model: ModelId(0),
            concurrency: 4,
            slo: Duration::from_secs(1_000_000_000),
        }];
        // 4 ms each in batches of 4, and 4 at the end.
        check(bound(&scenario), 250.4);
    }
}
