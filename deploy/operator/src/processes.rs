//! What processes say of themselves: the controller's `/status`, and the gateways' `/metrics`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

/// The part of a controller's `/status` that is followed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ControllerStatus {
    /// What it plans for.
    pub pipelines: Vec<PipelineSays>,
}

/// A pipeline, as its controller sees it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PipelineSays {
    /// Its name.
    pub name: String,
    /// Its modules.
    pub modules: Vec<ModuleSays>,
}

/// A module, as its controller sees it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ModuleSays {
    /// Its name.
    pub name: String,
    /// How many workers it should have.
    #[serde(default)]
    pub scaling: Option<Scaling>,
}

/// How many workers a module should have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Scaling {
    /// How many.
    pub wanted: u32,
    /// Whatever the load.
    #[serde(default)]
    pub is_fixed: bool,
    /// Why, in words.
    #[serde(default)]
    pub reason: String,
}

impl ControllerStatus {
    /// How many workers a module should have, where that follows the load.
    pub fn wanted(&self, pipeline: &str, module: &str) -> Option<&Scaling> {
        let pipeline = self.pipelines.iter().find(|of| of.name == pipeline)?;
        let module = pipeline.modules.iter().find(|of| of.name == module)?;
        module.scaling.as_ref().filter(|of| !of.is_fixed)
    }
}

/// Requests of a pipeline that ended at a gateway, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// In time.
    pub good: f64,
    /// In any way.
    pub ended: f64,
    /// Dropped or late.
    pub lost: f64,
}

/// The counts in a gateway's metrics, by pipeline.
pub fn counts(metrics: &str) -> BTreeMap<String, Counts> {
    let mut all: BTreeMap<String, Counts> = BTreeMap::new();
    for line in metrics.lines() {
        let Some((name, labels, value)) = sample(line) else {
            continue;
        };
        let Some(pipeline) = labels.get("pipeline") else {
            continue;
        };
        let counts = all.entry((*pipeline).to_owned()).or_default();
        match name {
            "spillgate_gateway_good_requests_total" => counts.good += value,
            "spillgate_gateway_requests_total" => {
                counts.ended += value;
                if matches!(labels.get("outcome"), Some(&("dropped" | "late"))) {
                    counts.lost += value;
                }
            }
            _ => {}
        }
    }
    all
}

/// A line of Prometheus' text format: name, labels, value. Values of these labels are names, which have no quotes in them.
fn sample(line: &str) -> Option<(&str, BTreeMap<&str, &str>, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.strip_suffix('}')?.split_once('{')?;
    let labels = labels.split(',').filter_map(|label| {
        let (key, value) = label.split_once('=')?;
        Some((key, value.trim_matches('"')))
    });
    Some((name, labels.collect(), value.parse().ok()?))
}

/// What came of the requests of the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Completed in time, a second.
    pub goodput: f64,
    /// The part that was dropped or late; `None` where nothing ended.
    pub dropped: Option<f64>,
}

/// Rates are those of this time, so that they can be read and do not jump.
const SPAN: Duration = Duration::from_secs(10);

/// When a gateway said it, and what, by pipeline.
type Sample = (Duration, BTreeMap<String, Counts>);

/// Samples of all gateways, by pod.
#[derive(Debug, Default)]
pub struct Samples {
    /// The oldest first.
    by_pod: BTreeMap<String, Vec<Sample>>,
}

impl Samples {
    /// These pods said this, at a time since some moment. Pods that are gone are forgotten.
    pub fn heard(&mut self, now: Duration, said: BTreeMap<String, BTreeMap<String, Counts>>) {
        self.by_pod.retain(|pod, _| said.contains_key(pod));
        for (pod, counts) in said {
            let samples = self.by_pod.entry(pod).or_default();
            samples.push((now, counts));
            // One that is as old as the span is kept.
            while samples.len() > 2 && samples[1].0 + SPAN <= now {
                samples.remove(0);
            }
        }
    }

    /// The rates by pipeline.
    pub fn rates(&self) -> BTreeMap<String, Rates> {
        let mut sums: BTreeMap<String, (f64, f64, f64)> = BTreeMap::new();
        for samples in self.by_pod.values() {
            let (Some((began, first)), Some((ended, last))) = (samples.first(), samples.last())
            else {
                continue;
            };
            let span = ended.saturating_sub(*began).as_secs_f64();
            if span <= 0.0 {
                continue;
            }
            for (pipeline, counts) in last {
                let before = first.get(pipeline).copied().unwrap_or_default();
                let sum = sums.entry(pipeline.clone()).or_default();
                sum.0 += (counts.good - before.good).max(0.0) / span;
                sum.1 += (counts.ended - before.ended).max(0.0) / span;
                sum.2 += (counts.lost - before.lost).max(0.0) / span;
            }
        }
        let rates = sums.into_iter().map(|(pipeline, (goodput, ended, lost))| {
            let dropped = (ended > 0.0).then(|| lost / ended);
            (pipeline, Rates { goodput, dropped })
        });
        rates.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"# HELP spillgate_gateway_requests requests
spillgate_gateway_requests_total{pipeline="p",outcome="completed",module="",reason=""} 70
spillgate_gateway_requests_total{pipeline="p",outcome="dropped",module="a",reason="estimate"} 20
spillgate_gateway_requests_total{pipeline="p",outcome="late",module="",reason=""} 10
spillgate_gateway_good_requests_total{pipeline="p"} 70
spillgate_pipeline_slo_seconds{pipeline="p"} 0.2
"#;

    #[test]
    fn rates_are_of_the_last_seconds_over_all_gateways() {
        let first = counts(METRICS);
        assert_eq!(
            first["p"],
            Counts {
                good: 70.0,
                ended: 100.0,
                lost: 30.0
            }
        );
        let mut samples = Samples::default();
        let at = Duration::from_secs;
        for second in 0..30 {
            let more = |pod: f64| {
                let of = Counts {
                    good: 70.0 + 8.0 * pod * second as f64,
                    ended: 100.0 + 10.0 * pod * second as f64,
                    lost: 30.0 + 2.0 * pod * second as f64,
                };
                BTreeMap::from([("p".to_owned(), of)])
            };
            samples.heard(
                at(second),
                BTreeMap::from([("a".to_owned(), more(1.0)), ("b".to_owned(), more(2.0))]),
            );
        }
        let rates = samples.rates()["p"];
        assert!((rates.goodput - 24.0).abs() < 1e-9 && (rates.dropped.unwrap() - 0.2).abs() < 1e-9);
        samples.heard(at(31), BTreeMap::new());
        assert_eq!(samples.rates(), BTreeMap::new());
    }
}
