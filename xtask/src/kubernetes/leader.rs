//! The scenario `leader`: operators that are killed, and two at once.

use anyhow::{Result, ensure};

use super::cluster::{Namespace, Pod, Seen, wait};
use super::load::Loads;
use super::operator::{self, GATEWAYS, LIMIT, NAME, Standing};

/// What an operator logs when it takes the Lease.
const LEADS: &str = "this operator leads";

/// The one that leads is killed, then both at once: one leads again, and only one; no pod of the pipeline changes, nothing fails,
/// and a change after that is carried out.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let mut pipeline = operator::two_stage(namespace, "two-stage", 2, (1, 1))?;
    namespace.apply_json(&pipeline)?;
    operator::settled(namespace, "two-stage")?;
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let args = ["--rate", "10", "--payload-bytes", "1000"];
    let mut loads = Loads::start(namespace, &gateways, &args)?;
    loads.more()?;
    let before = Standing::of(namespace, "")?;
    let system = operator::system(namespace.cluster);

    let first = one_leads(&system)?;
    system.delete_by_force(&first)?;
    let second = one_leads(&system)?;
    ensure!(
        second.uid != first.uid,
        "{} leads, though it is gone",
        first.name
    );
    loads.more()?;
    for pod in system.ready("", 2, LIMIT)? {
        system.delete_by_force(&pod)?;
    }
    one_leads(&system)?;
    loads.more()?;
    before.check(namespace, "")?;

    pipeline["spec"]["pipeline"]["slo"] = "250ms".into();
    namespace.apply_json(&pipeline)?;
    let resource = operator::settled(namespace, "two-stage")?;
    ensure!(
        resource["status"]["slo"] == "250ms",
        "after a change the status is {}",
        resource["status"]
    );
    before.check(namespace, "")?;
    let all = loads.stop_revised()?;
    ensure!(all.failed == 0, "{all}");
    Ok(format!("one of two led each time; {all}"))
}

/// Waits until one of two operators holds the Lease, and the other one does not take itself for the leader.
fn one_leads(system: &Namespace<'_>) -> Result<Pod> {
    wait("one of two operators to lead", LIMIT, || {
        let pods = system.ready("", 2, LIMIT)?;
        let lease = system.json(&["get", "lease", NAME])?;
        let holder = &lease["spec"]["holderIdentity"];
        let mut leading = Vec::new();
        for pod in &pods {
            if system.logs(pod)?.contains(LEADS) {
                leading.push(pod);
            }
        }
        Ok(match leading.as_slice() {
            [pod] if holder == pod.name.as_str() => Seen::Yes((*pod).clone()),
            _ => {
                let names: Vec<&str> = leading.iter().map(|pod| pod.name.as_str()).collect();
                Seen::NotYet(format!("{holder} holds the Lease, {names:?} led"))
            }
        })
    })
}
