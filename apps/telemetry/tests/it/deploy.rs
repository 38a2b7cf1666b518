//! The files under `deploy/` that show Spillgate's metrics: they parse, and what they ask for exists.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use spillgate_telemetry::metrics;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(path: &str) -> serde_yaml::Value {
    serde_yaml::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/dashboards/spillgate.json")).unwrap()
}

/// All queries of the dashboard.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let of_variables = variables.iter().map(|variable| &variable["query"]["query"]);
    let all = targets.map(|target| &target["expr"]).chain(of_variables);
    all.map(|query| query.as_str().unwrap().to_owned())
        .collect()
}

/// The metrics that a query names, without the suffixes that belong to a histogram.
fn named(query: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = query
        .split(|c| !is_word(c))
        .filter(|word| word.starts_with("spillgate_"));
    let known = |word: &str| metrics::ALL.contains(&word);
    let base = |word: &str| {
        let suffix = ["_bucket", "_sum", "_count"]
            .iter()
            .find(|s| word.ends_with(**s));
        suffix
            .map_or(word, |suffix| &word[..word.len() - suffix.len()])
            .to_owned()
    };
    words
        .map(|word| {
            if known(word) {
                word.to_owned()
            } else {
                base(word)
            }
        })
        .collect()
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist_and_for_each_of_them() {
    let asked: BTreeSet<String> = queries(&dashboard())
        .iter()
        .flat_map(|q| named(q))
        .collect();
    let exist: BTreeSet<String> = metrics::ALL.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(asked, exist);
}

#[test]
fn panels_do_not_overlap_and_have_distinct_ids() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()));
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{}", panel["title"]);
            }
        }
    }
}

#[test]
fn the_parts_know_each_other() {
    let compose = yaml("compose.yaml");
    let services: Vec<&str> = compose["services"]
        .as_mapping()
        .unwrap()
        .keys()
        .map(|k| k.as_str().unwrap())
        .collect();
    assert_eq!(services, ["jaeger", "prometheus", "grafana"]);
    for service in services {
        let volumes = compose["services"][service]["volumes"].as_sequence();
        for volume in volumes.into_iter().flatten() {
            let host = volume.as_str().unwrap().split(':').next().unwrap();
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../deploy")
                .join(host);
            assert!(path.exists(), "{host}");
        }
        for port in compose["services"][service]["ports"].as_sequence().unwrap() {
            assert!(
                port.as_str().unwrap().starts_with("127.0.0.1:"),
                "{service}"
            );
        }
    }

    let sources = yaml("grafana/provisioning/datasources/spillgate.yaml");
    let source = &sources["datasources"][0];
    assert_eq!(source["url"].as_str(), Some("http://prometheus:9090"));
    let interval = &yaml("prometheus/prometheus.yaml")["global"]["scrape_interval"];
    assert_eq!(&source["jsonData"]["timeInterval"], interval);
    for panel in dashboard()["panels"].as_array().unwrap() {
        assert_eq!(panel["datasource"]["uid"].as_str(), source["uid"].as_str());
    }

    let provider = yaml("grafana/provisioning/dashboards/spillgate.yaml");
    let folder = provider["providers"][0]["options"]["path"]
        .as_str()
        .unwrap();
    let mounts = compose["services"]["grafana"]["volumes"]
        .as_sequence()
        .unwrap();
    assert!(
        mounts
            .iter()
            .any(|mount| mount.as_str().unwrap().contains(folder))
    );
}
