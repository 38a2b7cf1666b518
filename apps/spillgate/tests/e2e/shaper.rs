//! `stream --link` beside the kernel's shaper: cameras find the same link, and send frames of the same sizes. Needs Linux with network
//! namespaces for this user, `ip` and `tc`; elsewhere the test says that it was left out.

use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

/// The link, in kbit/s, each for [`HELD_S`].
const RATES: [u32; 3] = [4_000, 550, 4_000];
const HELD_S: u32 = 6;
/// Of what is held, so much passes before frames count.
const SETTLES_S: f64 = 3.5;
/// Frames of the end do not count: the camera begins a moment after the kernel's link.
const LEFT_OUT_S: f64 = 1.0;

/// The shipped detector at three sizes.
fn pipeline() -> String {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../modules/models/road.pt");
    let variant = |(input, accuracy)| {
        let model = model.display();
        format!("{{ model: {model}, input: {input}, accuracy: {accuracy} }}")
    };
    let variants = [(128, 0.593), (192, 0.783), (320, 0.872)].map(variant);
    format!(
        "{{ name: street, slo: 1s, modules: {{ detect: {{ op: detector, variants: [{}], inputs: \
         {{ image: $source.frame }} }} }}, outputs: {{ vehicles: $detect.vehicles }} }}",
        variants.join(", ")
    )
}

/// A server and a camera that share a loopback of their own.
const SCRIPT: &str = r#"
set -eu
if [ "$SHAPED" = kernel ]; then
    # Small packets and a small bucket: else a frame passes before it is noticed.
    ip link set lo mtu 600 up
    tc qdisc add dev lo root tbf rate 100mbit burst 800b latency 5s
fi
"$SPILLGATE" serve street.yaml --listen 127.0.0.1:0 --no-admin --port-file "$SHAPED.port" >"$SHAPED.log" 2>&1 &
server=$!
trap 'kill $server; wait $server || true' EXIT
while ! [ -s "$SHAPED.port" ]; do
    kill -0 $server
    sleep 0.1
done
link=""
if [ "$SHAPED" = kernel ]; then
    (for rate in $RATES; do
        tc qdisc change dev lo root tbf rate "${rate}kbit" burst 800b latency 5s
        sleep "$HELD"
    done) &
else
    link="--link link.csv --link-rtt 1ms"
fi
"$SPILLGATE" stream scene:size=640x360 --server "http://$(cat "$SHAPED.port")" --quiet --fps 10 --duration "$LASTS" \
    --results "$SHAPED.jsonl" $link
"#;

fn run(folder: &Path, shaped: &str) -> std::process::Output {
    let mut command = match shaped {
        "kernel" => {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--net", "sh", "-c", SCRIPT]);
            command
        }
        _ => {
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT]);
            command
        }
    };
    command
        .current_dir(folder)
        .env("SPILLGATE", env!("CARGO_BIN_EXE_spillgate"))
        .env("SHAPED", shaped)
        .env("RATES", RATES.map(|rate| rate.to_string()).join(" "))
        .env("HELD", HELD_S.to_string())
        .env("LASTS", format!("{}s", HELD_S * RATES.len() as u32));
    command.output().unwrap()
}

/// By rate: mean longer side of the frames, mean bandwidth in Mbit/s, and how many were not in time, of how many.
fn told(folder: &Path, shaped: &str) -> Vec<(f64, f64, usize, usize)> {
    let text = std::fs::read_to_string(folder.join(format!("{shaped}.jsonl"))).unwrap();
    let lines: Vec<Json> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let of = |n: u32| {
        let begins = f64::from(n * HELD_S);
        let within = begins + SETTLES_S..begins + f64::from(HELD_S) - LEFT_OUT_S;
        let due = |line: &&Json| within.contains(&(line["due_ms"].as_f64().unwrap() / 1e3));
        let all: Vec<&Json> = lines.iter().filter(due).collect();
        let mean = |key: &str| {
            let values: Vec<f64> = all.iter().filter_map(|l| l[key].as_f64()).collect();
            values.iter().sum::<f64>() / values.len() as f64
        };
        let missed = all.iter().filter(|l| l["outcome"] != "completed").count();
        (mean("side"), mean("bandwidth_mbps"), missed, all.len())
    };
    (0..RATES.len() as u32).map(of).collect()
}

/// Whether a namespace can be had, with a shaper in it.
fn is_possible() -> bool {
    let tried = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c"])
        .arg("ip link set lo up && tc qdisc add dev lo root tbf rate 1mbit burst 800b latency 5s")
        .output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn a_link_of_stream_is_like_one_of_the_kernel() {
    if !is_possible() {
        println!("left out: no network namespace with tc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("street.yaml"), pipeline()).unwrap();
    let mut trace = String::from("second,mbps\n");
    for (n, rate) in (0..).zip(RATES) {
        let second: u32 = n * HELD_S;
        trace.push_str(&format!("{second},{}\n", f64::from(rate) / 1e3));
    }
    std::fs::write(folder.join("link.csv"), trace).unwrap();
    let outputs = std::thread::scope(|scope| {
        let runs =
            ["kernel", "own"].map(|shaped| (shaped, scope.spawn(move || run(folder, shaped))));
        runs.map(|(shaped, run)| (shaped, run.join().unwrap()))
    });
    for (shaped, output) in outputs {
        let log = std::fs::read_to_string(folder.join(format!("{shaped}.log")));
        assert!(output.status.success(), "{shaped}: {output:?} {log:?}");
    }
    let (kernel, own) = (told(folder, "kernel"), told(folder, "own"));
    println!("kernel {kernel:?}\nown {own:?}");
    for ((n, kernel), own) in (0..).zip(&kernel).zip(&own) {
        let (side, of_own) = (kernel.0, own.0);
        assert!((side / of_own - 1.0).abs() < 0.35, "{n}: {side} {of_own}");
        assert!(
            kernel.2 * 5 < kernel.3 && own.2 * 5 < own.3,
            "{n}: {kernel:?} {own:?}"
        );
    }
    // While the link is slow, the estimate is its rate.
    let slow = f64::from(RATES[1]) / 1e3;
    for of in [&kernel, &own] {
        assert!((0.5 * slow..1.1 * slow).contains(&of[1].1), "{of:?}");
        assert!(of[1].0 < 0.75 * of[0].0 && of[2].0 > of[1].0, "{of:?}");
    }
}
