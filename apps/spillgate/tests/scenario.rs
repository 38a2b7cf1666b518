//! `spillgate simulate --scenario`, as users run it.

use std::path::Path;
use std::process::{Command, Output};

const SYSTEM: &str = r#"{"name": "small", "gpus": 1, "pages_per_gpu": 8, "page_mb": 16, "link_mb_per_ms": 12.28, "net_ms": 0,
"warm_s": 0, "end_s": 1, "noise_sigma": 0, "noise_jitter_p": 0, "noise_jitter_ms": 0, "noise_spike_p": 0, "noise_spike_ms": 0,
"noise_seed": 1, "initial": ["0"]}"#;
const MODELS: &str = "id,name,weights_mb,pages,load_ms,input_kb,output_kb,exec_ms_b1,exec_ms_b2\n\
                      0,first,100,7,8,0,0,2,3\n1,second,100,7,8,0,0,2,3\n";
const CLIENTS: &str = "model,concurrency,slo_ms\n";
/// The second model's weights must take the place of the first one's.
const ARRIVALS: &str =
    "time_s,model,slo_ms\n0.010,0,20\n0.050,1,20\n0.051,1,20\n0.100,1,5\n0.150,0,5\n";

fn scenario(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let files = [
        ("system.json", SYSTEM),
        ("models.csv", MODELS),
        ("clients.csv", CLIENTS),
        ("arrivals.csv", ARRIVALS),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

fn simulate(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_spillgate");
    let output = Command::new(program).arg("simulate").args(args).output();
    output.unwrap()
}

#[test]
fn each_placement_serves_what_can_be_in_time() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenario");
    scenario(&folder);
    let folder = folder.to_str().unwrap();
    let mut args = vec!["--scenario", folder, "--json"];
    let names = ["clockwork", "clockwork-fixed", "lru", "spillgate"];
    args.extend(names.iter().flat_map(|name| ["--placement", name]));
    let output = simulate(&args);
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = json["runs"].as_array().unwrap();
    for (run, name) in runs.iter().zip(names) {
        assert_eq!(run["placement"], name);
        assert_eq!(run["requests"], 5);
        // The last one's weights are gone, and a LOAD takes longer than it has.
        assert_eq!(run["in_time"], 4, "{name}");
        assert_eq!(run["cancelled"], 1, "{name}");
    }
}

#[test]
fn actions_are_written_with_their_windows() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenario-actions");
    scenario(&folder);
    let file = folder.join("actions.csv");
    let args = [
        "--scenario",
        folder.to_str().unwrap(),
        "--placement",
        "clockwork",
    ];
    let output = simulate(&[&args[..], &["--actions", file.to_str().unwrap()]].concat());
    assert!(output.status.success());
    let text = std::fs::read_to_string(file).unwrap();
    let expected = "time_ns,gpu,event,model,batch,earliest_ns,latest_ns,predicted_end_ns\n\
                    10000000,0,send_infer,0,1,10000000,15000000,12000000\n\
                    10000000,0,exec,0,1,10000000,15000000,12000000\n\
                    50000000,0,send_load,1,0,50000000,55000000,58000000\n\
                    50000000,0,load,1,0,50000000,55000000,58000000\n\
                    58000000,0,send_infer,1,2,58000000,63000000,61000000\n";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn what_is_wrong_with_a_scenario_is_said_with_file_and_line() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenario-wrong");
    scenario(&folder);
    std::fs::write(
        folder.join("arrivals.csv"),
        "time_s,model,slo_ms\n0.010,7,20\n",
    )
    .unwrap();
    let output = simulate(&["--scenario", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("arrivals.csv:2: there is no model 7; there are 2"),
        "{error}"
    );
}
