//! The pipeline file of a set is changed, and `up` is told by SIGHUP: the processes stay, and serve the new revision.

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::{PIPELINE, Up, asked, send};

const PROCESSES: [&str; 4] = ["a-0", "b-0", "controller", "gateway-0"];

// Over five seconds: a start of four processes, and load for three seconds of three.
#[test]
fn a_set_serves_what_its_file_says_after_a_hang_up() {
    let mut up = Up::start("reload", &[]);
    let line = up.waits_for("spillgate status --admin ");
    let (_, admin) = line.split_once("--admin ").unwrap();
    let file = up.folder.join("pair.yaml");
    let hang_up = |up: &Up| send(Pid::from_raw(up.process.id() as i32), Signal::SIGHUP);

    // What cannot be served changes nothing.
    let refused = [
        (
            PIPELINE.replace("slo: 400ms", "slo: soon"),
            "pair.yaml:3: slo: ",
        ),
        (
            PIPELINE.replace(
                "outputs:",
                "  c: { op: noop, inputs: { payload: $b.payload }, device: emulated, batch: { max: 1 } }\noutputs:",
            ),
            "have no worker of c; stop `up` and start it again",
        ),
        (
            PIPELINE.replace("name: pair", "name: other"),
            "no pipeline of this set is named \"other\"; stop `up` and start it again",
        ),
    ];
    for (text, says) in refused {
        std::fs::write(&file, text).unwrap();
        hang_up(&up);
        let line = up.waits_for("nothing was restarted, what was served is served on");
        assert!(line.contains(says), "{line}");
    }
    std::fs::remove_file(&file).unwrap();
    hang_up(&up);
    let line = up.waits_for("nothing was restarted, what was served is served on");
    assert_eq!(line.matches("No such file").count(), 1, "{line}");
    up.bench(0, 20, 3, || {}).completes(0.95);
    assert!(!up.said.iter().any(|line| line.contains("restarting")));

    let before = PROCESSES.map(|name| up.pid(name));
    for (generation, slo) in [(1, 900.0), (2, 400.0)] {
        std::fs::write(&file, PIPELINE.replace("400ms", &format!("{slo}ms"))).unwrap();
        let load = up.bench(0, 20, 3, || {
            hang_up(&up);
        });
        load.completes(1.0);
        up.waits_for(&format!("is published, generation {generation}"));
        up.waits_for(" 100%");
        assert_eq!(asked(admin)["pipelines"][0]["slo_ms"], slo);
    }
    assert!((0..4).all(|i| up.pid(PROCESSES[i]) == before[i]));
    assert!(
        !up.said.iter().any(|line| line.contains("ended (")),
        "{:#?}",
        up.said
    );
}
