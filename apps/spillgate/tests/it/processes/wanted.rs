//! How many workers the controller of a topology wants.

use std::time::{Duration, Instant};

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
fn a_controller_of_a_topology_tells_how_many_workers_it_wants() {
    let flags = ["--workers", "a=1,b=2"];
    let files = (PIPELINE, PROFILE);
    let up = Up::serving(Machine::shared(), "wanted", files, &flags, &[]);
    let log = std::fs::read_to_string(up.folder.join("set/controller.log")).unwrap();
    let (_, admin) = log.split_once("admin on http://").unwrap();
    let admin = admin.split(' ').next().unwrap();
    let of = |module: usize| asked(admin)["pipelines"][0]["modules"][module]["scaling"].clone();
    assert!(of(0).is_null(), "of the source");
    let (a, b) = (of(1), of(2));
    assert_eq!((&a["wanted"], &a["serving"]), (&1.into(), &1.into()), "{a}");
    assert_eq!((&b["wanted"], &b["serving"]), (&2.into(), &2.into()), "{b}");
    assert_eq!(b["reason"], "a fixed number");
    // 120 a second need 2.64 of its workers.
    let wants = || {
        let give_up = Instant::now() + PATIENCE;
        while of(1)["wanted"] != 3 {
            assert!(Instant::now() < give_up, "{}", of(1));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    up.bench(0, 120, 6, wants).accounts_for_all();
    let reason = of(1)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("one worker serves"), "{reason}");
    assert_eq!(of(1)["serving"], 1, "nobody starts any");
    let (_, text) = ran(&["status", "--admin", admin]);
    assert!(text.contains("workers of  wanted"), "{text}");
}
