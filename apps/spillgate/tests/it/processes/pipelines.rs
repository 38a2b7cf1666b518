//! `spillgate up` with two pipelines.

use super::*;

/// Another pipeline with a module of the same name, half as long.
const OTHER: &str = "
name: other
slo: 400ms
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $a.payload }
";
const OTHER_PROFILE: &str = "
emulated:
  a: { \"-\": { alpha: 9ms, beta: 1ms, max: 1 } }
";

fn bench(up: &Up, pipeline: &str) -> Report {
    let mut process = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args(["bench", "--json", "-", "--rate", "20", "--duration", "3s"])
        .args(["--server", &format!("http://{}", up.gateways[0])])
        .args(["--pipeline", pipeline])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Report::of(&mut process)
}

// Over five seconds: six processes start, and load for 3 s of each pipeline.
#[test]
fn two_pipelines_are_served_each_by_workers_of_its_own() {
    let folder = format!("spillgate-up-other-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let other = folder.join("other.yaml");
    std::fs::write(&other, OTHER).unwrap();
    std::fs::write(folder.join("other.profile.yaml"), OTHER_PROFILE).unwrap();
    let flags = [other.to_str().unwrap(), "--workers", "pair/a=2,b=1"];
    let served = (PIPELINE, PROFILE);
    let up = Up::serving(Machine::shared(), "pipelines", served, &flags, &[]);
    for name in ["pair-a-0", "pair-a-1", "pair-b-0", "other-a-0"] {
        up.pid(name);
    }
    for pipeline in ["pair", "other"] {
        bench(&up, pipeline).completes(0.9);
    }
    let (code, said) = refused(&["up", flags[0], flags[0], "--folder", "."]);
    assert!(code != 0 && said.contains("is taken by"), "{code}: {said}");
    drop(up);
    std::fs::remove_dir_all(&folder).unwrap();
}
