//! The scenario `modules`: another set of modules, under load.

use anyhow::{Result, ensure};
use serde_json::json;

use super::cluster::Namespace;
use super::load::Loads;
use super::operator::{self, GATEWAYS, LIMIT, Standing};

const NAME: &str = "two-stage";
/// All pods of the pipeline and its set but those of the module that comes and goes.
const OTHERS: &str = "spillgate.dev/set=default,spillgate.dev/module!=c";

/// The same without those of the module that runs it in its processes.
const NEITHER: &str = "spillgate.dev/set=default,spillgate.dev/module notin (b,c)";

/// A module more gets its workers before requests go there, and a module less loses them afterwards; nothing fails, and the other
/// pods stay.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let fewer = operator::two_stage(namespace, NAME, 2, (2, 2))?;
    namespace.apply_json(&fewer)?;
    let first = operator::revision(namespace, NAME)?;
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    let args = ["--rate", "10", "--poisson", "--payload-bytes", "1000"];
    let mut loads = Loads::start(namespace, &gateways, &args)?;
    loads.more()?;
    let before = Standing::of(namespace, OTHERS)?;

    let mut more = fewer.clone();
    let spec = &mut more["spec"];
    spec["pipeline"]["modules"]["c"] = json!({
        "op": "noop", "inputs": { "payload": "$b.payload" }, "device": "emulated", "batch": { "max": 1 },
    });
    spec["pipeline"]["outputs"]["payload"] = "$c.payload".into();
    spec["profiles"]["entries"] = 3.into();
    spec["profiles"]["emulated"]["c"] = spec["profiles"]["emulated"]["b"].clone();
    spec["modules"]["c"] = spec["modules"]["b"].clone();
    namespace.apply_json(&more)?;
    let second = operator::revision(namespace, NAME)?;
    ensure!(
        second != first,
        "with a module more {first} is still served"
    );
    namespace.ready(&operator::workers("c"), 2, LIMIT)?;
    loads.more()?;
    before.check(namespace, OTHERS)?;

    namespace.apply_json(&fewer)?;
    let third = operator::revision(namespace, NAME)?;
    ensure!(
        third == first,
        "with a module less {third} is served, {first} was before"
    );
    namespace.ready(&operator::workers("c"), 0, LIMIT)?;
    loads.more()?;
    before.check(namespace, OTHERS)?;

    // In processes of another module: these are replaced before and after the revision moves, and no others.
    let before = Standing::of(namespace, NEITHER)?;
    more["spec"]["modules"]["c"] = json!({ "with": "b" });
    for (pipeline, revision_is) in [(&more, &second), (&fewer, &first)] {
        namespace.apply_json(pipeline)?;
        let now = operator::revision(namespace, NAME)?;
        ensure!(
            now == *revision_is,
            "{now} is served in place of {revision_is}"
        );
        loads.more()?;
        before.check(namespace, NEITHER)?;
    }
    let all = loads.stop_revised()?;
    ensure!(all.failed == 0, "{all}");
    Ok(all.to_string())
}
