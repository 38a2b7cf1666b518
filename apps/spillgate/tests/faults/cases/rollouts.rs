//! Another revision takes the place of the one that is served.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::ensure;
use nix::sys::signal::Signal;
use tokio::runtime::Handle;

use crate::findings::Findings;
use crate::pipelines::WORKER_RATE;
use crate::set::{PATIENCE, Plan, Set};
use crate::trial::Trial;

const WARM_UP: Duration = Duration::from_secs(3);
/// What goes on after the last rollout.
const AFTER: Duration = Duration::from_secs(2);
/// Whether a process, by its line, serves one revision and no other one lives there.
const ALONE: fn(&str) -> bool = |line| line.contains(" stable") && !line.contains(" old");
/// Whether it serves one that is watched, if it is a gateway.
const WATCHED: fn(&str) -> bool =
    |line| !line.contains("gateway") || line.contains("watching 100%");
/// How often is asked whether all serve one revision.
const LOOK: Duration = Duration::from_millis(50);

/// A changed objective, models that take another time, a file that is broken, and an undo, one after the other. `kills`: the controller
/// is killed right after each of them is published, and begins anew with the file of the first revision.
pub(super) fn lose_nothing(runtime: &Handle, kills: bool) -> anyhow::Result<Findings> {
    let plan = Plan::default();
    // What one worker serves with ease: a revision's workers share the devices' time with the other ones.
    let rate = 0.4 * WORKER_RATE / plan.gateways as f64;
    let mut trial = Trial::start(runtime, &plan, rate, WARM_UP)?;
    let (text, profiles) = (plan.pipeline.text(plan.slo), plan.pipeline.profiles());
    let slower = profiles.replace("alpha: 39ms", "alpha: 45ms");
    let changes = [
        ("50%,watch=1s", text.replace(plan.slo, "800ms"), profiles),
        ("at-once,watch=1h", text.replace(plan.slo, "900ms"), slower),
    ];
    for (i, (how, text, profiles)) in changes.iter().enumerate() {
        let file = trial.set.file(&format!("revision-{i}.yaml"));
        std::fs::write(&file, text)?;
        std::fs::write(file.with_extension("profile.yaml"), profiles)?;
        let output = rollout(&trial.set, &[&file.display().to_string(), "--how", how])?;
        succeeds(&output)?;
        let last = i + 1 == changes.len();
        settles(
            &mut trial.set,
            i + 1,
            kills,
            if last { WATCHED } else { ALONE },
        )?;
    }
    let broken = trial.set.file("broken.yaml");
    std::fs::write(&broken, text.replace("op: noop", "op: no_such"))?;
    let output = rollout(&trial.set, &[&broken.display().to_string()])?;
    ensure!(!output.status.success(), "a broken file is published");
    succeeds(&rollout(&trial.set, &["undo", "branches"])?)?;
    settles(&mut trial.set, changes.len() + 1, kills, ALONE)?;
    std::thread::sleep(AFTER);
    Ok(trial.finish().completes_all())
}

/// `spillgate rollout` to the controller, which is not followed.
fn rollout(set: &Set, arguments: &[&str]) -> anyhow::Result<Output> {
    let output = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .arg("rollout")
        .args(arguments)
        .arg("--no-wait")
        .arg(format!("--to={}", set.controller()?))
        .output()?;
    Ok(output)
}

fn succeeds(output: &Output) -> anyhow::Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it is not published: {said}");
    Ok(())
}

/// Waits until the revision of this generation is known, and all processes are so.
fn settles(
    set: &mut Set,
    generation: usize,
    kills: bool,
    is_so: fn(&str) -> bool,
) -> anyhow::Result<()> {
    if kills {
        set.send("controller", Signal::SIGKILL);
        set.waits_end("controller")?;
        set.restart("controller")?;
    }
    let give_up = Instant::now() + PATIENCE;
    let to = format!("--to={}", set.controller()?);
    loop {
        let asked = Command::new(env!("CARGO_BIN_EXE_spillgate"))
            .args(["rollout", "status", &to])
            .output()?;
        let shown = String::from_utf8_lossy(&asked.stdout);
        let processes: Vec<&str> = shown.lines().skip(1).collect();
        let is_known = shown.contains(&format!("generation {generation}"));
        if is_known
            && processes.len() == set.names().len()
            && processes.iter().all(|line| is_so(line))
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < give_up,
            "not all serve one revision: {shown}"
        );
        std::thread::sleep(LOOK);
    }
}
