//! The scenario `model`: another model of a pipeline, under load.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::cluster::Namespace;
use super::load::Loads;
use super::operator::{self, GATEWAYS, LIMIT, Standing};

const NAME: &str = "traffic";
/// All pods but those that measure.
const SERVING: &str = "spillgate.dev/set=default,spillgate.dev/role!=profile";

/// A Job measures the new model, processes load it beside the old one, and gateways move to it: no pod changes, and nothing fails.
pub(super) fn run(namespace: &Namespace<'_>) -> Result<String> {
    let mut pipeline = operator::example(namespace, NAME)?;
    // Long enough to judge by some requests.
    pipeline["spec"]["rollout"] = "at-once,watch=3s".into();
    namespace.apply_json(&pipeline)?;
    let first = operator::revision(namespace, NAME)?;
    let gateways = namespace.ready(GATEWAYS, 2, LIMIT)?;
    // Pictures of streets: models run on two cores.
    let mut loads = Loads::start(namespace, &gateways, &["--rate", "2"])?;
    loads.more()?;
    let before = Standing::of(namespace, SERVING)?;

    let detect = &mut pipeline["spec"]["pipeline"]["modules"]["detect"];
    let variants = detect["variants"].as_array().context("variants")?;
    detect["variants"] = json!([variants.last()]);
    detect["variants"][0]["input"] = 256.into();
    namespace.apply_json(&pipeline)?;
    let second = operator::revision(namespace, NAME)?;
    ensure!(second != first, "with another model {first} is served");
    loads.more()?;
    before.check(namespace, SERVING)?;
    let all = loads.stop_revised()?;
    ensure!(all.failed == 0, "{all}");
    Ok(all.to_string())
}
