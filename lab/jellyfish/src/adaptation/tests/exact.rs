//! The best answer by trying all: every set of clients of each worker, with every variant and batch size.

use spillgate_controller_policy::adaptation::Instance;

/// Clients served, and value, of the best answer.
pub(super) fn best(instance: &Instance) -> (usize, f64) {
    let n_clients = instance.clients().len();
    let values: Vec<Option<f64>> = (0..1usize << n_clients)
        .map(|set| value(instance, set))
        .collect();
    // Best values of what the workers so far serve, by set.
    let mut best: Vec<Option<f64>> = vec![None; values.len()];
    best[0] = Some(0.0);
    for _ in 0..instance.n_workers() {
        let before = best.clone();
        for (set, served) in before.iter().enumerate() {
            let Some(served) = served else { continue };
            for (more, value) in values.iter().enumerate() {
                let (Some(value), 0) = (value, set & more) else {
                    continue;
                };
                let both = &mut best[set | more];
                *both = Some(both.map_or(served + value, |known| known.max(served + value)));
            }
        }
    }
    let rates: f64 = instance.clients().iter().map(|c| c.rate).sum();
    let worth = |(set, value): (usize, Option<f64>)| value.map(|v| (set.count_ones() as usize, v));
    let all = best.into_iter().enumerate().filter_map(worth);
    let best = all.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (served, value) = best.expect("nobody can be served always");
    (served, if rates > 0.0 { value / rates } else { 0.0 })
}

/// Rate times accuracy of the best setting that serves a set.
fn value(instance: &Instance, set: usize) -> Option<f64> {
    let clients = instance.clients().iter().enumerate();
    let members: Vec<_> = clients
        .filter(|(i, _)| set >> i & 1 == 1)
        .map(|(_, c)| c)
        .collect();
    if members.is_empty() {
        return Some(0.0);
    }
    let rate: f64 = members.iter().map(|c| c.rate).sum();
    let mut best: Option<f64> = None;
    for (idx, variant) in instance.variants().iter().enumerate() {
        for (execution, batch) in variant.execution.iter().zip(1u32..) {
            let in_time = members.iter().all(|c| *execution * 2 <= c.budgets[idx]);
            let throughput = f64::from(batch) / execution.as_secs_f64();
            // Rates are rounded up to units and throughputs down; in the drawn ones that differs where a worker is full.
            let unit = instance.rate_unit();
            let units: f64 = members.iter().map(|c| (c.rate / unit - 1e-9).ceil()).sum();
            if in_time && units <= (throughput / unit + 1e-9).floor() {
                let value = rate * variant.accuracy;
                best = Some(best.map_or(value, |known| known.max(value)));
            }
        }
    }
    best
}
