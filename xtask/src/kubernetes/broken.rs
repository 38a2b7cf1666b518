//! The scenario `broken`: a pipeline that does not compile, applied over one that is served.

use anyhow::{Result, ensure};

use super::cluster::Namespace;
use super::load::{Counts, Loads};
use super::operator::{self, GATEWAYS, LIMIT, Standing};

/// What the condition and the event say.
const SAID: &str =
    "spec.pipeline.modules.b.inputs.payload: no module named \"c\"; did you mean \"a\"?";

/// Nothing that runs changes, and the condition and an event say what is wrong; the pipeline mended is served as before.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let good = operator::two_stage(namespace, "good", 2, (1, 1))?;
    namespace.apply_json(&good)?;
    let revision = operator::settled(namespace, "good")?["status"]["revision"].clone();
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let before = Standing::of(namespace, "")?;
    let args = ["--rate", "10", "--payload-bytes", "1000"];
    let mut loads = Loads::start(namespace, &gateways, &args)?;
    loads.more()?;

    let mut broken = good.clone();
    broken["spec"]["pipeline"]["modules"]["b"]["inputs"]["payload"] = "$c.payload".into();
    // What is right in it is not carried out either.
    broken["spec"]["modules"]["a"]["replicas"] = serde_json::json!({ "min": 2, "max": 2 });
    namespace.apply_json(&broken)?;
    let said = operator::degraded(namespace, "good", "SpecInvalid")?;
    ensure!(said.message == SAID, "the condition says: {}", said.message);
    let events = operator::events(namespace, "good", "SpecInvalid")?;
    ensure!(events == [SAID], "the events say: {events:?}");
    loads.more()?;
    let resource = operator::resource(namespace, "good")?;
    ensure!(
        resource["status"]["revision"] == revision,
        "revision {} is served, {revision} was before",
        resource["status"]["revision"]
    );
    before.check(namespace, "")?;

    namespace.apply_json(&good)?;
    operator::settled(namespace, "good")?;
    loads.more()?;
    before.check(namespace, "")?;
    let all = loads.stop(Counts::default())?;
    ensure!(all.failed == 0, "{all}");
    Ok(all.to_string())
}
