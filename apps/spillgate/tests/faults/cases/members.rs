//! Workers that come and go.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::runtime::Handle;

use crate::findings::Findings;
use crate::pipelines::WORKER_RATE;
use crate::set::Plan;
use crate::trial::Trial;

/// So many workers join, and as many leave, the one that was there first among them; so one of them serves at least at any time. In the
/// middle the controller is killed, and begins anew while another one comes.
pub(super) fn come_and_go(runtime: &Handle, n: usize) -> anyhow::Result<Findings> {
    let plan = Plan {
        workers: 1,
        ..Plan::default()
    };
    // What one worker serves with ease.
    let rate = 0.4 * WORKER_RATE / plan.gateways as f64;
    let mut trial = Trial::start(runtime, &plan, rate, Duration::from_secs(3))?;
    for i in 1..=n {
        if i == n / 2 + 1 {
            trial.set.send("controller", Signal::SIGKILL);
            trial.set.waits_end("controller")?;
            trial.set.restart("controller")?;
        }
        trial.set.join(&format!("worker-{i}"), &plan)?;
        trial.set.leave(&format!("worker-{}", i - 1))?;
    }
    std::thread::sleep(Duration::from_secs(2));
    Ok(trial.finish().completes_all())
}
