//! How many workers the controller of a set wants.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Machine, PATIENCE, PROFILE, Up, asked, ran};

/// Two modules whose workers serve 50 requests a second each. The first may have one to four.
const PIPELINE: &str = "
name: pair
slo: 400ms
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 }, workers: { min: 1, max: 4 } }
  b: { op: noop, inputs: { payload: $a.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $b.payload }
";

// Over five seconds: processes start, and load for 6 s.
#[test]
fn a_controller_tells_how_many_workers_it_wants() {
    let flags = ["--workers", "a=1,b=2"];
    let files = (PIPELINE, PROFILE);
    let up = Up::serving(Machine::shared(), "wanted", files, &flags, &[]);
    let log = std::fs::read_to_string(up.folder.join("set/controller.log")).unwrap();
    let (_, admin) = log.split_once("admin on http://").unwrap();
    let admin = admin.split(' ').next().unwrap();
    let of = |module: usize| asked(admin)["pipelines"][0]["modules"][module]["scaling"].clone();
    assert!(of(0).is_null(), "of the source");
    // Workers greet gateways and controllers, and one may hear of them before the other.
    let until = |module: usize, is_so: &dyn Fn(&Value) -> bool| {
        let give_up = Instant::now() + PATIENCE;
        while !is_so(&of(module)) {
            assert!(Instant::now() < give_up, "{}", of(module));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(1, &|of| of["serving"] == 1);
    until(2, &|of| of["serving"] == 2);
    let (a, b) = (of(1), of(2));
    assert_eq!(
        (&a["wanted"], &b["wanted"]),
        (&1.into(), &1.into()),
        "{a} {b}"
    );
    assert_eq!(b["reason"], "a fixed number");
    // 120 a second need 2.64 of its workers; of slower ones, one more.
    let wants = || until(1, &|of| of["wanted"].as_u64() >= Some(3));
    up.bench(0, 120, 6, wants).accounts_for_all();
    let reason = of(1)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("one worker serves"), "{reason}");
    assert_eq!(of(1)["serving"], 1, "nobody starts any");
    let (_, text) = ran(&["status", "--admin", admin]);
    assert!(text.contains("workers of  wanted"), "{text}");
}

// Over five seconds: processes start, and load for 13 s.
#[test]
fn workers_of_up_follow_the_load() {
    let flags = ["--workers", "b=4", "--scale"];
    let files = (PIPELINE, PROFILE);
    let mut up = Up::serving(Machine::shared(), "scaled", files, &flags, &[]);
    // 120 a second need 2.64 of its workers.
    let mut load = up.begin(0, 120, 9);
    up.waits_for("3 wanted: offered ");
    up.waits_for("a-2: ready");
    let _ = load.wait();
    up.bench(0, 120, 4, || {}).completes(0.95);
    assert!(
        !up.said.iter().any(|line| line.starts_with("b: ")),
        "b is fixed"
    );
}
