//! The pipeline file of a set is changed, and `up` is told by SIGHUP.

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::{PIPELINE, Up, asked, send};

const PROCESSES: [&str; 4] = ["a-0", "b-0", "controller", "gateway-0"];

// Over five seconds: three starts of four processes, and load for three seconds of each.
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
            "stop `up` and start it again: ",
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

    for (name, slo) in [("changed", "900ms"), ("pair", "400ms")] {
        let before = PROCESSES.map(|name| up.pid(name));
        let text = PIPELINE.replace("name: pair", &format!("name: {name}"));
        std::fs::write(&file, text.replace("400ms", slo)).unwrap();
        hang_up(&up);
        up.waits_for("all restart at once");
        up.waits_for("all processes are ready");
        assert!((0..4).all(|i| up.pid(PROCESSES[i]) != before[i]));
        assert_eq!(asked(admin)["pipelines"][0]["name"], name);
        up.bench(0, 20, 3, || {}).completes(0.95);
    }
    assert!(
        !up.said.iter().any(|line| line.contains("ended (")),
        "{:#?}",
        up.said
    );
}
