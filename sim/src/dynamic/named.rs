//! The workloads of ORLOJ's evaluation by name. The paper gives the number of modes, the ratios of their deviations,
//! and mean and 99th percentile of its tasks (Table 1). The positions of the modes are assumed here: between 20 and
//! 90 ms, with deviations of 10 ms by default.

use super::workload::{Mode, Shape, Workload};

/// Lowest and highest mean of the modes, ms.
const SPAN: (f64, f64) = (20.0, 90.0);
/// Deviation of a mode, ms.
const DEVIATION: f64 = 10.0;

/// A workload of the evaluation.
#[derive(Clone, Debug)]
pub struct Named {
    /// Group: `modes`, `deviations`, `peaks`, `tasks` or `static`.
    pub group: &'static str,
    /// Name, as `case_id` of the paper's tables where it has one.
    pub name: String,
    /// Its applications.
    pub modes: Vec<Mode>,
}

fn mode(mean_ms: f64, deviation_ms: f64, weight: f64) -> Mode {
    Mode {
        mean_ms,
        deviation_ms,
        weight,
        shape: Shape::Normal,
    }
}

/// Mean and 99th percentile of the paper's tasks, ms (ORLOJ, Table 1).
const TASKS: [(&str, f64, f64); 10] = [
    ("rdinet-cifar", 683.15, 2667.54),
    ("skipnet-imagenet", 3.24, 5.56),
    ("blenderbot-convAI", 200.39, 242.27),
    ("blenderbot-cornell", 203.22, 247.04),
    ("gpt-convAI", 79.47, 143.40),
    ("gpt-cornell", 94.84, 161.69),
    ("bart-cnn", 774.66, 1101.99),
    ("t5-cnn", 552.91, 797.28),
    ("fsmt-wmt", 189.30, 319.31),
    ("mbart-wmt", 432.38, 729.87),
];

/// All of them, by group.
pub fn all() -> Vec<Named> {
    let mut all = Vec::new();
    let mut add = |group, name: &str, modes| {
        let name = name.to_owned();
        all.push(Named { group, name, modes });
    };
    let counts = [
        "one", "two", "three", "four", "five", "six", "seven", "eight",
    ];
    for (i, count) in counts.iter().enumerate() {
        let (low, high) = SPAN;
        let mean = |k: usize| match i {
            0 => f64::midpoint(low, high),
            last => low + (high - low) * k as f64 / last as f64,
        };
        let modes = (0..=i).map(|k| mode(mean(k), DEVIATION, 1.0)).collect();
        add("modes", &format!("{count}-modal"), modes);
    }
    for (name, first, second) in [
        ("std-0.5", 0.5, 0.5),
        ("std-1", 1.0, 1.0),
        ("std-2", 2.0, 2.0),
        ("std-2/0.5", 2.0, 0.5),
        ("std-0.5/2", 0.5, 2.0),
    ] {
        let modes = vec![
            mode(SPAN.0, first * DEVIATION, 1.0),
            mode(SPAN.1, second * DEVIATION, 1.0),
        ];
        add("deviations", name, modes);
    }
    for (name, first) in [("short 80%", 4.0), ("long 80%", 0.25)] {
        let modes = vec![mode(SPAN.0, DEVIATION, first), mode(SPAN.1, DEVIATION, 1.0)];
        add("peaks", name, modes);
    }
    for (name, mean, p99) in TASKS {
        add("tasks", name, vec![Mode::from_percentile(mean, p99)]);
    }
    add("static", "static", vec![mode(50.0, 0.0, 1.0)]);
    all
}

/// A named workload at an operating point.
pub fn workload(named: &Named, fixed_share: f64, load: f64, slo: f64, requests: usize) -> Workload {
    let least = named
        .modes
        .iter()
        .map(|m| m.mean_ms)
        .fold(f64::INFINITY, f64::min);
    Workload {
        modes: named.modes.clone(),
        // A tenth of the least mean, at most the 2 ms of the reference workload.
        least_ms: (least / 10.0).min(2.0),
        fixed_share,
        load,
        slo,
        requests,
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn tasks_have_their_mean_and_percentile() {
        for named in all().iter().filter(|n| n.group == "tasks") {
            let (_, mean, p99) = TASKS.iter().find(|t| t.0 == named.name).unwrap();
            let work = workload(named, 0.7, 1.0, 3.0, 20_000);
            let instance = work.instance(&mut ChaCha8Rng::seed_from_u64(1)).unwrap();
            let mut lengths: Vec<f64> = instance.jobs.iter().map(|job| job.length_ms).collect();
            lengths.sort_unstable_by(f64::total_cmp);
            let seen = lengths.iter().sum::<f64>() / lengths.len() as f64;
            assert!(
                (seen / mean - 1.0).abs() < 0.03,
                "{}: mean {seen}",
                named.name
            );
            let seen = lengths[lengths.len() * 99 / 100];
            assert!(
                (seen / p99 - 1.0).abs() < 0.08,
                "{}: p99 {seen}",
                named.name
            );
        }
    }

    #[test]
    fn all_are_workloads() {
        let names = all();
        assert_eq!(names.len(), 8 + 5 + 2 + 10 + 1);
        for named in &names {
            let work = workload(named, 0.3, 1.5, 1.5, 10);
            let instance = work.instance(&mut ChaCha8Rng::seed_from_u64(1));
            assert!(instance.is_ok(), "{}", named.name);
        }
    }
}
