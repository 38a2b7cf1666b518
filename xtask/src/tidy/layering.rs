//! Dependencies between the crates of the workspace point one way:
//!
//! ```text
//! pipeline <- {protocol, camera} <- {controller,worker}/policy <- sim
//! {pipeline, picture} <- process <- {backend, tls, link, controller/runtime, worker/runtime}
//! {protocol, proto, process, tls} <- link <- controller/runtime <- apps
//! {worker/policy, process, backend} <- worker/runtime <- apps
//! ```

use serde_json::Value;

const PIPELINE: &str = "spillgate-pipeline";
const PROTOCOL: &str = "spillgate-protocol";
const CAMERA: &str = "spillgate-camera";
const PROCESS: &str = "spillgate-process";
const PROTO: &str = "spillgate-proto";
const BACKEND: &str = "spillgate-backend";
const LINK: &str = "spillgate-link";
const OUTPUT: &str = "spillgate-output";
const PICTURE: &str = "spillgate-picture";
const TLS: &str = "spillgate-tls";
const TELEMETRY: &str = "spillgate-telemetry";
const CONTROLLER_POLICY: &str = "spillgate-controller-policy";
const WORKER_POLICY: &str = "spillgate-worker-policy";
const CONTROLLER: &str = "spillgate-controller";
const WORKER: &str = "spillgate-worker";
const SIM: &str = "spillgate-sim";
const SCENES: &str = "spillgate-scenes";
const MODULES: &str = "spillgate-modules";
const CHART: &str = "spillgate-chart";
const CLIENT: &str = "spillgate-client";
const RECIPES: &str = "spillgate-recipes";
const REPORT: &str = "spillgate-report";
const EVALUATE: &str = "spillgate-evaluate";
const BENCH: &str = "spillgate-bench";
const HOSTILE: &str = "spillgate-hostile";
const JELLYFISH: &str = "spillgate-jellyfish";
const TRAIN: &str = "spillgate-train";
const XTASK: &str = "xtask";

/// What each crate may depend on. The programs compose: they may use every library.
const ALLOWED: &[(&str, &[&str])] = &[
    (PIPELINE, &[]),
    (SCENES, &[]),
    (CHART, &[]),
    (OUTPUT, &[]),
    (REPORT, &[]),
    (PICTURE, &[]),
    (PROTOCOL, &[PIPELINE]),
    (CAMERA, &[PIPELINE]),
    (CONTROLLER_POLICY, &[PIPELINE, PROTOCOL, CAMERA]),
    (WORKER_POLICY, &[PIPELINE, PROTOCOL]),
    // Of the laboratory: tests of the policies run over them, too.
    (RECIPES, &[PIPELINE]),
    (
        SIM,
        &[PIPELINE, PROTOCOL, CAMERA, CONTROLLER_POLICY, WORKER_POLICY],
    ),
    (PROTO, &[]),
    (PROCESS, &[PIPELINE, PICTURE]),
    (BACKEND, &[PIPELINE, PICTURE, PROCESS]),
    // How files are read.
    (TLS, &[PROCESS]),
    (LINK, &[PIPELINE, PROTOCOL, PICTURE, PROTO, PROCESS, TLS]),
    (
        CONTROLLER,
        &[
            PIPELINE,
            PROTOCOL,
            PICTURE,
            PROTO,
            PROCESS,
            CONTROLLER_POLICY,
            LINK,
            TLS,
        ],
    ),
    (JELLYFISH, &[PIPELINE, CAMERA, CONTROLLER_POLICY, SIM]),
    (
        WORKER,
        &[PIPELINE, PROTOCOL, PICTURE, PROCESS, WORKER_POLICY, BACKEND],
    ),
    (MODULES, &[PIPELINE, PROCESS, BACKEND]),
    (
        CLIENT,
        &[PIPELINE, CAMERA, PICTURE, PROTO, SCENES, CHART, OUTPUT],
    ),
    // It watches the runtimes, so it stands above them.
    (
        TELEMETRY,
        &[PIPELINE, PROTOCOL, PICTURE, PROCESS, CONTROLLER],
    ),
    (
        EVALUATE,
        &[
            PIPELINE,
            PROTOCOL,
            CAMERA,
            CONTROLLER_POLICY,
            WORKER_POLICY,
            SIM,
            JELLYFISH,
            RECIPES,
            REPORT,
            PROCESS,
            BACKEND,
            MODULES,
            CHART,
            OUTPUT,
        ],
    ),
    // It knows the server by its wire alone.
    (HOSTILE, &[PIPELINE, PROTO, REPORT]),
    (TRAIN, LIBRARIES),
    ("spillgate", LIBRARIES),
    // It knows the server by its wire and its admin port alone.
    (
        "spillgate-operator",
        &[
            PIPELINE,
            PROTOCOL,
            CONTROLLER_POLICY,
            BACKEND,
            LINK,
            MODULES,
            OUTPUT,
        ],
    ),
    (XTASK, &[]),
    // It starts servers and knows them by their processes alone.
    (BENCH, &[XTASK, OUTPUT, REPORT]),
    // The laboratory: nothing depends on it.
    (
        "spillgate-lab",
        &[
            PIPELINE,
            PROCESS,
            CONTROLLER_POLICY,
            BACKEND,
            CLIENT,
            EVALUATE,
            BENCH,
            HOSTILE,
            JELLYFISH,
            TRAIN,
        ],
    ),
];

const LIBRARIES: &[&str] = &[
    PIPELINE,
    PROTOCOL,
    CAMERA,
    PROCESS,
    SCENES,
    TELEMETRY,
    CONTROLLER_POLICY,
    WORKER_POLICY,
    SIM,
    PROTO,
    BACKEND,
    LINK,
    TLS,
    CONTROLLER,
    WORKER,
    MODULES,
    CHART,
    OUTPUT,
    PICTURE,
    CLIENT,
];

/// Libraries that belong to some crates alone.
const RESERVED: &[(&[&str], &[&str])] = &[
    // libtorch: the backend behind a feature; programs for its link arguments, the trainer for gradients.
    (
        &["tch", "torch-sys"],
        &[BACKEND, MODULES, TRAIN, "spillgate", "spillgate-lab"],
    ),
];

/// What the workspace's manifests (`cargo metadata --no-deps`) break. Tests may look wherever they like.
pub(super) fn problems(metadata: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    for package in packages {
        let Some(name) = package["name"].as_str() else {
            continue;
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            problems.push(format!(
                "{name} has no place in the layering (xtask/src/tidy/layering.rs)"
            ));
            continue;
        };
        for dependency in dependencies(package) {
            if names.contains(&dependency) && !allowed.contains(&dependency) {
                problems.push(format!("{name} must not depend on {dependency}"));
            }
            for (libraries, owners) in RESERVED {
                if libraries.contains(&dependency) && !owners.contains(&name) {
                    problems.push(format!(
                        "{name} must not depend on {dependency}: only {owners:?} may"
                    ));
                }
            }
        }
        problems.extend(unlinked(package, packages));
    }
    problems
}

/// What is built over the backend must depend on it itself and build with its `build.rs`: cargo unifies features over the
/// workspace, so its programs and tests may be linked with libtorch, and only `build.rs` says where that lies.
fn unlinked(package: &Value, packages: &[Value]) -> Option<String> {
    let name = package["name"].as_str()?;
    if name == BACKEND || !reaches_backend(name, packages) {
        return None;
    }
    let built = |target: &Value| {
        target["kind"][0] == "custom-build"
            && target["src_path"]
                .as_str()
                .is_some_and(|path| path.ends_with("/worker/backend/build.rs"))
    };
    let targets = package["targets"].as_array().map_or(&[][..], Vec::as_slice);
    if dependencies(package).contains(&BACKEND) && targets.iter().any(built) {
        return None;
    }
    Some(format!(
        "{name} uses {BACKEND} through others: it must depend on it and name worker/backend/build.rs as its `build`, else its tests may not find libtorch"
    ))
}

/// Whether the backend is among what a package depends on, at any distance. The layering has no cycle.
fn reaches_backend(name: &str, packages: &[Value]) -> bool {
    name == BACKEND
        || packages
            .iter()
            .filter(|package| package["name"] == name)
            .flat_map(dependencies)
            .any(|dependency| reaches_backend(dependency, packages))
}

/// Direct dependencies, those of tests left out.
fn dependencies(package: &Value) -> Vec<&str> {
    let all = package["dependencies"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    all.iter()
        .filter(|dependency| dependency["kind"] != "dev")
        .filter_map(|dependency| dependency["name"].as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|(name, kind)| json!({"name": name, "kind": kind}))
            .collect();
        json!({"name": name, "dependencies": dependencies})
    }

    #[test]
    fn the_drawn_direction_is_accepted() {
        let mut program = package("spillgate", &[(SIM, None), (BACKEND, None)]);
        program["targets"] =
            json!([{"kind": ["custom-build"], "src_path": "/any/worker/backend/build.rs"}]);
        let metadata = json!({"packages": [
            package(PIPELINE, &[("serde", None)]),
            package(WORKER_POLICY, &[(PIPELINE, None), (RECIPES, Some("dev"))]),
            package(SIM, &[(PIPELINE, None), (WORKER_POLICY, None)]),
            package(BACKEND, &[(PIPELINE, None), ("tch", None)]),
            program,
        ]});
        assert!(problems(&metadata).is_empty(), "{:?}", problems(&metadata));
    }

    #[test]
    fn a_step_back_a_stranger_and_a_leak_of_libtorch_are_found() {
        let metadata = json!({"packages": [
            package(PIPELINE, &[(WORKER_POLICY, None)]),
            package(WORKER_POLICY, &[("tch", None)]),
            package(PROTO, &[(WORKER_POLICY, Some("build"))]),
            package(SIM, &[(RECIPES, None)]),
            package(RECIPES, &[(PIPELINE, None)]),
            package("spillgate-newcomer", &[]),
        ]});
        let problems = problems(&metadata);
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(
            problems[0].contains("spillgate-pipeline must not depend on spillgate-worker-policy")
        );
        assert!(problems[1].contains("must not depend on tch"));
        assert!(problems[2].contains("spillgate-proto must not depend on"));
        assert!(problems[3].contains("spillgate-sim must not depend on spillgate-recipes"));
        assert!(problems[4].contains("spillgate-newcomer has no place"));
    }

    #[test]
    fn a_package_over_the_backend_without_its_link_arguments_is_found() {
        let build = |path: &str| json!([{"kind": ["custom-build"], "src_path": path}]);
        let mut modules = package(MODULES, &[(BACKEND, None)]);
        modules["targets"] = build("/any/worker/backend/build.rs");
        let mut operator = package("spillgate-operator", &[(MODULES, None)]);
        operator["targets"] = build("/any/deploy/operator/build.rs");
        let metadata = json!({"packages": [package(BACKEND, &[]), modules, operator]});
        let problems = problems(&metadata);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("spillgate-operator uses spillgate-backend through others"));
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Each crate may only use crates that stand above it in the table.
        for (at, (name, allowed)) in ALLOWED.iter().enumerate() {
            for dependency in *allowed {
                let above = ALLOWED[..at]
                    .iter()
                    .any(|(earlier, _)| earlier == dependency);
                assert!(above, "{name} uses {dependency}, which is not above it");
            }
        }
    }
}
