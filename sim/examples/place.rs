//! dev
use spillgate_controller_policy::placement::PlacementName;
use spillgate_sim::placement::{Scenario, run};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = args[0].split(',').collect();
    let figs = std::fs::read_to_string("/tmp/sc/figures.csv").unwrap();
    let refs = |s: &str, p: &str| -> Vec<f64> {
        for l in figs.lines() { let f: Vec<&str> = l.split(',').collect(); if f[0]==s && f[1]==p { return vec![f[4].parse().unwrap_or(0.0), f[5].parse().unwrap_or(0.0), f[15].parse().unwrap_or(-1.0)]; } }
        vec![f64::NAN; 3]
    };
    let mut sums = vec![(0.0,0.0,0); names.len()];
    for s in &args[1..] {
        let d = format!("/tmp/sc/{s}");
        let rd = |f: &str| std::fs::read_to_string(format!("{d}/{f}")).unwrap();
        let mut system: spillgate_sim::placement::System = serde_json::from_str(&rd("system.json")).unwrap(); if let Ok(x) = std::env::var("SEED") { system.noise_seed += x.parse::<u64>().unwrap(); }
        let sc = Scenario::parse(system, &rd("models.csv"), &rd("arrivals.csv"), &rd("clients.csv")).unwrap();
        for (i, n) in names.iter().enumerate() {
            let name = PlacementName::ALL.into_iter().find(|p| p.name() == *n).unwrap();
            let t = std::time::Instant::now();
            let (f, _, log) = run(&sc, name, std::env::var("LOG").is_ok());
            let r = refs(s, match *n { "clockwork" => "clockwork", "clockwork-fixed" => "fixed", "lru" => "edf", _ => "best" });
            println!("{s:10} {n:16} share {:.5} ref {:.5} diff {:+.5} good {:.1}/{:.1} late {} canc {} ref {} loads {} ({}) mb {:.3} ex {:.4} link {:.4} p50 {:?} p99 {:?} err {:?} compl {:?} | {:.1}s", f.share, r[0], f.share - r[0], f.goodput, r[1], f.late, f.cancelled, f.refused_actions, f.loads, r[2], f.mean_batch, f.exec_utilisation, f.link_utilisation, f.p50_ms, f.p99_ms, f.error_p99_ms, f.completion_p99_ms, t.elapsed().as_secs_f64());
            sums[i].0 += f.share; sums[i].1 += r[0]; sums[i].2 += 1;
            if std::env::var("LOG").is_ok() {
                let path = format!("{d}/actions.{n}.csv");
                if let Ok(text) = std::fs::read_to_string(&path) {
                    let mut bad = 0; let mut n = 0;
                    let mut log = log; log.sort_by_key(|l| l.at);
                    for (a, b) in log.iter().zip(text.lines().skip(1)) {
                        let a = format!("{},{},{},{},{},{},{},{}", a.at.as_ns(), a.device, a.event, a.model.0, a.size, a.window.earliest.as_ns(), a.window.latest.as_ns(), a.expected_end.as_ns());
                        n += 1; if a != b { bad += 1; if bad < 4 { println!("  mine {a}\n  ref  {b}"); } }
                    }
                    println!("  {n} lines of {} {}, bad {bad}", log.len(), text.lines().count()-1);
                }
            }
        }
    }
    for (n, s) in names.iter().zip(sums) { println!("{n} mean {:.5} ref {:.5}", s.0 / s.2 as f64, s.1 / s.2 as f64); }
}
