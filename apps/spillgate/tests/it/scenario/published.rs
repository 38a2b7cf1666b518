//! The published placements, action by action and in what they reach.

use std::path::Path;

use super::{scenario, simulate};

/// Shares in time of the other program, which has `edf` for what is `lru` here.
fn found(folder: &Path) -> Vec<(String, String, f64)> {
    let text = std::fs::read_to_string(folder.join("figures.csv")).unwrap();
    let rows = text.lines().skip(1).filter_map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let placement = match cells[1] {
            "clockwork" => "clockwork",
            "edf" => "lru",
            _ => return None,
        };
        Some((
            cells[0].to_owned(),
            placement.to_owned(),
            cells[4].parse().unwrap(),
        ))
    });
    rows.collect()
}

/// What [`super::ARRIVALS`] make the published placements do, worked out by hand. A batch of two takes 3 ms and a LOAD 8; an action may start within
/// 5 ms. Both requests of the second model wait for its LOAD and run together; the last request has no time for a LOAD. `clockwork` does not
/// begin one.
const BY_HAND: &str = "\
10000000,0,send_infer,0,1,10000000,15000000,12000000
10000000,0,exec,0,1,10000000,15000000,12000000
50000000,0,send_load,1,0,50000000,55000000,58000000
50000000,0,load,1,0,50000000,55000000,58000000
58000000,0,send_infer,1,2,58000000,63000000,61000000
58000000,0,exec,1,2,58000000,63000000,61000000
100000000,0,send_infer,1,1,100000000,105000000,102000000
100000000,0,exec,1,1,100000000,105000000,102000000
";

/// What the simulator tells of a scenario.
fn told(scenario: &Path, arguments: &[&str]) -> String {
    let scenario = ["--scenario", scenario.to_str().unwrap()];
    let run = simulate(&[&scenario[..], arguments].concat());
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    String::from_utf8(run.stdout).unwrap()
}

/// A whole small run, action by action. Actions of one moment come in any order.
fn does(scenario: &Path, placement: &str, expected: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    told(scenario, &["--placement", placement, "--actions", path]);
    let ours = std::fs::read_to_string(path).unwrap();
    let sorted = |text: &str| {
        let rows = text.lines().filter(|row| !row.starts_with("time_ns"));
        let mut rows: Vec<String> = rows.map(str::to_owned).collect();
        rows.sort();
        rows
    };
    assert_eq!(sorted(&ours), sorted(expected), "{scenario:?} {placement}");
}

/// The published placements on a scenario that was worked out by hand, and with
/// `SPILLGATE_VECTORS=FOLDER cargo test -p spillgate --test it scenario:: -- --nocapture` on those of an independent program, which do not
/// belong to this project. The folder has `clockwork/`.
#[test]
fn published_placements_do_as_an_independent_program_found() {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenario-by-hand");
    scenario(&own);
    does(&own, "clockwork", BY_HAND);
    let Ok(folder) = std::env::var("SPILLGATE_VECTORS") else {
        println!("SPILLGATE_VECTORS names no folder of further scenarios");
        return;
    };
    let folder = Path::new(&folder).join("clockwork");
    for trace in ["trace-1.public", "trace-2.public"] {
        let scenario = folder.join(trace);
        let theirs = std::fs::read_to_string(scenario.join("actions.clockwork.csv")).unwrap();
        does(&scenario, "clockwork", &theirs);
    }
    let mut n_compared = 0;
    for (scenario, placement, share) in found(&folder) {
        // Of closed loops the rate counts, not the share of what was asked for.
        if scenario == "closed-1" || scenario == "isolate-1" {
            continue;
        }
        let path = folder.join("scenarios").join(&scenario);
        let text = told(&path, &["--placement", &placement, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ours = json["runs"][0]["share"].as_f64().unwrap();
        println!("{scenario} {placement}: {ours:.4}, found {share:.4}");
        let most = if scenario == "hot-1" || scenario == "zipf-1" {
            0.002
        } else {
            0.01
        };
        assert!((ours - share).abs() <= most, "{scenario} {placement}");
        n_compared += 1;
    }
    assert_eq!(n_compared, 20, "ten scenarios, two placements");
}
