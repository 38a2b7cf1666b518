mod divided;
mod errors;
mod given_way;
mod runs;
mod shares;

use std::time::Duration;

use spillgate_worker_policy::weights::placement::PlacementPolicy;

use super::*;

pub(super) const MODELS: &str =
    "id,name,weights_mb,pages,load_ms,input_kb,output_kb,exec_ms_b1,exec_ms_b2
0,first,100,7,8.0,0,0,4.0,6.0
1,second,100,7,8.0,0,0,4.0,6.0
";
pub(super) const ARRIVALS: &str = "time_s,model,slo_ms\n";
pub(super) const CLIENTS: &str = "model,concurrency,slo_ms\n";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A device with room for one of two models, of which the first is there; no noise.
fn system() -> System {
    System {
        name: "small".to_owned(),
        gpus: 1,
        pages_per_gpu: 7,
        page_mb: 16.0,
        link_mb_per_ms: 12.0,
        net_ms: 0.0,
        warm_s: 0.0,
        end_s: 0.1,
        noise_sigma: 0.0,
        noise_jitter_p: 0.0,
        noise_jitter_ms: 0.0,
        noise_spike_p: 0.0,
        noise_spike_ms: 0.0,
        noise_seed: 1,
        initial: vec!["0".to_owned()],
    }
}

/// One device with room for so many pages, and nothing in memory. Each arrival is a moment in us and a model, whose requests have 100 ms.
fn crowded(
    models: &str,
    mut arrivals: Vec<(u32, usize)>,
    pages_per_gpu: u32,
    (warm_s, end_s): (u32, u32),
) -> Scenario {
    arrivals.sort_unstable();
    let rows = arrivals
        .iter()
        .map(|(us, model)| format!("{},{model},100\n", f64::from(*us) * 1e-6));
    let system = System {
        pages_per_gpu,
        warm_s: f64::from(warm_s),
        end_s: f64::from(end_s),
        initial: vec![String::new()],
        ..system()
    };
    let rows = ARRIVALS.to_owned() + &rows.collect::<String>();
    Scenario::parse(system, models, &rows, CLIENTS).expect("the scenario is right")
}

fn scenario(system: System, arrivals: &str, clients: &str) -> Scenario {
    let arrivals = format!("{ARRIVALS}{arrivals}");
    let clients = format!("{CLIENTS}{clients}");
    Scenario::parse(system, MODELS, &arrivals, &clients).expect("the scenario is right")
}
