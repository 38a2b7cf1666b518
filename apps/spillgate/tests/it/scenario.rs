//! `spillgate simulate` of many models on few devices, as users run it: of scenarios, and of pipelines.

mod published;

use std::os::unix::fs::FileExt as _;
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
    let names = ["clockwork", "lru", "spillgate"];
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
fn requests_go_to_processes_by_the_policy_that_is_named_beside_a_placement() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenario-divided");
    scenario(&folder);
    let folder = folder.to_str().unwrap();
    let args = ["--scenario", folder, "--placement", "spillgate", "--json"];
    let dispatch = ["--dispatch", "least-outstanding"];
    let output = simulate(&[&args[..], &["--processes", "1"], &dispatch].concat());
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["runs"][0]["in_time"], 4);
    let output = simulate(&[&args[..], &dispatch].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("give --processes"), "{error}");
}

#[test]
fn a_pipeline_under_a_placement_is_in_one_process() {
    let file = pipeline("one-process");
    let args = ["--placement", "lru", "--dispatch", "round-robin"];
    let output = simulate(&[&[file.as_str()], &THREE[..], &args].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("--dispatch: a placement has all devices in one process"),
        "{error}"
    );
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

const PIPELINE: &str = "name: small\nslo: 400ms\nsource: { payload: bytes }\nmodules:\n  work:\n    op: noop\n    \
                        inputs: { payload: $source.payload }\n    device: emulated\n    batch: { max: 4 }\n\
                        outputs: { payload: $work.payload }\n";
const PROFILE: &str =
    "emulated:\n  work:\n    \"-\": { alpha: 8ms, beta: 2ms, max: 4, load: 30ms }\n";

/// A pipeline of one module that takes 10 ms, with its profile.
fn pipeline(name: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("{name}.yaml"));
    std::fs::write(&file, PIPELINE).unwrap();
    std::fs::write(folder.join(format!("{name}.profile.yaml")), PROFILE).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Three requests of one model, half a second apart, whose weights take 100 ms to read.
const THREE: [&str; 12] = [
    "--rate",
    "2",
    "--law",
    "constant",
    "--duration",
    "1999ms",
    "--models",
    "1",
    "--weights",
    "100000000B",
    "--link",
    "1000",
];

#[test]
fn a_pipeline_tells_loads_and_cold_requests() {
    let file = pipeline("told");
    let output = simulate(&[&[file.as_str()], &THREE[..], &["--hop", "0ms"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let (run, models) = text.split_once('\n').unwrap();
    let latencies = "3 requests at load 0.01, goodput 1.5/s, dropped or late 0.00%, invalid 0.00%, p50 10.0 ms, p99 110.0 ms";
    assert!(run.contains(latencies), "{text}");
    assert_eq!(
        models,
        "  models: 1 loads, 1 cold requests, 0 gave way; devices read 5.0% of the time\n"
    );
    // Without a link the profile says how long a load takes.
    let (link, without) = THREE
        .split_last_chunk::<2>()
        .map(|(all, link)| (link, all))
        .unwrap();
    assert_eq!(link[0], "--link");
    let output = simulate(&[&[file.as_str()], without, &["--hop", "0ms"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("p50 10.0 ms, p99 40.0 ms"), "{text}");
    let warm = simulate(&[&[file.as_str()], &THREE[..], &["--warmup", "600ms"]].concat());
    let text = String::from_utf8(warm.stdout).unwrap();
    assert!(text.contains("; 2 requests at"), "{text}");
    assert!(text.contains("p99 10.5 ms"), "{text}");
    assert!(text.contains("1 loads, 1 cold requests"), "{text}");
    let device = ["--device", "emulated,memory=112MiB", "--placement", "lru"];
    let output = simulate(&[&[file.as_str()], &THREE[..], &device, &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &json["runs"][0];
    assert_eq!(run["placement"], "lru");
    assert_eq!(run["good"], 3);
    let models = serde_json::json!({
        "loads": 1, "cold_requests": 1, "unloads": 0, "load_utilisation": run["models"]["load_utilisation"],
        "refused": { "late_batch": 0, "late_load": 0, "not_loaded": 0, "no_pages": 0 },
    });
    assert_eq!(run["models"], models);
}

#[test]
fn requests_of_a_list_name_their_models_and_ask_for_their_time() {
    let file = pipeline("listed");
    let list = Path::new(env!("CARGO_TARGET_TMPDIR")).join("listed.csv");
    // Reading a model takes 100 ms. The last request has no time for that, but others may come for its model.
    let rows = "0.1,0,400\n0.6,3,400\n1.1,3,15\n1.6,2,50\n";
    std::fs::write(&list, format!("time_s,model,slo_ms\n{rows}")).unwrap();
    let list = list.to_str().unwrap();
    let args = [
        "--arrivals",
        list,
        "--models",
        "4",
        "--weights",
        "100000000B",
        "--link",
        "1000",
        "--placement",
        "spillgate",
        "--json",
    ];
    let output = simulate(&[&[file.as_str()], &args[..]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &json["runs"][0];
    assert_eq!(
        (&run["requests"], &run["good"], &run["dropped"]),
        (&4.into(), &3.into(), &1.into())
    );
    assert_eq!(
        (&run["models"]["loads"], &run["models"]["cold_requests"]),
        (&3.into(), &2.into())
    );
    let error = |args: &[&str]| {
        let output = simulate(&[&[file.as_str(), "--arrivals", list], args].concat());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let no_families = format!(
        "error: {list}: its requests name models, and no module has a family of models; give --models\n"
    );
    assert_eq!(error(&[]), no_families);
    let too_few = format!("error: {list}:3: there is no model 3; there are 3\n");
    assert_eq!(error(&["--models", "3", "--weights", "1MiB"]), too_few);
    let drawn = "error: --zipf: the requests of --arrivals name their models\n";
    assert_eq!(
        error(&["--models", "4", "--weights", "1MiB", "--zipf", "1"]),
        drawn
    );
}

#[test]
fn equal_seeds_give_equal_runs_and_models_that_share_memory_give_way() {
    let file = pipeline("shared");
    let args = [
        &file,
        "--rate",
        "40",
        "--duration",
        "20s",
        "--models",
        "30",
        "--weights",
        "16MiB",
        "--link",
        "1000",
        "--json",
        "--placement",
        "spillgate",
        "--placement",
        "lru",
        "--seed",
        "5",
    ];
    let run = |memory: &[&str]| {
        let output = simulate(&[&args[..], memory].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let little = ["--device", "emulated,memory=128MiB"];
    let text = run(&little);
    assert_eq!(text, run(&little));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let plenty: serde_json::Value = serde_json::from_str(&run(&[])).unwrap();
    for (i, name) in ["spillgate", "lru"].into_iter().enumerate() {
        let (few, all) = (&json["runs"][i], &plenty["runs"][i]);
        assert_eq!(few["placement"], name);
        assert_eq!(few["requests"], all["requests"]);
        let models = &few["models"];
        assert!(models["unloads"].as_u64() > Some(0), "{models}");
        // What is there and what gave way was read.
        let there = models["loads"].as_u64().unwrap() - models["unloads"].as_u64().unwrap();
        assert!(there <= 8, "{models}");
        assert_eq!(all["models"]["unloads"], 0);
        assert!(
            all["models"]["loads"].as_u64() <= Some(30),
            "{}",
            all["models"]
        );
    }
}

#[test]
fn models_of_a_family_are_as_large_as_their_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("family");
    std::fs::create_dir_all(folder.join("cams")).unwrap();
    for name in ["a", "b", "c"] {
        // Two pages. What is in the file is never looked at.
        let file = std::fs::File::create(folder.join(format!("cams/{name}.pt"))).unwrap();
        // Equal files would be one model.
        let end = 20_000_000 - name.len() as u64;
        file.write_all_at(name.as_bytes(), end).unwrap();
    }
    let pipeline = "name: family\nslo: 400ms\nmodules:\n  work:\n    op: classifier\n    models: cams/*.pt\n    \
                    options: { size: [64, 64], labels: x.labels }\n    inputs: { image: $source.frame }\n    \
                    device: emulated\n    batch: { max: 1 }\noutputs: { labels: $work.labels }\n";
    let profile = "emulated:\n  work:\n    \"cams/*.pt\": { alpha: 8ms, beta: 2ms, max: 1 }\n";
    std::fs::write(folder.join("f.yaml"), pipeline).unwrap();
    std::fs::write(folder.join("f.profile.yaml"), profile).unwrap();
    // Two of three fit: the first one gives way to the third, and has to be read again.
    let list = folder.join("list.csv");
    let rows = "0.1,0,400\n1.1,1,400\n2.1,2,400\n3.1,0,400\n";
    std::fs::write(&list, format!("time_s,model,slo_ms\n{rows}")).unwrap();
    let (file, list) = (folder.join("f.yaml"), list.to_str().unwrap().to_owned());
    let run = |more: &[&str]| {
        let args = [
            file.to_str().unwrap(),
            "--arrivals",
            &list,
            "--link",
            "200",
            "--json",
        ];
        simulate(&[&args[..], more].concat())
    };
    let output = run(&["--device", "emulated,memory=64MiB", "--placement", "lru"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run_json = &json["runs"][0];
    assert_eq!(run_json["good"], 4, "{run_json}");
    let models = &run_json["models"];
    assert_eq!(
        (&models["loads"], &models["unloads"]),
        (&4.into(), &2.into())
    );
    // Each takes 100 ms to read.
    let read = models["load_utilisation"].as_f64().unwrap() * 3.1;
    assert!((read - 0.4).abs() < 1e-9, "{read}");
    let output = run(&["--device", "emulated,memory=16MiB"]);
    let error = "error: emulated:own0: the model of module work takes 2 pages of 16 MiB, and the device has 1 for weights; give it at \
                 least 32 MiB: --device emulated:own0,memory=32MiB\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), error);
}

// Over five seconds: the program starts for each wrong flag, and each start initialises libtorch.
#[test]
fn what_is_wrong_with_models_is_said() {
    let file = pipeline("wrong");
    let usage = |args: &[&str]| {
        let output =
            simulate(&[&[file.as_str(), "--rate", "5", "--duration", "1s"], args].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        let first = error.lines().next().unwrap_or_default().to_owned();
        (output.status.code().unwrap(), first)
    };
    for (args, code, error) in [
        (
            &["--models", "0"][..],
            2,
            "error: invalid value '0' for '--models <N>': use 1 to 16384: a family has so many models",
        ),
        (
            &["--models", "3", "--weights", "0B"],
            2,
            "error: invalid value '0B' for '--weights <SIZE>': give at least 1B and at most 1048576GiB",
        ),
        (
            &["--models", "3", "--link", "0"],
            2,
            "error: invalid value '0' for '--link <MB/s>': use 0.001 to 1000000000: weights have to be read",
        ),
        (
            &["--models", "3", "--zipf", "-1"],
            2,
            "error: invalid value '-1' for '--zipf <S>': use 0 to 10: 0 names all equally often",
        ),
        (
            &["--models", "3"],
            1,
            "error: --weights: how large the models of module work are is not known, since it has no model file; give their size, like 100MiB",
        ),
        (
            &["--weights", "1MiB"],
            1,
            "error: --weights: no model has to be read; give --models or --placement",
        ),
        (
            &["--zipf", "1"],
            1,
            "error: --zipf: no module has a family of models; give --models",
        ),
        (
            &["--warmup", "1s"],
            1,
            "error: --warmup is no less than the whole run; give more --duration",
        ),
        (
            &["--fairness", "off"],
            1,
            "error: --fairness: no placement is simulated; give --placement or --device",
        ),
        (
            &["--placement", "lru", "--policy", "pard"],
            1,
            "error: --policy: a placement decides about batches, too; leave it out, or give --placement brokers",
        ),
        (
            &["--placement", "brokers", "--placement", "lru"],
            1,
            "error: --placement brokers serves by the policies of the file, and a placement in their place; run them one after the other",
        ),
        (
            &["--placement", "brokers", "--gpus", "4"],
            1,
            "error: --gpus: what shares memory has the devices of the file; leave it out",
        ),
        (
            &[
                "--models",
                "3",
                "--weights",
                "100MiB",
                "--device",
                "emulated,memory=64MiB",
            ],
            1,
            "error: emulated:own0: the model of module work takes 7 pages of 16 MiB, and the device has 4 for weights; give it at least \
             112 MiB: --device emulated:own0,memory=112MiB",
        ),
        (
            &["--device", "cuda:0,memory=64MiB"],
            1,
            "error: cuda:0: memory for weights is given for it, but no module runs on it; modules run on emulated:own0",
        ),
    ] {
        assert_eq!(usage(args), (code, error.to_owned()), "{args:?}");
    }
}

/// The report of two cameras whose links have that rate, with frames of 250 kbit.
fn cameras(mbps: &str, more: &[&str]) -> Result<serde_json::Value, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let trace = folder.join(format!("link-{mbps}.csv"));
    std::fs::write(&trace, format!("second,mbps\n0,{mbps}\n")).unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pipelines/tm.yaml");
    let (file, trace) = (file.to_str().unwrap(), trace.to_str().unwrap());
    let args = [
        file,
        "--cameras",
        "2",
        "--camera-link",
        trace,
        "--camera-kbit",
        "250",
        "--duration",
        "5s",
        "--json",
    ];
    let output = simulate(&[&args[..], more].concat());
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn frames_of_cameras_take_the_time_that_their_links_take() {
    let reports = ["5", "20"].map(|mbps| cameras(mbps, &[]).unwrap());
    let [slow, fast] = reports
        .each_ref()
        .map(|json| &json["runs"][0]["cameras"]["all"]);
    for all in [slow, fast] {
        assert_eq!(all["frames"], 100, "{all}");
        assert_eq!(all["miss_rate"], 0.0, "{all}");
    }
    let ms = |all: &serde_json::Value| all["latency_ms_p50"].as_f64().unwrap();
    // 250 kbit take 50 ms at 5 Mbit/s and 12.5 at 20.
    let difference = ms(slow) - ms(fast);
    assert!((difference - 37.5).abs() < 0.5, "{difference} ms");
}

#[test]
fn a_link_that_carries_nothing_and_one_that_is_none_are_told() {
    let none = cameras("0.001", &[]).unwrap();
    let all = &none["runs"][0]["cameras"]["all"];
    assert_eq!(all["miss_rate"], 1.0, "{all}");
    let error = cameras("-3", &[]).unwrap_err();
    assert!(
        error.contains("link--3.csv: trace:2: mbps is \"-3\"; it must be a number from 0"),
        "{error}"
    );
    let error = cameras("5", &["--rate", "10"]).unwrap_err();
    assert!(error.contains("cannot be used with"), "{error}");
}
