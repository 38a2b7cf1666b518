//! Faults of the controller.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::Counts;
use crate::fault::Fault;
use crate::findings::Findings;
use crate::pipelines::WORKER_RATE;
use crate::set::Plan;
use crate::trial::Trial;

const VICTIM: &str = "controller";
/// Its guidance is conservative by the end.
const FAULT: Duration = Duration::from_secs(5);
/// The time for which the cost counts.
const SPAN: Duration = Duration::from_secs(10);

/// At 70% of the capacity requests go on with its last guidance.
pub(super) fn guides(runtime: &Handle, fault: Fault) -> anyhow::Result<Findings> {
    let plan = Plan {
        slo: "1s",
        ..Plan::default()
    };
    let rate = 0.7 * WORKER_RATE * plan.workers as f64 / plan.gateways as f64;
    let mut trial = Trial::start(runtime, &plan, rate, Duration::from_secs(5))?;
    let when = trial.disturb(fault, VICTIM, FAULT)?;
    std::thread::sleep(SPAN.saturating_sub(when.struck_at.elapsed()) + Duration::from_secs(1));
    let mut served = trial.finish();
    let (mut before, mut during) = (Counts::default(), Counts::default());
    for sheet in &served.sheets {
        before.add(&sheet.between(when.struck_at - Duration::from_secs(4), when.struck_at));
        during.add(&sheet.between(when.struck_at, when.struck_at + SPAN));
    }
    let cost = before.goodput() - during.goodput();
    served.findings.at_most("cost", cost, 0.99, " points");
    served.findings.holds(before.goodput() >= 97.0, || {
        format!("{:.1}% good before the fault", before.goodput())
    });
    Ok(served.findings)
}
